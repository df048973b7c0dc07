/* Strips: instructions in a row that each do one thing an element run together, STRIP columns at a
 * time. So the streams of a pass go forward side by side, as one loop would read them; a whole tile
 * an instruction was slower from memory (bench/NOTES.md). What only the strip's own instructions
 * read lives in one strip's elements, which stay in the first cache. */
#include "base/arena.h"
#include "kernels/cpu/fused.h"

/* Columns of a strip: short where streams come from memory, so that they go side by side. */
enum { STRIP = 512, STRIP_OF_MEMORY = 128, MEMORY_POINTS = 1 << 19 };
enum { STEP_ROW, STEP_MANY, STEP_LOAD, STEP_STORE };

/* ---- preparing ---- */

static bool can_strip(const nx_pass_t *pass, const nx_inst_t *inst) {
    bool whole = inst->mode == NX_FULL || (inst->mode == NX_COL && pass->row < 0);
    if (!whole || inst->when) return false;
    if (inst->code == NX_LOAD || inst->code == NX_STORE) return true;
    bool narrows = ir_dtype_is_integer(inst->dtype) && inst->dtype != IR_I64 &&
                   pass->views[inst->dst].type == NX_INT;
    return inst->code < NX_LOAD && !narrows;
}

static bool stage_begins(const nx_pass_t *pass, uint32_t at) {
    for (uint32_t i = 0; i < pass->n_stages; i++) {
        const nx_stage_t *s = &pass->stages[i];
        if (at == s->first || at == s->body || at == s->finish) return true;
    }
    return false;
}

static fused_operand_t operand_of(const nx_pass_t *pass, uint32_t number) {
    const nx_view_t *view = &pass->views[number];
    fused_operand_t o = {.view = number};
    int64_t size = view->type == NX_REAL && !pass->f64 ? 4 : 8;
    if (view->space == NX_UNIFORM) return o;
    if (view->space == NX_REGISTER) {
        o.along = view->mode == NX_FULL || view->mode == NX_COL;
        o.between = view->mode == NX_FULL ? pass->cols : view->mode == NX_ROW;
    } else {
        size = (int64_t)ir_dtype_bytes(view->dtype);
        o.along = pass->col < 0 ? 0 : view->stride[pass->col];
        o.between = pass->row < 0 ? 0 : view->stride[pass->row];
    }
    o.between *= size;
    o.advance = o.along * size;
    return o;
}

/* Is register `view`, written in [first, end), read there only? */
static bool stays_inside(const nx_pass_t *pass, uint32_t view, uint32_t first, uint32_t end) {
    for (uint32_t i = 0; i < pass->n_insts; i++) {
        if (i >= first && i < end) continue;
        for (uint32_t k = 0; k < pass->insts[i].n_src; k++)
            if (pass->insts[i].src[k] == view) return false;
    }
    return true;
}

/* May it live in one strip? All that is written to its place must, else strips overwrite it. */
static bool is_short(const nx_pass_t *pass, uint32_t view, uint32_t first, uint32_t end) {
    if (pass->views[view].space != NX_REGISTER) return false;
    bool written = false;
    for (uint32_t i = first; i < end; i++) {
        const uint32_t dst = pass->insts[i].dst;
        const nx_view_t *other = &pass->views[dst];
        written |= dst == view;
        if (other->space == NX_REGISTER && other->offset == pass->views[view].offset &&
            !stays_inside(pass, dst, first, end))
            return false;
    }
    return written;
}

static void make_step(const nx_pass_t *pass, uint32_t number, uint32_t first, uint32_t end,
                      fused_strips_t *strips) {
    const nx_inst_t *inst = &pass->insts[number];
    fused_step_t *step = &strips->steps[number];
    *step = (fused_step_t){.row = inst->run, .n = inst->n_src};
    step->kind = inst->code == NX_LOAD    ? STEP_LOAD
                 : inst->code == NX_STORE ? STEP_STORE
                 : inst->n_src > 3        ? STEP_MANY
                                          : STEP_ROW;
    for (uint32_t k = 0; k <= NX_SOURCES; k++) {
        uint32_t view = k == 0 ? inst->dst : inst->src[k <= inst->n_src ? k - 1 : 0];
        fused_operand_t *o = &step->operands[k];
        *o = operand_of(pass, view);
        if (k > 0 && k <= inst->n_src && o->along) step->mask |= 1u << (k - 1);
        if (is_short(pass, view, first, end)) {
            o->between = o->advance = 0;
        } else if (pass->views[view].space == NX_UNIFORM || (!o->along && !o->between)) {
            continue;
        } else if (o->between != o->advance * pass->cols || o->along != 1) {
            strips->dense[first] = false;
        }
    }
}

st_status_t cpu_fused_strips(const nx_pass_t *pass, const nest_domain_t *domain, st_arena_t *arena,
                             fused_strips_t *out) {
    const uint32_t n = pass->n_insts;
    out->columns = nest_points(domain, pass->mask) >= MEMORY_POINTS ? STRIP_OF_MEMORY : STRIP;
    out->steps = st_arena_array(arena, n + 1, sizeof *out->steps);
    out->where = st_arena_array(arena, n + 1, sizeof *out->where);
    out->dense = st_arena_array(arena, n + 1, sizeof *out->dense);
    if (!out->steps || !out->where || !out->dense)
        return st_no_memory(n * sizeof *out->steps, "the strips of a nest");
    for (uint32_t first = 0; first < n; first++) {
        uint32_t end = first;
        while (end < n && can_strip(pass, &pass->insts[end]) &&
               (end == first || pass->tiles == 1 || !stage_begins(pass, end)))
            end++;
        if (end == first) continue;
        out->where[first] = end;
        out->dense[first] = true;
        for (uint32_t i = first; i < end; i++) make_step(pass, i, first, end, out);
        first = end - 1;
    }
    return ST_OK;
}

/* ---- running ---- */

static inline char *at(const fused_here_t *here, const fused_operand_t *o, int64_t r, int64_t c) {
    return here[o->view].p + r * o->between + c * o->advance;
}

static void run_step(const fused_step_t *step, const fused_here_t *here, int64_t r, int64_t c,
                     int64_t n) {
    const fused_operand_t *o = step->operands;
    char *to = at(here, o, r, c);
    if (step->kind == STEP_ROW) {
        ((tile_row_t)step->row)(to, at(here, o + 1, r, c), o[1].along, at(here, o + 2, r, c),
                                o[2].along, at(here, o + 3, r, c), o[3].along, n);
    } else if (step->kind == STEP_MANY) {
        ((many_row_t)step->row)(to, at(here, o + 1, r, c), at(here, o + 2, r, c),
                                at(here, o + 3, r, c), at(here, o + 4, r, c), at(here, o + 5, r, c),
                                step->mask, n);
    } else if (step->kind == STEP_LOAD) {
        ((load_row_t)step->row)(to, at(here, o + 1, r, c), o[1].along, n);
    } else {
        ((store_row_t)step->row)(to, o[0].along, at(here, o + 1, r, c), o[1].along, n);
    }
}

void cpu_fused_run_strip(const fused_strips_t *strips, const nx_pass_t *pass,
                         const fused_here_t *here, uint32_t first, int64_t rows, int64_t cols) {
    const uint32_t end = strips->where[first];
    if (pass->insts[first].mode != NX_FULL) rows = 1;
    if (strips->dense[first] && cols == pass->cols) {
        cols *= rows;
        rows = 1;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += strips->columns)
            for (uint32_t i = first; i < end; i++)
                run_step(&strips->steps[i], here, r, c, cpu_min(strips->columns, cols - c));
}
