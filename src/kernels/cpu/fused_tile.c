/* The tile interpreter: items, stages and tiles of one chunk of a pass.
 *
 * A tile's setup works out where each view begins; an instruction then runs its row over the tile's
 * rows, or once over all of it where everything is dense. Order and grouping of all sums follow
 * from the pass alone. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "kernels/cpu/fused.h"

typedef struct frame {
    const fused_job_t *job;
    const nx_pass_t *pass;
    const fused_strips_t *strips;
    fused_here_t *here;
    int64_t start[NEST_MAX_AXES];
    int64_t rows, cols; /* of the tile at hand */
    uint32_t later;     /* bit of a loop: not in its first block */
    char *registers, *temporary;
    int64_t place;
    int thread;
    int64_t chunk;
} frame_t;

/* ---- views ---- */

static int64_t type_size(const nx_pass_t *pass, nx_type_t type) {
    return type == NX_REAL && !pass->f64 ? 4 : 8;
}

static char *base_of(const frame_t *f, const nx_view_t *view) {
    const fused_job_t *job = f->job;
    switch (view->space) {
        case NX_OPERAND:
            return (char *)(uintptr_t)job->call->in[view->number];
        case NX_RESULT:
            return job->call->out[view->number];
        case NX_DATA:
            return (char *)(uintptr_t)job->plan->nest->stmts[view->number].access.data;
        case NX_SLOT:
            return job->shared + job->plan->slots[view->number].offset;
        default: {
            const nx_partial_t *partial = &job->plan->partials[view->number];
            return job->shared + partial->offset + (size_t)f->chunk * partial->chunk_bytes;
        }
    }
}

/* Registers and uniforms, which stay where they are for the whole chunk. */
static void set_fixed(const frame_t *f) {
    for (uint32_t i = 0; i < f->pass->n_views; i++) {
        const nx_view_t *view = &f->pass->views[i];
        fused_here_t *h = &f->here[i];
        *h = (fused_here_t){.size = type_size(f->pass, view->type)};
        if (view->space == NX_REGISTER) {
            h->p = f->registers + view->offset;
            h->cs = view->mode == NX_FULL || view->mode == NX_COL;
            h->rs = view->mode == NX_FULL ? f->pass->cols : view->mode == NX_ROW;
        } else if (view->space == NX_UNIFORM) {
            fused_uniform_t *u = &f->job->uniforms[view->number];
            h->p = view->type == NX_INT ? (char *)&u->i
                   : f->pass->f64       ? (char *)&u->d
                                        : (char *)&u->f;
        } else if (view->space == NX_PARTIAL) {
            h->p = base_of(f, view);
        } else if (view->space != NX_PLACE) {
            h->size = (int64_t)ir_dtype_bytes(view->dtype);
            h->p = base_of(f, view);
        }
    }
}

/* Memory at the tile's first point. */
static void set_tile(const frame_t *f) {
    const nx_pass_t *pass = f->pass;
    for (uint32_t i = 0; i < pass->n_views; i++) {
        const nx_view_t *view = &pass->views[i];
        fused_here_t *h = &f->here[i];
        if (view->space == NX_REGISTER || view->space == NX_UNIFORM) continue;
        int64_t at = view->offset;
        for (uint32_t k = 0; k < pass->n_loops; k++) {
            uint32_t axis = pass->loops[k].axis;
            at += f->start[axis] * view->stride[axis];
        }
        if (view->space == NX_PLACE) h->at = at;
        h->rs = pass->row < 0 ? 0 : view->stride[pass->row];
        h->cs = pass->col < 0 ? 0 : view->stride[pass->col];
        if (view->space != NX_PLACE) h->p = base_of(f, view) + at * h->size;
    }
}

/* ---- elementwise ---- */

/* Points of a mode as rows of columns; a mode of rows only is one row along them. */
typedef struct extent {
    int64_t rows, cols;
    bool turned;
} extent_t;

static extent_t extent_of(const frame_t *f, nx_mode_t mode) {
    if (mode == NX_FULL) return (extent_t){f->rows, f->cols, false};
    if (mode == NX_ROW) return (extent_t){1, f->rows, true};
    return (extent_t){1, mode == NX_COL ? f->cols : 1, false};
}

