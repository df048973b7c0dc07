/* ATen's convolutions and poolings. */
#include <string.h>

#include "import/aten.h"

enum { MAX_SPATIAL = 3 };

typedef struct window {
    int32_t n; /* spatial dims */
    int64_t kernel[MAX_SPATIAL], strides[MAX_SPATIAL], pads[MAX_SPATIAL], pads_high[MAX_SPATIAL],
        dilations[MAX_SPATIAL];
} window_t;

static void check_range(aten_t *a, const char *what, int32_t n, const int64_t *values,
                        int64_t least) {
    for (int32_t i = 0; i < n && aten_ok(a); i++)
        if (values[i] < least || values[i] > INT32_MAX)
            aten_fail(a, ST_INVALID, "%s %lld of spatial dim %d", what, (long long)values[i], i);
}

/* Padding is a number, a list, or "valid" / "same" (strides 1; an odd remainder goes to the end).
 */
static void read_padding(aten_t *a, window_t *w, const char *text) {
    if (!text) {
        aten_ints_n(a, "padding", w->n, 0, w->pads);
    } else if (strcmp(text, "valid") == 0 || strcmp(text, "same") == 0) {
        for (int32_t i = 0; i < w->n; i++) {
            int64_t total = text[0] == 's' ? w->dilations[i] * (w->kernel[i] - 1) : 0;
            w->pads[i] = total / 2;
            w->pads_high[i] = total - total / 2;
            if (text[0] == 's' && w->strides[i] != 1)
                aten_fail(a, ST_INVALID, "argument 'padding' is 'same' with a stride");
        }
        return;
    } else {
        aten_fail(a, ST_UNSUPPORTED, "argument 'padding' is '%s'", text);
    }
    memcpy(w->pads_high, w->pads, sizeof w->pads);
}

/* Adds the batch dim that an unbatched input lacks. */
static ir_value_t to_batch(aten_t *a, ir_value_t x, int32_t spatial, bool *out_added) {
    ir_type_t type = aten_type(a, x);
    *out_added = aten_ok(a) && type.rank == spatial + 1;
    if (aten_ok(a) && !*out_added && type.rank != spatial + 2)
        aten_fail(a, ST_INVALID, "an input of %d dims, %d or %d are needed", type.rank, spatial + 1,
                  spatial + 2);
    if (!*out_added) return x;
    int64_t dims[IR_MAX_RANK] = {1};
    memcpy(dims + 1, type.dims, (size_t)type.rank * sizeof *dims);
    return ir_b_reshape(&a->b, x, type.rank + 1, dims);
}

static ir_value_t from_batch(aten_t *a, ir_value_t x, bool added) {
    ir_type_t type = aten_type(a, x);
    return added && aten_ok(a) ? ir_b_reshape(&a->b, x, type.rank - 1, type.dims + 1) : x;
}

/* bias[C] beside y[N, C, spatial…] */
static ir_value_t add_channels(aten_t *a, ir_value_t y, ir_value_t bias) {
    ir_type_t type = aten_type(a, y);
    int64_t dims[IR_MAX_RANK];
    for (int32_t i = 0; i < type.rank; i++) dims[i] = i == 1 ? type.dims[1] : 1;
    return ir_b_binary(&a->b, IR_OP_ADD, y, ir_b_reshape(&a->b, bias, type.rank, dims));
}

static ir_value_t conv(aten_t *a, ir_value_t x, ir_value_t weight, ir_value_t bias,
                       const window_t *w, int64_t groups) {
    ir_value_t inputs[] = {x, weight, bias};
    ir_arg_t args[] = {IR_ARG_INTS("strides", w->strides, w->n),
                       IR_ARG_INTS("pads_low", w->pads, w->n),
                       IR_ARG_INTS("pads_high", w->pads_high, w->n),
                       IR_ARG_INTS("dilations", w->dilations, w->n), IR_ARG_INT("groups", groups)};
    return ir_b_node(&a->b, IR_OP_CONV, bias == IR_NONE ? 2 : 3, inputs, 5, args);
}

/* A transposed convolution is the gradient of a convolution with respect to its input; the output's
 * size follows from strides, and output_padding settles what a stride leaves open. */
