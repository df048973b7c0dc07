/* ONNX ops that move elements without changing them. */
#include <string.h>

#include "import/onnx_reader.h"

/* ---- reshape and its kin ---- */

void onnx_reshape(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int64_t dims[ONNX_MAX_LIST], rest = 1;
    int32_t rank = onnx_known_ints(o, 1, dims), open = -1;
    bool allow_zero = onnx_flag(o, "allowzero", false);
    ir_type_t type = onnx_type(o, x);
    if (onnx_ok(o) && rank > IR_MAX_RANK)
        onnx_fail(o, ST_UNSUPPORTED, "a shape of %d dims, the limit is %d", rank, IR_MAX_RANK);
    for (int32_t i = 0; i < rank && onnx_ok(o); i++) {
        if (dims[i] == 0 && !allow_zero && i >= type.rank)
            onnx_fail(o, ST_INVALID,
                      "entry %d of the shape copies a dim that the input does not have", i);
        if (dims[i] == 0 && !allow_zero) dims[i] = type.dims[i];
        if (dims[i] < -1 || (dims[i] == -1 && open >= 0))
            onnx_fail(o, ST_INVALID, "entry %d of the shape is %lld", i, (long long)dims[i]);
        if (dims[i] == -1)
            open = i;
        else if (!st_mul_i64(rest, dims[i], &rest))
            onnx_fail(o, ST_INVALID, "the shape is too large");
    }
    if (!onnx_ok(o)) return;
    if (open >= 0) {
        int64_t n = ir_type_elements(&type);
        if (rest == 0 || n % rest != 0) {
            onnx_fail(o, ST_INVALID, "%lld elements do not divide into parts of %lld", (long long)n,
                      (long long)rest);
            return;
        }
        dims[open] = n / rest;
    }
    onnx_return(o, ir_b_reshape(&o->b, x, rank, dims));
}

void onnx_flatten(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int64_t axis = onnx_int(o, "axis", 1);
    if (axis < 0) axis += type.rank;
    if (onnx_ok(o) && (axis < 0 || axis > type.rank))
        onnx_fail(o, ST_INVALID, "axis %lld of an input of %d dims", (long long)axis, type.rank);
    if (!onnx_ok(o)) return;
    int64_t dims[2] = {onnx_product(&type, 0, (int32_t)axis),
                       onnx_product(&type, (int32_t)axis, type.rank)};
    onnx_return(o, ir_b_reshape(&o->b, x, 2, dims));
}

void onnx_squeeze(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int64_t axes[ONNX_MAX_LIST], dims[IR_MAX_RANK];
    int32_t n = onnx_axes_input(o, 13, axes), rank = 0, at = 0;
    onnx_sort_axes(o, n, axes, type.rank);
    for (int32_t i = 0; i < type.rank && onnx_ok(o); i++) {
        bool listed = at < n && axes[at] == i;
        at += listed;
        if (listed && type.dims[i] != 1)
            onnx_fail(o, ST_INVALID, "axis %d has %lld elements, not 1", i,
                      (long long)type.dims[i]);
        if (!(n < 0 ? type.dims[i] == 1 : listed)) dims[rank++] = type.dims[i];
    }
    onnx_return(o, ir_b_reshape(&o->b, x, rank, dims));
}

void onnx_unsqueeze(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int64_t axes[ONNX_MAX_LIST], dims[IR_MAX_RANK];
    int32_t n = onnx_axes_input(o, 13, axes);
    if (onnx_ok(o) && (n < 0 || type.rank + n > IR_MAX_RANK))
        onnx_fail(o, ST_INVALID, "%d axes to add to %d dims, the limit is %d", n, type.rank,
                  IR_MAX_RANK);
    if (!onnx_ok(o)) return;
    int32_t rank = type.rank + n, at = 0, from = 0;
    onnx_sort_axes(o, n, axes, rank);
    for (int32_t i = 0; i < rank; i++) {
        bool added = at < n && axes[at] == i;
        at += added;
        dims[i] = added ? 1 : type.dims[from++];
    }
    onnx_return(o, ir_b_reshape(&o->b, x, rank, dims));
}

