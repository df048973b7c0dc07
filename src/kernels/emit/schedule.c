/* Kernels of a nest (schedule.h). Linear in the statements but for a slice a sink. */
#include "kernels/emit/schedule.h"

#include <string.h>

#include "base/memory.h"
#include "ir/nest_pairs.h"
#include "ir/op.h"

/* Numbers of blocks are multiples of the multiprocessors of an H100 or H200, fewer of which other
 * devices have: more blocks than those do no harm. */
enum {
    MULTIPROCESSORS = 132,
    /* Two blocks each: below this many rows, a row a block would leave multiprocessors idle, unless the
     * rows are so short that a launch costs more than they do. */
    FEW_ROWS = 2 * MULTIPROCESSORS,
    SHORT_ROW = 1 << 12, /* 512 threads take it in one go of 8 elements each */
    ROW_LIMIT = 1 << 18, /* 512 elements a thread of one block; longer ones are split over blocks */
    WARP_ROW = 1 << 10,  /* 32 elements a lane, which fit its registers: no barrier in the block */
    MAX_GROUP = 512,     /* threads a row */
    FINISH_ROWS =
        32, /* threads a point where there are many parts: their latency is all the time */
    ROWS_A_THREAD = 8, /* at least, of a sum over rows that several blocks share */
    COLUMN_GROUPS = 4 * MULTIPROCESSORS, /* blocks with column sums: each writes a part of all */
    MAX_RESIDENT =
        4, /* blocks of EMIT_BLOCK threads that a multiprocessor is given: they hide memory's latency */
    WANTED_BLOCKS = MAX_RESIDENT * MULTIPROCESSORS,
    REGISTERS = 65536,            /* of a multiprocessor */
    OWN_REGISTERS = 20,           /* a thread's, besides its values: addresses and counters */
    MAX_COLUMN_SUMS = 128,        /* a thread's, in registers: half of the 255 that it can have */
    MAX_CONSTANT_BYTES = 1 << 16, /* written into the source as text */
    ALIGNMENT = 256,              /* of a device's allocations */
};

typedef struct planner {
    emit_schedule_t *s;
    const nest_t *nest;
    uint32_t *spread; /* [stmts] axes of what depends on it */
    uint32_t *cols;   /* [domains] axes within a row; 0: no rows */
    uint32_t *all;  /* [domains] with cols: the axes of what has rows, a row's and the rows' own */
    bool *needed;   /* [stmts] slice at hand */
    uint32_t level; /* that kernels are planned for */
    bool *loads;    /* [stmts] scratch */
    bool *complete; /* [stmts] reductions whose results there are */
    uint32_t capacity;
} planner_t;

static const nest_stmt_t *stmt_at(const planner_t *p, nest_value_t v) {
    return &p->nest->stmts[v];
}

static int32_t last_axis(uint32_t mask) {
    int32_t axis = -1;
    for (int32_t i = 0; i < NEST_MAX_AXES; i++)
        if (mask >> i & 1) axis = i;
    return axis;
}

static uint64_t take(emit_schedule_t *s, uint64_t bytes) {
    uint64_t at = s->workspace;
    s->workspace = st_size_add(at, st_size_align(bytes, ALIGNMENT));
    return at;
}

/* ---- levels ---- */

static void find_spread(planner_t *p) {
    for (uint32_t v = p->nest->n_stmts; v-- > 0;) {
        const nest_stmt_t *stmt = stmt_at(p, v);
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
static void choose_cols(planner_t *p) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        if (stmt->kind != NEST_REDUCE || stmt->domain == NEST_NONE) continue;
        const nest_domain_t *domain = &p->nest->domains[stmt->domain];
        const uint32_t all = p->spread[v] | stmt->mask | stmt->over;
        bool inner = stmt->over >> last_axis(all) & 1; /* rows lie in memory as they are read */
        if (!p->cols[stmt->domain] && stmt->mask && inner && (p->spread[v] & stmt->over) &&
            rows_fit(domain, all, stmt->over))
            p->cols[stmt->domain] = stmt->over;
    }
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        if (stmt->kind == NEST_REDUCE && stmt->mask && stmt->over == p->cols[stmt->domain])
            p->all[stmt->domain] |= p->spread[v] | stmt->mask | stmt->over;
    }
}

