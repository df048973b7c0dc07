/* What kernels work out from a problem (problem.h). Nothing here allocates: it
 * is called in launches. Random words are Philox's (base/hash.h). */
#include "kernels/problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

int64_t kern_ints(const kern_problem_t *problem, const char *key, uint32_t i, int64_t otherwise) {
    const ir_attr_t *attr = kern_attr(problem, key);
    return i < attr->ints.n ? attr->ints.v[i] : otherwise;
}

kern_split_t kern_split_at(const ir_type_t *type, int64_t axis) {
    kern_split_t split = {.axis = (int32_t)axis, .outer = 1, .n = 1, .inner = 1};
    for (int32_t i = 0; i < type->rank; i++) {
        if (i < axis) split.outer *= type->dims[i];
        if (i == axis) split.n = type->dims[i];
        if (i > axis) split.inner *= type->dims[i];
    }
    return split;
}

kern_split_t kern_split_axis(const kern_problem_t *problem, const ir_type_t *type) {
    return kern_split_at(type, kern_int(problem, "axis"));
}

void kern_strides(const ir_type_t *type, int64_t strides[IR_MAX_RANK]) {
    int64_t stride = 1;
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= type->dims[i];
    }
}

void kern_broadcast_strides(const ir_type_t *type, const ir_type_t *out,
                            int64_t strides[IR_MAX_RANK]) {
    int64_t own[IR_MAX_RANK];
    kern_strides(type, own);
    for (int32_t i = 0; i < out->rank; i++) {
        int32_t j = i - (out->rank - type->rank);
        strides[i] = j < 0 || (type->dims[j] == 1 && out->dims[i] != 1) ? 0 : own[j];
    }
}

void kern_reduced_dims(const kern_problem_t *problem, bool reduced[IR_MAX_RANK]) {
    const ir_attr_t *axes = kern_attr(problem, "axes");
    for (int32_t i = 0; i < IR_MAX_RANK; i++) reduced[i] = false;
    for (uint32_t i = 0; i < axes->ints.n; i++) reduced[axes->ints.v[i]] = true;
}

/* ---- windows ---- */

static void window_finish(kern_window_t *w) {
    w->in_size = w->in[0] * w->in[1] * w->in[2];
    w->out_size = w->out[0] * w->out[1] * w->out[2];
    w->kernel_size = w->kernel[0] * w->kernel[1] * w->kernel[2];
}

/* Sizes of x and y. */
static kern_window_t window_sizes(const kern_problem_t *problem, const ir_type_t *x,
                                  const ir_type_t *y) {
    const bool last = kern_int(problem, "channels_last") != 0;
    const int first = last ? 1 : 2; /* spatial dim */
    kern_window_t w = {.n = x->dims[0],
                       .c = x->dims[last ? x->rank - 1 : 1],
                       .groups = 1,
                       .spatial = x->rank - 2,
                       .last = last};
    for (int d = 0; d < 3; d++) {
        w.in[d] = w.out[d] = w.kernel[d] = w.stride[d] = w.dilation[d] = 1;
        w.low[d] = w.high[d] = 0;
    }
    for (int32_t i = 0; i < w.spatial; i++) {
        int d = 3 - w.spatial + i;
        w.in[d] = x->dims[first + i];
        w.out[d] = y->dims[first + i];
    }
    return w;
}

static kern_window_t window_start(const kern_problem_t *problem, const ir_type_t *x,
                                  const ir_type_t *y, bool dilated) {
    kern_window_t w = window_sizes(problem, x, y);
    for (int32_t i = 0; i < w.spatial; i++) {
        int d = 3 - w.spatial + i;
        w.stride[d] = kern_ints(problem, "strides", (uint32_t)i, 1);
        w.low[d] = kern_ints(problem, "pads_low", (uint32_t)i, 0);
        w.high[d] = kern_ints(problem, "pads_high", (uint32_t)i, 0);
        if (dilated) w.dilation[d] = kern_ints(problem, "dilations", (uint32_t)i, 1);
    }
    return w;
}

kern_window_t kern_conv_window(const kern_problem_t *problem, const ir_type_t *x,
                               const ir_type_t *w, const ir_type_t *y) {
    kern_window_t window = window_start(problem, x, y, true);
    window.o = w->dims[0];
    window.groups = kern_int(problem, "groups");
    for (int32_t i = 0; i < window.spatial; i++)
        window.kernel[3 - window.spatial + i] = w->dims[(window.last ? 1 : 2) + i];
    window_finish(&window);
    return window;
}

