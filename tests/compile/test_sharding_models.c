/* Placements of whole models: the cut beside the exact elimination, meshes of ranks, and how long a
 * choice takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/precision.h"
#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "compile/host.h"
#include "compile/meshes.h"
#include "compile/sharding.h"
#include "compile/target.h"
#include "fusion/recognize.h"
#include "fusion/simplify.h"
#include "import/model.h"
#include "ir/expand.h"
#include "shard/uniform.h"
#include "support/clock.h"

typedef struct fixture {
    target_t *target;
    ir_target_t ir;
    ir_graph_t *graph; /* the training step as it is lowered */
} fixture_t;

static void replace(ir_graph_t **graph, ir_graph_t *made) {
    ir_graph_destroy(*graph);
    *graph = made;
}

/* Takes over `forward`. */
static void open_fixture(fixture_t *f, ir_graph_t *forward, uint32_t n_ranks) {
    ad_train_options_t train;
    ir_graph_t *made;
    const ir_mesh_t mesh = ir_mesh_of_ranks(n_ranks);
    *f = (fixture_t){.graph = forward};
    assert_int_equal(target_open("h200", &f->target), ST_OK);
    target_bind(f->target, &mesh, 1);
    target_fill(f->target, &f->ir);
    f->ir.evaluate = compile_evaluate;
    assert_int_equal(ad_train_defaults("adamw", &train), ST_OK);
    train.clip_norm = 1;
    assert_int_equal(ad_train_graph(f->graph, &train, &made), ST_OK);
    replace(&f->graph, made);
    assert_int_equal(fuse_capture(f->graph, &f->ir, &made), ST_OK);
    replace(&f->graph, made);
    assert_int_equal(ad_precision(f->graph, IR_BF16, &made), ST_OK);
    replace(&f->graph, made);
    assert_int_equal(ir_expand_composites(f->graph, ir_expand_any, &made), ST_OK);
    replace(&f->graph, made);
    assert_int_equal(fuse_simplify(f->graph, &f->ir, &made), ST_OK);
    replace(&f->graph, made);
}

static void close_fixture(fixture_t *f) {
    ir_graph_destroy(f->graph);
    target_destroy(f->target);
}

static sharding_request_t request_of(const fixture_t *f, uint32_t n_ranks) {
    return (sharding_request_t){
        .graph = f->graph,
        .target = &f->ir,
        .ring = {n_ranks, ir_links_of(f->ir.machine, n_ranks, 1), 1, false, NULL},
        .link_overlap = 1,
        .splits_inputs = true,
        .memory_limit = f->ir.machine->memory_bytes,
    };
}

static ir_graph_t *llama(int64_t layers, int64_t hidden, int64_t batch, int64_t seq) {
    const model_llama_config_t config = {.vocab = 128256,
                                         .hidden = hidden,
                                         .intermediate = hidden * 7 / 2,
                                         .layers = layers,
                                         .heads = 32,
                                         .kv_heads = 8,
                                         .head_dim = hidden / 32,
                                         .max_positions = 131072,
                                         .rms_eps = 1e-5,
                                         .rope_theta = 5e5};
    ir_graph_t *graph;
    assert_int_equal(model_llama(&config, batch, seq, true, &graph), ST_OK);
    return graph;
}

/* Cuts against the elimination, where that is narrow enough: *n_compared counts. */
static void compare_energy(const shard_energy_t *energy, const shard_start_t *starts,
                           const char *what, uint32_t *n_compared) {
    shard_answer_t cut, exact;
    uint8_t *labels = st_calloc(energy->variables.n, 1);
    assert_non_null(labels);
    assert_int_equal(shard_energy_eliminate(energy, 1 << 20, labels, &exact), ST_OK);
    assert_int_equal(shard_energy_cut(energy, starts, labels, &cut), ST_OK);
    if (!exact.too_wide && exact.energy != SHARD_FORBIDDEN) {
        ++*n_compared;
        print_message("  %s: cut %.3f ms, least %.3f ms\n", what, (double)cut.energy * 1e-9,
                      (double)exact.energy * 1e-9);
        assert_true(cut.energy >= exact.energy);
        assert_true((double)cut.energy <= 1.01 * (double)exact.energy);
    }
    for (uint32_t i = 0; i < starts->n; i++)
        assert_true(cut.energy <= shard_energy_of(energy, starts->labels[i]));
    st_free(labels);
}

/* The free choice, and every uniform plan. */
static void compare(const fixture_t *f, uint32_t n_ranks, const char *what, uint32_t *n_compared) {
    const sharding_request_t request = request_of(f, n_ranks);
    shard_model_t *model;
    assert_int_equal(shard_model_open(f->graph, &f->ir, &request.ring, true, NULL, &model), ST_OK);
    const shard_start_t starts = shard_model_starts(model);
    print_message("%s on %u: %zu variables\n", what, n_ranks,
                  shard_model_energy(model)->variables.n);
    compare_energy(shard_model_energy(model), &starts, "free", n_compared);
    for (uint32_t form = 0; shard_uniform_name(form); form++) {
        shard_energy_t energy;
        assert_int_equal(shard_uniform_energy(model, shard_model_energy(model), form, &energy),
                         ST_OK);
        compare_energy(&energy, &starts, shard_uniform_name(form), n_compared);
        shard_energy_close(&energy);
    }
    shard_model_destroy(model);
}

