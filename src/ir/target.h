/* What passes may ask of the device that the plan is for. The compile step fills it in from the
 * kernel table; passes know no kernels. */
#ifndef STATOR_IR_TARGET_H
#define STATOR_IR_TARGET_H

#include "ir/op.h"

typedef struct ir_target {
    const char *name; /* "cpu" */
    void *context;    /* given to the functions */
    /* Computes a pure node on the host, for constant folding: in[j] and out[k] are dense row-major
     * elements of ctx->in[j] and out_types[k], aligned to 16 bytes. ST_UNSUPPORTED: the target has
     * no host implementation, and the node stays; other failures are errors of the graph (an index
     * out of range) or of the machine. NULL: nothing folds. */
    st_status_t (*evaluate)(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                            const void *const *in, void *const *out);
} ir_target_t;

#endif
