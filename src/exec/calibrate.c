/* Measuring a machine (calibrate.h).
 *
 * Every point is one op on tensors of one size, run again and again on the same memory: what it takes
 * then is what it takes when its operands lie where so many bytes lie, in one of the caches or beyond
 * them. The least of the times counts: what disturbs only ever adds. A pass is measured at sizes an
 * octave pair apart, products at shapes over the whole range of training steps. Points are rows of
 * text: op, variant, attributes, shapes. */
#include "exec/calibrate.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/options.h"
#include "base/vec.h"
#include "compile/work.h"
#include "device/cpu/team.h"
#include "exec/calibrate_points.h"
#include "ir/convert.h"
#include "ir/text.h"
#include "kernels/table.h"

enum { MOST_OPERANDS = 16, MOST_RUNS = 400, CLASSES = 48 };
static const double SECONDS_A_POINT = 0.012;

typedef struct writer {
    ST_VEC(char) text;
    double launch_us;
} writer_t;

static st_status_t put(writer_t *w, const char *format, ...) ST_PRINTF(2, 3);
static st_status_t put(writer_t *w, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ASSERT(n >= 0 && (size_t)n < sizeof line);
    TRY(ST_VEC_RESERVE(&w->text, w->text.n + (size_t)n + 1));
    memcpy(w->text.data + w->text.n, line, (size_t)n + 1);
    w->text.n += (size_t)n;
    return ST_OK;
}

/* Six significant digits, whatever the locale. */
static const char *number(double value, char *buffer) {
    return st_double_text(value, 5, buffer);
}

static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a node with memory ---- */

typedef struct bench {
    ir_graph_t *graph;
    const ir_node_info_t *node;
    kern_problem_t problem;
    ir_type_t types[2 * MOST_OPERANDS];
    void *memory[2 * MOST_OPERANDS];
    work_t work;
} bench_t;

static void close_bench(bench_t *b) {
    for (int i = 0; i < 2 * MOST_OPERANDS; i++) st_free(b->memory[i]);
    ir_graph_destroy(b->graph);
    *b = (bench_t){0};
}

/* "f:R,256": letter, dims; R stands for `rows`. Letters: f the float type, s f32, d f64, i i32, l i64,
 * b bool. */
static void read_type(const char **at, ir_dtype_t dtype, int64_t rows, ir_type_t *out) {
    static const struct {
        char letter;
        ir_dtype_t dtype;
    } letters[] = {{'s', IR_F32}, {'d', IR_F64}, {'i', IR_I32}, {'l', IR_I64}, {'b', IR_BOOL}};
    *out = (ir_type_t){.dtype = dtype};
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        if (**at == letters[i].letter) out->dtype = letters[i].dtype;
    (*at)++;
    if (**at == ':') (*at)++;
    while (**at && **at != ' ') {
        int64_t n = 0;
        if (**at == 'R') {
            n = rows;
            (*at)++;
        }
        while (isdigit((unsigned char)**at)) n = n * 10 + *(*at)++ - '0';
        out->dims[out->rank++] = n;
        if (**at == ',') (*at)++;
    }
    while (**at == ' ') (*at)++;
}

/* The attributes with each R replaced. */
static void write_attrs(const char *attrs, int64_t rows, char *out, size_t capacity) {
    size_t used = 0;
    for (; *attrs && used + 24 < capacity; attrs++) {
        if (*attrs == 'R')
            used += (size_t)snprintf(out + used, capacity - used, "%lld", (long long)rows);
        else
            out[used++] = *attrs;
    }
    out[used] = '\0';
}

static void fill(const ir_type_t *type, uint64_t seed, void *data) {
    int64_t n = ir_type_elements(type), pattern = n < 4096 ? n : 4096;
    size_t each = ir_dtype_bytes(type->dtype);
    for (int64_t i = 0; i < pattern; i++) {
        uint32_t words[4];
        st_philox(seed, (uint64_t)i, 0, words);
        if (ir_dtype_is_float(type->dtype))
            ir_element_store(type->dtype, data, (size_t)i, 0.25 + (double)st_uniform24(words[0]));
        else
            ir_element_store_i64(type->dtype, data, (size_t)i,
                                 type->dtype == IR_BOOL ? words[0] & 1
                                 : type->rank           ? words[0] % CLASSES
                                                        : 1);
    }
    for (int64_t i = pattern; i < n; i += pattern)
        memcpy((char *)data + (size_t)i * each, data,
               (size_t)(n - i < pattern ? n - i : pattern) * each);
}

