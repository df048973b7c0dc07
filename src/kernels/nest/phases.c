/* Phases, passes and stages of a nest.
 *
 * A root (reduction or store) is ready when no reduction that it needs is missing. Each phase takes
 * the ready roots: the one with most axes opens a pass over them, the pass decides over which axes
 * reductions are local to its items, and takes what its axes cover, also what becomes ready by its
 * own local reductions, a stage later. What else is there opens more passes; what is not ready
 * waits for the next phase. Every phase does one root at least, so it ends. Time: statements times
 * passes. */
#include <string.h>

#include "kernels/nest/planner.h"

enum {
    TILE_BYTES = 16384,       /* of a register; a strip of it is in use at a time */
    LONG_COLUMNS = 16384,     /* bytes of a row of columns that is still one tile */
    ITEM_BYTES = 65536,       /* of an item that is still one tile */
    CHUNK_POINTS = 32768,     /* a chunk's, at least */
    SMALL_POINTS = 65536,     /* of a pass that one thread may do alone: 65 us at 1 ns each */
    PARTIAL_CHUNKS = 128,     /* of a pass with partial sums, at most */
    PARTIAL_BYTES = 16 << 20, /* all parts of a slot, at most; one is always allowed */
    COLUMN_BLOCK = 256,       /* columns of an item with sums down the columns */
    TRANSPOSED_COLUMNS = 64,
    TRANSPOSED_ROWS = 32,
};

