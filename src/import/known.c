/* Values known while importing (known.h).
 *
 * A value's elements are found by walking back from it through its producers, small values of few
 * ops only; what was found, or that nothing was, is kept. Everything else stays for the compiler to
 * fold.
 *
 * Limits: KNOWN_ELEMENTS a value, `left` for all values that share it, KNOWN_DEPTH producers in a
 * row; beyond them a value is not known, so time and memory are bounded on any input. */
#include "import/known.h"

#include <math.h>
#include <string.h>

#include "ir/convert.h"
#include "ir/op.h"

enum { KNOWN_ELEMENTS = 1 << 16, KNOWN_DEPTH = 400 };

/* An operand. */
typedef struct operand {
    const void *data;
    ir_type_t type;
} operand_t;

/* One node: what its rule sees. */
typedef struct eval {
    const ir_node_info_t *node;
    ir_type_t type; /* of the output */
    const operand_t *in;
    void *out;
} eval_t;
typedef bool (*eval_rule_t)(const eval_t *e); /* false: not for this dtype or form */

/* ---- elements ---- */

static void unravel(const ir_type_t *type, int64_t flat, int64_t *index) {
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        index[i] = flat % type->dims[i];
        flat /= type->dims[i];
    }
}

/* Position of an index of `out` in an operand that broadcasts to it. */
static size_t broadcast_at(const ir_type_t *x, const ir_type_t *out, const int64_t *index) {
    int64_t at = 0;
    for (int32_t i = 0; i < x->rank; i++)
        at = at * x->dims[i] + (x->dims[i] == 1 ? 0 : index[i + out->rank - x->rank]);
    return (size_t)at;
}

static double load(const operand_t *x, size_t i) {
    return ir_element_load(x->type.dtype, x->data, i);
}

static void copy_element(const eval_t *e, size_t to, uint32_t j, size_t from) {
    size_t width = ir_dtype_bytes(e->type.dtype);
    memcpy((char *)e->out + to * width, (const char *)e->in[j].data + from * width, width);
}

/* ---- elementwise ---- */

static double negated(double x) {
    return -x;
}
static double sign_of(double x) {
    return (x > 0) - (x < 0);
}
static double inverse(double x) {
    return 1 / x;
}
static double is_zero(double x) {
    return x == 0;
}
static double positive(double x) {
    return x > 0 ? x : 0;
}
static double same(double x) {
    return x;
}

static double (*const unary_rules[IR_OP_END])(double) = {
    [IR_OP_NEG] = negated,        [IR_OP_ABS] = fabs,  [IR_OP_SIGN] = sign_of,
    [IR_OP_FLOOR] = floor,        [IR_OP_CEIL] = ceil, [IR_OP_ROUND] = nearbyint,
    [IR_OP_SQRT] = sqrt,          [IR_OP_EXP] = exp,   [IR_OP_LOG] = log,
    [IR_OP_RECIPROCAL] = inverse, [IR_OP_CAST] = same, [IR_OP_LOGICAL_NOT] = is_zero,
    [IR_OP_RELU] = positive,
};

/* Casts between integers keep all 64 bits; other unary rules of integers are exact in double up to
 * 2^53, far above any shape. */
static bool eval_unary(const eval_t *e) {
    double (*rule)(double) = unary_rules[e->node->op];
    bool exact = e->node->op == IR_OP_CAST && !ir_dtype_is_float(e->in[0].type.dtype) &&
                 !ir_dtype_is_float(e->type.dtype);
    size_t n = (size_t)ir_type_elements(&e->type);
    for (size_t i = 0; i < n; i++) {
        if (exact && e->type.dtype != IR_BOOL)
            ir_element_store_i64(e->type.dtype, e->out, i,
                                 ir_element_load_i64(e->in[0].type.dtype, e->in[0].data, i));
        else
            ir_element_store(e->type.dtype, e->out, i, rule(load(&e->in[0], i)));
    }
    return true;
}

static double d_add(double x, double y) {
    return x + y;
}
static double d_sub(double x, double y) {
    return x - y;
}
static double d_mul(double x, double y) {
    return x * y;
}
static double d_div(double x, double y) {
    return x / y;
}
static double d_max(double x, double y) {
    return x > y || x != x ? x : y;
}
static double d_min(double x, double y) {
    return x < y || x != x ? x : y;
}
static double d_mod(double x, double y) {
    return x - y * floor(x / y);
}
static double d_eq(double x, double y) {
    return x == y;
}
static double d_ne(double x, double y) {
    return x != y;
}
static double d_lt(double x, double y) {
    return x < y;
}
static double d_le(double x, double y) {
    return x <= y;
}
static double d_gt(double x, double y) {
    return x > y;
}
static double d_ge(double x, double y) {
    return x >= y;
}
static double d_and(double x, double y) {
    return x != 0 && y != 0;
}
static double d_or(double x, double y) {
    return x != 0 || y != 0;
}

