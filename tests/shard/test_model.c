/* Placements along one axis as an energy: what is listed, what it costs, and what is chosen. */
#include "shard/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"

/* A device of 1 byte a nanosecond; products take their multiply-adds at 100 a nanosecond. */
static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out, ir_cost_t *result) {
    (void)context;
    double bytes = 0, products = 0;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) bytes += (double)ir_type_bytes(&ctx->in[j]);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) bytes += (double)ir_type_bytes(&out[k]);
    if (ctx->op == IR_OP_MATMUL) {
        const bool turned = ir_ctx_int(ctx, "transpose_a");
        products = (double)ir_type_elements(&out[0]) *
                   (double)ctx->in[0].dims[ctx->in[0].rank - (turned ? 2 : 1)];
    }
    *result = (ir_cost_t){.us = (bytes + products / 100) * 1e-3, .kernel = "k", .limit = "memory"};
}
static const ir_machine_t machine = {.name = "test",
                                     .device = "null",
                                     .n_cores = 1,
                                     .n_threads = 1,
                                     .n_ranks = 4,
                                     .memory_gbps = 1,
                                     .launch_us = 0};
static const ir_target_t target = {.name = "test", .machine = &machine, .cost = cost};
/* 4 ranks, 10 bytes a nanosecond. */
static const shard_ring_t ring = {4, {4, 4, 0.001, 10, 0, 0}, 1, false, NULL};

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    return graph;
}

static const char *place(ir_placement_t p) {
    static char text[4][32];
    static int at;
    char *to = text[at++ % 4];
    if (p.kind == IR_SPLIT)
        snprintf(to, sizeof text[0], "split %d/%d", (int)p.dim, (int)p.granules);
    else
        snprintf(to, sizeof text[0], "%s", p.kind == IR_PARTIAL ? "partial" : "whole");
    return to;
}

typedef struct solved {
    shard_model_t *model;
    shard_choices_t choices;
    shard_limited_t limited;
    uint8_t *labels;
} solved_t;

static solved_t solve(const ir_graph_t *graph, uint64_t limit) {
    solved_t s = {0};
    st_status_t status = shard_model_open(graph, &target, &ring, true, NULL, &s.model);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    const shard_energy_t *energy = shard_model_energy(s.model);
    const shard_start_t starts = shard_model_starts(s.model);
    shard_answer_t cut;
    s.labels = st_calloc(energy->variables.n, 1);
    s.choices.nodes = st_calloc(graph->nodes.n, sizeof *s.choices.nodes);
    assert_true(s.labels && s.choices.nodes);
    assert_int_equal(shard_energy_limited(energy, &starts, 1 << 16, limit, s.labels, &s.limited),
                     ST_OK);
    if (limit == UINT64_MAX) { /* the cut comes to the same as the exact elimination */
        uint8_t *labels = st_calloc(energy->variables.n, 1);
        assert_true(labels && s.limited.answer.exact);
        assert_int_equal(shard_energy_cut(energy, &starts, labels, &cut), ST_OK);
        assert_true(cut.energy == s.limited.answer.energy);
        for (uint32_t i = 0; i < starts.n; i++)
            assert_true(cut.energy <= shard_energy_of(energy, starts.labels[i]));
        st_free(labels);
    }
    shard_model_choose(s.model, s.labels, &s.choices);
    return s;
}

static void unsolve(solved_t *s) {
    shard_model_destroy(s->model);
    st_free(s->labels);
    st_free(s->choices.nodes);
}

static const ir_strategy_t *choice(const solved_t *s, const ir_graph_t *graph, const char *name) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (strcmp(ir_node(graph, n)->name, name) == 0) return s->choices.nodes[n];
    fail_msg("no node '%s'", name);
    return NULL;
}

/* A product, its gradient, and a step of the weight: [rows, wide] times [wide, deep]. */
static ir_graph_t *step(int rows, int wide, int deep) {
    char text[2048];
    snprintf(text, sizeof text,
             "graph \"g\" {\n"
             "  %%0 x = input {dtype=f32, shape=[%d,%d]}\n"
             "  %%1 dy = input {dtype=f32, shape=[%d,%d]}\n"
             "  %%2 w = parameter {dtype=f32, shape=[%d,%d]}\n"
             "  %%3 y = matmul(%%0, %%2)\n"
             "  phase backward\n"
             "  %%4 dw = matmul(%%0, %%1) {transpose_a=true}\n"
             "  %%5 z = mul(%%3, %%1)\n"
             "  phase optimizer\n"
             "  %%6 new = sub(%%2, %%4)\n"
             "  update(%%2, %%6)\n"
             "  output \"z\" = %%5\n"
             "}\n",
             rows, wide, rows, deep, wide, deep);
    return parse(text);
}

