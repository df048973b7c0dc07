/* The points (calibrate_points.h). Rows are of 256 elements, classes are 64, channels 32: between the
 * extremes of what models have. */
#include "exec/calibrate_points.h"

/* clang-format off */
const calibrate_point_t calibrate_passes[] = {
    {"neg", "", "f:R,256"}, {"abs", "", "f:R,256"}, {"exp", "", "f:R,256"}, {"log", "", "f:R,256"},
    {"sqrt", "", "f:R,256"}, {"rsqrt", "", "f:R,256"}, {"reciprocal", "", "f:R,256"},
    {"sin", "", "f:R,256"}, {"cos", "", "f:R,256"}, {"tanh", "", "f:R,256"}, {"sigmoid", "", "f:R,256"},
    {"erf", "", "f:R,256"}, {"relu", "", "f:R,256"}, {"gelu", "", "f:R,256"}, {"silu", "", "f:R,256"},
    {"square", "", "f:R,256"}, {"relu_grad", "", "f:R,256 f:R,256"},
    {"gelu_grad", "", "f:R,256 f:R,256"}, {"silu_grad", "", "f:R,256 f:R,256"},
    {"add", "", "f:R,256 f:R,256"}, {"sub", "", "f:R,256 f:R,256"}, {"mul", "", "f:R,256 f:R,256"},
    {"div", "", "f:R,256 f:R,256"}, {"pow", "", "f:R,256 f:R,256"}, {"maximum", "", "f:R,256 f:R,256"},
    {"minimum", "", "f:R,256 f:R,256"}, {"eq", "", "f:R,256 f:R,256"}, {"ge", "", "f:R,256 f:R,256"},
    {"select", "", "b:R,256 f:R,256 f:R,256"}, {"broadcast", "shape=[R,256]", "f:256"},
    {"transpose", "perm=[0,2,1,3]", "f:R,64,4,32"}, {"transpose", "perm=[1,0]", "f:R,256"},
    {"slice", "begin=[0,64], end=[R,192], step=[1,1]", "f:R,256"},
    {"pad", "low=[0,16], high=[0,16]", "f:R,224"}, {"concat", "axis=1", "f:R,128 f:R,128"},
    {"flip", "axes=[1]", "f:R,256"},
    {"gather", "axis=0", "f:64,256 i:R"}, {"scatter_add", "axis=0, extent=64", "f:R,256 i:R"},
    {"gather_along", "axis=1", "f:R,256 i:R,64"},
    {"reduce_sum", "axes=[1]", "f:R,256"}, {"reduce_sum", "axes=[0]", "f:R,256"},
    {"reduce_max", "axes=[1]", "f:R,256"}, {"reduce_max", "axes=[0]", "f:R,256"},
    {"reduce_min", "axes=[1]", "f:R,256"}, {"reduce_prod", "axes=[1]", "f:R,256"},
    {"argmax", "axis=1", "f:R,256"}, {"cumsum", "axis=1", "f:R,256"}, {"sum_squares", "", "f:R,256"},
    {"max_pool", "kernel=[3,3], strides=[2,2], pads_low=[1,1], pads_high=[1,1], dilations=[1,1]", "f:R,32,28,28"},
    {"max_pool_grad", "spatial=[28,28]", "f:R,32,14,14 i:R,32,14,14"},
    {"avg_pool", "kernel=[2,2], strides=[2,2], pads_low=[0,0], pads_high=[0,0]", "f:R,32,28,28"},
    {"avg_pool_grad", "kernel=[2,2], strides=[2,2], pads_low=[0,0], pads_high=[0,0], spatial=[28,28]", "f:R,32,14,14"},
    {"softmax", "axis=1", "f:R,256"}, {"softmax_grad", "axis=1", "f:R,256 f:R,256"},
    {"log_softmax", "axis=1", "f:R,256"}, {"log_softmax_grad", "axis=1", "f:R,256 f:R,256"},
    {"cross_entropy_rows", "", "f:R,64 i:R"}, {"cross_entropy_grad", "", "f:R f:R,64 i:R f:R"},
    {"channel_sum", "", "f:R,32,16,16"}, {"channel_centered_squares", "", "f:R,32,16,16 f:32"},
    {"batch_norm_apply", "", "f:R,32,16,16 f:32 f:32 f:32 f:32"},
    {"batch_norm_grad_sums", "", "f:R,32,16,16 f:R,32,16,16 f:32 f:32"},
    {"batch_norm_grad_apply", "count=1024", "f:R,32,16,16 f:R,32,16,16 f:32 f:32 f:32 f:32 f:32"},
    {"layer_norm", "", "f:R,256 f:256 f:256"}, {"layer_norm_grad", "", "f:R,256 f:R,256 f:R f:R f:256"},
    {"rms_norm", "", "f:R,256 f:256"}, {"rms_norm_grad", "", "f:R,256 f:R,256 f:R f:256"},
    {"rope", "", "f:R,4,64,32 f:64,16 f:64,16"}, {"dropout", "p=0.1, id=1", "f:R,256 l l"},
    {"random_uniform", "shape=[R,256], id=1, dtype=f32", "l l"},
    {"sgd", "", "f:R,256 f:R,256 d f"}, {"sgd", "momentum=0.9", "f:R,256 f:R,256 d f f:R,256"},
    {"adamw", "", "f:R,256 f:R,256 f:R,256 f:R,256 d l f"},
};
const size_t calibrate_n_passes = sizeof calibrate_passes / sizeof calibrate_passes[0];

