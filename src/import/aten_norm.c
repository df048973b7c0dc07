/* ATen's normalizations. */
#include <string.h>

#include "import/aten.h"

static ir_value_t vector_or(aten_t *a, ir_value_t x, ir_dtype_t dtype, int64_t size, double fill) {
    return x != IR_NONE ? x : ir_b_splat(&a->b, ir_type_make(dtype, 1, &size), fill);
}

/* How the forms of batch norm differ in what they return and change. */
enum {
    BN_PLAIN,       /* batch_norm: y; training changes the running statistics in place */
    BN_NATIVE,      /* native_batch_norm, _native_batch_norm_legit: y, mean, invstd; in place */
    BN_NO_STATS,    /* _native_batch_norm_legit.no_stats: the same without running statistics */
    BN_NO_TRAINING, /* _native_batch_norm_legit_no_training: y and two empty tensors */
    BN_FUNCTIONAL,  /* _native_batch_norm_legit_functional: y, mean, invstd, new statistics */
};

/* momentum is PyTorch's: the weight of the new value. The running variance is the unbiased one. */
void aten_batch_norm(aten_t *a) {
    ir_value_t x = aten_tensor(a, "input");
    ir_value_t weight = aten_tensor_or_none(a, "weight"), bias = aten_tensor_or_none(a, "bias");
    ir_value_t mean = aten_tensor_or_none(a, "running_mean"),
               var = aten_tensor_or_none(a, "running_var");
    bool train = a->op->arg != BN_NO_TRAINING && aten_bool(a, "training", false);
    double momentum = aten_float(a, "momentum", 0.1), eps = aten_float(a, "eps", 1e-5);
    ir_type_t type = aten_type(a, x);
    if (aten_ok(a) && (type.rank < 2 || (mean == IR_NONE) != (var == IR_NONE)))
        aten_fail(a, ST_INVALID, "an input of %d dims, or one running statistic without the other",
                  type.rank);
    if (!aten_ok(a)) return;
    bool tracked = mean != IR_NONE;
    if (!tracked) train = true; /* without statistics the batch's own are used in either mode */
    int64_t channels = type.dims[1];
    ir_value_t inputs[] = {x, vector_or(a, weight, type.dtype, channels, 1),
                           vector_or(a, bias, type.dtype, channels, 0),
                           vector_or(a, mean, type.dtype, channels, 0),
                           vector_or(a, var, type.dtype, channels, 1)};
    ir_arg_t args[] = {IR_ARG_FLOAT("eps", eps), IR_ARG_FLOAT("momentum", momentum),
                       IR_ARG_BOOL("unbiased", true), IR_ARG_BOOL("train", train)};
    ir_value_t y = ir_b_node(&a->b, IR_OP_BATCH_NORM, 5, inputs, 4, args);
    if (!aten_ok(a)) return;
    if (train && tracked && a->op->arg != BN_FUNCTIONAL) {
        aten_mutate(a, aten_slot(a, "running_mean"), y + 3);
        aten_mutate(a, aten_slot(a, "running_var"), y + 4);
    }
    aten_return(a, y);
    if (a->op->arg == BN_PLAIN) return;
    /* outside training PyTorch returns empty tensors in place of the batch's statistics */
    aten_return(a, train ? y + 1 : IR_NONE);
    aten_return(a, train ? y + 2 : IR_NONE);
    if (a->op->arg != BN_FUNCTIONAL) return;
    aten_return(a, train ? y + 3 : mean);
    aten_return(a, train ? y + 4 : var);
}

/* Product of normalized_shape, which must be the trailing dims of x; -1 after a failure. */
static int32_t trailing(aten_t *a, const ir_type_t *type, int64_t dims[ATEN_MAX_LIST],
                        int64_t *size) {
    int32_t n = aten_ints(a, "normalized_shape", dims);
    bool fits = n >= 1 && n <= type->rank;
    *size = 1;
    for (int32_t i = 0; i < n && fits; i++) {
        fits = dims[i] == type->dims[type->rank - n + i];
        *size *= dims[i];
    }
    if (aten_ok(a) && !fits) {
        char text[IR_TYPE_TEXT_BYTES];
        aten_fail(a, ST_INVALID, "argument 'normalized_shape' is not the trailing dims of %s",
                  ir_type_text(type, text, sizeof text));
    }
    return aten_ok(a) ? n : -1;
}

/* layer_norm; native_layer_norm (arg 1) also returns mean and 1/deviation with the normalized dims
 * kept as 1. */