/* Squares around a mean go with the sum, where no row is at hand that holds its elements; exponentials
 * less a maximum go with that in rows longer than a warp's. */
static bool pairs_up(const planner_t *p, nest_value_t v, nest_pair_t *pair) {
    const nest_stmt_t *stmt = stmt_at(p, v);
    if (stmt->kind != NEST_REDUCE || stmt->domain == NEST_NONE) return false;
    const uint32_t cols = p->cols[stmt->domain];
    if (!cols) return nest_centered_squares(p->nest, v, pair);
    return stmt->mask && stmt->over == cols &&
           nest_points(&p->nest->domains[stmt->domain], cols) > WARP_ROW &&
           nest_centered_exponentials(p->nest, v, pair);
}

static void find_pairs(planner_t *p) {
    emit_schedule_t *s = p->s;
    nest_pair_t pair;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        s->of[v] = stmt_at(p, v)->n_args ? stmt_at(p, v)->args[0] : NEST_NONE;
        s->pair[v] = NEST_NONE;
        if (!pairs_up(p, v, &pair) || s->pair[pair.first] != NEST_NONE) continue;
        s->of[v] = pair.of;
        s->pair[v] = pair.first;
        s->pair[pair.first] = v;
    }
}

static uint8_t available(const emit_schedule_t *s, nest_value_t v) {
    return (uint8_t)(s->level[v] + (s->grid[v].is_grid ? 1 : 0));
}

static void find_levels(planner_t *p) {
    emit_schedule_t *s = p->s;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        s->grid[v].is_grid =
            stmt->kind == NEST_REDUCE && (!stmt->mask || stmt->over != p->cols[stmt->domain]);
        for (uint32_t j = 0; j < stmt->n_args; j++) {
            uint8_t level = available(s, stmt->kind == NEST_REDUCE ? s->of[v] : stmt->args[j]);
            if (level > s->level[v]) s->level[v] = level;
        }
        if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE) {
            uint8_t level = available(s, stmt->access.index);
            if (level > s->level[v]) s->level[v] = level;
        }
        if (available(s, v) >= s->n_levels) s->n_levels = available(s, v) + 1u;
    }
}

/* ---- slices ---- */

static bool is_result(const planner_t *p, nest_value_t v) {
    return emit_is_result(p->s, p->level, v);
}

/* Marks what `v` is computed from, down to loads, uniform operations and grid results. */
static void mark(planner_t *p, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(p, v);
    if (p->needed[v]) return;
    p->needed[v] = true;
    if (is_result(p, v) || p->s->uniform[v] != UINT64_MAX) return;
    for (uint32_t j = 0; j < stmt->n_args; j++) mark(p, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE) mark(p, stmt->access.index);
}

/* Is `v` computed from `from`? Recursion as deep as the nest, in a slice of few statements. */
static bool depends(const planner_t *p, nest_value_t v, nest_value_t from) {
    if (v <= from) return v == from;
    const nest_stmt_t *stmt = stmt_at(p, v);
    bool found = stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE &&
                 depends(p, stmt->access.index, from);
    for (uint32_t j = 0; j < stmt->n_args && !found; j++) found = depends(p, stmt->args[j], from);
    return found;
}

static void clear_slice(planner_t *p) {
    memset(p->needed, 0, p->nest->n_stmts * sizeof *p->needed);
}

static void mark_reduce(planner_t *p, nest_value_t v) {
    mark(p, p->s->of[v]);
}

static bool slice_has_rows(const planner_t *p) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        if (p->needed[v] && stmt_at(p, v)->kind == NEST_REDUCE && !is_result(p, v)) return true;
    return false;
}

/* ---- vectors ---- */

/* May an access move `n` elements along `axis` at once? */
static bool access_aligned(const nest_access_t *a, int32_t axis, uint32_t n) {
    if (a->stride[axis] != 1 || a->offset % n) return false;
    for (int32_t i = 0; i < NEST_MAX_AXES; i++)
        if (i != axis && a->stride[i] % n) return false;
    return a->index == NEST_NONE || a->index_stride % n == 0;
}

