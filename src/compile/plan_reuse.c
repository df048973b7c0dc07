/* The proof of writes in place (plan_reuse.h). */
#include "compile/plan_reuse.h"

#include <string.h>

#include "base/hash.h"
#include "ir/expand.h"
#include "ir/op.h"
#include "ir/structure.h"

enum { MAX_FACTORS = 24 };

typedef struct factor {
    int64_t extent, stride;
} factor_t;

/* Where in the operand the elements of a value come from. */
typedef struct map {
    bool raw; /* the operand itself, in another shape: who reads it reads memory */
    uint32_t n;
    factor_t factors[MAX_FACTORS];
} map_t;

struct plan_reuse {
    ir_graph_t *graph; /* composites expanded */
    st_arena_t arena;
    bool *live;        /* [nodes] an output needs it */
    bool *uniform;     /* [values] all elements are the same number */
    ir_value_t *same;  /* [values] the first value with these elements: of equal nodes, and the
                          value that a view or a cast between floats shows */
    ir_value_t *canon; /* [values] the value whose elements these are in another order */
    ir_node_t *taken;  /* [nodes] the last node that it may be computed with */
    uint32_t need_words;
    uint64_t *needs; /* [values][need_words] reductions that must be complete */
    plan_axes_t axes;
    ir_value_t *inputs;
    map_t **maps;       /* [values] of the operand at hand; NULL: not from it */
    st_arena_t scratch; /* maps */
};

static const ir_type_t *type_of(const plan_reuse_t *r, ir_value_t v) {
    return ir_value_type(r->graph, v);
}
static int64_t elements(const plan_reuse_t *r, ir_value_t v) {
    return ir_type_elements(type_of(r, v));
}
static ir_node_t producer(const plan_reuse_t *r, ir_value_t v) {
    return r->graph->values.data[v].producer;
}
static uint64_t *needs_of(const plan_reuse_t *r, ir_value_t v) {
    return r->needs + (size_t)r->same[v] * r->need_words;
}

static bool is_elementwise(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_ELEMENTWISE) != 0;
}
static bool is_reduction(ir_op_t op) {
    return (ir_op_def(op)->flags & IR_REDUCTION) != 0;
}

static bool walks_forward(const ir_node_info_t *node) {
    const ir_attr_t *step = ir_node_attr(node, "step");
    for (uint32_t i = 0; i < step->ints.n; i++)
        if (step->ints.v[i] < 0) return false;
    return true;
}

/* Does a transpose move only dims of one element? */
static bool keeps_order(const ir_type_t *in, const ir_attr_t *perm) {
    int64_t last = -1;
    for (int32_t i = 0; i < in->rank; i++) {
        if (in->dims[perm->ints.v[i]] == 1) continue;
        if (perm->ints.v[i] < last) return false;
        last = perm->ints.v[i];
    }
    return true;
}

/* Does the node show its input's elements in their order, computing nothing? */
static bool shows_input(const plan_reuse_t *r, const ir_node_info_t *node) {
    if (node->n_inputs == 0 || node->n_outputs != 1) return false;
    const ir_type_t *in = type_of(r, node->inputs[0]), *out = type_of(r, node->first_output);
    if (node->op == IR_OP_CAST)
        return in->dtype == out->dtype ||
               (ir_dtype_is_float(in->dtype) && ir_dtype_is_float(out->dtype));
    if (node->op == IR_OP_DROPOUT)
        return !ir_attr_int(node, "train") || ir_attr_float(node, "p") == 0;
    if (ir_type_elements(in) != ir_type_elements(out)) return false;
    if (node->op == IR_OP_TRANSPOSE) return keeps_order(in, ir_node_attr(node, "perm"));
    return node->op == IR_OP_RESHAPE || node->op == IR_OP_BROADCAST || is_reduction(node->op) ||
           (node->op == IR_OP_SLICE && walks_forward(node));
}

