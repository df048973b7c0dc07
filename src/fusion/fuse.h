/* Fuse: nodes of a rank's program into `fused` nodes, whose bodies are loop nests.
 *
 * Problem: each node reads its operands from memory and writes its results there, and costs a
 * launch. Nodes that share values want to be one pass over them.
 * In: a rank's graph after lowering. Out: the same values, with groups of nodes as `fused` nodes;
 * states, updates, collectives and contractions stand as they did.
 * Legality (a loop nest exists, no path leaves the group and comes back, nothing with an effect)
 * and profit (the target's cost of the group against that of its parts) are kept apart.
 * Algorithm:
 *   1. cheap producers (broadcasts, constants, …) are copied into each consumer (copies.h);
 *   2. a priority queue of pairs producer and consumer, by the time that the pair is estimated to
 *      save: bytes of shared values over the bandwidth, and a launch. The pair that is taken is
 *      judged (judge.h) and joined if it is legal and saves time; what it makes that others read
 *      stays an output. Its neighbours enter the queue anew, those of the smaller part only;
 *   3. the same with siblings, which read one value;
 *   4. what makes new values of states becomes a few multi-tensor nodes (multi.h).
 * 2 and 3 go on in rounds while they find something, MAX_ROUNDS at most.
 * Complexity: O(E log E) queue entries a round, each bounded by FUSE_MAX_NODES of a group and the
 * bounded search of groups.h; groups that are alike are judged once.
 * Source: the queue is XLA's priority fusion; there a producer goes into all of its consumers at
 * once, here into one at a time with its output kept, because a nest may have many outputs.
 * Deterministic: ties go by node ids. */
#ifndef STATOR_FUSION_FUSE_H
#define STATOR_FUSION_FUSE_H

#include "ir/target.h"

typedef enum fuse_why {
    FUSE_NO_NEST = 0, /* one of the two, or both together, have no loop nest */
    FUSE_CYCLE,       /* a third node depends on one and leads to the other */
    FUSE_FAR,         /* too many nodes between them to be sure that there is none */
    FUSE_SLOT,        /* they run in different turns of a pipeline */
    FUSE_SIZE,        /* more nodes or tensors than one kernel takes */
    FUSE_IN_PLACE,    /* a state's new value could no longer be written over the old one */
    FUSE_MEMORY,      /* together they need more memory than the time saved is worth */
    FUSE_COST,        /* together they take no less time */
    FUSE_SUMS,        /* together they would add up a sum in another order than wanted */
    FUSE_WHY_END
} fuse_why_t;

const char *fuse_why_text(fuse_why_t why); /* "no-nest", "cycle", … */

/* One `fused` node. */
typedef struct fuse_row {
    const char *name; /* of the node in every program */
    const char *ops;  /* "add rms_norm mul": what it is made of, but for what costs nothing */
    ir_phase_t phase;
    uint32_t n_nodes;
    uint32_t launches_apart; /* of its nodes by themselves */
    double us_apart, us;
    uint64_t bytes_saved; /* of values that no longer go through memory, written and read */
} fuse_row_t;

/* A value that goes from one node to another which were not fused, and why not. */
typedef struct fuse_boundary {
    const char *from, *to; /* names of fused nodes; op and name of others */
    uint64_t bytes;        /* of all values on this way */
    fuse_why_t why;
    const char *reason;           /* for people */
    double us_apart, us_together; /* FUSE_COST, FUSE_MEMORY */
} fuse_boundary_t;

/* What was done to one program, by its largest rank's sizes. */
typedef struct fuse_report {
    st_arena_t arena;
    uint32_t n_rows, n_boundaries;
    fuse_row_t *rows;
    fuse_boundary_t *boundaries;
    uint32_t launches_apart, launches; /* of the whole program */
    double us_apart, us;
    uint64_t bytes_saved;
} fuse_report_t;

void fuse_report_destroy(fuse_report_t *report); /* NULL is fine */

/* Which nodes go together. Found on one program, it is for all that differ in sizes only, once
 * fuse_restrict has seen each. */
typedef struct fuse_decision fuse_decision_t;

/* The target needs `machine` and `cost`. `like`: NULL, or the decision for the program before
 * recomputation, which has to live on: every sum is then added up in the order that it has there,
 * so that what runs again has the same bits (like.h). */
st_status_t fuse_decide(const ir_graph_t *graph, const ir_target_t *target,
                        const fuse_decision_t *like, fuse_decision_t **out_decision) ST_WARN_UNUSED;
/* Nodes of the program before recomputation that must not run again, for a sum would be added up in
 * another order; none: the decision is alike. They are not to be used after the decision is
 * gone. */
const ir_node_t *fuse_unlike(const fuse_decision_t *decision, size_t *out_n);
/* Marks out[origin - 1] of forward nodes that `decision` put into one nest with nodes of the
 * backward pass that has sums: they stay there, and do not run again. */
void fuse_mark_late(const fuse_decision_t *decision, bool *out);
/* Takes back the groups that are no nest of the target in another program: sizes decide that too,
 * where a reshape cuts dims at places that are factors on one rank and not on another. */
st_status_t fuse_restrict(fuse_decision_t *decision, const ir_graph_t *graph) ST_WARN_UNUSED;
st_status_t fuse_apply(fuse_decision_t *decision, const ir_graph_t *graph,
                       ir_graph_t **out_graph) ST_WARN_UNUSED;
/* The caller owns it. */
st_status_t fuse_explain(fuse_decision_t *decision, fuse_report_t **out_report) ST_WARN_UNUSED;
void fuse_decision_destroy(fuse_decision_t *decision); /* NULL is fine */

#endif