void onnx_transpose(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int32_t rank = onnx_type(o, x).rank;
    int64_t perm[ONNX_MAX_LIST];
    int32_t n = onnx_ints(o, "perm", perm);
    if (n < 0)
        for (n = 0; n < rank; n++) perm[n] = rank - 1 - n;
    if (onnx_ok(o) && n != rank)
        onnx_fail(o, ST_INVALID, "attribute 'perm' has %d entries for %d dims", n, rank);
    bool moved = false;
    for (int32_t i = 0; i < n && onnx_ok(o); i++) {
        perm[i] = onnx_axis_of(o, perm[i], rank);
        moved |= perm[i] != i;
    }
    onnx_return(o, moved ? ir_b_transpose(&o->b, x, perm) : x);
}

/* Broadcasts both ways: a dim of 1 in the shape keeps the input's. */
void onnx_expand(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    int64_t dims[ONNX_MAX_LIST];
    int32_t rank = onnx_known_ints(o, 1, dims);
    ir_type_t type = onnx_type(o, x), wanted, out;
    if (onnx_ok(o) && rank > IR_MAX_RANK)
        onnx_fail(o, ST_UNSUPPORTED, "a shape of %d dims, the limit is %d", rank, IR_MAX_RANK);
    if (!onnx_ok(o)) return;
    wanted = ir_type_make(type.dtype, rank, dims);
    o->b.status = ir_type_check(&wanted);
    if (onnx_ok(o)) o->b.status = ir_dims_broadcast(&type, &wanted, &out);
    if (onnx_ok(o)) onnx_return(o, ir_b_broadcast(&o->b, x, out.rank, out.dims));
}

/* Each axis in turn as [before, 1, rest] broadcast to [before, repeats, rest]. */
void onnx_tile(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int64_t repeats[ONNX_MAX_LIST];
    int32_t n = onnx_known_ints(o, 1, repeats);
    if (onnx_ok(o) && n != type.rank)
        onnx_fail(o, ST_INVALID, "%d repeats for %d dims", n, type.rank);
    for (int32_t i = 0; i < n && onnx_ok(o); i++) {
        if (repeats[i] == 1) continue;
        int64_t dims[3] = {onnx_product(&type, 0, i), 1, onnx_product(&type, i, type.rank)};
        x = ir_b_reshape(&o->b, x, 3, dims);
        dims[1] = repeats[i];
        if (repeats[i] < 0 || !st_mul_i64(type.dims[i], repeats[i], &type.dims[i]))
            onnx_fail(o, ST_INVALID, "%lld repeats of axis %d", (long long)repeats[i], i);
        x = ir_b_reshape(&o->b, ir_b_broadcast(&o->b, x, 3, dims), type.rank, type.dims);
    }
    onnx_return(o, x);
}

/* ---- concat and split ---- */

void onnx_concat(onnx_t *o) {
    size_t n = onnx_n_inputs(o);
    ir_value_t *xs = st_arena_array(o->arena, n + 1, sizeof *xs);
    if (onnx_ok(o) && !xs) o->b.status = st_no_memory(n * sizeof *xs, "a list of inputs");
    if (onnx_ok(o) && n == 0) onnx_fail(o, ST_PARSE, "no inputs");
    if (!onnx_ok(o)) return;
    for (size_t i = 0; i < n; i++) xs[i] = onnx_in(o, i);
    int32_t axis = onnx_axis(o, "axis", onnx_type(o, xs[0]).rank, 1);
    if (onnx_ok(o)) onnx_return(o, ir_b_concat(&o->b, (uint32_t)n, xs, axis));
}

/* Sizes from input 1 (opset 13) or the attribute; else equal parts, the last one smaller if it must
 * be (opset 18). */
void onnx_split(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int64_t sizes[ONNX_MAX_LIST], begin = 0, n_outputs = (int64_t)o->node->n_output;
    int32_t axis = onnx_axis(o, "axis", type.rank, 0), n = -1;
    if (o->opset < 13)
        n = onnx_ints(o, "split", sizes);
    else if (onnx_has_input(o, 1))
        n = onnx_known_ints(o, 1, sizes);
    int64_t parts = onnx_int(o, "num_outputs", n_outputs);
    if (onnx_ok(o) && (n >= 0 ? n != n_outputs : parts != n_outputs))
        onnx_fail(o, ST_INVALID, "%lld sizes or parts for %lld outputs",
                  (long long)(n >= 0 ? n : parts), (long long)n_outputs);
    if (!onnx_ok(o) || n_outputs == 0) return;
    int64_t dim = type.dims[axis], each = (dim + n_outputs - 1) / n_outputs;
    if (n < 0 && o->opset < 18 && dim % n_outputs != 0)
        onnx_fail(o, ST_INVALID, "axis %d of %lld elements does not split into %lld equal parts",
                  axis, (long long)dim, (long long)n_outputs);
    for (int64_t k = 0; k < n_outputs && onnx_ok(o); k++) {
        int64_t size = n >= 0 ? sizes[k] : each < dim - begin ? each : dim - begin;
        if (size < 0 || size > dim - begin) {
            onnx_fail(o, ST_INVALID, "part %lld of %lld elements, %lld are left in axis %d",
                      (long long)k, (long long)size, (long long)(dim - begin), axis);
            return;
        }
        onnx_return(o, ir_b_slice_axis(&o->b, x, axis, begin, begin + size));
        begin += size;
    }
    if (onnx_ok(o) && begin != dim)
        onnx_fail(o, ST_INVALID, "the parts have %lld elements, axis %d has %lld", (long long)begin,
                  axis, (long long)dim);
}

