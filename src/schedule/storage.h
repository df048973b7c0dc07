/* Storages: which values of an ordered graph share memory on purpose, and how long each piece
 * lives.
 *
 * One storage holds
 *   - a value and its views (reshape);
 *   - an output written over an input of the same element count and width that dies at the node,
 * where the op allows it (elementwise ops, ir_op_def_t.reuse, nest_may_reuse of a fused node);
 *   - what an all-reduce sums in place: the value, its in-flight form and the result, if the value
 * dies at the start;
 *   - a state and the new value that an update gives it, if no one reads the old content at or
 * after the node that makes the new one (that node itself may, element by element). The update then
 * does nothing; else it copies.
 *
 *   node          0   1   2   3   4   5
 *   storage A     [===x===relu(x)]              x dies where relu is made: one storage
 *   storage B             [===y=======]         y is read at 3 and 4
 *
 * A storage lives from its first node to its last reader, both included. Inputs live from the start
 * (they are fed before the step), graph outputs to the end, constants and state always. What an
 * all-gather reads lives until its wait. All values of a storage have the same size. */
#ifndef STATOR_SCHEDULE_STORAGE_H
#define STATOR_SCHEDULE_STORAGE_H

#include "ir/op.h"

typedef enum sched_kind { SCHED_WORK = 0, SCHED_COMM, SCHED_STATE } sched_kind_t;

typedef struct sched_storage {
    sched_kind_t kind;
    int64_t begin,
        end; /* node positions, inclusive; end = number of nodes: to the end of the step */
    uint64_t bytes;
    ir_value_t first; /* the value it was made for */
} sched_storage_t;

typedef struct sched_memory {
    uint32_t n_storages;
    sched_storage_t *storages;
    uint32_t *storage_of;  /* [values] */
    bool *update_in_place; /* [nodes]: true for updates that have nothing to do */
} sched_memory_t;

st_status_t sched_storages(const ir_graph_t *graph, sched_memory_t *out_memory) ST_WARN_UNUSED;
void sched_memory_free(sched_memory_t *memory);

#endif
