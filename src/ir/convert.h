/* Reading and writing single elements of any dtype as double or int64: for constants, folding,
 * tests and host-side conversion. Integers beyond 2^53 keep their value through the int64 pair. */
#ifndef STATOR_IR_CONVERT_H
#define STATOR_IR_CONVERT_H

#include "ir/types.h"

double ir_element_load(ir_dtype_t dtype, const void *data, size_t index);
/* Rounds to nearest even; float to integer truncates and saturates, NaN gives 0; bool stores x !=
 * 0. */
void ir_element_store(ir_dtype_t dtype, void *data, size_t index, double value);
int64_t ir_element_load_i64(ir_dtype_t dtype, const void *data, size_t index);
void ir_element_store_i64(ir_dtype_t dtype, void *data, size_t index, int64_t value);

/* Bit patterns of the small floats. Rounding is to nearest even; overflow gives infinity (NaN in
 * f8e4m3, which has none). */
float ir_f16_to_f32(uint16_t bits);
uint16_t ir_f32_to_f16(float value);
float ir_bf16_to_f32(uint16_t bits);
uint16_t ir_f32_to_bf16(float value);
float ir_f8e4m3_to_f32(uint8_t bits);
uint8_t ir_f32_to_f8e4m3(float value);
float ir_f8e5m2_to_f32(uint8_t bits);
uint8_t ir_f32_to_f8e5m2(float value);

#endif
