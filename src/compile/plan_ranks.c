/* The programs of a plan against each other (plan_ranks.h).
 *
 * No deadlock: all programs start and wait for the same collectives, over the same mesh axes, in
 * one order. Take any moment at which some ranks stand at waits, and of these the one whose wait
 * comes first in the order: whatever its group still has to start comes before that wait, so a
 * member that has not started it stands at an earlier one, or runs. Sizes may differ from group to
 * group (uneven parts of other axes) but not within one. That is said of each stage of a pipeline;
 * what goes on between stages, or from rank to rank of a context axis, is plan_pairs.c's. */
#include "compile/plan_ranks.h"

#include <string.h>

#include "base/memory.h"

/* ---- one order ---- */

static ir_node_t next_collective(const ir_graph_t *graph, ir_node_t n) {
    while (n < graph->nodes.n && !(ir_op_def(ir_node(graph, n)->op)->flags & IR_COLLECTIVE)) n++;
    return n;
}

/* The start of a start or wait. */
static const ir_node_info_t *start_of(const ir_graph_t *graph, ir_node_t n) {
    const ir_node_info_t *node = ir_node(graph, n);
    return ir_op_def(node->op)->flags & IR_START ? node : ir_value_producer(graph, node->inputs[0]);
}

static const char *axis_of(const ir_graph_t *graph, ir_node_t n) {
    return ir_node_attr(start_of(graph, n), "mesh")->s;
}

/* Same op and axis, and as many operands of the same element types. */
static bool kinds_match(const ir_graph_t *a, ir_node_t na, const ir_graph_t *b, ir_node_t nb) {
    const ir_node_info_t *x = ir_node(a, na), *y = ir_node(b, nb);
    if (x->op != y->op || x->n_outputs != y->n_outputs ||
        strcmp(axis_of(a, na), axis_of(b, nb)) != 0)
        return false;
    for (uint32_t k = 0; k < x->n_outputs; k++)
        if (ir_value_type(a, x->first_output + k)->dtype !=
            ir_value_type(b, y->first_output + k)->dtype)
            return false;
    return true;
}

/* Programs f and p have the same collectives in one order, numbered alike. */
static st_status_t check_order(const plan_t *plan, uint32_t f, uint32_t p) {
    const ir_graph_t *first = plan->programs[f].graph, *other = plan->programs[p].graph;
    ir_node_t a = next_collective(first, 0), b = next_collective(other, 0);
    for (uint32_t index = 0, ticket = 0;; index++) {
        bool end_a = a == first->nodes.n, end_b = b == other->nodes.n;
        if (end_a && end_b) return ST_OK;
        if (end_a || end_b || !kinds_match(first, a, other, b))
            return FAIL(ST_RANKS_DISAGREE,
                        "programs %u and %u do not have the same collective in place %u", f, p,
                        index);
        uint32_t ta = plan->programs[f].steps[a].ticket, tb = plan->programs[p].steps[b].ticket;
        bool start = plan->programs[p].steps[b].kind == PLAN_STEP_START;
        if (ta != tb || (start && tb != ticket++))
            return FAIL(ST_RANKS_DISAGREE,
                        "programs %u and %u number the collective in place %u as %u and %u", f, p,
                        index, ta, tb);
        if (!start) {
            ir_node_t from = other->values.data[ir_node(other, b)->inputs[0]].producer;
            if (plan->programs[p].steps[from].ticket != tb)
                return FAIL(ST_INVALID, "program %u waits for another collective than it means", p);
        }
        if (start && ir_mesh_find(&plan->mesh, axis_of(other, b)) == IR_NONE)
            return FAIL(ST_INVALID, "program %u: %s runs over axis '%s', which the mesh has not", p,
                        ir_node_label(other, b), axis_of(other, b));
        a = next_collective(first, a + 1);
        b = next_collective(other, b + 1);
    }
}

/* Each program against the first of its stage. */
static st_status_t check_orders(const plan_t *plan) {
    const uint32_t pipe = ir_mesh_find(&plan->mesh, IR_AXIS_PIPE);
    uint32_t *first = st_malloc(plan->n_ranks * sizeof *first); /* by coordinate on the axis */
    bool *seen = st_calloc(plan->n_programs, sizeof *seen);
    st_status_t status = ST_OK;
    if (!first || !seen) TRY_GOTO(st_no_memory(plan->n_ranks, "the plan's proof"), done);
    for (uint32_t r = 0; r < plan->n_ranks; r++) first[r] = IR_NONE;
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        const uint32_t stage = pipe == IR_NONE ? 0 : ir_mesh_coordinate(&plan->mesh, r, pipe);
        const uint32_t p = plan->program_of[r];
        if (first[stage] == IR_NONE) first[stage] = p;
        if (seen[p] && first[stage] != p) continue;
        seen[p] = true;
        TRY_GOTO(check_order(plan, first[stage], p), done);
    }
