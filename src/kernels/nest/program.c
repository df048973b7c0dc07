/* Instructions of a pass.
 *
 * Stage by stage: the statements that the stage's roots need and that no register holds, in the
 * nest's order, then stores. A product or difference that only one sum, difference or product reads
 * becomes part of it, a product that only a sum over axes reads too. An op writes a result in place
 * where the tensor has its type and is contiguous; other results wait in registers until the end of
 * the stage. nest_may_reuse allows no operand that is read after either. Then registers get their
 * places: one that is read for the last time gives its place to the result. */
#include <string.h>

#include "kernels/nest/planner.h"

typedef struct writer {
    nx_planner_t *p;
    uint32_t number; /* of the pass */
    nx_pass_t *pass;
    uint32_t stage;
    ST_VEC(nx_view_t) views;
    ST_VEC(nx_inst_t) insts;
    ST_VEC(uint32_t) needed, work; /* statements */
    ST_VEC(uint32_t) shown;        /* statements with a view that ends with the stage */
    ST_VEC(uint32_t) made;         /* statements with any view */
} writer_t;

static bool has(uint32_t mask, int32_t axis) {
    return axis >= 0 && (mask >> axis & 1);
}

static nx_mode_t mode_of(const writer_t *w, uint32_t mask) {
    bool row = has(mask, w->pass->row), col = has(mask, w->pass->col);
    return row && col ? NX_FULL : row ? NX_ROW : col ? NX_COL : NX_ONE;
}

/* Loops of more than one block along axes that `mask` lacks. */
static uint32_t when_of(const writer_t *w, uint32_t mask, bool parallel) {
    uint32_t when = 0;
    for (uint32_t i = parallel ? 0 : w->pass->n_parallel; i < w->pass->n_loops; i++)
        if (!(mask >> w->pass->loops[i].axis & 1) && w->pass->loops[i].n_blocks > 1)
            when |= 1u << i;
    return when;
}

/* The view's number; without memory 0, so that what is asked of it stays within `views`, which
 * begins with room for one. */
static uint32_t add_view(writer_t *w, const nx_view_t *view) {
    if (w->p->status == ST_OK) w->p->status = ST_VEC_PUSH(&w->views, *view);
    return w->p->status == ST_OK ? (uint32_t)w->views.n - 1 : 0;
}
static void add_inst(writer_t *w, const nx_inst_t *inst) {
    if (w->p->status == ST_OK) w->p->status = ST_VEC_PUSH(&w->insts, *inst);
}
static uint32_t new_register(writer_t *w, nx_type_t type, nx_mode_t mode) {
    return add_view(w, &(nx_view_t){.space = NX_REGISTER, .type = type, .mode = mode});
}

static uint32_t memory_view(writer_t *w, nx_space_t space, uint32_t number,
                            const nest_access_t *access, ir_dtype_t dtype, nx_mode_t mode) {
    nx_view_t view = {
        .space = space, .number = number, .dtype = dtype, .mode = mode, .offset = access->offset};
    memcpy(view.stride, access->stride, sizeof view.stride);
    return add_view(w, &view);
}

static ir_dtype_t real_dtype(const writer_t *w) {
    return w->pass->f64 ? IR_F64 : IR_F32;
}

/* A slot or its partial sums, dense over the axes of the result. */
static uint32_t slot_view(writer_t *w, nx_space_t space, uint32_t slot) {
    const nx_slot_t *s = &w->p->slots.data[slot];
    const nest_stmt_t *stmt = nx_stmt(w->p, s->stmt);
    const nest_domain_t *domain = &w->p->nest->domains[stmt->domain];
    nx_view_t view = {.space = space, .number = slot, .mode = mode_of(w, stmt->mask)};
    bool wide = stmt->mask == 0;
    view.type = s->type == NX_REAL && wide ? NX_WIDE : s->type;
    view.dtype = s->type == NX_INT ? IR_I64 : wide || s->f64 ? IR_F64 : IR_F32;
    int64_t stride = 1;
    for (uint32_t turn = 0; turn < 2; turn++) /* the inner axis first */
        for (uint32_t i = domain->n_axes; i-- > 0;) {
            if (!(stmt->mask >> i & 1) || (turn == 0) != ((int32_t)i == s->inner)) continue;
            view.stride[i] = stride;
            stride *= domain->axes[i].extent;
        }
    return add_view(w, &view);
}

/* ---- which statements ---- */

static bool shown(const writer_t *w, uint32_t stmt) {
    return w->p->view[stmt] != 0;
}
static void show(writer_t *w, uint32_t stmt, uint32_t view, bool stays) {
    w->p->view[stmt] = view + 1;
    if (w->p->status == ST_OK) w->p->status = ST_VEC_PUSH(&w->made, stmt);
    if (!stays && w->p->status == ST_OK) w->p->status = ST_VEC_PUSH(&w->shown, stmt);
}

