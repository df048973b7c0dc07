/* Nests of single ops: a node that is no `fused` one, as the body that holds just it. */
#ifndef STATOR_KERNELS_EMIT_SINGLE_H
#define STATOR_KERNELS_EMIT_SINGLE_H

#include "kernels/emit/schedule.h"
#include "kernels/kernel.h"

/* The nest of a problem with its schedule: a `fused` node's body, or the op alone. */
typedef struct emit_problem {
    ir_graph_t *body; /* of a single op; NULL: the node's own */
    nest_t *nest;
    emit_schedule_t *schedule;
} emit_problem_t;

/* ST_OK with out->schedule NULL: no nest, *out_reason (until the thread's next call) says why. */
st_status_t emit_problem_create(const kern_problem_t *problem, emit_problem_t *out,
                                const char **out_reason) ST_WARN_UNUSED;
void emit_problem_clear(emit_problem_t *problem);

#endif
