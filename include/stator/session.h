/* Stator: sessions – a plan bound to memory, run step after step.
 *
 * A session owns the ranks of its plan (threads of this process) and their memory. After the first
 * step the session allocates nothing of its own. A failure of any rank stops the others, is
 * returned, and stays: later steps return it again, while state can still be read and saved.
 *
 * Blocking: every function here blocks until every rank is done with it, but for
 * stator_session_step_start and stator_session_step_done.
 * Threads: calls on one session come one at a time, from any thread. Sessions are independent of
 * each other, and each may have a thread of its own; those that share state take turns. Plans,
 * graphs and options are only read here.
 * Streams: none is visible. A step's inputs are copied in at its begin and its fetches out at its
 * end. */
#ifndef STATOR_SESSION_H
#define STATOR_SESSION_H

#include "stator/comm.h"
#include "stator/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stator_session stator_session_t;

/* State is zero until initialized. `share` is NULL, or a session whose state this one uses; it must
 * outlive this one, and so must the plan. Both plans need the same device and ranks, and every
 * tensor of this plan's state has to be in the other's with the same type and place: so it is for
 * the same plan and for one compiled with state_of = that session's plan. INVALID names the first
 * tensor that lies elsewhere. Sessions that share state take turns. NOT_FOUND: the device or its
 * module, and where it was looked for; UNSUPPORTED: a driver or library that is too old;
 * DOES_NOT_FIT, NO_MEMORY: what was asked for and what there is. (Nearest: ncclCommInitAll and
 * cudaMalloc; DataParallel's set-up.) */
STATOR_API stator_status_t stator_session_create(const stator_plan_t *plan, stator_session_t *share,
                                                 stator_session_t **out_session) STATOR_WARN_UNUSED;
/* The same where this process is one rank of a communicator (NULL: as above); it must outlive the
 * session. Every process makes the same calls in the same order, with the same feeds: of each only
 * this rank's part is used. Every process gets whole outputs and state. RANKS_DISAGREE names what
 * differs between the ranks' plans; PEER_LOST, later, a rank that is gone with its step and op. */
STATOR_API stator_status_t
stator_session_create_on(const stator_plan_t *plan, stator_session_t *share, stator_comm_t *comm,
                         stator_session_t **out_session) STATOR_WARN_UNUSED;
STATOR_API void stator_session_destroy(stator_session_t *session); /* NULL is fine */
/* What a caller may want to know though it is no error, as one line without its end; "" if nothing:
 * that the plan was made for another processor or other libraries than run here, so that last bits
 * may differ. Lives as long as the session. */
STATOR_API const char *stator_session_notes(const stator_session_t *session);

/* Where an output goes: `bytes` must be the output's size. */
typedef struct stator_fetch {
    const char *name;
    void *data;
    size_t bytes;
} stator_fetch_t;

/* One step. Feeds are global tensors by name, one for each input of the plan, of exactly its type;
 * none at all where stator_session_feed gave them; the data is read during the call only. Fetches
 * name any outputs, which are written when it returns OK: the loss is that of before the update.
 * INVALID shows expected and given; NOT_FOUND lists the names there are, and says how to have a
 * value of the graph kept (option "fetch"); PEER_LOST: a rank did not come to a collective in time.
 * (Nearest: cudaGraphLaunch and cudaStreamSynchronize.) */
STATOR_API stator_status_t stator_session_step(stator_session_t *session, size_t n_feeds,
                                               const stator_tensor_t *feeds, size_t n_fetches,
                                               const stator_fetch_t *fetches) STATOR_WARN_UNUSED;

/* The same in two calls, so that the caller can do other things meanwhile, as reading the next
 * batch. Start checks its arguments and returns at once; wait blocks until the step has ended and
 * returns what stator_session_step would. From start until wait has returned the data that feeds
 * and fetches point to belongs to the session: do not write or free the one, do not read the other;
 * the loss can be read after wait. The two arrays themselves are the caller's again when start
 * returns. In between every other function that runs steps or touches state gives INVALID;
 * destroying the session waits. INVALID from start: a step is in progress; from wait: none is.
 * (Nearest: cudaGraphLaunch; MPI_Ialltoall and MPI_Wait.) */
STATOR_API stator_status_t
stator_session_step_start(stator_session_t *session, size_t n_feeds, const stator_tensor_t *feeds,
                          size_t n_fetches, const stator_fetch_t *fetches) STATOR_WARN_UNUSED;
