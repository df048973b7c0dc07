/* ATen operators that take parts of tensors and put them together: joins, cuts, order, borders. */
#include <string.h>

#include "import/aten.h"

/* ---- joins ---- */

static ir_value_t join(aten_t *a, uint32_t n, ir_value_t *xs, int32_t axis) {
    aten_item_t *items = st_arena_array(a->arena, n, sizeof *items);
    if (!items && aten_ok(a)) a->b.status = st_no_memory(n * sizeof *items, "a list of tensors");
    if (!aten_ok(a)) return IR_NONE;
    for (uint32_t i = 0; i < n; i++) items[i] = aten_item_tensor(xs[i]);
    ir_dtype_t dtype = aten_result_type(a, n, items);
    for (uint32_t i = 0; i < n; i++) xs[i] = ir_b_cast(&a->b, xs[i], dtype);
    return n == 1 ? xs[0] : ir_b_concat(&a->b, n, xs, axis);
}

/* PyTorch skips inputs of shape [0] among inputs of higher rank. */
void aten_cat(aten_t *a) {
    ir_value_t *xs;
    uint32_t n = aten_tensors(a, "tensors", &xs), kept = 0;
    int32_t rank = 0;
    for (uint32_t i = 0; i < n; i++)
        if (aten_type(a, xs[i]).rank > rank) rank = aten_type(a, xs[i]).rank;
    for (uint32_t i = 0; i < n; i++) {
        ir_type_t type = aten_type(a, xs[i]);
        if (!(type.rank == 1 && type.dims[0] == 0 && rank > 1)) xs[kept++] = xs[i];
    }
    if (aten_ok(a) && kept == 0) aten_fail(a, ST_INVALID, "there are no tensors to join");
    int32_t axis = aten_axis(a, "dim", rank, 0);
    aten_return(a, join(a, kept, xs, axis));
}

void aten_stack(aten_t *a) {
    ir_value_t *xs;
    uint32_t n = aten_tensors(a, "tensors", &xs);
    if (aten_ok(a) && n == 0) aten_fail(a, ST_INVALID, "there are no tensors to join");
    if (!aten_ok(a)) return;
    int32_t axis = aten_axis(a, "dim", aten_type(a, xs[0]).rank + 1, 0);
    for (uint32_t i = 0; i < n; i++) xs[i] = aten_with_dim(a, xs[i], axis);
    aten_return(a, join(a, n, xs, axis));
}

/* ---- cuts ---- */

static ir_value_t cut(aten_t *a, ir_value_t x, int32_t axis, int64_t begin, int64_t end) {
    ir_type_t type = aten_type(a, x);
    if (aten_ok(a) && (type.rank == 0 || begin < 0 || begin > end || end > type.dims[axis])) {
        char text[IR_TYPE_TEXT_BYTES];
        aten_fail(a, ST_INVALID, "%lld to %lld of dim %d of %s", (long long)begin, (long long)end,
                  axis, ir_type_text(&type, text, sizeof text));
    }
    if (!aten_ok(a)) return IR_NONE;
    if (begin == 0 && end == type.dims[axis]) return x;
    return ir_b_slice_axis(&a->b, x, axis, begin, end);
}

static void return_pieces(aten_t *a, ir_value_t x, int32_t axis, int64_t piece) {
    ir_type_t type = aten_type(a, x);
    int64_t size = type.rank ? type.dims[axis] : 0;
    if (aten_ok(a) &&
        (piece < 0 || (piece == 0 && size > 0) || (piece > 0 && size / piece > 1 << 16)))
        aten_fail(a, ST_INVALID, "pieces of %lld of a dim of %lld", (long long)piece,
                  (long long)size);
    if (size == 0) aten_return(a, x);
    for (int64_t at = 0; at < size && aten_ok(a); at += piece)
        aten_return(a, cut(a, x, axis, at, size - at < piece ? size : at + piece));
}

void aten_split(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t piece = aten_int_required(a, "split_size");
    return_pieces(a, x, aten_axis(a, "dim", aten_type(a, x).rank, 0), piece);
}

void aten_split_sizes(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t sizes[ATEN_MAX_LIST], at = 0;
    int32_t n = aten_ints(a, a->op->arg ? "split_size" : "split_sizes", sizes);
    int32_t axis = aten_axis(a, "dim", aten_type(a, x).rank, 0);
    for (int32_t i = 0; i < n && aten_ok(a); i++) {
        int64_t end = 0;
        if (!st_add_i64(at, sizes[i], &end)) aten_fail(a, ST_INVALID, "sizes overflow");
        aten_return(a, cut(a, x, axis, at, end));
        at = end;
    }
}

void aten_chunk(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t n = aten_int_required(a, "chunks");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    if (aten_ok(a) && (n < 1 || type.rank == 0))
        aten_fail(a, ST_INVALID, "%lld chunks", (long long)n);
    if (aten_ok(a)) return_pieces(a, x, axis, type.dims[axis] / n + (type.dims[axis] % n != 0));
}

