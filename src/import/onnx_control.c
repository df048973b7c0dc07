/* ONNX's control flow: If becomes cond, Scan and Loop become repeat.
 *
 *   If     a condition that is known leaves one branch, which goes where the node stood; else both
 *          are bodies over what either reads
 *   Loop   the trip count has to be known, and the condition to stay true (or false from the first
 *          turn on); the turn's number is scanned
 *   Scan   axes and directions are those of the operands and results around the loop: transposes
 *          and flips */
#include <math.h>
#include <string.h>

#include "import/control.h"
#include "import/onnx_reader.h"
#include "ir/body.h"

enum { MOST_VALUES = IMPORT_MOST_VALUES };

static const Onnx__GraphProto *graph_of(onnx_t *o, const char *name, size_t n_inputs,
                                        size_t n_outputs) {
    const Onnx__AttributeProto *a = onnx_attribute(o, name);
    if (onnx_ok(o) && (!a || !a->g)) onnx_fail(o, ST_PARSE, "attribute '%s' is no graph", name);
    if (onnx_ok(o) && (a->g->n_input != n_inputs || a->g->n_output != n_outputs))
        onnx_fail(o, ST_INVALID,
                  "the graph '%s' has %zu inputs and %zu outputs, %zu and %zu belong to the node",
                  name, a->g->n_input, a->g->n_output, n_inputs, n_outputs);
    return onnx_ok(o) ? a->g : NULL;
}

/* ---- If ---- */

/* The branch in place of the node. */
static void take_branch(onnx_t *o, const Onnx__GraphProto *graph) {
    onnx_t in;
    ir_value_t out[MOST_VALUES];
    onnx_scope_open(o, graph, true, &in);
    if (onnx_run_graph(&in) == ST_OK)
        for (size_t k = 0; k < graph->n_output; k++) out[k] = onnx_graph_output(&in, k);
    bool made = onnx_ok(&in);
    onnx_scope_close(o, &in);
    for (size_t k = 0; made && k < graph->n_output; k++) onnx_return(o, out[k]);
}

/* The body of a branch over all that both read: `all` for the node's operands. */
static void widen(onnx_t *o, onnx_t *branch, size_t n, const ir_value_t *all,
                  ir_graph_t **out_body) {
    ir_build_t b = {0};
    st_status_t status = ir_graph_create("", &b.graph);
    ir_value_t *in = st_arena_array(o->arena, branch->captures.n + 1, sizeof *in);
    ir_value_t out[MOST_VALUES];
    if (status == ST_OK && !in) status = st_no_memory(branch->captures.n * sizeof *in, "a branch");
    for (size_t i = 0; i < n && status == ST_OK; i++) {
        ir_type_t type = onnx_type(o, all[i]);
        ir_value_t mine = ir_b_body_input(&b, &type);
        for (size_t c = 0; c < branch->captures.n; c++)
            if (branch->captures.data[c].outside == all[i]) in[c] = mine;
        status = b.status;
    }
    if (status == ST_OK) status = ir_body_inline(b.graph, branch->b.graph, in, out);
    for (size_t k = 0; k < branch->b.graph->outputs.n && status == ST_OK; k++) {
        ir_b_body_output(&b, out[k]);
        status = b.status;
    }
    if (status != ST_OK) {
        ir_graph_destroy(b.graph);
        b.graph = NULL;
        if (onnx_ok(o)) o->b.status = status;
    }
    *out_body = b.graph;
}

static void make_branch(onnx_t *branch) {
    if (onnx_run_graph(branch) != ST_OK) return;
    for (size_t k = 0; k < branch->graph->n_output; k++)
        ir_b_body_output(&branch->b, onnx_graph_output(branch, k));
}

static void take_both(onnx_t *o, ir_value_t condition, const Onnx__GraphProto *const graphs[2]) {
    onnx_t in[2];
    ir_graph_t *bodies[2] = {NULL, NULL};
    ir_value_t *all = NULL;
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        onnx_scope_open(o, graphs[i], false, &in[i]);
        if (onnx_ok(o) && onnx_ok(&in[i])) make_branch(&in[i]);
        if (onnx_ok(o)) o->b.status = in[i].b.status;
    }
    if (onnx_ok(o)) {
        all = st_arena_array(o->arena, in[0].captures.n + in[1].captures.n + 1, sizeof *all);
        if (!all) o->b.status = st_no_memory(0, "a condition");
    }
    for (int i = 0; i < 2 && onnx_ok(o); i++)
        for (size_t c = 0; c < in[i].captures.n; c++) {
            size_t at = 0;
            while (at < n && all[at] != in[i].captures.data[c].outside) at++;
            if (at == n) all[n++] = in[i].captures.data[c].outside;
        }
    for (int i = 0; i < 2 && onnx_ok(o); i++) widen(o, &in[i], n, all, &bodies[i]);
    ir_value_t first = import_cond(&o->b, condition, n, all, bodies);
    for (int i = 1; i >= 0; i--) {
        onnx_scope_close(o, &in[i]);
        ir_graph_destroy(bodies[i]);
    }
    for (size_t k = 0; onnx_ok(o) && k < graphs[0]->n_output; k++)
        onnx_return(o, first + (ir_value_t)k);
}

