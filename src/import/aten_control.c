/* PyTorch's control flow: torch.cond becomes cond; scan, map and while_loop become repeat.
 *
 *   cond(p, then, else, operands)               a p that is a Python bool leaves one branch, in
 *                                               place
 *   while_loop(test, body, carried, captured)   the number of turns has to follow from constants:
 *                                               the turns are counted by taking them (control.h)
 *   scan(body, carried, scanned, captured)      (carried, slices, captured) → (carried, stacked)
 *   map(body, scanned, captured)                a scan that carries nothing
 *
 * torch.export gives a graph all that it reads as operands, parameters too, in the order of
 * repeat's own; dims and directions are views and flips around the node. What a graph in a node may
 * not do, also there: change its operands; here, draw random numbers. */
#include <stdio.h>

#include "import/aten.h"
#include "import/control.h"
#include "ir/body.h"

enum { MOST = IMPORT_MOST_VALUES, MOST_TURNS = 100000 };

/* Operands of a node, and what its bodies see of them. */
typedef struct operands {
    size_t n;
    ir_value_t value[MOST];
    ir_type_t seen[MOST];
    bool depends[MOST]; /* on a parameter, differentiably */
} operands_t;

/* Adds the tensors of a list. Returns their number. */
static size_t add_list(aten_t *a, size_t index, bool slices, operands_t *o) {
    uint32_t *slots;
    const size_t n = aten_slots_at(a, index, &slots);
    if (aten_ok(a) && o->n + n > MOST)
        aten_fail(a, ST_UNSUPPORTED, "%zu operands, the limit is %d", o->n + n, MOST);
    for (size_t i = 0; i < n && aten_ok(a); i++, o->n++) {
        o->value[o->n] = aten_slot_value(a, slots[i]);
        o->depends[o->n] = aten_depends(a, o->value[o->n]);
        if (!aten_ok(a)) return 0;
        o->seen[o->n] = aten_type(a, o->value[o->n]);
        if (!slices) continue;
        if (o->seen[o->n].rank == 0)
            aten_fail(a, ST_INVALID, "operand %zu is a scalar: it has no slices", o->n);
        else
            o->seen[o->n] = ir_type_drop_first(&o->seen[o->n]);
    }
    return aten_ok(a) ? n : 0;
}

/* ---- bodies ---- */

/* What of the interpreter belongs to the graph that nodes go into. */
typedef struct place {
    ir_graph_t *graph;
    const char *name;
    bool in_body;
    bool *depends;
    size_t n_depends, cap_depends;
    import_knowns_t known;
} place_t;

static place_t take_place(const aten_t *a) {
    return (place_t){a->b.graph,   a->b.name,      a->in_body, a->depends.data,
                     a->depends.n, a->depends.cap, a->known};
}

static void put_place(aten_t *a, const place_t *place) {
    ST_VEC_FREE(&a->depends);
    ST_VEC_FREE(&a->known.values);
    a->b.graph = place->graph, a->b.name = place->name, a->in_body = place->in_body;
    a->depends.data = place->depends, a->depends.n = place->n_depends;
    a->depends.cap = place->cap_depends;
    a->known = place->known;
}

/* One input of the body for each operand. */
static void open_inputs(aten_t *a, const aten_nest_t *nest, const operands_t *o) {
    for (size_t j = 0; j < o->n && aten_ok(a); j++) {
        const char *name = aten_nest_input(a, nest, j);
        ir_value_t value = ir_b_body_input(&a->b, &o->seen[j]);
        if (aten_ok(a)) a->b.status = ST_VEC_PUSH(&a->depends, o->depends[j]);
        if (name) aten_bind_tensor(a, name, value);
    }
}

/* Its results; FAILs where an operand has been written to. */
static void close_outputs(aten_t *a, const aten_nest_t *nest, size_t n_operands,
                          size_t first_slot) {
    for (size_t j = 0; j < n_operands && aten_ok(a); j++) {
        const aten_storage_t *storage = &a->storages.data[a->slots.data[first_slot + j].storage];
        if (storage->version > 0)
            aten_fail(a, ST_UNSUPPORTED, "node '%s' in it changes '%s', which it is given",
                      storage->changed_by, storage->name);
    }
    for (size_t k = 0; k < aten_nest_n_outputs(nest) && aten_ok(a); k++) {
        aten_item_t item = aten_nest_output(a, nest, k);
        if (aten_ok(a) && item.kind != ATEN_TENSOR)
            aten_fail(a, ST_UNSUPPORTED, "result %zu of the graph in it is no tensor", k);
        ir_b_body_output(&a->b, aten_slot_value(a, item.slot));
    }
}

