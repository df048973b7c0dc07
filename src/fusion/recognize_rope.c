/* Rotary embedding, in both pairings and four spellings.
 *
 *   halves   x * cos + concat(-x[h:], x[:h]) * sin       tables of full width, both halves equal
 *            concat(x[:h] c - x[h:] s, x[h:] c + x[:h] s)                  tables of half width
 *   pairs    x * cos + interleave(-x[1::2], x[0::2]) * sin   full width, every element twice
 *            interleave(x[0::2] c - x[1::2] s, …)                          tables of half width
 *
 * The op takes one table for all batch items and heads, of half the width. That a full table
 * repeats itself is read off its elements where it is constant, else off its construction
 * (concat(a, a) under elementwise ops).
 * Rounding: none beyond the order of the two products' sum. */
#include "fusion/patterns.h"

static const match_definition_t definitions[] = {
    {"half_turn", "concat(neg(?hi:slice(?x)), ?lo:slice(?x))"},
    {"pair_turn", "reshape(concat(~neg(~?hi:slice(?x)), ~?lo:slice(?x)))"},
    {"lo", "~?lo:slice(?p)"},
    {"hi", "~?hi:slice(?p)"},
    {"real", "sub(mul(<lo>, ?c), mul(<hi>, ?s))"},
    {"imag", "add(mul(<hi>, ?c), mul(<lo>, ?s))"},
    {0},
};

enum { WIDE_TABLE = 3, ROW_AXIS = 2, PAIRS = 1, RANK = 0 }; /* of site->i */

/* ---- slices ---- */

/* Whether `value` is x[..., begin::step] along the last dim, `count` elements, all of the
 * others. */
static bool is_slice(const fuse_site_t *site, ir_value_t value, int64_t begin, int64_t step,
                     int64_t count) {
    const ir_node_info_t *node = site_producer(site, value);
    const ir_type_t *x = site_type(site, node->inputs[0]), *type = site_type(site, value);
    const ir_attr_t *begins = ir_node_attr(node, "begin"), *steps = ir_node_attr(node, "step");
    int32_t last = x->rank - 1;
    for (int32_t i = 0; i < last; i++)
        if (type->dims[i] != x->dims[i] || (steps->ints.v[i] != 1 && x->dims[i] > 1)) return false;
    return type->dims[last] == count && begins->ints.v[last] == begin &&
           (steps->ints.v[last] == step || count == 1);
}

/* Whether lo and hi are the first and second of each pair of x's last dim, which has `width`. */
static bool are_parts(const fuse_site_t *site, int64_t width, bool pairs) {
    ir_value_t lo = match_value(&site->match, "lo"), hi = match_value(&site->match, "hi");
    int64_t half = width / 2, step = pairs ? 2 : 1;
    return is_slice(site, lo, 0, step, half) && is_slice(site, hi, pairs ? 1 : half, step, half);
}

/* ---- tables ---- */

/* Whether a constant's rows consist of two equal halves, or of pairs of equal elements. */
static st_status_t constant_repeats(const fuse_site_t *site, ir_value_t value, bool pairs,
                                    bool *out) {
    fuse_elements_t e;
    *out = false;
    TRY(fuse_cone_read(site->match.cone, value, &e));
    if (!e.data) return ST_OK;
    int64_t width = e.type.dims[e.type.rank - 1], n = ir_type_elements(&e.type);
    for (int64_t row = 0; row < n && !e.splat; row += width)
        for (int64_t i = 0; i < width / 2; i++) {
            double a = fuse_element(&e, row + (pairs ? 2 * i : i));
            if (a != fuse_element(&e, row + (pairs ? 2 * i + 1 : i + width / 2))) return ST_OK;
        }
    *out = true;
    return ST_OK;
}

/* The same by construction: through what treats every element alike, down to concat(a, a). */
static st_status_t repeats(const fuse_site_t *site, ir_value_t value, bool pairs, bool *out) {
    *out = false;
    for (int depth = 0; depth < 32; depth++) {
        const ir_type_t *type = site_type(site, value);
        if (type->rank < 1 || type->dims[type->rank - 1] < 2) return ST_OK;
        if (fuse_cone_is_constant(site->match.cone, value))
            return constant_repeats(site, value, pairs, out);
        const ir_node_info_t *node = site_producer(site, value);
        bool same_width = node->n_inputs > 0 && site_type(site, node->inputs[0])->rank > 0;
        if (same_width) {
            const ir_type_t *x = site_type(site, node->inputs[0]);
            same_width = x->dims[x->rank - 1] == type->dims[type->rank - 1];
        }
        bool elementwise = (ir_op_def(node->op)->flags & IR_ELEMENTWISE) != 0;
        double number;
        bool uniform = false;
        if (node->n_inputs == 2 && elementwise)
            TRY(fuse_cone_uniform(site->match.cone, node->inputs[1], &number, &uniform));
        if (node->op == IR_OP_CONCAT && !pairs) {
            *out = node->n_inputs == 2 && node->inputs[0] == node->inputs[1] &&
                   ir_attr_int(node, "axis") == type->rank - 1;
            return ST_OK;
        }
        bool rows_only = node->op == IR_OP_RESHAPE || node->op == IR_OP_BROADCAST ||
                         (node->op == IR_OP_GATHER &&
                          ir_attr_int(node, "axis") < site_type(site, node->inputs[0])->rank - 1);
        if (!same_width || !(rows_only || (elementwise && (node->n_inputs == 1 || uniform))))
            return ST_OK;
        value = node->inputs[0];
    }
    return ST_OK;
}

