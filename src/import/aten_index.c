/* ATen operators that take elements by index tensors. */
#include <string.h>

#include "import/aten.h"
#include "ir/convert.h"

static bool check_index(aten_t *a, const char *argument, ir_value_t index) {
    ir_dtype_t dtype = aten_type(a, index).dtype;
    if (!aten_ok(a)) return false;
    if (dtype == IR_I64 || dtype == IR_I32) return true;
    if (dtype == IR_BOOL || dtype == IR_U8)
        aten_fail(
            a, ST_UNSUPPORTED,
            "argument '%s' is a %s mask: the result's size would depend on data; use torch.where",
            argument, ir_dtype_text(dtype));
    else
        aten_fail(a, ST_INVALID, "argument '%s' is %s, an integer index is needed", argument,
                  ir_dtype_text(dtype));
    return false;
}

/* True if the parameter's initial value is zero in the whole row. */
static bool row_is_zero(const aten_t *a, ir_value_t weight, int64_t row) {
    const ir_node_info_t *node = ir_value_producer(a->b.graph, weight);
    for (size_t i = 0; i < a->result->tensors.n; i++) {
        const import_tensor_t *tensor = &a->result->tensors.data[i];
        if (strcmp(tensor->name, node->name) != 0) continue;
        int64_t width = tensor->type.dims[1];
        for (int64_t j = 0; j < width; j++)
            if (ir_element_load(tensor->type.dtype, tensor->data, (size_t)(row * width + j)) != 0)
                return false;
        return true;
    }
    return false;
}

/* The padding row of an embedding gets no gradient. It is zero in a fresh model and stays so: then
 * its value needs no read. A row that is not zero would need a value without its gradient. */
static ir_value_t without_padding(aten_t *a, ir_value_t weight, ir_value_t index, ir_value_t taken,
                                  int64_t padding) {
    ir_type_t type = aten_type(a, weight), index_type = aten_type(a, index);
    ir_type_t out = aten_type(a, taken);
    if (aten_ok(a) && (type.rank != 2 || padding >= type.dims[0]))
        aten_fail(a, ST_INVALID, "argument 'padding_idx' is %lld", (long long)padding);
    if (!aten_ok(a)) return IR_NONE;
    if (!row_is_zero(a, weight, padding)) {
        aten_fail(
            a, ST_UNSUPPORTED,
            "argument 'padding_idx' is %lld, but that row of the weight is not zero: export with "
            "padding_idx=None, or with the row set to zero",
            (long long)padding);
        return IR_NONE;
    }
    a->b.status =
        import_note(a->result, "%s: row %lld of '%s' (padding_idx) is taken to stay zero",
                    a->node_name, (long long)padding, ir_value_producer(a->b.graph, weight)->name);
    ir_value_t is_padding =
        ir_b_binary(&a->b, IR_OP_EQ, index, ir_b_scalar(&a->b, index_type.dtype, (double)padding));
    int64_t dims[IR_MAX_RANK];
    memcpy(dims, out.dims, sizeof dims);
    if (out.rank) dims[out.rank - 1] = 1;
    is_padding = ir_b_reshape(&a->b, is_padding, out.rank, dims);
    return ir_b_select(&a->b, is_padding, ir_b_scalar(&a->b, type.dtype, 0), taken);
}

void aten_embedding(aten_t *a) {
    ir_value_t weight = aten_tensor(a, "weight"), index = aten_tensor(a, "indices");
    int64_t padding = aten_int(a, "padding_idx", -1);
    aten_ignore(a, "sparse");
    if (aten_bool(a, "scale_grad_by_freq", false))
        aten_fail(a, ST_UNSUPPORTED, "argument 'scale_grad_by_freq' is true");
    check_index(a, "indices", index);
    ir_value_t taken = ir_b_gather(&a->b, weight, index, 0);
    if (padding >= 0) taken = without_padding(a, weight, index, taken, padding);
    aten_return(a, taken);
}

void aten_index_select(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int32_t axis = aten_axis(a, "dim", aten_type(a, x).rank, 0);
    ir_value_t index = aten_tensor(a, "index");
    check_index(a, "index", index);
    if (aten_ok(a) && aten_type(a, index).rank == 0)
        index = ir_b_reshape(&a->b, index, 1, (int64_t[]){1});
    aten_return(a, ir_b_gather(&a->b, x, index, axis));
}

