/* Placements that are searched for train as one rank does, in float64, whatever machine they are searched
 * for: with links that cost nothing every tensor is split somehow, with slow ones none is. */
#include "shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stator/stator.h"
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

static void make_report(const char *const *more, stator_plan_t **plan, stator_report_t **report) {
    const char *const pairs[] = {
        "config", scratch("config.json"), "batch", "8", "seq", "16", "target", "h200", "shard",
        "auto"};
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *training = NULL;
    spill(scratch("config.json"), shard_llama.config, strlen(shard_llama.config));
    assert_int_equal(stator_options_create(&options), STATOR_OK);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i += 2)
        assert_int_equal(stator_options_set(options, pairs[i], pairs[i + 1]), STATOR_OK);
    for (; *more; more += 2)
        assert_int_equal(stator_options_set(options, more[0], more[1]), STATOR_OK);
    assert_int_equal(stator_graph_llama(options, 1, &graph), STATOR_OK);
    assert_int_equal(stator_graph_make_training(graph, options, &training), STATOR_OK);
    stator_status_t status = stator_plan_compile(training, options, NULL, plan);
    if (status != STATOR_OK) print_error("%s\n", stator_last_error());
    assert_int_equal(status, STATOR_OK);
    assert_int_equal(stator_report_create(*plan, 0, report), STATOR_OK);
    stator_graph_destroy(training);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

static void the_report_has_every_uniform_plan_beside_the_choice(void **state) {
    (void)state;
    static const char *const mesh[] = {"mesh", "data=4", NULL};
    static const char *const names[] = {"dp", "zero1", "zero2", "zero3", "tp", "none", "auto"};
    stator_plan_t *plan;
    stator_report_t *report;
    stator_report_alternative_t row;
    double chosen = 0, least = INFINITY;
    uint32_t n_chosen = 0, n_compiled = 0, seen = 0;
    make_report(mesh, &plan, &report);
    for (size_t i = 0; stator_report_alternative_at(report, i, &row); i++) {
        assert_string_equal(row.axis, "data");
        assert_string_equal(row.reason, "");
        assert_true(row.step_us > 0 && row.state_bytes > 0 && row.fits);
        n_chosen += row.chosen != 0;
        n_compiled += row.compiled_us > 0;
        if (row.chosen) chosen = row.compiled_us;
        if (row.compiled_us > 0 && row.compiled_us < least) least = row.compiled_us;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (strcmp(row.name, names[k]) == 0) seen |= 1u << k;
    }
    assert_int_equal(n_chosen, 1);
    assert_true(n_compiled > 1);
    assert_true(chosen == least && fabs(chosen - stator_report_totals(report).step_us) < 1e-6);
    assert_int_equal(seen, (1u << sizeof names / sizeof names[0]) - 1);
    stator_report_destroy(report);
    stator_plan_destroy(plan);
}

static double compiled_us(const char *target, const char *ranks, const char *shard) {
    const char *const more[] = {"target", target, "ranks", ranks, "shard", shard, NULL};
    stator_plan_t *plan;
    stator_report_t *report;
    make_report(more, &plan, &report);
    const double us = stator_report_totals(report).step_us;
    stator_report_destroy(report);
    stator_plan_destroy(plan);
    return us;
}

/* By the plans' own simulation, after fusion and all else; where no mesh is asked for, a tensor axis is one of the
 * forms. */
static void no_uniform_plan_is_faster_once_it_is_compiled(void **state) {
    (void)state;
    static const char *const forms[] = {"dp", "zero1", "zero2", "zero3", "tp"};
    const char *const targets[] = {"h200", machine("free.target", "0", "1000000"),
                                   machine("slow.target", "100", "0.1")};
    static const char *const ranks[] = {"4", "2", "2"};
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        const double chosen = compiled_us(targets[t], ranks[t], "auto");
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            const double uniform = compiled_us(targets[t], ranks[t], forms[f]);
            if (chosen > uniform * (1 + 1e-9))
                fail_msg("%s, %s ranks: %g us, %s takes %g", targets[t], ranks[t], chosen, forms[f],
                         uniform);
        }
    }
}

static void control_flow_is_data_parallel_and_says_so(void **state) {
    (void)state;
    static const char *const loop[] = {"mesh", "data=4", "accumulate", "2", "target", "cpu", NULL};
    stator_plan_t *plan;
    stator_report_t *report;
    stator_report_alternative_t row;
    make_report(loop, &plan, &report);
    assert_true(stator_report_alternative_at(report, 0, &row));
    assert_string_equal(row.name, "dp");
    assert_true(row.chosen && strstr(row.reason, "control flow"));
    assert_false(stator_report_alternative_at(report, 1, &row));
    stator_report_destroy(report);
    stator_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_links_split_all_there_is),
        cmocka_unit_test(uneven_parts_train_alike),
        cmocka_unit_test(convolutions_train_alike),
        cmocka_unit_test(slow_links_split_nothing_that_has_to_be_sent),
        cmocka_unit_test(axes_are_searched_one_after_another),
        cmocka_unit_test(the_report_has_every_uniform_plan_beside_the_choice),
        cmocka_unit_test(no_uniform_plan_is_faster_once_it_is_compiled),
        cmocka_unit_test(control_flow_is_data_parallel_and_says_so),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
