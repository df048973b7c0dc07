/* Rules of the simplify pass for what only moves elements: reshape, transpose, broadcast, slice,
 * concat, pad, gather; also constants. All are exact.
 *
 * Chains of reshape and transpose are read as a view of their source: dims with strides. What the
 * chain does is then known as a whole, and written down again as at most reshape, transpose,
 * reshape, where that is shorter. */
#include <string.h>

#include "fusion/rules.h"
#include "ir/convert.h"

/* ---- constants ---- */

/* A splat stays one when only the shape changes. */
static st_status_t reshape_splat(fuse_sweep_t *s, const ir_node_info_t *node, ir_value_t x,
                                 ir_value_t *out) {
    const void *element = fuse_splat(s->to, x);
    ir_type_t type = *fuse_result(s, node);
    if (!element || ir_type_elements(fuse_type(s, x)) == 0) return ST_OK;
    return fuse_emit_constant(s, node->name, &type, element, ir_dtype_bytes(type.dtype), out);
}

static st_status_t constant(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                            ir_value_t *out) {
    (void)in;
    ir_type_t type = *fuse_result(s, node);
    const ir_attr_t *data = ir_node_attr(node, "data");
    if (data->data.bytes != ir_type_bytes(&type)) return ST_OK;
    size_t packed = fuse_packed_bytes(&type, data->data.p);
    if (packed == data->data.bytes) return ST_OK;
    return fuse_emit_constant(s, node->name, &type, data->data.p, packed, out);
}

/* ---- views ---- */

enum { MAX_CHAIN = 8 };

typedef struct view {
    int32_t rank;
    int64_t dims[IR_MAX_RANK], strides[IR_MAX_RANK]; /* in elements of the source */
} view_t;

static view_t view_of(const ir_type_t *type) {
    view_t v = {.rank = type->rank};
    int64_t stride = 1;
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        v.dims[i] = type->dims[i];
        v.strides[i] = stride;
        stride *= type->dims[i];
    }
    return v;
}

static void view_transpose(view_t *v, const int64_t *perm) {
    view_t before = *v;
    for (int32_t i = 0; i < v->rank; i++) {
        v->dims[i] = before.dims[perm[i]];
        v->strides[i] = before.strides[perm[i]];
    }
}

/* The view without dims of 1, neighbours that lie one after the other merged. */
static view_t view_merged(const view_t *v) {
    view_t m = {0};
    for (int32_t i = 0; i < v->rank; i++) {
        if (v->dims[i] == 1) continue;
        if (m.rank > 0 && m.strides[m.rank - 1] == v->strides[i] * v->dims[i]) {
            m.dims[m.rank - 1] *= v->dims[i];
            m.strides[m.rank - 1] = v->strides[i];
        } else {
            m.dims[m.rank] = v->dims[i];
            m.strides[m.rank++] = v->strides[i];
        }
    }
    return m;
}

/* Splits the merged view into `type`'s dims; false where a dim would cross one of the view's. */
static bool view_reshape(view_t *v, const ir_type_t *type) {
    view_t m = view_merged(v), made = {.rank = type->rank};
    int32_t at = m.rank - 1;
    int64_t left = at >= 0 ? m.dims[at] : 1, stride = at >= 0 ? m.strides[at] : 1;
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        int64_t dim = made.dims[i] = type->dims[i];
        if (dim > 1 && left == 1) {
            if (--at < 0) return false;
            left = m.dims[at];
            stride = m.strides[at];
        }
        if (left % dim) return false;
        made.strides[i] = stride;
        left /= dim;
        stride *= dim;
    }
    *v = made;
    return true;
}

/* The source's dims if the view is a permutation of them; perm out. */
static bool view_permutes(const view_t *v, const ir_type_t *x, int64_t *perm) {
    view_t source = view_of(x);
    bool taken[IR_MAX_RANK] = {0};
    if (v->rank != x->rank) return false;
    for (int32_t i = 0; i < v->rank; i++) {
        int32_t j = 0;
        while (j < x->rank && (taken[j] || source.dims[j] != v->dims[i] ||
                               (v->dims[i] != 1 && source.strides[j] != v->strides[i])))
            j++;
        if (j == x->rank) return false;
        taken[j] = true;
        perm[i] = j;
    }
    return true;
}

