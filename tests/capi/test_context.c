/* Sequences in parts train as one rank does, in float64, with keys and values gathered or going
 * round. */
#include <string.h>

#include "shard.h"
#include "stator/stator.h"
#include "support/scratch.h"

static const char *const ring[] = {"context-attention", "ring", NULL};

/* Queries see three keys, which for the first of a part lie on the rank before; of parts of two
 * rows on the two before. */
static const shard_model_t windowed = {
    "llama with a sliding window",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 64, \"hidden_size\": 32,"
    " \"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"sliding_window\": 3}",
    {"batch", "3", "seq", "9", "optimizer", "adamw", "lr", "2e-3", "clip", "0.5"},
    64,
    0};

/* On numbers of ranks that divide the rows or not, and on more than there are rows. */
static void sequences_in_parts_train_alike(void **state) {
    (void)state;
    shard_check(&shard_llama, "context=2", "dp");
    shard_check(&shard_llama, "context=3", "dp");
    shard_check(&shard_llama, "data=2,context=2", "dp");
    shard_check(&shard_llama, "tensor=2,context=2", "dp");
    shard_check(&shard_llama, "context=11", "dp");
    shard_check(&shard_llama, "data=4,context=4", "dp");
    shard_check(&shard_llama_uneven, "context=4", "dp");
}

static void keys_that_go_round_train_alike(void **state) {
    (void)state;
    shard_check_with(&shard_llama, "context=2", "dp", ring);
    shard_check_with(&shard_llama, "context=3", "dp", ring);
    shard_check_with(&shard_llama, "context=4", "dp", ring);
    shard_check_with(&shard_llama, "data=2,context=2", "zero1", ring);
    shard_check_with(&shard_llama, "data=2,context=2", "zero3", ring);
    shard_check_with(&shard_llama, "tensor=2,context=2", "dp", ring);
    shard_check_with(&shard_llama, "context=11", "dp", ring);
    shard_check_with(&shard_llama_uneven, "context=3", "dp", ring);
    shard_check_with(&shard_llama_uneven, "context=4", "dp", ring);
}

static void a_sliding_window_trains_alike(void **state) {
    (void)state;
    shard_check(&windowed, "context=2", "dp");
    shard_check(&windowed, "context=4", "dp");
    shard_check_with(&windowed, "context=2", "dp", ring);
    shard_check_with(&windowed, "context=3", "dp", ring);
    shard_check_with(&windowed, "context=4", "dp", ring);
}

/* Labels that count for nothing lie all in the first half of each sequence: one rank of two has
 * no item, the other all. Means are over all that count. */
static void losses_with_unequal_tokens_are_means_of_all(void **state) {
    (void)state;
    static shard_model_t llama;
    llama = shard_llama;
    llama.ignored = 5;
    shard_check(&llama, "context=2", "dp");
    shard_check(&llama, "data=2,context=2", "zero1");
    shard_check_with(&llama, "context=2", "dp", ring);
}

static void a_model_without_attention_is_refused(void **state) {
    (void)state;
    shard_check_unplanned(&shard_resnet, "context=2", "", "no attention over several rows");
}

/* ---- memory ---- */

static void must(stator_status_t status) {
    if (status != STATOR_OK) fail_msg("%s", stator_last_error());
}

/* A plan of training one sequence of a model on `mesh`; more: key, value, …, NULL. */
static stator_plan_t *plan_of(const char *config, const char *how, const char *mesh,
                              const char *const *more) {
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *training = NULL;
    stator_plan_t *plan = NULL;
    must(stator_options_create(&options));
    must(stator_options_set(options, "batch", "1"));
    for (size_t i = 0; more[i]; i += 2) must(stator_options_set(options, more[i], more[i + 1]));
    spill(scratch("long.json"), config, strlen(config));
    must(stator_options_set(options, "config", scratch("long.json")));
    must(stator_options_set(options, "mesh", mesh));
    must(stator_options_set(options, "context-attention", how));
    must(stator_graph_llama(options, 1, &graph));
    must(stator_graph_make_training(graph, options, &training));
    must(stator_plan_compile(training, options, NULL, &plan));
    stator_graph_destroy(training);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
    return plan;
}