/* Whether the items of dim 0 of a constant are all equal. */
static st_status_t items_equal(const fuse_site_t *site, ir_value_t value, bool *out) {
    fuse_elements_t e;
    *out = false;
    TRY(fuse_cone_read(site->match.cone, value, &e));
    if (!e.data) return ST_OK;
    int64_t n = ir_type_elements(&e.type), item = n / e.type.dims[0];
    for (int64_t i = item; i < n && !e.splat; i++)
        if (fuse_element(&e, i) != fuse_element(&e, i - item)) return ST_OK;
    *out = true;
    return ST_OK;
}

/* A table against x of 4 dims: varies along the last dim and one of dims 1, 2 (the rows). */
static st_status_t check_table(fuse_site_t *site, ir_value_t table, const ir_type_t *x,
                               int64_t width, int64_t *row_axis, bool *out) {
    const ir_type_t *type = site_type(site, table);
    int32_t rank = type->rank, varying = 0;
    *out = false;
    if (rank < 1 || rank > x->rank || type->dtype != x->dtype || type->dims[rank - 1] != width)
        return ST_OK;
    for (int32_t i = 0; i + 1 < rank; i++) {
        int32_t dim = i + 4 - rank; /* of x seen with 4 dims */
        if (type->dims[i] == 1) continue;
        if (dim == 0) {
            bool equal;
            TRY(items_equal(site, table, &equal));
            if (!equal) return ST_OK;
            continue;
        }
        if (dim == 3 || varying++ || (*row_axis && *row_axis != dim)) return ST_OK;
        *row_axis = dim;
    }
    *out = !site->trained[table];
    return ST_OK;
}

/* `x` is the value that is rotated, or one of its elements in another shape. */
static st_status_t check_tables(fuse_site_t *site, ir_value_t x, ir_value_t c, ir_value_t s,
                                int64_t width, bool *out) {
    const ir_type_t *type = &site->type;
    int64_t row_axis = 0;
    *out = ir_dtype_is_float(type->dtype) && type->rank >= 2 && type->rank <= 4 &&
           type->dims[type->rank - 1] % 2 == 0 && type->dims[type->rank - 1] > 0;
    if (*out) TRY(check_table(site, c, type, width, &row_axis, out));
    if (*out) TRY(check_table(site, s, type, width, &row_axis, out));
    site->i[RANK] = type->rank;
    site->i[ROW_AXIS] = row_axis ? row_axis : 2;
    site_add(site, x);
    site_add(site, c);
    site_add(site, s);
    return ST_OK;
}

/* ---- the spellings ---- */

static st_status_t check_wide(fuse_site_t *site, bool pairs, bool *out) {
    const match_t *m = &site->match;
    ir_value_t x = match_value(m, "x"), c = match_value(m, "c"), s = match_value(m, "s");
    const ir_type_t *type = site_type(site, x);
    *out = ir_type_equal(type, &site->type) && type->rank > 0;
    if (!*out) return ST_OK;
    int64_t width = type->dims[type->rank - 1];
    *out = are_parts(site, width, pairs);
    if (*out) TRY(check_tables(site, x, c, s, width, out));
    if (*out) TRY(repeats(site, c, pairs, out));
    if (*out) TRY(repeats(site, s, pairs, out));
    site->i[PAIRS] = pairs;
    site->i[WIDE_TABLE] = 1;
    return ST_OK;
}

/* concat of two along the last dim of x's rank, or of a new last dim. */
static bool joins_last(const fuse_site_t *site, ir_value_t value, bool is_new, int32_t rank) {
    const ir_node_info_t *node = site_producer(site, value);
    if (is_new) node = site_producer(site, node->inputs[0]);
    if (ir_attr_int(node, "axis") != (is_new ? rank : rank - 1)) return false;
    const ir_type_t *type = site_type(site, node->inputs[0]);
    return type->rank == (is_new ? rank + 1 : rank) && (!is_new || type->dims[rank] == 1);
}

static ir_value_t root_value(const fuse_site_t *site) {
    return ir_node(site_graph(site), site->match.nodes[0])->first_output;
}

static st_status_t check_wide_halves(fuse_site_t *site, bool *out) {
    TRY(check_wide(site, false, out));
    int32_t rank = site->type.rank;
    *out = *out && joins_last(site, match_value(&site->match, "t"), false, rank);
    return ST_OK;
}

static st_status_t check_wide_pairs(fuse_site_t *site, bool *out) {
    TRY(check_wide(site, true, out));
    *out = *out && joins_last(site, match_value(&site->match, "t"), true, site->type.rank) &&
           ir_type_equal(site_type(site, match_value(&site->match, "t")), &site->type);
    return ST_OK;
}

