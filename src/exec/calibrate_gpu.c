/* A GPU's description from single ops (calibrate_gpu.h).
 *
 * Rates are of one type, bf16: f16 runs at the same, and what a step does in other types is little.
 * Products' rows, widths and heads are between those of what is trained, and of no model;
 * convolutions are a ResNet-50's at another batch, since libraries take other ways for other
 * windows. Statements of the base that are measured anew are left out, with all rates of the same
 * op, variant and type, so that old and new ones are not mixed; its kernels follow at the end as
 * they are. Linear in the base's lines. */
#include "exec/calibrate_gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "compile/target.h"
#include "exec/calibrate.h"
#include "kernels/table.h"

typedef struct writer {
    const target_t *base;
    const calibrate_timer_t *timer;
    st_text_t text;
    double launch_us;
    double kernel_gflops[IR_OP_END]; /* of kernels that the base has a rate of; 0: not measured */
} writer_t;

static const char *number(double value, char *buffer) {
    return st_double_text(value, 4, buffer);
}

/* Microseconds of a point, and of its work what `out_work` is; the bench is closed. */
static st_status_t time_point(writer_t *w, const calibrate_point_t *p, ir_dtype_t dtype,
                              int64_t rows, bool near, work_t *out_work, double *out_us) {
    bench_t bench;
    st_status_t status = bench_open(&bench, p, dtype, rows);
    if (status == ST_OK) status = w->timer->op(w->timer->context, &bench, near, out_us);
    if (status == ST_OK && !(*out_us > 0))
        status = FAIL(ST_DEVICE, "the device's clock says %g us", *out_us);
    if (status == ST_OK) *out_work = bench.work;
    bench_close(&bench);
    return status == ST_OK ? ST_OK : st_error_context(status, "measuring %s(%s)", p->op, p->shapes);
}

/* ---- the device ---- */

static st_status_t put_device(writer_t *w) {
    static const calibrate_point_t tiny = {"add", "", "f:4 f:4"},
                                   add = {"add", "", "f:R,256 f:R,256"};
    const double far_bytes = 0x1p28, cache = (double)w->base->machine.cache_bytes[1];
    const double sizes[] = {cache / 4, 0.8 * cache, far_bytes};
    char text[ST_NUMBER_BYTES];
    double us, gbps = 0;
    work_t work;
    bench_t bench;
    st_status_t status = bench_open(&bench, &tiny, IR_F32, 0);
    if (status == ST_OK) status = w->timer->launch(w->timer->context, &bench, &w->launch_us);
    bench_close(&bench);
    TRY(status);
    TRY(st_text_put(&w->text, "launch_us %s\n", number(w->launch_us, text)));
    for (int i = 0; i < 3; i++) {
        if (sizes[i] < 1) continue; /* the base tells of no such cache */
        const int64_t rows = (int64_t)(sizes[i] / (3 * 256 * sizeof(float)));
        TRY(time_point(w, &add, IR_F32, rows, sizes[i] < far_bytes, &work, &us));
        const double took = fmax(us - w->launch_us, us / 2);
        gbps = (work.bytes_read + work.bytes_written) / took * 1e-3;
        TRY(st_text_put(&w->text, "bandwidth %.0fKiB %s\n", sizes[i] / 1024, number(gbps, text)));
    }
    return st_text_put(&w->text, "memory_gbps %s\n", number(gbps, text));
}

/* ---- rates ---- */

/* Of the work's products or, if it has none, of all its arithmetic; launches are counted apart. */
static double gflops_of(const writer_t *w, const work_t *work, double us) {
    return work->flop / fmax(us - w->launch_us, us / 2) * 1e-3;
}

