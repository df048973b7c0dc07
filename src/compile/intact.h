/* The values whose bytes are intact, for the proof of a plan: which of them overlap a place?
 *
 * All places are known before, so that the values stand sorted by region and offset, the leaves of
 * a binary tree. A node of the tree holds the highest end among its leaves that are intact, 0 for
 * none. Among the values that begin before the end of a place, those that end after its begin are
 * the ones that overlap it; the tree leads to one of them in O(log values). */
#ifndef STATOR_COMPILE_INTACT_H
#define STATOR_COMPILE_INTACT_H

#include "compile/plan.h"

typedef struct intact {
    const plan_place_t *places; /* [values] */
    uint32_t n;                 /* values */
    size_t n_leaves;            /* a power of two */
    ir_value_t *sorted;         /* [n] */
    uint32_t *leaf;             /* [n]: of a value, its place in `sorted` */
    uint64_t *end;              /* [2 · n_leaves]: children of i are 2 i and 2 i + 1 */
} intact_t;

/* None is intact. The places are borrowed; their ends do not overflow. */
st_status_t intact_open(intact_t *intact, size_t n_values,
                        const plan_place_t *places) ST_WARN_UNUSED;
void intact_close(intact_t *intact); /* zeroed is fine */
void intact_add(intact_t *intact, ir_value_t value);
/* An intact value that overlaps the place, IR_NONE: there is none. */
ir_value_t intact_find(const intact_t *intact, const plan_place_t *place);
/* The same, and it is intact no more. */
ir_value_t intact_take(intact_t *intact, const plan_place_t *place);

#endif
