/* Measuring a machine (calibrate.h).
 *
 * Every point is one op on tensors of one size, run again and again on the same memory: what it
 * takes then is what it takes when its operands lie where so many bytes lie, in one of the caches
 * or beyond them. The median of the times counts: a step is a sum over many ops, in which the luck
 * of single ones averages out, so that sums of least times fell short. A pass is measured at sizes
 * an octave pair apart, products at shapes over the whole range of training steps. Points are rows
 * of text: op, variant, attributes, shapes. */
#include "exec/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/options.h"
#include "base/text.h"
#include "exec/calibrate_bench.h"
#include "ir/nest.h"
#include "kernels/table.h"

typedef struct writer {
    st_text_t text;
    double launch_us;
    double edge_ns; /* of the element type at hand */
} writer_t;

/* Six significant digits, whatever the locale. */
static const char *number(double value, char *buffer) {
    return st_double_text(value, 5, buffer);
}

static st_status_t measure_point(const calibrate_point_t *p, ir_dtype_t dtype, int64_t rows,
                                 int threads, bench_t *out_bench, double *out_seconds) {
    st_status_t status = bench_open(out_bench, p, dtype, rows);
    if (status == ST_OK) status = bench_allocate(out_bench);
    if (status == ST_OK) status = bench_measure(out_bench, threads, out_seconds);
    if (status != ST_OK) {
        bench_close(out_bench);
        return st_error_context(status, "measuring %s(%s)", p->op, p->shapes);
    }
    return ST_OK;
}

/* ---- passes ---- */

/* Rows with which all operands have about so many bytes; 0: that is less than one row. */
static st_status_t rows_for(const calibrate_point_t *p, ir_dtype_t dtype, double bytes,
                            int64_t *out_rows) {
    bench_t b;
    double at[2];
    for (int i = 0; i < 2; i++) {
        st_status_t status = bench_open(&b, p, dtype, 64 << i);
        at[i] = status == ST_OK ? bench_bytes(&b) : 0;
        bench_close(&b);
        TRY(status);
    }
    double each = (at[1] - at[0]) / 64, fixed = at[0] - 64 * each;
    *out_rows = each > 0 ? (int64_t)((bytes - fixed) / each) : 0;
    return ST_OK;
}

static st_status_t put_pass(writer_t *w, const calibrate_point_t *p, ir_dtype_t dtype) {
    static const double sizes[] = {0x1p15, 0x1p18, 0x1p20, 0x1p22, 0x1p24, 0x1p26};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[ST_NUMBER_BYTES];
        bench_t b;
        double seconds;
        int64_t rows;
        TRY(rows_for(p, dtype, sizes[i], &rows));
        if (rows < 1) continue;
        TRY(measure_point(p, dtype, rows, 1, &b, &seconds));
        double ns = (seconds * 1e9 - w->launch_us * 1e3) / b.work.units;
        double bytes = b.work.bytes_read + b.work.bytes_written, units = b.work.units;
        bool varies = b.work.variant[0] != '\0';
        const char *variant = b.work.variant;
        bench_close(&b);
        if (ns * units < 1) ns = 1 / units; /* below the clock's grain */
        TRY(st_text_put(&w->text, "rate %s%s%s %s bytes=%.0fB ns=%s\n", p->op, varies ? "." : "",
                        variant, ir_dtype_text(dtype), bytes, number(ns, text)));
    }
    return ST_OK;
}

/* ---- products ---- */

static st_status_t put_product(writer_t *w, const calibrate_point_t *p, ir_dtype_t dtype,
                               double *best_gflops) {
    char dims[256] = "", text[ST_NUMBER_BYTES];
    bench_t b;
    double seconds;
    TRY(measure_point(p, dtype, 0, 1, &b, &seconds));
    double took = seconds - w->launch_us * 1e-6, gflops;
    if (took < seconds / 2) took = seconds / 2;
    gflops = 2 * b.work.units / took * 1e-9;
    if (gflops > *best_gflops) *best_gflops = gflops;
    for (size_t i = 0; work_dim_name(i); i++) {
        const char *name = work_dim_name(i);
        int64_t value = *work_dim_of(&b.work.dims, name, strlen(name));
        if (value > 0)
            snprintf(dims + strlen(dims), sizeof dims - strlen(dims), " %s=%lld", name,
                     (long long)value);
    }
    const char *variant = b.work.variant;
    st_status_t status =
        st_text_put(&w->text, "rate %s%s%s %s%s gflops=%s\n", p->op, variant[0] ? "." : "", variant,
                    ir_dtype_text(dtype), dims, number(gflops, text));
    bench_close(&b);
    return status;
}

