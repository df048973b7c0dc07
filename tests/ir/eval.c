#include "ir/eval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/convert.h"

void eval_unravel(const ir_type_t *type, int64_t flat, int64_t *index) {
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        index[i] = flat % type->dims[i];
        flat /= type->dims[i];
    }
}

int64_t eval_ravel(const ir_type_t *type, const int64_t *index) {
    int64_t flat = 0;
    for (int32_t i = 0; i < type->rank; i++) flat = flat * type->dims[i] + index[i];
    return flat;
}

/* What the functions below fill in or read: one node with its output. */
typedef struct node {
    const ir_op_ctx_t *ctx;
    const double *const *in;
    const ir_type_t *out_type;
    double *out;
} node_t;

static const int64_t *ints(const node_t *n, const char *key) {
    return ir_ctx_attr(n->ctx, key)->ints.v;
}
static int64_t count(const node_t *n) {
    return ir_type_elements(n->out_type);
}

/* ---- elementwise ---- */

static double f_neg(double x) {
    return -x;
}
static double f_rsqrt(double x) {
    return 1 / sqrt(x);
}
static double f_reciprocal(double x) {
    return 1 / x;
}
static double f_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double f_relu(double x) {
    return x < 0 ? 0 : x;
}
static double f_silu(double x) {
    return x * f_sigmoid(x);
}
static double f_sign(double x) {
    return (x > 0) - (x < 0);
}
static double f_not(double x) {
    return x == 0;
}
static double f_square(double x) {
    return x * x;
}
static double f_same(double x) {
    return x;
}
static double f_gelu(double x) {
    return x * (1 + erf(x / sqrt(2.0))) / 2;
}
static double f_gelu_tanh(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double (*const unary[IR_OP_END])(double) = {
    [IR_OP_NEG] = f_neg,
    [IR_OP_ABS] = fabs,
    [IR_OP_EXP] = exp,
    [IR_OP_LOG] = log,
    [IR_OP_SQRT] = sqrt,
    [IR_OP_RSQRT] = f_rsqrt,
    [IR_OP_RECIPROCAL] = f_reciprocal,
    [IR_OP_SIN] = sin,
    [IR_OP_COS] = cos,
    [IR_OP_TANH] = tanh,
    [IR_OP_SIGMOID] = f_sigmoid,
    [IR_OP_ERF] = erf,
    [IR_OP_RELU] = f_relu,
    [IR_OP_GELU] = f_gelu,
    [IR_OP_SILU] = f_silu,
    [IR_OP_SIGN] = f_sign,
    [IR_OP_FLOOR] = floor,
    [IR_OP_CEIL] = ceil,
    [IR_OP_LOGICAL_NOT] = f_not,
    [IR_OP_CAST] = f_same,
    [IR_OP_SQUARE] = f_square,
    [IR_OP_ROUND] = rint,
};

static double slope(double (*f)(double), double x) {
    const double h = 1e-6;
    return (f(x + h) - f(x - h)) / (2 * h);
}
static double f_add(double x, double y) {
    return x + y;
}
static double f_sub(double x, double y) {
    return x - y;
}
static double f_mul(double x, double y) {
    return x * y;
}
static double f_div(double x, double y) {
    return x / y;
}
static double f_mod(double x, double y) {
    return x - y * floor(x / y);
}
static double f_eq(double x, double y) {
    return x == y;
}
static double f_ne(double x, double y) {
    return x != y;
}
static double f_lt(double x, double y) {
    return x < y;
}
static double f_le(double x, double y) {
    return x <= y;
}
static double f_gt(double x, double y) {
    return x > y;
}
static double f_ge(double x, double y) {
    return x >= y;
}
static double f_and(double x, double y) {
    return x != 0 && y != 0;
}
static double f_or(double x, double y) {
    return x != 0 || y != 0;
}
static double f_relu_grad(double dy, double y) {
    return y > 0 ? dy : 0;
}
static double f_silu_grad(double dy, double x) {
    return dy * slope(f_silu, x);
}
static double f_gelu_grad(double dy, double x) {
    return dy * slope(f_gelu, x);
}
static double f_gelu_tanh_grad(double dy, double x) {
    return dy * slope(f_gelu_tanh, x);
}

static double (*const binary[IR_OP_END])(double, double) = {
    [IR_OP_ADD] = f_add,
    [IR_OP_SUB] = f_sub,
    [IR_OP_MUL] = f_mul,
    [IR_OP_DIV] = f_div,
    [IR_OP_POW] = pow,
    [IR_OP_MAXIMUM] = fmax,
    [IR_OP_MINIMUM] = fmin,
    [IR_OP_MOD] = f_mod,
    [IR_OP_EQ] = f_eq,
    [IR_OP_NE] = f_ne,
    [IR_OP_LT] = f_lt,
    [IR_OP_LE] = f_le,
    [IR_OP_GT] = f_gt,
    [IR_OP_GE] = f_ge,
    [IR_OP_LOGICAL_AND] = f_and,
    [IR_OP_LOGICAL_OR] = f_or,
    [IR_OP_RELU_GRAD] = f_relu_grad,
    [IR_OP_SILU_GRAD] = f_silu_grad,
    [IR_OP_GELU_GRAD] = f_gelu_grad,
};

/* Element of operand j that meets output element `flat` under broadcasting. */
static double operand(const node_t *n, uint32_t j, int64_t flat) {
    const ir_type_t *x = &n->ctx->in[j];
    int64_t index[IR_MAX_RANK], own[IR_MAX_RANK];
    eval_unravel(n->out_type, flat, index);
    for (int32_t i = 0; i < x->rank; i++)
        own[i] = x->dims[i] == 1 ? 0 : index[i + n->out_type->rank - x->rank];
    return n->in[j][eval_ravel(x, own)];
}

static void run_unary(const node_t *n) {
    double (*f)(double) = unary[n->ctx->op];
    if (n->ctx->op == IR_OP_GELU && ir_ctx_int(n->ctx, "tanh")) f = f_gelu_tanh;
    bool truncates = n->ctx->op == IR_OP_CAST && ir_dtype_is_integer(n->out_type->dtype);
    bool truth = n->ctx->op == IR_OP_CAST && n->out_type->dtype == IR_BOOL;
    for (int64_t i = 0; i < count(n); i++) {
        double y = f(n->in[0][i]);
        n->out[i] = truth ? y != 0 : truncates ? trunc(y) : y;
    }
}
static void run_binary(const node_t *n) {
    double (*f)(double, double) = binary[n->ctx->op];
    if (n->ctx->op == IR_OP_GELU_GRAD && ir_ctx_int(n->ctx, "tanh")) f = f_gelu_tanh_grad;
    for (int64_t i = 0; i < count(n); i++) n->out[i] = f(operand(n, 0, i), operand(n, 1, i));
}
static void run_select(const node_t *n) {
    for (int64_t i = 0; i < count(n); i++)
        n->out[i] = operand(n, 0, i) != 0 ? operand(n, 1, i) : operand(n, 2, i);
}

/* ---- sources ---- */

static void run_constant(const node_t *n) {
    const ir_attr_t *data = ir_ctx_attr(n->ctx, "data");
    bool splat = data->data.bytes == ir_dtype_bytes(n->out_type->dtype);
    for (int64_t i = 0; i < count(n); i++)
        n->out[i] = ir_element_load(n->out_type->dtype, data->data.p, splat ? 0 : (size_t)i);
}
static void run_iota(const node_t *n) {
    int64_t index[IR_MAX_RANK], axis = ir_ctx_int(n->ctx, "axis");
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        n->out[i] =
            ir_ctx_attr(n->ctx, "start")->f + ir_ctx_attr(n->ctx, "step")->f * (double)index[axis];
    }
}
/* Any function of the global element index serves. */
static void run_random(const node_t *n) {
    const ir_attr_t *begin = ir_ctx_attr(n->ctx, "begin"), *global = ir_ctx_attr(n->ctx, "global");
    ir_type_t whole = *n->out_type;
    int64_t index[IR_MAX_RANK];
    for (uint32_t i = 0; i < global->ints.n; i++) whole.dims[i] = global->ints.v[i];
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        for (uint32_t k = 0; k < begin->ints.n; k++) index[k] += begin->ints.v[k];
        n->out[i] = fmod((double)eval_ravel(&whole, index) * 0.6180339887498949, 1);
    }
}