/* From one row to thousands, from heads' sizes to vocabularies'. */
const calibrate_matmul_t calibrate_matmuls[] = {
    {1, 1, 64, 64}, {1, 1, 512, 512}, {1, 8, 256, 256}, {1, 32, 32, 32}, {1, 32, 128, 128},
    {1, 32, 512, 512}, {1, 64, 10, 256}, {1, 128, 64, 128}, {1, 128, 128, 32}, {1, 128, 512, 128},
    {1, 128, 256, 1024}, {1, 256, 256, 256}, {1, 512, 64, 64}, {1, 512, 1024, 64}, {1, 512, 128, 2048},
    {1, 1024, 128, 512}, {1, 1024, 1024, 256}, {1, 2048, 64, 128}, {1, 2048, 256, 256},
    {1, 64, 64, 4096}, {1, 128, 128, 2048}, {1, 256, 512, 4096}, {1, 64, 4096, 128}, {1, 64, 128, 4096},
    {1, 4096, 16, 64}, {1, 8192, 32, 32}, {1, 4096, 64, 16},
    {16, 32, 32, 32}, {16, 128, 128, 32}, {16, 128, 32, 128}, {64, 64, 64, 64}, {64, 16, 16, 64},
};
const size_t calibrate_n_matmuls = sizeof calibrate_matmuls / sizeof calibrate_matmuls[0];

#define CONV(strides, pads) "strides=[" strides "], pads_low=[" pads "], pads_high=[" pads "], dilations=[1,1]"
#define FORWARD(s, p, x, w, y) {"conv", CONV(s, p), "f:" x " f:" w}
#define INPUT(s, p, x, w, y, sp) {"conv_grad_input", CONV(s, p) ", spatial=[" sp "]", "f:" y " f:" w}
#define WEIGHT(s, p, x, w, y, k) {"conv_grad_weight", CONV(s, p) ", kernel=[" k "]", "f:" x " f:" y}
#define ALL(s, p, x, w, y, sp, k) FORWARD(s, p, x, w, y), INPUT(s, p, x, w, y, sp), WEIGHT(s, p, x, w, y, k)
#define HEADS(causal, q, k, rows) \
    {"attention", causal, "f:" q " f:" k " f:" k}, \
    {"attention_grad", causal, "f:" q " f:" q " f:" k " f:" k " f:" q " f:" rows}
const calibrate_point_t calibrate_products[] = {
    ALL("1,1", "1,1", "32,3,32,32", "24,3,3,3", "32,24,32,32", "32,32", "3,3"),
    ALL("1,1", "1,1", "32,1,28,28", "32,1,3,3", "32,32,28,28", "28,28", "3,3"),
    ALL("1,1", "1,1", "32,24,24,24", "24,24,3,3", "32,24,24,24", "24,24", "3,3"),
    ALL("1,1", "1,1", "32,48,12,12", "48,48,3,3", "32,48,12,12", "12,12", "3,3"),
    ALL("1,1", "1,1", "32,96,6,6", "96,96,3,3", "32,96,6,6", "6,6", "3,3"),
    ALL("1,1", "1,1", "8,128,14,14", "128,128,3,3", "8,128,14,14", "14,14", "3,3"),
    ALL("1,1", "1,1", "8,256,7,7", "256,256,3,3", "8,256,7,7", "7,7", "3,3"),
    ALL("1,1", "1,1", "8,64,32,32", "64,64,3,3", "8,64,32,32", "32,32", "3,3"),
    ALL("2,2", "1,1", "32,24,24,24", "48,24,3,3", "32,48,12,12", "24,24", "3,3"),
    ALL("2,2", "1,1", "32,48,12,12", "96,48,3,3", "32,96,6,6", "12,12", "3,3"),
    ALL("2,2", "1,1", "8,128,14,14", "256,128,3,3", "8,256,7,7", "14,14", "3,3"),
    ALL("2,2", "3,3", "8,3,96,96", "48,3,7,7", "8,48,48,48", "96,96", "7,7"),
    ALL("1,1", "2,2", "32,1,28,28", "16,1,5,5", "32,16,28,28", "28,28", "5,5"),
    ALL("1,1", "2,2", "32,16,14,14", "32,16,5,5", "32,32,14,14", "14,14", "5,5"),
    ALL("1,1", "0,0", "16,64,16,16", "128,64,1,1", "16,128,16,16", "16,16", "1,1"),
    ALL("1,1", "0,0", "16,128,8,8", "32,128,1,1", "16,32,8,8", "8,8", "1,1"),
    ALL("2,2", "0,0", "32,24,24,24", "48,24,1,1", "32,48,12,12", "24,24", "1,1"),
    ALL("2,2", "0,0", "8,128,14,14", "256,128,1,1", "8,256,7,7", "14,14", "1,1"),
    HEADS("causal=true", "8,4,64,16", "8,4,64,16", "8,4,64"),
    HEADS("causal=true", "8,4,64,32", "8,2,64,32", "8,4,64"),
    HEADS("causal=true", "2,8,256,64", "2,8,256,64", "2,8,256"),
    HEADS("causal=true", "2,8,256,32", "2,4,256,32", "2,8,256"),
    HEADS("causal=true", "1,8,512,64", "1,8,512,64", "1,8,512"),
    HEADS("causal=true", "4,8,1,64", "4,8,256,64", "4,8,1"),
    HEADS("", "8,4,64,16", "8,4,64,16", "8,4,64"),
    HEADS("", "8,4,64,64", "8,4,64,64", "8,4,64"),
    HEADS("", "2,8,256,32", "2,8,256,32", "2,8,256"),
    HEADS("", "1,8,512,64", "1,8,512,64", "1,8,512"),
};
/* clang-format on */
const size_t calibrate_n_products = sizeof calibrate_products / sizeof calibrate_products[0];