/* The three ways matrices are stored: plain, b transposed, a transposed. */
static st_status_t put_matmul(writer_t *w, const calibrate_matmul_t *m, ir_dtype_t dtype,
                              double *best_gflops) {
    static const char *const attrs[] = {"", "transpose_b=true", "transpose_a=true"};
    char shapes[96], lead[16] = "";
    if (m->b > 1) snprintf(lead, sizeof lead, "%d,", m->b);
    for (int v = 0; v < 3; v++) {
        snprintf(shapes, sizeof shapes, "f:%s%d,%d f:%s%d,%d", lead, v == 2 ? m->k : m->m,
                 v == 2 ? m->m : m->k, lead, v == 1 ? m->n : m->k, v == 1 ? m->k : m->n);
        const calibrate_point_t p = {"matmul", attrs[v], shapes};
        TRY(put_product(w, &p, dtype, best_gflops));
    }
    return ST_OK;
}

/* Products of all proportions, from one row to thousands, two octaves apart. Rows of powers of two
 * that are long fall into the same cache sets, which most models' do not: there the grid keeps off
 * them. */
static st_status_t put_products(writer_t *w, ir_dtype_t dtype, double *out_best) {
    static const int rows[] = {1, 16, 64, 240, 960, 4000}, sides[] = {16, 64, 240, 960};
    double most = dtype == IR_F32 ? 0x1p30 : 0x1p27; /* multiply-adds */
    *out_best = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int j = 0; j < 16; j++) {
            calibrate_matmul_t m = {1, rows[i], sides[j / 4], sides[j % 4]};
            if ((double)m.m * m.n * m.k <= most) TRY(put_matmul(w, &m, dtype, out_best));
        }
    for (size_t i = 0; i < calibrate_n_matmuls; i++)
        TRY(put_matmul(w, &calibrate_matmuls[i], dtype, out_best));
    double unused = 0;
    for (size_t i = 0; i < calibrate_n_products; i++)
        TRY(put_product(w, &calibrate_products[i], dtype, &unused));
    return ST_OK;
}

/* ---- nests ---- */

/* Least seconds of the point as a body, for these are subtracted from each other; *out_units are
 * the point's own, 0: it is no nest. */
static st_status_t time_body(const calibrate_point_t *p, ir_dtype_t dtype, int64_t rows,
                             int repeats, bool behind, double *out_seconds, bool *out_legal) {
    bench_t b;
    nest_t *nest = NULL;
    const char *reason;
    *out_legal = false;
    st_status_t status = bench_open_body(&b, p, dtype, rows, repeats, behind);
    if (status == ST_OK) status = nest_build(ir_node_attr(b.node, "body")->graph, &nest, &reason);
    if (status == ST_OK && nest) {
        *out_legal = true;
        status = bench_allocate(&b);
        if (status == ST_OK) status = bench_measure(&b, 1, out_seconds);
        if (status == ST_OK) *out_seconds = b.least_seconds;
    }
    nest_destroy(nest);
    bench_close(&b);
    return status;
}

/* Nanoseconds an element that `more` of the point add to a body of `few`; INFINITY: that is no
 * nest. */
static st_status_t tile_ns(const calibrate_point_t *p, ir_dtype_t dtype, double units, int few,
                           int more, bool behind, double *out_ns) {
    enum { ROWS = 256 };
    double with, without;
    bool legal, also;
    *out_ns = INFINITY;
    TRY(time_body(p, dtype, ROWS, few + more, behind, &with, &legal));
    if (!legal) return ST_OK;
    TRY(time_body(p, dtype, ROWS, few, behind, &without, &also));
    if (also) *out_ns = fmax((with - without) * 1e9 / (units * more), 1e-3);
    return ST_OK;
}

/* An op inside a nest, on tiles in the nearest cache: behind a relu rather than not at all, and an
 * elementwise one nine times rather than once; the less of the two. */
