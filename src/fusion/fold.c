/* Constant folding of one node. See fold.h for the contract. */
#include "fusion/fold.h"

#include <string.h>

#include "base/memory.h"

enum { MAX_OPERANDS = 64 }; /* nodes with more are left alone */

/* ---- what is exact ---- */

bool fuse_cast_is_exact(ir_dtype_t from, ir_dtype_t to) {
    static const struct {
        ir_dtype_t from;
        uint32_t to; /* set of dtypes */
    } rows[] = {
#define TO(dtype) (1u << (dtype))
        {IR_F32, TO(IR_F64)},
        {IR_F16, TO(IR_F32) | TO(IR_F64)},
        {IR_BF16, TO(IR_F32) | TO(IR_F64)},
        {IR_F8E4M3, TO(IR_F16) | TO(IR_BF16) | TO(IR_F32) | TO(IR_F64)},
        {IR_F8E5M2, TO(IR_F16) | TO(IR_BF16) | TO(IR_F32) | TO(IR_F64)},
        {IR_I8, TO(IR_I32) | TO(IR_I64) | TO(IR_F16) | TO(IR_BF16) | TO(IR_F32) | TO(IR_F64)},
        {IR_U8, TO(IR_I32) | TO(IR_I64) | TO(IR_F16) | TO(IR_BF16) | TO(IR_F32) | TO(IR_F64)},
        {IR_I32, TO(IR_I64) | TO(IR_F64)},
        {IR_BOOL, TO(IR_U8) | TO(IR_I8) | TO(IR_I32) | TO(IR_I64) | TO(IR_F8E4M3) | TO(IR_F8E5M2) |
                      TO(IR_F16) | TO(IR_BF16) | TO(IR_F32) | TO(IR_F64)},
#undef TO
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].from == from) return (rows[i].to >> to & 1) != 0;
    return false;
}

/* Ops that only choose, move or compare elements: no float type rounds in them. */
static const bool moves[IR_OP_END] = {
    [IR_OP_BROADCAST] = true,  [IR_OP_RESHAPE] = true,      [IR_OP_TRANSPOSE] = true,
    [IR_OP_SLICE] = true,      [IR_OP_PAD] = true,          [IR_OP_CONCAT] = true,
    [IR_OP_GATHER] = true,     [IR_OP_GATHER_ALONG] = true, [IR_OP_GATHER_ND] = true,
    [IR_OP_FLIP] = true,       [IR_OP_SELECT] = true,       [IR_OP_NEG] = true,
    [IR_OP_ABS] = true,        [IR_OP_RELU] = true,         [IR_OP_SIGN] = true,
    [IR_OP_MAXIMUM] = true,    [IR_OP_MINIMUM] = true,      [IR_OP_REDUCE_MAX] = true,
    [IR_OP_REDUCE_MIN] = true, [IR_OP_ARGMAX] = true,       [IR_OP_EQ] = true,
    [IR_OP_NE] = true,         [IR_OP_LT] = true,           [IR_OP_LE] = true,
    [IR_OP_GT] = true,         [IR_OP_GE] = true,
};

/* Whether the results are the same numbers whatever float type the graph is compiled in. */
static bool is_exact(const ir_op_ctx_t *ctx, const ir_type_t *out_types) {
    bool floats = false;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) floats |= ir_dtype_is_float(ctx->in[j].dtype);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) floats |= ir_dtype_is_float(out_types[k].dtype);
    if (!floats || moves[ctx->op]) return true;
    return ctx->op == IR_OP_CAST && (!ir_dtype_is_float(out_types[0].dtype) ||
                                     fuse_cast_is_exact(ctx->in[0].dtype, out_types[0].dtype));
}

/* ---- evaluation ---- */

static const ir_node_info_t *constant_of(const ir_graph_t *graph, ir_value_t value) {
    const ir_node_info_t *node = ir_value_producer(graph, value);
    return node->op == IR_OP_CONSTANT ? node : NULL;
}