/* Makes the node and its operands' types. */
static st_status_t make_node(bench_t *b, const calibrate_point_t *p, ir_dtype_t dtype,
                             int64_t rows) {
    char attrs[256];
    ir_value_t inputs[MOST_OPERANDS], first;
    uint32_t n_in = 0;
    *b = (bench_t){0};
    TRY(ir_graph_create("calibrate", &b->graph));
    for (const char *at = p->shapes; *at; n_in++) {
        ir_type_t type;
        char dims[160] = "", text[256], name[16];
        ASSERT(n_in < MOST_OPERANDS);
        read_type(&at, dtype, rows, &type);
        for (int32_t d = 0; d < type.rank; d++)
            snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%lld", d ? "," : "",
                     (long long)type.dims[d]);
        snprintf(text, sizeof text, "dtype=%s, shape=[%s], batch_axis=-1",
                 ir_dtype_text(type.dtype), dims);
        snprintf(name, sizeof name, "in%u", n_in);
        TRY(ir_text_add(b->graph, "input", name, 0, NULL, text, &inputs[n_in]));
    }
    write_attrs(p->attrs, rows, attrs, sizeof attrs);
    TRY(ir_text_add(b->graph, p->op, "", n_in, inputs, attrs, &first));
    b->node = ir_value_producer(b->graph, first);
    ASSERT(b->node->n_outputs <= MOST_OPERANDS);
    for (uint32_t j = 0; j < n_in; j++) b->types[j] = *ir_value_type(b->graph, inputs[j]);
    for (uint32_t k = 0; k < b->node->n_outputs; k++)
        b->types[n_in + k] = *ir_value_type(b->graph, b->node->first_output + k);
    b->problem = (kern_problem_t){
        b->node->op, n_in, b->node->n_outputs, b->types, b->types + n_in, b->node->attrs, ""};
    ir_op_ctx_t ctx = {b->node->op, n_in, b->node->n_outputs, b->types, b->node->attrs, ""};
    work_of(&ctx, b->types + n_in, &b->work);
    return ST_OK;
}

static double all_bytes(const bench_t *b) {
    double bytes = 0;
    for (uint32_t i = 0; i < b->problem.n_in + b->problem.n_out; i++)
        bytes += (double)ir_type_bytes(&b->types[i]);
    return bytes;
}

static st_status_t allocate(bench_t *b) {
    for (uint32_t i = 0; i < b->problem.n_in + b->problem.n_out; i++) {
        size_t bytes = ir_type_bytes(&b->types[i]);
        b->memory[i] = st_aligned_alloc(64, bytes + 64);
        if (!b->memory[i]) return st_no_memory(bytes, "a measurement");
        fill(&b->types[i], i, b->memory[i]);
    }
    return ST_OK;
}

/* Least seconds of a run. */
static st_status_t measure(bench_t *b, int threads, double *out_seconds) {
    const kern_impl_t *impl;
    dev_team_t *team = NULL;
    void *workspace = NULL, *prepared = NULL;
    st_status_t status = ST_OK;
    *out_seconds = INFINITY;
    TRY(kern_choose("cpu", &b->problem, false, &impl));
    TRY_GOTO(dev_team_create(threads, &team), done);
    size_t bytes = impl->workspace ? impl->workspace(&b->problem, threads) : 0;
    workspace = st_aligned_alloc(64, bytes + 64);
    if (!workspace) TRY_GOTO(st_no_memory(bytes, "a measurement"), done);
    if (impl->prepare) TRY_GOTO(impl->prepare(&b->problem, threads, &prepared), done);
    kern_call_t call = {.problem = &b->problem,
                        .in = (const void *const *)b->memory,
                        .out = b->memory + b->problem.n_in,
                        .workspace = workspace,
                        .prepared = prepared,
                        .team = team};
    double begin = now(threads);
    dev_team_enter(team);
    for (int i = 0; i < MOST_RUNS && (i < 3 || now(threads) - begin < SECONDS_A_POINT); i++) {
        double at = now(threads);
        TRY_GOTO(impl->launch(&call), leave);
        double took = now(threads) - at;
        if (took < *out_seconds) *out_seconds = took;
    }
leave:
    dev_team_leave(team);
done:
    if (prepared && impl->release) impl->release(prepared);
    st_free(workspace);
    dev_team_destroy(team);
    return status;
}

