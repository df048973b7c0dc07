/* Every op on every implementation, element type and processor level against the oracle: odd
 * shapes, guard zones around outputs, in-place where it is allowed, the same bits on 1, 2 and 4
 * threads. An op without a kernel or a case, and a kernel that no case reaches, fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "device/cpu/team.h"
#include "ir/convert.h"

/* Ops that have no kernel, and why. */
static const struct {
    ir_op_t op;
    const char *why;
} without_kernel[] = {
    {IR_OP_INPUT, "fed by the session"},
    {IR_OP_PARAMETER, "state: lives in the session's memory"},
    {IR_OP_BUFFER, "state: lives in the session's memory"},
    {IR_OP_UPDATE, "the session copies or aliases"},
    {IR_OP_ALL_REDUCE_START, "collective: runs on a communicator"},
    {IR_OP_ALL_REDUCE_WAIT, "collective: runs on a communicator"},
    {IR_OP_ALL_GATHER_START, "collective: runs on a communicator"},
    {IR_OP_ALL_GATHER_WAIT, "collective: runs on a communicator"},
    {IR_OP_REDUCE_SCATTER_START, "collective: runs on a communicator"},
    {IR_OP_REDUCE_SCATTER_WAIT, "collective: runs on a communicator"},
    {IR_OP_ALL_TO_ALL_START, "collective: runs on a communicator"},
    {IR_OP_ALL_TO_ALL_WAIT, "collective: runs on a communicator"},
    {IR_OP_SEND_START, "collective: runs on a communicator"},
    {IR_OP_SEND_WAIT, "collective: runs on a communicator"},
    {IR_OP_RECEIVE_START, "collective: runs on a communicator"},
    {IR_OP_RECEIVE_WAIT, "collective: runs on a communicator"},
    {IR_OP_AXIS_INDEX, "written by the session: what it is depends on the rank"},
};

static const char *reason_without(ir_op_t op) {
    for (size_t i = 0; i < sizeof without_kernel / sizeof *without_kernel; i++)
        if (without_kernel[i].op == op) return without_kernel[i].why;
    return NULL;
}

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

/* Output memory between two guard zones. */
typedef struct guarded {
    unsigned char *block;
    size_t bytes;
} guarded_t;

static guarded_t guarded_make(size_t bytes) {
    guarded_t g = {aligned_alloc(64, (bytes + 2 * GUARD + 63) & ~(size_t)63), bytes};
    memset(g.block, GUARD_BYTE, bytes + 2 * GUARD);
    return g;
}
static void *guarded_data(const guarded_t *g) {
    return g->bytes ? g->block + GUARD : NULL;
}
static bool guarded_intact(const guarded_t *g) {
    for (size_t i = 0; i < GUARD; i++)
        if (g->block[i] != GUARD_BYTE || g->block[GUARD + g->bytes + i] != GUARD_BYTE) return false;
    return true;
}

/* Teams of 1 … 4 threads, made once: starting threads costs more than most cases. */
static dev_team_t *teams[5];

static int make_teams(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++)
        if (dev_team_create(n, &teams[n]) != ST_OK) return 1;
    return 0;
}

static int free_teams(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) dev_team_destroy(teams[n]);
    return 0;
}

/* What kern_run_impl does, on one of the teams; scratch is guarded like outputs. */
static st_status_t run_on(const kern_impl_t *impl, const kern_problem_t *problem, int n_threads,
                          const void *const *in, void *const *out) {
    guarded_t scratch = guarded_make(impl->workspace ? impl->workspace(problem, n_threads) : 0);
    void *prepared = NULL;
    st_status_t status = impl->prepare ? impl->prepare(problem, n_threads, &prepared) : ST_OK;
    kern_call_t call = {.problem = problem,
                        .in = in,
                        .out = out,
                        .workspace = guarded_data(&scratch),
                        .prepared = prepared,
                        .team = teams[n_threads]};
    if (status == ST_OK) status = impl->launch(&call);
    if (!guarded_intact(&scratch))
        fail_msg("%s, %s: wrote outside its scratch", problem->name, impl->name);
    if (prepared) impl->release(prepared);
    free(scratch.block);
    return status;
}