/* The dims of the merged view in the order of the source, and how they are permuted. */
static void view_factors(const view_t *m, ir_type_t *factors, int64_t *perm) {
    factors->rank = m->rank;
    for (int32_t i = 0; i < m->rank; i++) {
        int64_t place = 0;
        for (int32_t j = 0; j < m->rank; j++) place += m->strides[j] > m->strides[i];
        perm[i] = place;
        factors->dims[place] = m->dims[i];
    }
}

/* Writes `v`, a view of x, in fewer than `limit` nodes if that can be. */
static st_status_t emit_view(fuse_sweep_t *s, const ir_node_info_t *node, ir_value_t x,
                             const view_t *v, int limit, ir_value_t *out) {
    const ir_type_t source = *fuse_type(s, x), result = *fuse_result(s, node);
    int64_t perm[IR_MAX_RANK];
    view_t m = view_merged(v);
    if (m.rank <= 1)
        return limit > 1 ? fuse_emit_shape(s, IR_OP_RESHAPE, node->name, x, &result, out) : ST_OK;
    if (view_permutes(v, &source, perm)) {
        return limit > 1 ? fuse_emit_transpose(s, node->name, x, perm, out) : ST_OK;
    }
    ir_type_t factors = source, turned = source;
    memset(factors.dims, 0, sizeof factors.dims);
    memset(turned.dims, 0, sizeof turned.dims);
    view_factors(&m, &factors, perm);
    turned.rank = factors.rank;
    for (int32_t i = 0; i < factors.rank; i++) turned.dims[i] = factors.dims[perm[i]];
    int n = 1 + !ir_dims_equal(&factors, &source) + !ir_dims_equal(&turned, &result);
    if (n >= limit) return ST_OK;
    ir_value_t y;
    TRY(fuse_emit_shape(s, IR_OP_RESHAPE, node->name, x, &factors, &y));
    TRY(fuse_emit_transpose(s, node->name, y, perm, &y));
    return fuse_emit_shape(s, IR_OP_RESHAPE, node->name, y, &result, out);
}

static bool is_view(const ir_node_info_t *node) {
    return node->op == IR_OP_RESHAPE || node->op == IR_OP_TRANSPOSE;
}

static bool apply_view(view_t *v, const ir_node_info_t *node, const ir_type_t *type) {
    if (node->op == IR_OP_RESHAPE) return view_reshape(v, type);
    int64_t perm[IR_MAX_RANK];
    fuse_read_perm(node, type->rank, perm);
    view_transpose(v, perm);
    return true;
}

/* The node and the views under it, from the longest chain that is one view of its source. */
static st_status_t shorten_chain(fuse_sweep_t *s, const ir_node_info_t *node, ir_value_t x,
                                 ir_value_t *out) {
    ir_value_t chain[MAX_CHAIN]; /* chain[0] = x, each made by a view of the next */
    int n = 1;
    chain[0] = x;
    while (n < MAX_CHAIN && is_view(ir_value_producer(s->to, chain[n - 1]))) {
        chain[n] = ir_value_producer(s->to, chain[n - 1])->inputs[0];
        n++;
    }
    if (ir_type_elements(fuse_type(s, x)) == 0) return ST_OK;
    for (; n > 0 && *out == IR_NONE; n--) {
        view_t v = view_of(fuse_type(s, chain[n - 1]));
        bool whole = true;
        for (int i = n - 2; i >= 0 && whole; i--)
            whole = apply_view(&v, ir_value_producer(s->to, chain[i]), fuse_type(s, chain[i]));
        whole = whole && apply_view(&v, node, fuse_result(s, node));
        if (whole) TRY(emit_view(s, node, chain[n - 1], &v, n, out));
    }
    return ST_OK;
}

static st_status_t reshape(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                           ir_value_t *out) {
    ir_type_t type = *fuse_result(s, node);
    if (fuse_has_type(s, in[0], &type)) {
        *out = in[0];
        return ST_OK;
    }
    TRY(reshape_splat(s, node, in[0], out));
    if (*out != IR_NONE) return ST_OK;
    const ir_node_info_t *constant = fuse_made_by(s, in[0], IR_OP_CONSTANT);
    if (constant) {
        const ir_attr_t *data = ir_node_attr(constant, "data");
        if (data->data.bytes != ir_type_bytes(&type) || data->data.bytes > FUSE_FOLD_MAX_BYTES)
            return ST_OK;
        return fuse_emit_constant(s, node->name, &type, data->data.p, data->data.bytes, out);
    }
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_RESHAPE);
    if (inner) return fuse_emit_shape(s, IR_OP_RESHAPE, node->name, inner->inputs[0], &type, out);
    return shorten_chain(s, node, in[0], out);
}

