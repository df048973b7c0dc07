/* PyTorch's type promotion, written once.
 *
 * Operands fall in three classes: tensors with dims, tensors without, Python scalars. A lower class
 * changes the result only by its category (bool < integer < float): bf16[4] + f64[] is bf16, i64[4]
 * + 0.5 is the default float type, and i64[4] + f64[] is f64. Within a class the table below
 * decides. */
#include <string.h>

#include "import/aten.h"
#include "ir/convert.h"

#define NO IR_DTYPE_NONE
/* By pairs of element types. u8 with i8 would be a 16-bit integer, which does not exist here;
 * PyTorch itself refuses to promote fp8. */
static const struct {
    ir_dtype_t dtype, with[9];
} promotions[] = {
    /*           bool     u8       i8       i32      i64      f16      bf16     f32     f64 */
    {IR_BOOL, {IR_BOOL, IR_U8, IR_I8, IR_I32, IR_I64, IR_F16, IR_BF16, IR_F32, IR_F64}},
    {IR_U8, {IR_U8, IR_U8, NO, IR_I32, IR_I64, IR_F16, IR_BF16, IR_F32, IR_F64}},
    {IR_I8, {IR_I8, NO, IR_I8, IR_I32, IR_I64, IR_F16, IR_BF16, IR_F32, IR_F64}},
    {IR_I32, {IR_I32, IR_I32, IR_I32, IR_I32, IR_I64, IR_F16, IR_BF16, IR_F32, IR_F64}},
    {IR_I64, {IR_I64, IR_I64, IR_I64, IR_I64, IR_I64, IR_F16, IR_BF16, IR_F32, IR_F64}},
    {IR_F16, {IR_F16, IR_F16, IR_F16, IR_F16, IR_F16, IR_F16, IR_F32, IR_F32, IR_F64}},
    {IR_BF16, {IR_BF16, IR_BF16, IR_BF16, IR_BF16, IR_BF16, IR_F32, IR_BF16, IR_F32, IR_F64}},
    {IR_F32, {IR_F32, IR_F32, IR_F32, IR_F32, IR_F32, IR_F32, IR_F32, IR_F32, IR_F64}},
    {IR_F64, {IR_F64, IR_F64, IR_F64, IR_F64, IR_F64, IR_F64, IR_F64, IR_F64, IR_F64}},
};
#undef NO

static int row_of(ir_dtype_t dtype) {
    for (int i = 0; i < (int)(sizeof promotions / sizeof promotions[0]); i++)
        if (promotions[i].dtype == dtype) return i;
    return -1;
}

ir_dtype_t aten_promote(ir_dtype_t x, ir_dtype_t y) {
    if (x == y) return x;
    int i = row_of(x), j = row_of(y);
    return i < 0 || j < 0 ? IR_DTYPE_NONE : promotions[i].with[j];
}

ir_dtype_t aten_scalar_dtype(aten_item_t scalar) {
    return scalar.kind == ATEN_BOOL ? IR_BOOL : scalar.kind == ATEN_INT ? IR_I64 : IR_F32;
}

static int category(ir_dtype_t dtype) {
    return ir_dtype_is_float(dtype) ? 2 : dtype == IR_BOOL ? 0 : 1;
}

/* The higher class rules unless the lower one is of a higher category. */
static ir_dtype_t combine_classes(ir_dtype_t higher, ir_dtype_t lower) {
    if (higher == IR_DTYPE_NONE) return lower;
    if (lower == IR_DTYPE_NONE || category(higher) >= category(lower)) return higher;
    return aten_promote(higher, lower);
}

ir_dtype_t aten_result_type(aten_t *a, uint32_t n, const aten_item_t *items) {
    ir_dtype_t by_class[3] = {IR_DTYPE_NONE, IR_DTYPE_NONE, IR_DTYPE_NONE};
    for (uint32_t i = 0; i < n && aten_ok(a); i++) {
        if (items[i].kind == ATEN_NONE) continue;
        bool tensor = items[i].kind == ATEN_TENSOR;
        ir_type_t type = tensor ? aten_type(a, items[i].slot) : ir_type_scalar(IR_F32);
        ir_dtype_t dtype = tensor ? type.dtype : aten_scalar_dtype(items[i]);
        ir_dtype_t *held = &by_class[!tensor ? 2 : type.rank == 0 ? 1 : 0];
        ir_dtype_t joint = *held == IR_DTYPE_NONE ? dtype : aten_promote(*held, dtype);
        if (joint == IR_DTYPE_NONE) {
            aten_fail(a, ST_UNSUPPORTED,
                      "%s and %s have no common type here; cast one in the model",
                      ir_dtype_text(*held), ir_dtype_text(dtype));
            return IR_F32;
        }
        *held = joint;
    }
    ir_dtype_t dtype = combine_classes(by_class[0], combine_classes(by_class[1], by_class[2]));
    if (aten_ok(a) && dtype == IR_DTYPE_NONE) aten_fail(a, ST_PARSE, "an operand is missing");
    return aten_ok(a) ? dtype : IR_F32;
}

aten_item_t aten_item_tensor(ir_value_t value) {
    return (aten_item_t){.kind = ATEN_TENSOR, .slot = value};
}

ir_value_t aten_fill(aten_t *a, ir_type_t type, aten_item_t scalar) {
    if (!aten_ok(a)) return IR_NONE;
    if (scalar.kind == ATEN_NONE || scalar.kind == ATEN_TENSOR) {
        aten_fail(a, ST_PARSE, "a fill value is missing");
        return IR_NONE;
    }
    unsigned char element[8];
    if (scalar.kind == ATEN_FLOAT)
        ir_element_store(type.dtype, element, 0, scalar.f);
    else if (ir_dtype_is_float(type.dtype))
        ir_element_store(type.dtype, element, 0, (double)scalar.i);
    else
        ir_element_store_i64(type.dtype, element, 0, scalar.i);
    return ir_b_constant(&a->b, type, element, ir_dtype_bytes(type.dtype));
}

ir_value_t aten_value(aten_t *a, aten_item_t item, ir_dtype_t dtype) {
    if (item.kind == ATEN_TENSOR) return ir_b_cast(&a->b, item.slot, dtype);
    return aten_fill(a, ir_type_scalar(dtype), item);
}

ir_value_t aten_to_float(aten_t *a, ir_value_t x) {
    return ir_dtype_is_float(aten_type(a, x).dtype) ? x : ir_b_cast(&a->b, x, IR_F32);
}

ir_value_t aten_to_bool(aten_t *a, ir_value_t x) {
    return ir_b_cast(&a->b, x, IR_BOOL);
}
