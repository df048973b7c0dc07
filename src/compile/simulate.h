/* How long a step takes on all ranks together: kernels on one stream, collectives on another.
 *
 *   compute   kernel kernel | start |  kernel kernel  | wait......| kernel
 *   link                            |== transfer =====|===========|
 *
 * The model:
 * - A rank issues its steps in the order of its program. Kernels, copies and regions run one after
 *   the other on the compute stream. A start takes no time there; it puts the collective behind the
 *   rank's earlier ones on its link stream, in which collectives run in the order of their starts.
 * - A collective's transfer begins when it is at the front of the link stream of every member, and
 *   takes the longest of the members' times. A wait stops the compute stream until it has ended.
 * - A send and its receive are no collective: the i-th start to send from one rank to another meets
 *   the i-th to receive there, whatever else is on their links, and its transfer begins when both
 *   have started and the one before it between the two has ended.
 * - `link_overlap` of the target is the share of a transfer that runs beside kernels. The rest
 *   keeps the compute stream of each member busy, at the wait. A communicator without an engine of
 *   its own, as that of threads on a processor, has 0: then nothing is hidden.
 * - Not in the model: kernels that run slower while a transfer takes memory bandwidth or cores.
 *
 * This is the one place that predicts steps with overlap: of a finished plan (simulate_plan), or of
 * anything that can be told as moves (simulate_moves), such as a candidate that is only priced. */
#ifndef STATOR_COMPILE_SIMULATE_H
#define STATOR_COMPILE_SIMULATE_H

#include "compile/plan.h"
#include "compile/target.h"

/* ---- in ---- */

typedef enum simulate_kind {
    SIMULATE_COMPUTE = 0, /* the compute stream is busy for `us` */
    SIMULATE_START,       /* a collective of `us` among the rank's group in `set` */
    SIMULATE_WAIT,        /* for the move `start` of the same program */
    SIMULATE_SEND,        /* a start: to the rank's `peer` in `set` */
    SIMULATE_RECEIVE,     /* a start: from it */
} simulate_kind_t;

typedef struct simulate_move {
    simulate_kind_t kind;
    double us;
    uint32_t set;   /* of a start: which division of the ranks into groups */
    uint32_t peer;  /* SIMULATE_SEND, SIMULATE_RECEIVE: which member of the group, from 0 */
    uint32_t start; /* SIMULATE_WAIT: index of its start, which comes earlier; each has one wait at
                * most */
} simulate_move_t;

typedef struct simulate_program {
    uint32_t n_moves;
    const simulate_move_t *moves;
} simulate_program_t;

/* A division of the ranks into groups: collectives are among the members of one group. The k-th
 * start in a group on one rank meets the k-th on all others. */
typedef struct simulate_set {
    const uint32_t *group_of; /* [n_ranks], below n_ranks; NULL: all ranks are one group */
    uint32_t size,
        stride; /* where there are sends: members of a group, and ranks from one to the next.
                               * They run different programs */
} simulate_set_t;

typedef struct simulate_input {
    uint32_t n_ranks, n_programs, n_sets;
    const simulate_program_t *programs;
    const uint32_t *program_of; /* [n_ranks] */
    const simulate_set_t *sets;
    double link_overlap; /* 0 … 1 */
} simulate_input_t;

/* ---- out ---- */

/* Of one rank, in microseconds. step = compute + exposed. */
typedef struct simulate_rank {
    double step_us;    /* until its last move has ended */
    double compute_us; /* its compute stream runs kernels */
    double link_us;    /* sum of its collectives' transfers, hidden or not */
    double exposed_us; /* its compute stream stands still, or does the collectives' own part */
    double peers_us;   /* the part of `exposed` in which a member of the group had not come yet */
} simulate_rank_t;

/* When a transfer runs on the link stream. */
typedef struct simulate_span {
    double begin_us, end_us;
} simulate_span_t;

typedef struct simulation {
    uint32_t n_ranks;
    uint32_t slowest; /* the rank whose step is longest, the first of several */
    double step_us;   /* its step */
    simulate_rank_t *ranks;
    double link_overlap;
    /* Ranks whose course is the same share a lane. */
    uint32_t n_lanes;
    uint32_t *lane_of;           /* [n_ranks] */
    simulate_span_t **transfers; /* [n_lanes][starts of the rank's program] */
} simulation_t;

/* INVALID: a rank is at a wait whose collective a member of the group never starts, or starts in
 * another order; the text names both. Time: moves of all lanes; memory: 16 bytes a start of each
 * lane. Ranks are in one lane that run one program and whose groups, and the groups of those in
 * them, and so on, are made of the same programs: of a thousand ranks usually a few lanes are
 * left. */
st_status_t simulate_moves(const simulate_input_t *input, simulation_t **out) ST_WARN_UNUSED;
/* Of a plan on the target that it was made for (predict_target); any number of ranks, no device. */
st_status_t simulate_plan(const plan_t *plan, const target_t *target,
                          simulation_t **out) ST_WARN_UNUSED;
void simulate_destroy(simulation_t *simulation); /* NULL is fine */

/* What one rank does when, from simulate_plan's result: in the order of the program, so that events
 * of one stream begin in order and do not overlap. Waits that take no time have none. The costs are
 * those of the rank's program (predict_steps), for the caller's other figures. */
typedef enum simulate_stream {
    SIMULATE_STREAM_COMPUTE = 0,
    SIMULATE_STREAM_LINK
} simulate_stream_t;
typedef struct simulate_event {
    ir_node_t node;
    simulate_stream_t stream;
    double begin_us, end_us;
} simulate_event_t;
/* *out_events is freed with st_free. */
st_status_t simulate_events(const simulation_t *simulation, const plan_t *plan, uint32_t rank,
                            const ir_cost_t *costs, size_t *out_n,
                            simulate_event_t **out_events) ST_WARN_UNUSED;

#endif
