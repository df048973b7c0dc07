/* A session's ranks: what is prepared when the session is made (prepare.c) and run at each step
 * (rank.c). */
#ifndef STATOR_EXEC_INTERNAL_H
#define STATOR_EXEC_INTERNAL_H

#include <pthread.h>

#include "comm/comm.h"
#include "device/cpu/team.h"
#include "exec/session.h"
#include "kernels/table.h"

/* What a collective between two ranks does here: with buffers[0]. */
typedef enum exec_pair { EXEC_NO_PAIR = 0, EXEC_SENDS, EXEC_RECEIVES } exec_pair_t;

/* One step that does something; steps that do nothing are left out. */
typedef struct exec_step {
    plan_step_kind_t kind;
    ir_node_t node;
    /* kernel */
    const kern_impl_t *impl;
    kern_problem_t problem;
    kern_call_t call;
    /* copy, and starts that sum in other memory than their input: to ← from */
    uint32_t n_copies;
    void **to;
    const void **from;
    size_t *bytes;
    /* collectives */
    comm_t *comm;
    bool scatters; /* with `segments`: a reduce-scatter */
    exec_pair_t pair;
    int peer; /* of a pair */
    uint32_t ticket;
    ir_dtype_t dtype;
    int64_t *sizes; /* elements of each buffer, or of each rank's part of each block of a gather */
    uint32_t n_buffers;
    void **buffers;              /* all-reduce */
    comm_segment_t *segments;    /* all-gather, reduce-scatter */
    comm_side_t *sides;          /* [2]: all-to-all, from buffers[0] to buffers[1] */
    struct exec_region *region;  /* control flow (region.c) */
    exec_profile_row_t *profile; /* NULL unless profiling: the row of this kind of step */
    /* tests: memory that is dead after this step */
    uint32_t n_dead;
    plan_place_t *dead;
} exec_step_t;

/* The part of a global tensor that a rank holds, dense in its memory. */
typedef struct exec_part {
    void *local;
    ir_type_t type; /* global */
    ir_box_t box;
    bool delivers; /* of the ranks that hold this part, the one that delivers it */
} exec_part_t;

/* When each step of the last run began and ended (measure.c). */
typedef struct exec_measure {
    exec_span_t *spans; /* [n_steps] */
    double begin_us, end_us;
    double *marks;      /* [n_steps + 1], where the device has marks */
    dev_graph_t *graph; /* the step with its marks, once recorded */
    bool replayed;      /* the last step came from the graph */
} exec_measure_t;

/* What a body's program has of those around it (region.c). */
typedef struct exec_frame {
    uint32_t node; /* of the rank's own program: the region that all of this is part of */
    uint32_t n;
    uint64_t *offsets; /* [n] of the inputs, in the virtual state region; UINT64_MAX: in none */
    char **inputs;     /* [n]: where they lie */
    char *pinned; /* the constants' data, in the order of their nodes; NULL if there are none */
} exec_frame_t;

typedef struct exec_rank {
    exec_session_t *session;
    uint32_t index;
    const plan_program_t *program;
    const dev_device_t *device;
    dev_stream_t *stream;
    exec_frame_t *frame; /* NULL: the rank's own program */
    bool has_run;
    double open_s, memory_s, prepare_s, tune_s, capture_s; /* what the start took */
    dev_graph_t *graph;                                    /* the step, once recorded */
    comm_t *comm;                                          /* all ranks */
    comm_t
        *axes[IR_MAX_AXES]; /* those that differ from this one on the axis alone; `comm` where that
                                * is all */
    comm_t *words; /* of all ranks, on the host, where `comm` is the device's (devices.c) */
    void *regions[PLAN_REGION_END];
    uint64_t region_bytes[PLAN_REGION_END]; /* really allocated; a shared state region counts */
    bool owns_state;
    uint64_t taken_bytes; /* by the device's own account for the regions; 0: it keeps none */
    st_arena_t arena;
    uint32_t n_steps;
    exec_step_t *steps;
    uint32_t n_shadows;
    exec_step_t *shadows;          /* casts of parameters to their shadows (shadow.c) */
    uint64_t seen_writes;          /* the owner's state_writes when they were last made */
    exec_part_t *inputs, *outputs; /* by port */
    exec_part_t *ahead;            /* the inputs in the feeds region, by port; NULL without one */
    uint32_t n_profile;
    exec_profile_row_t *profile, *sorted;   /* rank 0 with exec_options_t.profile */
    exec_measure_t *measure, *measure_kept; /* the first is NULL unless steps are measured */
    double step_begin_us;                   /* of the last step, by exec_now_us */
    double step_us, wait_us;
    double predicted_us, predicted_wait_us; /* of a step on a device that computes nothing */
    pthread_t thread;
    bool has_thread;
} exec_rank_t;