/* ---- equal values ---- */

/* Shapes say what the node does, not only its operands. */
static bool shapes_matter(const plan_reuse_t *r, const ir_node_info_t *node) {
    if (!is_elementwise(node)) return true;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (elements(r, node->inputs[j]) != elements(r, node->first_output)) return true;
    return false;
}

static uint64_t hash_type(const ir_type_t *type, uint64_t seed) {
    return st_hash64(type->dims, (size_t)type->rank * sizeof *type->dims,
                     seed + (uint64_t)type->dtype);
}

static uint64_t hash_node(const plan_reuse_t *r, const ir_node_info_t *node) {
    uint64_t hash = ir_attrs_hash(node->op, node->attrs, node->n_inputs);
    for (uint32_t j = 0; j < node->n_inputs; j++)
        hash = st_hash64(&r->same[node->inputs[j]], sizeof *r->same, hash);
    if (shapes_matter(r, node)) return hash_type(type_of(r, node->first_output), hash);
    return hash;
}

static bool nodes_equal(const plan_reuse_t *r, const ir_node_info_t *a, const ir_node_info_t *b) {
    if (a->op != b->op || a->n_inputs != b->n_inputs || !ir_attrs_equal(a->op, a->attrs, b->attrs))
        return false;
    const ir_type_t *x = type_of(r, a->first_output), *y = type_of(r, b->first_output);
    bool shapes = shapes_matter(r, a) || shapes_matter(r, b);
    if (x->dtype != y->dtype || (shapes && !ir_type_equal(x, y))) return false;
    for (uint32_t j = 0; j < a->n_inputs; j++) {
        x = type_of(r, a->inputs[j]);
        y = type_of(r, b->inputs[j]);
        if (r->same[a->inputs[j]] != r->same[b->inputs[j]] || (shapes && !ir_type_equal(x, y)))
            return false;
    }
    return true;
}

/* Sets same[]: through a hash table of nodes, open addressing, 0 empty. */
static st_status_t find_same(plan_reuse_t *r) {
    size_t n = 16;
    while (n < 2 * r->graph->nodes.n) n *= 2;
    uint32_t *slots = st_calloc(n, sizeof *slots);
    if (!slots) return st_no_memory(n * sizeof *slots, "the proof of a fused node");
    for (ir_node_t i = 0; i < r->graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(r->graph, i);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            r->same[node->first_output + k] = node->first_output + k;
        if (!r->live[i] || node->op == IR_OP_INPUT || node->n_outputs != 1) continue;
        if (shows_input(r, node)) {
            r->same[node->first_output] = r->same[node->inputs[0]];
            continue;
        }
        size_t at = (size_t)hash_node(r, node) & (n - 1);
        while (slots[at] && !nodes_equal(r, ir_node(r->graph, slots[at] - 1), node))
            at = (at + 1) & (n - 1);
        if (slots[at])
            r->same[node->first_output] = ir_node(r->graph, slots[at] - 1)->first_output;
        else
            slots[at] = i + 1;
    }
    st_free(slots);
    return ST_OK;
}

/* Is it the first of its equals, and no view? */
static bool computes(const plan_reuse_t *r, ir_node_t i) {
    const ir_node_info_t *node = ir_node(r->graph, i);
    return r->live[i] &&
           (node->n_outputs != 1 || r->same[node->first_output] == node->first_output);
}
/* The value that is computed for `v`: an equal, one in another order, or what is broadcast. */
static ir_value_t computed(const plan_reuse_t *r, ir_value_t v) {
    for (;;) {
        v = r->canon[r->same[v]];
        const ir_node_info_t *node = ir_value_producer(r->graph, v);
        if (node->op != IR_OP_BROADCAST) return v;
        v = node->inputs[0];
    }
}
/* The same of those in another order: only that one reads its operands. */
static bool is_canon(const plan_reuse_t *r, ir_node_t i) {
    const ir_node_info_t *node = ir_node(r->graph, i);
    return computes(r, i) &&
           (node->n_outputs != 1 || computed(r, node->first_output) == node->first_output);
}