/* ---- shape ---- */

static void run_broadcast(const node_t *n) {
    for (int64_t i = 0; i < count(n); i++) n->out[i] = operand(n, 0, i);
}
static void run_reshape(const node_t *n) {
    for (int64_t i = 0; i < count(n); i++) n->out[i] = n->in[0][i];
}
static void run_transpose(const node_t *n) {
    int64_t index[IR_MAX_RANK], from[IR_MAX_RANK];
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        for (int32_t k = 0; k < n->out_type->rank; k++) from[ints(n, "perm")[k]] = index[k];
        n->out[i] = n->in[0][eval_ravel(&n->ctx->in[0], from)];
    }
}
static void run_slice(const node_t *n) {
    int64_t index[IR_MAX_RANK];
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        for (int32_t k = 0; k < n->out_type->rank; k++)
            index[k] = ints(n, "begin")[k] + ints(n, "step")[k] * index[k];
        n->out[i] = n->in[0][eval_ravel(&n->ctx->in[0], index)];
    }
}
static void run_pad(const node_t *n) {
    int64_t index[IR_MAX_RANK];
    const ir_type_t *x = &n->ctx->in[0];
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        bool inside = true;
        for (int32_t k = 0; k < x->rank; k++) {
            index[k] -= ints(n, "low")[k];
            inside = inside && index[k] >= 0 && index[k] < x->dims[k];
        }
        n->out[i] = inside ? n->in[0][eval_ravel(x, index)] : ir_ctx_attr(n->ctx, "value")->f;
    }
}
static void run_concat(const node_t *n) {
    int64_t index[IR_MAX_RANK], axis = ir_ctx_int(n->ctx, "axis");
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        uint32_t j = 0;
        while (index[axis] >= n->ctx->in[j].dims[axis]) index[axis] -= n->ctx->in[j++].dims[axis];
        n->out[i] = n->in[j][eval_ravel(&n->ctx->in[j], index)];
    }
}
static void run_flip(const node_t *n) {
    int64_t index[IR_MAX_RANK];
    const ir_attr_t *axes = ir_ctx_attr(n->ctx, "axes");
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        for (uint32_t a = 0; a < axes->ints.n; a++) {
            int64_t axis = axes->ints.v[a];
            index[axis] = n->out_type->dims[axis] - 1 - index[axis];
        }
        n->out[i] = n->in[0][eval_ravel(n->out_type, index)];
    }
}