/* The graph that is argument `at`, as a body over the operands; NULL after a failure. */
static ir_graph_t *make_body(aten_t *a, size_t at, const operands_t *o) {
    aten_nest_t nest;
    ir_graph_t *body = NULL;
    if (!aten_nest_open(a, at, o->n, &nest)) return NULL;
    const place_t outside = take_place(a);
    const size_t first_slot = a->slots.n;
    a->b.status = ir_graph_create("", &body);
    if (aten_ok(a)) body->phase = outside.graph->phase;
    a->b.graph = body, a->b.name = NULL, a->in_body = true;
    a->depends.data = NULL, a->depends.n = a->depends.cap = 0;
    a->known = (import_knowns_t){.arena = a->arena, .left = &a->known_left};
    open_inputs(a, &nest, o);
    if (aten_ok(a)) aten_nest_run(a, &nest);
    close_outputs(a, &nest, o->n, first_slot);
    put_place(a, &outside);
    aten_nest_close(a, &nest);
    if (aten_ok(a) && body->outputs.n > MOST)
        aten_fail(a, ST_UNSUPPORTED, "%zu results, the limit is %d", body->outputs.n, MOST);
    if (aten_ok(a)) return body;
    ir_graph_destroy(body);
    return NULL;
}

/* ---- cond ---- */

/* The branch that a Python bool says, in place of the node. */
static void take_branch(aten_t *a, bool condition) {
    uint32_t *slots;
    const size_t n = aten_slots_at(a, 3, &slots);
    aten_item_t *items = st_arena_array(a->arena, n + 1, sizeof *items);
    if (aten_ok(a) && !items) a->b.status = st_no_memory(n * sizeof *items, "a condition");
    if (!aten_ok(a)) return;
    for (size_t i = 0; i < n; i++) items[i] = (aten_item_t){.kind = ATEN_TENSOR, .slot = slots[i]};
    aten_run_nested(a, condition ? 1 : 2, n, items, NULL);
}

void aten_cond(aten_t *a) {
    operands_t o = {0};
    ir_graph_t *bodies[2] = {NULL, NULL};
    aten_item_t condition = aten_item_at(a, 0);
    if (aten_ok(a) && condition.kind == ATEN_BOOL) {
        take_branch(a, condition.i != 0);
        return;
    }
    if (aten_ok(a) && condition.kind != ATEN_TENSOR)
        aten_fail(a, ST_UNSUPPORTED, "the condition is no tensor and no bool");
    if (!aten_ok(a)) return;
    const ir_type_t type = aten_type(a, condition.slot);
    a->b.status = import_check_condition(&type);
    add_list(a, 3, false, &o);
    bodies[0] = make_body(a, 1, &o);
    bodies[1] = make_body(a, 2, &o);
    ir_value_t first = import_cond(&a->b, condition.slot, o.n, o.value, bodies);
    for (size_t k = 0; aten_ok(a) && k < bodies[0]->outputs.n; k++)
        aten_return(a, first + (ir_value_t)k);
    for (int i = 0; i < 2; i++) ir_graph_destroy(bodies[i]);
}

/* ---- loops ---- */

/* FAILs unless the body's first results are the carried values' next ones. */
static void check_carried(aten_t *a, const ir_graph_t *body, const operands_t *o, size_t n) {
    char name[32];
    if (aten_ok(a) && body->outputs.n < n)
        aten_fail(a, ST_PARSE, "the loop carries %zu values, its graph gives %zu", n,
                  body->outputs.n);
    for (size_t k = 0; k < n && aten_ok(a); k++) {
        snprintf(name, sizeof name, "%zu", k);
        a->b.status = import_check_carried(name, &o->seen[k],
                                           ir_value_type(body, body->outputs.data[k].value));
    }
}