/* ---- the body ---- */

static void find_live(plan_reuse_t *r) {
    const ir_graph_t *g = r->graph;
    for (size_t k = 0; k < g->outputs.n; k++) r->live[producer(r, g->outputs.data[k].value)] = true;
    for (ir_node_t i = (ir_node_t)g->nodes.n; i-- > 0;)
        for (uint32_t j = 0; r->live[i] && j < ir_node(g, i)->n_inputs; j++)
            r->live[producer(r, ir_node(g, i)->inputs[j])] = true;
}

static void find_needs(plan_reuse_t *r) {
    uint32_t number = 0;
    for (ir_node_t i = 0; i < r->graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(r->graph, i);
        if (!computes(r, i)) continue;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            uint64_t *needs = needs_of(r, node->first_output + k);
            for (uint32_t j = 0; j < node->n_inputs; j++)
                for (uint32_t w = 0; w < r->need_words; w++)
                    needs[w] |= needs_of(r, node->inputs[j])[w];
            if (is_reduction(node->op)) needs[number / 64] |= (uint64_t)1 << (number % 64);
        }
        number += is_reduction(node->op);
    }
}

/* Does it count nothing: along one element, or by steps of zero from a whole number? */
static bool stands_still(const plan_reuse_t *r, const ir_node_info_t *iota) {
    const double start = ir_attr_float(iota, "start"), limit = 0x1p52;
    const bool whole = start > -limit && start < limit && start == (double)(int64_t)start;
    return type_of(r, iota->first_output)->dims[ir_attr_int(iota, "axis")] == 1 ||
           (whole && ir_attr_float(iota, "step") == 0);
}

static void find_uniform(plan_reuse_t *r) {
    for (ir_node_t i = 0; i < r->graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(r->graph, i);
        bool all = node->n_inputs > 0 &&
                   (is_elementwise(node) || shows_input(r, node) || node->op == IR_OP_BROADCAST ||
                    node->op == IR_OP_TRANSPOSE || is_reduction(node->op));
        for (uint32_t j = 0; j < node->n_inputs; j++) all &= r->uniform[node->inputs[j]];
        if (node->op == IR_OP_CONSTANT)
            all = ir_node_attr(node, "data")->data.bytes <=
                  ir_dtype_bytes(type_of(r, node->first_output)->dtype);
        if (node->op == IR_OP_IOTA) all = stands_still(r, node);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            r->uniform[node->first_output + k] = all || elements(r, node->first_output + k) == 1;
    }
}

/* A kernel that runs over more points than the result has takes an element several times, and one
 * that reduces among them comes back to it. */
static bool points_are_own(const plan_reuse_t *r, ir_value_t result) {
    const ir_graph_t *g = r->graph;
    for (ir_node_t i = 0; i < g->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(g, i);
        if (r->live[i] && is_reduction(node->op) && !shows_input(r, node) &&
            !r->uniform[node->inputs[0]] && plan_axes_meet(&r->axes, node->inputs[0], result))
            return false;
    }
    for (size_t o = 0; o < g->outputs.n; o++) {
        ir_value_t v = g->outputs.data[o].value;
        if (plan_axes_meet(&r->axes, v, result) && !plan_axes_within(&r->axes, v, result))
            return false;
    }
    return true;
}

/* Ops that kernels may take together with the one node that reads them, in one instruction; not
 * those whose result is rounded to 16 bits first, as the body's own nodes' are, but not what
 * composites make on the way (ir/nest.h). */
