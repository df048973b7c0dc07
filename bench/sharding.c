/* Placements chosen for training steps on devices that are not there: for each case every uniform
 * plan and the free choice, one JSON object a line, simulated (src/compile/sharding.h). No device
 * is needed; `us` is the processor time of model, solutions and simulations together.
 *
 *   bench_sharding [FILTER]     cases whose name contains the filter */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/precision.h"
#include "autodiff/train_graph.h"
#include "compile/host.h"
#include "compile/sharding.h"
#include "compile/target.h"
#include "fusion/recognize.h"
#include "fusion/simplify.h"
#include "import/model.h"
#include "ir/expand.h"
#include "ir/text.h"

#define CHECK(expr)                                              \
    do {                                                         \
        if ((expr) != ST_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #expr, st_last_error()); \
            exit(1);                                             \
        }                                                        \
    } while (0)

#define LLAMA(vocab_, hidden_, intermediate_, layers_, heads_, kv_heads_, head_dim_, tied_)     \
    {                                                                                           \
        .vocab = vocab_, .hidden = hidden_, .intermediate = intermediate_, .layers = layers_,   \
        .heads = heads_, .kv_heads = kv_heads_, .head_dim = head_dim_, .max_positions = 131072, \
        .rms_eps = 1e-5, .rope_theta = 5e5, .tied = tied_                                       \
    }
#define LLAMA_1B LLAMA(128256, 2048, 8192, 16, 32, 8, 64, true)
#define LLAMA_8B LLAMA(128256, 4096, 14336, 32, 32, 8, 128, false)
#define LLAMA_WORDS LLAMA(256000, 768, 2048, 12, 12, 12, 64, false)

typedef struct bench_case {
    const char *name;
    model_llama_config_t llama; /* layers 0: routed experts */
    int64_t batch, seq;
    uint32_t n_ranks;
    double host_us, host_gbps; /* 0: as the target has them */
    double limit_gib;          /* 0: the device's */
} bench_case_t;

static const bench_case_t cases[] = {
    {"llama-1b 8", LLAMA_1B, 8, 4096, 8, 0, 0, 0},
    {"llama-1b 64", LLAMA_1B, 64, 4096, 64, 0, 0, 0},
    {"llama-1b 1024", LLAMA_1B, 1024, 4096, 1024, 0, 0, 0},
    {"llama-8b 8", LLAMA_8B, 8, 8192, 8, 0, 0, 0},
    {"llama-8b 64", LLAMA_8B, 64, 8192, 64, 0, 0, 0},
    {"llama-8b 1024", LLAMA_8B, 1024, 8192, 1024, 0, 0, 0},
    {"slow links between hosts", LLAMA_1B, 16, 512, 16, 50, 5, 0},
    {"large vocabulary", LLAMA_WORDS, 16, 512, 16, 50, 5, 0},
    {"experts", {0}, 4096, 0, 8, 0, 0, 0},
    {"tight memory", LLAMA_8B, 8, 512, 8, 0, 0, 40},
};

/* Layers of a shared product and of experts, each token routed to the expert of its slot. */
static void experts(int64_t tokens, ir_graph_t **out) {
    enum { LAYERS = 8, EXPERTS = 8, WIDE = 2048, DEEP = 4096 };
    static char text[65536];
    int at = snprintf(text, sizeof text,
                      "graph \"experts\" {\n"
                      "  %%x x = input {dtype=f32, shape=[%lld,%d,%d], batch_axis=0}\n",
                      (long long)tokens, EXPERTS, WIDE);
    for (int i = 0; i < LAYERS; i++) {
        char from[16] = "x";
        if (i) snprintf(from, sizeof from, "z%d", i - 1);
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  %%w%d w%d = parameter {dtype=f32, shape=[%d,%d]}\n"
                       "  %%a%d a%d = parameter {dtype=f32, shape=[%d,%d,%d]}\n"
                       "  %%b%d b%d = parameter {dtype=f32, shape=[%d,%d,%d]}\n"
                       "  %%s%d = matmul(%%%s, %%w%d)\n"
                       "  %%t%d = transpose(%%s%d) {perm=[1,0,2]}\n"
                       "  %%h%d = matmul(%%t%d, %%a%d)\n  %%g%d = silu(%%h%d)\n"
                       "  %%y%d = matmul(%%g%d, %%b%d)\n"
                       "  %%u%d = transpose(%%y%d) {perm=[1,0,2]}\n"
                       "  %%z%d = add(%%s%d, %%u%d)\n",
                       i, i, WIDE, WIDE, i, i, EXPERTS, WIDE, DEEP, i, i, EXPERTS, DEEP, WIDE, i,
                       from, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i);
    }
    snprintf(text + at, sizeof text - (size_t)at,
             "  %%q = square(%%z%d)\n  %%l = reduce_mean(%%q) {axes=[0,1,2]}\n"
             "  output \"loss\" = %%l\n}\n",
             LAYERS - 1);
    CHECK(ir_graph_parse(text, strlen(text), out));
}

