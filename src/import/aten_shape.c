/* ATen operators that see elements in another shape or order, or again: views, dims, repetition. */
#include <string.h>

#include "import/aten.h"

/* ---- views ---- */

/* x in a shape with at most one -1, which takes what is left. */
static ir_value_t reshape(aten_t *a, ir_value_t x, int32_t n, const int64_t *sizes) {
    ir_type_t type = aten_type(a, x);
    int64_t dims[IR_MAX_RANK], known = 1;
    int32_t open = -1;
    if (aten_ok(a) && (n < 0 || n > IR_MAX_RANK))
        aten_fail(a, ST_UNSUPPORTED, "a shape of %d dims, the limit is %d", n, IR_MAX_RANK);
    for (int32_t i = 0; i < n && aten_ok(a); i++) {
        dims[i] = sizes[i];
        if (sizes[i] == -1 && open < 0)
            open = i;
        else if (sizes[i] < 0 || !st_mul_i64(known, sizes[i], &known))
            aten_fail(a, ST_INVALID, "size %lld of dim %d", (long long)sizes[i], i);
    }
    if (!aten_ok(a)) return IR_NONE;
    if (open >= 0) {
        int64_t elements = ir_type_elements(&type);
        if (known == 0 || elements % known != 0)
            aten_fail(a, ST_INVALID, "%lld elements do not divide into rows of %lld",
                      (long long)elements, (long long)known);
        else
            dims[open] = elements / known;
    }
    return ir_b_reshape(&a->b, x, n, dims);
}

/* view, reshape … */
void aten_view(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t sizes[ATEN_MAX_LIST];
    int32_t n = aten_ints(a, a->op->arg ? "shape" : "size", sizes);
    aten_ignore(a, "stride");
    aten_return(a, reshape(a, x, n, sizes));
}

/* view_as, reshape_as; expand_as with arg 1 */
void aten_view_as(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t other = aten_type(a, aten_tensor(a, "other"));
    aten_return(a, a->op->arg ? ir_b_broadcast(&a->b, x, other.rank, other.dims)
                              : ir_b_reshape(&a->b, x, other.rank, other.dims));
}

void aten_flatten(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t first = aten_axis(a, "start_dim", type.rank, 0);
    int32_t last = aten_axis(a, "end_dim", type.rank, -1);
    if (aten_ok(a) && first > last)
        aten_fail(a, ST_INVALID, "start_dim %d lies behind end_dim %d", first, last);
    int64_t dims[IR_MAX_RANK], joined = 1;
    int32_t rank = 0;
    for (int32_t i = 0; i < type.rank; i++) {
        if (i >= first && i <= last)
            joined *= type.dims[i];
        else
            dims[rank++] = type.dims[i];
        if (i == last) dims[rank++] = joined;
    }
    if (type.rank == 0) dims[rank++] = 1;
    aten_return(a, ir_b_reshape(&a->b, x, rank, dims));
}

void aten_unflatten(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    int64_t sizes[ATEN_MAX_LIST], dims[2 * ATEN_MAX_LIST], known = 1;
    int32_t n = aten_ints(a, "sizes", sizes), rank = 0, open = -1;
    for (int32_t i = 0; i < type.rank; i++) {
        if (i != axis) {
            dims[rank++] = type.dims[i];
            continue;
        }
        for (int32_t j = 0; j < n; j++) {
            if (sizes[j] == -1)
                open = rank;
            else if (!st_mul_i64(known, sizes[j], &known))
                known = 0;
            dims[rank++] = sizes[j];
        }
        if (open >= 0 && known > 0) dims[open] = type.dims[i] / known;
    }
    aten_return(a, reshape(a, x, rank, dims));
}

void aten_squeeze(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int64_t given[ATEN_MAX_LIST], dims[IR_MAX_RANK];
    int32_t n = aten_ints(a, "dim", given), rank = 0;
    bool drop[IR_MAX_RANK] = {0};
    for (int32_t i = 0; n < 0 && i < type.rank; i++) drop[i] = true;
    for (int32_t i = 0; i < n && type.rank > 0; i++)
        drop[aten_axis_of(a, given[i], type.rank)] = true;
    for (int32_t i = 0; i < type.rank; i++)
        if (!drop[i] || type.dims[i] != 1) dims[rank++] = type.dims[i];
    aten_return(a, ir_b_reshape(&a->b, x, rank, dims));
}

