/* Kernels of a nest (schedule.h). Linear in the statements but for a slice a sink. */
#include <string.h>

#include "ir/op.h"
#include "kernels/emit/planner.h"

/* ---- vectors ---- */

/* May an access move `n` elements along `axis` at once? */
static bool access_aligned(const nest_access_t *a, int32_t axis, uint32_t n) {
    if (a->stride[axis] != 1 || a->offset % n) return false;
    for (int32_t i = 0; i < NEST_MAX_AXES; i++)
        if (i != axis && a->stride[i] % n) return false;
    return a->index == NEST_NONE || a->index_stride % n == 0;
}

/* Elements a thread takes: 16 bytes of the narrowest tensor, where the extent allows. */
void emit_plan_vector(emit_planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    k->vector_axis = emit_last_axis(k->shape == EMIT_ROWS      ? k->cols
                                    : k->shape == EMIT_COLUMNS ? k->rows
                                                               : k->mask);
    k->vector = 1;
    if (k->vector_axis < 0) return;
    size_t narrow = 8;
    bool any = false;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_access_t *a = &emit_plan_stmt(p, v)->access;
        if (!p->needed[v] || emit_plan_stmt(p, v)->kind != NEST_LOAD ||
            a->stride[k->vector_axis] != 1)
            continue;
        if (ir_dtype_bytes(a->dtype) < narrow) narrow = ir_dtype_bytes(a->dtype);
        any = true;
    }
    for (uint32_t i = 0; i < k->n_stores; i++) {
        const nest_access_t *a = &p->nest->stores[k->stores[i]].access;
        if (a->stride[k->vector_axis] != 1) continue;
        if (ir_dtype_bytes(a->dtype) < narrow) narrow = ir_dtype_bytes(a->dtype);
        any = true;
    }
    if (!any) return;
    if (narrow < 2) narrow = 2;
    uint32_t vector = (uint32_t)(16 / narrow);
    while (vector > 1 && domain->axes[k->vector_axis].extent % vector) vector /= 2;
    k->vector = vector;
}

bool emit_access_vector(const emit_kernel_t *k, const nest_access_t *a) {
    return k->vector > 1 && access_aligned(a, k->vector_axis, k->vector);
}

/* ---- kernels ---- */

st_status_t emit_plan_kernel(emit_planner_t *p, emit_shape_t shape, uint32_t domain, uint32_t level,
                             emit_kernel_t **out) {
    emit_schedule_t *s = p->s;
    if (s->n_kernels == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 16;
        emit_kernel_t *grown = st_arena_array(&s->arena, capacity, sizeof *grown);
        if (!grown) return st_no_memory(capacity * sizeof *grown, "the kernels of a nest");
        if (s->n_kernels) memcpy(grown, s->kernels, s->n_kernels * sizeof *grown);
        s->kernels = grown;
        p->capacity = capacity;
    }
    *out = &s->kernels[s->n_kernels++];
    **out = (emit_kernel_t){.shape = shape,
                            .domain = domain,
                            .level = level,
                            .vector_axis = -1,
                            .vector = 1,
                            .blocks = 1,
                            .splits = 1};
    return ST_OK;
}

st_status_t emit_plan_store(emit_kernel_t *k, uint32_t store) {
    if (k->n_stores == EMIT_MAX_SINKS)
        return FAIL(ST_UNSUPPORTED, "a nest with more than %d results of one domain",
                    EMIT_MAX_SINKS);
    k->stores[k->n_stores++] = store;
    return ST_OK;
}

