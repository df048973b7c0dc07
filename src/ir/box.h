/* Boxes: parts of tensors, cut along any dims, and the bytes that two of them share.
 *
 *   whole [4, 6]     a: rows 0-2, columns 2-5     b: rows 1-3, columns 0-3
 *
 *      . . a a a a          what they share, rows 1-2, columns 2-3, lies in the dense
 *      b b * * a a          tensor of a in runs of 2 elements at 4 and 8, and in that
 *      b b * * a a          of b at 2 and 6
 *      b b b b . .
 */
#ifndef STATOR_IR_BOX_H
#define STATOR_IR_BOX_H

#include "ir/types.h"

typedef struct ir_box {
    int64_t begin[IR_MAX_RANK], extent[IR_MAX_RANK]; /* entries past the rank are 0 */
    bool none; /* nothing, not even of a scalar: the tensor lies on other stages of a pipeline */
} ir_box_t;

ir_box_t ir_box_whole(const ir_type_t *type);
bool ir_box_is_whole(const ir_type_t *type, const ir_box_t *box);
/* Of the dense tensor that holds the box of a tensor of this type. */
size_t ir_box_bytes(const ir_type_t *type, const ir_box_t *box);
int64_t ir_box_elements(const ir_type_t *type, const ir_box_t *box);
/* What both have; false, and an empty box, where that is nothing. */
bool ir_box_common(const ir_type_t *type, const ir_box_t *a, const ir_box_t *b, ir_box_t *out_box);

/* Offsets are in bytes of the dense tensors of the two boxes. */
typedef st_status_t (*ir_box_move_t)(void *context, size_t in_a, size_t in_b, size_t bytes);
/* Each run of bytes that lies together in both, in ascending order; allocates nothing. O(runs). */
st_status_t ir_box_runs(const ir_type_t *type, const ir_box_t *a, const ir_box_t *b,
                        ir_box_move_t move, void *context) ST_WARN_UNUSED;
/* Those within `bytes` bytes from `offset` on of the tensor of a; in_a counts from there. */
st_status_t ir_box_runs_within(const ir_type_t *type, const ir_box_t *a, size_t offset,
                               size_t bytes, const ir_box_t *b, ir_box_move_t move,
                               void *context) ST_WARN_UNUSED;

#endif
