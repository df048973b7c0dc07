/* Gradients of the ops that own bodies. They take the reverse sweep into the bodies, so they stand
 * here and not in the op table. */
#ifndef STATOR_AUTODIFF_REGION_H
#define STATOR_AUTODIFF_REGION_H

#include "ir/op.h"

/* As ir_op_def_t.gradient. */
typedef st_status_t (*ad_rule_t)(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                                 const bool *want, ir_value_t *din);
/* NULL for an op that has none here. */
ad_rule_t ad_region_rule(ir_op_t op);

#endif