st_status_t emit_plan_reduce(emit_planner_t *p, emit_kernel_t *k, nest_value_t v,
                             int64_t n_partials) {
    if (k->n_reduces == EMIT_MAX_SINKS)
        return FAIL(ST_UNSUPPORTED, "a nest with more than %d reductions of one domain",
                    EMIT_MAX_SINKS);
    const nest_stmt_t *stmt = emit_plan_stmt(p, v);
    const nest_domain_t *domain = &p->nest->domains[stmt->domain];
    uint64_t bytes =
        st_size_mul((uint64_t)nest_points(domain, stmt->mask), emit_plan_sum_bytes(p, v));
    const nest_value_t pair = p->s->pair[v];
    const uint64_t held = pair == NEST_NONE ? 1 : 2; /* a pair: a mean and squares */
    emit_grid_t *grid = &p->s->grid[v];
    grid->n_partials = n_partials;
    grid->result = emit_plan_take(p->s, bytes);
    grid->partial = n_partials == 1
                        ? grid->result
                        : emit_plan_take(p->s, st_size_mul(bytes, held * (uint64_t)n_partials));
    if (pair != NEST_NONE) p->s->grid[pair].result = emit_plan_take(p->s, bytes);
    k->reduces[k->n_reduces++] = v;
    return ST_OK;
}

void emit_plan_mark_sinks(emit_planner_t *p, const emit_kernel_t *k) {
    emit_plan_clear(p);
    for (uint32_t i = 0; i < k->n_stores; i++)
        emit_plan_mark(p, p->nest->stores[k->stores[i]].value);
    for (uint32_t i = 0; i < k->n_reduces; i++) emit_plan_mark_reduce(p, k->reduces[i]);
}

/* Lanes along `kept` columns, at most a warp's: few columns leave theirs to more rows. Returns how
 * many times that many there are. */
static int64_t lanes_of(emit_kernel_t *k, int64_t kept) {
    const int64_t vectors = emit_ceil_div(kept, k->vector);
    for (k->group = 1; k->group < 32 && k->group < vectors;) k->group *= 2;
    return emit_ceil_div(vectors, k->group);
}

/* Blocks that a multiprocessor holds at once. A kernel of sums has no more, or a few would come
 * last while the others wait. Registers: sums, what a column keeps, and of each tensor one load;
 * the compiler is held to what follows, and fills what is left with loads ahead. */
static uint32_t resident_blocks(const emit_planner_t *p, const emit_kernel_t *k) {
    const uint32_t vector = 1u << k->vector_axis;
    uint32_t values = 0;
    for (uint32_t i = 0; i < k->n_reduces; i++)
        values += p->s->pair[k->reduces[i]] == NEST_NONE ? 1 : 3;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        values += p->needed[v] && (stmt->mask & vector) &&
                  (stmt->kind == NEST_LOAD || emit_plan_is_result(p, v));
    }
    const size_t each = p->nest->domains[k->domain].wide ? 2 : 1;
    const size_t registers = OWN_REGISTERS + values * each * k->vector;
    const size_t n = REGISTERS / (registers * EMIT_BLOCK);
    return n < 2 ? 1 + (registers < 180) : n > MAX_RESIDENT ? MAX_RESIDENT : (uint32_t)n;
}

static void shape_reduce(emit_planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    int64_t kept = nest_points(domain, k->rows), reduced = nest_points(domain, k->cols);
    if (kept < 1) kept = 1; /* an empty result is one block that finds nothing to do */
    emit_plan_mark_sinks(p, k);
    emit_plan_vector(p, k);
    if (k->shape == EMIT_COLUMNS) {
        const int64_t tiles = lanes_of(k, kept);
        k->resident = resident_blocks(p, k);
        const int64_t most = k->resident * MULTIPROCESSORS / tiles; /* never a few more */
        k->splits = emit_ceil_div(reduced, (int64_t)ROWS_A_THREAD * (EMIT_BLOCK / k->group));
        if (k->splits > most) k->splits = most > 1 ? most : 1;
        k->blocks = tiles * k->splits;
    } else {
        k->splits = emit_ceil_div(reduced, (int64_t)EMIT_BLOCK * k->vector * 4);
        if (k->splits > emit_ceil_div(WANTED_BLOCKS, kept))
            k->splits = emit_ceil_div(WANTED_BLOCKS, kept);
        k->blocks = kept * k->splits;
    }
    if (k->splits < 1) k->splits = 1;
    if (k->blocks < 1) k->blocks = 1;
}

