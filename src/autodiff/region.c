/* Gradients of repeat and cond (region.h).
 *
 *   forward    carry[i + 1], y[i] = f(carry[i], x[i], m)    carry[i] are among the stacked results
 *   backward   the other way round, for each i:
 *                recompute f(carry[i], x[i], m)
 *                d carry[i], d x[i], g = pullback of f by d carry[i + 1] and d y[i]
 *                d m += g
 *
 * d carry and d m are carried, d x is stacked. d m is summed in f32 where m is a smaller float. The
 * order of the sums is that of the unrolled graph. Random ops in f see the same operands again and
 * so draw the same bits. Needs one more run of the body and the stack of carries; what of either
 * the gradient does not read, simplification removes. Linear in the body. */
#include "autodiff/region.h"

#include "autodiff/gradient.h"
#include "ir/body.h"

/* Marks the float values that depend on marked inputs; need[] is by value. */
static void spread(const ir_graph_t *body, bool *need) {
    for (size_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = &body->nodes.data[i];
        bool any = false;
        for (uint32_t j = 0; j < node->n_inputs; j++) any |= need[node->inputs[j]];
        for (uint32_t k = 0; any && k < node->n_outputs; k++)
            need[node->first_output + k] |=
                ir_dtype_is_float(ir_value_type(body, node->first_output + k)->dtype);
    }
}

/* One list of operands and what the gradient's body has for them. */
typedef struct loop {
    ir_graph_t *graph;
    ir_node_info_t info;
    const ir_graph_t *body;
    uint32_t carried, scanned, n_in, n_out;
    const ir_value_t *dout;
    const bool *want;
    st_arena_t arena;
    bool *need;               /* [n_in]: gets a gradient within the loop */
    ir_value_t *input;        /* [n_in] the body's inputs */
    ir_build_t back;          /* the gradient's body */
    ir_build_t outer;         /* the graph */
    ir_value_t *at;           /* [n_in] the same inputs in the gradient's body */
    ir_value_t *sum;          /* [n_in] carried gradients in it */
    ir_value_t *value, *seed; /* [n_out] */
    ir_value_t *wrt, *grad;   /* [n_in] */
    ir_value_t *operand;      /* of the gradient's node */
    uint32_t n_operands;
} loop_t;

static bool is_float(const ir_graph_t *graph, ir_value_t v) {
    return ir_dtype_is_float(ir_value_type(graph, v)->dtype);
}
static bool is_carry(const loop_t *l, uint32_t j) {
    return j < l->carried;
}
static bool is_scan(const loop_t *l, uint32_t j) {
    return j >= l->carried && j < l->carried + l->scanned;
}

static st_status_t loop_open(loop_t *l) {
    size_t n = l->n_in, m = l->n_out;
    st_arena_t *arena = &l->arena;
    l->need = st_arena_array(arena, n, sizeof *l->need);
    l->input = st_arena_array(arena, n, sizeof *l->input);
    l->at = st_arena_array(arena, n, sizeof *l->at);
    l->sum = st_arena_array(arena, n, sizeof *l->sum);
    l->value = st_arena_array(arena, m, sizeof *l->value);
    l->seed = st_arena_array(arena, m, sizeof *l->seed);
    l->wrt = st_arena_array(arena, n, sizeof *l->wrt);
    l->grad = st_arena_array(arena, n, sizeof *l->grad);
    l->operand = st_arena_array(arena, 2 * n + m, sizeof *l->operand);
    if (!l->need || !l->input || !l->at || !l->sum || !l->value || !l->seed || !l->wrt ||
        !l->grad || !l->operand)
        return st_no_memory(n * sizeof *l->at, "a loop's gradient");
    ir_body_inputs(l->body, l->input);
    for (size_t j = 0; j < n; j++) l->sum[j] = IR_NONE;
    TRY(ir_graph_create("", &l->back.graph));
    l->back.graph->phase = l->graph->phase;
    return ST_OK;
}

/* A carry needs a gradient if its operand does, or if the body makes it from what does. */
static st_status_t find_need(loop_t *l) {
    bool *need = st_arena_array(&l->arena, l->body->values.n, sizeof *need);
    if (!need) return st_no_memory(l->body->values.n, "a loop's gradient");
    for (uint32_t j = 0; j < l->n_in; j++)
        need[l->input[j]] = l->want[j] && is_float(l->body, l->input[j]);
    for (bool changed = true; changed;) {
        changed = false;
        spread(l->body, need);
        for (uint32_t j = 0; j < l->carried; j++) {
            if (need[l->input[j]] || !need[l->body->outputs.data[j].value]) continue;
            need[l->input[j]] = changed = true;
        }
    }
    for (uint32_t j = 0; j < l->n_in; j++) l->need[j] = need[l->input[j]];
    return ST_OK;
}

static ir_type_t wide(const ir_type_t *type) {
    ir_type_t made = *type;
    made.dtype = ir_dtype_wide(type->dtype);
    return made;
}