static void replace(ir_graph_t **graph, ir_graph_t *made) {
    ir_graph_destroy(*graph);
    *graph = made;
}

/* The training step as the pipeline has it before the lowering to ranks. */
static ir_graph_t *step_of(const bench_case_t *c, const ir_target_t *target) {
    ir_graph_t *graph, *made;
    ad_train_options_t train;
    if (c->llama.layers)
        CHECK(model_llama(&c->llama, c->batch, c->seq, true, &graph));
    else
        experts(c->batch, &graph);
    CHECK(ad_train_defaults("adamw", &train));
    train.clip_norm = 1;
    CHECK(ad_train_graph(graph, &train, &made));
    replace(&graph, made);
    CHECK(fuse_capture(graph, target, &made));
    replace(&graph, made);
    CHECK(ad_precision(graph, IR_BF16, &made));
    replace(&graph, made);
    CHECK(ir_expand_composites(graph, ir_expand_any, &made));
    replace(&graph, made);
    CHECK(fuse_simplify(graph, target, &made));
    replace(&graph, made);
    return graph;
}

static void run(const bench_case_t *c) {
    target_t *target;
    ir_target_t ir = {.name = "h200", .evaluate = compile_evaluate};
    CHECK(target_open("h200", &target));
    const ir_mesh_t mesh = ir_mesh_of_ranks(c->n_ranks);
    target_bind(target, &mesh, 1);
    if (c->host_gbps > 0) {
        target->machine.host_link_us = c->host_us;
        target->machine.host_link_gbps = c->host_gbps;
    }
    target_fill(target, &ir);
    ir.evaluate = compile_evaluate;
    ir_graph_t *graph = step_of(c, &ir);
    const sharding_request_t request = {
        .graph = graph,
        .target = &ir,
        .ring = {c->n_ranks, ir_links_of(&target->machine, c->n_ranks, 1), 1, false, NULL},
        .link_overlap = target->machine.link_overlap,
        .splits_inputs = true,
        .memory_limit =
            c->limit_gib > 0 ? (uint64_t)(c->limit_gib * 0x1p30) : target->machine.memory_bytes,
    };
    sharding_t made;
    CHECK(sharding_choose(&request, &made));
    for (uint32_t i = 0; i < made.n_rows; i++) {
        const sharding_row_t *r = &made.rows[i];
        printf(
            "{\"case\": \"%s\", \"ranks\": %u, \"plan\": \"%s\", \"chosen\": %s, \"fits\": %s, "
            "\"step_ms\": %.2f, \"exposed_ms\": %.2f, \"state_gib\": %.2f, \"live_gib\": %.2f, "
            "\"solve_ms\": %.0f}\n",
            c->name, c->n_ranks, r->name, i == made.chosen ? "true" : "false",
            r->fits ? "true" : "false", r->price.step_us * 1e-3, r->price.exposed_us * 1e-3,
            (double)r->price.state_bytes / 0x1p30, (double)r->price.live_bytes / 0x1p30,
            made.us * 1e-3);
    }
    fflush(stdout);
    sharding_free(&made);
    ir_graph_destroy(graph);
    target_destroy(target);
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc < 2 || strstr(cases[i].name, argv[1])) run(&cases[i]);
    return 0;
}