static int64_t lower(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t higher(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}
static bool has(uint32_t mask, int32_t axis) {
    return axis >= 0 && (mask >> axis & 1);
}

uint32_t nx_root_mask(const nx_planner_t *p, const nx_root_t *root) {
    if (root->store) return p->nest->stores[root->index].mask;
    const nest_stmt_t *s = nx_stmt(p, root->index);
    return s->mask | s->over;
}

static uint32_t root_domain(const nx_planner_t *p, const nx_root_t *root) {
    return root->store ? p->nest->stores[root->index].domain : nx_stmt(p, root->index)->domain;
}

/* Slot of a reduction of `pass`; made if it has none. */
static uint32_t need_slot(nx_planner_t *p, const nx_pass_t *pass, uint32_t stmt) {
    uint32_t *slot = &p->plan->slot_of[stmt];
    if (*slot != NEST_NONE || p->status != ST_OK) return *slot;
    const nest_stmt_t *s = nx_stmt(p, stmt);
    nx_slot_t made = {.stmt = stmt,
                      .inner = pass->col,
                      .elements = nest_points(&p->nest->domains[s->domain], s->mask),
                      .type = nx_type_of(s),
                      .f64 = s->mask == 0 || p->nest->domains[s->domain].wide};
    p->status = ST_VEC_PUSH(&p->slots, made);
    if (p->status == ST_OK) *slot = (uint32_t)p->slots.n - 1;
    return *slot;
}

/* ---- what is ready ---- */

/* Sets blocked[] and stage[] as pass `pass` sees them; NEST_NONE: as the phase sees them. */
static void scan(nx_planner_t *p, uint32_t pass) {
    for (uint32_t i = 0; i < p->nest->n_stmts; i++) {
        const nest_stmt_t *s = nx_stmt(p, i);
        bool blocked = false;
        uint32_t stage = 0;
        for (uint32_t k = 0; k < nx_n_reads(s); k++) {
            uint32_t a = nx_read(s, k), at = p->stage[a];
            if (nx_stmt(p, a)->kind != NEST_REDUCE) {
                blocked |= p->blocked[a];
            } else {
                bool local = pass != NEST_NONE && p->local_pass[a] == pass;
                blocked |= !local && p->done[a] > p->phase;
                at = local ? p->local_stage[a] + 1 : 0;
            }
            if (at > stage) stage = at;
        }
        p->blocked[i] = blocked;
        p->stage[i] = stage;
    }
}

static bool root_ready(const nx_planner_t *p, const nx_root_t *root, uint32_t pass,
                       uint32_t *out_stage) {
    uint32_t value = root->store ? p->nest->stores[root->index].value : root->index;
    *out_stage = p->stage[value];
    if (!root->store || nx_stmt(p, value)->kind != NEST_REDUCE) return !p->blocked[value];
    if (pass != NEST_NONE && p->local_pass[value] == pass) {
        *out_stage = p->local_stage[value] + 1;
        return true;
    }
    *out_stage = 0;
    return p->done[value] <= p->phase;
}

/* Marks what depends on statement `from` by way of statements that are no reductions. */
static void mark_dependents(nx_planner_t *p, uint32_t from, bool through) {
    p->mark[from] = ++p->stamp;
    for (uint32_t i = from + 1; i < p->nest->n_stmts; i++) {
        const nest_stmt_t *s = nx_stmt(p, i);
        for (uint32_t k = 0; k < nx_n_reads(s); k++) {
            uint32_t a = nx_read(s, k);
            if (p->mark[a] == p->stamp &&
                (through || a == from || nx_stmt(p, a)->kind != NEST_REDUCE))
                p->mark[i] = p->stamp;
        }
    }
}

static bool root_marked(const nx_planner_t *p, const nx_root_t *root) {
    uint32_t value = root->store ? p->nest->stores[root->index].value : root->index;
    return p->mark[value] == p->stamp;
}

/* Is the result of `reduction` used with the axes that it is over again, within `mask`? */
static bool feeds_back(nx_planner_t *p, uint32_t reduction, uint32_t mask) {
    mark_dependents(p, reduction, true);
    for (size_t i = 0; i < p->roots.n; i++) {
        const nx_root_t *root = &p->roots.data[i];
        if (root->pass != NEST_NONE || (!root->store && root->index == reduction)) continue;
        uint32_t points = nx_root_mask(p, root);
        if (root_domain(p, root) == nx_stmt(p, reduction)->domain && (points & ~mask) == 0 &&
            (points & nx_stmt(p, reduction)->over) && root_marked(p, root))
            return true;
    }
    return false;
}

/* ---- axes of a pass ---- */

/* What the accesses that a pass may make, those of its domain within its axes, say of its axes. */
typedef struct scores {
    double unit[NEST_MAX_AXES];  /* points of accesses that are contiguous along the axis */
    double inner[NEST_MAX_AXES]; /* lower: further inside in the largest access */
    double largest;
} scores_t;

static void score(const nest_domain_t *domain, const nest_access_t *access, uint32_t mask,
                  double weight, scores_t *s) {
    double points = (double)nest_points(domain, mask) * weight;
    for (uint32_t i = 0; i < domain->n_axes; i++)
        if (access->stride[i] == 1) s->unit[i] += points;
    if (points <= s->largest) return;
    s->largest = points;
    for (uint32_t i = 0; i < domain->n_axes; i++) {
        double stride = (double)access->stride[i];
        s->inner[i] = stride == 0 ? 1e300 : stride < 0 ? -stride : stride;
    }
}

static scores_t score_axes(const nx_planner_t *p, const nx_pass_t *pass) {
    const nest_domain_t *domain = nx_domain(p, pass);
    scores_t s = {0};
    for (uint32_t i = 0; i < domain->n_axes; i++) s.inner[i] = 1e300;
    for (uint32_t i = 0; i < p->nest->n_stores; i++) {
        const nest_store_t *store = &p->nest->stores[i];
        /* a store weighs more than a load: its line is read first, then written */
        if (store->domain == pass->domain && (store->mask & ~pass->mask) == 0)
            score(domain, &store->access, store->mask, 1.5, &s);
    }
    for (uint32_t i = 0; i < p->nest->n_stmts; i++) {
        const nest_stmt_t *stmt = nx_stmt(p, i);
        if (stmt->kind == NEST_LOAD && stmt->mask && stmt->domain == pass->domain &&
            (stmt->mask & ~pass->mask) == 0)
            score(domain, &stmt->access, stmt->mask, 1, &s);
    }
    return s;
}

/* The axis of `among` that is contiguous for most points, else the innermost. */
static int32_t best_axis(const nest_domain_t *domain, const scores_t *s, uint32_t among) {
    int32_t best = -1;
    for (uint32_t i = 0; i < domain->n_axes; i++) {
        if (!(among >> i & 1)) continue;
        if (best < 0 || s->unit[i] > s->unit[best] ||
            (s->unit[i] == s->unit[best] && s->inner[i] < s->inner[best]))
            best = (int32_t)i;
    }
    return best;
}

/* Shall reductions over `over` be local to the items of a pass? */
static bool local_pays(const nx_planner_t *p, const nx_pass_t *pass, uint32_t over, bool feeds) {
    const nest_domain_t *domain = nx_domain(p, pass);
    int64_t all = nest_points(domain, pass->mask), items = nest_points(domain, pass->mask & ~over);
    /* Little work: not worth a team. Where no one in the pass reads the result, partial sums lose
     * nothing, so a quarter already goes to them. */
    if (all <= SMALL_POINTS / (feeds ? 1 : 4)) return true;
    if (pass->col >= 0 && !has(over, pass->col)) {
        int64_t columns = domain->axes[pass->col].extent;
        /* Whole rows are read in order; a chunk then has a part of every sum, which must stay few
         * enough for its second-level cache: 512 KiB of f32. */
        if (!feeds && items <= (1 << 17)) return false;
        items = items / higher(columns, 1) * ceil_div(columns, COLUMN_BLOCK);
    }
    /* So many threads find work; twice as many where there is a choice, for evener shares. */
    return items >= (feeds ? 8 : 16);
}

/* Chooses the axes of local reductions among those of the ready ones. */
static void choose_over(nx_planner_t *p, nx_pass_t *pass) {
    uint32_t best = 0, n_best = 0, stage;
    bool best_feeds = false;
    if (nest_points(nx_domain(p, pass), pass->mask) == 0) return; /* no item would store a result */
    for (size_t i = 0; i < p->roots.n; i++) {
        nx_root_t *root = &p->roots.data[i];
        if (root->store || root->pass != NEST_NONE || root_domain(p, root) != pass->domain ||
            (nx_root_mask(p, root) & ~pass->mask) || !root_ready(p, root, NEST_NONE, &stage))
            continue;
        uint32_t over = nx_stmt(p, root->index)->over, n = 0;
        bool feeds = feeds_back(p, root->index, pass->mask);
        if (!local_pays(p, pass, over, feeds)) continue;
        for (size_t k = 0; k < p->roots.n; k++)
            n += !p->roots.data[k].store && nx_stmt(p, p->roots.data[k].index)->over == over;
        if (n_best == 0 || (feeds && !best_feeds) || (feeds == best_feeds && n > n_best)) {
            best = over;
            n_best = n;
            best_feeds = feeds;
        }
    }
    pass->over = best;
}

static void add_loop(nx_pass_t *pass, const nest_domain_t *domain, uint32_t axis, int64_t block) {
    int64_t extent = domain->axes[axis].extent;
    block = higher(block, 1);
    pass->loops[pass->n_loops++] = (nx_loop_t){axis, extent, block, ceil_div(extent, block)};
}

/* Loops over the axes of `mask`, outermost first, then over rows and columns if they are of it. */
static void add_loops(nx_pass_t *pass, const nest_domain_t *domain, const scores_t *s,
                      uint32_t mask) {
    uint32_t rest = mask;
    if (pass->col >= 0) rest &= ~(1u << pass->col);
    if (pass->row >= 0) rest &= ~(1u << pass->row);
    while (rest) {
        int32_t outer = -1;
        for (uint32_t i = 0; i < domain->n_axes; i++)
            if ((rest >> i & 1) && (outer < 0 || s->inner[i] > s->inner[outer])) outer = (int32_t)i;
        add_loop(pass, domain, (uint32_t)outer, 1);
        rest &= ~(1u << outer);
    }
    if (has(mask, pass->row)) add_loop(pass, domain, (uint32_t)pass->row, pass->rows);
    if (has(mask, pass->col)) add_loop(pass, domain, (uint32_t)pass->col, pass->cols);
}

static void choose_tile(const nx_planner_t *p, nx_pass_t *pass, const scores_t *s) {
    const nest_domain_t *domain = nx_domain(p, pass);
    const int64_t size = pass->f64 ? 8 : 4, tile = TILE_BYTES / size;
    uint32_t others = pass->col < 0 ? 0 : pass->mask & ~(1u << pass->col);
    uint32_t within = others & pass->over;
    pass->row = best_axis(domain, s, within ? within : others);
    int64_t columns = pass->col < 0 ? 1 : domain->axes[pass->col].extent;
    int64_t rows = pass->row < 0 ? 1 : domain->axes[pass->row].extent;
    bool transposed =
        !within && pass->row >= 0 && pass->col >= 0 &&
        8 * s->unit[pass->row] > s->unit[pass->col]; /* not that of a few parameters */
    bool local_columns = has(pass->over, pass->col);
    if (local_columns)
        pass->cols = columns * size <= LONG_COLUMNS ? columns : tile;
    else
        pass->cols = lower(columns, within ? COLUMN_BLOCK : transposed ? TRANSPOSED_COLUMNS : tile);
    pass->rows = lower(rows, higher(1, tile / higher(pass->cols, 1)));
    if (transposed && !local_columns) pass->rows = lower(rows, TRANSPOSED_ROWS);
    if (within && nest_points(domain, pass->over & ~(1u << pass->col)) == rows &&
        rows * pass->cols * size <= ITEM_BYTES && (!local_columns || pass->cols == columns))
        pass->rows = rows;
    pass->rows = higher(pass->rows, 1);
    pass->cols = higher(pass->cols, 1);
}

static void choose_loops(const nx_planner_t *p, nx_pass_t *pass) {
    const nest_domain_t *domain = nx_domain(p, pass);
    scores_t s = score_axes(p, pass);
    choose_tile(p, pass, &s);
    add_loops(pass, domain, &s, pass->mask & ~pass->over);
    pass->n_parallel = pass->n_loops;
    add_loops(pass, domain, &s, pass->over);
    pass->items = pass->tiles = 1;
    for (uint32_t i = 0; i < pass->n_loops; i++)
        *(i < pass->n_parallel ? &pass->items : &pass->tiles) *= pass->loops[i].n_blocks;
}

/* Chunks of about CHUNK_POINTS; fewer where each has a part of every partial sum. */
static void choose_chunks(nx_planner_t *p, nx_pass_t *pass) {
    int64_t points = higher(nest_points(nx_domain(p, pass), pass->mask), 1);
    int64_t item = ceil_div(points, higher(pass->items, 1));
    pass->chunk_items = ceil_div(CHUNK_POINTS, item);
    for (uint32_t i = 0; i < pass->n_partials; i++) {
        nx_partial_t *partial = &p->partials.data[pass->first_partial + i];
        size_t bytes = st_size_mul((size_t)p->slots.data[partial->slot].elements, 8);
        partial->chunk_bytes = st_size_align(bytes, 64);
        int64_t most =
            bytes >= PARTIAL_BYTES ? 1 : (int64_t)(PARTIAL_BYTES / higher((int64_t)bytes, 1));
        most = lower(most, PARTIAL_CHUNKS);
        pass->chunk_items = higher(pass->chunk_items, ceil_div(pass->items, most));
    }
    pass->chunks = ceil_div(pass->items, pass->chunk_items);
}

/* ---- passes ---- */

uint16_t nx_reduction(ir_op_t op) {
    if (op == IR_OP_REDUCE_SUM) return NX_SUM;
    if (op == IR_OP_REDUCE_PROD) return NX_PROD;
    if (op == IR_OP_REDUCE_MAX) return NX_MAX;
    ASSERT(op == IR_OP_REDUCE_MIN);
    return NX_MIN;
}

static void add_partial(nx_planner_t *p, nx_pass_t *pass, uint32_t stmt) {
    const nest_stmt_t *s = nx_stmt(p, stmt);
    bool sums = s->op == IR_OP_REDUCE_SUM || s->op == IR_OP_REDUCE_PROD;
    nx_type_t type = nx_type_of(s) == NX_INT ? NX_INT : sums ? NX_WIDE : NX_REAL;
    nx_partial_t partial = {
        .slot = need_slot(p, pass, stmt), .code = nx_reduction(s->op), .type = type};
    if (p->status == ST_OK) p->status = ST_VEC_PUSH(&p->partials, partial);
    pass->n_partials++;
}

/* Takes the roots that the pass can do, stage after stage. */
static void fill_pass(nx_planner_t *p, nx_pass_t *pass, uint32_t number) {
    const bool empty = nest_points(nx_domain(p, pass), pass->mask) == 0;
    for (bool changed = true; changed && p->status == ST_OK;) {
        changed = false;
        scan(p, number);
        for (size_t i = 0; i < p->roots.n && p->status == ST_OK; i++) {
            nx_root_t *root = &p->roots.data[i];
            if (root->pass != NEST_NONE || root_domain(p, root) != pass->domain ||
                (nx_root_mask(p, root) & ~pass->mask) || !root_ready(p, root, number, &root->stage))
                continue;
            if (empty && nest_points(nx_domain(p, pass), nx_root_mask(p, root)) > 0)
                continue; /* nothing runs that would compute it */
            root->pass = number;
            if (root->stage + 1 > pass->n_stages) pass->n_stages = root->stage + 1;
            if (root->store) continue;
            if (pass->over && nx_stmt(p, root->index)->over == pass->over) {
                p->local_pass[root->index] = number;
                p->local_stage[root->index] = root->stage;
                changed = true; /* scan again: statements in between wait for it */
                break;
            }
            add_partial(p, pass, root->index);
        }
    }
}

/* Local reductions that later passes read get a slot, which a stage more fills if none is left. */
static void keep_results(nx_planner_t *p, nx_pass_t *pass, uint32_t number) {
    for (uint32_t i = 0; i < p->nest->n_stmts; i++) {
        if (p->local_pass[i] != number) continue;
        mark_dependents(p, i, false);
        bool later = false;
        for (size_t k = 0; k < p->roots.n && !later; k++) {
            const nx_root_t *root = &p->roots.data[k];
            bool itself = !root->store && root->index == i;
            later = !itself && root->pass == NEST_NONE && root_marked(p, root);
        }
        if (!later) continue;
        (void)need_slot(p, pass, i);
        if (p->local_stage[i] + 2 > pass->n_stages) pass->n_stages = p->local_stage[i] + 2;
    }
}

static void open_pass(nx_planner_t *p, uint32_t domain, uint32_t mask) {
    uint32_t number = (uint32_t)p->passes.n;
    nx_pass_t pass = {.domain = domain,
                      .mask = mask,
                      .f64 = p->nest->domains[domain].wide,
                      .n_stages = 1,
                      .first_partial = (uint32_t)p->partials.n};
    scores_t s = score_axes(p, &pass);
    pass.col = best_axis(&p->nest->domains[domain], &s, mask);
    choose_over(p, &pass);
    fill_pass(p, &pass, number);
    keep_results(p, &pass, number);
    if (p->status != ST_OK) return; /* slots and partials that were not made are not looked at */
    choose_loops(p, &pass);
    choose_chunks(p, &pass);
    p->status = ST_VEC_PUSH(&p->passes, pass);
    if (p->status == ST_OK) nx_program(p, number);
}

/* The ready root with most axes, or NULL. Those without any are done with the uniform values. */
static const nx_root_t *next_root(const nx_planner_t *p) {
    const nx_root_t *best = NULL;
    int most = 0;
    for (size_t i = 0; i < p->roots.n; i++) {
        const nx_root_t *root = &p->roots.data[i];
        uint32_t stage;
        if (root->pass != NEST_NONE || !root_ready(p, root, NEST_NONE, &stage)) continue;
        int n = __builtin_popcount(nx_root_mask(p, root));
        if (n > most) {
            best = root;
            most = n;
        }
    }
    return best;
}

/* Uniform values that can be computed now, and stores of them. */
static void take_uniforms(nx_planner_t *p) {
    p->uniforms.n = 0;
    for (uint32_t i = 0; i < p->nest->n_stmts && p->status == ST_OK; i++) {
        const nest_stmt_t *s = nx_stmt(p, i);
        bool ready = s->kind == NEST_REDUCE ? p->done[i] <= p->phase : !p->blocked[i];
        if (s->mask || !ready || p->plan->uniform_at[i] != NEST_NONE) continue;
        p->plan->uniform_at[i] = p->phase;
        p->status = ST_VEC_PUSH(&p->uniforms, i);
    }
    for (size_t i = 0; i < p->roots.n && p->status == ST_OK; i++) {
        nx_root_t *root = &p->roots.data[i];
        uint32_t stage;
        if (root->pass != NEST_NONE || nx_root_mask(p, root) ||
            !root_ready(p, root, NEST_NONE, &stage))
            continue;
        root->pass = NEST_NONE - 1; /* done, in no pass */
        p->status = ST_VEC_PUSH(&p->uniforms, p->nest->n_stmts + root->index);
    }
}

static void plan_phase(nx_planner_t *p) {
    nx_phase_t phase = {.first_pass = (uint32_t)p->passes.n};
    scan(p, NEST_NONE);
    take_uniforms(p);
    const nx_root_t *root;
    while (p->status == ST_OK && (root = next_root(p)) != NULL) {
        open_pass(p, root_domain(p, root), nx_root_mask(p, root));
        scan(p, NEST_NONE);
    }
    if (p->status != ST_OK) return;
    phase.n_passes = (uint32_t)p->passes.n - phase.first_pass;
    phase.n_uniforms = (uint32_t)p->uniforms.n;
    uint32_t *uniforms = st_arena_array(&p->plan->arena, p->uniforms.n + 1, sizeof *uniforms);
    phase.first_chunk =
        st_arena_array(&p->plan->arena, phase.n_passes + 1, sizeof *phase.first_chunk);
    if (!uniforms || !phase.first_chunk) {
        p->status = st_no_memory(phase.n_passes * sizeof(int64_t), "the plan of a nest");
        return;
    }
    if (p->uniforms.n) memcpy(uniforms, p->uniforms.data, p->uniforms.n * sizeof *uniforms);
    phase.uniforms = uniforms;
    for (uint32_t i = 0; i < phase.n_passes; i++)
        phase.first_chunk[i + 1] =
            phase.first_chunk[i] + p->passes.data[phase.first_pass + i].chunks;
    for (uint32_t i = 0; i < p->nest->n_stmts; i++)
        if (p->plan->slot_of[i] != NEST_NONE && p->done[i] == NEST_NONE) p->done[i] = p->phase + 1;
    p->status = ST_VEC_PUSH(&p->phases, phase);
}

/* ---- the whole ---- */

static bool roots_left(const nx_planner_t *p) {
    for (size_t i = 0; i < p->roots.n; i++)
        if (p->roots.data[i].pass == NEST_NONE) return true;
    return false;
}

static void list_roots(nx_planner_t *p) {
    for (uint32_t i = 0; i < p->nest->n_stmts && p->status == ST_OK; i++) {
        const nest_stmt_t *s = nx_stmt(p, i);
        for (uint32_t k = 0; k < nx_n_reads(s); k++) p->uses[nx_read(s, k)]++;
        if (s->kind == NEST_REDUCE)
            p->status = ST_VEC_PUSH(&p->roots, ((nx_root_t){false, i, NEST_NONE, 0}));
    }
    for (uint32_t i = 0; i < p->nest->n_stores && p->status == ST_OK; i++) {
        const nest_store_t *store = &p->nest->stores[i];
        p->uses[store->value]++;
        p->status = ST_VEC_PUSH(&p->roots, ((nx_root_t){true, i, NEST_NONE, 0}));
    }
}

/* Copies a vector into the plan's arena. */
static void *settle(nx_planner_t *p, const void *data, size_t n, size_t bytes) {
    void *copy = st_arena_array(&p->plan->arena, n + 1, bytes);
    if (!copy)
        p->status = st_no_memory(n * bytes, "the plan of a nest");
    else if (n)
        memcpy(copy, data, n * bytes);
    return copy;
}

static void lay_out(nx_planner_t *p) {
    nx_plan_t *plan = p->plan;
    size_t at = 0;
    for (size_t i = 0; i < p->slots.n; i++) {
        p->slots.data[i].offset = at;
        at = st_size_align(st_size_add(at, st_size_mul((size_t)p->slots.data[i].elements, 8)), 64);
    }
    for (size_t i = 0; i < p->passes.n; i++) {
        const nx_pass_t *pass = &p->passes.data[i];
        for (uint32_t k = 0; k < pass->n_partials; k++) {
            nx_partial_t *partial = &p->partials.data[pass->first_partial + k];
            partial->offset = at;
            at = st_size_add(at, st_size_mul((size_t)pass->chunks, partial->chunk_bytes));
        }
    }
    plan->shared_bytes = at;
    plan->n_phases = (uint32_t)p->phases.n;
    plan->n_passes = (uint32_t)p->passes.n;
    plan->n_slots = (uint32_t)p->slots.n;
    plan->n_partials = (uint32_t)p->partials.n;
    plan->phases = settle(p, p->phases.data, p->phases.n, sizeof *plan->phases);
    plan->passes = settle(p, p->passes.data, p->passes.n, sizeof *plan->passes);
    plan->slots = settle(p, p->slots.data, p->slots.n, sizeof *plan->slots);
    plan->partials = settle(p, p->partials.data, p->partials.n, sizeof *plan->partials);
}

static void make_plan(nx_planner_t *p) {
    list_roots(p);
    while (p->status == ST_OK && roots_left(p)) {
        plan_phase(p);
        p->phase++;
        ASSERT(p->phase <= p->nest->n_stmts + 2);
    }
    if (p->status == ST_OK) lay_out(p);
}

static uint32_t *numbers(nx_planner_t *p, st_arena_t *arena, size_t n, uint32_t start) {
    uint32_t *v = st_arena_array(arena, n + 1, sizeof *v);
    if (!v) {
        p->status = st_no_memory(n * sizeof *v, "the plan of a nest");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) v[i] = start;
    return v;
}

st_status_t nx_plan_create(nest_t *nest, nx_plan_t **out_plan) {
    *out_plan = NULL;
    nx_plan_t *plan = st_calloc(1, sizeof *plan);
    if (!plan) {
        nest_destroy(nest);
        return st_no_memory(sizeof *plan, "the plan of a nest");
    }
    plan->nest = nest;
    st_arena_t scratch = {0};
    nx_planner_t p = {.plan = plan, .nest = nest};
    size_t n = nest->n_stmts;
    plan->slot_of = numbers(&p, &plan->arena, n, NEST_NONE);
    plan->uniform_at = numbers(&p, &plan->arena, n, NEST_NONE);
    p.done = numbers(&p, &scratch, n, NEST_NONE);
    p.local_pass = numbers(&p, &scratch, n, NEST_NONE);
    p.local_stage = numbers(&p, &scratch, n, 0);
    p.stage = numbers(&p, &scratch, n, 0);
    p.uses = numbers(&p, &scratch, n, 0);
    p.view = numbers(&p, &scratch, n, 0);
    p.mark = numbers(&p, &scratch, n, 0);
    p.blocked = st_arena_array(&scratch, n + 1, sizeof *p.blocked);
    if (!p.blocked) p.status = st_no_memory(n, "the plan of a nest");
    if (p.status == ST_OK) make_plan(&p);
    st_arena_clear(&scratch);
    ST_VEC_FREE(&p.roots);
    ST_VEC_FREE(&p.passes);
    ST_VEC_FREE(&p.phases);
    ST_VEC_FREE(&p.slots);
    ST_VEC_FREE(&p.partials);
    ST_VEC_FREE(&p.uniforms);
    if (p.status != ST_OK) {
        nx_plan_destroy(plan);
        return p.status;
    }
    *out_plan = plan;
    return ST_OK;
}

void nx_plan_destroy(nx_plan_t *plan) {
    if (!plan) return;
    nest_destroy(plan->nest);
    st_arena_clear(&plan->arena);
    st_free(plan);
}