/* Strides between the rows and along one, in elements. */
static int64_t between(const extent_t *e, const fused_here_t *h) {
    return e->turned ? 0 : h->rs;
}
static int64_t along(const extent_t *e, const fused_here_t *h) {
    return e->turned ? h->rs : h->cs;
}
static bool dense(const extent_t *e, const fused_here_t *h) {
    return (h->rs == e->cols && h->cs == 1) || (h->rs == 0 && h->cs == 0);
}

/* Brings integers back to their dtype: wrapped, or saturated where they come from reals. */
static void narrow(const nx_inst_t *inst, int64_t *v, int64_t n) {
    if (inst->code == IR_OP_CAST && inst->flag == NX_REAL_TO_INT) {
        int64_t low = inst->dtype == IR_I8 ? INT8_MIN : inst->dtype == IR_U8 ? 0 : INT32_MIN;
        int64_t high = inst->dtype == IR_I8   ? INT8_MAX
                       : inst->dtype == IR_U8 ? UINT8_MAX
                                              : INT32_MAX;
        for (int64_t i = 0; i < n; i++) v[i] = v[i] < low ? low : v[i] > high ? high : v[i];
    } else if (inst->dtype == IR_I32) {
        for (int64_t i = 0; i < n; i++) v[i] = (int32_t)v[i];
    } else if (inst->dtype == IR_I8) {
        for (int64_t i = 0; i < n; i++) v[i] = (int8_t)v[i];
    } else {
        for (int64_t i = 0; i < n; i++) v[i] = (uint8_t)v[i];
    }
}

static void run_op(const frame_t *f, const nx_inst_t *inst) {
    extent_t e = extent_of(f, inst->mode);
    const fused_here_t *d = &f->here[inst->dst], *src[NX_SOURCES];
    bool whole = e.rows > 1 && d->rs == e.cols;
    for (uint32_t k = 0; k < NX_SOURCES; k++) {
        src[k] = &f->here[inst->src[k < inst->n_src ? k : 0]];
        whole = whole && dense(&e, src[k]);
    }
    if (whole) {
        e.cols *= e.rows;
        e.rows = 1;
    }
    int64_t stride[NX_SOURCES];
    const void *from[NX_SOURCES];
    unsigned mask = 0;
    for (uint32_t k = 0; k < NX_SOURCES; k++) {
        stride[k] = along(&e, src[k]);
        mask |= (unsigned)(stride[k] != 0 && k < inst->n_src) << k;
    }
    bool narrows = ir_dtype_is_integer(inst->dtype) && inst->dtype != IR_I64;
    for (int64_t r = 0; r < e.rows; r++) {
        char *to = d->p + r * between(&e, d) * d->size;
        for (uint32_t k = 0; k < NX_SOURCES; k++)
            from[k] = src[k]->p + r * between(&e, src[k]) * src[k]->size;
        if (inst->n_src > 3)
            ((many_row_t)inst->run)(to, from[0], from[1], from[2], from[3], from[4], mask, e.cols);
        else
            ((tile_row_t)inst->run)(to, from[0], stride[0], from[1], stride[1], from[2], stride[2],
                                    e.cols);
        if (narrows) narrow(inst, (int64_t *)to, e.cols);
    }
}

/* ---- memory and places ---- */

static void run_load(const frame_t *f, const nx_inst_t *inst) {
    extent_t e = extent_of(f, inst->mode);
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]];
    load_row_t row = (load_row_t)inst->run;
    if (e.rows > 1 && a->rs == e.cols && a->cs == 1) {
        e.cols *= e.rows;
        e.rows = 1;
    }
    for (int64_t r = 0; r < e.rows; r++)
        row(d->p + r * between(&e, d) * d->size, a->p + r * between(&e, a) * a->size, along(&e, a),
            e.cols);
}

