/* How a plan adds up its sums (plan.h): what fused_tile.c's order and groups follow from.
 *
 * A sum that is local to its pass takes the terms of a tile together along the rows and columns
 * that it does not keep, and tiles in the order of the serial loops. A sum of partial results
 * depends on the chunks too, which all loops make. Loops are known by their extents: where two have
 * the same one, everything that the nest reads is told beside them, so that only equal nests seem
 * alike. Linear in the instructions. */
#include <string.h>

#include "base/hash.h"
#include "kernels/nest/plan.h"

typedef struct mixer {
    const nx_plan_t *plan;
    const nx_pass_t *pass;
    uint64_t hash;
} mixer_t;

static void mix(mixer_t *m, int64_t number) {
    m->hash = st_hash64(&number, sizeof number, m->hash);
}

static bool has(uint32_t mask, int32_t axis) {
    return axis >= 0 && (mask >> axis & 1);
}

/* What all accesses of the pass's domain look like. */
static void mix_accesses(mixer_t *m) {
    const nest_t *nest = m->plan->nest;
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const nest_stmt_t *s = &nest->stmts[i];
        if (s->domain != m->pass->domain || s->kind != NEST_LOAD) continue;
        m->hash = st_hash64(s->access.stride, sizeof s->access.stride, m->hash);
    }
}

static void mix_loops(mixer_t *m, const nest_stmt_t *s, uint32_t first) {
    const nx_pass_t *pass = m->pass;
    bool twins = false;
    for (uint32_t i = first; i < pass->n_loops; i++) {
        const nx_loop_t *loop = &pass->loops[i];
        if (loop->extent == 1) continue;
        for (uint32_t k = first; k < i; k++) twins |= pass->loops[k].extent == loop->extent;
        const bool tile = (int32_t)loop->axis == pass->row || (int32_t)loop->axis == pass->col;
        mix(m, loop->extent);
        mix(m, loop->block);
        mix(m, (int64_t)(s->mask >> loop->axis & 1) | (int64_t)(s->over >> loop->axis & 1) << 1 |
                   (int64_t)tile << 2 | (int64_t)(i < pass->n_parallel) << 3);
    }
    if (twins) mix_accesses(m);
}

/* Do the tile's rows lie one after the other? Then they are one row to a sum over both. */
static bool is_dense(const nx_pass_t *pass, const nx_view_t *view) {
    if (view->mode != NX_FULL) return view->mode == NX_ONE;
    if (view->space == NX_REGISTER) return true;
    return view->stride[pass->row] == pass->cols && view->stride[pass->col] == 1;
}

static void mix_sum(mixer_t *m, const nx_inst_t *inst) {
    const nx_pass_t *pass = m->pass;
    const nest_stmt_t *s = &m->plan->nest->stmts[inst->stmt];
    const bool local = pass->views[inst->dst].space == NX_REGISTER;
    const bool row = has(s->mask, pass->row), col = has(s->mask, pass->col);
    bool dense = true, along = true;
    for (uint32_t k = 0; k < inst->n_src; k++) {
        const nx_view_t *view = &pass->views[inst->src[k]];
        dense &= is_dense(pass, view);
        along &= inst->mode == NX_ROW || view->mode == NX_FULL || view->mode == NX_COL;
    }
    mix(m, inst->code);
    mix(m, inst->n_src); /* their product is not rounded */
    mix(m, (int64_t)local | (int64_t)row << 1 | (int64_t)col << 2 | (int64_t)pass->f64 << 3);
    mix(m, inst->mode);
    if (!row) mix(m, pass->rows);
    if (!col) mix(m, pass->cols);
    if (!row && !col) mix(m, dense);
    mix(m, along);
    for (uint32_t k = 0; k < inst->n_src && !along; k++) /* factors come out of the sum */
        mix(m, pass->views[inst->src[k]].mode);
    mix_loops(m, s, local ? pass->n_parallel : 0);
    if (local) return;
    mix(m, pass->chunk_items);
    mix(m, pass->chunks);
}

uint64_t nx_sums_hash(const nx_plan_t *plan) {
    mixer_t m = {.plan = plan};
    for (uint32_t stmt = 0; stmt < plan->nest->n_stmts; stmt++) {
        if (!nest_is_sum(&plan->nest->stmts[stmt])) continue;
        mix(&m, plan->nest->stmts[stmt].op);
        for (uint32_t i = 0; i < plan->n_passes; i++) {
            m.pass = &plan->passes[i];
            for (uint32_t k = 0; k < m.pass->n_insts; k++) {
                const nx_inst_t *inst = &m.pass->insts[k];
                if (inst->stmt == stmt && (inst->code == NX_SUM || inst->code == NX_PROD))
                    mix_sum(&m, inst);
            }
        }
    }
    return m.hash;
}