/* Elements a thread takes: 16 bytes of the narrowest tensor, where the extent allows. */
static void choose_vector(planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    k->vector_axis = last_axis(k->shape == EMIT_ROWS      ? k->cols
                               : k->shape == EMIT_COLUMNS ? k->rows
                                                          : k->mask);
    k->vector = 1;
    if (k->vector_axis < 0) return;
    size_t narrow = 8;
    bool any = false;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_access_t *a = &stmt_at(p, v)->access;
        if (!p->needed[v] || stmt_at(p, v)->kind != NEST_LOAD || a->stride[k->vector_axis] != 1)
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

static st_status_t add_kernel(planner_t *p, emit_shape_t shape, uint32_t domain, uint32_t level,
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

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static size_t accumulator_bytes(const planner_t *p, nest_value_t v) {
    uint32_t domain = stmt_at(p, v)->domain;
    bool integer = !ir_dtype_is_float(stmt_at(p, v)->dtype);
    return integer || domain == NEST_NONE || p->nest->domains[domain].wide ? 8 : 4;
}

static st_status_t add_store(emit_kernel_t *k, uint32_t store) {
    if (k->n_stores == EMIT_MAX_SINKS)
        return FAIL(ST_UNSUPPORTED, "a nest with more than %d results of one domain",
                    EMIT_MAX_SINKS);
    k->stores[k->n_stores++] = store;
    return ST_OK;
}

static st_status_t add_reduce(planner_t *p, emit_kernel_t *k, nest_value_t v, int64_t n_partials) {
    if (k->n_reduces == EMIT_MAX_SINKS)
        return FAIL(ST_UNSUPPORTED, "a nest with more than %d reductions of one domain",
                    EMIT_MAX_SINKS);
    const nest_stmt_t *stmt = stmt_at(p, v);
    const nest_domain_t *domain = &p->nest->domains[stmt->domain];
    uint64_t bytes =
        st_size_mul((uint64_t)nest_points(domain, stmt->mask), accumulator_bytes(p, v));
    const nest_value_t pair = p->s->pair[v];
    const uint64_t held = pair == NEST_NONE ? 1 : 2; /* a pair: a mean and squares */
    emit_grid_t *grid = &p->s->grid[v];
    grid->n_partials = n_partials;
    grid->result = take(p->s, bytes);
    grid->partial = n_partials == 1 ? grid->result
                                    : take(p->s, st_size_mul(bytes, held * (uint64_t)n_partials));
    if (pair != NEST_NONE) p->s->grid[pair].result = take(p->s, bytes);
    k->reduces[k->n_reduces++] = v;
    return ST_OK;
}

static void mark_sinks(planner_t *p, const emit_kernel_t *k) {
    clear_slice(p);
    for (uint32_t i = 0; i < k->n_stores; i++) mark(p, p->nest->stores[k->stores[i]].value);
    for (uint32_t i = 0; i < k->n_reduces; i++) mark_reduce(p, k->reduces[i]);
}

/* Are the elements of a row wanted once only? Then nothing is gained by keeping them. The slice at hand
 * is the kernel's. */
static bool rows_once(const planner_t *p, const emit_kernel_t *k) {
    for (uint32_t i = 0; i < k->n_stores; i++)
        if (p->nest->stores[k->stores[i]].mask & k->cols) return false;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        if (!p->needed[v] || stmt->kind != NEST_REDUCE || is_result(p, v)) continue;
        /* what it is made of must know of no other */
        for (uint32_t other = 0; other < v; other++)
            if (p->needed[other] && stmt_at(p, other)->kind == NEST_REDUCE &&
                !is_result(p, other) && depends(p, p->s->of[v], other))
                return false;
    }
    return true;
}

/* Rows: how many threads a row, how many rows a block, whether what is loaded stays in registers. */
static void shape_rows(planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    int64_t n = nest_points(domain, k->cols), rows = nest_points(domain, k->rows);
    bool columns = false;
    for (uint32_t i = 0; i < k->n_reduces; i++)
        columns |= (stmt_at(p, stmt_at(p, k->reduces[i])->args[0])->mask & k->cols) != 0;
    mark_sinks(p, k);
    choose_vector(p, k);
    int64_t vectors = n ? ceil_div(n, k->vector) : 1; /* empty rows find nothing to do */
    k->group = 32;
    if (n > WARP_ROW || columns) {
        int64_t threads = ceil_div(vectors, 32) * 32;
        while (threads > MAX_GROUP) threads = ceil_div(threads / 2, 32) * 32;
        k->group = (uint32_t)threads;
    }
    uint32_t per_block = k->group == 32 && !columns ? EMIT_BLOCK / 32 : 1;
    uint32_t n_loads = 0;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        if (p->needed[v] && stmt_at(p, v)->kind == NEST_LOAD && (stmt_at(p, v)->mask & k->cols))
            n_loads++;
    int64_t chunks = ceil_div(vectors, k->group);
    bool fits =
        chunks * k->vector * (n_loads + (columns ? k->n_reduces : 0)) <= EMIT_MAX_PERSISTENT;
    if (chunks > 1 && !columns && rows_once(p, k)) fits = false;
    k->keep = fits;
    k->chunks = fits || columns ? (uint32_t)chunks : 0;
    k->blocks = rows ? ceil_div(rows, per_block) : 1;
    k->splits = per_block;
    if (columns && k->blocks > COLUMN_GROUPS) k->blocks = COLUMN_GROUPS;
}

static uint32_t count_loads(const planner_t *p, uint32_t mask) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        n += p->needed[v] && stmt_at(p, v)->kind == NEST_LOAD && stmt_at(p, v)->mask == mask;
    return n;
}