STATOR_API stator_status_t stator_session_step_wait(stator_session_t *session) STATOR_WARN_UNUSED;
/* 1 if wait would not block, also where no step is in progress. Does not block. (Nearest:
 * cudaStreamQuery, MPI_Test.) */
STATOR_API int stator_session_step_done(stator_session_t *session);

/* The inputs of the steps to come: copied to the device while the step that was started runs, and
 * taken by the next one, which is given no feeds. They stay: a step without feeds that follows
 * takes them again. All inputs at once, as feeds of a step; returns when their data has been read
 * and is the caller's again. Needs a plan with room for them, which option "feed-ahead" gives
 * (stator_plan_info_t.feeds_bytes). The loop of a training is feed, start, then feed the batch
 * after and wait, again and again. INVALID: the plan has no such room, or as for a step's feeds.
 * Blocks until the inputs of the step in progress have been taken. (Nearest: PyTorch's pin_memory
 * with non_blocking copies on a stream of their own.) */
STATOR_API stator_status_t stator_session_feed(stator_session_t *session, size_t n_feeds,
                                               const stator_tensor_t *feeds) STATOR_WARN_UNUSED;

/* An output of the last step, until the next one begins: `bytes` must be its size. Any value of the
 * graph can be one: compile (and make the training step) with option "fetch" = its name. Several
 * are separated by commas; "%12" is the value of that number in the text form of the graph that the
 * call is given; the gradient of parameter w is "grad.w", before clipping. What is kept takes
 * memory to the end of the step, and fusion ends at it. INVALID: no step was run, one is in
 * progress, or another size; NOT_FOUND: no such output, and how to have it. */
STATOR_API stator_status_t stator_session_fetch(stator_session_t *session, const char *name,
                                                void *data, size_t bytes) STATOR_WARN_UNUSED;

/* Parameters by rules of name patterns: option keys "init" and "seed". The values depend on seed,
 * name and element only, not on ranks. Buffers too: running variances 1, the rest 0. The seed also
 * becomes that of dropout. NOT_FOUND names a parameter that no rule matches; it is zero and all
 * else is set, so that a caller who gives every parameter a value afterwards may go on. INVALID: a
 * rule that cannot be read. (Nearest: torch.nn.init under torch.manual_seed.) */
STATOR_API stator_status_t stator_session_initialize(
    stator_session_t *session, const stator_options_t *options) STATOR_WARN_UNUSED;
/* Parameters and buffers from tensors. Names must match, or match after one constant prefix; any
 * parameter missing or tensor left over is INVALID, with a text that lists the names. Buffers the
 * tensors lack stay as they are. (Nearest: Module.load_state_dict.) */
STATOR_API stator_status_t stator_session_load(stator_session_t *session,
                                               const stator_tensors_t *tensors) STATOR_WARN_UNUSED;
/* Those buffers, and with parameters != 0 those parameters, that the tensors hold under equal
 * names: the values that stand beside an imported graph. Float types are converted; the rest stays
 * as it is. INVALID: another shape. (Nearest: load_state_dict(strict=False).) */
STATOR_API stator_status_t stator_session_restore(stator_session_t *session,
                                                  const stator_tensors_t *tensors,
                                                  int parameters) STATOR_WARN_UNUSED;
/* Any state tensor (parameter, buffer, "optim.…") by name: the whole of it, dense row-major, to or
 * from host memory of the caller. NOT_FOUND; INVALID: another type, shape or size, with both.
 * (Nearest: cudaMemcpy.) */
STATOR_API stator_status_t stator_session_write(stator_session_t *session,
                                                const stator_tensor_t *tensor) STATOR_WARN_UNUSED;
STATOR_API stator_status_t stator_session_read(stator_session_t *session, const char *name,
                                               void *data, size_t bytes) STATOR_WARN_UNUSED;
/* Names and types of the state, an empty tensor past the end: parameters first (kind
 * STATOR_PARAMETER), then buffers; optimizer state is under STATOR_BUFFER with names that begin
 * with "optim.", "ema." or "random.". */
STATOR_API size_t stator_session_count(const stator_session_t *session, stator_port_kind_t kind);
STATOR_API stator_tensor_t stator_session_at(const stator_session_t *session,
                                             stator_port_kind_t kind, size_t index);