/* Does the slice at hand load something at all points of `mask` that is in loads[]? */
static bool shares_load(const emit_planner_t *p, uint32_t mask, const bool *loads) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        if (p->needed[v] && loads[v] && emit_plan_stmt(p, v)->kind == NEST_LOAD &&
            emit_plan_stmt(p, v)->mask == mask)
            return true;
    return false;
}

/* Stores of a COLUMNS kernel's points that read what it reads: once for both. */
static st_status_t take_columns(emit_planner_t *p, emit_kernel_t *k, bool *taken, bool *loads) {
    emit_plan_mark_sinks(p, k);
    memcpy(loads, p->needed, p->nest->n_stmts * sizeof *loads);
    for (uint32_t i = 0; i < p->nest->n_stores && k->n_stores < EMIT_MAX_SINKS; i++) {
        const nest_store_t *store = &p->nest->stores[i];
        if (taken[i] || store->domain != k->domain || store->mask != k->mask ||
            emit_plan_available(p->s, store->value) != k->level)
            continue;
        emit_plan_clear(p);
        emit_plan_mark(p, store->value);
        if (!shares_load(p, k->mask, loads)) continue;
        TRY(emit_plan_store(k, i));
        taken[i] = true;
    }
    return ST_OK;
}

/* Brings the kernels of a shape from `first` on together, as one launch. They are of one level, so
 * that none waits for another. */
static void join_kernels(emit_schedule_t *s, uint32_t first, emit_shape_t shape) {
    uint32_t n = first;
    for (uint32_t i = first; i < s->n_kernels; i++) {
        if (s->kernels[i].shape != shape || emit_threads(&s->kernels[i]) != EMIT_BLOCK) continue;
        emit_kernel_t one = s->kernels[i];
        memmove(&s->kernels[n + 1], &s->kernels[n], (i - n) * sizeof one);
        one.joined = n > first;
        s->kernels[n++] = one;
    }
}

/* Reductions that need no rows: those of one domain, level and axes together. */
static st_status_t plan_reduces(emit_planner_t *p, uint32_t level, bool *taken, bool *taken_store) {
    const nest_t *nest = p->nest;
    const uint32_t first = p->s->n_kernels;
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        if (!p->s->grid[v].is_grid || taken[v] || p->s->level[v] != level ||
            emit_comes_along(p->s, v))
            continue;
        uint32_t mask = stmt->mask | stmt->over;
        bool line = (stmt->over >> emit_last_axis(mask) & 1) != 0;
        emit_kernel_t *k;
        TRY(emit_plan_kernel(p, line ? EMIT_LINES : EMIT_COLUMNS, stmt->domain, level, &k));
        k->mask = mask;
        k->rows = stmt->mask;
        k->cols = stmt->over;
        nest_value_t same[EMIT_MAX_SINKS];
        uint32_t n = 0;
        for (uint32_t w = v; w < nest->n_stmts && n < EMIT_MAX_SINKS; w++) {
            const nest_stmt_t *other = emit_plan_stmt(p, w);
            if (p->s->grid[w].is_grid && !taken[w] && p->s->level[w] == level &&
                other->domain == stmt->domain && other->mask == stmt->mask &&
                other->over == stmt->over && !emit_comes_along(p->s, w)) {
                same[n++] = w;
                taken[w] = true;
            }
        }
        memcpy(k->reduces, same, n * sizeof *same);
        k->n_reduces = n;
        if (!line) TRY(take_columns(p, k, taken_store, p->loads));
        shape_reduce(p, k);
        k->n_reduces = 0;
        for (uint32_t i = 0; i < n; i++) TRY(emit_plan_reduce(p, k, same[i], k->splits));
    }
    join_kernels(p->s, first, EMIT_LINES);
    return ST_OK;
}

