/* Types of values: element type and shape. Tensors are dense, row-major, logical; physical layout
 * is a matter of the layout pass and the plan. */
#ifndef STATOR_IR_TYPES_H
#define STATOR_IR_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { IR_MAX_RANK = 8 };

/* Values are wire ids. 0 is no type. */
typedef enum ir_dtype {
    IR_DTYPE_NONE = 0,
#define DTYPE(name, text, wire, bytes, kind) IR_##name = (wire),
#include "ir/dtypes.def"
#undef DTYPE
    IR_DTYPE_END
} ir_dtype_t;

typedef struct ir_type {
    ir_dtype_t dtype;
    int32_t rank;              /* 0 … IR_MAX_RANK */
    int64_t dims[IR_MAX_RANK]; /* ≥ 0; entries past rank are 0 */
} ir_type_t;

bool ir_dtype_valid(int64_t wire);
/* "f32", …; "none" if invalid. */
const char *ir_dtype_text(ir_dtype_t dtype);
/* IR_DTYPE_NONE if `text` names no type. */
ir_dtype_t ir_dtype_parse(const char *text);
size_t ir_dtype_bytes(ir_dtype_t dtype);
bool ir_dtype_is_float(ir_dtype_t dtype);
bool ir_dtype_is_integer(ir_dtype_t dtype); /* signed or unsigned; not bool */

ir_type_t ir_type_make(ir_dtype_t dtype, int32_t rank, const int64_t *dims);
ir_type_t ir_type_scalar(ir_dtype_t dtype);
/* The type without its first dim (rank ≥ 1); with another before it (rank < IR_MAX_RANK). */
ir_type_t ir_type_drop_first(const ir_type_t *type);
ir_type_t ir_type_add_first(const ir_type_t *type, int64_t dim);
bool ir_type_equal(const ir_type_t *a, const ir_type_t *b);
bool ir_dims_equal(const ir_type_t *a, const ir_type_t *b);
/* Number of elements (1 for a scalar) / bytes. The type has passed ir_type_check. */
int64_t ir_type_elements(const ir_type_t *type);
size_t ir_type_bytes(const ir_type_t *type);
/* Valid dtype, rank, dims ≥ 0, and the byte size fits int64. */
st_status_t ir_type_check(const ir_type_t *type) ST_WARN_UNUSED;
/* "f32[4,32]"; writes at most `capacity` bytes including the NUL; returns `buffer`. */
char *ir_type_text(const ir_type_t *type, char *buffer, size_t capacity);
enum { IR_TYPE_TEXT_BYTES = 200 };
/* NumPy broadcasting of two shapes (size 1 with size 0 gives 0). Dtype of *out is a's. */
st_status_t ir_dims_broadcast(const ir_type_t *a, const ir_type_t *b,
                              ir_type_t *out) ST_WARN_UNUSED;
/* Maps a possibly negative axis to 0 … rank-1; FAILs naming axis and rank otherwise. */
st_status_t ir_axis_normalize(int64_t axis, int32_t rank, int32_t *out_axis) ST_WARN_UNUSED;

#endif