/* Between two transposes an op of one operand is out of their way. */
static st_status_t through_unary(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                 ir_value_t *out) {
    const ir_node_info_t *unary = ir_value_producer(s->to, in[0]);
    int32_t rank = fuse_result(s, node)->rank;
    int64_t outer[IR_MAX_RANK], perm[IR_MAX_RANK], composed[IR_MAX_RANK];
    if (!(ir_op_def(unary->op)->flags & IR_ELEMENTWISE) || unary->n_inputs != 1 ||
        unary->n_outputs != 1 || !fuse_only_reader(s, node, 0))
        return ST_OK;
    const ir_node_info_t *inner = fuse_made_by(s, unary->inputs[0], IR_OP_TRANSPOSE);
    if (!inner) return ST_OK;
    fuse_read_perm(node, rank, outer);
    fuse_read_perm(inner, rank, perm);
    for (int32_t i = 0; i < rank; i++) composed[i] = perm[outer[i]];
    ir_value_t y;
    TRY(fuse_emit_like(s, unary, inner->inputs, &y));
    return fuse_emit_transpose(s, node->name, y, composed, out);
}

static st_status_t transpose(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                             ir_value_t *out) {
    int32_t rank = fuse_result(s, node)->rank;
    int64_t outer[IR_MAX_RANK], perm[IR_MAX_RANK], composed[IR_MAX_RANK];
    fuse_read_perm(node, rank, outer);
    TRY(reshape_splat(s, node, in[0], out));
    if (*out != IR_NONE) return ST_OK;
    TRY(through_unary(s, node, in, out));
    if (*out != IR_NONE) return ST_OK;
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_TRANSPOSE);
    if (!inner) {
        int32_t fixed = 0;
        while (fixed < rank && outer[fixed] == fixed) fixed++;
        if (fixed < rank) return shorten_chain(s, node, in[0], out);
        *out = in[0];
        return ST_OK;
    }
    fuse_read_perm(inner, rank, perm);
    for (int32_t i = 0; i < rank; i++) composed[i] = perm[outer[i]];
    return fuse_emit_transpose(s, node->name, inner->inputs[0], composed, out);
}

static st_status_t broadcast(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                             ir_value_t *out) {
    ir_type_t type = *fuse_result(s, node);
    if (fuse_has_type(s, in[0], &type)) {
        *out = in[0];
        return ST_OK;
    }
    TRY(reshape_splat(s, node, in[0], out));
    const ir_node_info_t *inner = fuse_made_by(s, in[0], IR_OP_BROADCAST);
    if (*out != IR_NONE || !inner) return ST_OK;
    return fuse_emit_shape(s, IR_OP_BROADCAST, node->name, inner->inputs[0], &type, out);
}

/* ---- slices ---- */

typedef struct range {
    int64_t begin[IR_MAX_RANK], end[IR_MAX_RANK], step[IR_MAX_RANK];
} range_t;

/* A slice's range with its end as the last element plus one; false if it walks backwards. */
static bool read_range(const ir_node_info_t *node, const ir_type_t *x, const ir_type_t *type,
                       range_t *out) {
    const ir_attr_t *begin = ir_node_attr(node, "begin"), *step = ir_node_attr(node, "step");
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t first = begin->ints.v[i], by = step->ints.v[i];
        if (by < 0 || type->dims[i] == 0) return false;
        if (first < 0) first += x->dims[i];
        if (first < 0) first = 0;
        out->begin[i] = first;
        out->step[i] = by;
        out->end[i] = first + (type->dims[i] - 1) * by + 1;
    }
    return true;
}

static st_status_t emit_slice(fuse_sweep_t *s, const char *name, ir_value_t x, const range_t *r,
                              ir_value_t *out) {
    int32_t rank = fuse_type(s, x)->rank;
    return fuse_emit(
        s, IR_OP_SLICE, name, 1, &x, 3,
        (ir_arg_t[]){IR_ARG_INTS("begin", r->begin, rank), IR_ARG_INTS("end", r->end, rank),
                     IR_ARG_INTS("step", r->step, rank)},
        out);
}

