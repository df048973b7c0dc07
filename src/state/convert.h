/* Conversion between the float types f64, f32, f16 and bf16, rounding to nearest, ties to even.
 * All go through f64, which holds each of the others exactly, so there is one rounding. */
#ifndef STATOR_STATE_CONVERT_H
#define STATOR_STATE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/types.h"

/* The four types above. */
bool state_can_convert(ir_dtype_t dtype);
/* Element `index` of an array (which may be unaligned) of a type that can be converted. */
double state_load_float(const void *array, ir_dtype_t dtype, size_t index);
void state_store_float(void *array, ir_dtype_t dtype, size_t index, double value);
/* `n` elements of `from` type to `to` type. */
void state_convert(const void *in, ir_dtype_t from, void *out, ir_dtype_t to, size_t n);

#endif