void onnx_if(onnx_t *o) {
    ir_value_t condition = onnx_in(o, 0);
    const size_t n = o->node->n_output;
    const Onnx__GraphProto *const graphs[2] = {graph_of(o, "then_branch", 0, n),
                                               graph_of(o, "else_branch", 0, n)};
    if (!onnx_ok(o)) return;
    ir_type_t type = onnx_type(o, condition);
    o->b.status = import_check_condition(&type);
    if (!onnx_ok(o)) return;
    if (n > MOST_VALUES) {
        onnx_fail(o, ST_UNSUPPORTED, "%zu outputs, the limit is %d", n, MOST_VALUES);
        return;
    }
    const unsigned char *known = onnx_known(o, condition);
    if (known)
        take_branch(o, graphs[*known ? 0 : 1]);
    else if (onnx_ok(o))
        take_both(o, condition, graphs);
}

/* ---- loops ---- */

typedef struct loop {
    onnx_t in;
    int64_t trip;
    size_t n_carried, n_scanned, n_stacked;
    ir_value_t operand[MOST_VALUES]; /* carried, scanned; those that are captured come behind */
    bool reverse;
} loop_t;

/* Inputs of the body, in the order of the operands so far. */
static ir_value_t open_input(onnx_t *o, loop_t *l, size_t j) {
    ir_type_t type = onnx_type(o, l->operand[j]);
    if (j >= l->n_carried) type = ir_type_drop_first(&type);
    return ir_b_body_input(&l->in.b, &type);
}

/* The body's outputs from `from` on are the carries, then the stacks. FAILs naming a carry that
 * does not stay what it was. */
static void close_outputs(onnx_t *o, loop_t *l, size_t from) {
    for (size_t k = 0; k < l->n_carried + l->n_stacked && onnx_ok(&l->in); k++) {
        ir_value_t made = onnx_graph_output(&l->in, from + k);
        if (!onnx_ok(&l->in)) return;
        ir_type_t type = onnx_type(&l->in, made);
        ir_type_t before = k < l->n_carried ? onnx_type(o, l->operand[k]) : type;
        l->in.b.status = import_check_carried(l->in.graph->output[from + k]->name, &before, &type);
        ir_b_body_output(&l->in.b, made);
    }
}

/* Appends the loop; its first result, IR_NONE after a failure. */
static ir_value_t add_repeat(onnx_t *o, loop_t *l) {
    const size_t own = l->n_carried + l->n_scanned, n = own + l->in.captures.n;
    ir_value_t *operand = st_arena_array(o->arena, n + 1, sizeof *operand);
    if (onnx_ok(o)) o->b.status = l->in.b.status;
    if (onnx_ok(o) && !operand) o->b.status = st_no_memory(n * sizeof *operand, "a loop");
    if (!onnx_ok(o)) return IR_NONE;
    for (size_t j = 0; j < n; j++)
        operand[j] = j < own ? l->operand[j] : l->in.captures.data[j - own].outside;
    return import_repeat(&o->b, &(import_loop_t){.body = l->in.b.graph,
                                                 .trip = l->trip,
                                                 .n = n,
                                                 .n_carried = l->n_carried,
                                                 .n_scanned = l->n_scanned,
                                                 .operands = operand,
                                                 .reverse = l->reverse});
}

static bool fits(onnx_t *o, size_t n) {
    if (onnx_ok(o) && n > MOST_VALUES - 1)
        onnx_fail(o, ST_UNSUPPORTED, "%zu inputs and outputs, the limit is %d", n, MOST_VALUES - 1);
    return onnx_ok(o);
}

/* How often a Loop runs at most: its first input, or 1 where the condition never lets it go on. */
static bool read_trip(onnx_t *o, int64_t *out_trip) {
    *out_trip = INT64_MAX;
    if (!onnx_has_input(o, 0)) return onnx_ok(o);
    ir_value_t value = onnx_in_setting(o, 0);
    if (!onnx_ok(o)) return false;
    ir_type_t type = onnx_type(o, value);
    const void *data = onnx_known(o, value);
    if (onnx_ok(o) && (!data || type.dtype != IR_I64 || ir_type_elements(&type) != 1))
        onnx_fail(o, ST_UNSUPPORTED,
                  "the trip count '%.128s' is computed from data: a plan needs one that is known, "
                  "so export with a fixed one",
                  o->node->input[0]);
    if (onnx_ok(o)) memcpy(out_trip, data, sizeof *out_trip);
    if (*out_trip < 0) *out_trip = 0;
    return onnx_ok(o);
}

