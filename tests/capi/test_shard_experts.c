/* Routed experts over an axis of their own train as one rank does, in float64. */
#include "shard.h"

#include "support/scratch.h"

static void experts_train_alike_in_parts(void **state) {
    (void)state;
    static const char *const meshes[] = {"expert=2", "expert=3", "expert=4", "expert=8"};
    double whole = (double)shard_check(&shard_experts, "data=4", "dp");
    for (int m = 0; m < 4; m++) shard_check(&shard_experts, meshes[m], "dp");
    double parts = (double)shard_check(&shard_experts, "expert=4", "dp");
    assert_true(parts < 0.6 * whole); /* experts are most of the state */
}

static void experts_train_alike_on_mixed_meshes(void **state) {
    (void)state;
    shard_check(&shard_experts, "data=2,expert=2", "dp");
    shard_check(&shard_experts, "expert=2,data=2", "dp");
    shard_check(&shard_experts, "tensor=2,expert=2", "dp");
    shard_check(&shard_experts, "data=2,expert=4", "zero1");
    shard_check(&shard_experts, "data=4", "zero3");
}

static void uneven_and_empty_experts_train_alike(void **state) {
    (void)state;
    shard_check(&shard_experts_uneven, "expert=2", "dp");
    shard_check(&shard_experts_uneven, "expert=3", "dp");
    shard_check(&shard_experts_uneven, "expert=8", "dp"); /* some have no expert, some no batch */
    shard_check(&shard_experts_uneven, "data=2,expert=2", "dp");
}

/* What keeps experts even counts the tokens of the whole batch, wherever they are. */
static void balanced_experts_train_alike(void **state) {
    (void)state;
    static shard_model_t model, uneven;
    model = shard_with(&shard_experts, "balance-coefficient", "0.5");
    shard_check(&model, "data=4", "zero2");
    shard_check(&model, "expert=4", "dp");
    shard_check(&model, "data=2,expert=2", "zero1");
    shard_check(&model, "tensor=2,expert=2", "dp");
    shard_check(&model, "context=2", "dp");
    uneven = shard_with(&shard_experts_uneven, "balance-coefficient", "0.5");
    shard_check(&uneven, "data=3", "dp");
    shard_check(&uneven, "expert=3", "dp");
}

/* Parts of the batch are left of one item or none, which the expert axis divides again. */
static void more_ranks_than_items_train_alike(void **state) {
    (void)state;
    shard_check(&shard_experts_uneven, "data=3,expert=2", "dp");
    shard_check(&shard_experts_uneven, "data=4,expert=2", "zero1");
    shard_check(&shard_experts_uneven, "data=6,expert=3", "dp");
    shard_check(&shard_llama, "data=4,context=2", "dp"); /* six items */
}

/* Numbers of ranks that divide nothing, more than there are of anything. */
static void eleven_and_sixteen_ranks_train_alike(void **state) {
    (void)state;
    shard_check(&shard_experts, "expert=11", "dp");
    shard_check(&shard_experts, "data=4,expert=4", "dp");
}

/* Labels that count for nothing. */
static void losses_with_unequal_tokens_are_means_of_all(void **state) {
    (void)state;
    static shard_model_t routed;
    routed = shard_experts;
    routed.ignored = 5;
    shard_check(&routed, "expert=4", "dp");
}

static void a_model_without_experts_is_refused(void **state) {
    (void)state;
    shard_check_unplanned(&shard_llama, "expert=2", "", "no experts whose weights are whole");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_train_alike_in_parts),
        cmocka_unit_test(experts_train_alike_on_mixed_meshes),
        cmocka_unit_test(uneven_and_empty_experts_train_alike),
        cmocka_unit_test(more_ranks_than_items_train_alike),
        cmocka_unit_test(balanced_experts_train_alike),
        cmocka_unit_test(eleven_and_sixteen_ranks_train_alike),
        cmocka_unit_test(losses_with_unequal_tokens_are_means_of_all),
        cmocka_unit_test(a_model_without_experts_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
