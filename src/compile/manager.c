/* The pass manager (manager.h). */
#include "compile/manager.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/options.h"
#include "ir/text.h"
#include "ir/verify.h"

enum { MAX_TIMINGS = 32 };

static _Thread_local compile_timing_t timings[MAX_TIMINGS];
static _Thread_local size_t n_timings;

size_t compile_timings(const compile_timing_t **out_timings) {
    *out_timings = timings;
    return n_timings;
}

void compile_replace(ir_graph_t **graph, ir_graph_t *made) {
    ir_graph_destroy(*graph);
    *graph = made;
}

static double now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}

static st_status_t dump_graph(const char *pass, const char *which, const ir_graph_t *graph) {
    char *text;
    TRY(ir_graph_print(graph, &text));
    fprintf(stderr, "# after %s%s\n%s", pass, which, text);
    st_free(text);
    return ST_OK;
}

static bool wants_dump(const compile_context_t *context, const char *pass) {
    const char *dump = context->options.dump;
    return dump && dump[0] && (strcmp(dump, "all") == 0 || strcmp(dump, pass) == 0);
}

/* Verifies, and prints if asked, every graph that the compilation stands on. */
static st_status_t inspect(const compile_context_t *context, const char *pass) {
    const plan_t *plan = context->plan;
    bool dump = wants_dump(context, pass);
    if (context->graph) {
        TRY(ir_graph_verify(context->graph));
        if (dump) TRY(dump_graph(pass, "", context->graph));
    }
    for (uint32_t p = 0; plan && p < plan->n_programs; p++) {
        char which[32];
        TRY(ir_graph_verify(plan->programs[p].graph));
        snprintf(which, sizeof which, ", program %u", p);
        if (dump) TRY(dump_graph(pass, which, plan->programs[p].graph));
    }
    return ST_OK;
}

void compile_begin(void) {
    n_timings = 0;
}

static void add_timing(const char *pass, double us) {
    size_t i = 0;
    while (i < n_timings && strcmp(timings[i].pass, pass) != 0) i++;
    if (i == MAX_TIMINGS) return;
    if (i == n_timings) timings[n_timings++] = (compile_timing_t){pass, 0};
    timings[i].us += us;
}

st_status_t compile_run_passes(compile_context_t *context, const compile_pass_t *passes,
                               size_t n_passes) {
    for (size_t i = 0; i < n_passes; i++) {
        const compile_pass_t *pass = &passes[i];
        if (pass->when && !pass->when(&context->options)) continue;
        double begin = now_us();
        st_status_t status = pass->run(context);
        if (status != ST_OK) return st_error_context(status, "pass %s", pass->name);
        status = inspect(context, pass->name);
        if (status != ST_OK) return st_error_context(status, "after pass %s", pass->name);
        add_timing(pass->name, now_us() - begin);
    }
    return ST_OK;
}