/* Is `stmt` an `op` that one statement reads, over the points of `mask`, not computed yet? */
static bool only_once(const writer_t *w, uint32_t stmt, ir_op_t op, uint32_t mask) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    return s->kind == NEST_OP && s->op == op && nx_type_of(s) == NX_REAL && w->p->uses[stmt] == 1 &&
           mode_of(w, s->mask) == mode_of(w, mask) && !shown(w, stmt) && !nx_uniform(w->p, stmt);
}

/* What the instruction of a statement is: its code and what it reads. */
typedef struct pattern {
    uint16_t code;
    uint32_t n, src[NX_SOURCES];
} pattern_t;

/* Does the value differ along the columns of the tile? */
static bool along_columns(const writer_t *w, uint32_t stmt) {
    return has(nx_stmt(w->p, stmt)->mask, w->pass->col);
}

/* Appends the factors of product `stmt`, the one with columns first: rows are made for that. */
static void add_factors(const writer_t *w, pattern_t *x, uint32_t stmt) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    bool turn = !along_columns(w, s->args[0]) && along_columns(w, s->args[1]);
    x->src[x->n++] = s->args[turn];
    x->src[x->n++] = s->args[!turn];
}

/* The argument of `stmt` that is an `op` for it alone, the second first; -1: none. */
static int32_t inner_of(const writer_t *w, uint32_t stmt, ir_op_t op, uint32_t mask) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    if (s->n_args > 1 && s->args[0] == s->args[1]) return -1;
    for (uint32_t k = s->n_args; k-- > 0;)
        if (only_once(w, s->args[k], op, mask)) return (int32_t)k;
    return -1;
}

/* a b + c d, a b + c d e: `first` and `second` are products. */
static pattern_t two_products(const writer_t *w, uint32_t first, uint32_t second, uint32_t mask) {
    pattern_t x = {NX_MUL_ADD_MUL, 0, {0}};
    if (inner_of(w, second, IR_OP_MUL, mask) < 0) { /* the triple comes last */
        uint32_t other = first;
        first = second;
        second = other;
    }
    add_factors(w, &x, first);
    int32_t k = inner_of(w, second, IR_OP_MUL, mask);
    if (k < 0) {
        add_factors(w, &x, second);
        return x;
    }
    x.code = NX_MUL_ADD_TRIPLE;
    add_factors(w, &x, nx_stmt(w->p, second)->args[k]);
    x.src[x.n++] = nx_stmt(w->p, second)->args[1 - k];
    return x;
}

static pattern_t sum_pattern(const writer_t *w, uint32_t index, pattern_t plain) {
    const nest_stmt_t *s = nx_stmt(w->p, index);
    int32_t k = inner_of(w, index, IR_OP_MUL, s->mask);
    if (k < 0) return plain;
    uint32_t inner = s->args[k], other = s->args[1 - k];
    if (only_once(w, other, IR_OP_MUL, s->mask))
        return two_products(w, s->args[0], s->args[1], s->mask);
    const nest_stmt_t *m = nx_stmt(w->p, inner);
    int32_t root = inner_of(w, inner, IR_OP_SQRT, s->mask);
    if (root >= 0)
        return (pattern_t){
            NX_ROOT_MUL_ADD, 3, {nx_stmt(w->p, m->args[root])->args[0], m->args[1 - root], other}};
    int32_t diff = inner_of(w, inner, IR_OP_SUB, s->mask);
    if (diff >= 0) {
        const nest_stmt_t *d = nx_stmt(w->p, m->args[diff]);
        return (pattern_t){NX_DIFF_MUL_ADD, 4, {d->args[0], d->args[1], m->args[1 - diff], other}};
    }
    int32_t factor = inner_of(w, inner, IR_OP_MUL, s->mask);
    if (factor >= 0) {
        const nest_stmt_t *f = nx_stmt(w->p, m->args[factor]);
        return (pattern_t){NX_MUL_MUL_ADD, 4, {f->args[0], f->args[1], m->args[1 - factor], other}};
    }
    return (pattern_t){NX_MUL_ADD, 3, {m->args[0], m->args[1], other}};
}

