/* softmax: exp(x - max) over their sum along one axis. */
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_softmax(graph, node, dout, want, din, IR_OP_SOFTMAX_GRAD);
}

const ir_op_def_t ir_op_softmax = {
    .op = IR_OP_SOFTMAX,
    .name = "softmax",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .attrs = attrs,
    .shape = ir_shape_softmax,
    .gradient = gradient,
    .strategies = ir_strategies_softmax,
    .define = ir_define_softmax,
};