/* x[a][b] is x[a of b]. */
static st_status_t slice_of_slice(fuse_sweep_t *s, const ir_node_info_t *node, const range_t *r,
                                  const ir_node_info_t *inner, ir_value_t *out) {
    ir_value_t x = inner->inputs[0];
    const ir_type_t *type = fuse_type(s, inner->first_output);
    range_t under, composed;
    if (!read_range(inner, fuse_type(s, x), type, &under)) return ST_OK;
    for (int32_t i = 0; i < type->rank; i++) {
        composed.begin[i] = under.begin[i] + r->begin[i] * under.step[i];
        composed.step[i] = r->step[i] * under.step[i];
        composed.end[i] = under.begin[i] + (r->end[i] - 1) * under.step[i] + 1;
    }
    return emit_slice(s, node->name, x, &composed, out);
}

/* A slice that takes from one part of a concat only. */
static st_status_t slice_of_concat(fuse_sweep_t *s, const ir_node_info_t *node, const range_t *r,
                                   const ir_node_info_t *inner, ir_value_t *out) {
    int64_t axis = ir_attr_int(inner, "axis"), begin = 0;
    for (uint32_t j = 0; j < inner->n_inputs; j++) {
        int64_t extent = fuse_type(s, inner->inputs[j])->dims[axis];
        if (r->begin[axis] >= begin && r->end[axis] <= begin + extent) {
            range_t own = *r;
            own.begin[axis] -= begin;
            own.end[axis] -= begin;
            return emit_slice(s, node->name, inner->inputs[j], &own, out);
        }
        begin += extent;
    }
    return ST_OK;
}

/* Slices what the broadcast repeats, where it does not repeat it. */
static st_status_t slice_of_broadcast(fuse_sweep_t *s, const ir_node_info_t *node, const range_t *r,
                                      const ir_node_info_t *inner, ir_value_t *out) {
    ir_value_t x = inner->inputs[0];
    const ir_type_t small = *fuse_type(s, x), type = *fuse_result(s, node);
    range_t own;
    bool cut = false;
    for (int32_t i = 0; i < small.rank; i++) {
        int32_t j = i + type.rank - small.rank;
        bool repeated = small.dims[i] == 1;
        own.begin[i] = repeated ? 0 : r->begin[j];
        own.end[i] = repeated ? 1 : r->end[j];
        own.step[i] = repeated ? 1 : r->step[j];
        cut |= !repeated && (type.dims[j] != small.dims[i] || r->step[j] != 1);
    }
    if (cut) TRY(emit_slice(s, node->name, x, &own, &x));
    return fuse_emit_shape(s, IR_OP_BROADCAST, node->name, x, &type, out);
}

static st_status_t slice(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                         ir_value_t *out) {
    const ir_type_t *type = fuse_result(s, node);
    const ir_attr_t *step = ir_node_attr(node, "step");
    bool whole = fuse_has_type(s, in[0], type);
    for (int32_t i = 0; whole && i < type->rank; i++)
        whole = step->ints.v[i] == 1 || type->dims[i] < 2;
    if (whole) {
        *out = in[0];
        return ST_OK;
    }
    TRY(reshape_splat(s, node, in[0], out));
    range_t r;
    if (*out != IR_NONE || !read_range(node, fuse_type(s, in[0]), type, &r)) return ST_OK;
    const ir_node_info_t *inner = ir_value_producer(s->to, in[0]);
    if (inner->op == IR_OP_SLICE) return slice_of_slice(s, node, &r, inner, out);
    if (inner->op == IR_OP_CONCAT) return slice_of_concat(s, node, &r, inner, out);
    if (inner->op == IR_OP_BROADCAST) return slice_of_broadcast(s, node, &r, inner, out);
    return ST_OK;
}

/* ---- concat ---- */

/* Whether b continues a along `axis`: slices of one value, alike in the other dims. */
static bool continues(const fuse_sweep_t *s, ir_value_t a, ir_value_t b, int64_t axis,
                      range_t *out) {
    const ir_node_info_t *na = fuse_made_by(s, a, IR_OP_SLICE),
                         *nb = fuse_made_by(s, b, IR_OP_SLICE);
    range_t rb;
    if (!na || !nb || na->inputs[0] != nb->inputs[0]) return false;
    const ir_type_t *x = fuse_type(s, na->inputs[0]);
    if (!read_range(na, x, fuse_type(s, a), out) || !read_range(nb, x, fuse_type(s, b), &rb))
        return false;
    for (int32_t i = 0; i < x->rank; i++) {
        bool same =
            out->begin[i] == rb.begin[i] && out->end[i] == rb.end[i] && out->step[i] == rb.step[i];
        bool next = out->step[i] == 1 && rb.step[i] == 1 && out->end[i] == rb.begin[i];
        if (i == axis ? !next : !same) return false;
    }
    out->end[axis] = rb.end[axis];
    return true;
}