static bool goes_with_reader(const plan_reuse_t *r, const ir_node_info_t *node) {
    const ir_op_t op = node->op;
    if (op != IR_OP_MUL && op != IR_OP_SUB && op != IR_OP_DIV && op != IR_OP_SQRT &&
        op != IR_OP_EXP && op != IR_OP_SILU)
        return false;
    const ir_dtype_t dtype = type_of(r, node->first_output)->dtype;
    return !node->origin || (dtype != IR_BF16 && dtype != IR_F16);
}

static st_status_t find_taken(plan_reuse_t *r) {
    const ir_graph_t *g = r->graph;
    uint32_t *uses = st_calloc(g->values.n + 1, sizeof *uses);
    ir_node_t *user = st_calloc(g->values.n + 1, sizeof *user);
    if (uses && user) {
        for (size_t k = 0; k < g->outputs.n; k++) uses[computed(r, g->outputs.data[k].value)]++;
        for (ir_node_t i = (ir_node_t)g->nodes.n; i-- > 0;) {
            const ir_node_info_t *node = ir_node(g, i);
            r->taken[i] = i;
            if (goes_with_reader(r, node) && uses[node->first_output] == 1 &&
                user[node->first_output])
                r->taken[i] = r->taken[user[node->first_output]];
            if (!is_canon(r, i)) continue;
            for (uint32_t j = 0; j < node->n_inputs; j++) {
                uses[computed(r, node->inputs[j])]++;
                user[computed(r, node->inputs[j])] = i;
            }
        }
    }
    bool made = uses && user;
    st_free(uses);
    st_free(user);
    return made ? ST_OK : st_no_memory(g->values.n * sizeof *uses, "the proof of a fused node");
}

/* Zeros, at least one. */
static void *zeros(st_arena_t *arena, size_t n, size_t bytes) {
    void *made = st_arena_array(arena, n + 1, bytes);
    if (made) memset(made, 0, (n + 1) * bytes);
    return made;
}

static st_status_t look_at(plan_reuse_t *r) {
    const ir_graph_t *g = r->graph;
    uint32_t n_reductions = 0, n_inputs = 0;
    r->live = zeros(&r->arena, g->nodes.n, sizeof *r->live);
    r->taken = zeros(&r->arena, g->nodes.n, sizeof *r->taken);
    r->inputs = zeros(&r->arena, g->nodes.n, sizeof *r->inputs);
    r->uniform = zeros(&r->arena, g->values.n, sizeof *r->uniform);
    r->same = zeros(&r->arena, g->values.n, sizeof *r->same);
    r->canon = zeros(&r->arena, g->values.n, sizeof *r->canon);
    r->maps = zeros(&r->arena, g->values.n, sizeof *r->maps);
    if (!r->canon || !r->live || !r->taken || !r->inputs || !r->uniform || !r->same || !r->maps)
        return st_no_memory(g->values.n * sizeof *r->maps, "the proof of a fused node");
    for (ir_node_t i = 0; i < g->nodes.n; i++) {
        n_reductions += is_reduction(ir_node(g, i)->op);
        if (ir_node(g, i)->op == IR_OP_INPUT) r->inputs[n_inputs++] = ir_node(g, i)->first_output;
    }
    r->need_words = (n_reductions + 63) / 64;
    r->needs = zeros(&r->arena, g->values.n * r->need_words, sizeof *r->needs);
    if (!r->needs) return st_no_memory(g->values.n * 8, "the proof of a fused node");
    find_live(r);
    TRY(find_same(r));
    TRY(plan_find_turned(g, r->live, r->same, r->canon));
    find_uniform(r);
    TRY(plan_axes_find(g, r->live, &r->arena, &r->axes));
    find_needs(r);
    return find_taken(r);
}

st_status_t plan_reuse_open(const ir_graph_t *body, plan_reuse_t **out_reuse) {
    *out_reuse = NULL;
    plan_reuse_t *r = st_calloc(1, sizeof *r);
    if (!r) return st_no_memory(sizeof *r, "the proof of a fused node");
    st_status_t status = ir_expand_definitions(body, &r->graph);
    if (status == ST_OK) status = look_at(r);
    if (status != ST_OK) {
        plan_reuse_close(r);
        return status;
    }
    *out_reuse = r;
    return ST_OK;
}