static ir_value_t conv_transpose(aten_t *a, ir_value_t x, ir_value_t weight, ir_value_t bias,
                                 const window_t *w, const int64_t *extra, int64_t groups) {
    ir_type_t type = aten_type(a, x);
    int64_t spatial[MAX_SPATIAL] = {0};
    check_range(a, "input size", w->n, type.dims + 2, 0);
    check_range(a, "output_padding", w->n, extra, 0);
    for (int32_t i = 0; i < w->n && aten_ok(a); i++) {
        int64_t reach = w->dilations[i] * (w->kernel[i] - 1);
        spatial[i] = (type.dims[2 + i] - 1) * w->strides[i] - 2 * w->pads[i] + reach + extra[i] + 1;
        if ((extra[i] >= w->strides[i] && extra[i] >= w->dilations[i]) || spatial[i] < 0)
            aten_fail(a, ST_INVALID, "output_padding %lld of spatial dim %d gives a size of %lld",
                      (long long)extra[i], i, (long long)spatial[i]);
    }
    ir_arg_t args[] = {IR_ARG_INTS("strides", w->strides, w->n),
                       IR_ARG_INTS("pads_low", w->pads, w->n),
                       IR_ARG_INTS("pads_high", w->pads_high, w->n),
                       IR_ARG_INTS("dilations", w->dilations, w->n),
                       IR_ARG_INT("groups", groups),
                       IR_ARG_INTS("spatial", spatial, w->n)};
    ir_value_t y = ir_b_node(&a->b, IR_OP_CONV_GRAD_INPUT, 2, (ir_value_t[]){x, weight}, 6, args);
    return bias == IR_NONE ? y : add_channels(a, y, bias);
}

/* conv1d/2d/3d, conv_transpose*d and convolution. spatial 0: as the weight says. */
static void convolve(aten_t *a, int32_t spatial, bool transposed, const char *padding) {
    ir_value_t x = aten_tensor(a, "input"), weight = aten_tensor(a, "weight");
    ir_value_t bias = aten_tensor_or_none(a, "bias");
    ir_type_t type = aten_type(a, weight);
    window_t w = {.n = spatial ? spatial : type.rank - 2};
    if (aten_ok(a) && (type.rank != w.n + 2 || w.n < 1 || w.n > MAX_SPATIAL))
        aten_fail(a, ST_INVALID, "a weight of %d dims", type.rank);
    if (!aten_ok(a)) return;
    memcpy(w.kernel, type.dims + 2, (size_t)w.n * sizeof *w.kernel);
    int64_t extra[MAX_SPATIAL];
    aten_ints_n(a, "stride", w.n, 1, w.strides);
    aten_ints_n(a, "dilation", w.n, 1, w.dilations);
    aten_ints_n(a, "output_padding", w.n, 0, extra);
    int64_t groups = aten_int(a, "groups", 1);
    check_range(a, "kernel", w.n, w.kernel, 1);
    check_range(a, "stride", w.n, w.strides, 1);
    check_range(a, "dilation", w.n, w.dilations, 1);
    if (!aten_ok(a)) return;
    read_padding(a, &w, padding);
    check_range(a, "padding", w.n, w.pads, 0);
    bool added = false;
    x = to_batch(a, x, w.n, &added);
    ir_value_t y = transposed ? conv_transpose(a, x, weight, bias, &w, extra, groups)
                              : conv(a, x, weight, bias, &w, groups);
    aten_return(a, from_batch(a, y, added));
}

/* arg: spatial dims; plus 10 where padding is a string */
void aten_conv(aten_t *a) {
    bool by_name = a->op->arg > 10;
    convolve(a, a->op->arg % 10, false, by_name ? aten_string(a, "padding", "valid") : NULL);
}

void aten_conv_transpose(aten_t *a) {
    convolve(a, a->op->arg, true, NULL);
}

void aten_convolution(aten_t *a) {
    bool transposed = aten_bool(a, "transposed", false);
    convolve(a, 0, transposed, NULL);
}

/* ---- pooling ---- */

