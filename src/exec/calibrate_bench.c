/* Timing one op (calibrate_bench.h). */
#include "exec/calibrate_bench.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/memory.h"
#include "device/cpu/team.h"
#include "ir/convert.h"
#include "ir/node_ctx.h"
#include "ir/text.h"
#include "kernels/table.h"

enum { MOST_RUNS = 400, CLASSES = 48 };
static const double SECONDS_A_POINT = 0.01;

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_close(bench_t *b) {
    for (int i = 0; i < 2 * CALIBRATE_OPERANDS; i++) st_free(b->memory[i]);
    ir_graph_destroy(b->graph);
    *b = (bench_t){0};
}

/* "f:R,256": letter, dims; R stands for `rows`. Letters: f the float type, s f32, d f64, i i32, l
 * i64, b bool. */
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

/* Appends an input a shape of the point. */
static st_status_t add_inputs(ir_graph_t *graph, const calibrate_point_t *p, ir_dtype_t dtype,
                              int64_t rows, uint32_t *out_n, ir_value_t *inputs) {
    *out_n = 0;
    for (const char *at = p->shapes; *at; ++*out_n) {
        ir_type_t type;
        char dims[160] = "", text[256], name[16];
        ASSERT(*out_n < CALIBRATE_OPERANDS);
        read_type(&at, dtype, rows, &type);
        for (int32_t d = 0; d < type.rank; d++)
            snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%lld", d ? "," : "",
                     (long long)type.dims[d]);
        snprintf(text, sizeof text, "dtype=%s, shape=[%s], batch_axis=-1",
                 ir_dtype_text(type.dtype), dims);
        snprintf(name, sizeof name, "in%u", *out_n);
        TRY(ir_text_add(graph, "input", name, 0, NULL, text, &inputs[*out_n]));
    }
    return ST_OK;
}

/* The newest node of the graph is what is measured. */
static void take_node(bench_t *b) {
    const ir_node_t n = (ir_node_t)b->graph->nodes.n - 1;
    b->node = ir_node(b->graph, n);
    uint32_t n_in = b->node->n_inputs;
    ASSERT(n_in <= CALIBRATE_OPERANDS && b->node->n_outputs <= CALIBRATE_OPERANDS);
    const ir_op_ctx_t ctx = ir_node_ctx_in(b->graph, n, b->types);
    b->problem = (kern_problem_t){
        b->node->op, n_in, b->node->n_outputs, b->types, b->types + n_in, b->node->attrs, ""};
    work_of(&ctx, b->types + n_in, &b->work);
}

st_status_t bench_open(bench_t *b, const calibrate_point_t *p, ir_dtype_t dtype, int64_t rows) {
    char attrs[256];
    ir_value_t inputs[CALIBRATE_OPERANDS], first;
    uint32_t n;
    *b = (bench_t){0};
    TRY(ir_graph_create("calibrate", &b->graph));
    TRY(add_inputs(b->graph, p, dtype, rows, &n, inputs));
    write_attrs(p->attrs, rows, attrs, sizeof attrs);
    TRY(ir_text_add(b->graph, p->op, "", n, inputs, attrs, &first));
    take_node(b);
    return ST_OK;
}

static st_status_t add_body(ir_graph_t *body, const calibrate_point_t *p, ir_dtype_t dtype,
                            int64_t rows, int repeats, bool behind) {
    char attrs[256], name[16];
    ir_value_t inputs[CALIBRATE_OPERANDS], first;
    uint32_t n;
    TRY(add_inputs(body, p, dtype, rows, &n, inputs));
    first = inputs[0];
    if (behind) TRY(ir_text_add(body, "relu", "", 1, inputs, "", &first));
    inputs[0] = first;
    write_attrs(p->attrs, rows, attrs, sizeof attrs);
    for (int i = 0; i < repeats; i++) {
        TRY(ir_text_add(body, p->op, "", n, inputs, attrs, &first));
        inputs[0] = first;
    }
    uint32_t n_out = ir_value_producer(body, first)->n_outputs;
    for (uint32_t k = 0; k < n_out; k++) {
        snprintf(name, sizeof name, "out%u", k);
        TRY(ir_graph_add_output(body, name, first + k));
    }
    return ST_OK;
}

st_status_t bench_open_body(bench_t *b, const calibrate_point_t *p, ir_dtype_t dtype, int64_t rows,
                            int repeats, bool behind) {
    ir_value_t inputs[CALIBRATE_OPERANDS], first;
    ir_graph_t *body = NULL;
    uint32_t n;
    st_status_t status;
    *b = (bench_t){0};
    TRY(ir_graph_create("calibrate", &b->graph));
    TRY_GOTO(ir_graph_create("body", &body), done);
    TRY_GOTO(add_body(body, p, dtype, rows, repeats, behind), done);
    TRY_GOTO(add_inputs(b->graph, p, dtype, rows, &n, inputs), done);
    const ir_arg_t arg = IR_ARG_GRAPH("body", body);
    TRY_GOTO(ir_graph_add(b->graph, IR_OP_FUSED, "", n, inputs, 1, &arg, &first), done);
    take_node(b);
done:
    ir_graph_destroy(body);
    return status;
}

double bench_bytes(const bench_t *b) {
    double bytes = 0;
    for (uint32_t i = 0; i < b->problem.n_in + b->problem.n_out; i++)
        bytes += (double)ir_type_bytes(&b->types[i]);
    return bytes;
}

st_status_t bench_allocate(bench_t *b) {
    for (uint32_t i = 0; i < b->problem.n_in + b->problem.n_out; i++) {
        size_t bytes = ir_type_bytes(&b->types[i]);
        b->memory[i] = st_aligned_alloc(64, bytes + 64);
        if (!b->memory[i]) return st_no_memory(bytes, "a measurement");
        fill(&b->types[i], i, b->memory[i]);
    }
    return ST_OK;
}

st_status_t bench_measure(bench_t *b, int threads, double *out_seconds) {
    const kern_impl_t *impl;
    dev_team_t *team = NULL;
    void *workspace = NULL, *prepared = NULL;
    st_status_t status = ST_OK;
    double took[MOST_RUNS];
    int n = 0;
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
    dev_team_enter(team);
    TRY_GOTO(impl->launch(&call), leave); /* makes libraries ready */
    double begin = now(threads);
    for (; n < MOST_RUNS && (n < 3 || now(threads) - begin < SECONDS_A_POINT); n++) {
        double at = now(threads);
        TRY_GOTO(impl->launch(&call), leave);
        took[n] = now(threads) - at;
    }
    qsort(took, (size_t)n, sizeof took[0], ascending);
    *out_seconds = took[n / 2];
    b->least_seconds = took[0];
leave:
    dev_team_leave(team);
done:
    if (prepared && impl->release) impl->release(prepared);
    st_free(workspace);
    dev_team_destroy(team);
    return status;
}