enum { EXEC_MESSAGE_BYTES = 2048 };

struct exec_session {
    const plan_t *plan;
    exec_session_t *share;
    exec_options_t options;
    exec_rank_t *ranks;      /* [plan->n_ranks]; empty but for those from `first` on */
    uint32_t first, n_local; /* ranks of this process: all, or one of a communicator's */
    comm_t *beside; /* for what is no part of a step: all ranks; NULL: all are of this process */
    /* the step in progress */
    const void **feeds; /* [inputs] of a step that was given them; else those fed ahead count */
    const void **ahead; /* [inputs]: what exec_session_feed is given */
    bool fed_ahead,
        takes_ahead; /* the feeds region is filled; the step in progress begins with it */
    void **fetches;  /* [outputs]: NULL where not fetched */
    /* Threads: the caller raises `generation` and waits until n_done is the number of ranks. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t generation;
    uint32_t n_done, n_taken; /* ranks; n_taken: whose inputs of the step are in place */
    uint64_t state_writes; /* of an owner of state: how often it was written but by its own steps */
    bool stop;
    /* The caller's own: between start and wait; a step has succeeded; times of the last one that
     * did. */
    bool in_step, has_stepped;
    double step_us, wait_us;
    struct simulation *simulation; /* compile/simulate.h: of a device that computes nothing */
    st_status_t failed;            /* first cause, latched */
    char message[EXEC_MESSAGE_BYTES];
    char note[512]; /* "" if there is none */
};

/* Opens the device, allocates the regions, makes steps and constants. What it made before a
 * failure, exec_rank_release frees. On the rank's own thread. */
st_status_t exec_rank_prepare(exec_rank_t *rank) ST_WARN_UNUSED;
void exec_rank_release(exec_rank_t *rank);
/* Bodies of a region's step, prepared in the rank's memory: exec_region_prepare makes step->region,
 * which exec_region_release frees. Running allocates nothing. */
st_status_t exec_region_prepare(exec_rank_t *rank, exec_step_t *step) ST_WARN_UNUSED;
void exec_region_release(exec_step_t *step);
st_status_t exec_region_run(exec_step_t *step) ST_WARN_UNUSED;
/* exec_tune of the bodies. */
st_status_t exec_region_tune(const exec_step_t *step) ST_WARN_UNUSED;
exec_part_t exec_part_make(const plan_t *plan, const plan_port_t *port, uint32_t rank, void *local);
/* Calls `move` for each run of bytes that lies together both in the part and, at `offset`, in the
 * global tensor. Allocates nothing. */
typedef st_status_t (*exec_move_t)(void *context, void *local, size_t offset, size_t bytes);
st_status_t exec_part_each(const exec_part_t *part, exec_move_t move, void *context) ST_WARN_UNUSED;
/* The same of a box of the tensor, dense by itself; and of `bytes` bytes of that, from `offset`
 * on. */
st_status_t exec_part_each_in(const exec_part_t *part, const ir_box_t *box, exec_move_t move,
                              void *context) ST_WARN_UNUSED;
st_status_t exec_part_each_within(const exec_part_t *part, const ir_box_t *box, size_t offset,
                                  size_t bytes, exec_move_t move, void *context) ST_WARN_UNUSED;
/* Moves between a rank's memory and what the caller has of the tensor: the context is an
 * exec_moved_t. */
typedef struct exec_moved {
    const exec_rank_t *rank;
    const char *from;
    char *to;
} exec_moved_t;
st_status_t exec_move_in(void *moved, void *local, size_t offset, size_t bytes) ST_WARN_UNUSED;
st_status_t exec_move_out(void *moved, void *local, size_t offset, size_t bytes) ST_WARN_UNUSED;

