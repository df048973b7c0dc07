/* How a schedule adds up its sums (schedule.h): what source.c's order and groups follow from, shape
 * by shape.
 *
 *   ROWS, within a row   thread t has vectors t, t + group, …; then the group's threads are joined
 *   ROWS, over rows      block b has rows b·splits …, every blocks·splits-th; then FINISH
 *   COLUMNS              256 / group rows of a block at a time, `splits` parts; then FINISH
 *   LINES                256 vectors of a block at a time, `splits` parts; then FINISH
 *   FINISH               n_partials parts, as many at a time as the results leave threads
 *
 * Axes are known by their extents: where two have the same one, everything that the nest reads is
 * told beside them, so that only equal nests seem alike. Linear in statements times kernels. */
#include "base/hash.h"
#include "kernels/emit/schedule.h"

static uint64_t mix(uint64_t hash, int64_t number) {
    return st_hash64(&number, sizeof number, hash);
}

static uint64_t mix_accesses(const nest_t *nest, uint64_t hash) {
    for (uint32_t i = 0; i < nest->n_stmts; i++)
        if (nest->stmts[i].kind == NEST_LOAD)
            hash =
                st_hash64(nest->stmts[i].access.stride, sizeof nest->stmts[i].access.stride, hash);
    return hash;
}

static uint64_t mix_axes(const nest_t *nest, const nest_stmt_t *sum, uint64_t hash) {
    const nest_domain_t *domain = &nest->domains[sum->domain];
    bool twins = false;
    for (uint32_t i = 0; i < domain->n_axes; i++) {
        if (!(sum->over >> i & 1) || domain->axes[i].extent == 1) continue;
        for (uint32_t k = 0; k < i; k++)
            twins |= (sum->over >> k & 1) && domain->axes[k].extent == domain->axes[i].extent;
        hash = mix(hash, domain->axes[i].extent);
    }
    hash = mix(hash, nest_points(domain, sum->mask));
    return twins ? mix_accesses(nest, hash) : hash;
}

/* A sum that ends a level. */
static uint64_t mix_grid(const emit_schedule_t *s, const emit_kernel_t *k, nest_value_t v,
                         uint64_t hash) {
    const nest_stmt_t *term = &s->nest->stmts[s->nest->stmts[v].args[0]];
    hash = mix(hash, k->shape);
    hash = mix(hash, s->grid[v].n_partials);
    hash = mix(hash, k->splits);
    if (k->shape == EMIT_LINES) hash = mix(hash, k->vector);
    if (k->shape == EMIT_COLUMNS) hash = mix(hash, k->group);
    if (k->shape == EMIT_ROWS) {
        hash = mix(hash, k->blocks);
        hash = mix(hash, (term->mask & k->cols) != 0);
    }
    return hash;
}

/* A sum within a row: every kernel that has the domain's rows makes it. */
static uint64_t mix_row(const emit_kernel_t *k, uint64_t hash) {
    hash = mix(hash, k->shape);
    hash = mix(hash, k->group);
    return mix(hash, k->vector);
}

uint64_t emit_sums_hash(const emit_schedule_t *s) {
    const nest_t *nest = s->nest;
    uint64_t hash = 0;
    for (nest_value_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *sum = &nest->stmts[v];
        if (!nest_is_sum(sum) || sum->domain == NEST_NONE) continue;
        hash = mix(hash, sum->op);
        hash = mix(hash, nest->domains[sum->domain].wide);
        hash = mix_axes(nest, sum, hash);
        for (uint32_t i = 0; i < s->n_kernels; i++) {
            const emit_kernel_t *k = &s->kernels[i];
            if (k->domain != sum->domain || k->shape == EMIT_UNIFORM) continue;
            if (!emit_is_result(s, k->level, v) && k->shape == EMIT_ROWS) hash = mix_row(k, hash);
            for (uint32_t r = 0; s->grid[v].is_grid && r < k->n_reduces; r++)
                if (k->reduces[r] == v) hash = mix_grid(s, k, v, hash);
        }
    }
    return hash;
}