/* Whether a sum over all rows that needs no row result itself is better made by the kernel that has
 * the rows in registers than by one that reads them again: few columns a thread, and nothing to load
 * beside what the rows' kernel loads. */
static bool joins_rows(planner_t *p, const emit_kernel_t *k, nest_value_t v) {
    const nest_stmt_t *sum = stmt_at(p, v);
    const uint32_t all = p->all[k->domain], cols = p->cols[k->domain];
    int64_t columns = nest_points(&p->nest->domains[k->domain], cols);
    int64_t a_thread = ceil_div(ceil_div(columns, MAX_GROUP), 8) * 8;
    if (sum->over != (all & ~cols) || stmt_at(p, sum->args[0])->mask != all ||
        a_thread * (k->n_reduces + 1) > MAX_COLUMN_SUMS / 2)
        return false;
    mark_sinks(p, k);
    uint32_t n_loads = count_loads(p, all);
    mark_reduce(p, v);
    return count_loads(p, all) == n_loads;
}

/* One ROWS kernel for all that needs a domain's row reductions at a level. */
static st_status_t plan_rows(planner_t *p, uint32_t domain, uint32_t level, bool *taken_store,
                             bool *taken_reduce) {
    const nest_t *nest = p->nest;
    uint32_t all = p->all[domain], cols = p->cols[domain];
    emit_kernel_t *k = NULL;
    if (!cols) return ST_OK;
    for (int pass = 0; pass < 2; pass++) { /* first those that need rows, then those that join */
        for (uint32_t i = 0; i < nest->n_stores; i++) {
            const nest_store_t *store = &nest->stores[i];
            if (store->domain != domain || taken_store[i] || !store->mask ||
                available(p->s, store->value) != level)
                continue;
            clear_slice(p);
            mark(p, store->value);
            bool needs = slice_has_rows(p);
            if (pass == 0 ? !needs : !k || (store->mask != all && store->mask != (all & ~cols)))
                continue;
            if (!k) TRY(add_kernel(p, EMIT_ROWS, domain, level, &k));
            TRY(add_store(k, i));
            taken_store[i] = true;
        }
        for (uint32_t v = 0; v < nest->n_stmts; v++) {
            const nest_stmt_t *stmt = stmt_at(p, v);
            if (!p->s->grid[v].is_grid || stmt->domain != domain || p->s->level[v] != level ||
                taken_reduce[v])
                continue;
            clear_slice(p);
            mark_reduce(p, v);
            const bool needs = slice_has_rows(p);
            if (pass == 0 ? !needs : needs || !k || !joins_rows(p, k, v)) continue;
            uint32_t mask = stmt_at(p, stmt->args[0])->mask;
            if (stmt->over != (all & ~cols) || (mask & ~cols) != (all & ~cols) ||
                ((mask & cols) && (mask & cols) != cols))
                return FAIL(ST_UNSUPPORTED,
                            "a reduction of row results over other axes than all rows");
            if (!k) TRY(add_kernel(p, EMIT_ROWS, domain, level, &k));
            k->reduces[k->n_reduces++] = v; /* sizes follow */
            taken_reduce[v] = true;
            if (k->n_reduces == EMIT_MAX_SINKS)
                return FAIL(ST_UNSUPPORTED, "a nest with too many reductions of one domain");
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
        bool columns = (stmt_at(p, stmt_at(p, reduces[i])->args[0])->mask & cols) != 0;
        int64_t rows = nest_points(&nest->domains[domain], k->rows);
        if (columns && k->chunks * k->vector * n > MAX_COLUMN_SUMS)
            return FAIL(ST_UNSUPPORTED, "rows of %lld elements are too long to keep %u column sums",
                        (long long)nest_points(&nest->domains[domain], cols), n);
        TRY(add_reduce(p, k, reduces[i], columns ? k->blocks : rows));
    }
    return ST_OK;
}

/* Lanes along `kept` columns, at most a warp's: few columns leave theirs to more rows. Returns how many
 * times that many there are. */
static int64_t lanes_of(emit_kernel_t *k, int64_t kept) {
    const int64_t vectors = ceil_div(kept, k->vector);
    for (k->group = 1; k->group < 32 && k->group < vectors;) k->group *= 2;
    return ceil_div(vectors, k->group);
}

/* Blocks that a multiprocessor holds at once. A kernel of sums has no more, or a few would come last
 * while the others wait. Registers: sums, what a column keeps, and of each tensor one load; the compiler
 * is held to what follows, and fills what is left with loads ahead. */
static uint32_t resident_blocks(const planner_t *p, const emit_kernel_t *k) {
    const uint32_t vector = 1u << k->vector_axis;
    uint32_t values = 0;
    for (uint32_t i = 0; i < k->n_reduces; i++)
        values += p->s->pair[k->reduces[i]] == NEST_NONE ? 1 : 3;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        values +=
            p->needed[v] && (stmt->mask & vector) && (stmt->kind == NEST_LOAD || is_result(p, v));
    }
    const size_t each = p->nest->domains[k->domain].wide ? 2 : 1;
    const size_t registers = OWN_REGISTERS + values * each * k->vector;
    const size_t n = REGISTERS / (registers * EMIT_BLOCK);
    return n < 2 ? 1 + (registers < 180) : n > MAX_RESIDENT ? MAX_RESIDENT : (uint32_t)n;
}

