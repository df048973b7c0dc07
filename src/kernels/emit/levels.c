/* Levels of a nest's kernels (planner.h): which reductions lie within rows, which end a level, and
 * what a kernel of a level has to compute. */
#include <string.h>

#include "ir/nest_pairs.h"
#include "kernels/emit/planner.h"

uint64_t emit_plan_take(emit_schedule_t *s, uint64_t bytes) {
    uint64_t at = s->workspace;
    s->workspace = st_size_add(at, st_size_align(bytes, ALIGNMENT));
    return at;
}

/* ---- levels ---- */

void emit_plan_spread(emit_planner_t *p) {
    for (uint32_t v = p->nest->n_stmts; v-- > 0;) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        uint32_t own = p->spread[v] | stmt->mask | stmt->over;
        for (uint32_t j = 0; j < stmt->n_args; j++) p->spread[stmt->args[j]] |= own;
        if (stmt->access.index != NEST_NONE && (stmt->kind == NEST_LOAD))
            p->spread[stmt->access.index] |= own;
    }
}

static bool rows_fit(const nest_domain_t *domain, uint32_t all, uint32_t over) {
    int64_t n = nest_points(domain, over);
    int64_t rows = nest_points(domain, all & ~over);
    if (rows == 0) return false; /* sums over no row are somebody's to write */
    return n <= SHORT_ROW || (rows >= FEW_ROWS && n <= ROW_LIMIT);
}

/* The axes of the domain's rows: those of the first reduction that is wanted along them again. */
void emit_plan_cols(emit_planner_t *p) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        if (stmt->kind != NEST_REDUCE || stmt->domain == NEST_NONE) continue;
        const nest_domain_t *domain = &p->nest->domains[stmt->domain];
        const uint32_t all = p->spread[v] | stmt->mask | stmt->over;
        bool inner =
            stmt->over >> emit_last_axis(all) & 1; /* rows lie in memory as they are read */
        /* What has the result along further axes would make the row again at each of their
         * points. */
        const bool once = !(all & ~(stmt->mask | stmt->over));
        if (!p->cols[stmt->domain] && stmt->mask && inner && once && (p->spread[v] & stmt->over) &&
            rows_fit(domain, all, stmt->over))
            p->cols[stmt->domain] = stmt->over;
    }
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        if (stmt->kind == NEST_REDUCE && stmt->mask && stmt->over == p->cols[stmt->domain])
            p->all[stmt->domain] |= p->spread[v] | stmt->mask | stmt->over;
    }
}

/* Squares around a mean go with the sum, where no row is at hand that holds its elements;
 * exponentials less a maximum go with that in rows longer than a warp's. */
static bool pairs_up(const emit_planner_t *p, nest_value_t v, nest_pair_t *pair) {
    const nest_stmt_t *stmt = emit_plan_stmt(p, v);
    if (stmt->kind != NEST_REDUCE || stmt->domain == NEST_NONE) return false;
    const uint32_t cols = p->cols[stmt->domain];
    if (!cols) return nest_centered_squares(p->nest, v, pair);
    return stmt->mask && stmt->over == cols &&
           nest_points(&p->nest->domains[stmt->domain], cols) > WARP_ROW &&
           nest_centered_exponentials(p->nest, v, pair);
}

void emit_plan_pairs(emit_planner_t *p) {
    emit_schedule_t *s = p->s;
    nest_pair_t pair;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        s->of[v] = emit_plan_stmt(p, v)->n_args ? emit_plan_stmt(p, v)->args[0] : NEST_NONE;
        s->pair[v] = NEST_NONE;
        if (!pairs_up(p, v, &pair) || s->pair[pair.first] != NEST_NONE) continue;
        s->of[v] = pair.of;
        s->pair[v] = pair.first;
        s->pair[pair.first] = v;
    }
}

uint8_t emit_plan_available(const emit_schedule_t *s, nest_value_t v) {
    return (uint8_t)(s->level[v] + (s->grid[v].is_grid ? 1 : 0));
}

void emit_plan_find_levels(emit_planner_t *p) {
    emit_schedule_t *s = p->s;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        s->grid[v].is_grid =
            stmt->kind == NEST_REDUCE && (!stmt->mask || stmt->over != p->cols[stmt->domain]);
        for (uint32_t j = 0; j < stmt->n_args; j++) {
            uint8_t level =
                emit_plan_available(s, stmt->kind == NEST_REDUCE ? s->of[v] : stmt->args[j]);
            if (level > s->level[v]) s->level[v] = level;
        }
        if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE) {
            uint8_t level = emit_plan_available(s, stmt->access.index);
            if (level > s->level[v]) s->level[v] = level;
        }
        if (emit_plan_available(s, v) >= s->n_levels) s->n_levels = emit_plan_available(s, v) + 1u;
    }
}

