/* all_reduce_start: begins to sum each input over the ranks of the mesh axis `mesh`. The lowering
 * to ranks makes it; the outputs are in flight until all_reduce_wait has taken them. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA}, {0}};

const ir_op_def_t ir_op_all_reduce_start = {
    .op = IR_OP_ALL_REDUCE_START,
    .name = "all_reduce_start",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = ir_shape_numbers,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
