/* The search for placements among compiled plans: whatever the mesh, nothing that can be asked for
 * by name is faster, and the table tells what else there was. */
#include "shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stator/stator.h"
#include "support/scratch.h"

/* NULL in `plan`: the options make none. */
static void make_report_of(const shard_model_t *model, const char *const *more,
                           stator_plan_t **plan, stator_report_t **report) {
    const char *const pairs[] = {
        "config", scratch("config.json"), "batch", "8", "seq", "16", "target", "h200", "shard",
        "auto"};
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *training = NULL;
    char config[1024]; /* of one layer, whatever the model has: many plans are compiled */
    snprintf(config, sizeof config, "%s", model->config);
    char *layers = strstr(config, "num_hidden_layers\": ");
    assert_non_null(layers);
    layers[strlen("num_hidden_layers\": ")] = '1';
    spill(scratch("config.json"), config, strlen(config));
    *plan = NULL;
    *report = NULL;
    assert_int_equal(stator_options_create(&options), STATOR_OK);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i += 2)
        assert_int_equal(stator_options_set(options, pairs[i], pairs[i + 1]), STATOR_OK);
    for (; *more; more += 2)
        assert_int_equal(stator_options_set(options, more[0], more[1]), STATOR_OK);
    assert_int_equal(stator_graph_llama(options, 1, &graph), STATOR_OK);
    assert_int_equal(stator_graph_make_training(graph, options, &training), STATOR_OK);
    if (stator_plan_compile(training, options, NULL, plan) == STATOR_OK)
        assert_int_equal(stator_report_create(*plan, 0, report), STATOR_OK);
    stator_graph_destroy(training);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

static void make_report(const char *const *more, stator_plan_t **plan, stator_report_t **report) {
    make_report_of(&shard_llama, more, plan, report);
    if (!*plan) fail_msg("%s", stator_last_error());
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

/* Infinite where there is no such plan. */
static double compiled_us_of(const shard_model_t *model, const char *const *more) {
    stator_plan_t *plan;
    stator_report_t *report;
    make_report_of(model, more, &plan, &report);
    const double us = plan ? stator_report_totals(report).step_us : INFINITY;
    stator_report_destroy(report);
    stator_plan_destroy(plan);
    return us;
}

static double compiled_us(const char *target, const char *ranks, const char *shard) {
    const char *const more[] = {"target", target, "ranks", ranks, "shard", shard, NULL};
    return compiled_us_of(&shard_llama, more);
}

/* On meshes of several axes, whatever they do: no plan that can be asked for by name is faster. */
static void no_uniform_plan_of_a_mesh_is_faster(void **state) {
    (void)state;
    static const char *const forms[] = {"dp", "zero1", "zero3"};
    static const struct {
        const shard_model_t *model;
        const char *mesh, *accumulate;
        int least; /* forms that there are */
    } cases[] = {{&shard_experts, "data=2,expert=2", "1", 2},
                 {&shard_experts, "data=16,expert=2", "1", 2}, /* more ranks than items */
                 {&shard_llama, "data=2,tensor=2", "1", 3},
                 {&shard_llama, "data=2,context=2", "1", 3},
                 {&shard_llama, "data=2,pipe=2", "2", 3}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int n = 0;
        const char *more[] = {"mesh",  cases[c].mesh, "accumulate", cases[c].accumulate,
                              "shard", "auto",        NULL};
        const double chosen = compiled_us_of(cases[c].model, more);
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            more[5] = forms[f];
            const double uniform = compiled_us_of(cases[c].model, more);
            n += isfinite(uniform);
            if (!(chosen <= uniform * (1 + 1e-9)))
                fail_msg("%s: %g us, %s takes %g", cases[c].mesh, chosen, forms[f], uniform);
        }
        assert_true(n >= cases[c].least);
    }
}