/* ---- slices ---- */

bool emit_plan_is_result(const emit_planner_t *p, nest_value_t v) {
    return emit_is_result(p->s, p->level, v);
}

/* Marks what `v` is computed from, down to loads, uniform operations and grid results. */
void emit_plan_mark(emit_planner_t *p, nest_value_t v) {
    const nest_stmt_t *stmt = emit_plan_stmt(p, v);
    if (p->needed[v]) return;
    p->needed[v] = true;
    if (emit_plan_is_result(p, v) || p->s->uniform[v] != UINT64_MAX) return;
    for (uint32_t j = 0; j < stmt->n_args; j++) emit_plan_mark(p, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE)
        emit_plan_mark(p, stmt->access.index);
}

/* Is `v` computed from `from`? Recursion as deep as the nest, in a slice of few statements. */
bool emit_plan_depends(const emit_planner_t *p, nest_value_t v, nest_value_t from) {
    if (v <= from) return v == from;
    const nest_stmt_t *stmt = emit_plan_stmt(p, v);
    bool found = stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE &&
                 emit_plan_depends(p, stmt->access.index, from);
    for (uint32_t j = 0; j < stmt->n_args && !found; j++)
        found = emit_plan_depends(p, stmt->args[j], from);
    return found;
}

void emit_plan_clear(emit_planner_t *p) {
    memset(p->needed, 0, p->nest->n_stmts * sizeof *p->needed);
}

void emit_plan_mark_reduce(emit_planner_t *p, nest_value_t v) {
    emit_plan_mark(p, p->s->of[v]);
}

bool emit_plan_has_rows(const emit_planner_t *p) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        if (p->needed[v] && emit_plan_stmt(p, v)->kind == NEST_REDUCE && !emit_plan_is_result(p, v))
            return true;
    return false;
}

size_t emit_plan_sum_bytes(const emit_planner_t *p, nest_value_t v) {
    uint32_t domain = emit_plan_stmt(p, v)->domain;
    bool integer = !ir_dtype_is_float(emit_plan_stmt(p, v)->dtype);
    return integer || domain == NEST_NONE || p->nest->domains[domain].wide ? 8 : 4;
}

/* Adds to set[] the row results that a sink of `level` with value `v` is made from. */
static void mark_row_results(emit_planner_t *p, nest_value_t v, bool *set) {
    emit_plan_clear(p);
    emit_plan_mark(p, v);
    for (uint32_t r = 0; r < p->nest->n_stmts; r++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, r);
        set[r] |= p->needed[r] && stmt->kind == NEST_REDUCE && !p->s->grid[r].is_grid &&
                  stmt->mask == (p->all[stmt->domain] & ~p->cols[stmt->domain]);
    }
}

/* Row results that a kernel of their own level has and a later level wants again: left in the
 * workspace, so that the later one need not go through the rows. Quadratic in sinks and
 * statements. */
void emit_plan_leave(emit_planner_t *p) {
    const nest_t *nest = p->nest;
    bool *own = p->loads, *later = p->complete; /* scratch so far */
    memset(own, 0, nest->n_stmts * sizeof *own);
    memset(later, 0, nest->n_stmts * sizeof *later);
    for (uint32_t level = 0; level < p->s->n_levels && p->s->n_levels > 1; level++) {
        p->level = level;
        for (uint32_t i = 0; i < nest->n_stores; i++)
            if (nest->stores[i].mask && emit_plan_available(p->s, nest->stores[i].value) == level)
                mark_row_results(p, nest->stores[i].value, level ? later : own);
        for (uint32_t v = 0; v < nest->n_stmts; v++)
            if (p->s->grid[v].is_grid && p->s->level[v] == level)
                mark_row_results(p, p->s->of[v], level ? later : own);
    }
    for (uint32_t r = 0; r < nest->n_stmts; r++) {
        if (!own[r] || !later[r] || p->s->level[r] != 0) continue;
        p->s->grid[r].of_row = true;
        const nest_domain_t *domain = &nest->domains[emit_plan_stmt(p, r)->domain];
        p->s->grid[r].result = emit_plan_take(
            p->s, st_size_mul((uint64_t)nest_points(domain, emit_plan_stmt(p, r)->mask),
                              emit_plan_sum_bytes(p, r)));
    }
    memset(p->complete, 0, nest->n_stmts * sizeof *p->complete);
}