/* Operands are listed in the order of the new body's inputs. */
static ir_value_t take(loop_t *l, const ir_type_t *seen, ir_value_t operand) {
    l->operand[l->n_operands++] = operand;
    return ir_b_body_input(&l->back, seen);
}

/* Carried: the gradients of carries and the sums for what is captured. */
static uint32_t add_carried(loop_t *l) {
    for (uint32_t j = 0; j < l->n_in; j++) {
        if (!l->need[j] || is_scan(l, j)) continue;
        const ir_type_t *type = ir_value_type(l->body, l->input[j]);
        ir_type_t sum = is_carry(l, j) ? *type : wide(type);
        ir_value_t begin =
            is_carry(l, j) && l->dout[j] != IR_NONE ? l->dout[j] : ir_b_splat(&l->outer, sum, 0);
        l->sum[j] = take(l, &sum, begin);
    }
    return l->n_operands;
}

/* The stack of what carry j was at the begin of each iteration. */
static st_status_t find_saved(const loop_t *l, uint32_t j, ir_value_t *out) {
    for (uint32_t k = l->carried; k < l->n_out; k++)
        if (l->body->outputs.data[k].value == l->input[j]) {
            *out = l->info.first_output + k;
            return ST_OK;
        }
    char text[IR_TYPE_TEXT_BYTES];
    return FAIL(ST_UNSUPPORTED,
                "carried operand %u is %s, which cannot be stacked for the gradient", j,
                ir_type_text(ir_value_type(l->body, l->input[j]), text, sizeof text));
}

/* Scanned: saved carries, the forward loop's slices, gradients of stacked results. */
static st_status_t add_scanned(loop_t *l) {
    for (uint32_t j = 0; j < l->carried + l->scanned; j++) {
        ir_value_t stack = l->info.inputs[j];
        if (is_carry(l, j)) TRY(find_saved(l, j, &stack));
        l->at[j] = take(l, ir_value_type(l->body, l->input[j]), stack);
    }
    for (uint32_t k = l->carried; k < l->n_out; k++)
        l->seed[k] =
            l->dout[k] == IR_NONE ? IR_NONE : take(l, ir_body_output_type(l->body, k), l->dout[k]);
    return ST_OK;
}

static st_status_t pull_back(loop_t *l) {
    uint32_t n = 0;
    TRY(l->back.status);
    TRY(ir_body_inline(l->back.graph, l->body, l->at, l->value));
    for (uint32_t j = 0; j < l->carried; j++) l->seed[j] = l->sum[j];
    for (uint32_t j = 0; j < l->n_in; j++)
        if (l->need[j]) l->wrt[n++] = l->at[j];
    TRY(ad_pullback(l->back.graph, l->n_out, l->value, l->seed, n, l->wrt, l->grad));
    for (uint32_t j = l->n_in; j-- > 0;) l->grad[j] = l->need[j] ? l->grad[--n] : IR_NONE;
    return ST_OK;
}

static ir_value_t or_zero(loop_t *l, uint32_t j) {
    if (l->grad[j] != IR_NONE) return l->grad[j];
    return ir_b_splat(&l->back, *ir_value_type(l->body, l->input[j]), 0);
}

static void add_results(loop_t *l) {
    for (uint32_t j = 0; j < l->n_in; j++) {
        if (!l->need[j] || is_scan(l, j)) continue;
        ir_value_t next = l->sum[j];
        if (is_carry(l, j))
            next = or_zero(l, j);
        else if (l->grad[j] != IR_NONE)
            next = ir_b_binary(&l->back, IR_OP_ADD, next,
                               ir_b_cast(&l->back, l->grad[j], ir_b_type(&l->back, next)->dtype));
        ir_b_body_output(&l->back, next);
    }
    for (uint32_t j = 0; j < l->n_in; j++)
        if (l->need[j] && is_scan(l, j)) ir_b_body_output(&l->back, or_zero(l, j));
}

static st_status_t add_loop(loop_t *l, uint32_t n_carried, ir_value_t *din) {
    ir_arg_t args[] = {
        IR_ARG_GRAPH("body", l->back.graph),
        IR_ARG_INT("trip", ir_attr_int(&l->info, "trip")),
        IR_ARG_INT("carried", n_carried),
        IR_ARG_INT("scanned", 0),
        IR_ARG_BOOL("reverse", !ir_attr_int(&l->info, "reverse")),
    };
    uint32_t n_captured = l->n_in - l->carried - l->scanned;
    args[3].value.i = (int64_t)(l->n_operands - n_captured - n_carried);
    ir_value_t first = ir_b_node(&l->outer, IR_OP_REPEAT, l->n_operands, l->operand, 5, args);
    TRY(l->outer.status);
    for (int scans = 0; scans < 2; scans++)
        for (uint32_t j = 0; j < l->n_in; j++) {
            if (!l->need[j] || is_scan(l, j) != (scans == 1)) continue;
            ir_dtype_t dtype = ir_value_type(l->body, l->input[j])->dtype;
            if (l->want[j]) din[j] = ir_b_cast(&l->outer, first, dtype);
            first++;
        }
    return l->outer.status;
}