done:
    st_free(first);
    st_free(seen);
    return status;
}

/* ---- within groups ---- */

static bool ints_equal(const ir_node_info_t *x, const ir_node_info_t *y, const char *key) {
    const ir_attr_t *a = ir_node_attr(x, key), *b = ir_node_attr(y, key);
    return a->ints.n == b->ints.n &&
           memcmp(a->ints.v, b->ints.v, a->ints.n * sizeof *a->ints.v) == 0;
}

static bool types_equal(const ir_graph_t *a, const ir_value_t *x, const ir_graph_t *b,
                        const ir_value_t *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!ir_type_equal(ir_value_type(a, x[i]), ir_value_type(b, y[i]))) return false;
    return true;
}

/* Numbers that ranks which meet in a collective have in common. */
static bool attrs_match(const ir_node_info_t *x, const ir_node_info_t *y, const char *const *keys) {
    for (; *keys; keys++)
        if (ir_attr_int(x, *keys) != ir_attr_int(y, *keys)) return false;
    return true;
}

/* Of an exchange: all that neither of the two dims' parts are. */
static bool exchanges_match(const ir_graph_t *a, const ir_node_info_t *x, const ir_graph_t *b,
                            const ir_node_info_t *y) {
    static const char *const keys[] = {"axis", "granules", "extent", "to", "to_granules", NULL};
    ir_type_t p = *ir_value_type(a, x->inputs[0]);
    const ir_type_t *q = ir_value_type(b, y->inputs[0]);
    const int64_t axis = ir_attr_int(x, "axis");
    if (!attrs_match(x, y, keys) || p.rank != q->rank) return false;
    p.dims[axis] = q->dims[axis];
    return ir_type_equal(&p, q);
}

static bool sizes_match(const ir_graph_t *a, ir_node_t na, const ir_graph_t *b, ir_node_t nb) {
    const ir_node_info_t *x = ir_node(a, na), *y = ir_node(b, nb);
    const bool gathers = x->op == IR_OP_ALL_GATHER_START;
    const bool scatters = x->op == IR_OP_REDUCE_SCATTER_START;
    if (ir_op_is_pair(x->op)) return true; /* plan_pairs.c */
    if (x->n_inputs != y->n_inputs) return false;
    if (scatters)
        return types_equal(a, x->inputs, b, y->inputs, x->n_inputs) && ints_equal(x, y, "axis") &&
               ints_equal(x, y, "granules");
    if (x->op == IR_OP_ALL_TO_ALL_START) return exchanges_match(a, x, b, y);
    if (x->op == IR_OP_REDUCE_SCATTER_WAIT || x->op == IR_OP_ALL_TO_ALL_WAIT)
        return true; /* of its part */
    for (uint32_t k = 0; k < x->n_outputs; k++)
        if (!ir_type_equal(ir_value_type(a, x->first_output + k),
                           ir_value_type(b, y->first_output + k)))
            return false;
    return !gathers ||
           (ints_equal(x, y, "axis") && ints_equal(x, y, "granules") && ints_equal(x, y, "extent"));
}

/* Two programs whose ranks meet on the axis. */
static st_status_t check_pair(const plan_t *plan, uint32_t p, uint32_t q, const char *axis) {
    const ir_graph_t *first = plan->programs[p].graph, *other = plan->programs[q].graph;
    ir_node_t a = next_collective(first, 0), b = next_collective(other, 0);
    for (; a < first->nodes.n; a = next_collective(first, a + 1), b = next_collective(other, b + 1))
        if (strcmp(axis_of(first, a), axis) == 0 && !sizes_match(first, a, other, b))
            return FAIL(ST_RANKS_DISAGREE,
                        "programs %u and %u meet on axis '%s', but %s is of other sizes in the "
                        "second",
                        p, q, axis, ir_node_label(first, a));
    return ST_OK;
}