static st_status_t put_rate(writer_t *w, const char *op, const char *attrs, const char *shapes) {
    const calibrate_point_t p = {op, attrs, shapes};
    char dims[256] = "", text[ST_NUMBER_BYTES];
    double us;
    work_t work;
    TRY(time_point(w, &p, IR_BF16, 0, false, &work, &us));
    for (size_t i = 0; work_dim_name(i); i++) {
        const char *name = work_dim_name(i);
        const int64_t value = *work_dim_of(&work.dims, name, strlen(name));
        const size_t used = strlen(dims);
        if (value > 0)
            snprintf(dims + used, sizeof dims - used, " %s=%lld", name, (long long)value);
    }
    return st_text_put(&w->text, "rate %s%s%s bf16%s gflops=%s\n", op, work.variant[0] ? "." : "",
                       work.variant, dims, number(gflops_of(w, &work, us), text));
}

/* A linear layer's three: y = x wᵀ, dx = dy w, dw = dyᵀ x. */
static st_status_t put_products(writer_t *w) {
    static const int rows[] = {16384, 32768};
    static const int layers[][2] = {{512, 512},   {512, 2048},  {2048, 512},  {1024, 1024},
                                    {1024, 3072}, {3072, 1024}, {1024, 24576}}; /* in, out */
    char shapes[96];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t j = 0; j < sizeof layers / sizeof layers[0]; j++) {
            const int m = rows[i], k = layers[j][0], n = layers[j][1];
            snprintf(shapes, sizeof shapes, "f:%d,%d f:%d,%d", m, k, n, k);
            TRY(put_rate(w, "matmul", "transpose_b=true", shapes));
            snprintf(shapes, sizeof shapes, "f:%d,%d f:%d,%d", m, n, n, k);
            TRY(put_rate(w, "matmul", "", shapes));
            snprintf(shapes, sizeof shapes, "f:%d,%d f:%d,%d", m, n, m, k);
            TRY(put_rate(w, "matmul", "transpose_a=true", shapes));
        }
    return ST_OK;
}

typedef struct layer {
    int in, out, side, taps, stride, low, high; /* channels, positions a side, taps a side */
} layer_t;

static st_status_t put_convolution(writer_t *w, int batch, const layer_t *l) {
    const int made = (l->side + l->low + l->high - l->taps) / l->stride + 1;
    char window[192], attrs[256], shapes[128], x[48], y[48], weight[48];
    snprintf(window, sizeof window,
             "strides=[%d,%d], pads_low=[%d,%d], pads_high=[%d,%d], dilations=[1,1], "
             "channels_last=true",
             l->stride, l->stride, l->low, l->low, l->high, l->high);
    snprintf(x, sizeof x, "f:%d,%d,%d,%d", batch, l->side, l->side, l->in);
    snprintf(y, sizeof y, "f:%d,%d,%d,%d", batch, made, made, l->out);
    snprintf(weight, sizeof weight, "f:%d,%d,%d,%d", l->out, l->taps, l->taps, l->in);
    snprintf(shapes, sizeof shapes, "%s %s", x, weight);
    TRY(put_rate(w, "conv", window, shapes));
    snprintf(shapes, sizeof shapes, "%s %s", x, y);
    snprintf(attrs, sizeof attrs, "%s, kernel=[%d,%d]", window, l->taps, l->taps);
    TRY(put_rate(w, "conv_grad_weight", attrs, shapes));
    if (l->in < 8) return ST_OK; /* the first layer's input is no activation */
    snprintf(shapes, sizeof shapes, "%s %s", y, weight);
    snprintf(attrs, sizeof attrs, "%s, spatial=[%d,%d]", window, l->side, l->side);
    return put_rate(w, "conv_grad_input", attrs, shapes);
}