/* ---- slice ---- */

/* ONNX's clamping: a bound counts from the end if negative; then, walking up, begin and end lie in
 * 0 … dim; walking down, begin in 0 … dim - 1 and end in -1 … dim - 1. */
static int64_t clamp_bound(int64_t bound, int64_t dim, bool up, bool is_end) {
    int64_t low = up || !is_end ? 0 : -1, high = up ? dim : dim - 1;
    if (bound < 0) bound += dim;
    if (bound < low) bound = low;
    return bound > high ? high : bound;
}

/* n bounds on axes (NULL: the first n). */
static void slice(onnx_t *o, ir_value_t x, int32_t n, const int64_t *starts, const int64_t *ends,
                  const int64_t *axes, const int64_t *steps) {
    ir_type_t type = onnx_type(o, x);
    int64_t begin[IR_MAX_RANK] = {0}, end[IR_MAX_RANK], step[IR_MAX_RANK];
    uint32_t seen = 0;
    for (int32_t i = 0; i < type.rank; i++) end[i] = type.dims[i], step[i] = 1;
    for (int32_t i = 0; i < n && onnx_ok(o); i++) {
        int32_t axis = onnx_axis_of(o, axes ? axes[i] : i, type.rank);
        int64_t by = steps ? steps[i] : 1;
        if (onnx_ok(o) && (by == 0 || (seen >> axis & 1)))
            onnx_fail(o, ST_INVALID, by == 0 ? "step 0 of axis %d" : "axis %d is given twice",
                      axis);
        if (!onnx_ok(o)) return;
        seen |= 1u << axis;
        /* the dim is all that a larger step could walk */
        step[axis] = by < -INT32_MAX ? -INT32_MAX : by;
        begin[axis] = clamp_bound(starts[i], type.dims[axis], by > 0, false);
        end[axis] = clamp_bound(ends[i], type.dims[axis], by > 0, true);
    }
    int32_t rank = type.rank;
    ir_arg_t args[] = {IR_ARG_INTS("begin", begin, rank), IR_ARG_INTS("end", end, rank),
                       IR_ARG_INTS("step", step, rank)};
    onnx_return(o, ir_b_node(&o->b, IR_OP_SLICE, 1, &x, 3, args));
}

void onnx_slice_attributes(onnx_t *o) {
    int64_t starts[ONNX_MAX_LIST], ends[ONNX_MAX_LIST], axes[ONNX_MAX_LIST];
    int32_t n = onnx_ints(o, "starts", starts), n_ends = onnx_ints(o, "ends", ends);
    int32_t n_axes = onnx_ints(o, "axes", axes);
    if (onnx_ok(o) && (n < 0 || n != n_ends || (n_axes >= 0 && n_axes != n)))
        onnx_fail(o, ST_INVALID, "%d starts, %d ends, %d axes", n, n_ends, n_axes);
    slice(o, onnx_in(o, 0), n, starts, ends, n_axes < 0 ? NULL : axes, NULL);
}

void onnx_slice(onnx_t *o) {
    int64_t lists[5][ONNX_MAX_LIST];
    int32_t n[5] = {0, -1, -1, -1, -1};
    for (size_t i = 1; i < 5; i++)
        if (i < 3 || onnx_has_input(o, i)) n[i] = onnx_known_ints(o, i, lists[i]);
    if (onnx_ok(o) && (n[1] != n[2] || (n[3] >= 0 && n[3] != n[1]) || (n[4] >= 0 && n[4] != n[1])))
        onnx_fail(o, ST_INVALID, "%d starts, %d ends, %d axes, %d steps", n[1], n[2], n[3], n[4]);
    slice(o, onnx_in(o, 0), n[1], lists[1], lists[2], n[3] < 0 ? NULL : lists[3],
          n[4] < 0 ? NULL : lists[4]);
}