static st_status_t repeat(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                          const bool *want, ir_value_t *din) {
    loop_t l = {.graph = graph, .info = *ir_node(graph, node), .dout = dout, .want = want};
    const ir_region_info_t region = ir_region_info(&l.info);
    l.body = region.bodies[0];
    l.carried = region.carried;
    l.scanned = region.scanned;
    l.n_in = l.info.n_inputs;
    l.n_out = l.info.n_outputs;
    l.outer.graph = graph;
    st_status_t status = ST_OK;
    TRY_GOTO(loop_open(&l), done);
    TRY_GOTO(find_need(&l), done);
    uint32_t n_carried = add_carried(&l);
    TRY_GOTO(add_scanned(&l), done);
    for (uint32_t j = l.carried + l.scanned; j < l.n_in; j++)
        l.at[j] = take(&l, ir_value_type(l.body, l.input[j]), l.info.inputs[j]);
    TRY_GOTO(pull_back(&l), done);
    add_results(&l);
    TRY_GOTO(l.back.status, done);
    TRY_GOTO(add_loop(&l, n_carried, din), done);
done:
    ir_graph_destroy(l.back.graph);
    st_arena_clear(&l.arena);
    return status;
}

/* ---- cond ---- */

/* The pullback of one branch: (operands, dout…) → gradients of the wanted operands. */
static st_status_t branch(const ir_graph_t *body, ir_phase_t phase, const ir_value_t *dout,
                          const bool *want, st_arena_t *arena, ir_graph_t **out_back) {
    uint32_t n_in = ir_body_n_inputs(body), n_out = (uint32_t)body->outputs.n, n_wrt = 0;
    ir_value_t *input = st_arena_array(arena, n_in, sizeof *input);
    ir_value_t *at = st_arena_array(arena, n_in, sizeof *at);
    ir_value_t *wrt = st_arena_array(arena, n_in, sizeof *wrt);
    ir_value_t *grad = st_arena_array(arena, n_in, sizeof *grad);
    ir_value_t *value = st_arena_array(arena, n_out, sizeof *value);
    ir_value_t *seed = st_arena_array(arena, n_out, sizeof *seed);
    if (!input || !at || !wrt || !grad || !value || !seed)
        return st_no_memory(n_in * sizeof *at, "a condition's gradient");
    TRY(ir_graph_create("", out_back));
    (*out_back)->phase = phase;
    ir_build_t b = {.graph = *out_back};
    ir_body_inputs(body, input);
    for (uint32_t j = 0; j < n_in; j++) {
        at[j] = ir_b_body_input(&b, ir_value_type(body, input[j]));
        if (want[j]) wrt[n_wrt++] = at[j];
    }
    for (uint32_t k = 0; k < n_out; k++)
        seed[k] = dout[k] == IR_NONE ? IR_NONE : ir_b_body_input(&b, ir_body_output_type(body, k));
    TRY(b.status);
    TRY(ir_body_inline(b.graph, body, at, value));
    TRY(ad_pullback(b.graph, n_out, value, seed, n_wrt, wrt, grad));
    for (uint32_t i = 0; i < n_wrt; i++)
        ir_b_body_output(
            &b, grad[i] != IR_NONE ? grad[i] : ir_b_splat(&b, *ir_value_type(b.graph, wrt[i]), 0));
    return b.status;
}

static st_status_t cond(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout, const bool *want,
                        ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    const ir_region_info_t region = ir_region_info(&info);
    st_arena_t arena = {0};
    ir_graph_t *back[2] = {NULL, NULL};
    st_status_t status = ST_OK;
    ir_build_t b = {.graph = graph};
    uint32_t n = info.n_inputs;
    ir_value_t *operand = st_arena_array(&arena, n + info.n_outputs, sizeof *operand);
    if (!operand) TRY_GOTO(st_no_memory(0, "a condition's gradient"), done);
    for (int i = 0; i < 2; i++)
        TRY_GOTO(branch(region.bodies[i], graph->phase, dout, want + 1, &arena, &back[i]), done);
    for (uint32_t j = 0; j < n; j++) operand[j] = info.inputs[j];
    for (uint32_t k = 0; k < info.n_outputs; k++)
        if (dout[k] != IR_NONE) operand[n++] = dout[k];
    ir_arg_t args[] = {IR_ARG_GRAPH("then", back[0]), IR_ARG_GRAPH("else", back[1])};
    ir_value_t first = ir_b_node(&b, IR_OP_COND, n, operand, 2, args);
    for (uint32_t j = 1; j < info.n_inputs; j++)
        if (want[j]) din[j] = first++;
    status = b.status;
done:
    for (int i = 0; i < 2; i++) ir_graph_destroy(back[i]);
    st_arena_clear(&arena);
    return status;
}

/* ---- table ---- */

ad_rule_t ad_region_rule(ir_op_t op) {
    static const struct {
        ir_op_t op;
        ad_rule_t rule;
    } rules[] = {{IR_OP_REPEAT, repeat}, {IR_OP_COND, cond}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == op) return rules[i].rule;
    return NULL;
}
