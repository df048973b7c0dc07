/* Window arithmetic. See window.h. */
#include "ir/window.h"

#include <string.h>

/* Far above any model, low enough that no sum or product of two overflows. */
static const int64_t WINDOW_LIMIT = INT64_C(1) << 24;

ir_type_t ir_channels_first(const ir_type_t *stored, bool last) {
    ir_type_t plain = *stored;
    if (!last || stored->rank < 3) return plain;
    plain.dims[1] = stored->dims[stored->rank - 1];
    for (int32_t i = 2; i < stored->rank; i++) plain.dims[i] = stored->dims[i - 1];
    return plain;
}

ir_type_t ir_channels_stored(const ir_type_t *plain, bool last) {
    ir_type_t stored = *plain;
    if (!last || plain->rank < 3) return stored;
    for (int32_t i = 2; i < plain->rank; i++) stored.dims[i - 1] = plain->dims[i];
    stored.dims[plain->rank - 1] = plain->dims[1];
    return stored;
}

uint32_t ir_window_free_dims(const ir_op_ctx_t *ctx) {
    return 1u << 0 | 1u << (ir_ctx_int(ctx, "channels_last") ? ctx->in[0].rank - 1 : 1);
}

static bool op_has_attr(ir_op_t op, const char *key) {
    const ir_op_def_t *def = ir_op_def(op);
    for (uint32_t i = 0; def->attrs && def->attrs[i].key; i++)
        if (strcmp(def->attrs[i].key, key) == 0) return true;
    return false;
}

st_status_t ir_window_ints(const ir_op_ctx_t *ctx, const char *key, int32_t n, int64_t least,
                           int64_t *out) {
    const ir_attr_t *attr = ir_ctx_attr(ctx, key);
    if (attr->ints.n != (uint32_t)n)
        return FAIL(ST_INVALID, "%s has %u entries, %d spatial dims need as many", key,
                    attr->ints.n, (int)n);
    for (int32_t i = 0; i < n; i++) {
        out[i] = attr->ints.v[i];
        if (out[i] < least)
            return FAIL(ST_INVALID, "%s[%d] is %lld, at least %lld is needed", key, (int)i,
                        (long long)out[i], (long long)least);
    }
    return ST_OK;
}

static st_status_t window_limit(const char *key, int32_t n, const int64_t *values) {
    for (int32_t i = 0; i < n; i++)
        if (values[i] > WINDOW_LIMIT)
            return FAIL(ST_INVALID, "%s[%d] is %lld, the limit is %lld", key, (int)i,
                        (long long)values[i], (long long)WINDOW_LIMIT);
    return ST_OK;
}

st_status_t ir_window_read(const ir_op_ctx_t *ctx, int32_t n, const int64_t *in,
                           const int64_t *kernel, ir_window_t *out_window) {
    ir_window_t w = {.n = n};
    if (n < 1 || n > IR_MAX_SPATIAL)
        return FAIL(ST_INVALID, "%d spatial dims given, 1 to %d are supported", (int)n,
                    IR_MAX_SPATIAL);
    for (int32_t i = 0; i < n; i++) w.in[i] = in[i], w.dilation[i] = 1;
    if (kernel)
        memcpy(w.kernel, kernel, (size_t)n * sizeof *kernel);
    else
        TRY(ir_window_ints(ctx, "kernel", n, 1, w.kernel));
    TRY(ir_window_ints(ctx, "strides", n, 1, w.stride));
    TRY(ir_window_ints(ctx, "pads_low", n, 0, w.low));
    TRY(ir_window_ints(ctx, "pads_high", n, 0, w.high));
    if (op_has_attr(ctx->op, "dilations")) TRY(ir_window_ints(ctx, "dilations", n, 1, w.dilation));
    if (op_has_attr(ctx->op, "ceil")) w.ceil = ir_ctx_int(ctx, "ceil") != 0;
    TRY(window_limit("kernel", n, w.kernel));
    TRY(window_limit("strides", n, w.stride));
    TRY(window_limit("pads_low", n, w.low));
    TRY(window_limit("pads_high", n, w.high));
    TRY(window_limit("dilations", n, w.dilation));
    for (int32_t i = 0; i < n; i++) {
        if (w.kernel[i] < 1)
            return FAIL(ST_INVALID, "the kernel's spatial dim %d is empty", (int)i);
        int64_t covered = (w.kernel[i] - 1) * w.dilation[i] + 1;
        int64_t padded = w.in[i] + w.low[i] + w.high[i], room = padded - covered;
        if (room < 0)
            return FAIL(
                ST_INVALID,
                "spatial dim %d: a window covers %lld positions (kernel %lld, dilation %lld), "
                "the padded input has %lld (%lld + %lld + %lld)",
                (int)i, (long long)covered, (long long)w.kernel[i], (long long)w.dilation[i],
                (long long)padded, (long long)w.low[i], (long long)w.in[i], (long long)w.high[i]);
        w.out[i] = (w.ceil ? (room + w.stride[i] - 1) / w.stride[i] : room / w.stride[i]) + 1;
        /* a window that starts in the high padding sees nothing */
        if (w.ceil && (w.out[i] - 1) * w.stride[i] >= w.in[i] + w.low[i]) w.out[i]--;
    }
    *out_window = w;
    return ST_OK;
}

/* Whether a window that starts at `start` has a position within 0 … in - 1. */
static bool window_sees(const ir_window_t *w, int32_t i, int64_t start) {
    int64_t first = start >= 0 ? 0 : (-start + w->dilation[i] - 1) / w->dilation[i];
    return first < w->kernel[i] && start + first * w->dilation[i] < w->in[i];
}

st_status_t ir_window_need_items(const ir_window_t *w) {
    for (int32_t i = 0; i < w->n; i++) {
        if (w->out[i] == 0) continue;
        /* windows that start inside the input see their first position; the last start is the
         * largest */
        bool fine = window_sees(w, i, (w->out[i] - 1) * w->stride[i] - w->low[i]);
        for (int64_t o = 0; fine && o < w->out[i] && o * w->stride[i] < w->low[i]; o++)
            fine = window_sees(w, i, o * w->stride[i] - w->low[i]);
        if (!fine)
            return FAIL(
                ST_UNSUPPORTED,
                "spatial dim %d: some window lies in the padding only (input %lld, kernel %lld, "
                "stride %lld, pads %lld and %lld, dilation %lld); use smaller pads",
                (int)i, (long long)w->in[i], (long long)w->kernel[i], (long long)w->stride[i],
                (long long)w->low[i], (long long)w->high[i], (long long)w->dilation[i]);
    }
    return ST_OK;
}

void ir_window_args(const ir_node_info_t *node, ir_arg_t *args) {
    static const char *const keys[4] = {"strides", "pads_low", "pads_high", "dilations"};
    for (int i = 0; i < 4; i++) args[i] = (ir_arg_t){keys[i], *ir_node_attr(node, keys[i])};
}
