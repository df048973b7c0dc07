/* Pipelines beside other axes, and what shares their state: alike in float64. */
#include "shard.h"

#include "support/scratch.h"

static const char *const zb[] = {"pipeline", "zb", NULL};

static void other_axes_go_with_a_pipeline(void **state) {
    (void)state;
    shard_check(&shard_llama_micro, "pipe=2,data=2", "dp");
    shard_check_with(&shard_llama_micro, "data=2,pipe=2", "zero3", zb);
    shard_check(&shard_llama_micro, "pipe=2,tensor=2", "dp");
    shard_check_with(&shard_llama_tied, "tensor=2,pipe=2", "dp", zb);
    shard_check(&shard_llama_tied, "data=3,pipe=2", "zero1");
}

/* One batch goes through all stages, and back. */
static void a_step_without_micro_batches_trains_alike(void **state) {
    (void)state;
    shard_check(&shard_llama, "pipe=2", "dp");
}

static void state_goes_on_other_meshes_and_back(void **state) {
    (void)state;
    shard_check_resumed(&shard_llama_micro, "pipe=2", "dp", "data=2", "zero1");
    shard_check_resumed(&shard_llama_tied, "data=1", "dp", "pipe=3", "dp");
}

static void evaluation_shares_the_state_of_stages(void **state) {
    (void)state;
    shard_check_evaluation(&shard_llama_micro, "pipe=2", "dp");
    shard_check_evaluation(&shard_llama_tied, "pipe=2,data=2", "dp");
}

/* The search places tensors along the other axes. */
static void placements_that_are_searched_for_train_alike_in_stages(void **state) {
    (void)state;
    shard_check(&shard_llama_micro, "data=2,pipe=2", "auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_axes_go_with_a_pipeline),
        cmocka_unit_test(a_step_without_micro_batches_trains_alike),
        cmocka_unit_test(state_goes_on_other_meshes_and_back),
        cmocka_unit_test(evaluation_shares_the_state_of_stages),
        cmocka_unit_test(placements_that_are_searched_for_train_alike_in_stages),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