/* Position in the whole tensor of element `flat` of the selection (a gather's result, a scatter's
 * updates). */
typedef int64_t (*chooser_t)(const node_t *n, const ir_type_t *whole, const ir_type_t *selection,
                             int64_t flat);

static int64_t wrapped(double index, int64_t extent) {
    assert_true(index >= (double)-extent && index < (double)extent);
    return index < 0 ? (int64_t)index + extent : (int64_t)index;
}
static int64_t choose_slices(const node_t *n, const ir_type_t *whole, const ir_type_t *selection,
                             int64_t flat) {
    const ir_type_t *idx = &n->ctx->in[1];
    int64_t at[IR_MAX_RANK], from[IR_MAX_RANK], axis = ir_ctx_int(n->ctx, "axis");
    eval_unravel(selection, flat, at);
    for (int32_t i = 0; i < axis; i++) from[i] = at[i];
    from[axis] = wrapped(n->in[1][eval_ravel(idx, at + axis)], whole->dims[axis]);
    for (int32_t i = (int32_t)axis + 1; i < whole->rank; i++) from[i] = at[i - 1 + idx->rank];
    return eval_ravel(whole, from);
}
static int64_t choose_elements(const node_t *n, const ir_type_t *whole, const ir_type_t *selection,
                               int64_t flat) {
    int64_t at[IR_MAX_RANK], axis = ir_ctx_int(n->ctx, "axis");
    eval_unravel(selection, flat, at);
    at[axis] = wrapped(n->in[1][flat], whole->dims[axis]);
    return eval_ravel(whole, at);
}
static int64_t choose_tuples(const node_t *n, const ir_type_t *whole, const ir_type_t *selection,
                             int64_t flat) {
    const ir_type_t *idx = &n->ctx->in[1];
    int32_t n_lead = idx->rank - 1, k = (int32_t)idx->dims[n_lead];
    int64_t at[IR_MAX_RANK], tuple[IR_MAX_RANK], from[IR_MAX_RANK];
    eval_unravel(selection, flat, at);
    for (int32_t i = 0; i < n_lead; i++) tuple[i] = at[i];
    for (int32_t i = 0; i < k; i++) {
        tuple[n_lead] = i;
        from[i] = wrapped(n->in[1][eval_ravel(idx, tuple)], whole->dims[i]);
    }
    for (int32_t i = k; i < whole->rank; i++) from[i] = at[n_lead + i - k];
    return eval_ravel(whole, from);
}
static const chooser_t choosers[IR_OP_END] = {
    [IR_OP_GATHER] = choose_slices,         [IR_OP_SCATTER_ADD] = choose_slices,
    [IR_OP_GATHER_ALONG] = choose_elements, [IR_OP_SCATTER_ALONG_ADD] = choose_elements,
    [IR_OP_GATHER_ND] = choose_tuples,      [IR_OP_SCATTER_ND_ADD] = choose_tuples,
};
static void run_gather(const node_t *n) {
    for (int64_t i = 0; i < count(n); i++)
        n->out[i] = n->in[0][choosers[n->ctx->op](n, &n->ctx->in[0], n->out_type, i)];
}
static void run_scatter(const node_t *n) {
    for (int64_t i = 0; i < ir_type_elements(&n->ctx->in[0]); i++)
        n->out[choosers[n->ctx->op](n, n->out_type, &n->ctx->in[0], i)] += n->in[0][i];
}

