/* The collectives of a program that stands in an order of execution: what each takes, from when on
 * it can go on, until when it should have, and which of them go together.
 *
 *   compute   ── a ── b ── c ── d ── e ──►      ready: b has made its operand
 *   link               ╞══ transfer ══╡         need:  e is the first to read its result
 *
 * Groups: collectives of one kind, mesh axis and element type may become one, which pays the link's
 * latency once, starts when the last operand is there and is whole when the first result is wanted.
 * So a group is legal if its last `ready` is not after its first `need`; then no cycle can arise,
 * whatever other groups there are, for all of them agree with the given order.
 *
 * - What is made on the way, as gradients are, is grouped so that the link is free again as soon as
 *   possible: over prefixes in the order of `ready`, finish(j) = min over i of
 *   max(finish(i), ready(j)) + time(i … j). Then from the end as few groups as still end by then
 *   (and a five-hundredth of all transfers). A collective that nothing can hide, as a norm's sum in
 *   the middle, is grouped with its like only.
 * - What is made of states alone, as gathers of parameters are, can start at any time, so it is
 *   grouped from its readers: the least delay D for which groups as large as possible, one after
 *   the other, all end by need + D.
 *
 * In: an order and its dag. Out: the list of collectives, each with its group. O(nodes + edges) for
 * one pass over what feeds starts, of which there are as many as chains of states' casts are deep.
 * Grouping, of c collectives of one kind: 512 c on the way (the most members that a group has), 24
 * c ahead (halvings of D); kinds are found in c · (number of kinds). */
#ifndef STATOR_SCHEDULE_TRANSFER_H
#define STATOR_SCHEDULE_TRANSFER_H

#include "ir/link.h"
#include "ir/target.h"
#include "schedule/dag.h"

typedef struct sched_transfer {
    ir_node_t start, wait;
    uint32_t ready; /* operands are there before the node at this place of the order */
    uint32_t need;  /* place of the first reader; n: none */
    double bytes;   /* that a rank gives or gets, the more of both */
    bool pair;      /* between two ranks: when the other one is there is not known */
    bool ahead;     /* made of states alone */
    ir_op_t op;
    ir_dtype_t dtype; /* NONE: several, stays alone */
    const char *mesh; /* axis */
    ir_links_t links;
    uint32_t group;
} sched_transfer_t;

typedef struct sched_transfers {
    const sched_dag_t *dag;
    uint32_t n;
    sched_transfer_t *list; /* by places of the starts */
    uint32_t *of_node;      /* [nodes]: of a start or wait; IR_NONE */
    uint32_t *place;        /* [nodes]: in the order */
    double *us;             /* [nodes]: 0 of collectives */
    double *when;           /* [nodes + 1]: the nodes before that place take so long */
    bool *feeds;            /* [nodes]: made of states alone, and for `ahead` starts alone */
    uint32_t n_groups;
} sched_transfers_t;

/* `us` [nodes]: what they take. Where the target (NULL: none) has no machine every transfer takes 1
 * us. `order` is a legal one of the dag's graph. */
st_status_t sched_transfers_open(const sched_dag_t *dag, const ir_target_t *target,
                                 const double *us, const ir_node_t *order,
                                 sched_transfers_t *out_transfers) ST_WARN_UNUSED;
void sched_transfers_close(sched_transfers_t *transfers); /* zeroed is fine */
/* Microseconds of a collective like `t` of so many bytes. */
double sched_transfer_us(const sched_transfer_t *t, double bytes);
/* Sets the groups; one of more than one collective has at most so many bytes. 0: each is alone. */
st_status_t sched_transfers_group(sched_transfers_t *transfers, double most_on_the_way,
                                  double most_ahead) ST_WARN_UNUSED;

#endif