/* ---- what joins partial results ---- */

/* Can the slice at hand be computed where `level` ends, from what is complete by then? */
static bool slice_complete(const emit_planner_t *p, uint32_t level) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        if (!p->needed[v]) continue;
        if (emit_plan_is_result(p, v)
                ? p->s->grid[v].is_grid && !p->complete[v]
                : emit_plan_stmt(p, v)->kind == NEST_REDUCE ||
                      (p->s->uniform[v] != UINT64_MAX && p->s->level[v] > level))
            return false;
    }
    return true;
}

/* The stores of the points that a FINISH kernel has: its threads have the results at hand. */
static st_status_t take_finished(emit_planner_t *p, emit_kernel_t *k, bool *taken) {
    for (uint32_t i = 0; i < p->nest->n_stores && k->n_stores < EMIT_MAX_SINKS; i++) {
        const nest_store_t *store = &p->nest->stores[i];
        if (taken[i] || store->domain != k->domain || !store->mask || store->mask != k->mask ||
            emit_plan_available(p->s, store->value) != k->level + 1)
            continue;
        emit_plan_clear(p);
        emit_plan_mark(p, store->value);
        if (!slice_complete(p, k->level)) continue;
        TRY(emit_plan_store(k, i));
        taken[i] = true;
    }
    return ST_OK;
}

static void complete(emit_planner_t *p, nest_value_t v) {
    p->complete[v] = true;
    if (p->s->pair[v] != NEST_NONE) p->complete[p->s->pair[v]] = true;
}

static void shape_finish(emit_planner_t *p, emit_kernel_t *k, const emit_kernel_t *from) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    const int64_t points = nest_points(domain, k->mask);
    k->splits = p->s->grid[k->reduces[0]].n_partials;
    const int64_t step = from->shape == EMIT_LINES ? from->vector : 1;
    k->reduced = nest_points(domain, from->cols);
    k->part = emit_ceil_div(k->reduced / step, k->splits) * step;
    k->group = k->splits >= 4 * FINISH_ROWS ? FINISH_ROWS : EMIT_BLOCK / 32;
    if (points < 32) k->group = EMIT_BLOCK;
    k->blocks = points < 32 ? points : emit_ceil_div(points, 32);
    if (k->blocks < 1) k->blocks = 1;
}

/* Partial results of the level's kernels. */
static st_status_t plan_finish(emit_planner_t *p, uint32_t level, uint32_t first_kernel,
                               bool *taken) {
    const uint32_t n = p->s->n_kernels;
    for (uint32_t i = first_kernel; i < n; i++)
        for (uint32_t r = 0; r < p->s->kernels[i].n_reduces; r++)
            if (p->s->grid[p->s->kernels[i].reduces[r]].n_partials == 1)
                complete(p, p->s->kernels[i].reduces[r]);
    for (uint32_t i = first_kernel; i < n; i++) {
        emit_kernel_t *k;
        uint32_t n_reduces = 0;
        for (uint32_t r = 0; r < p->s->kernels[i].n_reduces; r++)
            n_reduces += p->s->grid[p->s->kernels[i].reduces[r]].n_partials > 1;
        if (!n_reduces || p->s->kernels[i].shape == EMIT_UNIFORM) continue;
        TRY(emit_plan_kernel(p, EMIT_FINISH, p->s->kernels[i].domain, level, &k));
        const emit_kernel_t *from = &p->s->kernels[i];
        for (uint32_t r = 0; r < from->n_reduces; r++)
            if (p->s->grid[from->reduces[r]].n_partials > 1) {
                k->reduces[k->n_reduces++] = from->reduces[r];
                complete(p, from->reduces[r]);
            }
        k->mask = emit_plan_stmt(p, k->reduces[0])->mask;
        shape_finish(p, k, from);
        TRY(take_finished(p, k, taken));
    }
    join_kernels(p->s, n, EMIT_FINISH);
    return ST_OK;
}