/* Each rank against the first of its group, on every axis; pairs of programs once. */
static st_status_t check_groups(const plan_t *plan) {
    const size_t n = plan->n_programs;
    st_status_t status = ST_OK;
    bool *seen = st_calloc(n * n, sizeof *seen);
    if (!seen) return st_no_memory(n * n, "the plan's proof");
    for (uint32_t a = 0; a < plan->mesh.n; a++) {
        if (a == ir_mesh_find(&plan->mesh, IR_AXIS_PIPE)) continue; /* plan_pairs.c */
        memset(seen, 0, n * n);
        for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
            uint32_t p = plan->program_of[ir_mesh_peer(&plan->mesh, rank, a, 0)];
            uint32_t q = plan->program_of[rank];
            if (seen[p * n + q]) continue;
            seen[p * n + q] = true;
            TRY_GOTO(check_pair(plan, p, q, plan->mesh.axes[a].name), done);
        }
    }
done:
    st_free(seen);
    return status;
}

/* What a rank gives to gather n, or keeps of scattered sum n, of operand j is what the others
 * expect. */
static st_status_t check_part(const plan_t *plan, uint32_t rank, ir_node_t n, uint32_t j) {
    const ir_graph_t *graph = plan->programs[plan->program_of[rank]].graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const bool gathers = node->op == IR_OP_ALL_GATHER_START;
    const ir_value_t in = node->inputs[j], out = node->first_output + j;
    const int64_t dim = ir_node_attr(node, "axis")->ints.v[j];
    const int64_t whole = ir_value_type(graph, gathers ? out : in)->dims[dim];
    const int64_t part = ir_value_type(graph, gathers ? in : out)->dims[dim];
    const uint32_t axis = ir_mesh_find(&plan->mesh, axis_of(graph, n));
    int64_t begin, extent;
    ir_split_range(whole, ir_node_attr(node, "granules")->ints.v[j],
                   ir_mesh_coordinate(&plan->mesh, rank, axis), plan->mesh.axes[axis].size, &begin,
                   &extent);
    if (part != extent)
        return FAIL(ST_RANKS_DISAGREE,
                    "rank %u %s %lld along axis %lld of operand %u to %s, not %lld", rank,
                    gathers ? "gives" : "keeps", (long long)part, (long long)dim, j,
                    ir_node_label(graph, n), (long long)extent);
    return ST_OK;
}

/* The same of an exchange, which has parts along two dims. */
static st_status_t check_exchange(const plan_t *plan, uint32_t rank, ir_node_t n) {
    const ir_graph_t *graph = plan->programs[plan->program_of[rank]].graph;
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_type_t *in = ir_value_type(graph, node->inputs[0]);
    const ir_type_t *out = ir_value_type(graph, node->first_output);
    const uint32_t axis = ir_mesh_find(&plan->mesh, axis_of(graph, n));
    const int64_t from = ir_attr_int(node, "axis"), to = ir_attr_int(node, "to");
    const int64_t at = ir_mesh_coordinate(&plan->mesh, rank, axis);
    const int64_t n_ranks = plan->mesh.axes[axis].size;
    int64_t begin, gives, keeps;
    ir_split_range(out->dims[from], ir_attr_int(node, "granules"), at, n_ranks, &begin, &gives);
    ir_split_range(in->dims[to], ir_attr_int(node, "to_granules"), at, n_ranks, &begin, &keeps);
    if (in->dims[from] == gives && out->dims[to] == keeps) return ST_OK;
    return FAIL(ST_RANKS_DISAGREE,
                "rank %u gives %lld along axis %lld and keeps %lld along axis %lld of %s, not %lld "
                "and %lld",
                rank, (long long)in->dims[from], (long long)from, (long long)out->dims[to],
                (long long)to, ir_node_label(graph, n), (long long)gives, (long long)keeps);
}

static st_status_t check_parts(const plan_t *plan, uint32_t rank) {
    const ir_graph_t *graph = plan->programs[plan->program_of[rank]].graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op == IR_OP_ALL_TO_ALL_START) {
            TRY(check_exchange(plan, rank, n));
            continue;
        }
        if (node->op != IR_OP_ALL_GATHER_START && node->op != IR_OP_REDUCE_SCATTER_START) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++) TRY(check_part(plan, rank, n, j));
    }
    return ST_OK;
}

/* ---- what callers see ---- */

