/* ONNX's convolutions and poolings. */
#include <string.h>

#include "import/onnx_reader.h"

enum { MAX_SPATIAL = 3 };

typedef struct window {
    int32_t n; /* spatial dims */
    int64_t kernel[MAX_SPATIAL], strides[MAX_SPATIAL], dilations[MAX_SPATIAL];
    int64_t low[MAX_SPATIAL], high[MAX_SPATIAL];
    bool same, same_upper; /* auto_pad */
} window_t;

/* n entries of a list attribute, each in least … limit. */
static void read_list(onnx_t *o, const char *name, int32_t n, int64_t default_value, int64_t least,
                      int64_t *out) {
    int64_t list[ONNX_MAX_LIST];
    int32_t given = onnx_ints(o, name, list);
    if (onnx_ok(o) && given >= 0 && given != n)
        onnx_fail(o, ST_INVALID, "attribute '%s' has %d entries, %d are needed", name, given, n);
    for (int32_t i = 0; i < n && onnx_ok(o); i++) {
        out[i] = given < 0 ? default_value : list[i];
        if (out[i] < least || out[i] > INT32_MAX)
            onnx_fail(o, ST_INVALID, "attribute '%s' has an entry of %lld", name,
                      (long long)out[i]);
    }
}

/* Strides, dilations, pads. auto_pad SAME is settled by the caller, who knows the sizes. */
static void read_window(onnx_t *o, window_t *w, bool dilated) {
    int64_t pads[2 * MAX_SPATIAL] = {0};
    for (int32_t i = 0; i < w->n; i++) w->dilations[i] = 1;
    read_list(o, "strides", w->n, 1, 1, w->strides);
    if (dilated) read_list(o, "dilations", w->n, 1, 1, w->dilations);
    read_list(o, "pads", 2 * w->n, 0, 0, pads);
    memcpy(w->low, pads, (size_t)w->n * sizeof *pads);
    memcpy(w->high, pads + w->n, (size_t)w->n * sizeof *pads);
    const char *how = onnx_string(o, "auto_pad", "NOTSET");
    w->same_upper = strcmp(how, "SAME_UPPER") == 0;
    w->same = w->same_upper || strcmp(how, "SAME_LOWER") == 0;
    bool none = strcmp(how, "NOTSET") == 0, valid = strcmp(how, "VALID") == 0;
    if (onnx_ok(o) && !w->same && !none && !valid)
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'auto_pad' is '%.32s'", how);
    for (int32_t i = 0; i < w->n && onnx_ok(o) && !none; i++)
        if (w->low[i] || w->high[i])
            onnx_fail(o, ST_INVALID, "attributes 'pads' and 'auto_pad' exclude each other");
}

/* Puts `total` pads on both sides; an odd one goes to the end if `upper`. */
static void spread(window_t *w, int32_t i, int64_t total, bool upper) {
    if (total < 0) total = 0;
    w->low[i] = upper ? total / 2 : total - total / 2;
    w->high[i] = total - w->low[i];
}

/* auto_pad SAME: as many pads as make the output ceil(input / stride). */
static void settle_same(const onnx_t *o, window_t *w, const ir_type_t *x) {
    for (int32_t i = 0; i < w->n && w->same && onnx_ok(o); i++) {
        int64_t in = x->dims[2 + i], out = (in + w->strides[i] - 1) / w->strides[i];
        int64_t covered = w->dilations[i] * (w->kernel[i] - 1) + 1;
        spread(w, i, (out - 1) * w->strides[i] + covered - in, w->same_upper);
    }
}

/* Spatial dims of x and weight; the kernel's size from the weight, which kernel_shape must repeat.
 */
