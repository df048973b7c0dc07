/* The order of a nest (nest_order.h), and what may be written over what. */
#include "ir/nest_order.h"

#include <string.h>

static bool has(const uint64_t *set, uint32_t i) {
    return set[i / 64] >> (i % 64) & 1;
}
static void add(uint64_t *set, uint32_t i) {
    set[i / 64] |= (uint64_t)1 << (i % 64);
}
static void unite(uint64_t *set, const uint64_t *other, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) set[i] |= other[i];
}

static uint32_t n_reads(const nest_stmt_t *s) {
    return s->n_args + (s->access.index != NEST_NONE);
}
static uint32_t read_of(const nest_stmt_t *s, uint32_t i) {
    return i < s->n_args ? s->args[i] : s->access.index;
}

/* One for all points, computed once and kept. */
static bool is_kept(const nest_stmt_t *s) {
    return !s->mask && (s->kind == NEST_OP || s->kind == NEST_RANDOM || s->kind == NEST_REDUCE);
}

static uint64_t *needs_of(const nest_order_t *o, uint32_t stmt) {
    return o->needs + (size_t)stmt * o->need_words;
}
static uint64_t *sources_of(const nest_order_t *o, uint32_t stmt) {
    return o->sources + (size_t)stmt * o->source_words;
}

/* ---- building ---- */

/* Does computing statement `s` read the memory of `operand`, though `s` itself may be kept? */
static bool reads_operand(const nest_order_t *o, const nest_stmt_t *s, uint32_t operand) {
    if (s->kind == NEST_LOAD && s->access.tensor == operand) return true;
    for (uint32_t k = 0; k < n_reads(s); k++)
        if (has(sources_of(o, read_of(s, k)), operand)) return true;
    return false;
}

static void close_over_reads(const nest_t *nest, nest_order_t *o) {
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const nest_stmt_t *s = &nest->stmts[i];
        for (uint32_t k = 0; k < n_reads(s); k++) {
            uint32_t a = read_of(s, k);
            unite(needs_of(o, i), needs_of(o, a), o->need_words);
            if (nest->stmts[a].kind == NEST_REDUCE) add(needs_of(o, i), o->number[a]);
            if (!is_kept(s)) unite(sources_of(o, i), sources_of(o, a), o->source_words);
        }
        if (s->kind != NEST_LOAD || s->access.tensor == NEST_NONE) continue;
        uint32_t *load = &o->load[s->access.tensor];
        *load = *load == NEST_NONE ? i : NEST_SEVERAL;
        add(sources_of(o, i), s->access.tensor);
    }
}

/* Ops that one instruction may do together with the one that alone reads them. */
static bool may_move(const nest_stmt_t *s) {
    return s->kind == NEST_OP && (s->op == IR_OP_MUL || s->op == IR_OP_SUB || s->op == IR_OP_DIV ||
                                  s->op == IR_OP_SQRT || s->op == IR_OP_EXP || s->op == IR_OP_SILU);
}

/* Where each value is taken at the latest: by the statement after it that alone reads it, if it may
 * move there. */
static void place_takers(const nest_t *nest, nest_order_t *o, uint32_t *uses) {
    for (uint32_t i = 0; i < nest->n_stores; i++) uses[nest->stores[i].value]++;
    for (uint32_t i = nest->n_stmts; i-- > 0;) { /* users have come before */
        const nest_stmt_t *s = &nest->stmts[i];
        if (!may_move(s) || uses[i] != 1 || o->taken_at[i] == 0) o->taken_at[i] = i;
        for (uint32_t k = 0; k < n_reads(s); k++) {
            uint32_t a = read_of(s, k);
            uses[a] += k < s->n_args ? 1 : 2; /* an index is taken with nothing */
            o->taken_at[a] = o->taken_at[i];
            if (o->read_at[a] < o->taken_at[i]) o->read_at[a] = o->taken_at[i];
        }
    }
}

static void look_at_domains(const nest_t *nest, nest_order_t *o) {
    for (uint32_t i = 0; i < nest->n_stmts; i++)
        if (nest->stmts[i].kind == NEST_REDUCE) o->reduces[nest->stmts[i].domain] = true;
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        if (nest->stores[i].domain == NEST_NONE) continue;
        o->stores[nest->stores[i].domain]++;
        o->points[nest->stores[i].domain] |= nest->stores[i].mask;
    }
}

/* Zeros, or NULL. */
static void *zeros(nest_t *nest, size_t n, size_t bytes) {
    void *made = st_arena_array(&nest->arena, n + 1, bytes);
    if (made) memset(made, 0, (n + 1) * bytes);
    return made;
}