static void cuts_are_as_good_as_elimination_on_models(void **state) {
    (void)state;
    const uint32_t ranks[] = {2, 8, 64};
    uint32_t n_llama = 0, n_resnet = 0;
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        fixture_t f;
        ir_graph_t *graph;
        const model_resnet_config_t resnet = {50, 1000, 3, 224, 0.1};
        open_fixture(&f, llama(6, 1024, 64, 512), ranks[i]);
        compare(&f, ranks[i], "llama", &n_llama);
        close_fixture(&f);
        assert_int_equal(model_resnet(&resnet, 256, true, &graph), ST_OK);
        open_fixture(&f, graph, ranks[i]);
        compare(&f, ranks[i], "resnet-50", &n_resnet);
        close_fixture(&f);
    }
    assert_true(n_llama >= 6 && n_resnet >= 6);
}

/* Every mesh is one of the ranks, of axes in the order of nearness, and news; what is priced least
 * comes first. */
static void check_meshes(const meshes_request_t *request, uint32_t n, const mesh_price_t *prices) {
    for (uint32_t i = 0; i < n; i++) {
        const mesh_price_t *p = &prices[i];
        assert_int_equal(ir_mesh_ranks(&p->mesh), request->n_ranks);
        const bool one = p->mesh.n == 1;
        assert_false(one && strcmp(p->mesh.axes[0].name, IR_AXIS_DATA) == 0);
        assert_false(one && strcmp(p->mesh.axes[0].name, IR_AXIS_TENSOR) == 0);
        assert_int_equal(ir_mesh_find(&p->mesh, IR_AXIS_EXPERT), IR_NONE); /* of a plain Llama */
        assert_int_equal(ir_mesh_find(&p->mesh, IR_AXIS_PIPE), IR_NONE); /* without micro-batches */
        assert_true(p->step_us > 0 && p->exposed_us >= 0 && p->exposed_us < p->step_us);
        for (uint32_t k = 0; k < i; k++) assert_false(ir_mesh_equal(&p->mesh, &prices[k].mesh));
        if (!i || prices[i - 1].fits != p->fits) continue;
        const uint64_t before = prices[i - 1].state_bytes + prices[i - 1].live_bytes;
        assert_true(p->fits ? prices[i - 1].step_us <= p->step_us
                            : before <= p->state_bytes + p->live_bytes);
    }
    for (uint32_t i = 1; i < n; i++) assert_true(prices[i - 1].fits || !prices[i].fits);
}

static void meshes_are_priced_least_first(void **state) {
    (void)state;
    enum { MOST = 64 };
    const uint32_t ranks[] = {4, 6, 64};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        fixture_t f;
        mesh_price_t prices[MOST], few[2];
        uint32_t n, n_few, n_fit = 0;
        open_fixture(&f, llama(4, 1024, 64, 512), ranks[i]);
        meshes_request_t request = {.graph = f.graph, .target = &f.ir, .n_ranks = ranks[i]};
        assert_int_equal(meshes_price(&request, MOST, prices, &n), ST_OK);
        assert_true(n >= 4 && n < MOST);
        for (uint32_t k = 0; k < n; k++) assert_true(prices[k].fits); /* there is no limit */
        check_meshes(&request, n, prices);
        assert_int_equal(meshes_price(&request, 2, few, &n_few), ST_OK);
        assert_int_equal(n_few, 2);
        for (int k = 0; k < 2; k++) {
            assert_true(ir_mesh_equal(&few[k].mesh, &prices[k].mesh));
            assert_true(few[k].step_us == prices[k].step_us && few[k].form == prices[k].form);
        }
        /* a limit that the first one just keeps within */
        request.memory_limit = prices[0].state_bytes + prices[0].live_bytes + 1;
        assert_int_equal(meshes_price(&request, MOST, prices, &n), ST_OK);
        check_meshes(&request, n, prices);
        for (uint32_t k = 0; k < n; k++) n_fit += prices[k].fits;
        assert_true(n_fit > 0 && prices[0].fits);
        close_fixture(&f);
    }
}

/* 32 layers of 8 billion parameters, every uniform plan beside: a second of processor time at most,
 * on whatever machine; a quiet one takes a quarter (bench_sharding). */
static void a_large_llama_is_quick(void **state) {
    (void)state;
    const uint32_t ranks[] = {8, 64, 1024};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        fixture_t f;
        sharding_t made;
        open_fixture(&f, llama(32, 4096, ranks[i], 8192), ranks[i]);
        const sharding_request_t request = request_of(&f, ranks[i]);
        assert_int_equal(sharding_choose(&request, &made), ST_OK);
        print_message("%u ranks: %.0f ms, %s\n", ranks[i], made.us * 1e-3,
                      made.rows[made.chosen].name);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        for (int again = 0; made.us >= 1e6 && again < 2; again++) { /* others share the caches */
            sharding_free(&made);
            assert_int_equal(sharding_choose(&request, &made), ST_OK);
        }
        assert_true(made.us < 1e6);
#endif
        assert_true(made.rows[made.chosen].fits);
        mesh_price_t price;
        uint32_t n;
        const meshes_request_t meshes = {.graph = f.graph,
                                         .target = &f.ir,
                                         .n_ranks = ranks[i],
                                         .memory_limit = request.memory_limit};
        const double begin = processor_seconds();
        assert_int_equal(meshes_price(&meshes, 1, &price, &n), ST_OK);
        const double seconds = processor_seconds() - begin;
        char text[IR_MESH_TEXT_BYTES];
        print_message("  meshes: %.0f ms, %s %.0f ms\n", seconds * 1e3,
                      ir_mesh_text(&price.mesh, text, sizeof text), price.step_us * 1e-3);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        assert_true(seconds < 2);
#endif
        for (uint32_t r = 0; r < made.n_rows; r++)
            assert_true(!made.rows[r].fits ||
                        made.rows[made.chosen].price.step_us <= made.rows[r].price.step_us);
        sharding_free(&made);
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_as_good_as_elimination_on_models),
        cmocka_unit_test(meshes_are_priced_least_first),
        cmocka_unit_test(a_large_llama_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