static bool read_conv(onnx_t *o, ir_value_t x, ir_value_t weight, window_t *w) {
    ir_type_t tx = onnx_type(o, x), tw = onnx_type(o, weight);
    char text_x[IR_TYPE_TEXT_BYTES], text_w[IR_TYPE_TEXT_BYTES];
    *w = (window_t){.n = tw.rank - 2};
    if (onnx_ok(o) && (tx.rank != tw.rank || w->n < 1 || w->n > MAX_SPATIAL))
        onnx_fail(o, ST_INVALID, "X %s and W %s: equal ranks of 3 to %d are needed",
                  ir_type_text(&tx, text_x, sizeof text_x),
                  ir_type_text(&tw, text_w, sizeof text_w), MAX_SPATIAL + 2);
    if (!onnx_same_dtype(o, x, weight)) return false;
    memcpy(w->kernel, tw.dims + 2, (size_t)w->n * sizeof *w->kernel);
    int64_t given[MAX_SPATIAL];
    if (onnx_has(o, "kernel_shape")) {
        read_list(o, "kernel_shape", w->n, 1, 1, given);
        for (int32_t i = 0; i < w->n && onnx_ok(o); i++)
            if (given[i] != w->kernel[i])
                onnx_fail(o, ST_INVALID, "attribute 'kernel_shape' says %lld, W is %s",
                          (long long)given[i], ir_type_text(&tw, text_w, sizeof text_w));
    }
    for (int32_t i = 0; i < w->n && onnx_ok(o); i++)
        if (w->kernel[i] < 1 || w->kernel[i] > INT32_MAX || tx.dims[2 + i] > INT32_MAX)
            onnx_fail(o, ST_INVALID, "X %s and W %s: a spatial dim is empty or too large",
                      ir_type_text(&tx, text_x, sizeof text_x),
                      ir_type_text(&tw, text_w, sizeof text_w));
    read_window(o, w, true);
    return onnx_ok(o);
}

void onnx_conv(onnx_t *o) {
    ir_value_t inputs[] = {onnx_in(o, 0), onnx_in(o, 1), onnx_in_or_none(o, 2)};
    window_t w;
    if (!read_conv(o, inputs[0], inputs[1], &w)) return;
    ir_type_t type = onnx_type(o, inputs[0]);
    settle_same(o, &w, &type);
    ir_arg_t args[] = {IR_ARG_INTS("strides", w.strides, w.n), IR_ARG_INTS("pads_low", w.low, w.n),
                       IR_ARG_INTS("pads_high", w.high, w.n),
                       IR_ARG_INTS("dilations", w.dilations, w.n),
                       IR_ARG_INT("groups", onnx_int(o, "group", 1))};
    onnx_return(o, ir_b_node(&o->b, IR_OP_CONV, inputs[2] == IR_NONE ? 2 : 3, inputs, 5, args));
}

/* Sizes of a transposed convolution's result, and its pads where they follow from output_shape or
 * auto_pad. */
static void transposed_sizes(onnx_t *o, const ir_type_t *x, window_t *w, int64_t *spatial) {
    int64_t extra[MAX_SPATIAL], wanted[MAX_SPATIAL];
    read_list(o, "output_padding", w->n, 0, 0, extra);
    bool given = onnx_has(o, "output_shape");
    if (given) read_list(o, "output_shape", w->n, 0, 0, wanted);
    for (int32_t i = 0; i < w->n && onnx_ok(o); i++) {
        int64_t in = x->dims[2 + i], covered = w->dilations[i] * (w->kernel[i] - 1) + 1;
        int64_t full = (in - 1) * w->strides[i] + covered + extra[i];
        if (w->same && !given) wanted[i] = in * w->strides[i];
        if (w->same || given) spread(w, i, full - wanted[i], w->same_upper);
        spatial[i] = w->same || given ? wanted[i] : full - w->low[i] - w->high[i];
        if (spatial[i] < 0 ||
            (extra[i] && extra[i] >= w->strides[i] && extra[i] >= w->dilations[i]))
            onnx_fail(o, ST_INVALID, "output_padding %lld of spatial dim %d gives a size of %lld",
                      (long long)extra[i], i, (long long)spatial[i]);
    }
}

/* A transposed convolution is the gradient of a convolution with respect to its input. */
void onnx_conv_transpose(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), weight = onnx_in(o, 1), bias = onnx_in_or_none(o, 2);
    window_t w;
    if (!read_conv(o, x, weight, &w)) return;
    ir_type_t type = onnx_type(o, x);
    int64_t spatial[MAX_SPATIAL] = {0}, dims[IR_MAX_RANK];
    transposed_sizes(o, &type, &w, spatial);
    ir_arg_t args[] = {
        IR_ARG_INTS("strides", w.strides, w.n),        IR_ARG_INTS("pads_low", w.low, w.n),
        IR_ARG_INTS("pads_high", w.high, w.n),         IR_ARG_INTS("dilations", w.dilations, w.n),
        IR_ARG_INT("groups", onnx_int(o, "group", 1)), IR_ARG_INTS("spatial", spatial, w.n)};
    ir_value_t y = ir_b_node(&o->b, IR_OP_CONV_GRAD_INPUT, 2, (ir_value_t[]){x, weight}, 6, args);
    type = onnx_type(o, y);
    for (int32_t i = 0; i < type.rank; i++) dims[i] = i == 1 ? type.dims[1] : 1;
    if (bias != IR_NONE)
        y = ir_b_binary(&o->b, IR_OP_ADD, y, ir_b_reshape(&o->b, bias, type.rank, dims));
    onnx_return(o, y);
}

