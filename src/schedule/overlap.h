/* An order in which communication goes on beside computation.
 *
 * Problem: given an order that needs little memory, and groups of collectives (transfer.h), when
 * each group starts and is waited for, and what is computed meanwhile. In: a legal order of a dag.
 * Out: another, the starts of a group next to each other, and so its waits; and what it takes in a
 * simple model: one compute stream, one link, transfers in the order of their starts.
 *
 *   compute  a  b  c  ..w1 d  e  f  w2     a start is free and comes as soon as its operands are
 *   link        ╞═ 1 ═╡ ╞═══ 2 ═══╡        there; a wait where nothing else may run before its
 *               reader
 *
 * Algorithm: list scheduling along the model's clock. Of the nodes that are ready the first of the
 * given order runs, but for those behind a transfer that is still on its way: up to `window` places
 * of the order past such a reader may be computed before the clock is set to the transfer's end.
 * Gathers of states start in the order of their readers, as far as `ahead_bytes` of them are on
 * their way; so the memory of gathering ahead is bounded. Scattered sums, and gathers that only
 * update a state, are waited for as soon as the clock says that they are there, for until then
 * memory is kept. Between the stages of a pipeline the clock does not know when the other rank is
 * there; what it sends and receives keeps its order, and nothing is computed past a reader of it:
 * the turns stay those of the pipeline, and only collectives within a stage move to other turns. A
 * machine is not as exact as the clock: what is not waited for by force is so only after a share of
 * its transfer more.
 *
 * O(nodes · (log nodes + groups under way)).
 *
 * Sources: list scheduling with latencies as in XLA's latency-hiding scheduler, bounded gathering
 * ahead as in Inductor's overlap scheduling. */
#ifndef STATOR_SCHEDULE_OVERLAP_H
#define STATOR_SCHEDULE_OVERLAP_H

#include "schedule/transfer.h"

typedef struct sched_overlap_rule {
    uint32_t window;    /* places */
    double ahead_bytes; /* 0: each gather right before its reader */
    double kept_bytes;  /* computation stands still while more are kept by transfers under way */
    bool feeds_early;   /* what only starts read is made as soon as it can be */
} sched_overlap_rule_t;

typedef struct sched_overlap_time {
    double step_us, exposed_us, link_us;
} sched_overlap_time_t;

/* out_order[position] = node. INTERNAL: the groups do not fit the order. */
st_status_t sched_overlap(const sched_transfers_t *transfers, const ir_node_t *order,
                          const sched_overlap_rule_t *rule, ir_node_t *out_order,
                          sched_overlap_time_t *out_time) ST_WARN_UNUSED;
/* What `order` takes in the same model as it stands, each collective by itself. */
st_status_t sched_overlap_as_given(const sched_transfers_t *transfers, const ir_node_t *order,
                                   sched_overlap_time_t *out_time) ST_WARN_UNUSED;

#endif
