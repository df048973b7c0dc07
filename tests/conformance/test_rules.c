/* Planning for a GPU and running on it ask the same rules: for every case the kernel that the
 * H200's description gives is one whose rules accept it, with just the scratch that is planned.
 * Needs no GPU; where the CUDA module is built its kernels are asked too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "compile/target.h"
#include "device/module.h"
#include "kernels/gpu_rules.h"

static const dev_module_t *module;

/* Cases that no kernel of the H200 runs, and why. */
static const struct {
    ir_op_t op;
    const char *attrs; /* NULL: all cases of the op */
    const char *why;
} without[] = {
    {IR_OP_CONSTANT, NULL, "filled in when the session is made"},
    {IR_OP_RESHAPE, NULL, "a view"},
    {IR_OP_CROSS_ENTROPY, NULL, "expanded before"},
    {IR_OP_BATCH_NORM, NULL, "expanded before"},
    {IR_OP_FUSED, "body=passes", "no nest: a reshape cuts dims between their factors"},
};

static bool is_without(const conf_case_t *row) {
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        if (without[i].op == row->op &&
            (!without[i].attrs || strcmp(without[i].attrs, row->attrs) == 0))
            return true;
    return false;
}

static void check_rule(const kern_problem_t *p, const char *kernel, size_t workspace) {
    const gpu_rule_t *rule = gpu_rule_find(kernel, p->op);
    const char *reason = "";
    assert_non_null(rule);
    if (rule->can_run && !rule->can_run(p, &reason))
        fail_msg("%s is given %s, which refuses: %s", p->name, kernel, reason);
    assert_int_equal(rule->workspace ? rule->workspace(p, 1) : 0, workspace);
    if (!module || strcmp(kernel, "captured") == 0) return;
    const kern_impl_t *impl = kern_find_on("cuda", p->op, kernel);
    if (!impl) fail_msg("%s: the module has no %s", p->name, kernel);
    if (impl->can_run && !impl->can_run(p, &reason))
        fail_msg("%s is given %s, which refuses: %s", p->name, kernel, reason);
    assert_int_equal(impl->workspace ? impl->workspace(p, 1) : 0, workspace);
}

/* Every kernel of the module has its row, and both say the same of the case. */
static void check_module(const kern_problem_t *p) {
    for (const kern_impl_t *const *impl = kern_list("cuda", p->op); *impl; impl++) {
        const gpu_rule_t *rule = gpu_rule_find((*impl)->name, p->op);
        const char *reason = "";
        if (!rule) fail_msg("%s has no row in gpu_rules.c for %s", (*impl)->name, p->name);
        bool by_rule = !rule->can_run || rule->can_run(p, &reason);
        bool by_impl = !(*impl)->can_run || (*impl)->can_run(p, &reason);
        if (by_rule != by_impl) fail_msg("%s: %s and its rule differ", p->name, (*impl)->name);
        if (!by_rule) continue;
        assert_int_equal(rule->workspace ? rule->workspace(p, 1) : 0,
                         (*impl)->workspace ? (*impl)->workspace(p, 1) : 0);
    }
}

static void planned_is_what_runs(void **state) {
    (void)state;
    target_t *target;
    size_t n_checked = 0;
    assert_int_equal(target_open("h200", &target), ST_OK);
    for (size_t c = 0; c < conf_n_cases; c++) {
        int n_types;
        const ir_dtype_t *types = conf_types(&conf_cases[c], &n_types);
        for (int t = 0; t < n_types; t++) {
            conf_built_t built;
            const char *reason, *kernel;
            size_t workspace;
            uint32_t launches;
            conf_build(&conf_cases[c], types[t], &built);
            const kern_problem_t *p = &built.problem;
            const ir_op_ctx_t ctx = {p->op, p->n_in, p->n_out, p->in, p->attrs, p->name};
            kernel = target_choose(target, &ctx, p->out, &workspace, &launches, &reason);
            if (!kernel != is_without(&conf_cases[c])) fail_msg("%s: %s", built.name, reason);
            if (kernel) check_rule(p, kernel, workspace);
            if (module) check_module(p);
            n_checked += kernel != NULL;
            conf_release(&built);
        }
    }
    assert_true(n_checked > 100);
    target_destroy(target);
    print_message("%zu cases%s\n", n_checked, module ? "" : ", without the module");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(planned_is_what_runs)};
    if (dev_module_open("cuda", &module) != ST_OK) module = NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