/* Bytes beside the state of a rank that trains one layer on one sequence. */
static uint64_t planned_bytes(const char *how, const char *mesh) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 16,"
        " \"hidden_size\": 64, \"intermediate_size\": 16, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 4, \"num_key_value_heads\": 4}";
    static const char *const more[] = {"seq", "2048", "threads", "1", NULL};
    stator_plan_t *plan = plan_of(config, how, mesh, more);
    const stator_plan_info_t info = stator_plan_info(plan);
    stator_plan_destroy(plan);
    return info.work_bytes + info.comm_bytes;
}

/* A rank that gathers has whole keys and values, and whole gradients of them; one that passes
 * them on has parts of them, whose size falls with the number of ranks. */
static void keys_that_go_round_are_never_whole(void **state) {
    const uint64_t whole = 2048 * 64 * sizeof(float); /* of keys, or of values */
    (void)state;
    const uint64_t gathered = planned_bytes("gather", "context=8");
    const uint64_t passed = planned_bytes("ring", "context=8");
    const uint64_t passed_by_16 = planned_bytes("ring", "context=16");
    print_message("8 ranks: %llu bytes gathered, %llu going round; 16 ranks: %llu\n",
                  (unsigned long long)gathered, (unsigned long long)passed,
                  (unsigned long long)passed_by_16);
    assert_true(gathered > 4 * whole);
    assert_true(passed + 2 * whole < gathered);
    assert_true(passed_by_16 < 0.6 * (double)passed);
}

static stator_report_totals_t totals_of(const stator_plan_t *plan, uint32_t rank) {
    stator_report_t *report = NULL;
    must(stator_report_create(plan, rank, &report));
    const stator_report_totals_t totals = stator_report_totals(report);
    stator_report_destroy(report);
    return totals;
}

/* Where links work beside kernels, keys come while attention runs; and no rank has much more to
 * do than another. Half a unit of work for own keys, one for each other pair: of 8 ranks the
 * first has 0.5 and the last 7.5 gathered, 3.5 and 4.5 as a ring. */
static void a_ring_hides_its_links_and_shares_its_work(void **state) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 16,"
        " \"hidden_size\": 1024, \"intermediate_size\": 1024, \"num_hidden_layers\": 2,"
        " \"num_attention_heads\": 16, \"num_key_value_heads\": 4,"
        " \"max_position_embeddings\": 131072}";
    static const char *const more[] = {"seq",  "65536", "target", "h200", "device",
                                       "null", "dtype", "bf16",   NULL};
    (void)state;
    stator_plan_t *gathered = plan_of(config, "gather", "context=8", more);
    stator_plan_t *passed = plan_of(config, "ring", "context=8", more);
    const stator_report_totals_t first = totals_of(passed, 0), last = totals_of(passed, 7);
    const stator_report_totals_t first_of_all = totals_of(gathered, 0);
    const stator_report_totals_t last_of_all = totals_of(gathered, 7);
    print_message(
        "step %.0f us gathered, %.0f as a ring; links %.0f us, exposed %.0f on the last\n",
        last_of_all.step_us, last.step_us, last.link_us, last.exposed_us);
    assert_true(last_of_all.product_flop > 5 * first_of_all.product_flop);
    assert_true(last.product_flop < 1.3 * first.product_flop);
    assert_true(last.step_us < 0.75 * last_of_all.step_us);
    assert_true(last.exposed_us < 0.35 * last.link_us); /* sums of gradients at the end included */
    stator_plan_destroy(gathered);
    stator_plan_destroy(passed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_in_parts_train_alike),
        cmocka_unit_test(keys_that_go_round_train_alike),
        cmocka_unit_test(a_sliding_window_trains_alike),
        cmocka_unit_test(losses_with_unequal_tokens_are_means_of_all),
        cmocka_unit_test(a_model_without_attention_is_refused),
        cmocka_unit_test(keys_that_go_round_are_never_whole),
        cmocka_unit_test(a_ring_hides_its_links_and_shares_its_work),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