static st_status_t put_tile(writer_t *w, const calibrate_point_t *p, ir_dtype_t dtype) {
    char text[ST_NUMBER_BYTES];
    bench_t b;
    double single = INFINITY, chained = INFINITY;
    TRY(bench_open(&b, p, dtype, 256));
    bool starts = ir_dtype_is_float(b.types[0].dtype) && b.types[0].rank > 0;
    bool chain = starts && ir_op_def(b.node->op)->flags & IR_ELEMENTWISE &&
                 ir_type_equal(&b.types[0], &b.types[b.problem.n_in]);
    double units = b.work.units;
    bool moves = b.work.flop == 0;
    /* alone the relu stores its result, which a reduction behind it takes from the tile */
    double stores = (double)ir_type_elements(&b.types[0]);
    for (uint32_t k = 0; k < b.problem.n_out; k++)
        stores -= (double)ir_type_elements(&b.types[b.problem.n_in + k]);
    bench_close(&b);
    if (moves || !starts) return ST_OK; /* in a nest it is only strides */
    TRY(tile_ns(p, dtype, units, 0, 1, true, &single));
    if (stores > 0) single += stores * w->edge_ns / units;
    if (chain) TRY(tile_ns(p, dtype, units, 1, 8, false, &chained));
    if (chained < single || !isfinite(single)) single = chained;
    if (!isfinite(single)) return ST_OK;
    return st_text_put(&w->text, "tile %s %s %s\n", p->op, ir_dtype_text(dtype),
                       number(single, text));
}

/* What a nest takes beside its ops: to begin, and for each element that it loads or stores. */
static st_status_t put_edges(writer_t *w, ir_dtype_t dtype) {
    static const calibrate_point_t small = {"relu", "", "f:4,4"}, wide = {"relu", "", "f:R,256"};
    enum { ROWS = 256 };
    char text[ST_NUMBER_BYTES];
    double begin, once, often;
    bool legal;
    TRY(time_body(&small, dtype, 0, 1, false, &begin, &legal));
    TRY(time_body(&wide, dtype, ROWS, 1, false, &once, &legal));
    TRY(time_body(&wide, dtype, ROWS, 9, false, &often, &legal));
    double edges = once - begin - (often - once) / 8;
    w->edge_ns = fmax(edges * 1e9 / (2.0 * ROWS * 256), 1e-3);
    if (dtype == IR_F32) TRY(st_text_put(&w->text, "nest_us %s\n", number(begin * 1e6, text)));
    return st_text_put(&w->text, "edge %s %s\n", ir_dtype_text(dtype), number(w->edge_ns, text));
}

static st_status_t put_nests(writer_t *w, ir_dtype_t dtype) {
    TRY(put_edges(w, dtype));
    for (size_t i = 0; i < calibrate_n_passes; i++) {
        /* the first row of an op stands for all */
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again |= strcmp(calibrate_passes[k].op, calibrate_passes[i].op) == 0;
        if (!again) TRY(put_tile(w, &calibrate_passes[i], dtype));
    }
    return ST_OK;
}

/* ---- the machine ---- */

/* A sum of two: three operands' bytes move. */
static const calibrate_point_t add_point = {"add", "", "f:R,256 f:R,256"};
static const calibrate_point_t tiny_point = {"add", "", "f:4 f:4"};

static st_status_t put_bandwidths(writer_t *w, double *out_far) {
    static const double sizes[] = {0x1p14, 0x1p17, 0x1p20, 0x1p22, 0x1p24, 0x1p26, 0x1p28};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[ST_NUMBER_BYTES];
        bench_t b;
        double seconds;
        int64_t rows;
        TRY(rows_for(&add_point, IR_F32, sizes[i], &rows));
        TRY(measure_point(&add_point, IR_F32, rows, 1, &b, &seconds));
        double took = seconds - w->launch_us * 1e-6;
        *out_far = bench_bytes(&b) / (took > seconds / 2 ? took : seconds / 2) * 1e-9;
        bench_close(&b);
        TRY(st_text_put(&w->text, "bandwidth %.0fKiB %s\n", sizes[i] / 1024,
                        number(*out_far, text)));
    }
    return ST_OK;
}