void plan_reuse_close(plan_reuse_t *r) {
    if (!r) return;
    ir_graph_destroy(r->graph);
    st_arena_clear(&r->arena);
    st_arena_clear(&r->scratch);
    st_free(r);
}

/* ---- elements ---- */

static bool maps_equal(const map_t *a, const map_t *b) {
    return a->n == b->n && memcmp(a->factors, b->factors, a->n * sizeof *a->factors) == 0;
}

/* In the operand's order? */
static bool is_identity(const map_t *map, int64_t n) {
    return n == 1 || (map->n == 1 && map->factors[0].extent == n && map->factors[0].stride == 1);
}

static bool put(map_t *map, int64_t extent, int64_t stride) {
    factor_t *last = map->n ? &map->factors[map->n - 1] : NULL;
    if (extent == 1) return true;
    if (last && last->stride == stride * extent) {
        *last = (factor_t){last->extent * extent, stride};
        return true;
    }
    if (map->n == MAX_FACTORS) return false;
    map->factors[map->n++] = (factor_t){extent, stride};
    return true;
}

/* The factors of each dim of `type` in reverse, dim d's at first[d]; false: a dim ends within
 * one. */
static bool split(const map_t *map, const ir_type_t *type, map_t *out, uint32_t *first) {
    uint32_t at = map->n;
    factor_t rest = {1, 1};
    out->n = 0;
    for (int32_t d = type->rank; d-- > 0;) {
        first[d] = out->n;
        for (int64_t left = type->dims[d]; left > 1;) {
            if (rest.extent == 1) rest = at ? map->factors[--at] : rest;
            if (rest.extent == 1 || out->n == MAX_FACTORS) return false;
            int64_t part = rest.extent < left ? rest.extent : left;
            if (rest.extent % part || left % part) return false;
            out->factors[out->n++] = (factor_t){part, rest.stride};
            rest = (factor_t){rest.extent / part, rest.stride * part};
            left /= part;
        }
    }
    return true;
}

static bool transpose(const map_t *map, const ir_type_t *type, const ir_attr_t *perm, map_t *out) {
    map_t parts;
    uint32_t first[IR_MAX_RANK + 1];
    if (!split(map, type, &parts, first)) return false;
    out->n = 0;
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t d = perm->ints.v[i];
        uint32_t end = d ? first[d - 1] : parts.n;
        for (uint32_t f = end; f-- > first[d];)
            if (!put(out, parts.factors[f].extent, parts.factors[f].stride)) return false;
    }
    return true;
}

/* ---- the walk ---- */

typedef struct walk {
    plan_reuse_t *r;
    ir_value_t result, operand;
    ir_node_t made_by; /* the result's node, behind views */
    bool reached;      /* the result is computed from the operand */
    bool any;          /* anything is */
    st_status_t status;
} walk_t;

static void set_map(walk_t *w, ir_value_t v, const map_t *map) {
    map_t *copy = st_arena_copy(&w->r->scratch, map, sizeof *map);
    if (!copy) w->status = st_no_memory(sizeof *map, "the proof of a fused node");
    w->r->maps[v] = copy;
}

/* Is what `v` needs also what the result needs; all of it, with `exactly`? */
static bool needs_agree(const walk_t *w, ir_value_t v, bool exactly) {
    for (uint32_t i = 0; i < w->r->need_words; i++) {
        uint64_t a = needs_of(w->r, v)[i], b = needs_of(w->r, w->result)[i];
        if ((a & ~b) || (exactly && a != b)) return false;
    }
    return true;
}

