/* Tables and logits that live split along the vocabulary (forms.h, tensor parallel).
 *
 * A look-up in a part of a table, and a loss over a part of the classes, are other computations
 * than those in the whole: an index must be made one of the part, and what others have must count
 * for nothing here. So these nodes are replaced, before the rest is decided, by what a rank does
 * with its part, out of nodes whose placements are all settled:
 *
 *   gather        rel = idx - begin;  mine = 0 ≤ rel < extent;  Σ over ranks of (mine ? part[rel] :
 *                 0)
 *   scatter_add   of (mine ? updates : 0) at rel, into the part
 *   cross_entropy_rows   logits x[R, part]: lse of the parts' lse, gathered as [R, ranks];
 *                        loss = lse - Σ over ranks of (mine ? x[rel] : 0)
 *   cross_entropy_grad   (exp(x - lse) - [c = rel]) · dloss
 *
 * An index that no part has stays an error: the first rank takes what is below, the last what is
 * above, and look it up. */
#ifndef STATOR_SHARD_VOCABULARY_H
#define STATOR_SHARD_VOCABULARY_H

#include "ir/build.h"
#include "shard/settle.h"

typedef struct shard_parts {
    ir_build_t b;
    const char *axis;
    uint32_t n_ranks;
    ir_value_t index; /* the coordinate; IR_NONE until it is needed */
    void *context;
    /* Says how the node that was added last runs; `out` of output 0. */
    st_status_t (*settle)(void *context, const ir_placement_t *in, ir_placement_t out);
} shard_parts_t;

/* Whether the node, whose operand 0 (of cross_entropy_grad: 1) or result is split along the
 * vocabulary, can be replaced. */
bool shard_has_parts(const ir_graph_t *graph, ir_node_t node, uint32_t n_ranks);
/* Appends what stands for `node` over `inputs`; out[k] for its outputs. */
st_status_t shard_add_parts(shard_parts_t *parts, const ir_graph_t *from, ir_node_t node,
                            const ir_value_t *inputs, ir_value_t *out) ST_WARN_UNUSED;

#endif
