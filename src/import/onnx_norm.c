/* ONNX's normalizations. */
#include <string.h>

#include "import/onnx_reader.h"
#include "ir/op.h"

/* The new statistics of a training node become the buffers' update, where they come from buffers.
 */
static void update_statistics(onnx_t *o, const ir_value_t *inputs, ir_value_t y) {
    for (uint32_t j = 3; j <= 4 && onnx_ok(o); j++) {
        const ir_node_info_t *source = ir_value_producer(o->b.graph, inputs[j]);
        if (source->op != IR_OP_BUFFER) continue;
        onnx_value_t *buffer = onnx_lookup(o, source->name);
        if (buffer && buffer->updated)
            onnx_fail(o, ST_UNSUPPORTED,
                      "two training nodes change the running statistics '%.128s'", buffer->name);
        if (!buffer || !onnx_ok(o)) continue;
        buffer->updated = true;
        ir_b_update(&o->b, inputs[j], y + j);
    }
}

/* Training is an attribute from opset 14 on, before it follows from further outputs. ONNX's
 * momentum is the weight of the old value. The running variance is the population's, PyTorch's (by
 * the producer) the sample's.
 */
void onnx_batch_normalization(onnx_t *o) {
    ir_value_t inputs[5];
    for (size_t i = 0; i < 5; i++) inputs[i] = onnx_in(o, i);
    double eps = onnx_float(o, "epsilon", 1e-5), momentum = onnx_float(o, "momentum", 0.9);
    bool train = o->opset >= 14 && onnx_flag(o, "training_mode", false);
    for (size_t k = 1; k < o->node->n_output && o->opset < 14; k++) train |= onnx_wants(o, k);
    const char *producer = o->model->producer_name;
    ir_arg_t args[] = {IR_ARG_FLOAT("eps", eps), IR_ARG_FLOAT("momentum", 1 - momentum),
                       IR_ARG_BOOL("unbiased", producer && strcmp(producer, "pytorch") == 0),
                       IR_ARG_BOOL("train", train)};
    ir_value_t y = ir_b_node(&o->b, IR_OP_BATCH_NORM, 5, inputs, 4, args);
    if (!onnx_ok(o)) return;
    if (train) update_statistics(o, inputs, y);
    onnx_return(o, y);
    onnx_return(o, y + 3);
    onnx_return(o, y + 4);
    onnx_return(o, y + 1);   /* opsets to 13: the batch's mean … */
    onnx_return(o, IR_NONE); /* … and variance, which no node here has */
}

/* Scale or bias in the shape of the normalized dims. */
static ir_value_t affine(onnx_t *o, ir_value_t value, const ir_type_t *type, double fill) {
    return value == IR_NONE ? ir_b_splat(&o->b, *type, fill)
                            : ir_b_broadcast(&o->b, value, type->rank, type->dims);
}

/* Mean and 1/deviation keep the normalized dims as 1. */
void onnx_layer_normalization(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), scale = onnx_in(o, 1), bias = onnx_in_or_none(o, 2);
    ir_type_t type = onnx_type(o, x);
    int32_t axis = onnx_axis(o, "axis", type.rank, -1);
    double eps = onnx_float(o, "epsilon", 1e-5);
    int64_t stash = onnx_int(o, "stash_type", 1);
    if (onnx_ok(o) && !ir_dtype_is_float(onnx_dtype(stash)))
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'stash_type' is %lld", (long long)stash);
    if (!onnx_ok(o)) return;
    ir_type_t inner = ir_type_make(type.dtype, type.rank - axis, type.dims + axis);
    ir_value_t inputs[] = {x, affine(o, scale, &inner, 1), affine(o, bias, &inner, 0)};
    ir_value_t y =
        ir_b_node(&o->b, IR_OP_LAYER_NORM, 3, inputs, 1, (ir_arg_t[]){IR_ARG_FLOAT("eps", eps)});
    onnx_return(o, y);
    for (int32_t i = axis; i < type.rank; i++) type.dims[i] = 1;
    for (uint32_t k = 1; k <= 2 && onnx_ok(o); k++)
        onnx_return(o,
                    onnx_wants(o, k) ? ir_b_reshape(&o->b, y + k, type.rank, type.dims) : IR_NONE);
}

/* A layer norm over each plane, then the channels' own scale and shift. */
void onnx_instance_normalization(onnx_t *o) {
    ir_build_t *b = &o->b;
    ir_value_t x = onnx_in(o, 0), scale = onnx_in(o, 1), bias = onnx_in(o, 2);
    ir_type_t type = onnx_type(o, x);
    double eps = onnx_float(o, "epsilon", 1e-5);
    if (onnx_ok(o) && type.rank < 3) onnx_fail(o, ST_INVALID, "an input of %d dims", type.rank);
    if (!onnx_ok(o)) return;
    int64_t rows[2] = {onnx_product(&type, 0, 2), onnx_product(&type, 2, type.rank)};
    int64_t channel[IR_MAX_RANK];
    for (int32_t i = 0; i < type.rank; i++) channel[i] = i == 1 ? type.dims[1] : 1;
    ir_type_t plane = ir_type_make(type.dtype, 1, &rows[1]);
    ir_value_t inputs[] = {ir_b_reshape(b, x, 2, rows), ir_b_splat(b, plane, 1),
                           ir_b_splat(b, plane, 0)};
    ir_value_t y =
        ir_b_node(b, IR_OP_LAYER_NORM, 3, inputs, 1, (ir_arg_t[]){IR_ARG_FLOAT("eps", eps)});
    y = ir_b_reshape(b, y, type.rank, type.dims);
    y = ir_b_binary(b, IR_OP_MUL, y, ir_b_reshape(b, scale, type.rank, channel));
    onnx_return(o, ir_b_binary(b, IR_OP_ADD, y, ir_b_reshape(b, bias, type.rank, channel)));
}