const void *fuse_splat(const ir_graph_t *graph, ir_value_t value) {
    const ir_node_info_t *node = constant_of(graph, value);
    if (!node) return NULL;
    const ir_attr_t *data = ir_node_attr(node, "data");
    return data->data.bytes == ir_dtype_bytes(ir_value_type(graph, value)->dtype) ? data->data.p
                                                                                  : NULL;
}

size_t fuse_packed_bytes(const ir_type_t *type, const void *elements) {
    size_t each = ir_dtype_bytes(type->dtype), bytes = ir_type_bytes(type);
    /* every element equals its predecessor */
    bool equal = bytes > each && memcmp(elements, (const char *)elements + each, bytes - each) == 0;
    return equal ? each : bytes;
}

static bool is_iota(const ir_graph_t *graph, ir_value_t value) {
    return ir_value_producer(graph, value)->op == IR_OP_IOTA;
}

/* All elements of a constant or iota: its own data, or a buffer (*out_owned) that is filled. */
static st_status_t materialize(const ir_target_t *target, const ir_graph_t *graph, ir_value_t value,
                               const void **out_data, void **out_owned) {
    const ir_type_t *type = ir_value_type(graph, value);
    size_t bytes = ir_type_bytes(type), each = ir_dtype_bytes(type->dtype);
    if (is_iota(graph, value)) {
        const ir_node_info_t *node = ir_value_producer(graph, value);
        ir_op_ctx_t ctx = {node->op, 0, 1, NULL, node->attrs, node->name};
        *out_data = *out_owned = st_malloc(bytes ? bytes : 1);
        if (!*out_owned) return st_no_memory(bytes, "a constant");
        return target->evaluate(target->context, &ctx, type, NULL, out_owned);
    }
    const ir_attr_t *data = ir_node_attr(constant_of(graph, value), "data");
    *out_owned = NULL;
    *out_data = data->data.p;
    if (data->data.bytes == bytes) return ST_OK;
    char *filled = st_malloc(bytes);
    if (!filled) return st_no_memory(bytes, "a constant");
    for (size_t i = 0; i < bytes; i += each) memcpy(filled + i, data->data.p, each);
    *out_owned = filled;
    *out_data = filled;
    return ST_OK;
}

/* Evaluates into buffers of the out types; packs the results. */
static st_status_t evaluate(const ir_target_t *target, const ir_op_ctx_t *ctx,
                            const ir_type_t *out_types, const void *const *in, fuse_folded_t *out,
                            bool *out_done) {
    void *results[MAX_OPERANDS] = {0};
    st_status_t status = ST_OK;
    for (uint32_t k = 0; k < ctx->n_outputs; k++) {
        results[k] = st_calloc(1, ir_type_bytes(&out_types[k]));
        if (!results[k]) TRY_GOTO(st_no_memory(ir_type_bytes(&out_types[k]), "a constant"), fail);
    }
    TRY_GOTO(target->evaluate(target->context, ctx, out_types, in, results), fail);
    for (uint32_t k = 0; k < ctx->n_outputs; k++)
        out[k] = (fuse_folded_t){results[k], fuse_packed_bytes(&out_types[k], results[k])};
    *out_done = true;
    return ST_OK;
fail:
    for (uint32_t k = 0; k < ctx->n_outputs; k++) st_free(results[k]);
    if (status != ST_UNSUPPORTED) return status;
    st_clear_error(); /* no implementation is an answer, not a failure */
    return ST_OK;
}

/* An elementwise op over splats gives a splat: one scalar evaluation whatever the shape. */
static st_status_t fold_splats(const ir_target_t *target, const ir_graph_t *graph,
                               const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                               const ir_type_t *out_types, fuse_folded_t *out, bool *out_done) {
    ir_type_t in[MAX_OPERANDS], scalars[MAX_OPERANDS];
    const void *data[MAX_OPERANDS];
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        data[j] = fuse_splat(graph, inputs[j]);
        if (!data[j]) return ST_OK;
        in[j] = ir_type_scalar(ctx->in[j].dtype);
    }
    ir_op_ctx_t scalar = *ctx;
    scalar.in = in;
    if (ir_op_def(ctx->op)->shape(&scalar, scalars) != ST_OK) {
        st_clear_error(); /* the op does not take scalars: it is evaluated in full */
        return ST_OK;
    }
    for (uint32_t k = 0; k < ctx->n_outputs; k++)
        if (scalars[k].rank != 0 || scalars[k].dtype != out_types[k].dtype) return ST_OK;
    return evaluate(target, &scalar, scalars, data, out, out_done);
}

