/* ONNX ops that make values: constants, shapes, ranges; and dropout. */
#include <math.h>
#include <string.h>

#include "import/onnx_reader.h"
#include "ir/convert.h"

/* One attribute of several holds the value. */
void onnx_constant_node(onnx_t *o) {
    int64_t ints[ONNX_MAX_LIST];
    const Onnx__AttributeProto *value = onnx_attribute(o, "value");
    const Onnx__AttributeProto *floats = onnx_attribute(o, "value_floats");
    if (value && value->t) {
        onnx_return(o, onnx_constant(o, value->t, o->node->n_output ? o->node->output[0] : ""));
    } else if (onnx_has(o, "value_float")) {
        onnx_return(o, ir_b_scalar(&o->b, IR_F32, onnx_float(o, "value_float", 0)));
    } else if (onnx_has(o, "value_int")) {
        int64_t number = onnx_int(o, "value_int", 0);
        onnx_return(o, ir_b_constant(&o->b, ir_type_scalar(IR_I64), &number, sizeof number));
    } else if (floats) {
        int64_t n = (int64_t)floats->n_floats;
        onnx_return(
            o, ir_b_constant(&o->b, ir_type_make(IR_F32, 1, &n), n ? (void *)floats->floats : "",
                             floats->n_floats * sizeof(float)));
    } else if (onnx_has(o, "value_ints")) {
        int32_t n = onnx_ints(o, "value_ints", ints);
        if (onnx_ok(o)) onnx_return(o, onnx_constant_i64(o, 1, n, ints));
    } else {
        onnx_fail(o, ST_UNSUPPORTED,
                  "a constant without a tensor, number or list (strings and sparse "
                  "tensors are not supported)");
    }
}

/* Dims from input i; they must be ≥ 0. */
static ir_type_t known_shape(onnx_t *o, size_t i, ir_dtype_t dtype) {
    int64_t dims[ONNX_MAX_LIST];
    int32_t rank = onnx_known_ints(o, i, dims);
    if (onnx_ok(o) && rank > IR_MAX_RANK)
        onnx_fail(o, ST_UNSUPPORTED, "a shape of %d dims, the limit is %d", rank, IR_MAX_RANK);
    if (!onnx_ok(o)) return ir_type_scalar(dtype);
    ir_type_t type = ir_type_make(dtype, rank, dims);
    o->b.status = ir_type_check(&type);
    return type;
}

void onnx_constant_of_shape(onnx_t *o) {
    const Onnx__AttributeProto *value = onnx_attribute(o, "value");
    ir_type_t type = ir_type_scalar(IR_F32);
    const void *data = "\0\0\0\0";
    if (onnx_ok(o) && value && value->t)
        o->b.status = onnx_tensor_read(o, value->t, "value", &type, &data);
    if (onnx_ok(o) && ir_type_elements(&type) != 1)
        onnx_fail(o, ST_INVALID, "attribute 'value' needs one element");
    size_t width = ir_dtype_bytes(type.dtype);
    type = known_shape(o, 0, type.dtype);
    onnx_return(o, ir_b_constant(&o->b, type, data, width));
}

void onnx_range(onnx_t *o) {
    double start = onnx_known_number(o, 0), limit = onnx_known_number(o, 1),
           step = onnx_known_number(o, 2);
    ir_dtype_t dtype = onnx_type(o, onnx_in_setting(o, 0)).dtype;
    double count = step != 0 ? ceil((limit - start) / step) : NAN;
    if (onnx_ok(o) && !(count < 0x1p40))
        onnx_fail(o, ST_INVALID, "a range from %g to %g by %g", start, limit, step);
    if (!onnx_ok(o)) return;
    int64_t n = count > 0 ? (int64_t)count : 0;
    onnx_return(o, ir_b_iota(&o->b, ir_type_make(dtype, 1, &n), 0, start, step));
}

/* Dims [start, end) of the input's shape. */
void onnx_shape(onnx_t *o) {
    ir_type_t type = onnx_type(o, onnx_in(o, 0));
    int64_t bounds[2] = {onnx_int(o, "start", 0), onnx_int(o, "end", type.rank)};
    for (int i = 0; i < 2; i++) {
        if (bounds[i] < 0) bounds[i] += type.rank;
        if (bounds[i] < 0) bounds[i] = 0;
        if (bounds[i] > type.rank) bounds[i] = type.rank;
    }
    int64_t n = bounds[1] > bounds[0] ? bounds[1] - bounds[0] : 0;
    onnx_return(o, onnx_constant_i64(o, 1, n, type.dims + bounds[0]));
}

void onnx_size(onnx_t *o) {
    ir_type_t type = onnx_type(o, onnx_in(o, 0));
    int64_t n = ir_type_elements(&type);
    onnx_return(o, ir_b_constant(&o->b, ir_type_scalar(IR_I64), &n, sizeof n));
}

/* ---- dropout ---- */

/* x itself; the mask keeps all. Its type is bool from opset 10 on. */
void onnx_dropout_inference(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    onnx_float(o, "ratio", 0.5);
    onnx_return(o, x);
    if (o->opset >= 10) type.dtype = IR_BOOL;
    if (onnx_wants(o, 1)) onnx_return(o, ir_b_splat(&o->b, type, 1));
}

/* The state that random ops share: seed and step, as buffers. */
static void need_random_state(onnx_t *o) {
    const onnx_t *around = o;
    while (around->open) around = around->outer;
    if (around->outer)
        onnx_fail(o, ST_UNSUPPORTED,
                  "it draws random numbers in the graph of a node: move it out, or export for "
                  "evaluation");
    if (!onnx_ok(o)) return;
    if (o->all->random_seed != IR_NONE) return;
    o->all->random_seed = ir_b_buffer(&o->b, "random.seed", ir_type_scalar(IR_I64));
    o->all->random_step = ir_b_buffer(&o->b, "random.step", ir_type_scalar(IR_I64));
}

/* From opset 12 on: ratio and training_mode are inputs. Masks come from Stator's own generator, so
 * the node's seed has no meaning here. */
void onnx_dropout(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    double ratio = onnx_has_input(o, 1) ? onnx_known_number(o, 1) : 0.5;
    bool train = onnx_has_input(o, 2) && onnx_known_number(o, 2) != 0;
    onnx_int(o, "seed", 0);
    if (!train || ratio == 0) {
        onnx_dropout_inference(o);
        return;
    }
    need_random_state(o);
    if (!onnx_ok(o)) return;
    ir_value_t inputs[] = {x, o->all->random_seed, o->all->random_step};
    ir_arg_t args[] = {IR_ARG_FLOAT("p", ratio), IR_ARG_INT("id", o->all->n_random++)};
    onnx_return(o, ir_b_node(&o->b, IR_OP_DROPOUT, 3, inputs, 2, args));
}
