/* Casts that only ask: of a float32 value to float32. They compute nothing, but tell mixed
 * precision (autodiff/precision.h) where a model's author wants float32, and stay until it has run.
 * Patterns are not spelled with them, so recognition looks at a graph without, and puts those back
 * that no composite took. */
#ifndef STATOR_FUSION_ASKING_H
#define STATOR_FUSION_ASKING_H

#include "ir/graph.h"

typedef struct asking {
    const ir_graph_t *graph; /* without such casts */
    ir_graph_t *owned;       /* it, where the graph given has some */
    uint64_t *operands;      /* [nodes of it]: operands, by bit, that were behind one; NULL: none */
    ir_value_t *made;        /* [values of it]: the cast that was put back; IR_NONE: none yet */
} asking_t;

bool asking_is_cast(const ir_graph_t *graph, const ir_node_info_t *node);
/* Zeroed is closed. Linear. */
st_status_t asking_open(const ir_graph_t *graph, asking_t *out) ST_WARN_UNUSED;
void asking_close(asking_t *asking);
/* ir_graph_clone_node of a node of asking->graph, behind the casts that its operands were behind; a
 * value that it reads both ways is behind one twice. */
st_status_t asking_clone(asking_t *asking, ir_graph_t *to, ir_node_t node,
                         ir_value_t *map) ST_WARN_UNUSED;

#endif
