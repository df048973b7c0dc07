/* What the launches of a nest move (table.h): of each kernel's slice the loads and the stores, and
 * of its sums the parts. A kernel of rows that keeps nothing loads a row anew for every reduction
 * that waits for another and for what is stored of the row. Linear in the statements for each
 * kernel. */
#include <string.h>

#include "base/memory.h"
#include "kernels/emit/single.h"
#include "kernels/emit/writer.h"
#include "kernels/table.h"

enum { THREADS_RESIDENT = 2048, MULTIPROCESSORS = 132 };

typedef struct teller {
    writer_t w;
    const kern_problem_t *problem;
    bool *seen;       /* [stmts] scratch */
    uint32_t *passes; /* [stmts] how often the kernel loads it */
    double *bytes;    /* [tensors] that the kernel loads, once */
    double *again;    /* [tensors] the same beyond that */
    ST_VEC(kern_move_t) moves;
} teller_t;

const char *kern_shape_name(kern_shape_t shape) {
    static const char *const names[KERN_SHAPES] = {"uniform", "flat",         "rows",  "rows.sums",
                                                   "columns", "columns.sums", "lines", "finish"};
    return shape < KERN_SHAPES ? names[shape] : NULL;
}

/* Does a kernel of rows or columns add up along its columns, each block a part? */
static bool has_sums(const emit_schedule_t *s, const emit_kernel_t *k) {
    for (uint32_t i = 0; i < k->n_reduces; i++)
        if (k->shape == EMIT_COLUMNS || s->nest->stmts[s->of[k->reduces[i]]].mask & k->cols)
            return true;
    return false;
}

static kern_shape_t shape_of(const emit_schedule_t *s, const emit_kernel_t *k) {
    static const kern_shape_t shapes[] = {
        [EMIT_UNIFORM] = KERN_SHAPE_UNIFORM, [EMIT_FLAT] = KERN_SHAPE_FLAT,
        [EMIT_ROWS] = KERN_SHAPE_ROWS,       [EMIT_COLUMNS] = KERN_SHAPE_COLUMNS,
        [EMIT_LINES] = KERN_SHAPE_LINES,     [EMIT_FINISH] = KERN_SHAPE_FINISH};
    if (k->shape == EMIT_ROWS && has_sums(s, k)) return KERN_SHAPE_ROWS_SUMS;
    if (k->shape == EMIT_COLUMNS && has_sums(s, k)) return KERN_SHAPE_COLUMNS_SUMS;
    return shapes[k->shape];
}

static double points(const teller_t *t, uint32_t domain, uint32_t mask) {
    return domain == NEST_NONE ? 1 : (double)nest_points(&t->w.nest->domains[domain], mask);
}

static double tensor_bytes(const teller_t *t, uint32_t tensor) {
    const uint32_t n_in = t->problem->n_in;
    return (double)ir_type_bytes(tensor < n_in ? &t->problem->in[tensor]
                                               : &t->problem->out[tensor - n_in]);
}

/* One pass along a row that needs `v`: counts what it loads. */
static void pass_over(teller_t *t, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(&t->w, v);
    if (t->seen[v] || !(stmt->mask & t->w.k->cols) || emit_is_result(t->w.s, t->w.k->level, v))
        return;
    t->seen[v] = true;
    t->passes[v]++;
    for (uint32_t j = 0; j < stmt->n_args; j++) pass_over(t, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE)
        pass_over(t, stmt->access.index);
}

static void clear_seen(teller_t *t) {
    memset(t->seen, 0, t->w.nest->n_stmts * sizeof *t->seen);
}

static void count_passes(teller_t *t) {
    const writer_t *w = &t->w;
    const emit_kernel_t *k = w->k;
    uint8_t stages = 0;
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        t->passes[v] = 0;
        if (w->needed[v] && w->stage[v] > stages) stages = w->stage[v];
    }
    for (uint8_t stage = 1; stage <= stages && !k->keep; stage++) {
        clear_seen(t);
        for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
            if (w->needed[v] && w->stage[v] == stage && emit_stmt(w, v)->kind == NEST_REDUCE &&
                !emit_is_result(w->s, k->level, v) && !emit_comes_along(w->s, v))
                pass_over(t, emit_reduced(w, v));
    }
    clear_seen(t);
    for (uint32_t i = 0; i < k->n_stores && !k->keep; i++)
        pass_over(t, w->nest->stores[k->stores[i]].value);
    for (uint32_t i = 0; i < k->n_reduces && !k->keep; i++)
        pass_over(t, emit_reduced(w, k->reduces[i]));
}

/* Of the rows that the device works on at a time, what lies between two passes over one of them. */
static double rows_at_once(const teller_t *t) {
    const emit_kernel_t *k = t->w.k;
    const double resident = MULTIPROCESSORS * (THREADS_RESIDENT / emit_threads(k));
    const double rows = points(t, k->domain, k->rows), at_once = resident * (double)k->splits;
    return rows > at_once ? at_once / rows : 1;
}

static st_status_t put(teller_t *t, kern_move_t move) {
    return move.bytes > 0 ? ST_VEC_PUSH(&t->moves, move) : ST_OK;
}