/* The condition before the first turn: absent means true. */
static bool read_condition(onnx_t *o) {
    if (!onnx_has_input(o, 1)) return true;
    const unsigned char *known = onnx_known(o, onnx_in_setting(o, 1));
    if (onnx_ok(o) && !known)
        onnx_fail(o, ST_UNSUPPORTED,
                  "whether it runs at all ('%.128s') is computed from data: a plan needs a number "
                  "of turns that is known",
                  o->node->input[1]);
    return onnx_ok(o) && *known;
}

/* Narrows the trip count by what the body says of another turn. */
static void read_next(onnx_t *o, loop_t *l) {
    ir_value_t next = onnx_graph_output(&l->in, 0);
    const unsigned char *known = onnx_ok(&l->in) ? onnx_known(&l->in, next) : NULL;
    if (!onnx_ok(&l->in)) return;
    if (!known)
        onnx_fail(&l->in, ST_UNSUPPORTED,
                  "whether there is another turn ('%.128s') is computed from data: a plan needs a "
                  "number of turns that is known, so export with a fixed one",
                  l->in.graph->output[0]->name);
    else if (!*known && l->trip > 1)
        l->trip = 1;
    else if (l->trip == INT64_MAX)
        onnx_fail(&l->in, ST_INVALID,
                  "it never ends: there is no trip count, and the condition "
                  "stays true");
    (void)o;
}

void onnx_loop(onnx_t *o) {
    loop_t l = {.n_carried = onnx_n_inputs(o) > 2 ? onnx_n_inputs(o) - 2 : 0};
    const Onnx__AttributeProto *body = onnx_attribute(o, "body");
    if (!fits(o, onnx_n_inputs(o) + o->node->n_output)) return;
    if (body && body->g && body->g->n_output > l.n_carried)
        l.n_stacked = body->g->n_output - 1 - l.n_carried;
    const Onnx__GraphProto *graph =
        graph_of(o, "body", l.n_carried + 2, l.n_carried + l.n_stacked + 1);
    if (!graph || !read_trip(o, &l.trip) || !fits(o, graph->n_output + l.n_carried)) return;
    if (!read_condition(o)) l.trip = 0;
    for (size_t j = 0; j < l.n_carried; j++) l.operand[j] = onnx_in(o, 2 + j);
    if (!onnx_ok(o)) return;
    onnx_scope_open(o, graph, false, &l.in);
    if (onnx_ok(&l.in)) {
        const ir_type_t counter = ir_type_scalar(IR_I64);
        for (size_t j = 0; j < l.n_carried; j++) onnx_bind(&l.in, 2 + j, open_input(o, &l, j));
        onnx_bind(&l.in, 0, ir_b_body_input(&l.in.b, &counter));
        onnx_bind(&l.in, 1, ir_b_scalar(&l.in.b, IR_BOOL, 1));
        if (onnx_ok(&l.in)) l.in.b.status = onnx_run_graph(&l.in);
        if (l.trip > 0) read_next(o, &l);
        close_outputs(o, &l, 1);
        if (onnx_ok(&l.in) && onnx_ok(o)) {
            ir_type_t turns = ir_type_add_first(&counter, l.trip);
            l.operand[l.n_carried] = ir_b_iota(&o->b, turns, 0, 0, 1);
            l.n_scanned = 1;
        }
    }
    ir_value_t first = add_repeat(o, &l);
    onnx_scope_close(o, &l.in);
    for (size_t k = 0; onnx_ok(o) && k < l.n_carried + l.n_stacked; k++)
        onnx_return(o, first + (ir_value_t)k);
}

/* ---- Scan ---- */

/* Entry i of a list that may be absent or has to have n entries. */
static int64_t entry(onnx_t *o, const char *name, size_t i, size_t n) {
    int64_t list[ONNX_MAX_LIST];
    int32_t given = onnx_ints(o, name, list);
    if (!onnx_ok(o) || given < 0) return 0;
    if ((size_t)given != n) {
        onnx_fail(o, ST_INVALID, "attribute '%s' has %d entries, %zu are needed", name, given, n);
        return 0;
    }
    return list[i];
}

static bool is_backward(onnx_t *o, const char *name, size_t i, size_t n) {
    int64_t direction = entry(o, name, i, n);
    if (onnx_ok(o) && direction != 0 && direction != 1)
        onnx_fail(o, ST_INVALID, "attribute '%s' is %lld, 0 or 1 is needed", name,
                  (long long)direction);
    return direction == 1;
}