static void shape_reduce(planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    int64_t kept = nest_points(domain, k->rows), reduced = nest_points(domain, k->cols);
    if (kept < 1) kept = 1; /* an empty result is one block that finds nothing to do */
    mark_sinks(p, k);
    choose_vector(p, k);
    if (k->shape == EMIT_COLUMNS) {
        const int64_t tiles = lanes_of(k, kept);
        k->resident = resident_blocks(p, k);
        const int64_t most = k->resident * MULTIPROCESSORS / tiles; /* never a few more */
        k->splits = ceil_div(reduced, (int64_t)ROWS_A_THREAD * (EMIT_BLOCK / k->group));
        if (k->splits > most) k->splits = most > 1 ? most : 1;
        k->blocks = tiles * k->splits;
    } else {
        k->splits = ceil_div(reduced, (int64_t)EMIT_BLOCK * k->vector * 4);
        if (k->splits > ceil_div(WANTED_BLOCKS, kept)) k->splits = ceil_div(WANTED_BLOCKS, kept);
        k->blocks = kept * k->splits;
    }
    if (k->splits < 1) k->splits = 1;
    if (k->blocks < 1) k->blocks = 1;
}

/* Does the slice at hand load something at all points of `mask` that is in loads[]? */
static bool shares_load(const planner_t *p, uint32_t mask, const bool *loads) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++)
        if (p->needed[v] && loads[v] && stmt_at(p, v)->kind == NEST_LOAD &&
            stmt_at(p, v)->mask == mask)
            return true;
    return false;
}

