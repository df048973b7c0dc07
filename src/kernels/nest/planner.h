/* What the two steps of planning share: phases.c cuts a nest into phases, passes and stages,
 * program.c writes the instructions of a pass. */
#ifndef STATOR_KERNELS_NEST_PLANNER_H
#define STATOR_KERNELS_NEST_PLANNER_H

#include "base/vec.h"
#include "kernels/nest/plan.h"

/* What must be computed: a reduction or a store. */
typedef struct nx_root {
    bool store;
    uint32_t index; /* statement or store */
    uint32_t pass;  /* NEST_NONE: not planned yet */
    uint32_t stage;
} nx_root_t;

typedef struct nx_planner {
    nx_plan_t *plan;
    const nest_t *nest;
    uint32_t phase;
    uint32_t *done;        /* [stmts] a reduction: first phase that has it in its slot */
    uint32_t *local_pass;  /* [stmts] a reduction: the pass that it is local to, or NEST_NONE */
    uint32_t *local_stage; /* [stmts] stage that accumulates it */
    uint32_t *stage;       /* [stmts] for the pass at hand: stage that can compute it */
    bool *blocked;         /* [stmts] needs a reduction that is not there yet */
    uint32_t *uses;        /* [stmts] by statements and stores */
    uint32_t *view;        /* [stmts] for the stage at hand: view + 1 */
    uint32_t *mark, stamp; /* [stmts] */
    ST_VEC(nx_root_t) roots;
    ST_VEC(nx_pass_t) passes;
    ST_VEC(nx_phase_t) phases;
    ST_VEC(nx_slot_t) slots;
    ST_VEC(nx_partial_t) partials;
    ST_VEC(uint32_t) uniforms; /* of the phase at hand */
    st_status_t status;
} nx_planner_t;

static inline const nest_stmt_t *nx_stmt(const nx_planner_t *p, uint32_t index) {
    return &p->nest->stmts[index];
}
static inline const nest_domain_t *nx_domain(const nx_planner_t *p, const nx_pass_t *pass) {
    return &p->nest->domains[pass->domain];
}
/* All that a statement reads: arguments and index. */
static inline uint32_t nx_n_reads(const nest_stmt_t *s) {
    return s->n_args + (s->access.index != NEST_NONE);
}
static inline uint32_t nx_read(const nest_stmt_t *s, uint32_t i) {
    return i < s->n_args ? s->args[i] : s->access.index;
}
/* Is the value known before the phase at hand, one for all? */
static inline bool nx_uniform(const nx_planner_t *p, uint32_t stmt) {
    return p->plan->uniform_at[stmt] <= p->phase;
}
/* Code of a reduction. */
uint16_t nx_reduction(ir_op_t op);
/* Points of a root: what its loops run over. */
uint32_t nx_root_mask(const nx_planner_t *p, const nx_root_t *root);

/* Writes the instructions of pass `number`, whose roots are planned and whose loops are set. */
void nx_program(nx_planner_t *p, uint32_t number);

#endif