static st_status_t fold_full(const ir_target_t *target, const ir_graph_t *graph,
                             const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                             const ir_type_t *out_types, size_t limit, fuse_folded_t *out,
                             bool *out_done) {
    const void *data[MAX_OPERANDS];
    void *owned[MAX_OPERANDS] = {0};
    st_status_t status = ST_OK;
    for (uint32_t k = 0; k < ctx->n_outputs; k++)
        if (ir_type_bytes(&out_types[k]) > limit) return ST_OK;
    for (uint32_t j = 0; j < ctx->n_inputs; j++)
        if (ir_type_bytes(&ctx->in[j]) > limit) return ST_OK;
    for (uint32_t j = 0; j < ctx->n_inputs && status == ST_OK; j++)
        status = materialize(target, graph, inputs[j], &data[j], &owned[j]);
    if (status == ST_OK)
        status = evaluate(target, ctx, out_types, data, out, out_done);
    else if (status == ST_UNSUPPORTED)
        st_clear_error(), status = ST_OK; /* an iota that the target cannot count */
    for (uint32_t j = 0; j < ctx->n_inputs; j++) st_free(owned[j]);
    return status;
}

static bool is_fixed(const ir_op_def_t *def) {
    const uint32_t fixed = IR_RANDOM | IR_SIDE_EFFECT | IR_COLLECTIVE | IR_SOURCE | IR_STATE;
    return (def->flags & fixed) != 0;
}

st_status_t fuse_evaluate(const ir_target_t *target, const ir_graph_t *graph,
                          const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          const ir_type_t *out_types, fuse_folded_t *out, bool *out_done) {
    const ir_op_def_t *def = ir_op_def(ctx->op);
    *out_done = false;
    if (!target || !target->evaluate || ctx->n_inputs > MAX_OPERANDS || ctx->n_outputs == 0 ||
        ctx->n_outputs > MAX_OPERANDS || (is_fixed(def) && ctx->op != IR_OP_IOTA))
        return ST_OK;
    if (ctx->n_inputs && (def->flags & IR_ELEMENTWISE))
        TRY(fold_splats(target, graph, ctx, inputs, out_types, out, out_done));
    if (*out_done) return ST_OK;
    return fold_full(target, graph, ctx, inputs, out_types, FUSE_FOLD_MAX_BYTES, out, out_done);
}

st_status_t fuse_fold(const ir_target_t *target, const ir_graph_t *graph,
                      const ir_node_info_t *node, const ir_value_t *inputs,
                      const ir_type_t *out_types, fuse_folding_t folding, fuse_folded_t *out,
                      bool *out_done) {
    const ir_op_def_t *def = ir_op_def(node->op);
    ir_type_t in[MAX_OPERANDS];
    size_t limit = FUSE_FOLD_MAX_BYTES;
    *out_done = false;
    if (!target || !target->evaluate || is_fixed(def) || node->n_inputs == 0 ||
        node->n_inputs > MAX_OPERANDS || node->n_outputs == 0 || node->n_outputs > MAX_OPERANDS)
        return ST_OK;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        if (is_iota(graph, inputs[j]))
            limit = FUSE_FOLD_MAX_COUNTED_BYTES;
        else if (!constant_of(graph, inputs[j]))
            return ST_OK;
        in[j] = *ir_value_type(graph, inputs[j]);
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, in, node->attrs, node->name};
    if (folding == FUSE_FOLD_EXACT && !is_exact(&ctx, out_types)) return ST_OK;
    if (def->flags & IR_ELEMENTWISE)
        TRY(fold_splats(target, graph, &ctx, inputs, out_types, out, out_done));
    /* a broadcast only repeats what is there: cheaper done at run time than stored */
    if (*out_done || node->op == IR_OP_BROADCAST) return ST_OK;
    return fold_full(target, graph, &ctx, inputs, out_types, limit, out, out_done);
}
