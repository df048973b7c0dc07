/* Times single kernels on the shapes of the examples: each implementation of the table, one and two
 * threads. Usage: bench_kernels [filter]; prints op, shape, implementation, threads, best time,
 * GFLOP/s or GB/s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "device/cpu/team.h"
#include "ir/graph.h"
#include "kernels/table.h"

typedef struct row {
    ir_op_t op;
    const char *name;
    uint32_t n_in;
    ir_type_t in[7];
    size_t n_args;
    ir_arg_t args[6];
    double flops; /* 0: bytes are counted instead */
} row_t;

/* One thread is timed by its processor time, which other programs on the machine do not lengthen.
 */
static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define T2(a, b)                                     \
    {                                                \
        .dtype = IR_F32, .rank = 2, .dims = { a, b } \
    }
#define T4(a, b, c, d)                                     \
    {                                                      \
        .dtype = IR_F32, .rank = 4, .dims = { a, b, c, d } \
    }
#define T1(a)                                     \
    {                                             \
        .dtype = IR_F32, .rank = 1, .dims = { a } \
    }
#define CONV_ARGS(s, p)                                   \
    IR_ARG_INTS("strides", ((int64_t[]){s, s}), 2),       \
        IR_ARG_INTS("pads_low", ((int64_t[]){p, p}), 2),  \
        IR_ARG_INTS("pads_high", ((int64_t[]){p, p}), 2), \
        IR_ARG_INTS("dilations", ((int64_t[]){1, 1}), 2)