static void run_store(const frame_t *f, const nx_inst_t *inst) {
    extent_t e = extent_of(f, inst->mode);
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]];
    store_row_t row = (store_row_t)inst->run;
    if (e.rows > 1 && d->rs == e.cols && d->cs == 1 && dense(&e, a)) {
        e.cols *= e.rows;
        e.rows = 1;
    }
    for (int64_t r = 0; r < e.rows; r++)
        row(d->p + r * between(&e, d) * d->size, along(&e, d), a->p + r * between(&e, a) * a->size,
            along(&e, a), e.cols);
}

static void bad_index(const frame_t *f, const nx_inst_t *inst, int64_t index, int64_t position) {
    fused_error_t *error = &f->job->errors[f->thread];
    if (error->chunk <= f->place) return;
    *error = (fused_error_t){f->place, index, position, inst->stmt};
}

static void run_gather(const frame_t *f, const nx_inst_t *inst) {
    extent_t e = extent_of(f, inst->mode);
    const nest_access_t *access = &f->job->plan->nest->stmts[inst->stmt].access;
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]],
                       *x = &f->here[inst->src[1]];
    load_row_t row = (load_row_t)inst->run;
    const int64_t step = along(&e, x), n = step == 0 ? e.cols : 1;
    for (int64_t r = 0; r < e.rows; r++) {
        const int64_t *index = (const int64_t *)x->p + r * between(&e, x);
        for (int64_t c = 0; c < e.cols; c += n) {
            int64_t i = fused_index(access, index[c * step]);
            if (i < 0) bad_index(f, inst, index[c * step], r + c);
            i = i < 0 ? 0 : i;
            row(d->p + (r * between(&e, d) + c) * d->size,
                a->p + (r * between(&e, a) + c * along(&e, a) + i * access->index_stride) * a->size,
                along(&e, a), n);
        }
    }
}

static void run_iota(const frame_t *f, const nx_inst_t *inst) {
    extent_t e = extent_of(f, inst->mode);
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]];
    const int64_t step = along(&e, a);
    for (int64_t r = 0; r < e.rows; r++) {
        char *to = d->p + r * between(&e, d) * d->size;
        const int64_t at = a->at + r * between(&e, a), last = at + (e.cols - 1) * step;
        bool small = (int32_t)at == at && (int32_t)last == last; /* those convert in vectors */
        if (inst->type == NX_INT)
            for (int64_t c = 0; c < e.cols; c++) ((int64_t *)to)[c] = at + c * step;
        else if (small && !f->pass->f64)
            for (int32_t c = 0; c < (int32_t)e.cols; c++)
                ((float *)to)[c] = (float)((int32_t)at + c * (int32_t)step);
        else if (f->pass->f64)
            for (int64_t c = 0; c < e.cols; c++) ((double *)to)[c] = (double)(at + c * step);
        else
            for (int64_t c = 0; c < e.cols; c++) ((float *)to)[c] = (float)(at + c * step);
    }
}

static void run_random(const frame_t *f, const nx_inst_t *inst) {
    extent_t e = extent_of(f, inst->mode);
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]];
    const nest_stmt_t *s = &f->job->plan->nest->stmts[inst->stmt];
    const fused_uniform_t *u = f->job->uniforms;
    const int64_t seed = u[s->args[0]].i, turn = u[s->args[1]].i, step = along(&e, a);
    const uint64_t high = (uint64_t)s->integer << 32 | ((uint64_t)turn & 0xffffffffu);
    uint64_t part = s->n_args > 2 ? (uint64_t)u[s->args[2]].i : 0;
    part *= (uint64_t)s->access.index_stride;
    for (int64_t r = 0; r < e.rows; r++) {
        char *to = d->p + r * between(&e, d) * d->size;
        const int64_t first = (int64_t)(part + (uint64_t)a->at) + r * between(&e, a);
        uint32_t words[4];
        int64_t have = INT64_MIN; /* the quarter that words are of */
        for (int64_t c = 0; c < e.cols; c++) {
            const int64_t element = first + c * step;
            if (have != element >> 2) {
                have = element >> 2;
                st_philox((uint64_t)seed, (uint64_t)have, high, words);
            }
            const float value = st_uniform24(words[element & 3]);
            if (f->pass->f64)
                ((double *)to)[c] = (double)value;
            else
                ((float *)to)[c] = value;
        }
    }
}