static st_status_t check_narrow_halves(fuse_site_t *site, bool *out) {
    const match_t *m = &site->match;
    ir_value_t x = match_value(m, "p");
    const ir_type_t *type = site_type(site, x);
    *out = ir_type_equal(type, &site->type) && type->rank > 0;
    if (!*out) return ST_OK;
    int64_t width = type->dims[type->rank - 1];
    *out = are_parts(site, width, false) && joins_last(site, root_value(site), false, type->rank);
    if (*out) TRY(check_tables(site, x, match_value(m, "c"), match_value(m, "s"), width / 2, out));
    return ST_OK;
}

/* The parts are slices of x with step 2, or of x seen as pairs. Their tables may have the 1 of a
 * pair's dim at their end. */
static st_status_t check_narrow_pairs(fuse_site_t *site, bool *out) {
    const match_t *m = &site->match;
    ir_value_t p = match_value(m, "p");
    const ir_type_t *type = site_type(site, p), *x = &site->type;
    *out = false;
    if (x->rank < 1 || !joins_last(site, root_value(site), true, x->rank)) return ST_OK;
    int64_t width = x->dims[x->rank - 1];
    if (ir_type_equal(type, x)) {
        if (!are_parts(site, width, true)) return ST_OK;
    } else {
        bool as_pairs = type->rank == x->rank + 1 && type->dims[x->rank] == 2 &&
                        type->dims[x->rank - 1] == width / 2;
        for (int32_t i = 0; as_pairs && i + 1 < x->rank; i++)
            as_pairs = type->dims[i] == x->dims[i];
        if (!as_pairs || type->dtype != x->dtype || !are_parts(site, 2, false)) return ST_OK;
    }
    const ir_type_t *part = site_type(site, match_value(m, "real"));
    if (part->rank != x->rank) return ST_OK; /* tables would need another reading */
    ir_type_t seen = *x;
    seen.dims[x->rank - 1] = width / 2;
    if (!ir_dims_equal(part, &seen)) return ST_OK;
    TRY(check_tables(site, p, match_value(m, "c"), match_value(m, "s"), width / 2, out));
    site->i[RANK] = x->rank;
    site->i[PAIRS] = 1;
    return ST_OK;
}

/* ---- building ---- */

/* [rows, width / 2] of a table. */
static ir_value_t half_table(const fuse_site_t *site, ir_build_t *b, ir_value_t table, int64_t rows,
                             int64_t half) {
    ir_type_t type = *ir_b_type(b, table);
    int64_t begin[IR_MAX_RANK] = {0}, end[IR_MAX_RANK], step[IR_MAX_RANK], n = 1;
    int32_t last = type.rank - 1;
    for (int32_t i = 0; i <= last; i++) {
        end[i] = type.dims[i];
        step[i] = 1;
        if (i < last && type.rank - i == 4) end[i] = 1; /* the items are equal */
        if (i < last) n *= end[i];
    }
    if (site->i[WIDE_TABLE] && site->i[PAIRS]) step[last] = 2;
    if (site->i[WIDE_TABLE] && !site->i[PAIRS]) end[last] = half;
    table = ir_b_node(
        b, IR_OP_SLICE, 1, &table, 3,
        (ir_arg_t[]){IR_ARG_INTS("begin", begin, type.rank), IR_ARG_INTS("end", end, type.rank),
                     IR_ARG_INTS("step", step, type.rank)});
    table = ir_b_reshape(b, table, 2, (int64_t[]){n, half});
    return ir_b_broadcast(b, table, 2, (int64_t[]){rows, half});
}

static ir_value_t build(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    const ir_type_t *type = &site->type;
    int64_t dims[4] = {1, 1, 1, 1};
    for (int32_t i = 0; i < type->rank; i++) dims[4 - type->rank + i] = type->dims[i];
    bool swap = site->i[ROW_AXIS] == 1;
    int64_t rows = dims[swap ? 1 : 2], half = dims[3] / 2;
    ir_value_t x = ir_b_reshape(b, in[0], 4, dims);
    if (swap) x = ir_b_swap(b, x, 1, 2);
    ir_value_t tables[2];
    for (int t = 0; t < 2; t++) tables[t] = half_table(site, b, in[1 + t], rows, half);
    ir_value_t y = ir_b_node(b, IR_OP_ROPE, 3, (ir_value_t[]){x, tables[0], tables[1]}, 1,
                             (ir_arg_t[]){IR_ARG_BOOL("interleaved", site->i[PAIRS] != 0)});
    if (swap) y = ir_b_swap(b, y, 1, 2);
    return ir_b_reshape(b, y, type->rank, type->dims);
}

static const fuse_row_t rows[] = {
    {"add(mul(?t:<half_turn>, ?s), mul(?x, ?c))", check_wide_halves, build},
    {"add(mul(?t:<pair_turn>, ?s), mul(?x, ?c))", check_wide_pairs, build},
    {"concat(<real>, <imag>)", check_narrow_halves, build},
    {"reshape(concat(~?real:<real>, ~<imag>))", check_narrow_pairs, build},
    {0},
};

const fuse_patterns_t fuse_patterns_rope = {definitions, rows};
