/* List scheduling: of the nodes that everything before them lets run, the best one next. */
#ifndef STATOR_SCHEDULE_LIST_H
#define STATOR_SCHEDULE_LIST_H

#include "schedule/live.h"

/* What makes a node the best: its slot (ir/graph.h), then its class, then its rank, or without
 * ranks the memory. */
typedef struct sched_rule {
    const uint8_t *class; /* [nodes]: higher goes first; NULL: all alike */
    const uint32_t *rank; /* [nodes]: lower goes first; NULL: by memory */
    bool frees;           /* by memory: bytes freed less bytes made, not only bytes made */
} sched_rule_t;

/* out_order[position] = node. O((nodes + edges) · log nodes). Ties go by the node's number. */
st_status_t sched_list(const sched_dag_t *dag, sched_live_t *live, const sched_rule_t *rule,
                       ir_node_t *out_order) ST_WARN_UNUSED;

#endif