/* ---- pad ---- */

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } pad_mode_t;

/* Position in 0 … dim - 1 that stands at `at` outside of it. */
static int64_t mirrored(pad_mode_t mode, int64_t at, int64_t dim) {
    if (mode == PAD_EDGE) return at < 0 ? 0 : at >= dim ? dim - 1 : at;
    if (mode == PAD_WRAP) return (at % dim + dim) % dim;
    int64_t period = dim > 1 ? 2 * (dim - 1) : 1;
    at = (at % period + period) % period;
    return at < dim ? at : period - at;
}

/* One axis padded with its own elements, by a gather. */
static ir_value_t pad_axis(onnx_t *o, ir_value_t x, int32_t axis, int64_t low, int64_t high,
                           pad_mode_t mode) {
    int64_t dim = onnx_type(o, x).dims[axis], n = 0;
    if (!st_add_i64(dim, low, &n) || !st_add_i64(n, high, &n) || n > o->all->known_left ||
        (dim < 1 && n > 0)) {
        onnx_fail(o, ST_UNSUPPORTED, "axis %d of %lld elements padded by %lld and %lld", axis,
                  (long long)dim, (long long)low, (long long)high);
        return IR_NONE;
    }
    o->all->known_left -= n;
    int64_t *index = st_arena_array(o->arena, (size_t)n + 1, sizeof *index);
    if (!index) {
        o->b.status = st_no_memory((size_t)n * sizeof *index, "an index");
        return IR_NONE;
    }
    for (int64_t i = 0; i < n; i++) index[i] = mirrored(mode, i - low, dim);
    return ir_b_gather(&o->b, x, onnx_constant_i64(o, 1, n, index), axis);
}

/* Negative pads cut. */
static ir_value_t cut(onnx_t *o, ir_value_t x, int32_t axis, int64_t *low, int64_t *high) {
    int64_t dim = onnx_type(o, x).dims[axis];
    int64_t begin = *low < 0 ? -*low : 0, end = *high < 0 ? dim + *high : dim;
    if (begin == 0 && end == dim) return x;
    if (begin > end || *low < -dim || *high < -dim) {
        onnx_fail(o, ST_INVALID, "pads %lld and %lld cut more than axis %d has", (long long)*low,
                  (long long)*high, axis);
        return IR_NONE;
    }
    if (*low < 0) *low = 0;
    if (*high < 0) *high = 0;
    return ir_b_slice_axis(&o->b, x, axis, begin, end);
}

static void pad(onnx_t *o, ir_value_t x, int32_t n, const int64_t *pads, const int64_t *axes,
                double value) {
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    const char *mode_name = onnx_string(o, "mode", "constant");
    int mode = 0;
    while (mode < 4 && strcmp(mode_name, names[mode]) != 0) mode++;
    ir_type_t type = onnx_type(o, x);
    int64_t low[IR_MAX_RANK] = {0}, high[IR_MAX_RANK] = {0};
    if (onnx_ok(o) && mode == 4)
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'mode' is '%.32s'", mode_name);
    if (onnx_ok(o) && n > type.rank)
        onnx_fail(o, ST_INVALID, "pads of %d axes, %d dims", n, type.rank);
    for (int32_t i = 0; i < n && onnx_ok(o); i++) {
        int32_t axis = onnx_axis_of(o, axes ? axes[i] : i, type.rank);
        low[axis] = pads[i];
        high[axis] = pads[n + i];
        if (onnx_ok(o)) x = cut(o, x, axis, &low[axis], &high[axis]);
        if (mode != PAD_CONSTANT && onnx_ok(o) && (low[axis] || high[axis]))
            x = pad_axis(o, x, axis, low[axis], high[axis], (pad_mode_t)mode);
    }
    bool padded = false;
    for (int32_t i = 0; i < type.rank; i++) padded |= low[i] || high[i];
    if (mode == PAD_CONSTANT && padded)
        x = ir_b_node(
            &o->b, IR_OP_PAD, 1, &x, 3,
            (ir_arg_t[]){IR_ARG_INTS("low", low, type.rank), IR_ARG_INTS("high", high, type.rank),
                         IR_ARG_FLOAT("value", value)});
    onnx_return(o, x);
}