static ir_value_t select_one(aten_t *a, ir_value_t x, int32_t axis, int64_t index) {
    ir_type_t type = aten_type(a, x);
    x = cut(a, x, axis, index, index + 1);
    for (int32_t i = axis; i + 1 < type.rank; i++) type.dims[i] = type.dims[i + 1];
    return ir_b_reshape(&a->b, x, type.rank - 1, type.dims);
}

void aten_unbind(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    if (aten_ok(a) && (type.rank == 0 || type.dims[axis] > 1 << 16))
        aten_fail(a, ST_INVALID, "too many items, or none");
    for (int64_t i = 0; aten_ok(a) && i < type.dims[axis]; i++)
        aten_return(a, select_one(a, x, axis, i));
}

void aten_select(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    int64_t index = aten_int_required(a, "index");
    if (!aten_ok(a)) return;
    if (type.rank == 0 || index >= type.dims[axis] || index < -type.dims[axis]) {
        aten_fail(a, ST_INVALID, "argument 'index' is %lld, dim %d has %lld items",
                  (long long)index, axis, (long long)type.dims[axis]);
        return;
    }
    aten_return(a, select_one(a, x, axis, index < 0 ? index + type.dims[axis] : index));
}

static int64_t clamp_index(int64_t index, int64_t size) {
    if (index < 0) index = index < -size ? 0 : index + size;
    return index > size ? size : index;
}

void aten_slice(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    int64_t start = aten_int(a, "start", 0), end = aten_int(a, "end", INT64_MAX);
    int64_t step = aten_int(a, "step", 1);
    if (aten_ok(a) && (step < 1 || type.rank == 0))
        aten_fail(a, ST_INVALID, "a step of %lld over %d dims", (long long)step, type.rank);
    if (!aten_ok(a)) return;
    start = clamp_index(start, type.dims[axis]);
    end = clamp_index(end, type.dims[axis]);
    if (end < start) end = start;
    if (step == 1) {
        aten_return(a, cut(a, x, axis, start, end));
        return;
    }
    int64_t begins[IR_MAX_RANK] = {0}, steps[IR_MAX_RANK];
    for (int32_t i = 0; i < type.rank; i++) steps[i] = 1;
    begins[axis] = start, steps[axis] = step, type.dims[axis] = end;
    ir_arg_t args[] = {IR_ARG_INTS("begin", begins, type.rank),
                       IR_ARG_INTS("end", type.dims, type.rank),
                       IR_ARG_INTS("step", steps, type.rank)};
    aten_return(a, ir_b_node(&a->b, IR_OP_SLICE, 1, &x, 3, args));
}

void aten_narrow(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    int64_t start = aten_int_required(a, "start"), length = aten_int_required(a, "length"), end = 0;
    if (start < 0 && type.rank) start += type.dims[axis];
    if (!st_add_i64(start, length, &end)) end = -1;
    aten_return(a, cut(a, x, axis, start, end));
}

/* ---- order and borders ---- */

void aten_flip(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int32_t rank = aten_type(a, x).rank, n_axes = 0;
    int64_t given[ATEN_MAX_LIST], axes[IR_MAX_RANK];
    int32_t n = aten_ints(a, "dims", given);
    bool chosen[IR_MAX_RANK] = {0};
    for (int32_t i = 0; i < n && aten_ok(a); i++) chosen[aten_axis_of(a, given[i], rank)] = true;
    for (int32_t i = 0; i < rank; i++)
        if (chosen[i]) axes[n_axes++] = i;
    ir_arg_t args[] = {IR_ARG_INTS("axes", axes, n_axes)};
    aten_return(a, n_axes ? ir_b_node(&a->b, IR_OP_FLIP, 1, &x, 1, args) : x);
}

static ir_value_t roll_axis(aten_t *a, ir_value_t x, int32_t axis, int64_t shift) {
    ir_type_t type = aten_type(a, x);
    int64_t size = type.rank ? type.dims[axis] : 0;
    if (size == 0) return x;
    shift = ((shift % size) + size) % size;
    if (shift == 0) return x;
    ir_value_t parts[] = {cut(a, x, axis, size - shift, size), cut(a, x, axis, 0, size - shift)};
    return ir_b_concat(&a->b, 2, parts, axis);
}

void aten_roll(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int64_t shifts[ATEN_MAX_LIST], dims[ATEN_MAX_LIST];
    int32_t n = aten_ints(a, "shifts", shifts), n_dims = aten_ints(a, "dims", dims);
    if (aten_ok(a) && n_dims <= 0 && n == 1) { /* over all elements */
        int64_t all = ir_type_elements(&type);
        x = roll_axis(a, ir_b_reshape(&a->b, x, 1, &all), 0, shifts[0]);
        aten_return(a, ir_b_reshape(&a->b, x, type.rank, type.dims));
        return;
    }
    if (aten_ok(a) && n != n_dims) aten_fail(a, ST_INVALID, "%d shifts for %d dims", n, n_dims);
    for (int32_t i = 0; i < n && aten_ok(a); i++)
        x = roll_axis(a, x, aten_axis_of(a, dims[i], type.rank), shifts[i]);
    aten_return(a, x);
}

