/* Constant folding of one node. See fold.h for the contract. */
#include "fusion/fold.h"

#include <string.h>

#include "base/memory.h"

enum { MAX_OPERANDS = 64 }; /* nodes with more are left alone */

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

/* All elements of a constant: its own data, or a buffer (*out_owned) filled with the splat. */
static st_status_t materialize(const ir_graph_t *graph, ir_value_t value, const void **out_data,
                               void **out_owned) {
    const ir_type_t *type = ir_value_type(graph, value);
    const ir_attr_t *data = ir_node_attr(constant_of(graph, value), "data");
    size_t bytes = ir_type_bytes(type), each = ir_dtype_bytes(type->dtype);
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
                             const ir_type_t *out_types, fuse_folded_t *out, bool *out_done) {
    const void *data[MAX_OPERANDS];
    void *owned[MAX_OPERANDS] = {0};
    st_status_t status = ST_OK;
    for (uint32_t k = 0; k < ctx->n_outputs; k++)
        if (ir_type_bytes(&out_types[k]) > FUSE_FOLD_MAX_BYTES) return ST_OK;
    for (uint32_t j = 0; j < ctx->n_inputs; j++)
        if (ir_type_bytes(&ctx->in[j]) > FUSE_FOLD_MAX_BYTES) return ST_OK;
    for (uint32_t j = 0; j < ctx->n_inputs; j++)
        TRY_GOTO(materialize(graph, inputs[j], &data[j], &owned[j]), done);
    TRY_GOTO(evaluate(target, ctx, out_types, data, out, out_done), done);
done:
    for (uint32_t j = 0; j < ctx->n_inputs; j++) st_free(owned[j]);
    return status;
}

st_status_t fuse_fold(const ir_target_t *target, const ir_graph_t *graph,
                      const ir_node_info_t *node, const ir_value_t *inputs,
                      const ir_type_t *out_types, fuse_folded_t *out, bool *out_done) {
    const uint32_t fixed = IR_RANDOM | IR_SIDE_EFFECT | IR_COLLECTIVE | IR_SOURCE | IR_STATE;
    const ir_op_def_t *def = ir_op_def(node->op);
    ir_type_t in[MAX_OPERANDS];
    *out_done = false;
    if (!target || !target->evaluate || (def->flags & fixed) || node->n_inputs == 0 ||
        node->n_inputs > MAX_OPERANDS || node->n_outputs == 0 || node->n_outputs > MAX_OPERANDS)
        return ST_OK;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        if (!constant_of(graph, inputs[j])) return ST_OK;
        in[j] = *ir_value_type(graph, inputs[j]);
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, in, node->attrs, node->name};
    if (def->flags & IR_ELEMENTWISE)
        TRY(fold_splats(target, graph, &ctx, inputs, out_types, out, out_done));
    /* a broadcast only repeats what is there: cheaper done at run time than stored */
    if (*out_done || node->op == IR_OP_BROADCAST) return ST_OK;
    return fold_full(target, graph, &ctx, inputs, out_types, out, out_done);
}
