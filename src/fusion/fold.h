/* Constant folding of one node: a tool of the simplify pass. */
#ifndef STATOR_FUSION_FOLD_H
#define STATOR_FUSION_FOLD_H

#include "ir/target.h"

/* Per operand and result: folding must not bloat plans. What an iota makes is cheap to make again,
 * so less of it is stored. */
enum { FUSE_FOLD_MAX_BYTES = 64 << 20, FUSE_FOLD_MAX_COUNTED_BYTES = 16 << 20 };

/* FUSE_FOLD_EXACT: only results that are the same numbers in every float type. A graph whose types
 * may yet change (--dtype) must not be left with roundings of its first ones. */
typedef enum fuse_folding { FUSE_FOLD_ALL = 0, FUSE_FOLD_EXACT } fuse_folding_t;

/* Data of one output: all elements, or one for a splat. */
typedef struct fuse_folded {
    void *data; /* st_free */
    size_t bytes;
} fuse_folded_t;

/* Evaluates an op whose inputs are all constants or iotas of `graph`. out_types are the types of
 * its outputs. *out_done is false where nothing was folded (no evaluator for the op, too large, not
 * pure); else out[n_outputs] is filled and the caller frees its data. A result whose elements are
 * all equal comes as a splat, and splat operands of an elementwise op are evaluated as scalars. */
st_status_t fuse_fold(const ir_target_t *target, const ir_graph_t *graph,
                      const ir_node_info_t *node, const ir_value_t *inputs,
                      const ir_type_t *out_types, fuse_folding_t folding, fuse_folded_t *out,
                      bool *out_done) ST_WARN_UNUSED;
/* The same without regard to what is worth storing: broadcasts and iotas too. `ctx` may have other
 * attributes and types than any node of `graph`; `inputs` are constants or iotas of ctx->in. */
st_status_t fuse_evaluate(const ir_target_t *target, const ir_graph_t *graph,
                          const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          const ir_type_t *out_types, fuse_folded_t *out,
                          bool *out_done) ST_WARN_UNUSED;
/* Whether every value of `from` is one of `to`, so that the cast loses nothing. */
bool fuse_cast_is_exact(ir_dtype_t from, ir_dtype_t to);

/* Element of a constant that is a splat (or has one element); NULL for any other value. */
const void *fuse_splat(const ir_graph_t *graph, ir_value_t value);
/* Bytes that a constant of `type` needs: 1 element if all `elements` are equal. */
size_t fuse_packed_bytes(const ir_type_t *type, const void *elements);

#endif