typedef struct run {
    guarded_t out[CONF_MAX_OPERANDS];
} run_t;

static run_t run_impl(const conf_built_t *built, const kern_impl_t *impl, int n_threads) {
    run_t run;
    void *out[CONF_MAX_OPERANDS];
    for (uint32_t k = 0; k < built->problem.n_out; k++) {
        run.out[k] = guarded_make(ir_type_bytes(&built->out[k]));
        out[k] = guarded_data(&run.out[k]);
    }
    st_status_t status =
        run_on(impl, &built->problem, n_threads, (const void *const *)built->in_data, out);
    if (status != ST_OK)
        fail_msg("%s, %s: %s: %s", built->name, impl->name, st_status_name(status),
                 st_last_error());
    for (uint32_t k = 0; k < built->problem.n_out; k++)
        if (!guarded_intact(&run.out[k]))
            fail_msg("%s, %s: wrote outside output %u", built->name, impl->name, k);
    return run;
}

static void run_free(const conf_built_t *built, run_t *run) {
    for (uint32_t k = 0; k < built->problem.n_out; k++) free(run->out[k].block);
}

static void same_bits(const conf_built_t *built, const char *impl, const char *what, uint32_t k,
                      const void *a, const void *b) {
    size_t bytes = ir_type_bytes(&built->out[k]);
    if (bytes && memcmp(a, b, bytes) != 0)
        fail_msg("%s, %s: output %u has other bits %s", built->name, impl, k, what);
}

/* Output k over input j, where the op's definition lets the planner do that. */
static void check_in_place(const conf_built_t *built, const kern_impl_t *impl, const run_t *plain,
                           uint32_t k, uint32_t j) {
    const void *in[CONF_MAX_OPERANDS];
    void *out[CONF_MAX_OPERANDS];
    size_t bytes = ir_type_bytes(&built->out[k]);
    if (!bytes || bytes != ir_type_bytes(&built->in[j]) ||
        ir_type_elements(&built->out[k]) != ir_type_elements(&built->in[j]))
        return; /* a broadcast input is read again after its bytes are gone */
    guarded_t shared = guarded_make(bytes), others[CONF_MAX_OPERANDS];
    memcpy(guarded_data(&shared), built->in_data[j], bytes);
    for (uint32_t i = 0; i < built->problem.n_in; i++) in[i] = built->in_data[i];
    for (uint32_t i = 0; i < built->problem.n_out; i++) {
        others[i] = guarded_make(ir_type_bytes(&built->out[i]));
        out[i] = guarded_data(&others[i]);
    }
    in[j] = out[k] = guarded_data(&shared);
    assert_int_equal(run_on(impl, &built->problem, 2, in, out), ST_OK);
    assert_true(guarded_intact(&shared));
    same_bits(built, impl->name, "written over its input", k, out[k], guarded_data(&plain->out[k]));
    free(shared.block);
    for (uint32_t i = 0; i < built->problem.n_out; i++) free(others[i].block);
}

static void check_impl(const conf_built_t *built, const kern_impl_t *impl,
                       double *const *expected) {
    run_t one = run_impl(built, impl, 1);
    for (uint32_t k = 0; k < built->problem.n_out; k++)
        conf_compare(built, impl->name, k, guarded_data(&one.out[k]), expected[k]);
    for (int n_threads = 2; n_threads <= 4 && !impl->reference; n_threads += 2) {
        run_t more = run_impl(built, impl, n_threads);
        for (uint32_t k = 0; k < built->problem.n_out; k++)
            same_bits(built, impl->name, n_threads == 2 ? "on 2 threads" : "on 4 threads", k,
                      guarded_data(&more.out[k]), guarded_data(&one.out[k]));
        run_free(built, &more);
    }
    const ir_op_def_t *def = ir_op_def(built->problem.op);
    for (uint32_t k = 0; k < built->problem.n_out; k++)
        for (uint32_t j = 0; j < built->problem.n_in; j++)
            if ((k < 4 && def->reuse[k] == j + 1) || (k == 0 && (def->flags & IR_ELEMENTWISE)))
                check_in_place(built, impl, &one, k, j);
    run_free(built, &one);
}

/* Implementations that ran, by name. */
static const char *reached[1024];
static size_t n_reached;