static void many_rows_and_small_weights_split_the_batch(void **state) {
    (void)state;
    ir_graph_t *graph = step(4096, 16, 16);
    solved_t s = solve(graph, UINT64_MAX);
    assert_string_equal(place(choice(&s, graph, "x")->out[0]), "split 0/4096");
    assert_string_equal(place(choice(&s, graph, "y")->out[0]), "split 0/4096");
    assert_string_equal(place(choice(&s, graph, "y")->in[1]), "whole");
    assert_string_equal(place(choice(&s, graph, "dw")->out[0]), "partial");
    /* summed in parts, and gathered when it is read: as many bytes as summing all of it, and each
     * rank makes a quarter of the new weight */
    assert_string_equal(place(choice(&s, graph, "w")->out[0]), "split 0/16");
    assert_string_equal(place(choice(&s, graph, "new")->in[1]), "split 0/16");
    unsolve(&s);
    ir_graph_destroy(graph);
}

static void few_rows_and_large_weights_split_the_weights(void **state) {
    (void)state;
    ir_graph_t *graph = step(8, 256, 4096);
    solved_t s = solve(graph, UINT64_MAX);
    assert_string_equal(place(choice(&s, graph, "w")->out[0]), "split 1/4096");
    assert_string_equal(place(choice(&s, graph, "y")->out[0]), "split 1/4096");
    assert_string_equal(place(choice(&s, graph, "new")->out[0]), "split 1/4096");
    unsolve(&s);
    ir_graph_destroy(graph);
}

static ir_graph_t *layers(int n) {
    static char text[65536];
    int at =
        snprintf(text, sizeof text, "graph \"g\" {\n  %%x x = input {dtype=f32, shape=[64,32]}\n");
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  %%w%d w%d = parameter {dtype=f32, shape=[32,32]}\n", i, i);
    for (int i = 0; i < n; i++) {
        char from[16] = "x";
        if (i) snprintf(from, sizeof from, "t%d", i - 1);
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  %%y%d y%d = matmul(%%%s, %%w%d)\n  %%t%d t%d = tanh(%%y%d)\n", i, i, from,
                       i, i, i, i);
    }
    snprintf(text + at, sizeof text - (size_t)at, "  output \"y\" = %%t%d\n}\n", n - 1);
    return parse(text);
}

/* A weight that is only read lies whole on each rank, unless that is more than there is. */
static void a_limit_of_memory_splits_the_state(void **state) {
    (void)state;
    ir_graph_t *graph = layers(1);
    solved_t whole = solve(graph, UINT64_MAX), part = solve(graph, 4095);
    assert_string_equal(place(choice(&whole, graph, "w0")->out[0]), "whole");
    assert_int_equal(whole.limited.memory_bytes, 4096);
    assert_true(part.limited.fits);
    assert_int_equal(part.limited.memory_bytes, 1024);
    assert_int_equal(choice(&part, graph, "w0")->out[0].kind, IR_SPLIT);
    assert_true(part.limited.answer.energy > whole.limited.answer.energy);
    solved_t none = solve(graph, 1023);
    assert_false(none.limited.fits);
    assert_int_equal(none.limited.memory_bytes, 1024);
    unsolve(&whole);
    unsolve(&part);
    unsolve(&none);
    ir_graph_destroy(graph);
}

/* Whatever is chosen: the weight's new value lies as the weight does. */
static void states_are_never_converted_in_place(void **state) {
    (void)state;
    ir_graph_t *graph = step(64, 64, 64);
    shard_model_t *model;
    assert_int_equal(shard_model_open(graph, &target, &ring, true, NULL, &model), ST_OK);
    const shard_energy_t *energy = shard_model_energy(model);
    const uint32_t w = shard_model_class(model, 2), update = shard_model_class(model, 7);
    uint32_t n_forbidden = 0, n_allowed = 0;
    for (size_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        if (!(pair->a == w && pair->b == update)) continue;
        for (uint32_t x = 0; x < energy->variables.data[w].n_labels; x++)
            for (uint32_t y = 0; y < energy->variables.data[update].n_labels; y++)
                if (shard_pair_cost(energy, pair, x, y) == SHARD_FORBIDDEN)
                    n_forbidden++;
                else
                    n_allowed++;
    }
    assert_int_equal(n_allowed, 3); /* whole, and split along each dim */
    assert_int_equal(n_forbidden, 6);
    shard_model_destroy(model);
    ir_graph_destroy(graph);
}