/* Axes of what the slice at hand reads along the vector but not along all axes, as a channel's mean
 * and factors; 0 where that is less than two operands. */
static uint32_t shared_axes(const emit_planner_t *p, const emit_kernel_t *k) {
    const uint32_t last = 1u << emit_last_axis(k->mask);
    uint32_t inner = 0, n = 0;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        if (!p->needed[v] || (stmt->kind != NEST_LOAD && !emit_plan_is_result(p, v))) continue;
        if (!(stmt->mask & last) || (stmt->mask & k->mask) == k->mask) continue;
        inner |= stmt->mask;
        n++;
    }
    return n < 2 || (inner & k->mask) == k->mask ? 0 : inner & k->mask;
}

/* Is there arithmetic on what all points along the last axis share, as a row's logarithm? */
static bool has_row_arithmetic(const emit_planner_t *p, uint32_t last) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        if (p->needed[v] && stmt->kind == NEST_OP && stmt->mask && !(stmt->mask & last) &&
            !emit_plan_is_result(p, v))
            return true;
    }
    return false;
}

/* Long rows whose points share arithmetic: a ROWS kernel without reductions does it once a thread,
 * not once a vector. */
static bool shape_shared_rows(emit_planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    const uint32_t last = 1u << emit_last_axis(k->mask);
    const int64_t n = nest_points(domain, k->mask & ~last);
    emit_kernel_t rows = *k;
    if (n < FEW_ROWS || n > INT32_MAX || !has_row_arithmetic(p, last)) return false;
    rows.shape = EMIT_ROWS;
    rows.rows = k->mask & ~last;
    rows.cols = last;
    emit_plan_vector(p, &rows);
    const int64_t vectors = emit_ceil_div(nest_points(domain, last), rows.vector);
    if (vectors < 2 * EMIT_BLOCK) return false;
    rows.group = MAX_GROUP;
    rows.blocks = n;
    *k = rows;
    return true;
}

/* A point a thread; where operands are shared by many points, a thread keeps them and goes through
 * the points, which is a COLUMNS kernel without sums. The slice at hand is the kernel's. */
static void shape_flat(emit_planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    const uint32_t inner = shared_axes(p, k);
    const int64_t kept = nest_points(domain, inner), shared = nest_points(domain, k->mask & ~inner);
    if (inner && kept > 0 && shared >= FEW_ROWS) {
        emit_kernel_t columns = *k;
        columns.shape = EMIT_COLUMNS;
        columns.rows = inner;
        columns.cols = k->mask & ~inner;
        emit_plan_vector(p, &columns);
        const int64_t tiles = lanes_of(&columns, kept), rows = EMIT_BLOCK / columns.group;
        columns.splits = emit_ceil_div(shared, ROWS_A_THREAD * rows);
        if (columns.splits > emit_ceil_div(8 * WANTED_BLOCKS, tiles))
            columns.splits = emit_ceil_div(8 * WANTED_BLOCKS, tiles);
        columns.blocks = tiles * columns.splits;
        if (shared >= 4 * rows && columns.blocks < INT32_MAX) {
            *k = columns;
            return;
        }
    }
    if (shape_shared_rows(p, k)) return;
    emit_plan_vector(p, k);
    k->blocks = emit_ceil_div(emit_ceil_div(nest_points(domain, k->mask), k->vector), EMIT_BLOCK);
    if (k->blocks < 1) k->blocks = 1;
}