/* ---- reductions ---- */

void cpu_fused_fill(void *data, uint16_t code, nx_type_t type, bool f64, int64_t n) {
    static const double reals[] = {0, 1, -INFINITY, INFINITY};
    static const int64_t integers[] = {0, 1, INT64_MIN, INT64_MAX};
    for (int64_t i = 0; i < n; i++) {
        if (type == NX_INT)
            ((int64_t *)data)[i] = integers[code - NX_SUM];
        else if (type == NX_WIDE || f64)
            ((double *)data)[i] = reals[code - NX_SUM];
        else
            ((float *)data)[i] = (float)reals[code - NX_SUM];
    }
}

static void run_fill(const frame_t *f, const nx_inst_t *inst) {
    const nx_view_t *view = &f->pass->views[inst->dst];
    int64_t n = view->mode == NX_ROW ? f->pass->rows : view->mode == NX_COL ? f->pass->cols : 1;
    cpu_fused_fill(f->here[inst->dst].p, (uint16_t)(NX_SUM + inst->flag), view->type, f->pass->f64,
                   n);
}

static void run_finish(const frame_t *f, const nx_inst_t *inst) {
    const nx_view_t *from = &f->pass->views[inst->src[0]];
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]];
    int64_t n = from->mode == NX_ROW ? f->pass->rows : from->mode == NX_COL ? f->pass->cols : 1;
    if (from->type == NX_WIDE)
        ((tile_row_t)inst->run)(d->p, a->p, 1, a->p, 1, a->p, 1, n);
    else
        memcpy(d->p, a->p, (size_t)(n * d->size));
    if (inst->type == NX_INT && inst->dtype != IR_I64) narrow(inst, (int64_t *)d->p, n);
}

static void run_reduction(const frame_t *f, const nx_inst_t *inst) {
    const tile_reduction_t *rows = (const tile_reduction_t *)inst->run_data;
    const nx_view_t *view = &f->pass->views[inst->dst];
    const fused_here_t *d = &f->here[inst->dst], *a = &f->here[inst->src[0]];
    const fused_here_t *b = inst->n_src > 1 ? &f->here[inst->src[1]] : a;
    const fused_here_t *c = inst->n_src > 2 ? &f->here[inst->src[2]] : a;
    extent_t e = extent_of(f, inst->mode);
    bool keep_row = view->mode == NX_FULL || view->mode == NX_ROW;
    bool keep_col = view->mode == NX_FULL || view->mode == NX_COL;
    if (e.turned) { /* rows only: they are the row */
        const int64_t sa = a->rs, sb = b->rs, sc = c->rs;
        if (!keep_row) {
            rows->along(d->p, a->p, sa, b->p, sb, c->p, sc, e.cols);
        } else {
            for (int64_t r = 0; r < e.cols; r++)
                rows->down(d->p + r * d->rs * d->size, a->p + r * sa * a->size, 0,
                           b->p + r * sb * b->size, 0, c->p + r * sc * c->size, 0, 1);
        }
        return;
    }
    if (!keep_col && !keep_row && e.rows > 1 && dense(&e, a) && dense(&e, b) && dense(&e, c)) {
        e.cols *= e.rows;
        e.rows = 1;
    }
    const bool fast = keep_col && !keep_row && e.rows > 2 && rows->down_fast;
    if (fast) memset(f->temporary, 0, (size_t)(e.cols * a->size));
    for (int64_t r = 0; r < e.rows; r++) {
        tile_row_t row = fast ? rows->down_fast : keep_col ? rows->down : rows->along;
        char *to = fast ? f->temporary : d->p + (keep_row ? r * d->rs * d->size : 0);
        row(to, a->p + r * a->rs * a->size, a->cs, b->p + r * b->rs * b->size, b->cs,
            c->p + r * c->rs * c->size, c->cs, e.cols);
    }
    if (fast) rows->widen(d->p, f->temporary, 1, f->temporary, 1, f->temporary, 1, e.cols);
}

