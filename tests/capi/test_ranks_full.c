/* One to four ranks train alike in float64: 50 steps of AdamW on the char Llama, 10 of SGD on
 * ResNet-8. */
#include "ranks.h"

static void llama_trains_alike_for_50_steps(void **state) {
    (void)state;
    static const ranks_case_t row = {
        "llama",
        {"config", STATOR_SOURCE_DIR "/examples/llama/char.json", "batch", "16", "seq", "128",
         "optimizer", "adamw", "lr", "2e-3", "schedule", "cosine", "warmup", "20", "steps", "320"},
        50};
    ranks_check(&row);
}

static void resnet_trains_alike_for_10_steps(void **state) {
    (void)state;
    static const ranks_case_t row = {
        "resnet",
        {"depth",    "8",     "classes",  "10",        "channels",     "1",   "image",
         "28",       "batch", "128",      "optimizer", "sgd",          "lr",  "0.1",
         "momentum", "0.9",   "nesterov", "true",      "weight-decay", "5e-4"},
        10};
    ranks_check(&row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_trains_alike_for_50_steps),
        cmocka_unit_test(resnet_trains_alike_for_10_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
