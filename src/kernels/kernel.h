/* What a kernel is: one implementation of one op on one device.
 *
 * For each op src/kernels/table.c keeps an ordered list of implementations, fastest first and the
 * reference last. The compiler asks can_run in that order, writes the name of the first that can
 * into the plan, and the session looks the name up again. A plan is thus explicit about what runs.
 *
 * Tensors are dense and row-major. A kernel may write over an input only where its op says so
 * (ir_op_def_t.reuse, IR_ELEMENTWISE) – the planner may then pass the same pointer twice.
 * Kernels allocate nothing: scratch space comes as `workspace`. Zero-size tensors are legal. */
#ifndef STATOR_KERNELS_KERNEL_H
#define STATOR_KERNELS_KERNEL_H

#include "base/memory.h"
#include "device/device.h"
#include "ir/op.h"

/* The problem, known when compiling. */
typedef struct kern_problem {
    ir_op_t op;
    uint32_t n_in, n_out;
    const ir_type_t *in, *out;
    const ir_attr_t *attrs; /* schema order; ir_ctx_attr works through kern_attr */
    const char *name;       /* node name for messages, "" if none */
} kern_problem_t;

/* One launch. */
typedef struct kern_call {
    const kern_problem_t *problem;
    const void *const *in; /* data pointers; NULL for zero-size tensors */
    void *const *out;
    void *workspace; /* aligned to 64 bytes */
    size_t workspace_bytes;
    void *prepared; /* what prepare made, NULL without */
    dev_stream_t *stream;
    dev_team_t *team; /* CPU threads; NULL on other devices */
    uint32_t node;    /* of the program, for faults that a device finds later */
} kern_call_t;

/* Fills those operands with numbers that the caller may lose. */
typedef struct kern_noise {
    st_status_t (*fill)(void *context);
    void *context;
} kern_noise_t;

typedef struct kern_impl {
    const char *name; /* "cpu.matmul.onednn": stable, written into plans */
    ir_op_t op;
    bool reference; /* plain loops, no vector code: the oracle's relative and the tsan build's
                       choice */
    /* NULL: any problem its op's shape rule accepts. On false *out_reason says why not. */
    bool (*can_run)(const kern_problem_t *problem, const char **out_reason);
    /* Bytes of scratch for a team of n_threads, ST_SIZE_TOO_LARGE where they overflow: compiling
     * then ends with ST_DOES_NOT_FIT. Shapes come from files and one zero dim makes the largest
     * tensors legal, so all of it is computed with st_size_mul and its like. NULL: none. */
    size_t (*workspace)(const kern_problem_t *problem, int n_threads);
    /* Library objects made once a session. NULL: none. */
    st_status_t (*prepare)(const kern_problem_t *problem, int n_threads, void **out_prepared);
    /* The same where it needs the stream, the operands' addresses and the workspace, all of which
     * `call` has and which stay for the session; sets call->prepared. Instead of prepare. */
    st_status_t (*bind)(kern_call_t *call);
    /* The part of bind that takes long and needs no address, from any thread, several at a time:
     * bind finds what it made in call->prepared. NULL: none. */
    st_status_t (*warm)(const kern_problem_t *problem, dev_stream_t *stream, void **out_prepared);
    /* Where there are several ways to do it: takes what is on record for this device, or measures
     * them and takes the fastest. After bind and before the first launch. Measuring writes outputs
     * and scratch, and calls `noise` first. NULL: there is one way. */
    st_status_t (*tune)(kern_call_t *call, const kern_noise_t *noise);
    /* Whether the vendor's library has something for the problem on a device that is not here but
     * described by the library's own text: tests. NULL: it needs the device to tell. */
    st_status_t (*check)(const kern_problem_t *problem, const char *device);
    void (*release)(void *prepared);
    /* FAILs on bad data (index out of range) naming index and limit; never on anything else. */
    st_status_t (*launch)(const kern_call_t *call);
} kern_impl_t;

static inline const ir_attr_t *kern_attr(const kern_problem_t *problem, const char *key) {
    ir_op_ctx_t ctx = {problem->op, problem->n_in,  problem->n_out,
                       problem->in, problem->attrs, problem->name};
    return ir_ctx_attr(&ctx, key);
}

/* Files of src/kernels/cpu/ are compiled once a processor level; KERN_ARCH names it (base, v3,
 * v4). */
#ifdef KERN_ARCH
#define KERN_PASTE_(a, b) a##_##b
#define KERN_PASTE(a, b) KERN_PASTE_(a, b)
#define KERN_SYMBOL(name) KERN_PASTE(name, KERN_ARCH)
#endif

#endif
