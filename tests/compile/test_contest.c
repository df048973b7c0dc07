/* Candidates of `--shard auto` that are refused: whatever refuses them, they are rows of the plan's
 * table, and the others go on. The linker leads the contest's calls here (tests/CMakeLists.txt). */
#include "compile/contest.h"

#include <string.h>

#include "compile/compile.h"
#include "compile/simulate.h"
#include "ir/text.h"
#include "support/scratch.h"

enum { RANKS = 2 };

static const char step[] =
    "graph \"tiny\" {\n"
    "  %0 x = input {dtype=f32, shape=[4,3]}\n"
    "  %1 w = parameter {dtype=f32, shape=[3,3]}\n"
    "  %2 y = matmul(%0, %1)\n"
    "  %3 z = tanh(%2)\n"
    "  %4 dw = matmul(%0, %3) {transpose_a=true}\n"
    "  %5 new = sub(%1, %4)\n"
    "  update(%1, %5)\n"
    "  output \"z\" = %3\n"
    "}\n";

/* ---- who refuses ---- */

typedef struct refusals {
    st_status_t search, form[SHARD_FORM_END], tensor; /* of which candidate's compiling */
    st_status_t front;                                /* of what prices other meshes */
    st_status_t simulated;                            /* of the second plan that is simulated */
    uint32_t n_simulated;
} refusals_t;

static refusals_t refusals;

st_status_t __real_compile_single(const ir_graph_t *, const compile_options_t *, bool *, plan_t **);
st_status_t __wrap_compile_single(const ir_graph_t *, const compile_options_t *, bool *, plan_t **);
st_status_t __real_compile_front(const ir_graph_t *, const compile_options_t *, compile_context_t *,
                                 target_t **);
st_status_t __wrap_compile_front(const ir_graph_t *, const compile_options_t *, compile_context_t *,
                                 target_t **);
st_status_t __real_simulate_plan(const plan_t *, const target_t *, simulation_t **);
st_status_t __wrap_simulate_plan(const plan_t *, const target_t *, simulation_t **);

static st_status_t refuse(st_status_t status) {
    return status == ST_OK ? ST_OK : FAIL(status, "refused with %d", (int)status);
}

st_status_t __wrap_compile_single(const ir_graph_t *graph, const compile_options_t *o,
                                  bool *out_found, plan_t **out_plan) {
    const bool tensor = o->mesh.n && strcmp(o->mesh.axes[0].name, IR_AXIS_TENSOR) == 0;
    *out_plan = NULL;
    TRY(refuse(tensor             ? refusals.tensor
               : o->auto_sharding ? refusals.search
                                  : refusals.form[o->form]));
    return __real_compile_single(graph, o, out_found, out_plan);
}

st_status_t __wrap_compile_front(const ir_graph_t *graph, const compile_options_t *o,
                                 compile_context_t *context, target_t **out_target) {
    TRY(__real_compile_front(graph, o, context, out_target));
    return refuse(refusals.front);
}

st_status_t __wrap_simulate_plan(const plan_t *plan, const target_t *target, simulation_t **out) {
    *out = NULL;
    if (++refusals.n_simulated == 2) TRY(refuse(refusals.simulated));
    return __real_simulate_plan(plan, target, out);
}

/* ---- what becomes of it ---- */

static st_status_t compile(const refusals_t *by, plan_t **out_plan) {
    const compile_options_t options = {.n_ranks = RANKS, .auto_sharding = true};
    ir_graph_t *graph;
    refusals = *by;
    assert_ok(ir_graph_parse(step, strlen(step), &graph));
    const st_status_t status = compile_plan(graph, &options, out_plan);
    ir_graph_destroy(graph);
    return status;
}