/* ---- stages ---- */

static void run_insts(const frame_t *f, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const nx_inst_t *inst = &f->pass->insts[i];
        if (f->strips->where[i]) {
            cpu_fused_run_strip(f->strips, f->pass, f->here, i, f->rows, f->cols);
            i = f->strips->where[i] - 1;
            continue;
        }
        if (inst->when & f->later) continue;
        if (inst->code < NX_LOAD)
            run_op(f, inst);
        else if (inst->code >= NX_SUM && inst->code <= NX_MIN)
            run_reduction(f, inst);
        else if (inst->code == NX_LOAD)
            run_load(f, inst);
        else if (inst->code == NX_STORE)
            run_store(f, inst);
        else if (inst->code == NX_FILL)
            run_fill(f, inst);
        else if (inst->code == NX_FINISH)
            run_finish(f, inst);
        else if (inst->code == NX_GATHER)
            run_gather(f, inst);
        else if (inst->code == NX_IOTA)
            run_iota(f, inst);
        else
            run_random(f, inst);
    }
}

/* Puts loop k at block `block`. */
static void set_loop(frame_t *f, uint32_t k, int64_t block) {
    const nx_loop_t *loop = &f->pass->loops[k];
    const int64_t at = block * loop->block, n = cpu_min(loop->block, loop->extent - at);
    f->start[loop->axis] = at;
    if ((int32_t)loop->axis == f->pass->row) f->rows = n;
    if ((int32_t)loop->axis == f->pass->col) f->cols = n;
    f->later = block ? f->later | 1u << k : f->later & ~(1u << k);
}

/* Puts the loops [first, end) at the `number`-th of their points, the last running fastest. */
static void set_loops(frame_t *f, uint32_t first, uint32_t end, int64_t number) {
    for (uint32_t k = end; k-- > first;) {
        set_loop(f, k, number % f->pass->loops[k].n_blocks);
        number /= f->pass->loops[k].n_blocks;
    }
}

static void run_item(frame_t *f) {
    const nx_pass_t *pass = f->pass;
    if (pass->tiles == 1) {
        set_loops(f, pass->n_parallel, pass->n_loops, 0);
        set_tile(f);
        run_insts(f, 0, pass->n_insts);
        return;
    }
    for (uint32_t s = 0; s < pass->n_stages; s++) {
        const nx_stage_t *stage = &pass->stages[s];
        run_insts(f, stage->first, stage->body);
        for (int64_t tile = 0; tile < pass->tiles; tile++) {
            set_loops(f, pass->n_parallel, pass->n_loops, tile);
            set_tile(f);
            run_insts(f, stage->body, stage->finish);
        }
        run_insts(f, stage->finish, stage->end);
    }
}

void cpu_fused_chunk(const fused_job_t *job, const nx_pass_t *pass, int64_t chunk, int64_t place,
                     int thread) {
    fused_here_t *here =
        (fused_here_t *)(job->threads + (size_t)thread * job->thread_bytes + job->views);
    frame_t f = {.job = job,
                 .pass = pass,
                 .strips = &job->strips[pass - job->plan->passes],
                 .here = here,
                 .rows = 1,
                 .cols = 1,
                 .registers = job->threads + (size_t)thread * job->thread_bytes,
                 .place = place,
                 .thread = thread,
                 .chunk = chunk};
    f.temporary = f.registers + job->temporary;
    for (uint32_t i = 0; i < pass->n_partials; i++) {
        const nx_partial_t *partial = &job->plan->partials[pass->first_partial + i];
        const nx_slot_t *slot = &job->plan->slots[partial->slot];
        cpu_fused_fill(job->shared + partial->offset + (size_t)chunk * partial->chunk_bytes,
                       partial->code, partial->type, pass->f64, slot->elements);
    }
    set_fixed(&f);
    const int64_t first = chunk * pass->chunk_items;
    const int64_t end = cpu_min(first + pass->chunk_items, pass->items);
    for (int64_t item = first; item < end; item++) {
        set_loops(&f, 0, pass->n_parallel, item);
        run_item(&f);
    }
}