static pattern_t difference_pattern(const writer_t *w, uint32_t index, pattern_t plain) {
    const nest_stmt_t *s = nx_stmt(w->p, index);
    if (s->args[0] == s->args[1]) return plain;
    bool product = only_once(w, s->args[0], IR_OP_MUL, s->mask);
    pattern_t x = {NX_MUL_SUB_MUL, 0, {0}};
    if (only_once(w, s->args[1], IR_OP_MUL, s->mask)) {
        const nest_stmt_t *m = nx_stmt(w->p, s->args[1]);
        if (!product) return (pattern_t){NX_SUB_MUL, 3, {m->args[0], m->args[1], s->args[0]}};
        add_factors(w, &x, s->args[0]);
        add_factors(w, &x, s->args[1]);
        return x;
    }
    if (!product) return plain;
    add_factors(w, &x, s->args[0]);
    if (only_once(w, s->args[1], IR_OP_DIV, s->mask)) {
        const nest_stmt_t *q = nx_stmt(w->p, s->args[1]);
        if (q->args[0] != q->args[1] && only_once(w, q->args[0], IR_OP_MUL, s->mask)) {
            x.code = NX_MUL_SUB_QUOTIENT;
            add_factors(w, &x, q->args[0]);
            x.src[x.n++] = q->args[1];
            return x;
        }
    }
    const nest_stmt_t *m = nx_stmt(w->p, s->args[0]);
    return (pattern_t){NX_MUL_SUB, 3, {m->args[0], m->args[1], s->args[1]}};
}

/* (a - b - c d) e: difference `inner` times `other`. */
static bool long_product(const writer_t *w, uint32_t inner, uint32_t other, uint32_t mask,
                         pattern_t *out) {
    const nest_stmt_t *s = nx_stmt(w->p, inner);
    const uint32_t left = s->args[0], right = s->args[1];
    if (left == right) return false;
    if (!only_once(w, left, IR_OP_SUB, mask) || !only_once(w, right, IR_OP_MUL, mask)) return false;
    const nest_stmt_t *d = nx_stmt(w->p, left);
    *out = (pattern_t){NX_DIFF_SUB_MUL, 2, {d->args[0], d->args[1]}};
    add_factors(w, out, right);
    out->src[out->n++] = other;
    return true;
}

static pattern_t product_pattern(const writer_t *w, uint32_t index, pattern_t plain) {
    static const struct {
        ir_op_t op;
        uint16_t code;
    } inners[] = {{IR_OP_SILU, NX_SILU_MUL}, {IR_OP_SUB, NX_DIFF_MUL}, {IR_OP_MUL, NX_MUL_MUL}};
    const nest_stmt_t *s = nx_stmt(w->p, index);
    for (uint32_t i = 0; i < sizeof inners / sizeof *inners; i++) {
        int32_t k = inner_of(w, index, inners[i].op, s->mask);
        if (k < 0) continue;
        const nest_stmt_t *m = nx_stmt(w->p, s->args[k]);
        pattern_t x = {inners[i].code, 0, {0}};
        if (m->op == IR_OP_SUB && long_product(w, s->args[k], s->args[1 - k], s->mask, &x))
            return x;
        for (uint32_t j = 0; j < m->n_args; j++) x.src[x.n++] = m->args[j];
        x.src[x.n++] = s->args[1 - k];
        return x;
    }
    return plain;
}

static pattern_t op_pattern(const writer_t *w, uint32_t index) {
    const nest_stmt_t *s = nx_stmt(w->p, index);
    pattern_t plain = {(uint16_t)s->op, s->n_args, {0}};
    for (uint32_t k = 0; k < s->n_args; k++) plain.src[k] = s->args[k];
    if (nx_type_of(s) != NX_REAL) return plain;
    if (s->op == IR_OP_ADD) return sum_pattern(w, index, plain);
    if (s->op == IR_OP_SUB) return difference_pattern(w, index, plain);
    if (s->op == IR_OP_MUL) return product_pattern(w, index, plain);
    if (s->op == IR_OP_EXP && only_once(w, s->args[0], IR_OP_SUB, s->mask)) {
        const nest_stmt_t *d = nx_stmt(w->p, s->args[0]);
        return (pattern_t){NX_DIFF_EXP, 2, {d->args[0], d->args[1]}};
    }
    return plain;
}

static pattern_t reduce_pattern(const writer_t *w, uint32_t index) {
    const nest_stmt_t *s = nx_stmt(w->p, index);
    uint32_t points = s->mask | s->over, x = s->args[0];
    uint16_t code = nx_reduction(s->op);
    pattern_t p = {code, 1, {x}};
    if (code != NX_SUM || nx_type_of(s) != NX_REAL || !only_once(w, x, IR_OP_MUL, points)) return p;
    const nest_stmt_t *m = nx_stmt(w->p, x);
    p = (pattern_t){code, 2, {m->args[0], m->args[1]}};
    for (uint32_t k = 0; k < 2; k++)
        if (only_once(w, m->args[k], IR_OP_MUL, points) && m->args[0] != m->args[1]) {
            const nest_stmt_t *inner = nx_stmt(w->p, m->args[k]);
            return (pattern_t){code, 3, {inner->args[0], inner->args[1], m->args[1 - k]}};
        }
    return p;
}

