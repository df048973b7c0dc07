/* Times fused bodies as one nest against their nodes one by one, each by its own best kernel.
 * Usage: bench_nests [filter]; prints body, best time of each in alternating rounds, their ratio,
 * and GB/s of the nest over operands and results. One thread, by its processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "device/cpu/team.h"
#include "ir/build.h"
#include "ir/text.h"
#include "kernels/table.h"

#define BODY(text) "graph \"body\" {\n" text "}\n"
#define IN(id, type, shape) \
    "%" #id " i" #id " = input {dtype=" #type ", shape=[" shape "], batch_axis=-1}\n"

static const struct {
    const char *name, *body;
} rows[] = {
    {"five ops, 64 MiB tensors",
     BODY(IN(0, f32, "16777216") IN(
         1, f32,
         "16777216") "%2 = add(%0, %1)\n%3 = mul(%2, %0)\n"
                     "%4 = add(%3, %1)\n%5 = mul(%4, %1)\n%6 = sub(%5, %0)\noutput \"y\" = %6\n")},
    {"one op, 64 MiB tensors",
     BODY(IN(0, f32, "16777216") IN(1, f32, "16777216") "%2 = add(%0, %1)\noutput \"y\" = %2\n")},
    {"five ops, 1 MiB tensors",
     BODY(IN(0, f32, "262144") IN(
         1, f32,
         "262144") "%2 = add(%0, %1)\n%3 = mul(%2, %0)\n"
                   "%4 = add(%3, %1)\n%5 = mul(%4, %1)\n%6 = sub(%5, %0)\noutput \"y\" = %6\n")},
    {"rms_norm 16384x1024",
     BODY(IN(0, f32, "16384,1024") IN(1, f32, "1024") "%2, %3 = rms_norm(%0, %1)\n"
                                                      "output \"y\" = %2\noutput \"r\" = %3\n")},
    {"rms_norm 2048x128",
     BODY(IN(0, f32, "2048,128") IN(1, f32, "128") "%2, %3 = rms_norm(%0, %1)\n"
                                                   "output \"y\" = %2\noutput \"r\" = %3\n")},
    {"rms_norm_grad 16384x1024",
     BODY(IN(0, f32, "16384,1024") IN(1, f32, "16384,1024") IN(2, f32, "16384")
              IN(3, f32, "1024") "%4, %5 = rms_norm_grad(%0, %1, %2, %3)\noutput \"dx\" = "
                                 "%4\noutput \"dw\" = %5\n")},
    {"rms_norm_grad 2048x128",
     BODY(IN(0, f32, "2048,128") IN(1, f32, "2048,128") IN(2, f32, "2048")
              IN(3, f32, "128") "%4, %5 = rms_norm_grad(%0, %1, %2, %3)\noutput \"dx\" = "
                                "%4\noutput \"dw\" = %5\n")},
    {"rms_norm_grad and residual 16384x1024",
     BODY(IN(0, f32, "16384,1024") IN(1, f32, "16384,1024") IN(2, f32, "16384") IN(3, f32, "1024")
              IN(4, f32,
                 "16384,1024") "%5, %6 = rms_norm_grad(%0, %1, %2, %3)\n"
                               "%7 = add(%5, %4)\noutput \"dx\" = %7\noutput \"dw\" = %6\n")},
    {"layer_norm 16384x1024",
     BODY(IN(0, f32, "16384,1024") IN(1, f32, "1024")
              IN(2, f32, "1024") "%3, %4, %5 = layer_norm(%0, %1, %2)\n"
                                 "output \"y\" = %3\noutput \"m\" = %4\noutput \"r\" = %5\n")},
    {"layer_norm_grad 16384x1024",
     BODY(IN(0, f32, "16384,1024") IN(1, f32, "16384,1024") IN(2, f32, "16384") IN(3, f32, "16384")
              IN(4, f32, "1024") "%5, %6, %7 = layer_norm_grad(%0, %1, %2, %3, %4)\n"
                                 "output \"dx\" = %5\noutput \"dw\" = %6\noutput \"db\" = %7\n")},
    {"softmax 16384x1024",
     BODY(IN(0, f32, "16384,1024") "%1 = softmax(%0) {axis=1}\noutput \"y\" = %1\n")},
    {"log_softmax 512x32000",
     BODY(IN(0, f32, "512,32000") "%1 = log_softmax(%0) {axis=1}\noutput \"y\" = %1\n")},
    {"cross_entropy_grad 512x32000",
     BODY(IN(0, f32, "") IN(1, f32, "512,32000") IN(2, i32, "512")
              IN(3, f32, "512") "%4 = cross_entropy_grad(%0, %1, %2, %3)\noutput \"dx\" = %4\n")},
    {"silu times up 2048x1024",
     BODY(IN(0, f32, "2048,1024")
              IN(1, f32, "2048,1024") "%2 = silu(%0)\n%3 = mul(%2, %1)\noutput \"y\" = %3\n")},
    {"silu times up, backward 2048x1024",
     BODY(IN(0, f32, "2048,1024") IN(1, f32, "2048,1024") IN(
         2, f32,
         "2048,1024") "%3 = mul(%2, %1)\n%4 = silu_grad(%3, %0)\n%5 = silu(%0)\n%6 = mul(%2, %5)\n"
                      "output \"dg\" = %4\noutput \"du\" = %6\n")},
    {"gelu beside a bias gradient 4096x1024",
     BODY(IN(0, f32, "4096,1024") IN(
         1, f32,
         "4096,1024") "%2 = gelu_grad(%0, %1)\n"
                      "%3 = reduce_sum(%2) {axes=[0]}\noutput \"dx\" = %2\noutput \"db\" = %3\n")},
    {"batch norm backward 128x16x32x32",
     BODY(IN(0, f32, "128,16,32,32") IN(1, f32, "128,16,32,32") IN(2, f32, "16") IN(3, f32, "16")
              IN(4, f32,
                 "16") "%5, %6 = batch_norm_grad_sums(%0, %1, %2, %3)\n"
                       "%7 = batch_norm_grad_apply(%0, %1, %2, %3, %4, %5, %6) {count=131072}\n"
                       "output \"dx\" = %7\noutput \"db\" = %5\noutput \"dw\" = %6\n")},
    {"batch norm and relu 128x16x32x32",
     BODY(IN(0, f32, "128,16,32,32") IN(1, f32, "16") IN(2, f32, "16") IN(3, f32, "16")
              IN(4, f32, "16") "%5 = batch_norm_apply(%0, %1, %2, %3, %4)\n%6 = relu(%5)\n"
                               "output \"y\" = %6\n")},
    {"adamw 32768",
     BODY(IN(0, f32, "32768") IN(1, f32, "32768") IN(2, f32, "32768") IN(3, f32, "32768")
              IN(4, f64, "") IN(5, i64, "")
                  IN(6, f32, "") "%7, %8, %9 = adamw(%0, %1, %2, %3, %4, %5, %6)\n"
                                 "output \"p\" = %7\noutput \"m\" = %8\noutput \"v\" = %9\n")},
    {"adamw 4194304",
     BODY(IN(0, f32, "4194304") IN(1, f32, "4194304") IN(2, f32, "4194304") IN(3, f32, "4194304")
              IN(4, f64, "") IN(5, i64, "")
                  IN(6, f32, "") "%7, %8, %9 = adamw(%0, %1, %2, %3, %4, %5, %6)\n"
                                 "output \"p\" = %7\noutput \"m\" = %8\noutput \"v\" = %9\n")},
    {"transpose 16x256x8x64",
     BODY(IN(0, f32, "16,256,8,64") "%1 = transpose(%0) {perm=[0,2,1,3]}\noutput \"y\" = %1\n")},
    {"transpose 2048x2048",
     BODY(IN(0, f32, "2048,2048") "%1 = transpose(%0) {perm=[1,0]}\noutput \"y\" = %1\n")},
    {"bf16 silu times up 2048x1024",
     BODY(IN(0, bf16, "2048,1024")
              IN(1, bf16, "2048,1024") "%2 = silu(%0)\n%3 = mul(%2, %1)\noutput \"y\" = %3\n")},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(const char *what) {
    printf("%s: %s\n", what, st_last_error());
    exit(1);
}

/* A kernel ready to launch. */
typedef struct ready {
    const kern_impl_t *impl;
    kern_problem_t problem;
    ir_type_t in[16], out[16];
    const void *in_data[16];
    void *out_data[16];
    kern_call_t call;
} ready_t;

