/* Placements that are searched for train as one rank does, in float64, whatever machine they are searched
 * for: with links that cost nothing every tensor is split somehow, with slow ones none is. */
#include "shard.h"

#include <stdio.h>
#include <string.h>

#include "support/scratch.h"

/* The processor's own description with other links. */
static const char *machine(const char *name, const char *us, const char *gbps) {
    static char text[1 << 20], out[1 << 20], paths[2][4096];
    char *path = paths[strcmp(name, "free.target") == 0];
    const char *source = STATOR_SOURCE_DIR "/targets/cpu.target";
    FILE *file = fopen(source, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    out[0] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "link_us", 7) == 0)
            snprintf(out + strlen(out), 128, "link_us %s\n", us);
        else if (strncmp(line, "link_gbps", 9) == 0)
            snprintf(out + strlen(out), 128, "link_gbps %s\n", gbps);
        else if (strncmp(line, "launch_us", 9) == 0)
            strcat(out, "launch_us 0\n");
        else
            strcat(strcat(out, line), "\n");
    }
    snprintf(path, sizeof paths[0], "%s", scratch(name));
    spill(path, out, strlen(out));
    return path;
}

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
    const char *target = machine("free.target", "0", "1000000");
    const shard_model_t *llama = on(&shard_llama, target);
    const unsigned long long whole = shard_check(llama, "data=4", "dp");
    unsigned long long split = shard_check(llama, "data=4", "auto");
    assert_true(split < whole / 2);
    shard_check(llama, "data=2", "auto");
    shard_check(llama, "data=3", "auto");
}

static void uneven_parts_train_alike(void **state) {
    (void)state;
    const shard_model_t *llama = on(&shard_llama_uneven, machine("free.target", "0", "1000000"));
    shard_check(llama, "data=2", "auto");
    shard_check(llama, "data=3", "auto");
    shard_check(llama, "data=8", "auto");
}

static void convolutions_train_alike(void **state) {
    (void)state;
    const shard_model_t *resnet = on(&shard_resnet, machine("free.target", "0", "1000000"));
    shard_check(resnet, "data=2", "auto");
    shard_check(resnet, "data=3", "auto");
}

static void slow_links_split_nothing_that_has_to_be_sent(void **state) {
    (void)state;
    const shard_model_t *llama = on(&shard_llama, machine("slow.target", "1000", "0.001"));
    const unsigned long long whole = shard_check(llama, "data=3", "dp");
    assert_true(shard_check(llama, "data=3", "auto") == whole);
}

static void axes_are_searched_one_after_another(void **state) {
    (void)state;
    const shard_model_t *llama = on(&shard_llama, machine("free.target", "0", "1000000"));
    shard_check(llama, "data=2,tensor=2", "auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_links_split_all_there_is),
        cmocka_unit_test(uneven_parts_train_alike),
        cmocka_unit_test(convolutions_train_alike),
        cmocka_unit_test(slow_links_split_nothing_that_has_to_be_sent),
        cmocka_unit_test(axes_are_searched_one_after_another),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
