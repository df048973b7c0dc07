/* Sliding windows: the arithmetic that convolution and pooling share.
 *
 *        low                in                  high
 *   |0 0 0|x x x x x x x x x x x x x x x|0 0|        window o covers the positions
 *   [ k   k   k ]                                    o * stride - low + i * dilation, i < kernel
 *         [ k   k   k ]  stride →
 *
 * out = floor((in + low + high - ((kernel - 1) * dilation + 1)) / stride) + 1; with `ceil` the
 * division rounds up, and a last window that would start past the end of the low padding and the
 * input is dropped.
 *
 * Tensors are [N, C, spatial…] and weights [O, C/groups, kernel…]; of an op with `channels_last`
 * they are [N, spatial…, C] and [O, kernel…, C/groups]. Rules think in the first form. */
#ifndef STATOR_IR_WINDOW_H
#define STATOR_IR_WINDOW_H

#include "ir/op.h"

enum { IR_MAX_SPATIAL = 3 };

typedef struct ir_window {
    int32_t n; /* spatial dims: 1 to 3 */
    int64_t in[IR_MAX_SPATIAL], out[IR_MAX_SPATIAL], kernel[IR_MAX_SPATIAL];
    int64_t stride[IR_MAX_SPATIAL], dilation[IR_MAX_SPATIAL];
    int64_t low[IR_MAX_SPATIAL], high[IR_MAX_SPATIAL];
    bool ceil;
} ir_window_t;

/* The channels-first form of a stored type, and back; below rank 3, or without `last`, itself. */
ir_type_t ir_channels_first(const ir_type_t *stored, bool last);
ir_type_t ir_channels_stored(const ir_type_t *plain, bool last);
/* Bits of the dims that windows do not cross: the batch, and the channels. */
uint32_t ir_window_free_dims(const ir_op_ctx_t *ctx);

/* Reads strides, pads_low, pads_high and (where the op has them) kernel, dilations and ceil from
 * attributes of `n` entries each, takes in[] and, unless NULL, kernel[] from the caller, checks all
 * and computes out[]. */
st_status_t ir_window_read(const ir_op_ctx_t *ctx, int32_t n, const int64_t *in,
                           const int64_t *kernel, ir_window_t *out_window) ST_WARN_UNUSED;
/* Every window has at least one position inside the input: pooling needs it. */
st_status_t ir_window_need_items(const ir_window_t *window) ST_WARN_UNUSED;
/* Attribute of `n` non-negative entries, copied to out[]. */
st_status_t ir_window_ints(const ir_op_ctx_t *ctx, const char *key, int32_t n, int64_t least,
                           int64_t *out) ST_WARN_UNUSED;
/* The window's attributes but for the kernel as arguments for another node (args[4]: strides,
 * pads_low, pads_high, dilations); they borrow from `node`. */
void ir_window_args(const ir_node_info_t *node, ir_arg_t *args);

#endif