/* Stores of a COLUMNS kernel's points that read what it reads: once for both. */
static st_status_t take_columns(planner_t *p, emit_kernel_t *k, bool *taken, bool *loads) {
    mark_sinks(p, k);
    memcpy(loads, p->needed, p->nest->n_stmts * sizeof *loads);
    for (uint32_t i = 0; i < p->nest->n_stores && k->n_stores < EMIT_MAX_SINKS; i++) {
        const nest_store_t *store = &p->nest->stores[i];
        if (taken[i] || store->domain != k->domain || store->mask != k->mask ||
            available(p->s, store->value) != k->level)
            continue;
        clear_slice(p);
        mark(p, store->value);
        if (!shares_load(p, k->mask, loads)) continue;
        TRY(add_store(k, i));
        taken[i] = true;
    }
    return ST_OK;
}

/* Reductions that need no rows: those of one domain, level and axes together. */
static st_status_t plan_reduces(planner_t *p, uint32_t level, bool *taken, bool *taken_store) {
    const nest_t *nest = p->nest;
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        if (!p->s->grid[v].is_grid || taken[v] || p->s->level[v] != level ||
            emit_comes_along(p->s, v))
            continue;
        uint32_t mask = stmt->mask | stmt->over;
        bool line = (stmt->over >> last_axis(mask) & 1) != 0;
        emit_kernel_t *k;
        TRY(add_kernel(p, line ? EMIT_LINES : EMIT_COLUMNS, stmt->domain, level, &k));
        k->mask = mask;
        k->rows = stmt->mask;
        k->cols = stmt->over;
        nest_value_t same[EMIT_MAX_SINKS];
        uint32_t n = 0;
        for (uint32_t w = v; w < nest->n_stmts && n < EMIT_MAX_SINKS; w++) {
            const nest_stmt_t *other = stmt_at(p, w);
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
        for (uint32_t i = 0; i < n; i++) TRY(add_reduce(p, k, same[i], k->splits));
    }
    return ST_OK;
}

/* ---- what joins partial results ---- */

/* Can the slice at hand be computed where `level` ends, from what is complete by then? */
static bool slice_complete(const planner_t *p, uint32_t level) {
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        if (!p->needed[v]) continue;
        if (is_result(p, v) ? p->s->grid[v].is_grid && !p->complete[v]
                            : stmt_at(p, v)->kind == NEST_REDUCE ||
                                  (p->s->uniform[v] != UINT64_MAX && p->s->level[v] > level))
            return false;
    }
    return true;
}

/* The stores of the points that a FINISH kernel has: its threads have the results at hand. */
static st_status_t take_finished(planner_t *p, emit_kernel_t *k, bool *taken) {
    for (uint32_t i = 0; i < p->nest->n_stores && k->n_stores < EMIT_MAX_SINKS; i++) {
        const nest_store_t *store = &p->nest->stores[i];
        if (taken[i] || store->domain != k->domain || !store->mask || store->mask != k->mask ||
            available(p->s, store->value) != k->level + 1)
            continue;
        clear_slice(p);
        mark(p, store->value);
        if (!slice_complete(p, k->level)) continue;
        TRY(add_store(k, i));
        taken[i] = true;
    }
    return ST_OK;
}

static void complete(planner_t *p, nest_value_t v) {
    p->complete[v] = true;
    if (p->s->pair[v] != NEST_NONE) p->complete[p->s->pair[v]] = true;
}

static void shape_finish(planner_t *p, emit_kernel_t *k, const emit_kernel_t *from) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    const int64_t points = nest_points(domain, k->mask);
    k->splits = p->s->grid[k->reduces[0]].n_partials;
    const int64_t step = from->shape == EMIT_LINES ? from->vector : 1;
    k->reduced = nest_points(domain, from->cols);
    k->part = ceil_div(k->reduced / step, k->splits) * step;
    k->group = k->splits >= 4 * FINISH_ROWS ? FINISH_ROWS : EMIT_BLOCK / 32;
    if (points < 32) k->group = EMIT_BLOCK;
    k->blocks = points < 32 ? points : ceil_div(points, 32);
    if (k->blocks < 1) k->blocks = 1;
}