static st_status_t put_convolutions(writer_t *w) {
    enum { BATCH = 192 };
    static const layer_t layers[] = {
        {3, 64, 224, 7, 2, 3, 3},    {16, 64, 112, 4, 1, 2, 1},   {64, 64, 56, 1, 1, 0, 0},
        {64, 256, 56, 1, 1, 0, 0},   {256, 64, 56, 1, 1, 0, 0},   {256, 128, 56, 1, 1, 0, 0},
        {128, 512, 28, 1, 1, 0, 0},  {512, 128, 28, 1, 1, 0, 0},  {512, 256, 28, 1, 1, 0, 0},
        {256, 1024, 14, 1, 1, 0, 0}, {1024, 256, 14, 1, 1, 0, 0}, {512, 2048, 7, 1, 1, 0, 0},
        {2048, 512, 7, 1, 1, 0, 0},  {256, 512, 56, 1, 2, 0, 0},  {1024, 2048, 14, 1, 2, 0, 0},
        {128, 128, 56, 3, 2, 1, 1},  {256, 256, 28, 3, 2, 1, 1},  {512, 512, 14, 3, 2, 1, 1},
        {64, 64, 56, 3, 1, 1, 1},    {128, 128, 28, 3, 1, 1, 1},  {256, 256, 14, 3, 1, 1, 1},
        {512, 512, 7, 3, 1, 1, 1}};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        TRY(put_convolution(w, BATCH, &layers[i]));
    return ST_OK;
}

/* Causal, rows before heads. */
static st_status_t put_attentions(writer_t *w) {
    static const int sizes[][5] = {/* batch, heads, heads of keys, rows, elements */
                                   {32, 16, 16, 1024, 64},
                                   {8, 16, 4, 2048, 64},
                                   {4, 16, 16, 4096, 64},
                                   {8, 16, 16, 2048, 128},
                                   {2, 32, 8, 8192, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int *s = sizes[i];
        char attrs[96], q[48], k[48], shapes[256];
        snprintf(attrs, sizeof attrs, "causal=true, rows_first=true, scale=%s",
                 s[4] == 64 ? "0.125" : "0.0883883");
        snprintf(q, sizeof q, "f:%d,%d,%d,%d", s[0], s[3], s[1], s[4]);
        snprintf(k, sizeof k, "f:%d,%d,%d,%d", s[0], s[3], s[2], s[4]);
        snprintf(shapes, sizeof shapes, "%s %s %s", q, k, k);
        TRY(put_rate(w, "attention", attrs, shapes));
        snprintf(shapes, sizeof shapes, "%s %s %s %s %s s:%d,%d,%d", q, q, k, k, q, s[0], s[1],
                 s[3]);
        TRY(put_rate(w, "attention_grad", attrs, shapes));
    }
    return ST_OK;
}

/* What products reach that no rate is near to. */
static st_status_t put_peaks(writer_t *w) {
    static const struct {
        ir_dtype_t dtype;
        const char *shapes;
    } peaks[] = {{IR_BF16, "f:12288,12288 f:12288,12288"},
                 {IR_F16, "f:12288,12288 f:12288,12288"},
                 {IR_F32, "f:4096,4096 f:4096,4096"},
                 {IR_F64, "f:4096,4096 f:4096,4096"}};
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++) {
        const calibrate_point_t p = {"matmul", "", peaks[i].shapes};
        char text[ST_NUMBER_BYTES];
        double us;
        work_t work;
        TRY(time_point(w, &p, peaks[i].dtype, 0, false, &work, &us));
        TRY(st_text_put(&w->text, "products %s %s\n", ir_dtype_text(peaks[i].dtype),
                        number(gflops_of(w, &work, us), text)));
    }
    return ST_OK;
}

/* Kernels whose rate the description has beside them. */
static st_status_t time_kernels(writer_t *w) {
#define POOL                                                                          \
    "kernel=[3,3], strides=[2,2], pads_low=[1,1], pads_high=[1,1], dilations=[1,1], " \
    "channels_last=true"
    static const calibrate_point_t points[] = {
        {"max_pool", POOL, "f:192,112,112,64"},
        {"max_pool_grad", POOL ", spatial=[112,112]", "f:192,56,56,64 i:192,56,56,64"}};
#undef POOL
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        double us;
        work_t work;
        TRY(time_point(w, &points[i], IR_BF16, 0, false, &work, &us));
        w->kernel_gflops[ir_op_def_by_name(points[i].op)->op] = gflops_of(w, &work, us);
    }
    return ST_OK;
}

/* ---- launches of nests ---- */

/* What the launches of a single op take as the base tells, but those of `shape`, whose bytes are
 * told. */
