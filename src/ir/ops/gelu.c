/* gelu: x times the normal distribution function of x, exact (erf) or by the tanh approximation. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"tanh", IR_ATTR_BOOL, false, 0, NULL}, {0}};

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_node(&b, IR_OP_GELU_GRAD, 2, (ir_value_t[]){dout[0], info.inputs[0]}, 1,
                       (ir_arg_t[]){IR_ARG_BOOL("tanh", ir_attr_int(&info, "tanh"))});
    return b.status;
}

const ir_op_def_t ir_op_gelu = {
    .op = IR_OP_GELU,
    .name = "gelu",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .attrs = attrs,
    .shape = ir_shape_float_unary,
    .gradient = gradient,
    .strategies = ir_strategies_elementwise,
};