/* A cast of positions to reals, which are made as reals. */
static bool places_only(const writer_t *w, const nest_stmt_t *s) {
    if (s->kind != NEST_OP || s->op != IR_OP_CAST || !ir_dtype_is_float(s->dtype)) return false;
    const nest_stmt_t *from = nx_stmt(w->p, s->args[0]);
    return from->kind == NEST_IOTA && from->mask && nx_type_of(from) == NX_INT;
}

static pattern_t pattern_of(const writer_t *w, uint32_t index) {
    const nest_stmt_t *s = nx_stmt(w->p, index);
    if (s->kind == NEST_REDUCE) return reduce_pattern(w, index);
    if (s->kind == NEST_OP && s->op != IR_OP_CAST) return op_pattern(w, index);
    pattern_t p = {(uint16_t)s->op, nx_n_reads(s), {0}};
    if (places_only(w, s)) p.n = 0;
    for (uint32_t k = 0; k < p.n; k++) p.src[k] = nx_read(s, k);
    return p;
}

static void need(writer_t *w, uint32_t stmt) {
    nx_planner_t *p = w->p;
    if (p->mark[stmt] == p->stamp || p->status != ST_OK) return;
    p->mark[stmt] = p->stamp;
    p->status = ST_VEC_PUSH(&w->work, stmt);
}

static void sort_needed(writer_t *w) {
    uint32_t *v = w->needed.data;
    for (size_t gap = w->needed.n / 2; gap; gap /= 2) /* Shell's: short lists, nearly reversed */
        for (size_t i = gap; i < w->needed.n; i++) {
            uint32_t x = v[i];
            size_t k = i;
            for (; k >= gap && v[k - gap] > x; k -= gap) v[k] = v[k - gap];
            v[k] = x;
        }
}

/* Collects what `needed` of the stage takes, down to what has a view. */
static void collect(writer_t *w) {
    nx_planner_t *p = w->p;
    w->needed.n = w->work.n = 0;
    p->stamp++;
    for (size_t i = 0; i < p->roots.n; i++) {
        const nx_root_t *root = &p->roots.data[i];
        if (root->pass != w->number || root->stage != w->stage) continue;
        if (root->store) {
            need(w, p->nest->stores[root->index].value);
            continue;
        }
        pattern_t x = reduce_pattern(w, root->index);
        for (uint32_t k = 0; k < x.n; k++) need(w, x.src[k]);
    }
    while (w->work.n && p->status == ST_OK) {
        uint32_t stmt = w->work.data[--w->work.n];
        const nest_stmt_t *s = nx_stmt(p, stmt);
        if (shown(w, stmt)) continue;
        p->status = ST_VEC_PUSH(&w->needed, stmt);
        if (s->kind == NEST_REDUCE || nx_uniform(p, stmt)) continue;
        pattern_t x = pattern_of(w, stmt);
        for (uint32_t k = 0; k < x.n; k++) need(w, x.src[k]);
    }
    sort_needed(w);
}

/* ---- instructions ---- */

static uint32_t view_at(const writer_t *w, uint32_t stmt) {
    ASSERT(shown(w, stmt) || w->p->status != ST_OK);
    return shown(w, stmt) ? w->p->view[stmt] - 1 : 0;
}

/* Contiguous, and of the pass's own type: instructions read and write it as it is. */
static bool direct(const writer_t *w, const nest_access_t *access, ir_dtype_t dtype,
                   nx_mode_t mode) {
    if (dtype != real_dtype(w) || access->index != NEST_NONE) return false;
    if (mode == NX_FULL || mode == NX_COL) return access->stride[w->pass->col] == 1;
    return mode == NX_ONE || access->stride[w->pass->row] == 1;
}

static void write_load(writer_t *w, uint32_t stmt) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    nx_mode_t mode = mode_of(w, s->mask);
    bool data = s->access.tensor == NEST_NONE;
    nest_access_t access = s->access;
    uint32_t from = memory_view(w, data ? NX_DATA : NX_OPERAND, data ? stmt : s->access.tensor,
                                &access, s->access.dtype, mode);
    if (direct(w, &s->access, s->access.dtype, mode)) {
        show(w, stmt, from, false);
        return;
    }
    bool gather = s->access.index != NEST_NONE;
    nx_inst_t inst = {.code = gather ? NX_GATHER : NX_LOAD,
                      .n_src = gather ? 2 : 1,
                      .type = nx_type_of(s),
                      .mode = mode,
                      .dtype = s->access.dtype,
                      .src = {from, gather ? view_at(w, s->access.index) : 0},
                      .stmt = stmt};
    inst.dst = new_register(w, inst.type, mode);
    add_inst(w, &inst);
    show(w, stmt, inst.dst, false);
}