static void get_ready(ready_t *r, const ir_node_info_t *node, const ir_graph_t *graph, void **data,
                      dev_team_t *team) {
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        r->in[j] = *ir_value_type(graph, node->inputs[j]);
        r->in_data[j] = data[node->inputs[j]];
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        r->out[k] = *ir_value_type(graph, node->first_output + k);
        r->out_data[k] = data[node->first_output + k];
    }
    r->problem =
        (kern_problem_t){node->op, node->n_inputs, node->n_outputs, r->in, r->out, node->attrs, ""};
    if (kern_choose("cpu", &r->problem, false, &r->impl) != ST_OK) stop("choose");
    size_t scratch = r->impl->workspace ? r->impl->workspace(&r->problem, 1) : 0;
    r->call = (kern_call_t){.problem = &r->problem,
                            .in = r->in_data,
                            .out = r->out_data,
                            .workspace = st_aligned_alloc(64, scratch + 64),
                            .team = team};
    if (r->impl->prepare && r->impl->prepare(&r->problem, 1, &r->call.prepared) != ST_OK)
        stop("prepare");
}

static void done(ready_t *r) {
    if (r->call.prepared) r->impl->release(r->call.prepared);
    st_free(r->call.workspace);
}

static void *filled(const ir_type_t *type) {
    size_t bytes = ir_type_bytes(type);
    void *data = st_aligned_alloc(64, bytes + 64);
    int64_t n = ir_type_elements(type);
    memset(data, 0, bytes + 64);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(rand() % 2001 + 1) * 1e-3f;
        if (type->dtype == IR_F32) ((float *)data)[i] = x;
        if (type->dtype == IR_BF16) ((uint16_t *)data)[i] = (uint16_t)(0x3f00 + rand() % 128);
        if (type->dtype == IR_F64) ((double *)data)[i] = 1e-3;
        if (type->dtype == IR_I32) ((int32_t *)data)[i] = rand() % 32000;
        if (type->dtype == IR_I64) ((int64_t *)data)[i] = 1;
    }
    return data;
}