/* ---- reductions ---- */

static void run_reduce(const node_t *n) {
    const ir_type_t *x = &n->ctx->in[0];
    const ir_attr_t *axes = ir_ctx_attr(n->ctx, "axes");
    ir_type_t kept = *x;
    for (uint32_t a = 0; a < axes->ints.n; a++) kept.dims[axes->ints.v[a]] = 1;
    ir_op_t op = n->ctx->op;
    double start = op == IR_OP_REDUCE_MAX   ? -INFINITY
                   : op == IR_OP_REDUCE_MIN ? INFINITY
                                            : op == IR_OP_REDUCE_PROD;
    for (int64_t i = 0; i < count(n); i++) n->out[i] = start;
    for (int64_t i = 0; i < ir_type_elements(x); i++) {
        int64_t index[IR_MAX_RANK];
        eval_unravel(x, i, index);
        for (uint32_t a = 0; a < axes->ints.n; a++) index[axes->ints.v[a]] = 0;
        double *at = &n->out[eval_ravel(&kept, index)], v = n->in[0][i];
        *at = op == IR_OP_REDUCE_MAX    ? fmax(*at, v)
              : op == IR_OP_REDUCE_MIN  ? fmin(*at, v)
              : op == IR_OP_REDUCE_PROD ? *at * v
                                        : *at + v;
    }
    if (op == IR_OP_REDUCE_MEAN)
        for (int64_t i = 0; i < count(n); i++)
            n->out[i] /= (double)ir_type_elements(x) / (double)count(n);
}
static void run_argmax(const node_t *n) {
    const ir_type_t *x = &n->ctx->in[0];
    int64_t axis = ir_ctx_int(n->ctx, "axis"), inner = 1;
    for (int32_t i = (int32_t)axis + 1; i < x->rank; i++) inner *= x->dims[i];
    for (int64_t i = 0; i < count(n); i++) {
        const double *first = n->in[0] + i / inner * inner * x->dims[axis] + i % inner;
        int64_t best = 0;
        for (int64_t k = 1; k < x->dims[axis]; k++)
            if (first[k * inner] > first[best * inner]) best = k;
        n->out[i] = (double)best;
    }
}
static void run_cumsum(const node_t *n) {
    int64_t index[IR_MAX_RANK], axis = ir_ctx_int(n->ctx, "axis");
    bool exclusive = ir_ctx_int(n->ctx, "exclusive"), reverse = ir_ctx_int(n->ctx, "reverse");
    for (int64_t i = 0; i < count(n); i++) {
        eval_unravel(n->out_type, i, index);
        int64_t own = index[axis];
        for (int64_t k = 0; k < n->out_type->dims[axis]; k++) {
            bool counts = k == own ? !exclusive : reverse ? k > own : k < own;
            index[axis] = k;
            if (counts) n->out[i] += n->in[0][eval_ravel(n->out_type, index)];
        }
    }
}
static void run_sum_squares(const node_t *n) {
    for (uint32_t j = 0; j < n->ctx->n_inputs; j++)
        for (int64_t i = 0; i < ir_type_elements(&n->ctx->in[j]); i++)
            n->out[0] += n->in[j][i] * n->in[j][i];
}