/* Input j of node i is computed from the operand; false: that ends the proof. */
static bool step(walk_t *w, ir_node_t i, uint32_t j) {
    plan_reuse_t *r = w->r;
    const ir_node_info_t *node = ir_node(r->graph, i);
    const ir_value_t in = node->inputs[j], out = node->first_output;
    map_t map = *r->maps[in];
    const bool one = elements(r, w->operand) == 1;
    bool shown = shows_input(r, node) && j == 0;
    if (node->n_outputs != 1) return false;
    if (shown || (one && node->op == IR_OP_BROADCAST)) {
        set_map(w, out, &map);
        return true;
    }
    if (shows_input(r, node)) return true; /* seeds of a dropout that drops nothing */
    if (node->op == IR_OP_TRANSPOSE) {
        map_t turned = map;
        if (!one && !transpose(&map, type_of(r, in), ir_node_attr(node, "perm"), &turned))
            return false;
        set_map(w, out, &turned);
        return true;
    }
    const bool index = (node->op == IR_OP_GATHER || node->op == IR_OP_GATHER_ALONG) && j == 1;
    const bool random = node->op == IR_OP_RANDOM_UNIFORM && one;
    if (!is_elementwise(node) && !index && !random && !(node->op == IR_OP_DROPOUT && j == 0))
        return false;
    if (map.raw && is_canon(r, i) && r->taken[i] > w->made_by) return false;
    if (one) { /* computed once: from here on nothing reads the operand */
        w->reached |= r->same[out] == r->same[w->result];
        return r->uniform[out] && needs_agree(w, out, false);
    }
    if (elements(r, in) != elements(r, out)) return false;
    map.raw = false;
    if (r->maps[out]) return maps_equal(r->maps[out], &map);
    set_map(w, out, &map);
    return true;
}

static bool walk_nodes(walk_t *w) {
    plan_reuse_t *r = w->r;
    for (ir_node_t i = 0; i < r->graph->nodes.n && w->status == ST_OK; i++) {
        const ir_node_info_t *node = ir_node(r->graph, i);
        if (!r->live[i] || (node->n_outputs == 1 && elements(r, node->first_output) == 0)) continue;
        for (uint32_t j = 0; j < node->n_inputs && w->status == ST_OK; j++) {
            if (!r->maps[node->inputs[j]]) continue;
            w->any = true;
            if (!step(w, i, j)) return false;
        }
    }
    return true;
}

static bool outputs_agree(walk_t *w, uint32_t k) {
    const ir_graph_t *g = w->r->graph;
    for (uint32_t o = 0; o < g->outputs.n; o++) {
        ir_value_t v = g->outputs.data[o].value;
        const map_t *map = w->r->maps[v];
        if (!map) continue;
        w->any = true;
        w->reached |= o == k;
        if (o != k && (map->raw || !needs_agree(w, v, true))) return false;
        if (!is_identity(map, elements(w->r, v))) return false;
    }
    return w->reached || !w->any;
}

st_status_t plan_reuse_allows(plan_reuse_t *r, uint32_t k, uint32_t j, bool *out_allows) {
    walk_t w = {.r = r, .result = r->graph->outputs.data[k].value, .operand = r->inputs[j]};
    const int64_t n = elements(r, w.operand);
    const map_t start = {.raw = true, .n = n > 1, .factors = {{n, 1}}};
    *out_allows = false;
    w.made_by = producer(r, computed(r, w.result));
    if (elements(r, w.result) != n ||
        ir_dtype_bytes(type_of(r, w.result)->dtype) != ir_dtype_bytes(type_of(r, w.operand)->dtype))
        return ST_OK;
    memset(r->maps, 0, r->graph->values.n * sizeof *r->maps);
    if (r->live[producer(r, w.operand)]) set_map(&w, w.operand, &start);
    *out_allows = w.status == ST_OK && walk_nodes(&w) && outputs_agree(&w, k) &&
                  (!w.any || n == 1 || points_are_own(r, w.result));
    st_arena_clear(&r->scratch);
    return w.status;
}