ir_value_t aten_with_dim(aten_t *a, ir_value_t x, int32_t axis) {
    ir_type_t type = aten_type(a, x);
    int64_t dims[IR_MAX_RANK + 1];
    if (aten_ok(a) && type.rank == IR_MAX_RANK)
        aten_fail(a, ST_UNSUPPORTED, "more than %d dims", IR_MAX_RANK);
    if (!aten_ok(a)) return IR_NONE;
    for (int32_t i = 0, from = 0; i <= type.rank; i++) dims[i] = i == axis ? 1 : type.dims[from++];
    return ir_b_reshape(&a->b, x, type.rank + 1, dims);
}

void aten_unsqueeze(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int32_t axis = aten_axis(a, "dim", aten_type(a, x).rank + 1, 0);
    aten_return(a, aten_with_dim(a, x, axis));
}

void aten_permute(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int64_t given[ATEN_MAX_LIST], perm[IR_MAX_RANK] = {0};
    int32_t n = aten_ints(a, "dims", given);
    if (aten_ok(a) && n != type.rank)
        aten_fail(a, ST_INVALID, "argument 'dims' has %d entries for %d dims", n, type.rank);
    for (int32_t i = 0; i < n && aten_ok(a); i++) perm[i] = aten_axis_of(a, given[i], type.rank);
    aten_return(a, ir_b_transpose(&a->b, x, perm));
}

void aten_transpose(aten_t *a) {
    static const char *const names[][2] = {{"dim0", "dim1"}, {"axis0", "axis1"}};
    ir_value_t x = aten_tensor(a, "self");
    int32_t rank = aten_type(a, x).rank;
    int32_t from = aten_axis(a, names[a->op->arg][0], rank, 0);
    int32_t to = aten_axis(a, names[a->op->arg][1], rank, 0);
    aten_return(a, from == to ? x : ir_b_swap(&a->b, x, from, to));
}

/* movedim(source, destination): dims that are named get their places, the others keep their
 * order. */
void aten_movedim(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    const int32_t rank = aten_type(a, x).rank;
    int64_t from[ATEN_MAX_LIST], to[ATEN_MAX_LIST], perm[IR_MAX_RANK] = {0};
    bool taken[IR_MAX_RANK] = {false}, filled[IR_MAX_RANK] = {false};
    const int32_t n = aten_ints(a, "source", from);
    if (aten_ints(a, "destination", to) != n || n < 0)
        aten_fail(a, ST_INVALID, "'source' and 'destination' name different numbers of dims");
    for (int32_t i = 0; i < n && aten_ok(a); i++) {
        const int32_t x_dim = aten_axis_of(a, from[i], rank), y_dim = aten_axis_of(a, to[i], rank);
        if (!aten_ok(a)) return;
        if (taken[x_dim] || filled[y_dim]) {
            aten_fail(a, ST_INVALID, "dim %d is moved twice", taken[x_dim] ? x_dim : y_dim);
            return;
        }
        taken[x_dim] = filled[y_dim] = true;
        perm[y_dim] = x_dim;
    }
    for (int32_t y_dim = 0, x_dim = 0; y_dim < rank && aten_ok(a); y_dim++) {
        if (filled[y_dim]) continue;
        while (taken[x_dim]) x_dim++;
        perm[y_dim] = x_dim++;
    }
    bool moved = false;
    for (int32_t i = 0; i < rank; i++) moved |= perm[i] != i;
    aten_return(a, moved ? ir_b_transpose(&a->b, x, perm) : x);
}

/* t: of a matrix; numpy_T (arg 1): all dims reversed; mT (arg 2): the last two */
void aten_transpose_matrix(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int32_t rank = aten_type(a, x).rank;
    if (aten_ok(a) && ((a->op->arg == 0 && rank > 2) || (a->op->arg == 2 && rank < 2)))
        aten_fail(a, ST_INVALID, "a tensor of %d dims", rank);
    int64_t perm[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) perm[i] = rank - 1 - i;
    if (a->op->arg == 2)
        aten_return(a, ir_b_swap(&a->b, x, rank - 2, rank - 1));
    else
        aten_return(a, rank < 2 ? x : ir_b_transpose(&a->b, x, perm));
}