/* Neighbouring slices of one value become one slice of it; the whole value in the end. */
static st_status_t concat(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                          ir_value_t *out) {
    int64_t axis = ir_attr_int(node, "axis");
    if (node->n_inputs == 1 && fuse_has_type(s, in[0], fuse_result(s, node))) *out = in[0];
    for (uint32_t j = 0; j + 1 < node->n_inputs && *out == IR_NONE; j++) {
        range_t joined;
        ir_value_t one, *rest = s->inputs.data; /* `in` itself: the node at hand's own copy */
        if (!continues(s, in[j], in[j + 1], axis, &joined)) continue;
        TRY(emit_slice(s, node->name, ir_value_producer(s->to, in[j])->inputs[0], &joined, &one));
        rest[j] = one;
        memmove(&rest[j + 1], &rest[j + 2], (node->n_inputs - j - 2) * sizeof *rest);
        if (node->n_inputs == 2)
            *out = one;
        else
            return fuse_emit(s, IR_OP_CONCAT, node->name, node->n_inputs - 1, rest, 1,
                             (ir_arg_t[]){IR_ARG_INT("axis", axis)}, out);
    }
    return ST_OK;
}

static st_status_t pad(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                       ir_value_t *out) {
    if (fuse_has_type(s, in[0], fuse_result(s, node))) *out = in[0]; /* padding only adds */
    return ST_OK;
}

/* ---- gather ---- */

/* First and step of a constant index that counts upwards within [0, size). */
static bool counts(const fuse_sweep_t *s, ir_value_t index, int64_t size, int64_t *first,
                   int64_t *step) {
    const ir_type_t *type = fuse_type(s, index);
    const ir_node_info_t *node = ir_value_producer(s->to, index);
    int64_t n = ir_type_elements(type);
    if (type->rank > 1 || n == 0) return false;
    if (node->op == IR_OP_IOTA) {
        double start = ir_attr_float(node, "start"), by = ir_attr_float(node, "step");
        if (start != (double)(int64_t)start || by != (double)(int64_t)by) return false;
        *first = (int64_t)start;
        *step = (int64_t)by;
    } else if (node->op == IR_OP_CONSTANT) {
        const ir_attr_t *data = ir_node_attr(node, "data");
        if (data->data.bytes != ir_type_bytes(type)) return false;
        *first = ir_element_load_i64(type->dtype, data->data.p, 0);
        if (*first < 0) *first += size;
        *step = n > 1 ? ir_element_load_i64(type->dtype, data->data.p, 1) - *first : 1;
        for (int64_t i = 1; i < n; i++)
            if (ir_element_load_i64(type->dtype, data->data.p, (size_t)i) != *first + i * *step)
                return false;
    } else {
        return false;
    }
    return *first >= 0 && *step > 0 && *first < size && (size - 1 - *first) / *step >= n - 1;
}

/* A constant index that counts makes it a slice, whose gradient is a pad. */
static st_status_t gather(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                          ir_value_t *out) {
    const ir_type_t x = *fuse_type(s, in[0]), index = *fuse_type(s, in[1]);
    int64_t axis = ir_attr_int(node, "axis"), first, step;
    ir_type_t type = *fuse_result(s, node);
    if (ir_type_elements(&type) == 0 || !counts(s, in[1], x.dims[axis], &first, &step))
        return ST_OK;
    range_t r;
    for (int32_t i = 0; i < x.rank; i++) {
        r.begin[i] = i == axis ? first : 0;
        r.step[i] = i == axis ? step : 1;
        r.end[i] = i == axis ? first + (ir_type_elements(&index) - 1) * step + 1 : x.dims[i];
    }
    ir_value_t y;
    TRY(emit_slice(s, node->name, in[0], &r, &y));
    return fuse_emit_shape(s, IR_OP_RESHAPE, node->name, y, &type, out);
}

fuse_rule_t *const fuse_rules_shape[IR_OP_END] = {
    [IR_OP_CONSTANT] = constant,   [IR_OP_RESHAPE] = reshape, [IR_OP_BROADCAST] = broadcast,
    [IR_OP_TRANSPOSE] = transpose, [IR_OP_SLICE] = slice,     [IR_OP_PAD] = pad,
    [IR_OP_CONCAT] = concat,       [IR_OP_GATHER] = gather,
};