/* The one row of that name whose candidate was refused with `status`. */
static const plan_alternative_t *row_of(const plan_t *plan, const char *axis, const char *name,
                                        st_status_t status) {
    const plan_alternative_t *found = NULL;
    char reason[64];
    snprintf(reason, sizeof reason, "refused with %d", (int)status);
    for (uint32_t i = 0; i < plan->n_alternatives; i++) {
        const plan_alternative_t *row = &plan->alternatives[i];
        if (strcmp(row->axis, axis) != 0 || strcmp(row->name, name) != 0 || !row->reason ||
            !strstr(row->reason, reason))
            continue;
        assert_null(found);
        found = row;
    }
    if (!found) print_error("no row %s %s: %s\n", axis, name, reason);
    assert_non_null(found);
    assert_false(found->chosen);
    assert_true(found->compiled_us == 0);
    assert_true(found->fits == (status != ST_DOES_NOT_FIT));
    return found;
}

static void assert_one_is_chosen(const plan_t *plan) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_alternatives; i++) {
        const plan_alternative_t *row = &plan->alternatives[i];
        n += row->chosen && !row->reason && row->compiled_us > 0;
    }
    assert_int_equal(n, 1);
}

static const st_status_t reasons[] = {ST_INVALID,        ST_UNSUPPORTED, ST_DOES_NOT_FIT,
                                      ST_RANKS_DISAGREE, ST_INTERNAL,    ST_NOT_FOUND};
#define EACH_REASON(i)                        \
    size_t i = 0;                             \
    (i) < sizeof reasons / sizeof reasons[0]; \
    (i)++

static void whoever_is_refused_is_a_row(void **state) {
    (void)state;
    static const char *const names[] = {"dp", "zero1", "zero2", "zero3"};
    for (EACH_REASON(i))
        for (int form = SHARD_FORM_DP; form < SHARD_FORM_END; form++) {
            refusals_t by = {.tensor = reasons[i]};
            plan_t *plan;
            by.form[form] = reasons[i];
            assert_ok(compile(&by, &plan));
            (void)row_of(plan, IR_AXIS_DATA, names[form], reasons[i]);
            (void)row_of(plan, IR_AXIS_TENSOR, "tp", reasons[i]);
            assert_one_is_chosen(plan);
            plan_destroy(plan);
        }
}

static void a_refused_search_is_a_row(void **state) {
    (void)state;
    for (EACH_REASON(i)) {
        plan_t *plan;
        assert_ok(compile(&(refusals_t){.search = reasons[i], .front = reasons[i]}, &plan));
        (void)row_of(plan, IR_AXIS_DATA, "auto", reasons[i]);
        (void)row_of(plan, IR_AXIS_PIPE, "other meshes", reasons[i]);
        assert_one_is_chosen(plan);
        plan_destroy(plan);
    }
}

static void what_cannot_be_simulated_is_a_row(void **state) {
    (void)state;
    plan_t *plan;
    assert_ok(compile(&(refusals_t){.simulated = ST_INTERNAL}, &plan));
    (void)row_of(plan, IR_AXIS_DATA, "dp", ST_INTERNAL);
    assert_one_is_chosen(plan);
    plan_destroy(plan);
}

static void where_none_is_left_the_error_is_the_searchs(void **state) {
    (void)state;
    refusals_t by = {.search = ST_RANKS_DISAGREE, .tensor = ST_INVALID};
    plan_t *plan;
    for (int form = SHARD_FORM_DP; form < SHARD_FORM_END; form++) by.form[form] = ST_INVALID;
    assert_fails(compile(&by, &plan), ST_RANKS_DISAGREE, "refused with");
    assert_null(plan);
}

static void what_is_no_candidates_fault_ends_the_contest(void **state) {
    (void)state;
    static const st_status_t ends[] = {ST_NO_MEMORY, ST_INTERRUPTED, ST_IO};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const refusals_t rows[] = {
            {.search = ends[i]}, {.tensor = ends[i]}, {.front = ends[i]}, {.simulated = ends[i]}};
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            plan_t *plan;
            assert_fails(compile(&rows[k], &plan), ends[i], "refused with");
            assert_null(plan);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_is_refused_is_a_row),
        cmocka_unit_test(a_refused_search_is_a_row),
        cmocka_unit_test(what_cannot_be_simulated_is_a_row),
        cmocka_unit_test(where_none_is_left_the_error_is_the_searchs),
        cmocka_unit_test(what_is_no_candidates_fault_ends_the_contest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