kern_window_t kern_pool_window(const kern_problem_t *problem, const ir_type_t *x,
                               const ir_type_t *y) {
    const ir_op_def_t *def = ir_op_def(problem->op);
    bool dilated = false;
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++)
        dilated |= strcmp(def->attrs[i].key, "dilations") == 0;
    kern_window_t window = window_start(problem, x, y, dilated);
    window.o = window.groups = window.c;
    for (int32_t i = 0; i < window.spatial; i++)
        window.kernel[3 - window.spatial + i] = kern_ints(problem, "kernel", (uint32_t)i, 1);
    window_finish(&window);
    return window;
}

kern_window_t kern_unpool_window(const kern_problem_t *problem) {
    if (kern_attr(problem, "kernel")->ints.n)
        return kern_pool_window(problem, &problem->out[0], &problem->in[0]);
    kern_window_t window = window_sizes(problem, &problem->out[0], &problem->in[0]);
    window.o = window.groups = window.c;
    for (int d = 0; d < 3; d++) window.kernel[d] = 0;
    window_finish(&window);
    return window;
}

void kern_window_taps(const kern_window_t *w, int d, int64_t o, int64_t *first, int64_t *last) {
    int64_t start = o * w->stride[d] - w->low[d], step = w->dilation[d];
    int64_t begin = start < 0 ? (-start + step - 1) / step : 0;
    int64_t room = w->in[d] - start; /* taps k with k · step < room are inside */
    int64_t end = room <= 0 ? 0 : (room + step - 1) / step;
    if (end > w->kernel[d]) end = w->kernel[d];
    *first = begin < end ? begin : end;
    *last = end;
}

void kern_window_outputs(const kern_window_t *w, int d, int64_t k, int64_t *first, int64_t *last) {
    int64_t shift = k * w->dilation[d] - w->low[d], stride = w->stride[d];
    int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
    int64_t room = w->in[d] - shift; /* outputs o with o · stride < room are inside */
    int64_t end = room <= 0 ? 0 : (room + stride - 1) / stride;
    *last = end < w->out[d] ? end : w->out[d];
    *first = begin < *last ? begin : *last;
}

int64_t kern_pool_count(const kern_window_t *w, const int64_t o[3], bool count_pad) {
    int64_t count = 1;
    for (int d = 0; d < 3; d++) {
        int64_t begin = o[d] * w->stride[d] - w->low[d], end = begin + w->kernel[d];
        /* a last window of ceil mode may reach past the padding: that part never counts */
        int64_t limit = w->in[d] + (count_pad ? w->high[d] : 0);
        if (end > limit) end = limit;
        if (!count_pad && begin < 0) begin = 0;
        count *= end > begin ? end - begin : 0;
    }
    return count;
}

/* ---- attention ---- */

kern_attention_t kern_attention_of(const kern_problem_t *problem, uint32_t first,
                                   uint32_t n_fixed) {
    const ir_type_t *q = &problem->in[first], *k = q + 1, *v = q + 2;
    const bool rows_first = kern_int(problem, "rows_first") != 0;
    const int head = rows_first ? 2 : 1, row = rows_first ? 1 : 2;
    kern_attention_t a = {.b = q->dims[0],
                          .h = q->dims[head],
                          .g = k->dims[head],
                          .m = q->dims[row],
                          .s = k->dims[row],
                          .d = q->dims[3],
                          .e = v->dims[3],
                          .rows_first = rows_first};
    a.causal = kern_int(problem, "causal") != 0;
    a.window = kern_int(problem, "window");
    a.offset = kern_int(problem, "offset");
    a.part = problem->op == IR_OP_ATTENTION_GRAD && kern_int(problem, "part") != 0;
    a.scale = kern_float(problem, "scale");
    if (a.scale == 0) a.scale = a.d ? 1 / sqrt((double)a.d) : 1;
    if (problem->n_in > n_fixed) {
        a.mask = &problem->in[n_fixed];
        ir_type_t full = ir_type_make(IR_F32, 4, (int64_t[]){a.b, a.h, a.m, a.s});
        int64_t strides[IR_MAX_RANK];
        kern_broadcast_strides(a.mask, &full, strides);
        for (int i = 0; i < 4; i++) a.mask_stride[i] = strides[i];
    }
    return a;
}