/* The result of a reduction of an earlier phase. */
static void write_slot_load(writer_t *w, uint32_t stmt) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    nx_mode_t mode = mode_of(w, s->mask);
    uint32_t from = slot_view(w, NX_SLOT, w->p->plan->slot_of[stmt]);
    const int64_t *stride = w->views.data[from].stride;
    bool column = mode == NX_FULL || mode == NX_COL;
    if (mode == NX_ONE || stride[column ? w->pass->col : w->pass->row] == 1) {
        show(w, stmt, from, false);
        return;
    }
    nx_inst_t inst = {.code = NX_LOAD,
                      .n_src = 1,
                      .type = nx_type_of(s),
                      .mode = mode,
                      .dtype = w->views.data[from].dtype,
                      .src = {from},
                      .stmt = stmt};
    inst.dst = new_register(w, inst.type, mode);
    add_inst(w, &inst);
    show(w, stmt, inst.dst, false);
}

static uint32_t place_view(writer_t *w, const nest_stmt_t *s) {
    return memory_view(w, NX_PLACE, 0, &s->access, IR_I64, mode_of(w, s->mask));
}

static void write_source(writer_t *w, uint32_t stmt, const nest_stmt_t *place, nx_type_t type) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    bool random = place->kind == NEST_RANDOM;
    nx_inst_t inst = {.code = random ? NX_RANDOM : NX_IOTA,
                      .n_src = 1,
                      .type = type,
                      .mode = mode_of(w, s->mask),
                      .stmt = stmt};
    inst.src[0] = place_view(w, place);
    inst.dst = new_register(w, type, inst.mode);
    add_inst(w, &inst);
    show(w, stmt, inst.dst, false);
}

void nx_describe(const nest_t *nest, uint32_t stmt, nx_inst_t *out) {
    const nest_stmt_t *s = &nest->stmts[stmt], *last = &nest->stmts[s->args[s->n_args - 1]];
    *out = (nx_inst_t){.code = (uint16_t)s->op,
                       .flag = s->flag,
                       .n_src = (uint8_t)s->n_args,
                       .type = nx_type_of(last),
                       .dtype = s->dtype,
                       .stmt = stmt};
    if (s->op != IR_OP_CAST) return;
    bool integer = ir_dtype_is_integer(s->dtype);
    if (out->type == NX_INT)
        out->flag = s->dtype == IR_BOOL ? NX_INT_TO_BOOL : integer ? NX_INT_TO_INT : NX_INT_TO_REAL;
    else if (ir_dtype_is_float(s->dtype) && ir_dtype_is_float(last->dtype))
        out->flag = s->dtype == IR_BF16  ? NX_TO_BF16
                    : s->dtype == IR_F16 ? NX_TO_F16
                    : s->dtype == IR_F32 ? NX_TO_F32
                                         : NX_SAME;
    else if (ir_dtype_is_float(s->dtype) || last->dtype == s->dtype)
        out->flag = NX_SAME; /* a bool is 0 or 1 */
    else
        out->flag = s->dtype == IR_BOOL ? NX_REAL_TO_BOOL : NX_REAL_TO_INT;
}

static void write_op(writer_t *w, uint32_t stmt, uint32_t dst) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    pattern_t x = pattern_of(w, stmt);
    nx_inst_t inst;
    nx_describe(w->p->nest, stmt, &inst);
    inst.code = x.code;
    inst.n_src = (uint8_t)x.n;
    inst.mode = mode_of(w, s->mask);
    if (x.code >= NX_FIRST) inst.type = NX_REAL;
    if (s->op == IR_OP_CAST &&
        (inst.flag == NX_SAME || (inst.flag == NX_TO_F32 && !w->pass->f64))) {
        show(w, stmt, view_at(w, s->args[0]), false);
        return;
    }
    if (places_only(w, s)) {
        write_source(w, stmt, nx_stmt(w->p, s->args[0]), NX_REAL);
        return;
    }
    for (uint32_t k = 0; k < x.n; k++) inst.src[k] = view_at(w, x.src[k]);
    inst.dst = dst != NEST_NONE ? dst : new_register(w, nx_type_of(s), inst.mode);
    add_inst(w, &inst);
    show(w, stmt, inst.dst, false);
}

static void write_stmt(writer_t *w, uint32_t stmt, uint32_t dst) {
    const nest_stmt_t *s = nx_stmt(w->p, stmt);
    if (nx_uniform(w->p, stmt)) {
        nx_view_t view = {
            .space = NX_UNIFORM, .type = nx_type_of(s), .mode = NX_ONE, .number = stmt};
        show(w, stmt, add_view(w, &view), true);
        return;
    }
    switch (s->kind) {
        case NEST_REDUCE:
            write_slot_load(w, stmt);
            break;
        case NEST_LOAD:
            write_load(w, stmt);
            break;
        case NEST_IOTA:
        case NEST_RANDOM:
            write_source(w, stmt, s, nx_type_of(s));
            break;
        default:
            write_op(w, stmt, dst);
    }
}