/* Integers wrap around, as kernels do. */
static int64_t i_add(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x + (uint64_t)y);
}
static int64_t i_sub(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x - (uint64_t)y);
}
static int64_t i_mul(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x * (uint64_t)y);
}
static int64_t i_div(int64_t x, int64_t y) {
    return y == 0 ? 0 : y == -1 ? i_sub(0, x) : x / y;
}
static int64_t i_max(int64_t x, int64_t y) {
    return x > y ? x : y;
}
static int64_t i_min(int64_t x, int64_t y) {
    return x < y ? x : y;
}
static int64_t i_mod(int64_t x, int64_t y) {
    int64_t rest = y == 0 || y == -1 ? 0 : x % y;
    return rest && (rest < 0) != (y < 0) ? rest + y : rest;
}
static int64_t i_eq(int64_t x, int64_t y) {
    return x == y;
}
static int64_t i_ne(int64_t x, int64_t y) {
    return x != y;
}
static int64_t i_lt(int64_t x, int64_t y) {
    return x < y;
}
static int64_t i_le(int64_t x, int64_t y) {
    return x <= y;
}
static int64_t i_gt(int64_t x, int64_t y) {
    return x > y;
}
static int64_t i_ge(int64_t x, int64_t y) {
    return x >= y;
}
static int64_t i_and(int64_t x, int64_t y) {
    return x && y;
}
static int64_t i_or(int64_t x, int64_t y) {
    return x || y;
}

static const struct {
    double (*d)(double, double);
    int64_t (*i)(int64_t, int64_t);
} binary_rules[IR_OP_END] = {
    [IR_OP_ADD] = {d_add, i_add},      [IR_OP_SUB] = {d_sub, i_sub},
    [IR_OP_MUL] = {d_mul, i_mul},      [IR_OP_DIV] = {d_div, i_div},
    [IR_OP_MAXIMUM] = {d_max, i_max},  [IR_OP_MINIMUM] = {d_min, i_min},
    [IR_OP_MOD] = {d_mod, i_mod},      [IR_OP_EQ] = {d_eq, i_eq},
    [IR_OP_NE] = {d_ne, i_ne},         [IR_OP_LT] = {d_lt, i_lt},
    [IR_OP_LE] = {d_le, i_le},         [IR_OP_GT] = {d_gt, i_gt},
    [IR_OP_GE] = {d_ge, i_ge},         [IR_OP_LOGICAL_AND] = {d_and, i_and},
    [IR_OP_LOGICAL_OR] = {d_or, i_or},
};

static bool eval_binary(const eval_t *e) {
    ir_op_t op = e->node->op;
    bool floats = ir_dtype_is_float(e->in[0].type.dtype) || ir_dtype_is_float(e->in[1].type.dtype);
    int64_t n = ir_type_elements(&e->type), index[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        size_t x = broadcast_at(&e->in[0].type, &e->type, index);
        size_t y = broadcast_at(&e->in[1].type, &e->type, index);
        if (floats)
            ir_element_store(e->type.dtype, e->out, (size_t)i,
                             binary_rules[op].d(load(&e->in[0], x), load(&e->in[1], y)));
        else
            ir_element_store_i64(
                e->type.dtype, e->out, (size_t)i,
                binary_rules[op].i(ir_element_load_i64(e->in[0].type.dtype, e->in[0].data, x),
                                   ir_element_load_i64(e->in[1].type.dtype, e->in[1].data, y)));
    }
    return true;
}

static bool eval_select(const eval_t *e) {
    int64_t n = ir_type_elements(&e->type), index[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        uint32_t j = load(&e->in[0], broadcast_at(&e->in[0].type, &e->type, index)) != 0 ? 1 : 2;
        copy_element(e, (size_t)i, j, broadcast_at(&e->in[j].type, &e->type, index));
    }
    return true;
}

/* ---- sources and shape ---- */

