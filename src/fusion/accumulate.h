/* Sums of a product and something else become products that begin with it. */
#ifndef STATOR_FUSION_ACCUMULATE_H
#define STATOR_FUSION_ACCUMULATE_H

#include "ir/target.h"

/* `model`: the program whose costs decide; of the same nodes as `graph`, or `graph` itself. */
st_status_t fuse_accumulate(const ir_graph_t *graph, const ir_graph_t *model,
                            const ir_target_t *target, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
