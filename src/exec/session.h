/* A session binds a plan to memory and runs it, step after step.
 *
 * The session owns one thread and one thread team a rank of this process: all ranks of the plan, or
 * one of a communicator's. Calls come from one thread at a time and
 * block until all ranks are done. After the first step the session allocates nothing. A failure on
 * any rank is latched, aborts the others, and is returned by this and every later step; state can
 * still be read. */
#ifndef STATOR_EXEC_SESSION_H
#define STATOR_EXEC_SESSION_H

#include "base/draw_math.h"
#include "comm/comm.h"
#include "compile/plan.h"

typedef struct exec_session exec_session_t;

/* `share`: NULL, or a session whose plan has the same ranks and device and holds all of this plan's
 * state with the same types at the same places (the same plan, or one this was made for with
 * compile_options_t.state_of): its state region is used and must outlive this session. The plan
 * must outlive the session. */
st_status_t exec_session_create(const plan_t *plan, exec_session_t *share,
                                exec_session_t **out_session) ST_WARN_UNUSED;
void exec_session_destroy(exec_session_t *session); /* NULL is fine */

typedef struct exec_options {
    int64_t timeout_ms; /* longest wait for another rank; 0: 60 s */
    bool poison;        /* tests: work memory is overwritten with NaN as soon as it is dead */
    comm_t *comm; /* NULL: all ranks are threads of this process. Else this process is one of its
                   * ranks, each has a session of the same plan, and all make their calls in the
                   * same order; it must outlive the session */
    double comm_latency_s, comm_bandwidth; /* links made slower (comm_throttle_create); 0: not */
    bool profile; /* time every step of rank 0; the totals go to stderr when the session ends */
} exec_options_t;
/* With a communicator; RANKS_DISAGREE where a rank has another plan names what differs. */
st_status_t exec_session_create_on(const plan_t *plan, exec_session_t *share, comm_t *comm,
                                   exec_session_t **out_session) ST_WARN_UNUSED;
/* Same with options; exec_session_create takes the timeout from the plan and the switches from the
 * environment: STATOR_POISON=1, STATOR_PROFILE=1. */
st_status_t exec_session_create_with(const plan_t *plan, exec_session_t *share,
                                     const exec_options_t *options,
                                     exec_session_t **out_session) ST_WARN_UNUSED;

/* Fills a state; `draw` is of its whole type. */
st_status_t exec_state_draw(exec_session_t *session, const char *name,
                            const st_draw_t *draw) ST_WARN_UNUSED;

/* Global tensors. `data` is dense row-major of the port's global type; it must stay valid during
 * the call only. */
typedef struct exec_feed {
    const char *name;
    ir_type_t type;
    const void *data;
} exec_feed_t;
typedef struct exec_fetch {
    const char *name;
    void *data;
    size_t bytes; /* must be the output's size */
} exec_fetch_t;

/* One step: copies the feeds' parts to the ranks, runs, copies outputs back. Every input of the
 * plan must be fed with its exact type: otherwise an error with expected and given. Fetched
 * outputs: any subset. */
st_status_t exec_session_step(exec_session_t *session, size_t n_feeds, const exec_feed_t *feeds,
                              size_t n_fetches, const exec_fetch_t *fetches) ST_WARN_UNUSED;

/* The same in two calls, for a caller that does other things meanwhile: start checks and returns at
 * once, wait blocks until all ranks are done and returns what exec_session_step would. In between
 * the feeds' data and the fetches' room belong to the session, and every other call that touches
 * steps or state FAILs with INVALID. Destroying the session waits. */
st_status_t exec_session_step_start(exec_session_t *session, size_t n_feeds,
                                    const exec_feed_t *feeds, size_t n_fetches,
                                    const exec_fetch_t *fetches) ST_WARN_UNUSED;
/* Inputs for the next steps that are given none: copied to the plan's feeds region beside the step
 * in progress, whose own inputs it waits for. */
st_status_t exec_session_feed(exec_session_t *session, size_t n_feeds,
                              const exec_feed_t *feeds) ST_WARN_UNUSED;
bool exec_session_step_done(exec_session_t *session); /* wait would not block */
st_status_t exec_session_step_wait(exec_session_t *session) ST_WARN_UNUSED;
/* FAILs while a step is in progress. */
st_status_t exec_session_idle(const exec_session_t *session) ST_WARN_UNUSED;
/* An output of the last step, until the next one begins. */
st_status_t exec_session_fetch(exec_session_t *session, const exec_fetch_t *fetch) ST_WARN_UNUSED;

/* What this process is at besides steps, for the others to tell where it was if it is lost: names
 * it with the step that came before. `what` is copied. */
void exec_session_mark(const exec_session_t *session, const char *what);
/* `status`, told as that of this rank at `what` where another one was lost. */
st_status_t exec_session_place(const exec_session_t *session, const char *what, st_status_t status);
/* What all ranks do together: the status of the first rank that failed, naming it, on every
 * rank. */