/* ---- stores ---- */

static uint32_t store_view(writer_t *w, const nest_store_t *store) {
    return memory_view(w, NX_RESULT, store->access.tensor, &store->access, store->access.dtype,
                       mode_of(w, store->mask));
}

/* The store of the stage that statement `stmt` may write itself; NULL: none. */
static const nest_store_t *own_store(const writer_t *w, uint32_t stmt) {
    const nx_planner_t *p = w->p;
    const nest_stmt_t *s = nx_stmt(p, stmt);
    if (s->kind != NEST_OP || s->op == IR_OP_CAST || nx_type_of(s) != NX_REAL ||
        nx_uniform(p, stmt))
        return NULL;
    for (size_t i = 0; i < p->roots.n; i++) {
        const nx_root_t *root = &p->roots.data[i];
        if (!root->store || root->pass != w->number || root->stage != w->stage) continue;
        const nest_store_t *store = &p->nest->stores[root->index];
        nx_mode_t mode = mode_of(w, store->mask);
        if (store->value == stmt && mode == mode_of(w, s->mask) && !when_of(w, store->mask, true) &&
            direct(w, &store->access, store->access.dtype, mode))
            return store;
    }
    return NULL;
}

static void write_store(writer_t *w, const nest_store_t *store) {
    uint32_t from = view_at(w, store->value), to = store_view(w, store);
    const nx_view_t *view = &w->views.data[from];
    if (view->space == NX_RESULT && view->number == store->access.tensor) return; /* in place */
    nx_inst_t inst = {.code = NX_STORE,
                      .n_src = 1,
                      .type = nx_type_of(nx_stmt(w->p, store->value)),
                      .mode = mode_of(w, store->mask),
                      .when = when_of(w, store->mask, true),
                      .dtype = store->access.dtype,
                      .dst = to,
                      .src = {from},
                      .stmt = store->value};
    add_inst(w, &inst);
}

/* Results of earlier local reductions that go to a slot. */
static void write_slots(writer_t *w) {
    nx_planner_t *p = w->p;
    for (uint32_t i = 0; i < p->nest->n_stmts && w->stage > 0; i++) {
        if (p->local_pass[i] != w->number || p->local_stage[i] + 1 != w->stage ||
            p->plan->slot_of[i] == NEST_NONE)
            continue;
        const nest_stmt_t *s = nx_stmt(p, i);
        uint32_t from = view_at(w, i), to = slot_view(w, NX_SLOT, p->plan->slot_of[i]);
        nx_inst_t inst = {.code = NX_STORE,
                          .n_src = 1,
                          .type = nx_type_of(s),
                          .mode = mode_of(w, s->mask),
                          .when = when_of(w, s->mask, true),
                          .dtype = w->views.data[to].dtype,
                          .dst = to,
                          .src = {from},
                          .stmt = i};
        add_inst(w, &inst);
    }
}

/* ---- reductions ---- */

static uint32_t partial_view(writer_t *w, uint32_t stmt) {
    nx_planner_t *p = w->p;
    uint32_t slot = p->plan->slot_of[stmt];
    uint32_t view = slot_view(w, NX_PARTIAL, slot);
    for (uint32_t i = 0; i < w->pass->n_partials; i++) {
        const nx_partial_t *partial = &p->partials.data[w->pass->first_partial + i];
        if (partial->slot != slot || p->status != ST_OK) continue;
        w->views.data[view].number = w->pass->first_partial + i;
        w->views.data[view].type = partial->type;
    }
    return view;
}

static void write_reduction(writer_t *w, uint32_t stmt) {
    nx_planner_t *p = w->p;
    const nest_stmt_t *s = nx_stmt(p, stmt);
    bool local = p->local_pass[stmt] == w->number;
    pattern_t x = reduce_pattern(w, stmt);
    uint32_t points = s->mask | s->over;
    nx_inst_t inst = {.code = x.code,
                      .n_src = (uint8_t)x.n,
                      .type = nx_type_of(s),
                      .mode = mode_of(w, points),
                      .when = when_of(w, points, !local),
                      .dtype = s->dtype,
                      .stmt = stmt};
    for (uint32_t k = 0; k < x.n; k++) inst.src[k] = view_at(w, x.src[k]);
    bool sums = x.code == NX_SUM || x.code == NX_PROD;
    inst.dst = local ? new_register(w,
                                    inst.type == NX_INT ? NX_INT
                                    : sums              ? NX_WIDE
                                                        : NX_REAL,
                                    mode_of(w, s->mask))
                     : partial_view(w, stmt);
    add_inst(w, &inst);
}