static void fill(void *data, const ir_type_t *type, int64_t classes) {
    int64_t n = ir_type_elements(type);
    for (int64_t i = 0; i < n; i++) {
        if (type->dtype == IR_F32) ((float *)data)[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
        if (type->dtype == IR_I32) ((int32_t *)data)[i] = (int32_t)(rand() % classes);
        if (type->dtype == IR_I64) ((int64_t *)data)[i] = 1;
        if (type->dtype == IR_F64) ((double *)data)[i] = 1e-3;
    }
}

static void time_row(const row_t *row) {
    const ir_op_def_t *def = ir_op_def(row->op);
    ir_attr_t attrs[16];
    uint32_t n_attrs = ir_op_n_attrs(def);
    for (uint32_t i = 0; i < n_attrs; i++) {
        const ir_attr_spec_t *spec = &def->attrs[i];
        attrs[i] = (ir_attr_t){.kind = spec->kind};
        if (spec->kind == IR_ATTR_FLOAT)
            attrs[i].f = spec->number;
        else if (spec->kind != IR_ATTR_INTS && spec->kind != IR_ATTR_STRING)
            attrs[i].i = (int64_t)spec->number;
        for (size_t k = 0; k < row->n_args; k++)
            if (strcmp(row->args[k].key, spec->key) == 0) attrs[i] = row->args[k].value;
    }
    ir_type_t out[8];
    uint32_t n_out = (uint32_t)def->n_outputs;
    ir_op_ctx_t ctx = {row->op, row->n_in, n_out, row->in, attrs, row->name};
    if (def->shape(&ctx, out) != ST_OK) {
        printf("%s: %s\n", row->name, st_last_error());
        exit(1);
    }
    kern_problem_t problem = {row->op, row->n_in, n_out, row->in, out, attrs, row->name};
    void *in[8], *outs[8];
    double bytes = 0;
    for (uint32_t j = 0; j < row->n_in; j++) {
        size_t size = ir_type_bytes(&row->in[j]);
        in[j] = st_aligned_alloc(64, size + 64);
        fill(in[j], &row->in[j], 60);
        bytes += (double)size;
    }
    for (uint32_t j = 0; j < n_out; j++) {
        size_t size = ir_type_bytes(&out[j]);
        outs[j] = st_aligned_alloc(64, size + 64);
        bytes += (double)size;
    }
    for (const kern_impl_t *const *impl = kern_list("cpu", row->op); *impl; impl++) {
        const char *reason;
        if ((*impl)->reference || ((*impl)->can_run && !(*impl)->can_run(&problem, &reason)))
            continue;
        for (int threads = 1; threads <= 2; threads++) {
            dev_team_t *team;
            void *prepared = NULL;
            if (dev_team_create(threads, &team) != ST_OK) exit(1);
            size_t scratch = (*impl)->workspace ? (*impl)->workspace(&problem, threads) : 0;
            void *workspace = st_aligned_alloc(64, scratch + 64);
            if ((*impl)->prepare && (*impl)->prepare(&problem, threads, &prepared) != ST_OK)
                exit(1);
            kern_call_t call = {.problem = &problem,
                                .in = (const void *const *)in,
                                .out = outs,
                                .workspace = workspace,
                                .prepared = prepared,
                                .team = team};
            double best = 1e9;
            double start = now(threads);
            for (int i = 0; i < 200 && now(threads) - start < 0.1; i++) {
                double t = now(threads);
                if ((*impl)->launch(&call) != ST_OK) {
                    printf("%s: %s\n", row->name, st_last_error());
                    exit(1);
                }
                t = now(threads) - t;
                if (t < best) best = t;
            }
            printf("%-34s %-28s %d  %9.1f us  %7.1f %s\n", row->name, (*impl)->name, threads,
                   best * 1e6, (row->flops > 0 ? row->flops : bytes) / best * 1e-9,
                   row->flops > 0 ? "GFLOP/s" : "GB/s");
            if (prepared) (*impl)->release(prepared);
            st_free(workspace);
            dev_team_destroy(team);
        }
    }
    for (uint32_t j = 0; j < row->n_in; j++) st_free(in[j]);
    for (uint32_t j = 0; j < n_out; j++) st_free(outs[j]);
}

int main(int argc, char **argv) {
    enum { R = 2048, W = 128, F = 344, V = 63 };
    const row_t rows[] = {
        {IR_OP_MATMUL,
         "matmul 2048^3",
         2,
         {T2(2048, 2048), T2(2048, 2048)},
         0,
         {{0}},
         2.0 * 2048 * 2048 * 2048},
        {IR_OP_MATMUL,
         "matmul qkv x w^T",
         2,
         {T2(R, W), T2(W, W)},
         1,
         {IR_ARG_BOOL("transpose_b", 1)},
         2.0 * R * W * W},
        {IR_OP_MATMUL,
         "matmul up x w^T",
         2,
         {T2(R, W), T2(F, W)},
         1,
         {IR_ARG_BOOL("transpose_b", 1)},
         2.0 * R * W * F},
        {IR_OP_MATMUL,
         "matmul down x w^T",
         2,
         {T2(R, F), T2(W, F)},
         1,
         {IR_ARG_BOOL("transpose_b", 1)},
         2.0 * R * W * F},
        {IR_OP_MATMUL, "matmul up dx = dy w", 2, {T2(R, F), T2(F, W)}, 0, {{0}}, 2.0 * R * W * F},
        {IR_OP_MATMUL,
         "matmul up dw = dy^T x",
         2,
         {T2(R, F), T2(R, W)},
         1,
         {IR_ARG_BOOL("transpose_a", 1)},
         2.0 * R * W * F},
        {IR_OP_MATMUL,
         "matmul qkv dw = dy^T x",
         2,
         {T2(R, W), T2(R, W)},
         1,
         {IR_ARG_BOOL("transpose_a", 1)},
         2.0 * R * W * W},
        {IR_OP_ATTENTION,
         "attention 16x4/2x128x32",
         3,
         {T4(16, 4, 128, 32), T4(16, 2, 128, 32), T4(16, 2, 128, 32)},
         1,
         {IR_ARG_BOOL("causal", 1)},
         2.0 * 2 * 64 * 128 * 128 * 32},
        {IR_OP_ATTENTION_GRAD,
         "attention_grad",
         6,
         {T4(16, 4, 128, 32),
          T4(16, 4, 128, 32),
          T4(16, 2, 128, 32),
          T4(16, 2, 128, 32),
          T4(16, 4, 128, 32),
          {.dtype = IR_F32, .rank = 3, .dims = {16, 4, 128}}},
         1,
         {IR_ARG_BOOL("causal", 1)},
         5.0 * 2 * 64 * 128 * 128 * 32},
        {IR_OP_RMS_NORM, "rms_norm", 2, {T2(R, W), T1(W)}, 0, {{0}}, 0},
        {IR_OP_RMS_NORM_GRAD, "rms_norm_grad", 4, {T2(R, W), T2(R, W), T1(R), T1(W)}, 0, {{0}}, 0},
        {IR_OP_SILU, "silu", 1, {T2(R, F)}, 0, {{0}}, 0},
        {IR_OP_SILU_GRAD, "silu_grad", 2, {T2(R, F), T2(R, F)}, 0, {{0}}, 0},
        {IR_OP_GELU, "gelu", 1, {T2(R, F)}, 0, {{0}}, 0},
        {IR_OP_EXP, "exp", 1, {T2(R, F)}, 0, {{0}}, 0},
        {IR_OP_MUL, "mul", 2, {T2(R, F), T2(R, F)}, 0, {{0}}, 0},
        {IR_OP_ADD, "add row", 2, {T2(R, F), T1(F)}, 0, {{0}}, 0},
        {IR_OP_TRANSPOSE,
         "transpose bmhd",
         1,
         {T4(16, 128, 4, 32)},
         1,
         {IR_ARG_INTS("perm", ((int64_t[]){0, 2, 1, 3}), 4)},
         0},
        {IR_OP_TRANSPOSE,
         "transpose 2d",
         1,
         {T2(R, F)},
         1,
         {IR_ARG_INTS("perm", ((int64_t[]){1, 0}), 2)},
         0},
        {IR_OP_ROPE, "rope", 3, {T4(16, 4, 128, 32), T2(128, 16), T2(128, 16)}, 0, {{0}}, 0},
        {IR_OP_CROSS_ENTROPY_ROWS,
         "cross_entropy_rows",
         2,
         {T2(R, V), {.dtype = IR_I32, .rank = 1, .dims = {R}}},
         0,
         {{0}},
         0},
        {IR_OP_CROSS_ENTROPY_GRAD,
         "cross_entropy_grad",
         4,
         {T1(R), T2(R, V), {.dtype = IR_I32, .rank = 1, .dims = {R}}, T1(R)},
         0,
         {{0}},
         0},
        {IR_OP_GATHER,
         "embedding",
         2,
         {T2(V, W), {.dtype = IR_I32, .rank = 1, .dims = {R}}},
         1,
         {IR_ARG_INT("axis", 0)},
         0},
        {IR_OP_SCATTER_ADD,
         "embedding grad",
         2,
         {T2(R, W), {.dtype = IR_I32, .rank = 1, .dims = {R}}},
         2,
         {IR_ARG_INT("axis", 0), IR_ARG_INT("extent", V)},
         0},
        {IR_OP_REDUCE_SUM,
         "reduce rows",
         1,
         {T2(R, F)},
         1,
         {IR_ARG_INTS("axes", ((int64_t[]){0}), 1)},
         0},
        {IR_OP_REDUCE_SUM,
         "reduce all",
         1,
         {T2(R, F)},
         1,
         {IR_ARG_INTS("axes", ((int64_t[]){0, 1}), 2)},
         0},
        {IR_OP_ADAMW,
         "adamw",
         7,
         {T2(F, 1024),
          T2(F, 1024),
          T2(F, 1024),
          T2(F, 1024),
          {.dtype = IR_F64},
          {.dtype = IR_I64},
          {.dtype = IR_F32}},
         0,
         {{0}},
         0},
        {IR_OP_CONV,
         "conv 128x16x32x32 k3",
         2,
         {T4(128, 16, 32, 32), T4(16, 16, 3, 3)},
         4,
         {CONV_ARGS(1, 1)},
         2.0 * 128 * 1024 * 16 * 16 * 9},
        {IR_OP_CONV,
         "conv 128x64x8x8 k3",
         2,
         {T4(128, 64, 8, 8), T4(64, 64, 3, 3)},
         4,
         {CONV_ARGS(1, 1)},
         2.0 * 128 * 64 * 64 * 64 * 9},
        {IR_OP_CONV,
         "conv 128x3x32x32 k3",
         2,
         {T4(128, 3, 32, 32), T4(16, 3, 3, 3)},
         4,
         {CONV_ARGS(1, 1)},
         2.0 * 128 * 1024 * 16 * 3 * 9},
        {IR_OP_CONV,
         "conv 128x16x32x32 k3 s2",
         2,
         {T4(128, 16, 32, 32), T4(32, 16, 3, 3)},
         4,
         {CONV_ARGS(2, 1)},
         2.0 * 128 * 256 * 32 * 16 * 9},
        {IR_OP_CONV_GRAD_INPUT,
         "conv dx 128x16x32x32",
         2,
         {T4(128, 16, 32, 32), T4(16, 16, 3, 3)},
         5,
         {CONV_ARGS(1, 1), IR_ARG_INTS("spatial", ((int64_t[]){32, 32}), 2)},
         2.0 * 128 * 1024 * 16 * 16 * 9},
        {IR_OP_CONV_GRAD_INPUT,
         "conv dx 128x64x8x8",
         2,
         {T4(128, 64, 8, 8), T4(64, 64, 3, 3)},
         5,
         {CONV_ARGS(1, 1), IR_ARG_INTS("spatial", ((int64_t[]){8, 8}), 2)},
         2.0 * 128 * 64 * 64 * 64 * 9},
        {IR_OP_CONV_GRAD_WEIGHT,
         "conv dw 128x16x32x32",
         2,
         {T4(128, 16, 32, 32), T4(128, 16, 32, 32)},
         5,
         {CONV_ARGS(1, 1), IR_ARG_INTS("kernel", ((int64_t[]){3, 3}), 2)},
         2.0 * 128 * 1024 * 16 * 16 * 9},
        {IR_OP_CONV_GRAD_WEIGHT,
         "conv dw 128x64x8x8",
         2,
         {T4(128, 64, 8, 8), T4(128, 64, 8, 8)},
         5,
         {CONV_ARGS(1, 1), IR_ARG_INTS("kernel", ((int64_t[]){3, 3}), 2)},
         2.0 * 128 * 64 * 64 * 64 * 9},
        {IR_OP_CHANNEL_SUM, "channel_sum", 1, {T4(128, 16, 32, 32)}, 0, {{0}}, 0},
        {IR_OP_CHANNEL_CENTERED_SQUARES,
         "channel_centered_squares",
         2,
         {T4(128, 16, 32, 32), T1(16)},
         0,
         {{0}},
         0},
        {IR_OP_BATCH_NORM_APPLY,
         "batch_norm_apply",
         5,
         {T4(128, 16, 32, 32), T1(16), T1(16), T1(16), T1(16)},
         0,
         {{0}},
         0},
        {IR_OP_BATCH_NORM_GRAD_SUMS,
         "batch_norm_grad_sums",
         4,
         {T4(128, 16, 32, 32), T4(128, 16, 32, 32), T1(16), T1(16)},
         0,
         {{0}},
         0},
        {IR_OP_MAX_POOL,
         "max_pool 32x64x56x56 k3s2",
         1,
         {T4(8, 64, 112, 112)},
         5,
         {IR_ARG_INTS("kernel", ((int64_t[]){3, 3}), 2), CONV_ARGS(2, 1)},
         0},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("level %s, %s\n", kern_cpu_level(), kern_libraries());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (argc < 2 || strstr(rows[i].name, argv[1])) time_row(&rows[i]);
    return 0;
}
