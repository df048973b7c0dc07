/* Every form on 1, 2, 3, 4 and 8 ranks, and on mixed meshes, trains as one rank does: full form. */
#include "shard.h"

#include "support/scratch.h"

static void each_mesh(const shard_model_t *model) {
    static const char *const forms[] = {"dp", "zero1", "zero2", "zero3"};
    static const char *const data[] = {"data=1", "data=2", "data=3", "data=4", "data=8"};
    static const char *const tensor[] = {"tensor=2", "tensor=3", "tensor=4", "tensor=8"};
    static const struct {
        const char *mesh, *form;
    } mixed[] = {
        {"data=2,tensor=2", "dp"},    {"data=2,tensor=2", "zero1"}, {"tensor=2,data=2", "zero2"},
        {"data=2,tensor=2", "zero3"}, {"data=3,tensor=2", "zero1"}, {"data=2,tensor=3", "zero3"},
        {"tensor=3,data=3", "zero2"}, {"data=4,tensor=2", "zero3"}, {"data=2,tensor=4", "zero1"},
        {"tensor=4,data=2", "zero3"}, {"data=8,tensor=2", "zero3"}, {"data=2,tensor=8", "zero2"},
    };
    for (int m = 0; m < 5; m++)
        for (int f = 0; f < 4; f++) shard_check(model, data[m], forms[f]);
    for (int m = 0; m < 4; m++) shard_check(model, tensor[m], "tp");
    for (size_t i = 0; i < sizeof mixed / sizeof mixed[0]; i++)
        shard_check(model, mixed[i].mesh, mixed[i].form);
}

static void llama_trains_alike(void **state) {
    (void)state;
    each_mesh(&shard_llama);
}
static void uneven_llama_trains_alike(void **state) {
    (void)state;
    each_mesh(&shard_llama_uneven);
}
static void resnet_trains_alike(void **state) {
    (void)state;
    each_mesh(&shard_resnet);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_trains_alike),
        cmocka_unit_test(uneven_llama_trains_alike),
        cmocka_unit_test(resnet_trains_alike),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