st_status_t exec_session_agree(exec_session_t *session, st_status_t own) ST_WARN_UNUSED;
/* Rank 0's bytes on every rank; every rank's `bytes`, as many each, in the order of ranks. Without
 * a communicator they are the caller's own. */
st_status_t exec_session_tell(exec_session_t *session, void *data, size_t bytes) ST_WARN_UNUSED;
st_status_t exec_session_gather(exec_session_t *session, const void *own, size_t bytes,
                                void *all) ST_WARN_UNUSED;
/* Processes that share the plan's ranks: 1 without a communicator. */
uint32_t exec_session_processes(const exec_session_t *session);
/* The first rank of this process: 0 without a communicator. */
uint32_t exec_session_first(const exec_session_t *session);

/* State by name (parameters, buffers, optimizer state; aliases count). Types
 * are global and must match exactly. Write reaches all ranks that hold a part; read puts the parts
 * together. */
st_status_t exec_state_write(exec_session_t *session, const char *name, const ir_type_t *type,
                             const void *data) ST_WARN_UNUSED;
st_status_t exec_state_read(exec_session_t *session, const char *name, const ir_type_t *type,
                            void *data) ST_WARN_UNUSED;
/* The same in parts, which every process reads and writes by itself. Of the dense tensor of `box`,
 * each rank of this process takes what it has a part in. */
st_status_t exec_state_write_box(exec_session_t *session, const char *name, const ir_type_t *type,
                                 const ir_box_t *box, const void *data) ST_WARN_UNUSED;
/* What this process keeps of a state: all of it, if it has all ranks, else its rank's part;
 * *out_delivers: no rank before it has the same part. */
st_status_t exec_state_piece(const exec_session_t *session, const char *name, ir_box_t *out_box,
                             bool *out_delivers) ST_WARN_UNUSED;
/* `bytes` bytes of the dense tensor of a piece that this process delivers, from `offset` on. */
st_status_t exec_state_read_range(exec_session_t *session, const char *name, size_t offset,
                                  size_t bytes, void *out) ST_WARN_UNUSED;

/* What a caller may want to know though it is no error, "" if nothing: that the plan was made for
 * another processor level or other libraries than run here, so that bits may differ. Lives as long
 * as the session. */
const char *exec_session_note(const exec_session_t *session);

/* Bytes really allocated for a region of a rank: equal to the plan's figure. */
uint64_t exec_region_bytes(const exec_session_t *session, uint32_t rank, plan_region_t region);
/* Of the first local rank's device, by its own account: what the regions have taken and what is
 * free; 0 where the device's memory is the host's. */
st_status_t exec_device_memory(exec_session_t *session, uint64_t *out_taken,
                               uint64_t *out_free) ST_WARN_UNUSED;
/* Time of the last step that was waited for on rank 0, and the part of it spent waiting for
 * collectives. */
double exec_last_step_us(const exec_session_t *session);
double exec_last_wait_us(const exec_session_t *session);

/* Where the time until now went besides steps, on rank 0; seconds. */
typedef struct exec_startup {
    double open_s;    /* the device */
    double memory_s;  /* regions and constants */
    double prepare_s; /* kernels; the next three, summed over threads, are parts of it */
    double libraries_s, nests_s, plans_s;
    double tune_s;       /* choosing among libraries' ways, in the first step */
    double capture_s;    /* recording the step, in the second */
    uint32_t n_measured; /* problems */
    uint64_t choices; /* hash of what tuning chose: equal where the same ways are taken; 0: none */
} exec_startup_t;
exec_startup_t exec_startup(const exec_session_t *session);

/* With exec_options_t.profile: where rank 0's time went since the first step, which makes libraries
 * ready, largest first. Processor time where one thread of one rank does all, else the clock's. */
typedef struct exec_profile_row {
    const char *what; /* kernel name, or "copy", "start", "wait" */
    uint64_t n_calls;
    double us;
} exec_profile_row_t;
size_t exec_profile(exec_session_t *session, const exec_profile_row_t **out_rows);

/* ---- measuring: when each kernel ran, on all ranks (measure.c) ---- */

/* On: from the next step on all steps are measured; allocates on the first call. Results are the
 * same bits. Where kernels run apart from the host and the device has marks, these are part of the
 * recorded step; a device without marks is waited for after each kernel. Off: as before. Between
 * steps only. */
st_status_t exec_measure(exec_session_t *session, bool on) ST_WARN_UNUSED;
typedef struct exec_span {
    ir_node_t node;
    double begin_us, end_us;
} exec_span_t;
/* The last step of a rank by one clock for all ranks. `begin` to `program_begin` inputs are copied
 * in, from `program_end` to `end` outputs out. */
typedef struct exec_measured {
    size_t n;
    const exec_span_t *spans; /* in the order of the program, none overlapping */
    double begin_us, program_begin_us, program_end_us, end_us;
    bool by_device; /* by the device's marks; else by the host's clock around each step */
    bool replayed;  /* the step was launched as one recorded graph; else step by step */
} exec_measured_t;
/* n is 0 unless the last step was measured, and on a device that computes nothing. */
exec_measured_t exec_last_measured(const exec_session_t *session, uint32_t rank);

#endif