/* What a collective along another axis has begun stays as it began until its wait has it, however
 * cheap another placement would be for the wait's reader. */
static void what_is_on_its_way_is_never_converted(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[64,64,64]}\n"
        "  %1 = reduce_scatter_start(%0) {axis=[1], granules=[64], part=[32], mesh=\"tensor\"}\n"
        "  %2 = reduce_scatter_wait(%1)\n"
        "  %3 = exp(%2)\n"
        "  output \"y\" = %3\n"
        "}\n");
    shard_model_t *model;
    assert_int_equal(shard_model_open(graph, &target, &ring, true, NULL, &model), ST_OK);
    const shard_energy_t *energy = shard_model_energy(model);
    const uint32_t start = shard_model_class(model, 1), wait = shard_model_class(model, 2);
    uint32_t n_starts, n_waits, n_alike = 0;
    const ir_strategy_t *starts, *waits;
    (void)shard_model_node(model, start, &n_starts, &starts);
    (void)shard_model_node(model, wait, &n_waits, &waits);
    assert_true(n_starts > 2 && n_waits > 2);
    for (size_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        if (pair->a != start || pair->b != wait) continue;
        for (uint32_t x = 0; x < n_starts; x++)
            for (uint32_t y = 0; y < n_waits; y++) {
                const bool alike = ir_placement_equal(starts[x].out[0], waits[y].in[0]);
                assert_true(alike == (shard_pair_cost(energy, pair, x, y) != SHARD_FORBIDDEN));
                n_alike += alike;
            }
    }
    assert_int_equal(n_alike, n_starts);
    shard_model_destroy(model);
    ir_graph_destroy(graph);
}

/* Heads: a weight's columns are also split in as many granules as the reshape makes heads. */
static void reshapes_say_how_coarse_a_split_has_to_be(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,8,64]}\n"
        "  %1 w = parameter {dtype=f32, shape=[64,96]}\n"
        "  %2 y = matmul(%0, %1)\n"
        "  %3 heads = reshape(%2) {shape=[2,8,6,16]}\n"
        "  output \"heads\" = %3\n"
        "}\n");
    const shard_ring_t two = {2, {2, 2, 0.001, 10, 0, 0}, 1, false, NULL};
    shard_kinds_t kinds;
    char found[256] = "";
    assert_int_equal(shard_kinds_open(graph, &two, true, &kinds), ST_OK);
    const shard_kind_t *w = &kinds.kinds.data[kinds.of_node[1]];
    for (uint32_t i = 0; i < w->n_ways; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s, ",
                 place(w->ways[i].out[0]));
    assert_string_equal(found, "whole, split 0/64, split 1/96, split 1/6, ");
    const shard_kind_t *heads = &kinds.kinds.data[kinds.of_node[3]];
    found[0] = 0;
    for (uint32_t i = 0; i < heads->n_ways; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s > %s, ",
                 place(heads->ways[i].in[0]), place(heads->ways[i].out[0]));
    assert_string_equal(
        found,
        "whole > whole, split 0/2 > split 0/2, split 1/8 > split 1/8, partial > partial, "
        "split 2/6 > split 2/6, ");
    shard_kinds_close(&kinds);
    ir_graph_destroy(graph);
}

/* Layers in the middle decide together, and count as often as they occur. */
static void identical_layers_share_a_decision(void **state) {
    (void)state;
    ir_graph_t *few = layers(12), *many = layers(60);
    solved_t a = solve(few, UINT64_MAX), b = solve(many, UINT64_MAX);
    const shard_energy_t *of_few = shard_model_energy(a.model);
    const shard_energy_t *of_many = shard_model_energy(b.model);
    assert_true(of_few->variables.n == of_many->variables.n);
    assert_int_equal(shard_model_class(b.model, 20), shard_model_class(b.model, 30)); /* weights */
    assert_int_not_equal(shard_model_class(b.model, 1), shard_model_class(b.model, 30));
    /* a batch of 64 rows in four parts each way: nothing but a quarter of all nodes' time */
    const int64_t each = (b.limited.answer.energy - a.limited.answer.energy) / 48;
    ir_graph_t *one_more = layers(61);
    solved_t c = solve(one_more, UINT64_MAX);
    assert_true(c.limited.answer.energy - b.limited.answer.energy == each);
    unsolve(&a);
    unsolve(&b);
    unsolve(&c);
    ir_graph_destroy(few);
    ir_graph_destroy(many);
    ir_graph_destroy(one_more);
}