typedef enum port_kind { PORT_INPUT, PORT_OUTPUT, PORT_STATE } port_kind_t;

static ir_value_t find_port(const ir_graph_t *graph, const plan_port_t *port, port_kind_t kind) {
    if (kind == PORT_OUTPUT) return ir_graph_find_output(graph, port->name);
    ir_node_t n = ir_graph_find(graph, port->name);
    if (n == IR_NONE) return IR_NONE;
    const ir_node_info_t *node = ir_node(graph, n);
    bool right =
        kind == PORT_INPUT ? node->op == IR_OP_INPUT : (ir_op_def(node->op)->flags & IR_STATE) != 0;
    return right ? node->first_output : IR_NONE;
}

static uint32_t count_nodes(const ir_graph_t *graph, bool states) {
    uint32_t n = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        ir_op_t op = ir_node(graph, i)->op;
        n += states ? (ir_op_def(op)->flags & IR_STATE) != 0 : op == IR_OP_INPUT;
    }
    return n;
}

static uint32_t count_held(const plan_t *plan, const plan_port_t *ports, uint32_t n,
                           uint32_t rank) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < n; i++) {
        ir_box_t box;
        ir_mesh_box(&plan->mesh, ports[i].placements, &ports[i].type, rank, &box);
        held += !box.none;
    }
    return held;
}

/* Programs have no inputs and states but those of the plan that their ranks hold. */
static st_status_t check_counts(const plan_t *plan) {
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        const uint32_t p = plan->program_of[rank];
        if (rank && p == plan->program_of[rank - 1]) continue;
        const ir_graph_t *graph = plan->programs[p].graph;
        const uint32_t n_inputs = count_nodes(graph, false), n_states = count_nodes(graph, true);
        const uint32_t inputs = count_held(plan, plan->inputs, plan->n_inputs, rank);
        const uint32_t states = count_held(plan, plan->states, plan->n_states, rank);
        if (n_inputs != inputs || n_states != states)
            return FAIL(ST_INVALID,
                        "program %u has %u inputs and %u states, the plan has %u and %u", p,
                        n_inputs, n_states, inputs, states);
    }
    return ST_OK;
}

/* Each rank has its part. Ranks of one program that hold parts of one size are looked at once. */
static st_status_t check_port(const plan_t *plan, const plan_port_t *port, port_kind_t kind) {
    uint32_t last = IR_NONE;
    ir_type_t last_type = {0};
    TRY(ir_type_check(&port->type));
    TRY(ir_mesh_check_placements(&plan->mesh, port->placements, &port->type));
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        ir_type_t local = port->type;
        ir_box_t box;
        ir_mesh_box(&plan->mesh, port->placements, &port->type, rank, &box);
        if (box.none) continue; /* check_counts */
        for (int32_t d = 0; d < local.rank; d++) local.dims[d] = box.extent[d];
        if (plan->program_of[rank] == last && ir_type_equal(&local, &last_type)) continue;
        last = plan->program_of[rank];
        last_type = local;
        const ir_graph_t *graph = plan->programs[last].graph;
        ir_value_t value = find_port(graph, port, kind);
        if (value == IR_NONE) return FAIL(ST_INVALID, "rank %u's program does not have it", rank);
        if (!ir_type_equal(&local, ir_value_type(graph, value)))
            return FAIL(ST_INVALID, "rank %u's part has another type than the split says", rank);
    }
    return ST_OK;
}

static st_status_t check_ports(const plan_t *plan, const plan_port_t *ports, uint32_t n,
                               port_kind_t kind) {
    static const char *const texts[] = {"input", "output", "state"};
    for (uint32_t i = 0; i < n; i++) {
        st_status_t status = check_port(plan, &ports[i], kind);
        if (status != ST_OK) return st_error_context(status, "%s '%s'", texts[kind], ports[i].name);
    }
    return ST_OK;
}

st_status_t plan_check_ranks(const plan_t *plan) {
    TRY(check_orders(plan));
    TRY(check_groups(plan));
    TRY(plan_check_pairs(plan));
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) TRY(check_parts(plan, rank));
    TRY(check_counts(plan));
    TRY(check_ports(plan, plan->inputs, plan->n_inputs, PORT_INPUT));
    TRY(check_ports(plan, plan->outputs, plan->n_outputs, PORT_OUTPUT));
    return check_ports(plan, plan->states, plan->n_states, PORT_STATE);
}