st_status_t nest_order_build(nest_t *nest) {
    size_t n = nest->n_stmts, n_domains = nest->n_domains;
    nest_order_t *o = zeros(nest, 1, sizeof *o);
    uint32_t *uses = st_calloc(n + 1, sizeof *uses);
    uint32_t n_reductions = 0;
    if (!o || !uses) goto fail;
    nest->order = o;
    o->number = zeros(nest, n, sizeof *o->number);
    o->taken_at = zeros(nest, n, sizeof *o->taken_at);
    o->read_at = zeros(nest, n, sizeof *o->read_at);
    o->load = zeros(nest, nest->n_operands, sizeof *o->load);
    o->stores = zeros(nest, n_domains, sizeof *o->stores);
    o->points = zeros(nest, n_domains, sizeof *o->points);
    o->reduces = zeros(nest, n_domains, sizeof *o->reduces);
    if (!o->number || !o->taken_at || !o->read_at || !o->load || !o->stores || !o->points ||
        !o->reduces)
        goto fail;
    for (uint32_t i = 0; i < n; i++)
        if (nest->stmts[i].kind == NEST_REDUCE) o->number[i] = n_reductions++;
    for (uint32_t j = 0; j < nest->n_operands; j++) o->load[j] = NEST_NONE;
    o->need_words = (n_reductions + 63) / 64;
    o->source_words = (nest->n_operands + 63) / 64;
    o->needs = zeros(nest, n * o->need_words, sizeof *o->needs);
    o->sources = zeros(nest, n * o->source_words, sizeof *o->sources);
    if (!o->needs || !o->sources) goto fail;
    close_over_reads(nest, o);
    place_takers(nest, o, uses);
    look_at_domains(nest, o);
    st_free(uses);
    return ST_OK;
fail:
    st_free(uses);
    return st_no_memory(n * sizeof *uses, "the order of a nest");
}

/* ---- results over operands ---- */

/* A word of the set of reductions that must be complete before the value of `stmt` is stored. */
static uint64_t store_needs(const nest_t *nest, uint32_t stmt, uint32_t word) {
    const nest_order_t *o = nest->order;
    uint64_t own = nest->stmts[stmt].kind == NEST_REDUCE && o->number[stmt] / 64 == word
                       ? (uint64_t)1 << (o->number[stmt] % 64)
                       : 0;
    return needs_of(o, stmt)[word] | own;
}

static bool same_place(const nest_access_t *a, const nest_access_t *b) {
    return ir_dtype_bytes(a->dtype) == ir_dtype_bytes(b->dtype) && a->index == NEST_NONE &&
           b->index == NEST_NONE && a->offset == b->offset &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* Results with axes: whatever reads the operand, at first hand or computing again, is a store made
 * together with this one. */
static bool stores_agree(const nest_t *nest, const nest_store_t *store, uint32_t operand) {
    const nest_order_t *o = nest->order;
    if (o->reduces[store->domain] || (o->points[store->domain] & ~store->mask)) return false;
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        const nest_store_t *other = &nest->stores[i];
        if (other == store || !has(sources_of(o, other->value), operand)) continue;
        if (other->mask != store->mask || o->stores[store->domain] > NEST_TOGETHER ||
            memcmp(other->access.stride, store->access.stride, sizeof store->access.stride) != 0)
            return false;
        for (uint32_t w = 0; w < o->need_words; w++)
            if (store_needs(nest, other->value, w) != store_needs(nest, store->value, w))
                return false;
    }
    return true;
}

/* One element: whatever reads it is an operation without axes, computed no later than this
 * result. */
static bool uniforms_agree(const nest_t *nest, const nest_store_t *store, uint32_t operand) {
    const nest_order_t *o = nest->order;
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const nest_stmt_t *s = &nest->stmts[i];
        if (s->kind == NEST_LOAD && s->access.tensor == operand) continue;
        if (!reads_operand(o, s, operand)) continue;
        if (!is_kept(s) || s->kind == NEST_REDUCE) return false;
        for (uint32_t w = 0; w < o->need_words; w++)
            if (needs_of(o, i)[w] & ~store_needs(nest, store->value, w)) return false;
    }
    return true;
}

bool nest_may_reuse(const nest_t *nest, uint32_t result, uint32_t operand) {
    const nest_order_t *o = nest->order;
    const nest_store_t *store = NULL;
    for (uint32_t i = 0; i < nest->n_stores; i++)
        if (nest->stores[i].access.tensor == result) store = &nest->stores[i];
    if (!store) return false;
    uint32_t load = o->load[operand];
    if (load == NEST_NONE) return true; /* nothing reads it */
    if (load == NEST_SEVERAL || o->read_at[load] > store->value) return false;
    const nest_stmt_t *from = &nest->stmts[load];
    if (!reads_operand(o, &nest->stmts[store->value], operand)) return false;
    if (from->domain != store->domain || from->mask != store->mask ||
        !same_place(&from->access, &store->access))
        return false;
    for (uint32_t i = 0; i < nest->n_stores; i++) /* stored from where it lies, at any time */
        if (nest->stores[i].value == load && &nest->stores[i] != store) return false;
    return !store->mask ? uniforms_agree(nest, store, operand) : stores_agree(nest, store, operand);
}