/* Dim `from` at the place `to`. */
static ir_value_t move_dim(onnx_t *o, ir_value_t x, int32_t from, int32_t to) {
    int64_t perm[IR_MAX_RANK];
    const int32_t rank = onnx_type(o, x).rank;
    int32_t at = 0;
    if (!onnx_ok(o) || from == to) return x;
    for (int32_t d = 0; d < rank; d++) {
        if (d == to) {
            perm[d] = from;
            continue;
        }
        if (at == from) at++;
        perm[d] = at++;
    }
    return ir_b_transpose(&o->b, x, perm);
}

static ir_value_t flipped(onnx_t *o, ir_value_t x) {
    if (!onnx_ok(o)) return IR_NONE;
    return ir_b_node(&o->b, IR_OP_FLIP, 1, &x, 1,
                     (ir_arg_t[]){IR_ARG_INTS("axes", ((const int64_t[]){0}), 1)});
}

/* Where all go backwards, the loop does, and nothing is flipped. */
static bool all_backward(onnx_t *o, const loop_t *l) {
    bool all = true;
    for (size_t i = 0; i < l->n_scanned; i++)
        all &= is_backward(o, "scan_input_directions", i, l->n_scanned);
    for (size_t i = 0; i < l->n_stacked; i++)
        all &= is_backward(o, "scan_output_directions", i, l->n_stacked);
    return all;
}

static void read_scanned(onnx_t *o, loop_t *l) {
    l->reverse = all_backward(o, l);
    for (size_t i = 0; i < l->n_scanned && onnx_ok(o); i++) {
        ir_value_t x = onnx_in(o, l->n_carried + i);
        const int32_t rank = onnx_type(o, x).rank;
        int32_t axis = onnx_axis_of(o, entry(o, "scan_input_axes", i, l->n_scanned), rank);
        x = move_dim(o, x, axis, 0);
        if (!onnx_ok(o)) return;
        const int64_t n = onnx_type(o, x).dims[0];
        if (i == 0) l->trip = n;
        if (n != l->trip)
            onnx_fail(o, ST_INVALID, "scanned input %zu has %lld slices, the first has %lld", i,
                      (long long)n, (long long)l->trip);
        bool backward = is_backward(o, "scan_input_directions", i, l->n_scanned);
        l->operand[l->n_carried + i] = backward && !l->reverse ? flipped(o, x) : x;
    }
}

static void return_results(onnx_t *o, const loop_t *l, ir_value_t first) {
    for (size_t k = 0; k < l->n_carried && onnx_ok(o); k++) onnx_return(o, first + (ir_value_t)k);
    for (size_t k = 0; k < l->n_stacked && onnx_ok(o); k++) {
        ir_value_t y = first + (ir_value_t)(l->n_carried + k);
        const int32_t rank = onnx_type(o, y).rank;
        if (is_backward(o, "scan_output_directions", k, l->n_stacked) && !l->reverse)
            y = flipped(o, y);
        int32_t axis = onnx_axis_of(o, entry(o, "scan_output_axes", k, l->n_stacked), rank);
        onnx_return(o, move_dim(o, y, 0, axis));
    }
}

void onnx_scan(onnx_t *o) {
    const int64_t n_scanned = onnx_int(o, "num_scan_inputs", 0);
    const size_t n_inputs = onnx_n_inputs(o);
    loop_t l = {0};
    if (onnx_ok(o) && (n_scanned < 1 || (size_t)n_scanned > n_inputs))
        onnx_fail(o, ST_INVALID, "num_scan_inputs is %lld of %zu inputs", (long long)n_scanned,
                  n_inputs);
    if (!fits(o, n_inputs + o->node->n_output)) return;
    l.n_scanned = (size_t)n_scanned;
    l.n_carried = n_inputs - l.n_scanned;
    if (o->node->n_output < l.n_carried)
        onnx_fail(o, ST_INVALID, "%zu outputs, %zu states", o->node->n_output, l.n_carried);
    if (!onnx_ok(o)) return;
    l.n_stacked = o->node->n_output - l.n_carried;
    const Onnx__GraphProto *graph = graph_of(o, "body", n_inputs, o->node->n_output);
    for (size_t j = 0; j < l.n_carried; j++) l.operand[j] = onnx_in(o, j);
    read_scanned(o, &l);
    if (!graph || !onnx_ok(o)) return;
    onnx_scope_open(o, graph, false, &l.in);
    for (size_t j = 0; j < n_inputs && onnx_ok(&l.in); j++)
        onnx_bind(&l.in, j, open_input(o, &l, j));
    if (onnx_ok(&l.in)) l.in.b.status = onnx_run_graph(&l.in);
    close_outputs(o, &l, 0);
    ir_value_t first = add_repeat(o, &l);
    onnx_scope_close(o, &l.in);
    if (onnx_ok(o)) return_results(o, &l, first);
}