/* Pads come as (low, high) pairs from the last dim backward; negative ones cut. */
void aten_pad(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_type_t type = aten_type(a, x);
    int64_t pads[ATEN_MAX_LIST], low[IR_MAX_RANK] = {0}, high[IR_MAX_RANK] = {0};
    int32_t n = aten_ints(a, "pad", pads);
    const char *mode = aten_string(a, "mode", "constant");
    double value = aten_float(a, "value", 0);
    if (aten_ok(a) && strcmp(mode, "constant") != 0)
        aten_fail(a, ST_UNSUPPORTED, "argument 'mode' is '%s'; 'constant' is supported", mode);
    if (aten_ok(a) && (n < 0 || n % 2 || n / 2 > type.rank))
        aten_fail(a, ST_INVALID, "argument 'pad' has %d entries for %d dims", n, type.rank);
    bool grows = false;
    for (int32_t i = 0; i < n / 2 && aten_ok(a); i++) {
        int32_t axis = type.rank - 1 - i;
        int64_t before = pads[2 * i], after = pads[2 * i + 1], size = type.dims[axis];
        if (before < -size || after < -size || before > INT32_MAX || after > INT32_MAX)
            aten_fail(a, ST_INVALID, "pads %lld and %lld of a dim of %lld", (long long)before,
                      (long long)after, (long long)size);
        else if (before < 0 || after < 0)
            x = cut(a, x, axis, before < 0 ? -before : 0, after < 0 ? size + after : size);
        low[axis] = before > 0 ? before : 0;
        high[axis] = after > 0 ? after : 0;
        grows |= low[axis] || high[axis];
    }
    ir_arg_t args[] = {IR_ARG_INTS("low", low, type.rank), IR_ARG_INTS("high", high, type.rank),
                       IR_ARG_FLOAT("value", value)};
    aten_return(a, grows ? ir_b_node(&a->b, IR_OP_PAD, 1, &x, 3, args) : x);
}

/* n-th difference along dim, after joining prepend and append; on bools, inequality of neighbours.
 */
void aten_diff(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t n = aten_int(a, "n", 1);
    int32_t axis = aten_axis(a, "dim", aten_type(a, x).rank, -1);
    ir_value_t before = aten_tensor_or_none(a, "prepend"), after = aten_tensor_or_none(a, "append");
    ir_value_t parts[3];
    uint32_t n_parts = 0;
    if (before != IR_NONE) parts[n_parts++] = before;
    parts[n_parts++] = x;
    if (after != IR_NONE) parts[n_parts++] = after;
    if (aten_ok(a) && (n < 0 || n > 16))
        aten_fail(a, ST_UNSUPPORTED, "a difference of order %lld", (long long)n);
    x = join(a, n_parts, parts, axis);
    ir_op_t op = aten_type(a, x).dtype == IR_BOOL ? IR_OP_NE : IR_OP_SUB;
    for (int64_t i = 0; i < n && aten_ok(a); i++) {
        ir_type_t type = aten_type(a, x);
        int64_t size = type.rank ? type.dims[axis] : 0;
        ir_value_t later = cut(a, x, axis, size ? 1 : 0, size);
        ir_value_t earlier = cut(a, x, axis, 0, size ? size - 1 : 0);
        x = ir_b_binary(&a->b, op, later, earlier);
    }
    aten_return(a, x);
}

/* tril (arg 0): zeros where column > row + diagonal; triu (arg 1): where column < row + diagonal.
 */
void aten_triangle(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    int64_t diagonal = aten_int(a, "diagonal", 0);
    ir_type_t type = aten_type(a, x);
    if (aten_ok(a) && (type.rank < 2 || diagonal > INT32_MAX || diagonal < INT32_MIN))
        aten_fail(a, ST_INVALID, "a matrix is needed, and a diagonal within 32 bits");
    if (!aten_ok(a)) return;
    int64_t rows = type.dims[type.rank - 2], columns = type.dims[type.rank - 1];
    ir_value_t row =
        ir_b_iota(&a->b, ir_type_make(IR_I64, 2, (int64_t[]){rows, 1}), 0, (double)diagonal, 1);
    ir_value_t column = ir_b_iota(&a->b, ir_type_make(IR_I64, 2, (int64_t[]){1, columns}), 1, 0, 1);
    ir_value_t kept = ir_b_binary(&a->b, a->op->arg ? IR_OP_GE : IR_OP_LE, column, row);
    aten_return(a, ir_b_select(&a->b, kept, x, ir_b_scalar(&a->b, type.dtype, 0)));
}