/* Stores of one domain, level and set of axes together. */
static st_status_t plan_flat(emit_planner_t *p, uint32_t level, bool *taken) {
    const nest_t *nest = p->nest;
    const uint32_t first = p->s->n_kernels;
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        const nest_store_t *store = &nest->stores[i];
        if (taken[i] || !store->mask || emit_plan_available(p->s, store->value) != level) continue;
        emit_kernel_t *k;
        TRY(emit_plan_kernel(p, EMIT_FLAT, store->domain, level, &k));
        k->mask = store->mask;
        for (uint32_t j = i; j < nest->n_stores && k->n_stores < EMIT_MAX_SINKS; j++) {
            const nest_store_t *other = &nest->stores[j];
            if (taken[j] || other->domain != store->domain || other->mask != store->mask ||
                emit_plan_available(p->s, other->value) != level)
                continue;
            TRY(emit_plan_store(k, j));
            taken[j] = true;
        }
        emit_plan_mark_sinks(p, k);
        shape_flat(p, k);
    }
    join_kernels(p->s, first, EMIT_FLAT);
    return ST_OK;
}

/* Operations on values without axes: once, not in every thread. */
static st_status_t plan_uniform(emit_planner_t *p, uint32_t level, bool *taken) {
    const nest_t *nest = p->nest;
    emit_kernel_t *k = NULL;
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        if (p->s->uniform[v] == UINT64_MAX || p->s->level[v] != level) continue;
        if (!k) TRY(emit_plan_kernel(p, EMIT_UNIFORM, 0, level, &k));
    }
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        if (nest->stores[i].mask || taken[i] ||
            emit_plan_available(p->s, nest->stores[i].value) != level)
            continue;
        if (!k) TRY(emit_plan_kernel(p, EMIT_UNIFORM, 0, level, &k));
        TRY(emit_plan_store(k, i));
        taken[i] = true;
    }
    return ST_OK;
}

static st_status_t plan_levels(emit_planner_t *p) {
    const nest_t *nest = p->nest;
    bool *taken_store = st_arena_array(&p->s->arena, nest->n_stores + 1, sizeof *taken_store);
    bool *taken_reduce = st_arena_array(&p->s->arena, nest->n_stmts + 1, sizeof *taken_reduce);
    if (!taken_store || !taken_reduce) return st_no_memory(nest->n_stmts, "the kernels of a nest");
    memset(taken_store, 0, nest->n_stores * sizeof *taken_store);
    memset(taken_reduce, 0, nest->n_stmts * sizeof *taken_reduce);
    for (uint32_t level = 0; level < p->s->n_levels; level++) {
        uint32_t first = p->s->n_kernels;
        p->level = level;
        TRY(plan_uniform(p, level, taken_store));
        for (uint32_t d = 0; d < nest->n_domains; d++)
            TRY(emit_plan_rows(p, d, level, taken_store, taken_reduce));
        TRY(plan_reduces(p, level, taken_reduce, taken_store));
        TRY(plan_flat(p, level, taken_store));
        TRY(plan_finish(p, level, first, taken_store));
    }
    return ST_OK;
}

uint32_t emit_threads(const emit_kernel_t *k) {
    if (k->shape == EMIT_UNIFORM) return 32;
    if (k->shape == EMIT_FINISH && !emit_finish_whole(k)) return 32 * k->group;
    return k->shape == EMIT_ROWS ? k->group * (uint32_t)k->splits : EMIT_BLOCK;
}

/* ---- entry ---- */

/* Constants of a body are written into the source. */
static st_status_t check_constants(const nest_t *nest) {
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = &nest->stmts[v];
        if (stmt->kind != NEST_LOAD || stmt->access.tensor != NEST_NONE) continue;
        if (stmt->access.data_bytes > MAX_CONSTANT_BYTES)
            return FAIL(ST_UNSUPPORTED, "a constant of %llu bytes inside a nest: at most %d",
                        (unsigned long long)stmt->access.data_bytes, MAX_CONSTANT_BYTES);
    }
    return ST_OK;
}

