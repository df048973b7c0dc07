/* MatMul and Gemm. */
#include <string.h>

#include "import/onnx_reader.h"

/* x[…, K] times a matrix: the leading dims of x are joined to rows, so that it is one product, and
 * so is the gradient of y. */
static ir_value_t rows_product(onnx_t *o, ir_value_t x, ir_value_t y) {
    ir_type_t type = onnx_type(o, x);
    int64_t dims[2] = {onnx_product(&type, 0, type.rank - 1), type.dims[type.rank - 1]};
    ir_value_t out = ir_b_matmul(&o->b, ir_b_reshape(&o->b, x, 2, dims), y, false, false);
    type.dims[type.rank - 1] = onnx_type(o, out).dims[1];
    return ir_b_reshape(&o->b, out, type.rank, type.dims);
}

/* NumPy's matmul: vectors are a row on the left and a column on the right, and vanish from the
 * result. */
void onnx_matmul(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), y = onnx_in(o, 1);
    ir_type_t tx = onnx_type(o, x), ty = onnx_type(o, y);
    if (!onnx_same_dtype(o, x, y)) return;
    if (tx.rank == 0 || ty.rank == 0) {
        onnx_fail(o, ST_INVALID, "a product with a scalar");
        return;
    }
    if (ty.rank == 2 && tx.rank != 2 && tx.dims[tx.rank - 1] == ty.dims[0]) {
        onnx_return(o, rows_product(o, x, y));
        return;
    }
    if (tx.rank == 1) x = ir_b_reshape(&o->b, x, 2, (int64_t[]){1, tx.dims[0]});
    if (ty.rank == 1) y = ir_b_reshape(&o->b, y, 2, (int64_t[]){ty.dims[0], 1});
    ir_value_t out = ir_b_matmul(&o->b, x, y, false, false);
    ir_type_t type = onnx_type(o, out);
    if (!onnx_ok(o)) return;
    if (ty.rank == 1) type.rank--;
    if (tx.rank == 1) {
        if (ty.rank != 1) type.dims[type.rank - 2] = type.dims[type.rank - 1];
        type.rank--;
    }
    onnx_return(o, ir_b_reshape(&o->b, out, type.rank, type.dims));
}

/* alpha * A' B' + beta * C; C broadcasts to the result. */
void onnx_gemm(onnx_t *o) {
    ir_value_t a = onnx_in(o, 0), b = onnx_in(o, 1), c = onnx_in_or_none(o, 2);
    double alpha = onnx_float(o, "alpha", 1), beta = onnx_float(o, "beta", 1);
    bool transpose_a = onnx_flag(o, "transA", false), transpose_b = onnx_flag(o, "transB", false);
    ir_type_t ta = onnx_type(o, a), tb = onnx_type(o, b), type, tc;
    if (onnx_ok(o) && (ta.rank != 2 || tb.rank != 2))
        onnx_fail(o, ST_INVALID, "A has %d dims and B %d, 2 are needed", ta.rank, tb.rank);
    ir_value_t y = ir_b_matmul(&o->b, a, b, transpose_a, transpose_b);
    if (alpha != 1) y = ir_b_scale(&o->b, y, alpha);
    if (c != IR_NONE && beta != 0 && onnx_same_dtype(o, y, c)) {
        type = onnx_type(o, y), tc = onnx_type(o, c);
        if (beta != 1) c = ir_b_scale(&o->b, c, beta);
        y = ir_b_binary(&o->b, IR_OP_ADD, y, c);
        ir_type_t out = onnx_type(o, y);
        char text[IR_TYPE_TEXT_BYTES];
        if (onnx_ok(o) && !ir_dims_equal(&out, &type))
            onnx_fail(o, ST_INVALID, "C is %s, which does not broadcast to the product",
                      ir_type_text(&tc, text, sizeof text));
    }
    onnx_return(o, y);
}
