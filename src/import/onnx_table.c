/* The table of ONNX ops. Rows of one op stand together, from the newest opset to the oldest. */
#include <stdio.h>
#include <string.h>

#include "import/onnx_reader.h"

#define UNARY(name, op) \
    { name, 1, onnx_unary, IR_OP_##op }
#define BINARY(name, op) \
    { name, 1, onnx_binary, IR_OP_##op }

static const onnx_op_t rows[] = {
    /* elementwise */
    UNARY("Abs", ABS),
    UNARY("Ceil", CEIL),
    UNARY("Cos", COS),
    UNARY("Erf", ERF),
    UNARY("Exp", EXP),
    UNARY("Floor", FLOOR),
    UNARY("Log", LOG),
    UNARY("Neg", NEG),
    UNARY("Not", LOGICAL_NOT),
    UNARY("Reciprocal", RECIPROCAL),
    UNARY("Relu", RELU),
    UNARY("Round", ROUND),
    UNARY("Sigmoid", SIGMOID),
    UNARY("Sign", SIGN),
    UNARY("Sin", SIN),
    UNARY("Sqrt", SQRT),
    UNARY("Tanh", TANH),
    {"Identity", 1, onnx_identity, 0},
    {"Gelu", 20, onnx_gelu, 0},
    {"LeakyRelu", 1, onnx_leaky, 0},
    {"ThresholdedRelu", 1, onnx_leaky, 1},
    {"PRelu", 9, onnx_prelu, 0},
    {"Softplus", 1, onnx_composed, ONNX_SOFTPLUS},
    {"Softsign", 1, onnx_composed, ONNX_SOFTSIGN},
    {"HardSigmoid", 1, onnx_composed, ONNX_HARD_SIGMOID},
    {"HardSwish", 14, onnx_composed, ONNX_HARD_SWISH},
    {"Elu", 1, onnx_composed, ONNX_ELU},
    {"Selu", 1, onnx_composed, ONNX_SELU},
    {"Celu", 12, onnx_composed, ONNX_CELU},
    {"Mish", 18, onnx_composed, ONNX_MISH},
    BINARY("Add", ADD),
    BINARY("Sub", SUB),
    BINARY("Mul", MUL),
    BINARY("Div", DIV),
    BINARY("And", LOGICAL_AND),
    BINARY("Or", LOGICAL_OR),
    BINARY("Equal", EQ),
    BINARY("Less", LT),
    BINARY("LessOrEqual", LE),
    BINARY("Greater", GT),
    BINARY("GreaterOrEqual", GE),
    {"Xor", 1, onnx_xor, 0},
    {"Pow", 1, onnx_pow, 0},
    {"Mod", 10, onnx_mod, 0},
    {"IsNaN", 9, onnx_isnan, 0},
    {"IsInf", 10, onnx_isinf, 0},
    {"Where", 9, onnx_where, 0},
    {"Cast", 1, onnx_cast, 0},
    {"CastLike", 15, onnx_cast_like, 0},
    {"Max", 1, onnx_variadic, IR_OP_MAXIMUM},
    {"Min", 1, onnx_variadic, IR_OP_MINIMUM},
    {"Sum", 1, onnx_variadic, IR_OP_ADD},
    {"Mean", 1, onnx_variadic, 0},
    {"Clip", 11, onnx_clip, 0},
    {"Clip", 1, onnx_clip_attributes, 0},
    /* values */
    {"Constant", 1, onnx_constant_node, 0},
    {"ConstantOfShape", 9, onnx_constant_of_shape, 0},
    {"Range", 11, onnx_range, 0},
    {"Shape", 1, onnx_shape, 0},
    {"Size", 1, onnx_size, 0},
    {"Dropout", 12, onnx_dropout, 0},
    {"Dropout", 1, onnx_dropout_inference, 0},
    /* shape */
    {"Reshape", 5, onnx_reshape, 0},
    {"Flatten", 1, onnx_flatten, 0},
    {"Squeeze", 1, onnx_squeeze, 0},
    {"Unsqueeze", 1, onnx_unsqueeze, 0},
    {"Transpose", 1, onnx_transpose, 0},
    {"Expand", 8, onnx_expand, 0},
    {"Tile", 6, onnx_tile, 0},
    {"Concat", 4, onnx_concat, 0},
    {"Split", 2, onnx_split, 0},
    {"Slice", 10, onnx_slice, 0},
    {"Slice", 1, onnx_slice_attributes, 0},
    {"Pad", 11, onnx_pad, 0},
    {"Pad", 2, onnx_pad_attributes, 0},
    {"Trilu", 14, onnx_trilu, 0},
    {"DepthToSpace", 1, onnx_depth_to_space, 0},
    {"SpaceToDepth", 1, onnx_space_to_depth, 0},
    /* indices */
    {"Gather", 1, onnx_gather, 0},
    {"GatherElements", 11, onnx_gather_elements, 0},
    {"GatherND", 11, onnx_gather_nd, 0},
    {"Scatter", 9, onnx_scatter_elements, 0},
    {"ScatterElements", 11, onnx_scatter_elements, 0},
    {"ScatterND", 11, onnx_scatter_nd, 0},
    /* reductions */
    {"ReduceSum", 1, onnx_reduce, IR_OP_REDUCE_SUM},
    {"ReduceMean", 1, onnx_reduce, IR_OP_REDUCE_MEAN},
    {"ReduceMax", 1, onnx_reduce, IR_OP_REDUCE_MAX},
    {"ReduceMin", 1, onnx_reduce, IR_OP_REDUCE_MIN},
    {"ReduceProd", 1, onnx_reduce, IR_OP_REDUCE_PROD},
    {"ReduceL1", 1, onnx_reduce, ONNX_L1},
    {"ReduceL2", 1, onnx_reduce, ONNX_L2},
    {"ReduceSumSquare", 1, onnx_reduce, ONNX_SUM_SQUARE},
    {"ReduceLogSum", 1, onnx_reduce, ONNX_LOG_SUM},
    {"ReduceLogSumExp", 1, onnx_reduce, ONNX_LOG_SUM_EXP},
    {"ArgMax", 1, onnx_argmax, 0},
    {"ArgMin", 1, onnx_argmax, 1},
    {"CumSum", 11, onnx_cumsum, 0},
    {"Softmax", 13, onnx_softmax, IR_OP_SOFTMAX},
    {"Softmax", 1, onnx_softmax_flat, IR_OP_SOFTMAX},
    {"LogSoftmax", 13, onnx_softmax, IR_OP_LOG_SOFTMAX},
    {"LogSoftmax", 1, onnx_softmax_flat, IR_OP_LOG_SOFTMAX},
    {"GlobalAveragePool", 1, onnx_global_pool, IR_OP_REDUCE_MEAN},
    {"GlobalMaxPool", 1, onnx_global_pool, IR_OP_REDUCE_MAX},
    /* products, windows, norms, losses */
    {"MatMul", 1, onnx_matmul, 0},
    {"Gemm", 7, onnx_gemm, 0},
    {"LSTM", 7, onnx_lstm, 0},
    /* control flow */
    {"If", 1, onnx_if, 0},
    {"Loop", 1, onnx_loop, 0},
    {"Scan", 9, onnx_scan, 0},
    {"Einsum", 12, onnx_einsum, 0},
    {"Conv", 1, onnx_conv, 0},
    {"ConvTranspose", 1, onnx_conv_transpose, 0},
    {"MaxPool", 1, onnx_max_pool, 0},
    {"AveragePool", 7, onnx_average_pool, 0},
    {"BatchNormalization", 9, onnx_batch_normalization, 0},
    {"LayerNormalization", 17, onnx_layer_normalization, 0},
    {"InstanceNormalization", 6, onnx_instance_normalization, 0},
    {"SoftmaxCrossEntropyLoss", 12, onnx_cross_entropy, 0},
    {"NegativeLogLikelihoodLoss", 12, onnx_nll, 0},
};

const onnx_op_t *onnx_find_op(const char *name, int64_t opset, bool *out_known) {
    *out_known = false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out_known = true;
        if (rows[i].since <= opset) return &rows[i];
    }
    return NULL;
}

/* "Foo 'name'", with the domain if it is not ONNX's own, and the reason where the op is known. */
static void describe(const Onnx__NodeProto *node, bool known, char *out, size_t capacity) {
    const char *domain = node->domain ? node->domain : "";
    const char *op = node->op_type ? node->op_type : "?";
    snprintf(out, capacity, "%.64s%s%.64s '%.128s'%s", domain, domain[0] ? "." : "", op,
             node->name ? node->name : "", known ? " (not in this opset)" : "");
}

enum { LISTED = 20 };
typedef struct unsupported {
    size_t n, used;
    char list[2048];
} unsupported_t;

/* Graphs that nodes own included; the guard has bounded how deep they are. */
static void find_unsupported(const onnx_t *o, const Onnx__GraphProto *graph, unsupported_t *u) {
    char item[384];
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        bool known = false,
             own = !node->domain || !node->domain[0] || strcmp(node->domain, "ai.onnx") == 0;
        for (size_t a = 0; a < node->n_attribute; a++)
            if (node->attribute[a]->g) find_unsupported(o, node->attribute[a]->g, u);
        if (own && node->op_type && onnx_find_op(node->op_type, o->opset, &known)) continue;
        if (++u->n > LISTED) continue;
        describe(node, known, item, sizeof item);
        int wrote = snprintf(u->list + u->used, sizeof u->list - u->used, "%s%s",
                             u->n > 1 ? ", " : "", item);
        u->used = wrote < 0 || u->used + (size_t)wrote >= sizeof u->list ? sizeof u->list - 1
                                                                         : u->used + (size_t)wrote;
    }
}

st_status_t onnx_check_supported(const onnx_t *o) {
    unsupported_t u = {0};
    find_unsupported(o, o->graph, &u);
    if (u.n == 0) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "%zu node%s not supported at opset %lld: %s%s", u.n,
                u.n == 1 ? " has an op that is" : "s have ops that are", (long long)o->opset,
                u.list, u.n > LISTED ? ", …" : "");
}