void aten_layer_norm(aten_t *a) {
    ir_value_t x = aten_tensor(a, "input");
    ir_value_t weight = aten_tensor_or_none(a, "weight"), bias = aten_tensor_or_none(a, "bias");
    double eps = aten_float(a, "eps", 1e-5);
    aten_ignore(a, "cudnn_enable");
    ir_type_t type = aten_type(a, x);
    int64_t dims[ATEN_MAX_LIST], size;
    int32_t n = trailing(a, &type, dims, &size);
    if (n < 0) return;
    ir_type_t affine = ir_type_make(type.dtype, n, dims);
    ir_value_t inputs[] = {x, weight != IR_NONE ? weight : ir_b_splat(&a->b, affine, 1),
                           bias != IR_NONE ? bias : ir_b_splat(&a->b, affine, 0)};
    ir_arg_t args[] = {IR_ARG_FLOAT("eps", eps)};
    ir_value_t y = ir_b_node(&a->b, IR_OP_LAYER_NORM, 3, inputs, 1, args);
    aten_return(a, y);
    if (!a->op->arg || !aten_ok(a)) return;
    for (int32_t i = type.rank - n; i < type.rank; i++) type.dims[i] = 1;
    aten_return(a, ir_b_reshape(&a->b, y + 1, type.rank, type.dims));
    aten_return(a, ir_b_reshape(&a->b, y + 2, type.rank, type.dims));
}

/* Distance from 1 to the next number: PyTorch's default eps of rms_norm. */
static double epsilon_of(ir_dtype_t dtype) {
    return dtype == IR_F64    ? 0x1p-52
           : dtype == IR_F16  ? 0x1p-10
           : dtype == IR_BF16 ? 0x1p-7
                              : 0x1p-23;
}

void aten_rms_norm(aten_t *a) {
    ir_value_t x = aten_tensor(a, "input"), weight = aten_tensor_or_none(a, "weight");
    ir_type_t type = aten_type(a, x), flat = type;
    double eps = aten_float(a, "eps", epsilon_of(type.dtype));
    int64_t dims[ATEN_MAX_LIST], size;
    int32_t n = trailing(a, &type, dims, &size);
    if (n < 0) return;
    flat.rank = type.rank - n + 1;
    flat.dims[flat.rank - 1] = size;
    if (weight != IR_NONE) weight = ir_b_reshape(&a->b, weight, 1, &size);
    ir_value_t inputs[] = {ir_b_reshape(&a->b, x, flat.rank, flat.dims),
                           vector_or(a, weight, type.dtype, size, 1)};
    ir_arg_t args[] = {IR_ARG_FLOAT("eps", eps)};
    ir_value_t y = ir_b_node(&a->b, IR_OP_RMS_NORM, 2, inputs, 1, args);
    aten_return(a, ir_b_reshape(&a->b, y, type.rank, type.dims));
}

/* A layer norm over [N, groups, rest], then the channels' own scale and shift. */
void aten_group_norm(aten_t *a) {
    ir_value_t x = aten_tensor(a, "input");
    int64_t groups = aten_int_required(a, "num_groups");
    ir_value_t weight = aten_tensor_or_none(a, "weight"), bias = aten_tensor_or_none(a, "bias");
    double eps = aten_float(a, "eps", 1e-5);
    ir_type_t type = aten_type(a, x);
    if (aten_ok(a) && (type.rank < 2 || groups < 1 || type.dims[1] % groups != 0))
        aten_fail(a, ST_INVALID, "%lld groups of an input of %d dims", (long long)groups,
                  type.rank);
    if (!aten_ok(a)) return;
    int64_t dims[3] = {type.dims[0], groups, type.dims[1] / groups}, channel[IR_MAX_RANK];
    for (int32_t i = 0; i < type.rank; i++) channel[i] = i == 1 ? type.dims[1] : 1;
    for (int32_t i = 2; i < type.rank; i++) dims[2] *= type.dims[i];
    ir_type_t affine = ir_type_make(type.dtype, 1, &dims[2]);
    ir_value_t inputs[] = {ir_b_reshape(&a->b, x, 3, dims), ir_b_splat(&a->b, affine, 1),
                           ir_b_splat(&a->b, affine, 0)};
    ir_arg_t args[] = {IR_ARG_FLOAT("eps", eps)};
    ir_value_t y = ir_b_node(&a->b, IR_OP_LAYER_NORM, 3, inputs, 1, args);
    y = ir_b_reshape(&a->b, y, type.rank, type.dims);
    if (weight != IR_NONE)
        y = ir_b_binary(&a->b, IR_OP_MUL, y, ir_b_reshape(&a->b, weight, type.rank, channel));
    if (bias != IR_NONE)
        y = ir_b_binary(&a->b, IR_OP_ADD, y, ir_b_reshape(&a->b, bias, type.rank, channel));
    aten_return(a, y);
}