void aten_expand(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int64_t dims[ATEN_MAX_LIST];
    int32_t n = aten_ints(a, "size", dims);
    if (aten_ok(a) && (n < type.rank || n > IR_MAX_RANK))
        aten_fail(a, ST_INVALID, "argument 'size' has %d entries for %d dims", n, type.rank);
    for (int32_t i = 0; i < n && aten_ok(a); i++) {
        int32_t from = i - (n - type.rank);
        if (dims[i] == -1 && from >= 0) dims[i] = type.dims[from];
        if (dims[i] < 0) aten_fail(a, ST_INVALID, "size %lld of dim %d", (long long)dims[i], i);
    }
    if (aten_ok(a)) aten_return(a, ir_b_broadcast(&a->b, x, n, dims));
}

/* All tensors of a list in their common shape, each a result. */
void aten_broadcast_tensors(aten_t *a) {
    ir_value_t *xs;
    uint32_t n = aten_tensors(a, "tensors", &xs);
    ir_type_t joint = ir_type_scalar(IR_F32);
    for (uint32_t k = 0; k < n && aten_ok(a); k++) {
        ir_type_t type = aten_type(a, xs[k]);
        int64_t dims[IR_MAX_RANK];
        int32_t rank = joint.rank > type.rank ? joint.rank : type.rank;
        for (int32_t i = 0; i < rank && aten_ok(a); i++) {
            int32_t from_x = i - (rank - type.rank), from_joint = i - (rank - joint.rank);
            int64_t x = from_x < 0 ? 1 : type.dims[from_x];
            int64_t y = from_joint < 0 ? 1 : joint.dims[from_joint];
            if (x != y && x != 1 && y != 1)
                aten_fail(a, ST_INVALID, "tensor %u has %lld in dim %d, those before it %lld", k,
                          (long long)x, i, (long long)y);
            dims[i] = y == 1 ? x : y;
        }
        if (aten_ok(a)) joint = ir_type_make(IR_F32, rank, dims);
    }
    for (uint32_t k = 0; k < n && aten_ok(a); k++)
        aten_return(a, ir_b_broadcast(&a->b, xs[k], joint.rank, joint.dims));
}

/* ---- repetition ---- */

/* x with its dim `axis` written `n` times; `each` repeats single items (a a b b), else the whole (a
 * b a b). Through [before, n, size · after] or [before · size, n, after], so that any rank fits. */
static ir_value_t repeat_axis(aten_t *a, ir_value_t x, int32_t axis, int64_t n, bool each) {
    ir_type_t type = aten_type(a, x);
    int64_t before = 1, after = 1;
    for (int32_t i = 0; i < type.rank; i++) {
        bool in_before = each ? i <= axis : i < axis;
        *(in_before ? &before : &after) *= type.dims[i];
    }
    int64_t extent = 0;
    if (aten_ok(a) && (n < 0 || !st_mul_i64(type.dims[axis], n, &extent)))
        aten_fail(a, ST_INVALID, "%lld repetitions", (long long)n);
    if (!aten_ok(a)) return IR_NONE;
    x = ir_b_reshape(&a->b, x, 3, (int64_t[]){before, 1, after});
    x = ir_b_broadcast(&a->b, x, 3, (int64_t[]){before, n, after});
    type.dims[axis] = extent;
    return ir_b_reshape(&a->b, x, type.rank, type.dims);
}

void aten_repeat(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t times[ATEN_MAX_LIST];
    int32_t n = aten_ints(a, "repeats", times);
    if (aten_ok(a) && (n < aten_type(a, x).rank || n > IR_MAX_RANK))
        aten_fail(a, ST_INVALID, "argument 'repeats' has %d entries for %d dims", n,
                  aten_type(a, x).rank);
    while (aten_ok(a) && aten_type(a, x).rank < n) x = aten_with_dim(a, x, 0);
    for (int32_t i = 0; i < n && aten_ok(a); i++)
        if (times[i] != 1) x = repeat_axis(a, x, i, times[i], false);
    aten_return(a, x);
}

void aten_repeat_interleave(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t times = aten_int_required(a, "repeats");
    ir_type_t type = aten_type(a, x);
    aten_ignore(a, "output_size");
    if (!aten_has(a, "dim") || type.rank == 0) {
        int64_t all = ir_type_elements(&type);
        x = ir_b_reshape(&a->b, x, 1, &all);
        type.rank = 1;
    }
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    aten_return(a, repeat_axis(a, x, axis, times, true));
}