/* out[..i..] = x[..index[..i..]..]; the index may be smaller than x in the other dims. */
void aten_gather(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int32_t axis = aten_axis(a, "dim", aten_type(a, x).rank, 0);
    ir_value_t index = aten_tensor(a, "index");
    aten_ignore(a, "sparse_grad");
    check_index(a, "index", index);
    ir_type_t type = aten_type(a, x), index_type = aten_type(a, index);
    if (aten_ok(a) && (type.rank != index_type.rank || type.rank == 0))
        aten_fail(a, ST_INVALID, "'self' has %d dims and 'index' %d", type.rank, index_type.rank);
    for (int32_t i = 0; i < type.rank && aten_ok(a); i++) {
        if (i == axis || index_type.dims[i] == type.dims[i]) continue;
        if (index_type.dims[i] > type.dims[i])
            aten_fail(a, ST_INVALID, "'index' is larger than 'self' in dim %d", i);
        else
            x = ir_b_slice_axis(&a->b, x, i, 0, index_type.dims[i]);
    }
    ir_arg_t args[] = {IR_ARG_INT("axis", axis)};
    aten_return(a, ir_b_node(&a->b, IR_OP_GATHER_ALONG, 2, (ir_value_t[]){x, index}, 1, args));
}

/* ---- advanced indexing ---- */

/* Which dims an index list chooses from: dims with an index tensor. */
typedef struct choice {
    int32_t n;
    int32_t axes[IR_MAX_RANK];
    ir_value_t index[IR_MAX_RANK];
    bool adjacent;
} choice_t;

static choice_t read_choice(aten_t *a, int32_t rank) {
    choice_t choice = {.adjacent = true};
    ir_value_t *given;
    uint32_t n = aten_tensors(a, "indices", &given);
    if (aten_ok(a) && n > (uint32_t)rank)
        aten_fail(a, ST_INVALID, "%u indices for %d dims", n, rank);
    for (uint32_t i = 0; i < n && aten_ok(a); i++) {
        if (given[i] == IR_NONE) continue;
        check_index(a, "indices", given[i]);
        if (choice.n > 0 && choice.axes[choice.n - 1] != (int32_t)i - 1) choice.adjacent = false;
        choice.axes[choice.n] = (int32_t)i;
        choice.index[choice.n++] = given[i];
    }
    if (aten_ok(a) && choice.n == 0) aten_fail(a, ST_INVALID, "no index is given");
    return choice;
}

/* The index tensors, broadcast against each other, side by side in a new last dim. */
static ir_value_t join_indices(aten_t *a, const choice_t *choice) {
    ir_type_t shape = aten_type(a, choice->index[0]);
    for (int32_t k = 1; k < choice->n && aten_ok(a); k++) {
        ir_type_t next = aten_type(a, choice->index[k]), joint;
        a->b.status = ir_dims_broadcast(&shape, &next, &joint);
        shape = joint;
    }
    if (aten_ok(a) && shape.rank == IR_MAX_RANK)
        aten_fail(a, ST_UNSUPPORTED, "indices of %d dims", shape.rank);
    ir_value_t columns[IR_MAX_RANK];
    int64_t dims[IR_MAX_RANK + 1];
    memcpy(dims, shape.dims, sizeof shape.dims);
    dims[shape.rank] = 1;
    for (int32_t k = 0; k < choice->n && aten_ok(a); k++) {
        ir_value_t column = ir_b_cast(&a->b, choice->index[k], IR_I64);
        column = ir_b_broadcast(&a->b, column, shape.rank, shape.dims);
        columns[k] = ir_b_reshape(&a->b, column, shape.rank + 1, dims);
    }
    return ir_b_concat(&a->b, (uint32_t)choice->n, columns, shape.rank);
}

/* x[i, j, …]: several index tensors. The chosen dims move to the front, gather_nd takes there, and
 * if they stood side by side the index's dims go back to their place; else NumPy's rule leaves them
 * first. */
static ir_value_t take_several(aten_t *a, ir_value_t x, const choice_t *choice) {
    ir_type_t type = aten_type(a, x);
    int64_t perm[IR_MAX_RANK], back[IR_MAX_RANK];
    int32_t at = 0;
    for (int32_t k = 0; k < choice->n; k++) perm[at++] = choice->axes[k];
    for (int32_t i = 0; i < type.rank; i++) {
        bool chosen = false;
        for (int32_t k = 0; k < choice->n; k++) chosen |= choice->axes[k] == i;
        if (!chosen) perm[at++] = i;
    }
    bool moved = false;
    for (int32_t i = 0; i < type.rank; i++) moved |= perm[i] != i;
    if (moved) x = ir_b_transpose(&a->b, x, perm);
    ir_value_t index = join_indices(a, choice);
    int32_t index_rank = aten_type(a, index).rank - 1;
    ir_value_t out = ir_b_binary(&a->b, IR_OP_GATHER_ND, x, index);
    int32_t first = choice->axes[0], rank = aten_type(a, out).rank;
    if (!moved || !choice->adjacent || !aten_ok(a)) return out;
    for (int32_t i = 0; i < rank; i++)
        back[i] = i < first ? index_rank + i : i < first + index_rank ? i - first : i;
    return ir_b_transpose(&a->b, out, back);
}

void aten_index(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    choice_t choice = read_choice(a, aten_type(a, x).rank);
    if (!aten_ok(a)) return;
    aten_return(a, choice.n == 1 ? ir_b_gather(&a->b, x, choice.index[0], choice.axes[0])
                                 : take_several(a, x, &choice));
}