static void choices_are_found_again(void **state) {
    (void)state;
    ir_graph_t *graph = layers(12);
    solved_t s = solve(graph, UINT64_MAX);
    const shard_energy_t *energy = shard_model_energy(s.model);
    uint8_t *labels = st_calloc(energy->variables.n, 1);
    assert_non_null(labels);
    assert_true(shard_model_find(s.model, &s.choices, labels));
    assert_true(shard_energy_of(energy, labels) == s.limited.answer.energy);
    /* one layer apart from its class, or a way that no rule lists: no labels say that */
    const ir_strategy_t *before = s.choices.nodes[6], whole = {0};
    const ir_strategy_t odd = {.out = {IR_PLACE_SPLIT(0, 5)}};
    assert_true(before->out[0].kind == IR_REPLICATE);
    s.choices.nodes[6] = &odd;
    assert_false(shard_model_find(s.model, &s.choices, labels));
    const ir_strategy_t other = {.out = {IR_PLACE_SPLIT(0, 32)}};
    s.choices.nodes[6] = &other;
    assert_false(shard_model_find(s.model, &s.choices, labels));
    s.choices.nodes[6] = &whole;
    assert_true(shard_model_find(s.model, &s.choices, labels));
    st_free(labels);
    unsolve(&s);
    ir_graph_destroy(graph);
}

static void conversions_cost_what_their_collectives_move(void **state) {
    (void)state;
    const ir_type_t type = ir_type_make(IR_F32, 2, (int64_t[]){100, 10}); /* 4,000 bytes */
    const ir_placement_t whole = IR_PLACE_REPLICATE, sum = IR_PLACE_PARTIAL;
    const ir_placement_t rows = IR_PLACE_SPLIT(0, 100), columns = IR_PLACE_SPLIT(1, 10);
    const struct {
        ir_placement_t from, to;
        int64_t ns;
    } rows_of[] = {
        {sum, whole, 6 + 600}, /* two rounds of three steps; 2 · 3/4 · 4,000 / 10 */
        {rows, whole, 3 + 300}, {sum, rows, 3 + 300},        {rows, columns, 3 + 75},
        {whole, rows, 2000}, /* a quarter, read and written */
        {whole, sum, 8000},     {rows, sum, 3 + 300 + 8000}, {rows, rows, 0},
    };
    for (size_t i = 0; i < sizeof rows_of / sizeof rows_of[0]; i++)
        assert_int_equal(shard_convert_ps(&ring, &target, &type, rows_of[i].from, rows_of[i].to),
                         rows_of[i].ns * 1000);
    const shard_ring_t alone = {1, {1, 1, 1, 1, 0, 0}, 1, false, NULL};
    assert_int_equal(shard_convert_ps(&alone, &target, &type, sum, whole), 0);
    /* uneven: the last of four ranks has 3 of 10 columns */
    assert_int_equal(shard_part_bytes(&ring, &type, columns), 100 * 3 * 4);
}

static void control_flow_is_refused_by_name(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,3]}\n"
        "  %1 loop = repeat(%0) {trip=3, carried=1, body=graph {\n"
        "    %0 c = input {dtype=f32, shape=[4,3], batch_axis=-1}\n"
        "    %1 = tanh(%0)\n"
        "    output \"c\" = %1\n"
        "  }}\n"
        "  output \"y\" = %1\n"
        "}\n");
    shard_model_t *model;
    assert_int_equal(shard_model_open(graph, &target, &ring, true, NULL, &model), ST_UNSUPPORTED);
    assert_non_null(strstr(st_last_error(), "loop"));
    assert_null(model);
    ir_graph_destroy(graph);
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    ir_graph_t *graph = step(64, 32, 32);
    st_status_t status;
    int64_t n = 0;
    do {
        shard_model_t *model;
        st_memory_fail_after(n++, false);
        status = shard_model_open(graph, &target, &ring, true, NULL, &model);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        shard_model_destroy(model);
    } while (status != ST_OK);
    assert_true(n > 20);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_rows_and_small_weights_split_the_batch),
        cmocka_unit_test(few_rows_and_large_weights_split_the_weights),
        cmocka_unit_test(a_limit_of_memory_splits_the_state),
        cmocka_unit_test(states_are_never_converted_in_place),
        cmocka_unit_test(what_is_on_its_way_is_never_converted),
        cmocka_unit_test(reshapes_say_how_coarse_a_split_has_to_be),
        cmocka_unit_test(identical_layers_share_a_decision),
        cmocka_unit_test(choices_are_found_again),
        cmocka_unit_test(conversions_cost_what_their_collectives_move),
        cmocka_unit_test(control_flow_is_refused_by_name),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