static st_status_t measure_point(const calibrate_point_t *p, ir_dtype_t dtype, int64_t rows,
                                 int threads, bench_t *out_bench, double *out_seconds) {
    st_status_t status = make_node(out_bench, p, dtype, rows);
    if (status == ST_OK) status = allocate(out_bench);
    if (status == ST_OK) status = measure(out_bench, threads, out_seconds);
    if (status != ST_OK) {
        close_bench(out_bench);
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
        st_status_t status = make_node(&b, p, dtype, 64 << i);
        at[i] = status == ST_OK ? all_bytes(&b) : 0;
        close_bench(&b);
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
        close_bench(&b);
        if (ns * units < 1) ns = 1 / units; /* below the clock's grain */
        TRY(put(w, "rate %s%s%s %s bytes=%.0fB ns=%s\n", p->op, varies ? "." : "", variant,
                ir_dtype_text(dtype), bytes, number(ns, text)));
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
    st_status_t status = put(w, "rate %s%s%s %s%s gflops=%s\n", p->op, variant[0] ? "." : "",
                             variant, ir_dtype_text(dtype), dims, number(gflops, text));
    close_bench(&b);
    return status;
}

static st_status_t put_products(writer_t *w, ir_dtype_t dtype, double *out_best) {
    char shapes[96];
    *out_best = 0;
    for (size_t i = 0; i < calibrate_n_matmuls; i++) {
        const calibrate_matmul_t *m = &calibrate_matmuls[i];
        for (int v = 0; v < 3; v++) { /* as stored: plain, b transposed, a transposed */
            static const char *const attrs[] = {"", "transpose_b=true", "transpose_a=true"};
            const char *batch = m->b > 1 ? "," : "";
            char lead[16] = "";
            if (m->b > 1) snprintf(lead, sizeof lead, "%d", m->b);
            snprintf(shapes, sizeof shapes, "f:%s%s%d,%d f:%s%s%d,%d", lead, batch,
                     v == 2 ? m->k : m->m, v == 2 ? m->m : m->k, lead, batch, v == 1 ? m->n : m->k,
                     v == 1 ? m->k : m->n);
            const calibrate_point_t p = {"matmul", attrs[v], shapes};
            TRY(put_product(w, &p, dtype, out_best));
        }
    }
    double unused = 0;
    for (size_t i = 0; i < calibrate_n_products; i++)
        TRY(put_product(w, &calibrate_products[i], dtype, &unused));
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
        *out_far = all_bytes(&b) / (took > seconds / 2 ? took : seconds / 2) * 1e-9;
        close_bench(&b);
        TRY(put(w, "bandwidth %.0fKiB %s\n", sizes[i] / 1024, number(*out_far, text)));
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
            close_bench(&b);
            if (seconds < least[round % 2]) least[round % 2] = seconds;
        }
        gain[i] = fmin(fmax(least[0] / least[1], 1), (double)n_processors);
    }
    char passes[ST_NUMBER_BYTES], products[ST_NUMBER_BYTES];
    return put(w, "threads %lld passes=%s products=%s\n", (long long)n_processors,
               number(gain[0], passes), number(gain[1], products));
}

static st_status_t put_machine(writer_t *w, const char *name) {
    int64_t n = st_processor_count();
    char text[ST_NUMBER_BYTES], far_text[ST_NUMBER_BYTES];
    uint64_t caches[3];
    double far = 0, seconds;
    bench_t b;
    TRY(measure_point(&tiny_point, IR_F32, 0, 1, &b, &seconds));
    close_bench(&b);
    w->launch_us = seconds * 1e6;
    st_cache_bytes(caches);
    TRY(put(w, "# Measured by 'stator bench --calibrate' with kernels of level %s%s%s.\n",
            kern_cpu_level(), kern_libraries()[0] ? " and " : "", kern_libraries()));
    TRY(put(w, "target %s\ndevice cpu\ncores %lld\nclock_ghz %s\n", name, (long long)n,
            number(st_clock_ghz(), text)));
    TRY(put(w, "memory 0\ncaches %lluKiB %lluKiB %lluKiB\n", (unsigned long long)caches[0] >> 10,
            (unsigned long long)caches[1] >> 10, (unsigned long long)caches[2] >> 10));
    TRY(put(w, "launch_us %s\n", number(w->launch_us, text)));
    TRY(put_bandwidths(w, &far));
    TRY(put(w, "memory_gbps %s\n", number(far, far_text)));
    /* ranks are threads: a ring's step is a wait, its link a copy in memory */
    TRY(put(w, "link_us 5\nlink_gbps %s\n", number(far / 2, text)));
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
        close_bench(&b);
        TRY(put(w, "passes %s %s\n", ir_dtype_text(dtypes[d]), number(gflops, text)));
        for (size_t i = 0; i < calibrate_n_passes; i++)
            TRY(put_pass(w, &calibrate_passes[i], dtypes[d]));
        TRY(put_products(w, dtypes[d], &best));
        TRY(put(w, "products %s %s\n", ir_dtype_text(dtypes[d]), number(best, text)));
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