static st_status_t put_loads(teller_t *t) {
    const writer_t *w = &t->w;
    const uint32_t n_tensors = t->problem->n_in + t->problem->n_out;
    memset(t->bytes, 0, n_tensors * sizeof *t->bytes);
    memset(t->again, 0, n_tensors * sizeof *t->again);
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_stmt(w, v);
        const nest_access_t *a = &stmt->access;
        if (!w->needed[v] || stmt->kind != NEST_LOAD || a->tensor == NEST_NONE) continue;
        const double bytes = points(t, stmt->domain, stmt->mask) * (double)ir_dtype_bytes(a->dtype);
        t->bytes[a->tensor] += bytes;
        if (t->passes[v] > 1) t->again[a->tensor] += bytes * (t->passes[v] - 1);
    }
    for (uint32_t i = 0; i < n_tensors; i++) {
        /* what several statements or an index read more than once comes from near */
        const double whole = tensor_bytes(t, i);
        TRY(put(t, (kern_move_t){.tensor = i,
                                 .bytes = t->bytes[i] < whole ? t->bytes[i] : whole,
                                 .again_bytes = t->again[i],
                                 .again_reach = t->again[i] > 0 ? whole * rows_at_once(t) : 0}));
    }
    return ST_OK;
}

static st_status_t put_kernel(teller_t *t, const emit_kernel_t *k) {
    writer_t *w = &t->w;
    double parts = 0;
    w->k = k;
    emit_find_slice(w);
    memset(t->passes, 0, w->nest->n_stmts * sizeof *t->passes);
    if (k->shape == EMIT_ROWS) count_passes(t);
    TRY(put_loads(t));
    for (uint32_t i = 0; i < k->n_stores; i++) {
        const nest_store_t *store = &w->nest->stores[k->stores[i]];
        TRY(put(t, (kern_move_t){.tensor = t->problem->n_in + store->access.tensor,
                                 .bytes = points(t, store->domain, store->mask) *
                                          (double)ir_dtype_bytes(store->access.dtype)}));
    }
    for (uint32_t i = 0; i < k->n_reduces && k->shape != EMIT_UNIFORM; i++) {
        const nest_value_t v = k->reduces[i];
        const nest_stmt_t *stmt = emit_stmt(w, v);
        parts += points(t, stmt->domain, stmt->mask) * (double)w->s->grid[v].n_partials *
                 (w->s->pair[v] == NEST_NONE ? 4 : 8);
    }
    return put(t, (kern_move_t){.tensor = KERN_SCRATCH, .bytes = parts});
}

static st_status_t tell(teller_t *t, st_arena_t *arena, uint32_t *out_n, kern_launch_t **out) {
    const emit_schedule_t *s = t->w.s;
    *out = st_arena_array(arena, emit_n_launches(s) + 1, sizeof **out);
    if (!*out) return st_no_memory(s->n_kernels * sizeof **out, "the launches of a nest");
    for (uint32_t i = 0; i < s->n_kernels; i++) {
        const size_t first = t->moves.n;
        TRY(put_kernel(t, &s->kernels[i]));
        if (!s->kernels[i].joined)
            (*out)[(*out_n)++] = (kern_launch_t){.shape = shape_of(s, &s->kernels[i])};
        (*out)[*out_n - 1].n_moves += (uint32_t)(t->moves.n - first);
    }
    kern_move_t *moves = st_arena_array(arena, t->moves.n + 1, sizeof *moves);
    if (!moves) return st_no_memory(t->moves.n * sizeof *moves, "the launches of a nest");
    if (t->moves.n) memcpy(moves, t->moves.data, t->moves.n * sizeof *moves);
    for (uint32_t i = 0; i < *out_n; i++) {
        (*out)[i].moves = moves;
        moves += (*out)[i].n_moves;
    }
    return ST_OK;
}

static st_status_t tell_schedule(const kern_problem_t *problem, const emit_problem_t *made,
                                 st_arena_t *arena, uint32_t *out_n, kern_launch_t **out) {
    const uint32_t n = made->nest->n_stmts + 1, n_tensors = problem->n_in + problem->n_out + 1;
    st_arena_t scratch = {0};
    bool *flags = st_arena_array(&scratch, 3 * (size_t)n, sizeof *flags);
    uint8_t *stages = st_arena_array(&scratch, n, sizeof *stages);
    teller_t t = {.problem = problem,
                  .seen = flags,
                  .passes = st_arena_array(&scratch, n, sizeof *t.passes),
                  .bytes = st_arena_array(&scratch, n_tensors, sizeof *t.bytes),
                  .again = st_arena_array(&scratch, n_tensors, sizeof *t.again)};
    st_status_t status = ST_OK;
    if (!flags || !stages || !t.passes || !t.bytes || !t.again) {
        status = st_no_memory(n * sizeof *t.passes, "the launches of a nest");
    } else {
        t.w = (writer_t){.s = made->schedule,
                         .nest = made->nest,
                         .needed = flags + n,
                         .written = flags + 2 * (size_t)n,
                         .stage = stages};
        status = tell(&t, arena, out_n, out);
    }
    ST_VEC_FREE(&t.moves);
    st_arena_clear(&scratch);
    return status;
}

st_status_t kern_nest_launches(const kern_problem_t *problem, st_arena_t *arena, uint32_t *out_n,
                               kern_launch_t **out_launches) {
    emit_problem_t made;
    const char *reason;
    *out_n = 0;
    *out_launches = NULL;
    TRY(emit_problem_create(problem, &made, &reason));
    st_status_t status = ST_OK;
    if (made.schedule)
        status = tell_schedule(problem, &made, arena, out_n, out_launches);
    else
        status = FAIL(ST_INTERNAL, "a nest that planning refuses: %s", reason);
    emit_problem_clear(&made);
    return status;
}