/* Slices of what is scanned, which all must have; 0 where nothing is. */
static int64_t trip_of(aten_t *a, const operands_t *o, size_t first, size_t n) {
    int64_t trip = 0;
    for (size_t j = first; j < first + n && aten_ok(a); j++) {
        const int64_t own = aten_type(a, o->value[j]).dims[0];
        if (j == first) trip = own;
        if (own != trip)
            aten_fail(a, ST_INVALID, "scanned operand %zu has %lld slices, the first has %lld",
                      j - first, (long long)own, (long long)trip);
    }
    if (aten_ok(a) && n == 0) aten_fail(a, ST_UNSUPPORTED, "nothing is scanned");
    return trip;
}

static ir_value_t add_loop(aten_t *a, const ir_graph_t *body, const operands_t *o, int64_t trip,
                           size_t n_carried, size_t n_scanned) {
    check_carried(a, body, o, n_carried);
    return import_repeat(&a->b, &(import_loop_t){.body = body,
                                                 .trip = trip,
                                                 .n = o->n,
                                                 .n_carried = n_carried,
                                                 .n_scanned = n_scanned,
                                                 .operands = o->value});
}

static void return_all(aten_t *a, const ir_graph_t *body, ir_value_t first) {
    for (size_t k = 0; aten_ok(a) && k < body->outputs.n; k++)
        aten_return(a, first + (ir_value_t)k);
}

/* What one turn carries to the next may depend on anything that a turn reads. */
static void spread_depends(operands_t *o, size_t n_carried) {
    bool any = false;
    for (size_t j = 0; j < o->n; j++) any |= o->depends[j];
    for (size_t j = 0; j < n_carried; j++)
        o->depends[j] |= any && ir_dtype_is_float(o->seen[j].dtype);
}

void aten_scan(aten_t *a) {
    operands_t o = {0};
    const size_t n_carried = add_list(a, 1, false, &o), n_scanned = add_list(a, 2, true, &o);
    add_list(a, 3, false, &o);
    const int64_t trip = trip_of(a, &o, n_carried, n_scanned);
    spread_depends(&o, n_carried);
    ir_graph_t *body = make_body(a, 0, &o);
    return_all(a, body, add_loop(a, body, &o, trip, n_carried, n_scanned));
    ir_graph_destroy(body);
}

void aten_map(aten_t *a) {
    operands_t o = {0};
    const size_t n_scanned = add_list(a, 1, true, &o);
    add_list(a, 2, false, &o);
    const int64_t trip = trip_of(a, &o, 0, n_scanned);
    ir_graph_t *body = make_body(a, 0, &o);
    return_all(a, body, add_loop(a, body, &o, trip, 0, n_scanned));
    ir_graph_destroy(body);
}

/* ---- while ---- */

static int64_t count_turns(aten_t *a, const ir_graph_t *test, const ir_graph_t *body,
                           const operands_t *o, size_t n_carried) {
    const void *known[MOST];
    int64_t turns = 0;
    check_carried(a, body, o, n_carried);
    if (!aten_ok(a)) return 0;
    if (test->outputs.n != 1) {
        aten_fail(a, ST_PARSE, "the loop's condition gives %zu results", test->outputs.n);
        return 0;
    }
    a->b.status = import_check_condition(ir_value_type(test, test->outputs.data[0].value));
    for (size_t j = 0; j < o->n && aten_ok(a); j++)
        a->b.status = import_known(&a->known, a->b.graph, o->value[j], &known[j]);
    if (aten_ok(a))
        a->b.status = import_count_turns(&(import_while_t){.test = test,
                                                           .body = body,
                                                           .n = o->n,
                                                           .n_carried = n_carried,
                                                           .operands = known,
                                                           .most = MOST_TURNS},
                                         &a->known_left, &turns);
    return turns;
}

void aten_while_loop(aten_t *a) {
    operands_t o = {0};
    const size_t n_carried = add_list(a, 2, false, &o);
    add_list(a, 3, false, &o);
    spread_depends(&o, n_carried);
    ir_graph_t *test = make_body(a, 0, &o), *body = make_body(a, 1, &o);
    const int64_t turns = count_turns(a, test, body, &o, n_carried);
    if (aten_ok(a) && body->outputs.n != n_carried)
        aten_fail(a, ST_PARSE, "the loop carries %zu values, its graph gives %zu", n_carried,
                  body->outputs.n);
    return_all(a, body, add_loop(a, body, &o, turns, n_carried, 0));
    ir_graph_destroy(test);
    ir_graph_destroy(body);
}
