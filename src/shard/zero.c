/* Data parallel and its forms with split states (forms.h). */
#include <string.h>

#include "base/memory.h"
#include "ir/op.h"
#include "shard/forms.h"
#include "shard/internal.h"

/* The placement of a state's part; whole where it has one element. */
static ir_placement_t part_of(const ir_type_t *type, uint32_t n_ranks) {
    int32_t longest = -1;
    for (int32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] && type->dims[d] % n_ranks == 0)
            return IR_PLACE_SPLIT(d, IR_GRANULES_EACH);
        if (type->dims[d] > 1 && (longest < 0 || type->dims[d] > type->dims[longest])) longest = d;
    }
    return longest < 0 ? IR_PLACE_REPLICATE : IR_PLACE_SPLIT(longest, IR_GRANULES_EACH);
}

static bool is_state(const ir_graph_t *graph, ir_value_t v) {
    return ir_op_def(ir_value_producer(graph, v)->op)->flags & IR_STATE;
}

/* ---- what an optimizer's node has ---- */

/* A node that updates one parameter: p, g, … and moments like p. */
static bool is_optimizer(const ir_node_info_t *node) {
    return ir_op_def(node->op)->flags & IR_STEP;
}

/* What is of the parameter's type beside it and its gradient. Mostly a state; another axis may have
 * put one together, or cut it. */
static bool is_moment(const ir_graph_t *graph, const ir_node_info_t *node, uint32_t j) {
    return j > 1 && ir_type_equal(ir_value_type(graph, node->inputs[j]),
                                  ir_value_type(graph, node->inputs[0]));
}

/* The last sums of micro-batches are split where they are made: their terms are. */
static st_status_t pin_terms(const ir_graph_t *graph, ir_value_t v, ir_placement_t part,
                             shard_settled_t *settled, int depth) {
    enum { DEEPEST = 512 };
    const ir_node_info_t *node = ir_value_producer(graph, v);
    const bool sums =
        node->op == IR_OP_ADD && node->phase == IR_PHASE_BACKWARD &&
        ir_type_equal(ir_value_type(graph, node->inputs[0]), ir_value_type(graph, node->inputs[1]));
    if (!sums || depth == DEEPEST)
        return shard_settle_pin(settled, v, part, SHARD_ALL_PHASES, false);
    TRY(pin_terms(graph, node->inputs[0], part, settled, depth + 1));
    return pin_terms(graph, node->inputs[1], part, settled, depth + 1);
}

/* The update runs on parts. */
static st_status_t split_update(const ir_graph_t *graph, ir_node_t n, uint32_t n_ranks,
                                shard_form_t form, shard_settled_t *settled) {
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_type_t *type = ir_value_type(graph, node->inputs[0]);
    ir_placement_t part = part_of(type, n_ranks), *in, *out;
    if (part.kind != IR_SPLIT) return ST_OK;
    TRY(shard_settle_choice(settled, graph, n, &in, &out));
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const bool moment = is_moment(graph, node, j);
        if (j < 2 || moment) in[j] = part;
        if (moment && is_state(graph, node->inputs[j]))
            settled->homes[graph->values.data[node->inputs[j]].producer] = part;
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (ir_type_equal(ir_value_type(graph, node->first_output + k), type)) out[k] = part;
    if (form == SHARD_FORM_ZERO3 && is_state(graph, node->inputs[0]))
        settled->homes[graph->values.data[node->inputs[0]].producer] = part;
    if (form != SHARD_FORM_ZERO1) TRY(pin_terms(graph, node->inputs[1], part, settled, 0));
    /* the sum, too: a norm then adds up the parts, not a whole that is put together for it */
    return shard_settle_pin(settled, node->inputs[1], part, SHARD_ALL_PHASES, false);
}

/* ---- states beside moments ---- */

/* Buffers named after a parameter, as averages of weights are ("ema.NAME"), live as moments do; so
 * do parameters that are not trained, and shadows, where parameters are split. */
static void place_followers(const ir_graph_t *graph, uint32_t n_ranks, shard_form_t form,
                            shard_settled_t *settled) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const bool weight = node->op == IR_OP_PARAMETER || ir_is_shadow(node);
        if (weight && form == SHARD_FORM_ZERO3)
            settled->homes[n] = part_of(ir_value_type(graph, node->first_output), n_ranks);
        const char *dot = node->op == IR_OP_BUFFER ? strchr(node->name, '.') : NULL;
        ir_node_t of = dot ? ir_graph_find(graph, dot + 1) : IR_NONE;
        if (of == IR_NONE || ir_node(graph, of)->op != IR_OP_PARAMETER) continue;
        const ir_type_t *type = ir_value_type(graph, node->first_output);
        if (ir_type_equal(type, ir_value_type(graph, ir_node(graph, of)->first_output)))
            settled->homes[n] = part_of(type, n_ranks);
    }
}

/* ---- gathers ---- */

/* Values made of one split state alone, by views, casts and transposes. */
static void find_lazy(const ir_graph_t *graph, const shard_settled_t *settled, bool *lazy) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (ir_op_def(node->op)->flags & IR_STATE)
            lazy[node->first_output] = settled->homes[n].kind == IR_SPLIT;
        else if (shard_moves(node))
            lazy[node->first_output] = lazy[node->inputs[0]];
    }
}

st_status_t shard_gather_states(const ir_graph_t *graph, shard_settled_t *settled) {
    const uint32_t phases = 1u << IR_PHASE_FORWARD | 1u << IR_PHASE_BACKWARD;
    bool *lazy = st_calloc(graph->values.n, sizeof *lazy);
    st_status_t status = ST_OK;
    if (!lazy) return st_no_memory(graph->values.n * sizeof *lazy, "the lowering");
    find_lazy(graph, settled, lazy);
    for (ir_node_t n = 0; n < graph->nodes.n && status == ST_OK; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->phase == IR_PHASE_OPTIMIZER || node->op == IR_OP_UPDATE) continue;
        if (node->n_outputs == 1 && lazy[node->first_output]) continue;
        for (uint32_t j = 0; j < node->n_inputs && status == ST_OK; j++)
            if (lazy[node->inputs[j]])
                status =
                    shard_settle_pin(settled, node->inputs[j], IR_PLACE_REPLICATE, phases, true);
    }
    st_free(lazy);
    return status;
}

st_status_t shard_form_data(const ir_graph_t *graph, uint32_t n_ranks, shard_form_t form,
                            shard_settled_t *settled) {
    if (form == SHARD_FORM_DP) return ST_OK;
    place_followers(graph, n_ranks, form, settled);
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (is_optimizer(ir_node(graph, n))) TRY(split_update(graph, n, n_ranks, form, settled));
    return form == SHARD_FORM_ZERO3 ? shard_gather_states(graph, settled) : ST_OK;
}

/* ---- by the name of the axis ---- */

st_status_t shard_form_axis(const ir_graph_t *graph, shard_form_t form, shard_context_t how,
                            shard_settled_t *settled) {
    const char *axis = settled->axis;
    if (strcmp(axis, IR_AXIS_DATA) == 0)
        return shard_form_data(graph, settled->n_ranks, form, settled);
    if (strcmp(axis, IR_AXIS_TENSOR) == 0) return shard_form_tensor(graph, settled);
    if (strcmp(axis, IR_AXIS_EXPERT) == 0) return shard_form_expert(graph, settled);
    if (strcmp(axis, IR_AXIS_CONTEXT) == 0) return shard_form_context(graph, how, settled);
    return ST_OK;
}