static void (*const others[IR_OP_END])(const node_t *n) = {
    [IR_OP_SELECT] = run_select,
    [IR_OP_CONSTANT] = run_constant,
    [IR_OP_IOTA] = run_iota,
    [IR_OP_RANDOM_UNIFORM] = run_random,
    [IR_OP_BROADCAST] = run_broadcast,
    [IR_OP_RESHAPE] = run_reshape,
    [IR_OP_TRANSPOSE] = run_transpose,
    [IR_OP_SLICE] = run_slice,
    [IR_OP_PAD] = run_pad,
    [IR_OP_CONCAT] = run_concat,
    [IR_OP_GATHER] = run_gather,
    [IR_OP_SCATTER_ADD] = run_scatter,
    [IR_OP_GATHER_ALONG] = run_gather,
    [IR_OP_SCATTER_ALONG_ADD] = run_scatter,
    [IR_OP_GATHER_ND] = run_gather,
    [IR_OP_SCATTER_ND_ADD] = run_scatter,
    [IR_OP_FLIP] = run_flip,
    [IR_OP_REDUCE_SUM] = run_reduce,
    [IR_OP_REDUCE_MEAN] = run_reduce,
    [IR_OP_REDUCE_MAX] = run_reduce,
    [IR_OP_REDUCE_MIN] = run_reduce,
    [IR_OP_REDUCE_PROD] = run_reduce,
    [IR_OP_ARGMAX] = run_argmax,
    [IR_OP_CUMSUM] = run_cumsum,
    [IR_OP_SUM_SQUARES] = run_sum_squares,
};

double *eval_op(const ir_op_ctx_t *ctx, const double *const *in) {
    ir_type_t type;
    void (*run)(const node_t *) = unary[ctx->op]    ? run_unary
                                  : binary[ctx->op] ? run_binary
                                                    : others[ctx->op];
    if (!run) return NULL;
    ir_ctx_outputs(ctx, &type);
    double *out = calloc((size_t)ir_type_elements(&type) + 1, sizeof *out);
    assert_non_null(out);
    run(&(node_t){ctx, in, &type, out});
    return out;
}

double **eval_graph(const ir_graph_t *graph, const double *const *feeds) {
    double **values = calloc(graph->values.n + 1, sizeof *values);
    assert_non_null(values);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *info = ir_node(graph, i);
        if (feeds[info->first_output]) {
            size_t n = (size_t)ir_type_elements(ir_value_type(graph, info->first_output));
            values[info->first_output] = calloc(n + 1, sizeof(double));
            memcpy(values[info->first_output], feeds[info->first_output], n * sizeof(double));
            continue;
        }
        ir_type_t in[IR_MAX_OPERANDS];
        const double *data[IR_MAX_OPERANDS];
        assert_true(info->n_inputs <= IR_MAX_OPERANDS);
        for (uint32_t j = 0; j < info->n_inputs; j++) {
            in[j] = *ir_value_type(graph, info->inputs[j]);
            data[j] = values[info->inputs[j]];
        }
        ir_op_ctx_t ctx = {info->op, info->n_inputs, info->n_outputs, in, info->attrs, info->name};
        values[info->first_output] = eval_op(&ctx, data);
        if (!values[info->first_output])
            fail_msg("no meaning given for %s", ir_node_label(graph, i));
    }
    return values;
}

void eval_graph_free(const ir_graph_t *graph, double **values) {
    for (size_t v = 0; v < graph->values.n; v++) free(values[v]);
    free(values);
}
