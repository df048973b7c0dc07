/* Placements that are searched for train as one rank does, in float64, whatever machine they are
 * searched for: with links that cost nothing every tensor is split somehow, with slow ones none
 * is. */
#include "shard.h"

#include <stdio.h>
#include <string.h>

#include "stator/stator.h"
#include "support/scratch.h"

/* Each call gives another model, which stays: shard_check knows them by address. */
static const shard_model_t *on(const shard_model_t *model, const char *target) {
    static shard_model_t all[8];
    static int n_made;
    shard_model_t *made = &all[n_made++];
    int n = 0;
    assert_true(n_made <= 8);
    *made = *model;
    while (made->options[n]) n += 2;
    made->options[n] = "target";
    made->options[n + 1] = target;
    made->options[n + 2] = NULL;
    return made;
}

static void free_links_split_all_there_is(void **state) {
    (void)state;
    const char *target = shard_machine("free.target", "0", "1000000");
    const shard_model_t *llama = on(&shard_llama, target);
    const unsigned long long whole = shard_check(llama, "data=4", "dp");
    unsigned long long split = shard_check(llama, "data=4", "auto");
    assert_true(split < whole / 2);
    shard_check(llama, "data=2", "auto");
    shard_check(llama, "data=3", "auto");
}

static void uneven_parts_train_alike(void **state) {
    (void)state;
    const shard_model_t *llama =
        on(&shard_llama_uneven, shard_machine("free.target", "0", "1000000"));
    shard_check(llama, "data=2", "auto");
    shard_check(llama, "data=3", "auto");
    shard_check(llama, "data=8", "auto");
}

static void convolutions_train_alike(void **state) {
    (void)state;
    const shard_model_t *resnet = on(&shard_resnet, shard_machine("free.target", "0", "1000000"));
    shard_check(resnet, "data=2", "auto");
    shard_check(resnet, "data=3", "auto");
}

static void slow_links_split_nothing_that_has_to_be_sent(void **state) {
    (void)state;
    const shard_model_t *llama = on(&shard_llama, shard_machine("slow.target", "1000", "0.001"));
    const unsigned long long whole = shard_check(llama, "data=3", "dp");
    assert_true(shard_check(llama, "data=3", "auto") == whole);
}

static void axes_are_searched_one_after_another(void **state) {
    (void)state;
    const shard_model_t *llama = on(&shard_llama, shard_machine("free.target", "0", "1000000"));
    shard_check(llama, "data=2,tensor=2", "auto");
    shard_check(llama, "data=2,context=2", "auto");
}

static void searched_experts_train_alike(void **state) {
    (void)state;
    const char *target = shard_machine("free.target", "0", "1000000");
    shard_check(on(&shard_experts, target), "data=2,expert=2", "auto");
    shard_check(&shard_experts, "data=2,expert=4", "auto"); /* of the processor as it is */
    shard_check(on(&shard_experts_uneven, target), "data=2,expert=2", "auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_links_split_all_there_is),
        cmocka_unit_test(uneven_parts_train_alike),
        cmocka_unit_test(convolutions_train_alike),
        cmocka_unit_test(slow_links_split_nothing_that_has_to_be_sent),
        cmocka_unit_test(axes_are_searched_one_after_another),
        cmocka_unit_test(searched_experts_train_alike),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