static st_status_t split_launches(const writer_t *w, const bench_t *bench, kern_shape_t shape,
                                  double *out_bytes, double *out_rest_us) {
    st_arena_t arena = {0};
    kern_launch_t *launches;
    uint32_t n, n_found = 0;
    *out_bytes = *out_rest_us = 0;
    st_status_t status = kern_nest_launches(&bench->problem, &arena, &n, &launches);
    for (uint32_t i = 0; status == ST_OK && i < n; i++) {
        const target_nest_t *nest = &w->base->nests[launches[i].shape];
        double bytes = 0;
        for (uint32_t j = 0; j < launches[i].n_moves; j++) bytes += launches[i].moves[j].bytes;
        n_found += launches[i].shape == shape;
        if (launches[i].shape == shape)
            *out_bytes += bytes;
        else
            *out_rest_us += nest->us + bytes / nest->gbps * 1e-3;
    }
    st_arena_clear(&arena);
    if (status == ST_OK && n_found != 1)
        status = FAIL(ST_INTERNAL, "%s takes %u launches of shape %s", bench->node->name, n_found,
                      kern_shape_name(shape));
    return status;
}

/* Two sizes, both far from the caches: what a byte adds is the rate, what is left is the launch. */
static st_status_t put_nest(writer_t *w, kern_shape_t shape, const calibrate_point_t *p) {
    static const int64_t rows[] = {1 << 18, 1 << 20};
    double us[2], bytes[2], rest;
    char text[2][ST_NUMBER_BYTES];
    for (int i = 0; i < 2; i++) {
        work_t work;
        bench_t bench;
        TRY(time_point(w, p, IR_BF16, rows[i], false, &work, &us[i]));
        st_status_t status = bench_open(&bench, p, IR_BF16, rows[i]);
        if (status == ST_OK) status = split_launches(w, &bench, shape, &bytes[i], &rest);
        bench_close(&bench);
        TRY(status);
        us[i] -= rest;
    }
    if (!(us[1] > us[0]))
        return FAIL(ST_DEVICE, "%s(%s) takes no longer for more rows", p->op, p->shapes);
    const double a_byte = (us[1] - us[0]) / (bytes[1] - bytes[0]);
    return st_text_put(&w->text, "nest %s us=%s gbps=%s\n", kern_shape_name(shape),
                       number(fmax(us[0] - bytes[0] * a_byte, 0), text[0]),
                       number(1e-3 / a_byte, text[1]));
}

/* `uniform` and `finish` come with others and are as the base says. */
static st_status_t put_nests(writer_t *w) {
    static const struct {
        kern_shape_t shape;
        calibrate_point_t point;
    } points[] = {{KERN_SHAPE_FLAT, {"add", "", "f:R,256 f:R,256"}},
                  {KERN_SHAPE_ROWS, {"rms_norm", "", "f:R,256 f:256"}},
                  {KERN_SHAPE_ROWS_SUMS, {"rms_norm_grad", "", "f:R,256 f:R,256 s:R f:256"}},
                  {KERN_SHAPE_COLUMNS, {"batch_norm_apply", "", "f:R,256 s:256 s:256 s:256 s:256"}},
                  {KERN_SHAPE_COLUMNS_SUMS, {"reduce_sum", "axes=[0]", "f:R,256"}},
                  {KERN_SHAPE_LINES, {"sum_squares", "", "f:R,256"}}};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        TRY(put_nest(w, points[i].shape, &points[i].point));
    return ST_OK;
}

/* ---- what the base says ---- */

static bool begins(const char *line, const char *word) {
    const size_t n = strlen(word);
    return strncmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == '\n' || line[n] == '\0');
}

/* Whether the statement is one that has been measured: rates are of the same op, variant and
 * type. */
static bool is_measured(const writer_t *w, const char *line) {
    char op[64], dtype[16], key[96];
    if (begins(line, "launch_us") || begins(line, "memory_gbps") || begins(line, "bandwidth"))
        return true;
    if (sscanf(line, "products %15s", dtype) == 1)
        snprintf(key, sizeof key, "\nproducts %s ", dtype);
    else if (sscanf(line, "rate %63s %15s", op, dtype) == 2)
        snprintf(key, sizeof key, "\nrate %s %s ", op, dtype);
    else if (sscanf(line, "nest %63s", op) == 1)
        snprintf(key, sizeof key, "\nnest %s ", op);
    else
        return false;
    return strstr(w->text.data, key) != NULL;
}

