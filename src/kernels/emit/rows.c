/* ROWS kernels of a schedule (planner.h): row reductions and what shares their rows. */
#include <string.h>

#include "kernels/emit/planner.h"

/* Are the elements of a row wanted once only? Then nothing is gained by keeping them. The slice at
 * hand is the kernel's. */
static bool rows_once(const emit_planner_t *p, const emit_kernel_t *k) {
    for (uint32_t i = 0; i < k->n_stores; i++)
        if (p->nest->stores[k->stores[i]].mask & k->cols) return false;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        if (!p->needed[v] || stmt->kind != NEST_REDUCE || emit_plan_is_result(p, v)) continue;
        /* what it is made of must know of no other */
        for (uint32_t other = 0; other < v; other++)
            if (p->needed[other] && emit_plan_stmt(p, other)->kind == NEST_REDUCE &&
                !emit_plan_is_result(p, other) && emit_plan_depends(p, p->s->of[v], other))
                return false;
    }
    return true;
}

/* Rows: how many threads a row, how many rows a block, whether what is loaded stays in
 * registers. */
static void shape_rows(emit_planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    int64_t n = nest_points(domain, k->cols), rows = nest_points(domain, k->rows);
    bool columns = false;
    for (uint32_t i = 0; i < k->n_reduces; i++)
        columns |=
            (emit_plan_stmt(p, emit_plan_stmt(p, k->reduces[i])->args[0])->mask & k->cols) != 0;
    emit_plan_mark_sinks(p, k);
    emit_plan_vector(p, k);
    int64_t vectors = n ? emit_ceil_div(n, k->vector) : 1; /* empty rows find nothing to do */
    k->group = 32;
    if (n > WARP_ROW || columns) {
        int64_t threads = emit_ceil_div(vectors, 32) * 32;
        while (threads > MAX_GROUP) threads = emit_ceil_div(threads / 2, 32) * 32;
        k->group = (uint32_t)threads;
    }
    uint32_t per_block = k->group == 32 && !columns ? EMIT_BLOCK / 32 : 1;
    uint32_t n_loads = 0;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        if (p->needed[v] && emit_plan_stmt(p, v)->kind == NEST_LOAD &&
            (emit_plan_stmt(p, v)->mask & k->cols))
            n_loads++;
    int64_t chunks = emit_ceil_div(vectors, k->group);
    bool fits =
        chunks * k->vector * (n_loads + (columns ? k->n_reduces : 0)) <= EMIT_MAX_PERSISTENT;
    if (chunks > 1 && !columns && rows_once(p, k)) fits = false;
    k->keep = fits;
    k->chunks = fits || columns ? (uint32_t)chunks : 0;
    k->blocks = rows ? emit_ceil_div(rows, per_block) : 1;
    k->splits = per_block;
    if (columns && k->blocks > COLUMN_GROUPS) k->blocks = COLUMN_GROUPS;
}

static uint32_t count_loads(const emit_planner_t *p, uint32_t mask) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        n += p->needed[v] && emit_plan_stmt(p, v)->kind == NEST_LOAD &&
             emit_plan_stmt(p, v)->mask == mask;
    return n;
}

/* Whether a sum over all rows that needs no row result itself is better made by the kernel that has
 * the rows in registers than by one that reads them again: few columns a thread, and nothing to
 * load beside what the rows' kernel loads. */
static bool joins_rows(emit_planner_t *p, const emit_kernel_t *k, nest_value_t v) {
    const nest_stmt_t *sum = emit_plan_stmt(p, v);
    const uint32_t all = p->all[k->domain], cols = p->cols[k->domain];
    int64_t columns = nest_points(&p->nest->domains[k->domain], cols);
    int64_t a_thread = emit_ceil_div(emit_ceil_div(columns, MAX_GROUP), 8) * 8;
    if (sum->over != (all & ~cols) || emit_plan_stmt(p, sum->args[0])->mask != all ||
        a_thread * (k->n_reduces + 1) > MAX_COLUMN_SUMS / 2)
        return false;
    emit_plan_mark_sinks(p, k);
    uint32_t n_loads = count_loads(p, all);
    emit_plan_mark_reduce(p, v);
    return count_loads(p, all) == n_loads;
}

/* One ROWS kernel for all that needs a domain's row reductions at a level. */
st_status_t emit_plan_rows(emit_planner_t *p, uint32_t domain, uint32_t level, bool *taken_store,
                           bool *taken_reduce) {
    const nest_t *nest = p->nest;
    uint32_t all = p->all[domain], cols = p->cols[domain];
    emit_kernel_t *k = NULL;
    if (!cols) return ST_OK;
    for (int pass = 0; pass < 2; pass++) { /* first those that need rows, then those that join */
        for (uint32_t i = 0; i < nest->n_stores; i++) {
            const nest_store_t *store = &nest->stores[i];
            if (store->domain != domain || taken_store[i] || !store->mask ||
                emit_plan_available(p->s, store->value) != level)
                continue;
            emit_plan_clear(p);
            emit_plan_mark(p, store->value);
            bool needs = emit_plan_has_rows(p);
            if (pass == 0 ? !needs : !k || (store->mask != all && store->mask != (all & ~cols)))
                continue;
            if (!k) TRY(emit_plan_kernel(p, EMIT_ROWS, domain, level, &k));
            TRY(emit_plan_store(k, i));
            taken_store[i] = true;
        }
        for (uint32_t v = 0; v < nest->n_stmts; v++) {
            const nest_stmt_t *stmt = emit_plan_stmt(p, v);
            if (!p->s->grid[v].is_grid || stmt->domain != domain || p->s->level[v] != level ||
                taken_reduce[v])
                continue;
            emit_plan_clear(p);
            emit_plan_mark_reduce(p, v);
            const bool needs = emit_plan_has_rows(p);
            if (pass == 0 ? !needs : needs || !k || !joins_rows(p, k, v)) continue;
            uint32_t mask = emit_plan_stmt(p, stmt->args[0])->mask;
            if (stmt->over != (all & ~cols) || (mask & ~cols) != (all & ~cols) ||
                ((mask & cols) && (mask & cols) != cols))
                return FAIL(ST_UNSUPPORTED,
                            "a reduction of row results over other axes than all rows");
            if (!k) TRY(emit_plan_kernel(p, EMIT_ROWS, domain, level, &k));
            if (k->n_reduces == EMIT_MAX_SINKS)
                return FAIL(ST_UNSUPPORTED,
                            "a nest with more than %d reductions over the rows of one domain",
                            EMIT_MAX_SINKS);
            k->reduces[k->n_reduces++] = v; /* sizes follow */
            taken_reduce[v] = true;
        }
    }
    if (!k) return ST_OK;
    k->mask = all;
    k->cols = cols;
    k->rows = all & ~cols;
    shape_rows(p, k);
    uint32_t n = k->n_reduces;
    nest_value_t reduces[EMIT_MAX_SINKS];
    memcpy(reduces, k->reduces, sizeof reduces);
    k->n_reduces = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool columns =
            (emit_plan_stmt(p, emit_plan_stmt(p, reduces[i])->args[0])->mask & cols) != 0;
        int64_t rows = nest_points(&nest->domains[domain], k->rows);
        if (columns && k->chunks * k->vector * n > MAX_COLUMN_SUMS)
            return FAIL(ST_UNSUPPORTED, "rows of %lld elements are too long to keep %u column sums",
                        (long long)nest_points(&nest->domains[domain], cols), n);
        TRY(emit_plan_reduce(p, k, reduces[i], columns ? k->blocks : rows));
    }
    return ST_OK;
}