/* Copies parameters and buffers (not optimizer state) out; tied names as aliases. NO_MEMORY.
 * (Nearest: Module.state_dict.) */
STATOR_API stator_status_t stator_session_export(stator_session_t *session,
                                                 stator_tensors_t **out_tensors) STATOR_WARN_UNUSED;

/* Where training stands, beside the tensors. */
typedef struct stator_progress {
    int64_t step;          /* optimizer steps done */
    int64_t epoch, sample; /* sample `sample` of epoch `epoch` comes next */
    uint64_t seed;
    int has_best;
    double best;       /* best metric so far */
    int64_t n_samples; /* stator_data_samples of the data; 0: not known, and not compared */
} stator_progress_t;
/* Writes a checkpoint set into folder `dir`; the previous one stays loadable whatever happens. Of
 * several processes each writes what it alone has of the state, straight from its memory; they
 * share the folder. `is_best` also marks it as best; `keep`: how many of the newest stay. Blocks
 * until it is on disk. IO: path and reason. (Nearest: torch.distributed.checkpoint.save.) */
STATOR_API stator_status_t stator_session_save(stator_session_t *session, const char *dir,
                                               const stator_progress_t *progress, int32_t keep,
                                               int is_best) STATOR_WARN_UNUSED;
/* Reads where the newest whole set of `dir` stands. *out_note says why newer sets were passed over
 * ("" if none was) and is freed with stator_free. NOT_FOUND: no set; PARSE: none is whole. */
STATOR_API stator_status_t stator_checkpoint_read(const char *dir, stator_progress_t *out_progress,
                                                  char **out_note) STATOR_WARN_UNUSED;
/* Writes the model of the newest whole set of `dir` to one safetensors file of whole tensors, a
 * piece of memory at a time, whatever processes saved it. Says where that set stands, and in
 * *out_note why newer ones were passed over. (Nearest:
 * torch.distributed.checkpoint.format_utils.dcp_to_torch_save.) */
STATOR_API stator_status_t stator_checkpoint_gather(const char *dir, const char *path,
                                                    stator_progress_t *out_progress,
                                                    char **out_note) STATOR_WARN_UNUSED;
/* Loads the newest whole set of `dir`: all state, exactly, on any ranks and placements, from
 * whatever others it was saved. Each process reads what it needs. NOT_FOUND: no set; PARSE:
 * none is whole; INVALID: it is of another model, with the names. (Nearest:
 * torch.distributed.checkpoint.load.) */
STATOR_API stator_status_t stator_session_resume(
    stator_session_t *session, const char *dir, stator_progress_t *out_progress) STATOR_WARN_UNUSED;

typedef struct stator_session_info {
    /* allocated on this process's first rank */
    uint64_t state_bytes, work_bytes, comm_bytes, feeds_bytes;
    /* the last step that has ended, on that rank, in microseconds; the part spent waiting for
     * collectives */
    double step_us, wait_us;
} stator_session_info_t;
/* Does not block. (Nearest: torch.cuda.memory_allocated, cudaEventElapsedTime.) */
STATOR_API stator_session_info_t stator_session_info(const stator_session_t *session);

/* Memory of this process's first rank's device by the device's own account: what it had less after
 * the session had allocated what the plan says, and what is free now. Both are 0 where a device's
 * memory is the host's. Other programs on the device count. INVALID: a step is in progress.
 * (Nearest: cudaMemGetInfo.) */
STATOR_API stator_status_t stator_session_memory(stator_session_t *session, uint64_t *out_taken,
                                                 uint64_t *out_free) STATOR_WARN_UNUSED;

/* Where the time of a session besides its steps has gone so far, on rank 0, in seconds. */
typedef struct stator_startup {
    double open_s;    /* the device */
    double memory_s;  /* memory and constants */
    double prepare_s; /* kernels; the next three, summed over threads, are parts of it */
    double libraries_s, nests_s, plans_s;
    double tune_s;       /* choosing among the libraries' algorithms, in the first step */
    double capture_s;    /* recording the step, in the second */
    uint32_t n_measured; /* problems whose algorithms were measured, as they were not on record */
    uint64_t
        choices; /* of two runs with equal plans the same number: the same algorithms; 0: none */
} stator_startup_t;
STATOR_API stator_startup_t stator_session_startup(const stator_session_t *session);

#ifdef __cplusplus
}
#endif
#endif
