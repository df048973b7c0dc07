/* Stator: plans – a compiled step.
 *
 * A plan fixes kernels, order, collectives and every byte of memory of every rank. It is immutable,
 * needs no device to make, and is one file on disk. Any number of threads may use one at once; it
 * outlives the sessions, data sources and traces made for it. (Nearest: XLA's serialized
 * executables, TensorRT's engines; neither has the optimizer's step and the collectives of all
 * ranks in it.) */
#ifndef STATOR_PLAN_H
#define STATOR_PLAN_H

#include "stator/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* First eight bytes of plan files. */
#define STATOR_PLAN_MAGIC "STATORP\n"

typedef struct stator_plan stator_plan_t;

/* Option keys: those of "compiling" in the table ("fetch": values that become outputs beside the
 * graph's own), and "mode" ("eval": norms and dropout as in
 * evaluation, no updates). With `state_of` the state is laid out as in that plan and a session of
 * this plan has to share that of a session of the other; NULL otherwise. Blocks; thread-safe.
 * With "plan-cache" set and no `state_of` the plan is read from that folder if it has one of the
 * same graph, options, target and versions, which is proved again; else, or if the file is damaged,
 * it is compiled and written there. INVALID names option or node; NOT_FOUND: no such target, or no
 * value that "fetch" names; UNSUPPORTED: an op that the device has no kernel for, and why;
 * DOES_NOT_FIT: the memory, and what batch or how many ranks would; IO: the folder cannot be made
 * or written. (Nearest: the compilation cache of torch.compile, which keeps kernels; this one keeps
 * the whole plan.) */
STATOR_API stator_status_t stator_plan_compile(const stator_graph_t *graph,
                                               const stator_options_t *options,
                                               const stator_plan_t *state_of,
                                               stator_plan_t **out_plan) STATOR_WARN_UNUSED;
STATOR_API void stator_plan_destroy(stator_plan_t *plan); /* NULL is fine */
/* Reads and proves a plan; blocks on the disk: NOT_FOUND, PARSE (damaged), UNSUPPORTED (made by a
 * newer version). */
STATOR_API stator_status_t stator_plan_load(const char *path,
                                            stator_plan_t **out_plan) STATOR_WARN_UNUSED;
/* Atomic, checksummed. IO: the message gives path and reason; the old file is untouched then. */
STATOR_API stator_status_t stator_plan_save(const stator_plan_t *plan,
                                            const char *path) STATOR_WARN_UNUSED;
/* Text view; freed with stator_free. */
STATOR_API stator_status_t stator_plan_print(const stator_plan_t *plan,
                                             char **out_text) STATOR_WARN_UNUSED;

typedef struct stator_plan_info {
    uint32_t n_ranks, n_threads;                  /* threads a rank */
    uint32_t n_kernels;                           /* launches a step on rank 0 */
    uint32_t n_collectives;                       /* a step */
    uint64_t state_bytes, work_bytes, comm_bytes; /* largest rank */
    uint64_t feeds_bytes;      /* of it: room for stator_session_feed; 0: there is none */
    uint64_t live_bound_bytes; /* lower bound of the work region */
    double compile_us;         /* 0 for a loaded plan */
    /* A step's items, of all ranks and micro-batches: samples in the first input that carries a
     * batch, and tokens, where that one is of whole numbers with one dim behind the batch's. 0:
     * there is none. Dims before the batch's own count as micro-batches. */
    int64_t n_samples, n_tokens;
} stator_plan_info_t;
STATOR_API stator_plan_info_t stator_plan_info(const stator_plan_t *plan);
/* Inputs and outputs as the caller feeds and fetches them: global types, data NULL. Parameters and
 * buffers: the state. An empty tensor past the end. */
STATOR_API size_t stator_plan_count(const stator_plan_t *plan, stator_port_kind_t kind);
STATOR_API stator_tensor_t stator_plan_at(const stator_plan_t *plan, stator_port_kind_t kind,
                                          size_t index);

#ifdef __cplusplus
}
#endif
#endif