void kern_attention_keys(const kern_attention_t *a, int64_t m, int64_t *first, int64_t *last) {
    const int64_t at = m + a->offset;
    int64_t begin = 0, end = a->s;
    if (a->causal && at + 1 < end) end = at + 1;
    if (a->window > 0) {
        if (at >= a->window) begin = at - a->window + 1;
        if (a->window < end - at) end = at + a->window;
    }
    if (end < 0) end = 0;
    *first = begin < end ? begin : end;
    *last = end;
}

void kern_attention_span(const kern_attention_t *a, int64_t m, int64_t rows, int64_t *first,
                         int64_t *last) {
    int64_t ignored;
    *first = *last = 0;
    if (rows < 1) return;
    kern_attention_keys(a, m, first, &ignored);
    kern_attention_keys(a, m + rows - 1, &ignored, last);
    if (*first > *last) *first = *last;
}

/* ---- errors ---- */

st_status_t kern_bad_index(int64_t index, int64_t position, int32_t dim, int64_t size) {
    return FAIL(ST_INVALID,
                "index %lld at position %lld is out of range: dim %d has size %lld, so indices "
                "from %lld to %lld are valid",
                (long long)index, (long long)position, (int)dim, (long long)size, -(long long)size,
                (long long)size - 1);
}

st_status_t kern_bad_label(int64_t label, int64_t row, int64_t n_classes, int64_t ignore_index) {
    return FAIL(ST_INVALID,
                "label %lld of row %lld is neither one of the %lld classes nor the ignored label "
                "%lld",
                (long long)label, (long long)row, (long long)n_classes, (long long)ignore_index);
}

st_status_t kern_check_indices(const kern_problem_t *problem, uint32_t input, const void *data,
                               int32_t dim, int64_t size) {
    const ir_type_t *type = &problem->in[input];
    int64_t n = ir_type_elements(type);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = kern_index_at(type->dtype, data, i);
        if (index < -size || index >= size) return kern_bad_index(index, i, dim, size);
    }
    return ST_OK;
}

st_status_t kern_check_labels(const kern_problem_t *problem, uint32_t input, const void *data,
                              int64_t n_classes) {
    const ir_type_t *type = &problem->in[input];
    return kern_check_label_range(type->dtype, data, ir_type_elements(type), n_classes,
                                  kern_int(problem, "ignore_index"));
}

st_status_t kern_check_label_range(ir_dtype_t dtype, const void *data, int64_t n, int64_t n_classes,
                                   int64_t ignore) {
    for (int64_t i = 0; i < n; i++) {
        int64_t label = kern_index_at(dtype, data, i);
        if (label != ignore && (label < 0 || label >= n_classes))
            return kern_bad_label(label, i, n_classes, ignore);
    }
    return ST_OK;
}

/* ---- random ---- */

uint32_t kern_random_word(int64_t seed, int64_t id, int64_t step, int64_t element) {
    uint32_t words[4];
    uint64_t high = (uint64_t)id << 32 | ((uint64_t)step & 0xffffffffu);
    st_philox((uint64_t)seed, (uint64_t)element >> 2, high, words);
    return words[element & 3];
}

kern_global_t kern_global_of(const kern_problem_t *problem, const ir_type_t *type) {
    kern_global_t global = {.rank = type->rank, .whole = true};
    ir_type_t whole = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        global.dims[i] = type->dims[i];
        global.begin[i] = kern_ints(problem, "begin", (uint32_t)i, 0);
        whole.dims[i] = kern_ints(problem, "global", (uint32_t)i, type->dims[i]);
        if (whole.dims[i] != type->dims[i]) global.whole = false;
    }
    kern_strides(&whole, global.strides);
    global.elements = ir_type_elements(&whole);
    return global;
}

/* Wraps, as the counters of random numbers do. */
void kern_global_at_part(kern_global_t *global, int64_t part) {
    global->base = (int64_t)((uint64_t)part * (uint64_t)global->elements);
}

int64_t kern_global_index(const kern_global_t *global, int64_t element) {
    if (global->whole) return (int64_t)((uint64_t)global->base + (uint64_t)element);
    int64_t index = global->base;
    for (int32_t i = global->rank - 1; i >= 0; i--) {
        index =
            (int64_t)((uint64_t)index + (uint64_t)((element % global->dims[i] + global->begin[i]) *
                                                   global->strides[i]));
        element /= global->dims[i];
    }
    return index;
}