/* Partial results of the level's kernels. */
static st_status_t plan_finish(planner_t *p, uint32_t level, uint32_t first_kernel, bool *taken) {
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
        TRY(add_kernel(p, EMIT_FINISH, p->s->kernels[i].domain, level, &k));
        const emit_kernel_t *from = &p->s->kernels[i];
        for (uint32_t r = 0; r < from->n_reduces; r++)
            if (p->s->grid[from->reduces[r]].n_partials > 1) {
                k->reduces[k->n_reduces++] = from->reduces[r];
                complete(p, from->reduces[r]);
            }
        k->mask = stmt_at(p, k->reduces[0])->mask;
        shape_finish(p, k, from);
        TRY(take_finished(p, k, taken));
    }
    return ST_OK;
}

/* Axes of what the slice at hand reads along the vector but not along all axes, as a channel's mean
 * and factors; 0 where that is less than two operands. */
static uint32_t shared_axes(const planner_t *p, const emit_kernel_t *k) {
    const uint32_t last = 1u << last_axis(k->mask);
    uint32_t inner = 0, n = 0;
    for (uint32_t v = 0; v < p->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        if (!p->needed[v] || (stmt->kind != NEST_LOAD && !is_result(p, v))) continue;
        if (!(stmt->mask & last) || (stmt->mask & k->mask) == k->mask) continue;
        inner |= stmt->mask;
        n++;
    }
    return n < 2 || (inner & k->mask) == k->mask ? 0 : inner & k->mask;
}

/* A point a thread; where operands are shared by many points, a thread keeps them and goes through
 * the points, which is a COLUMNS kernel without sums. The slice at hand is the kernel's. */
static void shape_flat(planner_t *p, emit_kernel_t *k) {
    const nest_domain_t *domain = &p->nest->domains[k->domain];
    const uint32_t inner = shared_axes(p, k);
    const int64_t kept = nest_points(domain, inner), shared = nest_points(domain, k->mask & ~inner);
    if (inner && kept > 0 && shared >= FEW_ROWS) {
        emit_kernel_t columns = *k;
        columns.shape = EMIT_COLUMNS;
        columns.rows = inner;
        columns.cols = k->mask & ~inner;
        choose_vector(p, &columns);
        const int64_t tiles = lanes_of(&columns, kept), rows = EMIT_BLOCK / columns.group;
        columns.splits = ceil_div(shared, ROWS_A_THREAD * rows);
        if (columns.splits > ceil_div(8 * WANTED_BLOCKS, tiles))
            columns.splits = ceil_div(8 * WANTED_BLOCKS, tiles);
        columns.blocks = tiles * columns.splits;
        if (shared >= 4 * rows && columns.blocks < INT32_MAX) {
            *k = columns;
            return;
        }
    }
    choose_vector(p, k);
    k->blocks = ceil_div(ceil_div(nest_points(domain, k->mask), k->vector), EMIT_BLOCK);
    if (k->blocks < 1) k->blocks = 1;
}

/* Brings the FLAT kernels from `first` on together, as one launch: the tensors of an optimizer are many,
 * most of them small. */
static void join_flat(emit_schedule_t *s, uint32_t first) {
    uint32_t n = first;
    for (uint32_t i = first; i < s->n_kernels; i++) {
        if (s->kernels[i].shape != EMIT_FLAT) continue;
        emit_kernel_t flat = s->kernels[i];
        memmove(&s->kernels[n + 1], &s->kernels[n], (i - n) * sizeof flat);
        flat.joined = n > first;
        s->kernels[n++] = flat;
    }
}

/* Stores of one domain, level and set of axes together. */
static st_status_t plan_flat(planner_t *p, uint32_t level, bool *taken) {
    const nest_t *nest = p->nest;
    const uint32_t first = p->s->n_kernels;
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        const nest_store_t *store = &nest->stores[i];
        if (taken[i] || !store->mask || available(p->s, store->value) != level) continue;
        emit_kernel_t *k;
        TRY(add_kernel(p, EMIT_FLAT, store->domain, level, &k));
        k->mask = store->mask;
        for (uint32_t j = i; j < nest->n_stores && k->n_stores < EMIT_MAX_SINKS; j++) {
            const nest_store_t *other = &nest->stores[j];
            if (taken[j] || other->domain != store->domain || other->mask != store->mask ||
                available(p->s, other->value) != level)
                continue;
            TRY(add_store(k, j));
            taken[j] = true;
        }
        mark_sinks(p, k);
        shape_flat(p, k);
    }
    join_flat(p->s, first);
    return ST_OK;
}