void onnx_pad_attributes(onnx_t *o) {
    int64_t pads[ONNX_MAX_LIST];
    ir_value_t x = onnx_in(o, 0);
    int32_t n = onnx_ints(o, "pads", pads);
    if (onnx_ok(o) && n != 2 * onnx_type(o, x).rank)
        onnx_fail(o, ST_INVALID, "attribute 'pads' has %d entries for %d dims", n,
                  onnx_type(o, x).rank);
    pad(o, x, n / 2, pads, NULL, onnx_float(o, "value", 0));
}

void onnx_pad(onnx_t *o) {
    int64_t pads[ONNX_MAX_LIST], axes[ONNX_MAX_LIST];
    ir_value_t x = onnx_in(o, 0);
    int32_t n = onnx_known_ints(o, 1, pads), n_axes = onnx_type(o, x).rank;
    double value = onnx_has_input(o, 2) ? onnx_known_number(o, 2) : 0;
    bool some = onnx_has_input(o, 3);
    if (some) n_axes = onnx_known_ints(o, 3, axes);
    if (onnx_ok(o) && n != 2 * n_axes)
        onnx_fail(o, ST_INVALID, "%d pads for %d axes, twice as many are needed", n, n_axes);
    pad(o, x, n_axes, pads, some ? axes : NULL, value);
}

/* ---- triangles and blocks ---- */

/* Keeps column j of row i where j >= i + k (upper) or j <= i + k. */
void onnx_trilu(onnx_t *o) {
    ir_build_t *b = &o->b;
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    double k = onnx_has_input(o, 1) ? onnx_known_number(o, 1) : 0;
    bool upper = onnx_flag(o, "upper", true);
    if (onnx_ok(o) && type.rank < 2) onnx_fail(o, ST_INVALID, "an input of %d dims", type.rank);
    if (!onnx_ok(o)) return;
    int64_t rows[2] = {type.dims[type.rank - 2], 1}, columns[2] = {1, type.dims[type.rank - 1]};
    ir_value_t diagonal = ir_b_iota(b, ir_type_make(IR_I64, 2, rows), 0, k, 1);
    ir_value_t column = ir_b_iota(b, ir_type_make(IR_I64, 2, columns), 1, 0, 1);
    ir_value_t keep = ir_b_binary(b, upper ? IR_OP_GE : IR_OP_LE, column, diagonal);
    onnx_return(o, ir_b_select(b, keep, x, ir_b_scalar(b, type.dtype, 0)));
}

/* Reshapes to six dims, transposes, joins. */
static ir_value_t regroup(onnx_t *o, ir_value_t x, const int64_t *six, const int64_t *perm,
                          const int64_t *four) {
    x = ir_b_transpose(&o->b, ir_b_reshape(&o->b, x, 6, six), perm);
    return ir_b_reshape(&o->b, x, 4, four);
}

static int64_t block_size(onnx_t *o, const ir_type_t *type, bool divides_channels) {
    int64_t block = onnx_int(o, "blocksize", 0);
    const int64_t *d = type->dims;
    bool fits = type->rank == 4 && block > 0 && block <= INT32_MAX;
    if (fits)
        fits =
            divides_channels ? d[1] % (block * block) == 0 : d[2] % block == 0 && d[3] % block == 0;
    if (onnx_ok(o) && !fits)
        onnx_fail(o, ST_INVALID, "blocks of %lld do not fit", (long long)block);
    return block;
}

void onnx_depth_to_space(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    bool rows_first = strcmp(onnx_string(o, "mode", "DCR"), "CRD") == 0;
    int64_t k = block_size(o, &type, true), *d = type.dims;
    if (!onnx_ok(o)) return;
    int64_t c = d[1] / (k * k), four[] = {d[0], c, d[2] * k, d[3] * k};
    int64_t dcr[] = {d[0], k, k, c, d[2], d[3]}, crd[] = {d[0], c, k, k, d[2], d[3]};
    int64_t dcr_perm[] = {0, 3, 4, 1, 5, 2}, crd_perm[] = {0, 1, 4, 2, 5, 3};
    onnx_return(o, regroup(o, x, rows_first ? crd : dcr, rows_first ? crd_perm : dcr_perm, four));
}

void onnx_space_to_depth(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    int64_t k = block_size(o, &type, false), *d = type.dims;
    if (!onnx_ok(o)) return;
    int64_t six[] = {d[0], d[1], d[2] / k, k, d[3] / k, k}, perm[] = {0, 3, 5, 1, 2, 4};
    int64_t four[] = {d[0], d[1] * k * k, d[2] / k, d[3] / k};
    onnx_return(o, regroup(o, x, six, perm, four));
}
