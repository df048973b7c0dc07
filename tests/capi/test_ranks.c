/* One to four ranks train alike in float64: short form. */
#include "ranks.h"

static void llama_trains_alike_on_1_to_4_ranks(void **state) {
    (void)state;
    static const ranks_case_t row = {
        "llama",
        {"config", STATOR_SOURCE_DIR "/examples/llama/char.json", "batch", "6", "seq", "16",
         "optimizer", "adamw", "lr", "2e-3", "weight-decay", "0.1", "clip", "1.0"},
        4};
    ranks_check(&row);
}

static void resnet_trains_alike_on_1_to_4_ranks(void **state) {
    (void)state;
    static const ranks_case_t row = {
        "resnet",
        {"depth", "8", "classes", "10", "channels", "1", "image", "12", "batch", "6", "optimizer",
         "sgd", "lr", "0.05", "momentum", "0.9", "weight-decay", "5e-5"},
        3};
    ranks_check(&row);
}

static void a_batch_smaller_than_the_ranks_leaves_some_empty(void **state) {
    (void)state;
    static const ranks_case_t row = {"resnet",
                                     {"depth", "8", "classes", "10", "channels", "1", "image", "8",
                                      "batch", "2", "optimizer", "sgd", "lr", "0.05"},
                                     2};
    ranks_check(&row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_trains_alike_on_1_to_4_ranks),
        cmocka_unit_test(resnet_trains_alike_on_1_to_4_ranks),
        cmocka_unit_test(a_batch_smaller_than_the_ranks_leaves_some_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