/* What both kinds of program share: its constants, its steps, one step. */
st_status_t exec_fill_constants(exec_rank_t *rank) ST_WARN_UNUSED;
/* Puts the data of a frame's constants into memory that copies which are recorded may read. */
st_status_t exec_pin_constants(exec_rank_t *rank) ST_WARN_UNUSED;
st_status_t exec_prepare_steps(exec_rank_t *rank) ST_WARN_UNUSED;
void exec_release_steps(exec_rank_t *rank);
st_status_t exec_run_kind(exec_rank_t *rank, exec_step_t *step) ST_WARN_UNUSED;

/* Copies this rank's parts of what is fetched. */
st_status_t exec_rank_deliver(const exec_rank_t *rank) ST_WARN_UNUSED;
/* Shadows of weights (shadow.c): made before a step if a parameter was written since the last. */
st_status_t exec_shadows_prepare(exec_rank_t *rank) ST_WARN_UNUSED;
void exec_shadows_release(exec_rank_t *rank);
st_status_t exec_shadows_refresh(exec_rank_t *rank) ST_WARN_UNUSED;
void exec_shadows_note_write(exec_session_t *session);
void exec_shadows_note_step(exec_session_t *session);

/* Before the first step, on the rank's own thread: what kernels choose by measuring (tune.c). */
st_status_t exec_tune(exec_rank_t *rank) ST_WARN_UNUSED;
/* Copies a part of a state to its place in the global tensor. */
st_status_t exec_state_part_out(const exec_rank_t *rank, const exec_part_t *part,
                                void *to) ST_WARN_UNUSED;

/* Fills the feeds region, beside the rank's step and on another thread. */
st_status_t exec_rank_feed_ahead(exec_rank_t *rank) ST_WARN_UNUSED;

/* Ranks with devices of their own (devices.c). Opens the rank's, and the device's own communicator
 * in place of the host's, where it has one. */
st_status_t exec_open_device(exec_rank_t *rank) ST_WARN_UNUSED;
/* Connections for the program's sends and receives. */
st_status_t exec_open_pairs(exec_rank_t *rank) ST_WARN_UNUSED;
/* Returns when all ranks have come here, where they have devices of their own. */
st_status_t exec_meet(exec_rank_t *rank) ST_WARN_UNUSED;
/* exec_tune, such that ranks choose alike. */
st_status_t exec_tune_alike(exec_rank_t *rank) ST_WARN_UNUSED;

/* One step: feeds in, the program, outputs out. */
st_status_t exec_rank_step(exec_rank_t *rank) ST_WARN_UNUSED;

/* Where ranks are processes (across.c). */
/* All ranks have the same plan; names the first difference. */
st_status_t exec_agree(exec_session_t *session) ST_WARN_UNUSED;
/* `whole` holds this rank's part of the port's tensor and gets those of the others. */
st_status_t exec_complete(exec_session_t *session, const plan_port_t *port,
                          void *whole) ST_WARN_UNUSED;
/* The same for all outputs that are fetched. */
st_status_t exec_complete_outputs(exec_session_t *session) ST_WARN_UNUSED;

/* Gives every step of the rank its row (profile.c). */
st_status_t exec_profile_prepare(exec_rank_t *rank) ST_WARN_UNUSED;
void exec_profile_print(exec_session_t *session);

double exec_now_us(void); /* monotonic */
/* Around the program of a step, and around each of its steps. */
st_status_t exec_measure_begin(exec_rank_t *rank) ST_WARN_UNUSED;
st_status_t exec_measure_run(exec_rank_t *rank, uint32_t step) ST_WARN_UNUSED;
st_status_t exec_measure_end(exec_rank_t *rank) ST_WARN_UNUSED;
/* Waits for the device and takes the times. */
st_status_t exec_measure_read(exec_rank_t *rank) ST_WARN_UNUSED;
void exec_measure_release(exec_rank_t *rank);

static inline bool exec_is_local(const exec_session_t *session, uint32_t rank) {
    return rank >= session->first && rank - session->first < session->n_local;
}

static inline void *exec_frame_address(const exec_frame_t *frame, const plan_place_t *place) {
    for (uint32_t j = 0; j < frame->n; j++)
        if (frame->offsets[j] == place->offset) return frame->inputs[j];
    return NULL;
}
static inline void *exec_address(const exec_rank_t *rank, const plan_place_t *place) {
    if (place->region == PLAN_NOWHERE) return NULL;
    if (place->region == PLAN_STATE && rank->frame) return exec_frame_address(rank->frame, place);
    return (char *)rank->regions[place->region] + place->offset;
}

#endif