/* ---- pooling ---- */

static bool read_pool(onnx_t *o, ir_value_t x, window_t *w, bool dilated) {
    ir_type_t type = onnx_type(o, x);
    *w = (window_t){.n = type.rank - 2};
    if (onnx_ok(o) && (w->n < 1 || w->n > MAX_SPATIAL))
        onnx_fail(o, ST_INVALID, "an input of %d dims, 3 to %d are needed", type.rank,
                  MAX_SPATIAL + 2);
    if (onnx_ok(o) && !onnx_has(o, "kernel_shape"))
        onnx_fail(o, ST_PARSE, "attribute 'kernel_shape' is missing");
    if (!onnx_ok(o)) return false;
    read_list(o, "kernel_shape", w->n, 1, 1, w->kernel);
    read_window(o, w, dilated);
    settle_same(o, w, &type);
    return onnx_ok(o);
}

/* ONNX counts positions through the whole tensor: (n * C + c) * plane + position in the plane. */
static ir_value_t whole_index(onnx_t *o, ir_value_t index, const ir_type_t *x) {
    int64_t planes = onnx_product(x, 0, 2), plane = onnx_product(x, 2, x->rank), dims[IR_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++) dims[i] = i < 2 ? x->dims[i] : 1;
    ir_value_t base = ir_b_iota(&o->b, ir_type_make(IR_I64, 1, &planes), 0, 0, (double)plane);
    base = ir_b_reshape(&o->b, base, x->rank, dims);
    return ir_b_binary(&o->b, IR_OP_ADD, ir_b_cast(&o->b, index, IR_I64), base);
}

void onnx_max_pool(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    ir_type_t type = onnx_type(o, x);
    bool ceil = onnx_flag(o, "ceil_mode", false),
         small = type.dtype == IR_U8 || type.dtype == IR_I8;
    bool columns = onnx_flag(o, "storage_order", false);
    window_t w;
    if (!read_pool(o, x, &w, true)) return;
    if (small) x = ir_b_cast(&o->b, x, IR_F32); /* holds 8 bits exactly */
    ir_arg_t args[] = {
        IR_ARG_INTS("kernel", w.kernel, w.n),       IR_ARG_INTS("strides", w.strides, w.n),
        IR_ARG_INTS("pads_low", w.low, w.n),        IR_ARG_INTS("pads_high", w.high, w.n),
        IR_ARG_INTS("dilations", w.dilations, w.n), IR_ARG_BOOL("ceil", ceil)};
    ir_value_t y = ir_b_node(&o->b, IR_OP_MAX_POOL, 1, &x, 6, args);
    onnx_return(o, small ? ir_b_cast(&o->b, y, type.dtype) : y);
    if (!onnx_wants(o, 1)) return;
    if (columns) onnx_fail(o, ST_UNSUPPORTED, "indices with attribute 'storage_order' = 1");
    onnx_return(o, whole_index(o, y + 1, &type));
}

void onnx_average_pool(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    bool ceil = onnx_flag(o, "ceil_mode", false),
         count_pad = onnx_flag(o, "count_include_pad", false);
    window_t w;
    if (!read_pool(o, x, &w, true)) return;
    for (int32_t i = 0; i < w.n; i++)
        if (w.dilations[i] != 1) onnx_fail(o, ST_UNSUPPORTED, "an average pool with dilations");
    ir_arg_t args[] = {IR_ARG_INTS("kernel", w.kernel, w.n),
                       IR_ARG_INTS("strides", w.strides, w.n),
                       IR_ARG_INTS("pads_low", w.low, w.n),
                       IR_ARG_INTS("pads_high", w.high, w.n),
                       IR_ARG_BOOL("ceil", ceil),
                       IR_ARG_BOOL("count_pad", count_pad)};
    onnx_return(o, ir_b_node(&o->b, IR_OP_AVG_POOL, 1, &x, 6, args));
}