/* Lines [from, end) of the base that still hold. Within a kernel its rate is the measured one. */
static st_status_t put_base(writer_t *w, st_text_t *out, const char *from, const char *end) {
    ir_op_t measured = IR_OP_END; /* of the kernel at hand */
    while (from < end) {
        const char *stop = memchr(from, '\n', (size_t)(end - from));
        const char *next = stop ? stop + 1 : end;
        char name[64], text[ST_NUMBER_BYTES];
        const char *word = from + strspn(from, " ");
        if (sscanf(from, "kernel own.%63s", name) == 1) {
            const ir_op_def_t *def = ir_op_def_by_name(name);
            measured = def && w->kernel_gflops[def->op] > 0 ? def->op : IR_OP_END;
        }
        if (begins(word, "gflops") && measured != IR_OP_END)
            TRY(st_text_put(out, "  gflops %s\n", number(w->kernel_gflops[measured], text)));
        else if (*word != '\n' && !is_measured(w, from) && (*from != '#'))
            TRY(st_text_put_bytes(out, from, (size_t)(next - from)));
        from = next;
    }
    return ST_OK;
}

static st_status_t put_all(writer_t *w, const char *base, size_t bytes, st_text_t *out) {
    const char *end = base + bytes, *kernels = strstr(base, "\nkernel ");
    const char *split = kernels ? kernels + 1 : end;
    TRY(st_text_put(&w->text, "\n"));
    TRY(put_device(w));
    TRY(put_nests(w));
    TRY(put_peaks(w));
    TRY(put_products(w));
    TRY(put_attentions(w));
    TRY(put_convolutions(w));
    TRY(time_kernels(w));
    TRY(st_text_put(
        out,
        "# Measured by 'stator bench --calibrate', single ops by themselves; the rest is "
        "as '%s' says.\n",
        w->base->machine.name));
    TRY(put_base(w, out, base, split));
    TRY(st_text_put_bytes(out, w->text.data + 1, w->text.n - 1));
    return put_base(w, out, split, end);
}

st_status_t calibrate_gpu_text(const char *base, size_t bytes, const calibrate_timer_t *timer,
                               char **out_text) {
    writer_t w = {.timer = timer};
    st_text_t out = {0}, copy = {0};
    target_t *target = NULL;
    st_status_t status;
    *out_text = NULL;
    TRY_GOTO(st_text_put_bytes(&copy, base, bytes), done); /* ends with a zero */
    TRY_GOTO(target_parse("the description", base, bytes, &target), done);
    w.base = target;
    status = put_all(&w, copy.data, bytes, &out);
done:
    if (status == ST_OK)
        *out_text = out.data;
    else
        ST_VEC_FREE(&out);
    ST_VEC_FREE(&w.text);
    ST_VEC_FREE(&copy);
    target_destroy(target);
    return status;
}

st_status_t exec_calibrate_device(const char *device, const char *target, char **out_text) {
    const dev_device_t *found;
    target_t *base = NULL;
    calibrate_clock_t *clock = NULL;
    st_status_t status;
    *out_text = NULL;
    TRY(dev_find(device, &found));
    TRY(target_open(target, &base));
    if (strcmp(base->machine.device, device) != 0)
        TRY_GOTO(FAIL(ST_INVALID,
                      "target '%s' describes a device '%s': one of device '%s' is needed, for what "
                      "no measurement tells",
                      target, base->machine.device, device),
                 done);
    TRY_GOTO(calibrate_clock_open(found, base->machine.cache_bytes[1], &clock), done);
    const calibrate_timer_t timer = calibrate_clock_timer(clock);
    status = calibrate_gpu_text(base->text, base->text_bytes, &timer, out_text);
done:
    calibrate_clock_close(clock);
    target_destroy(base);
    return status;
}