/* Levels and kernels for the rows chosen. */
static st_status_t plan_all(emit_planner_t *p) {
    emit_schedule_t *s = p->s;
    const nest_t *nest = p->nest;
    s->n_levels = 1;
    s->n_kernels = 0;
    s->workspace = 0;
    memset(s->grid, 0, nest->n_stmts * sizeof *s->grid);
    memset(s->level, 0, nest->n_stmts * sizeof *s->level);
    memset(p->complete, 0, nest->n_stmts * sizeof *p->complete);
    emit_plan_pairs(p);
    emit_plan_find_levels(p);
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_plan_stmt(p, v);
        bool uniform =
            !stmt->mask && !stmt->over && (stmt->kind == NEST_OP || stmt->kind == NEST_RANDOM);
        s->uniform[v] = uniform ? emit_plan_take(s, 8) : UINT64_MAX;
    }
    emit_plan_leave(p);
    TRY(plan_levels(p));
    if (s->workspace > INT64_MAX)
        return FAIL(ST_DOES_NOT_FIT, "the scratch space of a nest overflows 63 bits");
    return ST_OK;
}

static st_status_t fill(emit_planner_t *p) {
    emit_schedule_t *s = p->s;
    const nest_t *nest = p->nest;
    uint32_t n = nest->n_stmts + 1;
    TRY(check_constants(nest));
    s->grid = st_arena_array(&s->arena, n, sizeof *s->grid);
    s->level = st_arena_array(&s->arena, n, sizeof *s->level);
    s->uniform = st_arena_array(&s->arena, n, sizeof *s->uniform);
    s->of = st_arena_array(&s->arena, n, sizeof *s->of);
    s->pair = st_arena_array(&s->arena, n, sizeof *s->pair);
    p->spread = st_arena_array(&s->arena, n, sizeof *p->spread);
    p->needed = st_arena_array(&s->arena, n, sizeof *p->needed);
    p->loads = st_arena_array(&s->arena, n, sizeof *p->loads);
    p->complete = st_arena_array(&s->arena, n, sizeof *p->complete);
    p->cols = st_arena_array(&s->arena, nest->n_domains + 1, sizeof *p->cols);
    p->all = st_arena_array(&s->arena, nest->n_domains + 1, sizeof *p->all);
    if (!s->grid || !s->level || !s->uniform || !s->of || !s->pair || !p->spread || !p->needed ||
        !p->complete || !p->loads || !p->cols || !p->all)
        return st_no_memory(n * sizeof *s->grid, "the kernels of a nest");
    memset(s->grid, 0, n * sizeof *s->grid);
    memset(s->level, 0, n * sizeof *s->level);
    memset(p->spread, 0, n * sizeof *p->spread);
    memset(p->cols, 0, (nest->n_domains + 1) * sizeof *p->cols);
    memset(p->all, 0, (nest->n_domains + 1) * sizeof *p->all);
    emit_plan_spread(p);
    emit_plan_cols(p);
    st_status_t status = plan_all(p);
    if (status != ST_UNSUPPORTED) return status;
    /* what does not fit rows goes without them: every reduction ends a level */
    memset(p->cols, 0, (nest->n_domains + 1) * sizeof *p->cols);
    return plan_all(p);
}

st_status_t emit_schedule_create(const nest_t *nest, emit_schedule_t **out_schedule) {
    *out_schedule = NULL;
    emit_schedule_t *s = st_calloc(1, sizeof *s);
    if (!s) return st_no_memory(sizeof *s, "the kernels of a nest");
    s->nest = nest;
    emit_planner_t p = {.s = s, .nest = nest};
    st_status_t status = fill(&p);
    if (status != ST_OK) {
        emit_schedule_destroy(s);
        return status;
    }
    *out_schedule = s;
    return ST_OK;
}

void emit_schedule_destroy(emit_schedule_t *schedule) {
    if (!schedule) return;
    st_arena_clear(&schedule->arena);
    st_free(schedule);
}