static void time_body(const char *name, const char *text) {
    enum { MAX_NODES = 32, ROUNDS = 9 };
    ir_graph_t *body = NULL, *outer = NULL;
    static ready_t nodes[MAX_NODES], whole;
    ir_value_t inputs[16], first;
    void *data[MAX_NODES * 4], *outer_data[MAX_NODES * 4];
    dev_team_t *team;
    double bytes = 0, apart = 1e30, fused = 1e30;
    uint32_t n = 0, n_in = 0;
    if (dev_team_create(1, &team) != ST_OK) stop("team");
    if (ir_graph_parse(text, strlen(text), &body) != ST_OK) stop(name);
    for (ir_value_t v = 0; v < body->values.n; v++) data[v] = filled(ir_value_type(body, v));
    if (ir_graph_create("outer", &outer) != ST_OK) stop(name);
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        if (node->op != IR_OP_INPUT) {
            get_ready(&nodes[n++], node, body, data, team);
            continue;
        }
        const ir_type_t *type = ir_value_type(body, node->first_output);
        ir_build_t b = {outer, ST_OK, NULL};
        inputs[n_in] = ir_b_input(&b, node->name, *type, -1);
        outer_data[inputs[n_in++]] = data[node->first_output];
        bytes += (double)ir_type_bytes(type);
    }
    if (ir_graph_add(outer, IR_OP_FUSED, NULL, n_in, inputs, 1,
                     (ir_arg_t[]){IR_ARG_GRAPH("body", body)}, &first) != ST_OK)
        stop(name);
    for (size_t k = 0; k < body->outputs.n; k++) {
        outer_data[first + k] = data[body->outputs.data[k].value];
        bytes += (double)ir_type_bytes(ir_value_type(outer, first + (ir_value_t)k));
    }
    get_ready(&whole, ir_node(outer, (ir_node_t)outer->nodes.n - 1), outer, outer_data, team);
    int repeat = 1;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int t = 0; t < repeat; t++)
            for (uint32_t i = 0; i < n; i++)
                if (nodes[i].impl->launch(&nodes[i].call) != ST_OK) stop(name);
        double middle = now();
        for (int t = 0; t < repeat; t++)
            if (whole.impl->launch(&whole.call) != ST_OK) stop(name);
        double end = now();
        if (middle - start < apart * repeat) apart = (middle - start) / repeat;
        if (end - middle < fused * repeat) fused = (end - middle) / repeat;
        if (round == 0 && apart < 5e-3) repeat = (int)(5e-3 / apart) + 1;
    }
    printf("%-40s nodes %9.1f us  nest %9.1f us  %5.2f x  %6.1f GB/s  %s\n", name, apart * 1e6,
           fused * 1e6, apart / fused, bytes / fused * 1e-9, whole.impl->name);
    for (uint32_t i = 0; i < n; i++) done(&nodes[i]);
    done(&whole);
    for (ir_value_t v = 0; v < body->values.n; v++) st_free(data[v]);
    ir_graph_destroy(outer);
    ir_graph_destroy(body);
    dev_team_destroy(team);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("level %s, %s\n", kern_cpu_level(), kern_libraries());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (argc < 2 || strstr(rows[i].name, argv[1])) time_body(rows[i].name, rows[i].body);
    return 0;
}