/* Operations on values without axes: once, not in every thread. */
static st_status_t plan_uniform(planner_t *p, uint32_t level, bool *taken) {
    const nest_t *nest = p->nest;
    emit_kernel_t *k = NULL;
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        if (p->s->uniform[v] == UINT64_MAX || p->s->level[v] != level) continue;
        if (!k) TRY(add_kernel(p, EMIT_UNIFORM, 0, level, &k));
    }
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        if (nest->stores[i].mask || taken[i] || available(p->s, nest->stores[i].value) != level)
            continue;
        if (!k) TRY(add_kernel(p, EMIT_UNIFORM, 0, level, &k));
        TRY(add_store(k, i));
        taken[i] = true;
    }
    return ST_OK;
}

static st_status_t plan_levels(planner_t *p) {
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
            TRY(plan_rows(p, d, level, taken_store, taken_reduce));
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

/* Adds to set[] the row results that a sink of `level` with value `v` is made from. */
static void mark_row_results(planner_t *p, nest_value_t v, bool *set) {
    clear_slice(p);
    mark(p, v);
    for (uint32_t r = 0; r < p->nest->n_stmts; r++) {
        const nest_stmt_t *stmt = stmt_at(p, r);
        set[r] |= p->needed[r] && stmt->kind == NEST_REDUCE && !p->s->grid[r].is_grid &&
                  stmt->mask == (p->all[stmt->domain] & ~p->cols[stmt->domain]);
    }
}

/* Row results that a kernel of their own level has and a later level wants again: left in the workspace,
 * so that the later one need not go through the rows. Quadratic in sinks and statements. */
static void leave_row_results(planner_t *p) {
    const nest_t *nest = p->nest;
    bool *own = p->loads, *later = p->complete; /* scratch so far */
    memset(own, 0, nest->n_stmts * sizeof *own);
    memset(later, 0, nest->n_stmts * sizeof *later);
    for (uint32_t level = 0; level < p->s->n_levels && p->s->n_levels > 1; level++) {
        p->level = level;
        for (uint32_t i = 0; i < nest->n_stores; i++)
            if (nest->stores[i].mask && available(p->s, nest->stores[i].value) == level)
                mark_row_results(p, nest->stores[i].value, level ? later : own);
        for (uint32_t v = 0; v < nest->n_stmts; v++)
            if (p->s->grid[v].is_grid && p->s->level[v] == level)
                mark_row_results(p, p->s->of[v], level ? later : own);
    }
    for (uint32_t r = 0; r < nest->n_stmts; r++) {
        if (!own[r] || !later[r] || p->s->level[r] != 0) continue;
        p->s->grid[r].of_row = true;
        const nest_domain_t *domain = &nest->domains[stmt_at(p, r)->domain];
        p->s->grid[r].result =
            take(p->s, st_size_mul((uint64_t)nest_points(domain, stmt_at(p, r)->mask),
                                   accumulator_bytes(p, r)));
    }
    memset(p->complete, 0, nest->n_stmts * sizeof *p->complete);
}

/* Levels and kernels for the rows chosen. */
static st_status_t plan_all(planner_t *p) {
    emit_schedule_t *s = p->s;
    const nest_t *nest = p->nest;
    s->n_levels = 1;
    s->n_kernels = 0;
    s->workspace = 0;
    memset(s->grid, 0, nest->n_stmts * sizeof *s->grid);
    memset(s->level, 0, nest->n_stmts * sizeof *s->level);
    memset(p->complete, 0, nest->n_stmts * sizeof *p->complete);
    find_pairs(p);
    find_levels(p);
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(p, v);
        bool uniform =
            !stmt->mask && !stmt->over && (stmt->kind == NEST_OP || stmt->kind == NEST_RANDOM);
        s->uniform[v] = uniform ? take(s, 8) : UINT64_MAX;
    }
    leave_row_results(p);
    TRY(plan_levels(p));
    if (s->workspace > INT64_MAX)
        return FAIL(ST_DOES_NOT_FIT, "the scratch space of a nest overflows 63 bits");
    return ST_OK;
}

static st_status_t fill(planner_t *p) {
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
    find_spread(p);
    choose_cols(p);
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
    planner_t p = {.s = s, .nest = nest};
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