/* What cannot be lowered drops out, with its reason, and ends nothing. */
static void candidates_that_cannot_be_lowered_say_why(void **state) {
    (void)state;
    static const char *const mesh[] = {"mesh", "data=2,expert=2", NULL};
    stator_plan_t *plan;
    stator_report_t *report;
    stator_report_alternative_t row;
    uint32_t n_chosen = 0, n_reasons = 0;
    make_report_of(&shard_experts, mesh, &plan, &report);
    assert_non_null(plan);
    for (size_t i = 0; stator_report_alternative_at(report, i, &row); i++) {
        if (strcmp(row.axis, "data=2,expert=2") != 0) continue;
        assert_true((row.reason[0] != 0) == !(row.compiled_us > 0));
        n_chosen += row.chosen != 0;
        if (strcmp(row.name, "zero3") == 0) {
            assert_non_null(strstr(row.reason, "no experts whose weights are whole"));
            n_reasons++;
        }
    }
    assert_int_equal(n_chosen, 1);
    assert_int_equal(n_reasons, 1);
    stator_report_destroy(report);
    stator_plan_destroy(plan);
}

/* Without a mesh others take part, and none of them, nor any form by name, is faster. */
static void meshes_are_searched_where_none_is_asked_for(void **state) {
    (void)state;
    static const char *const ranks[] = {"ranks", "4", NULL};
    stator_plan_t *plan;
    stator_report_t *report;
    stator_report_alternative_t row;
    double chosen = 0, least = INFINITY;
    uint32_t n_chosen = 0, n_meshes = 0;
    make_report_of(&shard_experts, ranks, &plan, &report);
    assert_non_null(plan);
    for (size_t i = 0; stator_report_alternative_at(report, i, &row); i++) {
        if (row.chosen && row.compiled_us > 0) chosen = row.compiled_us, n_chosen++;
        if (row.compiled_us > 0) least = fmin(least, row.compiled_us);
        n_meshes += strchr(row.axis, ',') != NULL || strcmp(row.axis, "expert") == 0;
    }
    assert_int_equal(n_chosen, 1);
    assert_true(chosen == least && n_meshes >= 3);
    stator_report_destroy(report);
    stator_plan_destroy(plan);
}

/* By the plans' own simulation, after fusion and all else; where no mesh is asked for, a tensor
 * axis is one of the forms. */
static void no_uniform_plan_is_faster_once_it_is_compiled(void **state) {
    (void)state;
    static const char *const forms[] = {"dp", "zero1", "zero2", "zero3", "tp"};
    const char *const targets[] = {"h200", shard_machine("slow.target", "100", "0.1")};
    static const char *const ranks[] = {"4", "2"};
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

static void control_flow_has_a_form_and_says_so(void **state) {
    (void)state;
    static const char *const loop[] = {"mesh", "data=4", "accumulate", "2", "target", "cpu", NULL};
    static const char *const names[] = {"dp", "zero1", "zero2", "zero3"};
    stator_plan_t *plan;
    stator_report_t *report;
    stator_report_alternative_t row;
    uint32_t n_chosen = 0;
    make_report(loop, &plan, &report);
    assert_true(stator_report_alternative_at(report, 0, &row));
    assert_string_equal(row.name, "dp");
    assert_non_null(strstr(row.reason, "control flow"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) { /* forms are held against it */
        assert_true(stator_report_alternative_at(report, i + 1, &row));
        assert_string_equal(row.name, names[i]);
        assert_true(row.compiled_us > 0 && row.step_us == 0);
        n_chosen += row.chosen != 0;
    }
    assert_int_equal(n_chosen, 1);
    assert_false(stator_report_alternative_at(report, 1 + sizeof names / sizeof names[0], &row));
    stator_report_destroy(report);
    stator_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_has_every_uniform_plan_beside_the_choice),
        cmocka_unit_test(no_uniform_plan_is_faster_once_it_is_compiled),
        cmocka_unit_test(no_uniform_plan_of_a_mesh_is_faster),
        cmocka_unit_test(candidates_that_cannot_be_lowered_say_why),
        cmocka_unit_test(meshes_are_searched_where_none_is_asked_for),
        cmocka_unit_test(control_flow_has_a_form_and_says_so),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