/* How much faster a plan of all processors is than one of one thread, by the clock. */
static st_status_t put_threads(writer_t *w, int64_t n_processors) {
    static const calibrate_point_t points[] = {{"gelu", "", "f:R,256"},
                                               {"matmul", "", "f:R,512 f:512,512"}};
    double gain[2];
    if (n_processors < 2) return ST_OK;
    for (int i = 0; i < 2; i++) {
        double least[2] = {INFINITY, INFINITY};
        for (int round = 0; round < 6; round++) {
            bench_t b;
            double seconds;
            int threads = round % 2 ? (int)n_processors : 1;
            TRY(measure_point(&points[i], IR_F32, 2048, threads, &b, &seconds));
            bench_close(&b);
            if (seconds < least[round % 2]) least[round % 2] = seconds;
        }
        gain[i] = fmin(fmax(least[0] / least[1], 1), (double)n_processors);
    }
    char passes[ST_NUMBER_BYTES], products[ST_NUMBER_BYTES];
    return st_text_put(&w->text, "threads %lld passes=%s products=%s\n", (long long)n_processors,
                       number(gain[0], passes), number(gain[1], products));
}

static st_status_t put_machine(writer_t *w, const char *name) {
    int64_t n = st_processor_count();
    char text[ST_NUMBER_BYTES], far_text[ST_NUMBER_BYTES];
    uint64_t caches[3];
    double far = 0, seconds;
    bench_t b;
    TRY(measure_point(&tiny_point, IR_F32, 0, 1, &b, &seconds));
    bench_close(&b);
    w->launch_us = seconds * 1e6;
    st_cache_bytes(caches);
    TRY(st_text_put(&w->text,
                    "# Measured by 'stator bench --calibrate' with kernels of level %s%s%s.\n",
                    kern_cpu_level(), kern_libraries()[0] ? " and " : "", kern_libraries()));
    TRY(st_text_put(&w->text, "target %s\ndevice cpu\ncores %lld\nclock_ghz %s\n", name,
                    (long long)n, number(st_clock_ghz(), text)));
    TRY(st_text_put(&w->text, "memory 0\ncaches %lluKiB %lluKiB %lluKiB\n",
                    (unsigned long long)caches[0] >> 10, (unsigned long long)caches[1] >> 10,
                    (unsigned long long)caches[2] >> 10));
    TRY(st_text_put(&w->text, "launch_us %s\n", number(w->launch_us, text)));
    TRY(put_bandwidths(w, &far));
    TRY(st_text_put(&w->text, "memory_gbps %s\n", number(far, far_text)));
    /* ranks are threads: a ring's step is a wait, its link a copy in memory */
    TRY(st_text_put(&w->text, "link_us 5\nlink_gbps %s\n", number(far / 2, text)));
    return put_threads(w, n);
}

static st_status_t put_all(writer_t *w, const char *name) {
    char text[ST_NUMBER_BYTES];
    static const ir_dtype_t dtypes[] = {IR_F32, IR_F64};
    TRY(put_machine(w, name));
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        double best, seconds;
        bench_t b;
        static const calibrate_point_t arithmetic = {"silu", "", "f:64,256"};
        TRY(measure_point(&arithmetic, dtypes[d], 0, 1, &b, &seconds));
        double gflops = b.work.flop / seconds * 1e-9;
        bench_close(&b);
        TRY(st_text_put(&w->text, "passes %s %s\n", ir_dtype_text(dtypes[d]),
                        number(gflops, text)));
        for (size_t i = 0; i < calibrate_n_passes; i++)
            TRY(put_pass(w, &calibrate_passes[i], dtypes[d]));
        TRY(put_nests(w, dtypes[d]));
        TRY(put_products(w, dtypes[d], &best));
        TRY(st_text_put(&w->text, "products %s %s\n", ir_dtype_text(dtypes[d]),
                        number(best, text)));
    }
    return ST_OK;
}

st_status_t exec_calibrate(const char *name, char **out_text) {
    writer_t w = {0};
    *out_text = NULL;
    st_status_t status = put_all(&w, name);
    if (status != ST_OK) {
        ST_VEC_FREE(&w.text);
        return status;
    }
    *out_text = w.text.data;
    return ST_OK;
}