/* The accumulators of the stage's local reductions: set before it, made values after it. */
static void write_ends(writer_t *w, nx_stage_t *stage) {
    size_t body_end = w->insts.n, n_before = 0;
    for (size_t i = stage->body; i < body_end; i++) {
        nx_inst_t inst = w->insts.data[i];
        if (inst.code < NX_SUM || inst.code > NX_MIN || w->p->local_pass[inst.stmt] != w->number)
            continue;
        nx_mode_t mode = w->views.data[inst.dst].mode;
        nx_inst_t finish = {.code = NX_FINISH,
                            .n_src = 1,
                            .type = inst.type,
                            .mode = mode,
                            .dtype = inst.dtype,
                            .src = {inst.dst},
                            .stmt = inst.stmt};
        finish.dst = new_register(w, inst.type, mode);
        add_inst(w, &finish);
        show(w, inst.stmt, finish.dst, true);
        n_before++;
    }
    if (w->p->status != ST_OK) return;
    w->p->status = ST_VEC_RESERVE(&w->insts, w->insts.n + n_before);
    if (w->p->status != ST_OK) return;
    memmove(w->insts.data + stage->body + n_before, w->insts.data + stage->body,
            (w->insts.n - stage->body) * sizeof *w->insts.data);
    w->insts.n += n_before;
    for (size_t i = 0; i < n_before; i++) {
        const nx_inst_t *finish = &w->insts.data[body_end + n_before + i];
        nx_inst_t fill = *finish;
        fill.code = NX_FILL;
        fill.n_src = 0;
        fill.dst = finish->src[0];
        fill.flag = (uint8_t)(nx_reduction(nx_stmt(w->p, finish->stmt)->op) - NX_SUM);
        w->insts.data[stage->body + i] = fill;
    }
    stage->body += (uint32_t)n_before;
    stage->finish = (uint32_t)(body_end + n_before);
    stage->end = (uint32_t)w->insts.n;
}

/* ---- registers ---- */

static size_t register_bytes(const writer_t *w, const nx_view_t *view) {
    size_t n = 1, size = view->type == NX_REAL && !w->pass->f64 ? 4 : 8;
    if (view->mode == NX_FULL || view->mode == NX_ROW) n *= (size_t)w->pass->rows;
    if (view->mode == NX_FULL || view->mode == NX_COL) n *= (size_t)w->pass->cols;
    return st_align_up(n * size, 64);
}

static bool repeated(const nx_inst_t *inst, uint32_t k) {
    for (uint32_t j = 0; j < k; j++)
        if (inst->src[j] == inst->src[k]) return true;
    return false;
}

/* May source k, read for the last time, give its place to the result of the same instruction? */
static bool gives_place(const writer_t *w, const nx_inst_t *inst, uint32_t k) {
    const nx_view_t *view = &w->views.data[inst->src[k]], *dst = &w->views.data[inst->dst];
    return inst->code < NX_LOAD && view->mode == dst->mode && view->type == dst->type &&
           !repeated(inst, k);
}

/* Places by last use; `list` keeps places to give again, the newest of the same points and type
 * first: elements of others would overlap where instructions run a part of the tile at a time. */