static bool read_pool(aten_t *a, int32_t spatial, window_t *w) {
    *w = (window_t){.n = spatial};
    int64_t stride[ATEN_MAX_LIST];
    aten_ints_n(a, "kernel_size", spatial, 0, w->kernel);
    memcpy(w->strides, w->kernel, sizeof w->strides);
    if (aten_ints(a, "stride", stride) > 0) aten_ints_n(a, "stride", spatial, 1, w->strides);
    aten_ints_n(a, "dilation", spatial, 1, w->dilations);
    read_padding(a, w, NULL);
    check_range(a, "kernel", spatial, w->kernel, 1);
    check_range(a, "stride", spatial, w->strides, 1);
    check_range(a, "dilation", spatial, w->dilations, 1);
    check_range(a, "padding", spatial, w->pads, 0);
    for (int32_t i = 0; i < spatial && aten_ok(a); i++)
        if (w->pads[i] > w->kernel[i] / 2)
            aten_fail(a, ST_INVALID, "padding %lld is more than half of kernel %lld",
                      (long long)w->pads[i], (long long)w->kernel[i]);
    return aten_ok(a);
}

/* arg: spatial dims. The index, PyTorch's flat position in the plane, comes second where asked for.
 */
void aten_max_pool(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    bool ceil = aten_bool(a, "ceil_mode", false), added = false;
    window_t w;
    if (!read_pool(a, a->op->arg, &w)) return;
    x = to_batch(a, x, w.n, &added);
    ir_arg_t args[] = {
        IR_ARG_INTS("kernel", w.kernel, w.n),       IR_ARG_INTS("strides", w.strides, w.n),
        IR_ARG_INTS("pads_low", w.pads, w.n),       IR_ARG_INTS("pads_high", w.pads, w.n),
        IR_ARG_INTS("dilations", w.dilations, w.n), IR_ARG_BOOL("ceil", ceil)};
    ir_value_t y = ir_b_node(&a->b, IR_OP_MAX_POOL, 1, &x, 6, args);
    aten_return(a, from_batch(a, y, added));
    if (aten_ok(a) && strstr(a->op->name, "with_indices"))
        aten_return(a, from_batch(a, ir_b_cast(&a->b, y + 1, IR_I64), added));
}

static ir_value_t avg_pool(aten_t *a, ir_value_t x, const window_t *w, bool ceil, bool count_pad) {
    ir_arg_t args[] = {IR_ARG_INTS("kernel", w->kernel, w->n),
                       IR_ARG_INTS("strides", w->strides, w->n),
                       IR_ARG_INTS("pads_low", w->pads, w->n),
                       IR_ARG_INTS("pads_high", w->pads, w->n),
                       IR_ARG_BOOL("ceil", ceil),
                       IR_ARG_BOOL("count_pad", count_pad)};
    return ir_b_node(&a->b, IR_OP_AVG_POOL, 1, &x, 6, args);
}

void aten_avg_pool(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    bool ceil = aten_bool(a, "ceil_mode", false),
         count_pad = aten_bool(a, "count_include_pad", true);
    bool added = false;
    window_t w;
    if (aten_has(a, "divisor_override"))
        aten_fail(a, ST_UNSUPPORTED, "argument 'divisor_override' is not supported");
    if (!read_pool(a, a->op->arg, &w)) return;
    x = to_batch(a, x, w.n, &added);
    aten_return(a, from_batch(a, avg_pool(a, x, &w, ceil, count_pad), added));
}

/* To size 1: a mean. To a divisor of the size: an average pool. Else the windows differ in size. */
void aten_adaptive_avg_pool(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    window_t w = {.n = a->op->arg};
    int64_t sizes[MAX_SPATIAL], axes[MAX_SPATIAL];
    bool added = false, to_one = true;
    aten_ints_n(a, "output_size", w.n, 1, sizes);
    x = to_batch(a, x, w.n, &added);
    ir_type_t type = aten_type(a, x);
    for (int32_t i = 0; i < w.n && aten_ok(a); i++) {
        int64_t size = type.dims[2 + i];
        if (sizes[i] < 1 || size < 1 || size % sizes[i] != 0)
            aten_fail(a, ST_UNSUPPORTED,
                      "adaptive pooling of %lld to %lld: the size must be a multiple of the output",
                      (long long)size, (long long)sizes[i]);
        else
            w.kernel[i] = w.strides[i] = size / sizes[i];
        axes[i] = 2 + i;
        to_one &= sizes[i] == 1;
    }
    if (!aten_ok(a)) return;
    ir_value_t y = to_one ? ir_b_reduce(&a->b, IR_OP_REDUCE_MEAN, x, w.n, axes, true)
                          : avg_pool(a, x, &w, false, true);
    aten_return(a, from_batch(a, y, added));
}