static void note_reached(const char *name) {
    for (size_t i = 0; i < n_reached; i++)
        if (strcmp(reached[i], name) == 0) return;
    assert_true(n_reached < 1024);
    reached[n_reached++] = name;
}

static bool runs_fast(const kern_problem_t *problem) {
    const char *reason;
    for (const kern_impl_t *const *impl = kern_list("cpu", problem->op); *impl; impl++)
        if (!(*impl)->reference && (!(*impl)->can_run || (*impl)->can_run(problem, &reason)))
            return true;
    return false;
}

static void run_all_cases(bool with_reference) {
    for (size_t c = 0; c < conf_n_cases; c++) {
        int n_types;
        const ir_dtype_t *types = conf_types(&conf_cases[c], &n_types);
        ir_dtype_t own[16];
        memcpy(own, types, (size_t)n_types * sizeof *types);
        for (int t = 0; t < n_types; t++) {
            conf_built_t built;
            double *expected[CONF_MAX_OPERANDS];
            conf_build(&conf_cases[c], own[t], &built);
            if (!with_reference && !runs_fast(&built.problem)) {
                conf_release(&built);
                continue;
            }
            for (uint32_t k = 0; k < built.problem.n_out; k++)
                expected[k] = calloc((size_t)ir_type_elements(&built.out[k]) + 1, sizeof(double));
            if (!conf_oracle(&built, expected)) fail_msg("%s: no oracle", built.name);
            int n_ran = 0;
            for (const kern_impl_t *const *impl = kern_list("cpu", built.problem.op); *impl;
                 impl++) {
                const char *reason = NULL;
                if ((*impl)->reference && !with_reference) continue;
                if ((*impl)->can_run && !(*impl)->can_run(&built.problem, &reason)) {
                    if (!reason || !*reason)
                        fail_msg("%s, %s: refuses without a reason", built.name, (*impl)->name);
                    continue;
                }
                check_impl(&built, *impl, expected);
                note_reached((*impl)->name);
                n_ran++; /* the reference always comes last and refuses nothing */
            }
            if (!n_ran && with_reference) fail_msg("%s: no implementation runs it", built.name);
            for (uint32_t k = 0; k < built.problem.n_out; k++) free(expected[k]);
            conf_release(&built);
        }
    }
}

static void cases_on_base(void **state) {
    (void)state;
    assert_int_equal(kern_set_level("base"), ST_OK);
    assert_string_equal(kern_cpu_level(), "base");
    run_all_cases(true);
}

/* References do not depend on the level. */
static void cases_on(const char *level) {
    if (kern_set_level(level) != ST_OK) {
        print_message("skipped: %s\n", st_last_error());
        skip();
    }
    run_all_cases(false);
}
static void cases_on_v3(void **state) {
    (void)state;
    cases_on("v3");
}
static void cases_on_v4(void **state) {
    (void)state;
    cases_on("v4");
}

static void every_op_has_kernel_and_case(void **state) {
    (void)state;
    for (int op = 1; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (!def) continue;
        const kern_impl_t *const *list = kern_list("cpu", (ir_op_t)op);
        const char *why = reason_without((ir_op_t)op);
        if (why) {
            if (*list) fail_msg("%s has a kernel but is listed without (%s)", def->name, why);
            continue;
        }
        if (!*list) fail_msg("%s has no kernel", def->name);
        size_t n = 0, n_reference = 0;
        for (; list[n]; n++) n_reference += list[n]->reference;
        if (n_reference != 1 || !list[n - 1]->reference)
            fail_msg("%s: one reference at the end of the list is needed", def->name);
        for (size_t i = 0; i < n; i++) {
            if (kern_find(list[i]->name) != list[i])
                fail_msg("%s is not found by name", list[i]->name);
            bool found = false;
            for (size_t r = 0; r < n_reached; r++)
                found = found || !strcmp(reached[r], list[i]->name);
            if (!found) fail_msg("no case reaches %s", list[i]->name);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_on_base),
        cmocka_unit_test(cases_on_v3),
        cmocka_unit_test(cases_on_v4),
        cmocka_unit_test(every_op_has_kernel_and_case),
    };
    return cmocka_run_group_tests(tests, make_teams, free_teams);
}
