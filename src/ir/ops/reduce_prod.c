/* reduce_prod: product over axes; 1 over no elements. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axes", IR_ATTR_INTS, true, 0, NULL},
    {"keep", IR_ATTR_BOOL, false, 0, NULL},
    {0},
};

/* The gradient of an element is the product of the others. Dividing the whole by the element fails
 * where there are zeros: with one zero only that element has a gradient (the product of the rest),
 * with more none has. */
static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_attr_t *axes = ir_node_attr(&info, "axes");
    int32_t n_axes = (int32_t)axes->ints.n;
    ir_value_t x = info.inputs[0];
    ir_dtype_t dtype = ir_value_type(graph, x)->dtype;
    if (!ir_dtype_is_float(dtype)) return ST_OK;
    if (n_axes == 0) { /* a scalar */
        din[0] = dout[0];
        return ST_OK;
    }
    ir_value_t zero = ir_b_scalar(&b, dtype, 0), one = ir_b_scalar(&b, dtype, 1);
    ir_value_t is_zero = ir_b_binary(&b, IR_OP_EQ, x, zero);
    ir_value_t others = ir_b_select(&b, is_zero, one, x);
    ir_value_t product = ir_b_reduce(&b, IR_OP_REDUCE_PROD, others, n_axes, axes->ints.v, true);
    ir_value_t n_zeros = ir_b_reduce(&b, IR_OP_REDUCE_SUM, ir_b_cast(&b, is_zero, IR_I64), n_axes,
                                     axes->ints.v, true);
    ir_value_t none = ir_b_binary(&b, IR_OP_EQ, n_zeros, ir_b_scalar(&b, IR_I64, 0));
    ir_value_t single = ir_b_binary(&b, IR_OP_EQ, n_zeros, ir_b_scalar(&b, IR_I64, 1));
    ir_value_t at_zero = ir_b_select(&b, single, product, zero);
    ir_value_t elsewhere = ir_b_select(&b, none, ir_b_binary(&b, IR_OP_DIV, product, others), zero);
    ir_value_t slope = ir_b_select(&b, is_zero, at_zero, elsewhere);
    din[0] = ir_b_binary(&b, IR_OP_MUL, ir_b_reduced_keep(&b, &info, dout[0]), slope);
    return b.status;
}

const ir_op_def_t ir_op_reduce_prod = {
    .op = IR_OP_REDUCE_PROD,
    .name = "reduce_prod",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_REDUCTION,
    .attrs = attrs,
    .shape = ir_shape_reduce,
    .gradient = gradient,
    .strategies = ir_strategies_reduce,
};
