/* Where a rank's time goes: one row a kernel, filled in by the step loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/internal.h"

/* Of a fused node, what it is made of (its name without the number): "fused add+rms_norm". */
static const char *fused_ops(exec_rank_t *rank, const exec_step_t *step) {
    const char *ops = strchr(ir_node(rank->program->graph, step->node)->name, ':');
    const char *what = ops ? st_arena_printf(&rank->arena, "fused %s", ops + 1) : NULL;
    return what ? what : step->impl->name;
}

/* With the op, where its name does not tell: "nest cast", "cudnn.conv conv_grad_input". */
static const char *kernel_of(exec_rank_t *rank, const exec_step_t *step) {
    const char *name = step->impl->name, *op = ir_op_def(step->impl->op)->name;
    const char *part = strchr(name, '.');
    if (part && strncmp(part + 1, op, strlen(op)) == 0) return name;
    const char *what = st_arena_printf(&rank->arena, "%s %s", name, op);
    return what ? what : name;
}

static const char *what_runs(exec_rank_t *rank, const exec_step_t *step) {
    switch (step->kind) {
        case PLAN_STEP_KERNEL:
            return step->impl->op == IR_OP_FUSED ? fused_ops(rank, step) : kernel_of(rank, step);
        case PLAN_STEP_COPY:
            return "copy";
        case PLAN_STEP_START:
            return "start";
        case PLAN_STEP_WAIT:
            return "wait";
        case PLAN_STEP_REGION:
            return ir_op_def(step->problem.op)->name;
        case PLAN_STEP_NOTHING:
            break;
    }
    return "nothing";
}

static exec_profile_row_t *row_of(exec_rank_t *rank, const char *what) {
    for (uint32_t i = 0; i < rank->n_profile; i++)
        if (strcmp(rank->profile[i].what, what) == 0) return &rank->profile[i];
    exec_profile_row_t *row = &rank->profile[rank->n_profile++];
    row->what = what;
    return row;
}

st_status_t exec_profile_prepare(exec_rank_t *rank) {
    size_t bytes = rank->n_steps * sizeof *rank->profile;
    rank->profile = st_arena_alloc(&rank->arena, bytes);
    rank->sorted = st_arena_alloc(&rank->arena, bytes);
    if (!rank->profile || !rank->sorted) return st_no_memory(bytes, "a session's profile");
    for (uint32_t i = 0; i < rank->n_steps; i++) row_of(rank, what_runs(rank, &rank->steps[i]));
    for (uint32_t i = 0; i < rank->n_steps; i++)
        rank->steps[i].profile = row_of(rank, what_runs(rank, &rank->steps[i]));
    return ST_OK;
}

static int by_time(const void *a, const void *b) {
    const exec_profile_row_t *x = a, *y = b;
    if (x->us != y->us) return x->us > y->us ? -1 : 1;
    return strcmp(x->what, y->what);
}

/* Steps point at their rows, so a copy is sorted. */
size_t exec_profile(exec_session_t *session, const exec_profile_row_t **out_rows) {
    exec_rank_t *rank = &session->ranks[session->first];
    *out_rows = rank->sorted;
    if (!rank->n_profile) return 0;
    memcpy(rank->sorted, rank->profile, rank->n_profile * sizeof *rank->sorted);
    qsort(rank->sorted, rank->n_profile, sizeof *rank->sorted, by_time);
    return rank->n_profile;
}

void exec_profile_print(exec_session_t *session) {
    const exec_profile_row_t *rows;
    size_t n = exec_profile(session, &rows);
    double total = 0;
    for (size_t i = 0; i < n; i++) total += rows[i].us;
    if (!(total > 0)) return;
    fprintf(stderr, "%10s %6s %9s  rank 0\n", "ms", "%", "calls");
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "%10.2f %6.1f %9llu  %s\n", rows[i].us * 1e-3, 100 * rows[i].us / total,
                (unsigned long long)rows[i].n_calls, rows[i].what);
}
