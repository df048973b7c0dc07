/* What of a nest must be complete before what: the one account of it, from which nest_may_reuse
 * answers, and which every schedule keeps by its own means.
 *
 * Schedules differ: the processor's has phases, passes and stages, a GPU's has levels. All hold to
 *   - a reduction is complete before a value that needs it is computed;
 *   - operations without axes are computed once, as soon as what they need is complete, those that
 *     can be at the same time in the order of their statements;
 *   - every other value may be computed again from its operands wherever it is needed;
 *   - stores of one domain with the same axes that need the same reductions are made together,
 *     point by point, if the domain has at most NEST_TOGETHER stores; a value and the loads that it
 *     is computed from in the order of their statements, but for `taken_at`.
 * Nothing else is said about order: two stores that need different reductions may come either
 * way. */
#ifndef STATOR_IR_NEST_ORDER_H
#define STATOR_IR_NEST_ORDER_H

#include "ir/nest.h"

typedef struct nest_order {
    uint32_t need_words, source_words;
    uint64_t *needs;    /* [stmts][need_words] reductions, by their number: all that must be
                           complete, also through others, before the value can be computed */
    uint32_t *number;   /* [stmts] of a reduction */
    uint64_t *sources;  /* [stmts][source_words] operands that computing the value again reads; of
                           what is computed once, none */
    uint32_t *taken_at; /* [stmts] the last statement that a value may be computed with: its own, or
                           the one that alone reads it */
    uint32_t *read_at;  /* [stmts] the last statement with which one that reads it is taken */
    uint32_t *load;     /* [operands] the load; NEST_NONE: none; NEST_SEVERAL: of several places */
    uint32_t *stores;   /* [domains] how many */
    uint32_t *points;   /* [domains] axes of any store */
    bool *reduces;      /* [domains] there are reductions */
} nest_order_t;

#define NEST_SEVERAL (UINT32_MAX - 1)

/* The order of a nest, in its arena. Time and memory: statements times operands and reductions /
 * 64. */
st_status_t nest_order_build(nest_t *nest) ST_WARN_UNUSED;

#endif
