/* Devices: memory, copies, and the thing kernels are launched on. One row a device in
 * src/device/table.c; a device that needs vendor libraries lives in a module of its own
 * (device/module.h) that is opened only when asked for. */
#ifndef STATOR_DEVICE_DEVICE_H
#define STATOR_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct st_draw;                         /* base/draw_math.h */
struct comm;                            /* comm/comm.h */
typedef struct dev_team dev_team_t;     /* CPU threads of one rank: device/cpu/team.h */
typedef struct dev_stream dev_stream_t; /* ordered queue of work on a device */
typedef struct dev_graph dev_graph_t;   /* recorded work that is launched as one */

/* What a kernel that runs apart from the host found wrong with the data: the first of a step. */
typedef struct dev_fault {
    uint32_t node; /* of the program */
    int64_t index, position, size;
} dev_fault_t;
/* As device code has it: own.cuh and prelude.cuh of the CUDA kernels. */
_Static_assert(offsetof(dev_fault_t, index) == 8 && offsetof(dev_fault_t, position) == 16 &&
                   offsetof(dev_fault_t, size) == 24 && sizeof(dev_fault_t) == 32,
               "dev_fault_t is laid out as device code writes it");

/* What a device did besides memory before the first steps: seconds, summed over threads, and what
 * tuning took for this stream's kernels. */
typedef struct dev_startup {
    double libraries_s; /* opening them, and their handles */
    double nests_s;     /* code made at run time, or loaded */
    double plans_s;     /* libraries' plans */
    double tune_s;
    uint32_t n_measured; /* problems; the others were on record */
    uint64_t choices;    /* hash over all choices: equal where the same ways are taken; 0: none */
} dev_startup_t;

/* The turns of a loop, numbered 0 … n - 1 or backwards. */
typedef struct dev_turns {
    int64_t n;
    bool reverse;
    int64_t *index; /* device memory: the number of the turn while it runs */
} dev_turns_t;
/* Puts on the stream what is to run: a loop's turn (`which` 0), or one of two bodies. */
typedef st_status_t (*dev_branch_t)(void *context, int which);

typedef struct dev_device {
    const char *name; /* "cpu" */
    bool computes; /* false: nothing runs and memory is only addresses; a session's time is the one
                    * that its plan predicts */
    /* One execution context: a stream with its resources. `n_threads` counts for CPU devices.
     * `index` is the device's number on this host. */
    st_status_t (*open)(int index, int n_threads, dev_stream_t **out_stream);
    void (*close)(dev_stream_t *stream);
    /* Memory aligned to 256 bytes, zeroed. `n_bytes` 0 gives NULL. */
    st_status_t (*alloc)(dev_stream_t *stream, size_t n_bytes, void **out_memory);
    void (*free)(dev_stream_t *stream, void *memory);
    /* Host → device, device → host, device → device; ordered on the stream. `copy_in` has read its
     * host memory when it returns, what `copy_out` writes is there after synchronize; `copy` takes
     * memory of host_alloc, too. */
    st_status_t (*copy_in)(dev_stream_t *stream, void *device, const void *host, size_t n_bytes);
    st_status_t (*copy_out)(dev_stream_t *stream, void *host, const void *device, size_t n_bytes);
    st_status_t (*copy)(dev_stream_t *stream, void *to, const void *from, size_t n_bytes);
    /* Initial values into memory of the device, the box that `draw` has: the same bits on every
     * device. */
    st_status_t (*draw)(dev_stream_t *stream, void *memory, const struct st_draw *draw);
    /* Blocks until all work on the stream is done. */
    st_status_t (*synchronize)(dev_stream_t *stream);
    /* CPU: the stream's threads. NULL elsewhere. */
    dev_team_t *(*team)(dev_stream_t *stream);
    /* Control flow: `body` n times; body 0 if *condition, in device memory, is not 0, else body 1.
     * They may nest. While a step is recorded each body is called once, for a node of its own. */
    st_status_t (*repeat)(dev_stream_t *stream, const dev_turns_t *turns, dev_branch_t body,
                          void *context);
    st_status_t (*choose)(dev_stream_t *stream, const unsigned char *condition, dev_branch_t bodies,
                          void *context);
    /* Device → device, turn i's part of both: from + i * from_stride → to + i * to_stride. */
    st_status_t (*copy_turn)(dev_stream_t *stream, void *to, size_t to_stride, const void *from,
                             size_t from_stride, size_t n_bytes, const int64_t *index);

    /* What follows is NULL on devices whose calls are complete when they return. */

    /* Host → device beside the stream's work, for work that comes later: `begin` lets the copies
     * that follow wait for what is on the stream by now, `join` lets the stream wait for all copies
     * so far. A copy has read its host memory when it returns; the calls come one at a time, copies
     * from another thread than the stream's. */
    st_status_t (*aside_begin)(dev_stream_t *stream);
    st_status_t (*aside_copy)(dev_stream_t *stream, void *device, const void *host, size_t n_bytes);
    st_status_t (*aside_join)(dev_stream_t *stream);
    /* Records what `body` puts on the stream, instead of running it. */
    st_status_t (*capture)(dev_stream_t *stream, st_status_t (*body)(void *context), void *context,
                           dev_graph_t **out_graph);
    st_status_t (*replay)(dev_stream_t *stream, dev_graph_t *graph);
    void (*graph_destroy)(dev_graph_t *graph);
    /* After synchronize: did a kernel find an index out of range since the last call? */
    bool (*take_fault)(dev_stream_t *stream, dev_fault_t *out_fault);
    /* Host memory that copies reach without a detour. */
    st_status_t (*host_alloc)(dev_stream_t *stream, size_t n_bytes, void **out_memory);
    void (*host_free)(dev_stream_t *stream, void *memory);
    /* Points in time on the stream, numbered from 0: they may be recorded with a graph. `reserve`
     * makes room for the first n. After synchronize `read` gives microseconds since mark 0. */
    st_status_t (*mark_reserve)(dev_stream_t *stream, uint32_t n);
    st_status_t (*mark)(dev_stream_t *stream, uint32_t index);
    st_status_t (*mark_read)(dev_stream_t *stream, uint32_t n, double *out_us);
    /* Bytes free and in all on the stream's device. */
    st_status_t (*memory)(dev_stream_t *stream, size_t *out_free, size_t *out_total);
    void (*startup)(dev_stream_t *stream, dev_startup_t *out);
    /* Devices of this kind on this host, and one's own name among all there are anywhere. */
    st_status_t (*count)(int *out_n);
    st_status_t (*identity)(dev_stream_t *stream, char *text, size_t capacity);
    /* A communicator that moves this device's memory on the stream, of the ranks of `host`, which
     * it takes over on success. All of them call it together. */
    st_status_t (*collectives)(dev_stream_t *stream, struct comm *host, int64_t timeout_ms,
                               struct comm **out_comm);
    /* What tuning has chosen on this kind of device so far, as text (st_free; NULL: tuning is off),
     * for ranks that must choose alike; taken in place of what is on record here. RANKS_DISAGREE:
     * it is of another kind of device. */
    st_status_t (*choices_give)(dev_stream_t *stream, char **out_text);
    st_status_t (*choices_take)(dev_stream_t *stream, const char *text);
} dev_device_t;

/* Device by name; FAILs with the list of known devices. */
st_status_t dev_find(const char *name, const dev_device_t **out_device) ST_WARN_UNUSED;

#endif
