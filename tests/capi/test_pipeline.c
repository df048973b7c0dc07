/* Pipelines train as one rank does, in float64. */
#include "shard.h"

#include "support/scratch.h"

static const char *const zb[] = {"pipeline", "zb", NULL};
static const char *const two_each[] = {"stages-per-rank", "2", NULL};
static const char *const zb_two_each[] = {"pipeline", "zb", "stages-per-rank", "2", NULL};

/* Five micro-batches: no multiple of the ranks. */
static void llama_trains_alike_in_stages(void **state) {
    (void)state;
    double whole = (double)shard_check(&shard_llama_micro, "data=1", "dp");
    double half = (double)shard_check(&shard_llama_micro, "pipe=2", "dp");
    assert_true(half < 0.6 * whole);
    shard_check(&shard_llama_micro, "pipe=3", "dp");
    shard_check(&shard_llama_micro, "pipe=4", "dp");
}

static void llama_trains_alike_without_bubbles(void **state) {
    (void)state;
    shard_check_with(&shard_llama_micro, "pipe=2", "dp", zb);
    shard_check_with(&shard_llama_micro, "pipe=4", "dp", zb);
}

static void llama_trains_alike_in_several_stages_a_rank(void **state) {
    (void)state;
    shard_check_with(&shard_llama_micro, "pipe=2", "dp", two_each);
    shard_check_with(&shard_llama_micro, "pipe=3", "dp", zb_two_each);
}

/* Its gradient comes from the first and the last stage. */
static void a_tied_weight_trains_alike(void **state) {
    (void)state;
    shard_check(&shard_llama_tied, "pipe=2", "dp");
    shard_check_with(&shard_llama_tied, "pipe=3", "dp", zb);
    shard_check_with(&shard_llama_tied, "pipe=2", "dp", two_each);
}

static void resnet_trains_alike_in_stages(void **state) {
    (void)state;
    shard_check(&shard_resnet_micro, "pipe=2", "dp");
    shard_check_with(&shard_resnet_micro, "pipe=3", "dp", zb);
    shard_check(&shard_resnet_micro, "pipe=4", "dp");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_trains_alike_in_stages),
        cmocka_unit_test(llama_trains_alike_without_bubbles),
        cmocka_unit_test(llama_trains_alike_in_several_stages_a_rank),
        cmocka_unit_test(a_tied_weight_trains_alike),
        cmocka_unit_test(resnet_trains_alike_in_stages),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