static void place_registers(writer_t *w) {
    typedef struct place {
        size_t offset, bytes;
        const nx_view_t *view; /* that had it */
    } place_t;
    size_t n = w->views.n, top = 0, n_free = 0;
    st_arena_t scratch = {0};
    uint32_t *last = st_arena_array(&scratch, n + 1, sizeof *last);
    bool *placed = st_arena_array(&scratch, n + 1, sizeof *placed);
    place_t *list = st_arena_array(&scratch, n + 1, sizeof *list);
    if (!last || !placed || !list) {
        w->p->status = st_no_memory(n * sizeof *list, "the plan of a nest");
        st_arena_clear(&scratch);
        return;
    }
    for (uint32_t i = 0; i < w->insts.n; i++) {
        const nx_inst_t *inst = &w->insts.data[i];
        for (uint32_t k = 0; k < inst->n_src; k++) last[inst->src[k]] = i;
    }
    for (uint32_t i = 0; i < w->insts.n; i++) /* accumulators and what comes of them stay */
        if (w->insts.data[i].code >= NX_FILL) last[w->insts.data[i].dst] = UINT32_MAX;
    for (uint32_t i = 0; i < w->insts.n; i++) {
        const nx_inst_t *inst = &w->insts.data[i];
        for (uint32_t k = 0; k < inst->n_src; k++) {
            nx_view_t *view = &w->views.data[inst->src[k]];
            if (view->space != NX_REGISTER || last[inst->src[k]] != i) continue;
            if (gives_place(w, inst, k))
                list[n_free++] = (place_t){(size_t)view->offset, register_bytes(w, view), view};
        }
        nx_view_t *dst = &w->views.data[inst->dst];
        if (dst->space == NX_REGISTER && !placed[inst->dst]) {
            size_t bytes = register_bytes(w, dst), at = n_free;
            while (at-- > 0 && (list[at].bytes != bytes || list[at].view->mode != dst->mode ||
                                list[at].view->type != dst->type)) {
            }
            if (at != SIZE_MAX) {
                dst->offset = (int64_t)list[at].offset;
                list[at] = list[--n_free];
            } else {
                dst->offset = (int64_t)top;
                top += bytes;
            }
            placed[inst->dst] = true;
        }
        for (uint32_t k = 0; k < inst->n_src; k++) {
            nx_view_t *view = &w->views.data[inst->src[k]];
            if (view->space == NX_REGISTER && last[inst->src[k]] == i && !gives_place(w, inst, k) &&
                !repeated(inst, k))
                list[n_free++] = (place_t){(size_t)view->offset, register_bytes(w, view), view};
        }
    }
    if (top > w->p->plan->register_bytes) w->p->plan->register_bytes = top;
    st_arena_clear(&scratch);
}

/* ---- the whole ---- */

static void write_stage(writer_t *w, nx_stage_t *stage) {
    nx_planner_t *p = w->p;
    stage->first = stage->body = (uint32_t)w->insts.n;
    collect(w);
    for (size_t i = 0; i < w->needed.n && p->status == ST_OK; i++) {
        uint32_t stmt = w->needed.data[i];
        const nest_store_t *store = own_store(w, stmt);
        write_stmt(w, stmt, store ? store_view(w, store) : NEST_NONE);
    }
    for (size_t i = 0; i < p->roots.n && p->status == ST_OK; i++) {
        const nx_root_t *root = &p->roots.data[i];
        if (root->pass == w->number && root->stage == w->stage && !root->store)
            write_reduction(w, root->index);
    }
    for (size_t i = 0; i < p->roots.n && p->status == ST_OK; i++) {
        const nx_root_t *root = &p->roots.data[i];
        if (root->pass == w->number && root->stage == w->stage && root->store)
            write_store(w, &p->nest->stores[root->index]);
    }
    write_slots(w);
    stage->finish = stage->end = (uint32_t)w->insts.n;
    write_ends(w, stage);
    if (w->pass->tiles == 1) return; /* registers keep what they have */
    for (size_t i = 0; i < w->shown.n; i++) p->view[w->shown.data[i]] = 0;
    w->shown.n = 0;
}

void nx_program(nx_planner_t *p, uint32_t number) {
    writer_t w = {.p = p, .number = number, .pass = &p->passes.data[number]};
    nx_pass_t *pass = w.pass;
    pass->stages = st_arena_array(&p->plan->arena, pass->n_stages, sizeof *pass->stages);
    if (!pass->stages) p->status = st_no_memory(pass->n_stages, "the plan of a nest");
    if (p->status == ST_OK) p->status = ST_VEC_RESERVE(&w.views, 1);
    if (p->status == ST_OK) w.views.data[0] = (nx_view_t){0};
    for (w.stage = 0; w.stage < pass->n_stages && p->status == ST_OK; w.stage++)
        write_stage(&w, &pass->stages[w.stage]);
    if (p->status == ST_OK) place_registers(&w);
    for (size_t i = 0; i < w.made.n; i++) p->view[w.made.data[i]] = 0;
    if (p->status == ST_OK) {
        pass->n_views = (uint32_t)w.views.n;
        pass->n_insts = (uint32_t)w.insts.n;
        pass->views = st_arena_array(&p->plan->arena, w.views.n + 1, sizeof *pass->views);
        pass->insts = st_arena_array(&p->plan->arena, w.insts.n + 1, sizeof *pass->insts);
        if (!pass->views || !pass->insts) {
            p->status = st_no_memory(w.views.n * sizeof *pass->views, "the plan of a nest");
        } else {
            if (w.views.n) memcpy(pass->views, w.views.data, w.views.n * sizeof *pass->views);
            if (w.insts.n) memcpy(pass->insts, w.insts.data, w.insts.n * sizeof *pass->insts);
        }
    }
    ST_VEC_FREE(&w.views);
    ST_VEC_FREE(&w.insts);
    ST_VEC_FREE(&w.needed);
    ST_VEC_FREE(&w.work);
    ST_VEC_FREE(&w.shown);
    ST_VEC_FREE(&w.made);
}
