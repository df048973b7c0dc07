/* Runs a body (ir/body.h) node by node with the reference kernels: what a region means, and the
 * oracle of every faster way to run one.
 *
 * Each value has a slot of its own in the workspace; views lie where their input does, and what is
 * an output is made in the caller's memory.
 *
 *   workspace  [ value | value | …    | scratch of the widest node ]   slots aligned to 64 bytes */
#ifndef STATOR_KERNELS_REFERENCE_BODY_H
#define STATOR_KERNELS_REFERENCE_BODY_H

#include "kernels/kernel.h"

typedef struct ref_body ref_body_t;

/* Bytes of workspace; ST_SIZE_TOO_LARGE where they overflow. */
size_t ref_body_workspace(const ir_graph_t *body, int n_threads);
/* Makes the list of steps; `body` must outlive it. */
st_status_t ref_body_create(const ir_graph_t *body, int n_threads,
                            ref_body_t **out_made) ST_WARN_UNUSED;
void ref_body_destroy(ref_body_t *made); /* NULL is fine */
/* in[j] and out[k] are the memory of the body's inputs and outputs; an out may be an operand's
 * memory as a whole, where nest_may_reuse allows it, and overlaps nothing else.
 * Stream and team are those of `call`. Allocates nothing. */
st_status_t ref_body_run(ref_body_t *made, const kern_call_t *call, const void *const *in,
                         void *const *out, void *workspace) ST_WARN_UNUSED;

#endif