static bool eval_constant(const eval_t *e) {
    const ir_attr_t *data = ir_node_attr(e->node, "data");
    size_t width = ir_dtype_bytes(e->type.dtype), n = (size_t)ir_type_elements(&e->type);
    bool splat = data->data.bytes == width;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)e->out + i * width, (const char *)data->data.p + (splat ? 0 : i * width),
               width);
    return true;
}

static bool eval_iota(const eval_t *e) {
    int64_t n = ir_type_elements(&e->type), index[IR_MAX_RANK], axis = ir_attr_int(e->node, "axis");
    double start = ir_attr_float(e->node, "start"), step = ir_attr_float(e->node, "step");
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        ir_element_store(e->type.dtype, e->out, (size_t)i, start + step * (double)index[axis]);
    }
    return true;
}

static bool eval_reshape(const eval_t *e) {
    memcpy(e->out, e->in[0].data, ir_type_bytes(&e->type));
    return true;
}

static bool eval_broadcast(const eval_t *e) {
    int64_t n = ir_type_elements(&e->type), index[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        copy_element(e, (size_t)i, 0, broadcast_at(&e->in[0].type, &e->type, index));
    }
    return true;
}

/* Flat position of an index. */
static size_t ravel(const ir_type_t *type, const int64_t *index) {
    int64_t at = 0;
    for (int32_t i = 0; i < type->rank; i++) at = at * type->dims[i] + index[i];
    return (size_t)at;
}

static bool eval_transpose(const eval_t *e) {
    const int64_t *perm = ir_node_attr(e->node, "perm")->ints.v;
    int64_t n = ir_type_elements(&e->type), index[IR_MAX_RANK], from[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        for (int32_t k = 0; k < e->type.rank; k++) from[perm[k]] = index[k];
        copy_element(e, (size_t)i, 0, ravel(&e->in[0].type, from));
    }
    return true;
}

static bool eval_slice(const eval_t *e) {
    const int64_t *begin = ir_node_attr(e->node, "begin")->ints.v;
    const int64_t *step = ir_node_attr(e->node, "step")->ints.v;
    int64_t n = ir_type_elements(&e->type), index[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        for (int32_t k = 0; k < e->type.rank; k++) index[k] = begin[k] + step[k] * index[k];
        copy_element(e, (size_t)i, 0, ravel(&e->in[0].type, index));
    }
    return true;
}

static bool eval_concat(const eval_t *e) {
    int64_t axis = ir_attr_int(e->node, "axis"), n = ir_type_elements(&e->type), index[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        uint32_t j = 0;
        for (; index[axis] >= e->in[j].type.dims[axis]; j++)
            index[axis] -= e->in[j].type.dims[axis];
        copy_element(e, (size_t)i, j, ravel(&e->in[j].type, index));
    }
    return true;
}

/* An index out of range is the kernel's to report. */
static bool eval_gather(const eval_t *e) {
    const ir_type_t *x = &e->in[0].type, *idx = &e->in[1].type;
    int64_t axis = ir_attr_int(e->node, "axis"), n = ir_type_elements(&e->type);
    int64_t index[IR_MAX_RANK], from[IR_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        unravel(&e->type, i, index);
        for (int32_t k = 0; k < axis; k++) from[k] = index[k];
        for (int32_t k = (int32_t)axis + 1; k < x->rank; k++) from[k] = index[k + idx->rank - 1];
        int64_t chosen = ir_element_load_i64(idx->dtype, e->in[1].data, ravel(idx, index + axis));
        if (chosen < 0) chosen += x->dims[axis];
        if (chosen < 0 || chosen >= x->dims[axis]) return false;
        from[axis] = chosen;
        copy_element(e, (size_t)i, 0, ravel(x, from));
    }
    return true;
}

/* ---- reductions ---- */

static const ir_op_t fold_of[IR_OP_END] = {
    [IR_OP_REDUCE_SUM] = IR_OP_ADD,
    [IR_OP_REDUCE_PROD] = IR_OP_MUL,
    [IR_OP_REDUCE_MAX] = IR_OP_MAXIMUM,
    [IR_OP_REDUCE_MIN] = IR_OP_MINIMUM,
};

/* Of integers; each input element is folded into its result. */
static bool eval_reduce(const eval_t *e) {
    const ir_type_t *x = &e->in[0].type;
    const ir_attr_t *axes = ir_node_attr(e->node, "axes");
    int64_t n = ir_type_elements(x), index[IR_MAX_RANK];
    size_t n_out = (size_t)ir_type_elements(&e->type);
    if (ir_dtype_is_float(x->dtype) || n == 0) return false;
    ir_type_t kept = *x;
    for (uint32_t a = 0; a < axes->ints.n; a++) kept.dims[axes->ints.v[a]] = 1;
    for (size_t i = 0; i < n_out; i++)
        ir_element_store_i64(x->dtype, e->out, i, e->node->op == IR_OP_REDUCE_PROD);
    for (int64_t i = 0; i < n; i++) {
        unravel(x, i, index);
        bool first = true;
        for (uint32_t a = 0; a < axes->ints.n; a++) {
            first &= index[axes->ints.v[a]] == 0;
            index[axes->ints.v[a]] = 0;
        }
        size_t at = ravel(&kept, index);
        int64_t held = ir_element_load_i64(x->dtype, e->out, at);
        int64_t given = ir_element_load_i64(x->dtype, e->in[0].data, (size_t)i);
        ir_element_store_i64(x->dtype, e->out, at,
                             first ? given : binary_rules[fold_of[e->node->op]].i(held, given));
    }
    return true;
}

static const eval_rule_t other_rules[IR_OP_END] = {
    [IR_OP_CONSTANT] = eval_constant,   [IR_OP_IOTA] = eval_iota,
    [IR_OP_SELECT] = eval_select,       [IR_OP_RESHAPE] = eval_reshape,
    [IR_OP_BROADCAST] = eval_broadcast, [IR_OP_TRANSPOSE] = eval_transpose,
    [IR_OP_SLICE] = eval_slice,         [IR_OP_CONCAT] = eval_concat,
    [IR_OP_GATHER] = eval_gather,       [IR_OP_REDUCE_SUM] = eval_reduce,
    [IR_OP_REDUCE_PROD] = eval_reduce,  [IR_OP_REDUCE_MAX] = eval_reduce,
    [IR_OP_REDUCE_MIN] = eval_reduce,
};

static eval_rule_t rule_of(ir_op_t op) {
    return unary_rules[op] ? eval_unary : binary_rules[op].d ? eval_binary : other_rules[op];
}

/* ---- the walk ---- */

static st_status_t find(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value, int depth,
                        const void **out);

static st_status_t compute(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value, int depth,
                           const void **out_data) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    const ir_type_t *type = ir_value_type(graph, value);
    eval_rule_t rule = rule_of(node->op);
    int64_t n = ir_type_elements(type);
    if (!rule || n > KNOWN_ELEMENTS || n > *k->left) return ST_OK;
    operand_t *in = st_arena_array(k->arena, node->n_inputs + 1, sizeof *in);
    if (!in) return st_no_memory(node->n_inputs * sizeof *in, "a constant");
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        TRY(find(k, graph, node->inputs[j], depth + 1, &in[j].data));
        if (!in[j].data) return ST_OK;
        in[j].type = *ir_value_type(graph, node->inputs[j]);
    }
    *k->left -= n + 1;
    void *out = st_arena_alloc(k->arena, ir_type_bytes(type) + 1);
    if (!out) return st_no_memory(ir_type_bytes(type), "a constant");
    eval_t e = {.node = node, .type = *type, .in = in, .out = out};
    if (rule(&e)) *out_data = out;
    return ST_OK;
}

static st_status_t make_room(import_knowns_t *k, size_t n) {
    if (k->values.n >= n) return ST_OK;
    TRY(ST_VEC_RESERVE(&k->values, n));
    memset(k->values.data + k->values.n, 0, (n - k->values.n) * sizeof *k->values.data);
    k->values.n = n;
    return ST_OK;
}

static st_status_t find(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value, int depth,
                        const void **out) {
    *out = NULL;
    if (value == IR_NONE || depth > KNOWN_DEPTH) return ST_OK;
    TRY(make_room(k, graph->values.n));
    if (!k->values.data[value].asked) {
        const void *data = NULL;
        TRY(compute(k, graph, value, depth, &data));
        k->values.data[value] = (import_known_t){data, true, false};
    }
    k->values.data[value].used = true;
    *out = k->values.data[value].data;
    return ST_OK;
}

st_status_t import_known(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value,
                         const void **out_data) {
    return find(k, graph, value, 0, out_data);
}

st_status_t import_known_set(import_knowns_t *k, const ir_graph_t *graph, ir_value_t value,
                             const void *data) {
    TRY(make_room(k, graph->values.n));
    k->values.data[value] = (import_known_t){data, true, false};
    return ST_OK;
}
