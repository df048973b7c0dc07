/* Expansion of composites. Each round copies the graph once and expands what it meets; rounds go on
 * while expansions bring new composites, so the time is linear in the graph and the depth of
 * definitions. */
#include "ir/expand.h"

/* Definitions nest one or two deep; more is a definition that contains itself. */
enum { MAX_ROUNDS = 8 };

bool ir_expand_any(const ir_op_def_t *def) {
    return def->expand != NULL;
}
bool ir_expand_for_gradient(const ir_op_def_t *def) {
    return def->expand != NULL && def->gradient == NULL;
}

/* Which nodes, and by which column. */
typedef struct wanted {
    bool (*expansion)(const ir_op_def_t *def);
    bool definitions;
    bool given; /* the round at hand is over the nodes of the given graph */
} wanted_t;

typedef st_status_t (*rule_t)(ir_graph_t *, const ir_op_ctx_t *, const ir_value_t *, ir_value_t *);

static rule_t rule_of(const ir_graph_t *graph, ir_node_t node, const wanted_t *wanted) {
    const ir_op_def_t *def = ir_op_def(ir_node(graph, node)->op);
    if (wanted->definitions) return def->define ? def->define : def->expand;
    if (def->expand && wanted->expansion(def)) return def->expand;
    bool form = wanted->expansion == ir_expand_for_gradient && def->gradient_form &&
                !def->is_gradient_form(ir_node(graph, node)->attrs);
    return form ? def->gradient_form : NULL;
}

/* First node that is wanted or has one in a body; the number of nodes if there is none. */
static ir_node_t find_wanted(const ir_graph_t *graph, const wanted_t *wanted) {
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        uint32_t n = ir_op_n_attrs(ir_op_def(node->op));
        if (rule_of(graph, i, wanted)) return i;
        for (uint32_t a = 0; a < n; a++)
            if (node->attrs[a].kind == IR_ATTR_GRAPH &&
                find_wanted(node->attrs[a].graph, wanted) < node->attrs[a].graph->nodes.n)
                return i;
    }
    return (ir_node_t)graph->nodes.n;
}

static st_status_t expand_all(const ir_graph_t *graph, wanted_t *wanted, ir_graph_t **out_graph);

static st_status_t expand_body(void *context, const ir_graph_t *body, ir_graph_t **out_body) {
    return expand_all(body, context, out_body);
}

static st_status_t expand_node(ir_graph_t *to, const ir_graph_t *from, ir_node_t node, rule_t rule,
                               ir_value_t *map) {
    const ir_node_info_t *info = ir_node(from, node);
    st_arena_t scratch = {0};
    ir_type_t *in = st_arena_array(&scratch, info->n_inputs, sizeof *in);
    ir_value_t *inputs = st_arena_array(&scratch, info->n_inputs, sizeof *inputs);
    ir_value_t *out = st_arena_array(&scratch, info->n_outputs, sizeof *out);
    st_status_t status = ST_OK;
    if (!in || !inputs || !out) TRY_GOTO(st_no_memory(0, "an expansion"), done);
    for (uint32_t j = 0; j < info->n_inputs; j++) {
        in[j] = *ir_value_type(from, info->inputs[j]);
        inputs[j] = map[info->inputs[j]];
    }
    ir_op_ctx_t ctx = {info->op, info->n_inputs, info->n_outputs, in, info->attrs, info->name};
    status = rule(to, &ctx, inputs, out);
    if (status != ST_OK) {
        status = st_error_context(status, "expansion of %s", ir_node_label(from, node));
        goto done;
    }
    for (uint32_t k = 0; k < info->n_outputs; k++) {
        char made[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
        const ir_type_t *type = ir_value_type(from, info->first_output + k);
        if (!ir_type_equal(ir_value_type(to, out[k]), type))
            TRY_GOTO(FAIL(ST_INTERNAL, "the expansion of %s gives %s for output %u, not %s",
                          ir_node_label(from, node),
                          ir_type_text(ir_value_type(to, out[k]), made, sizeof made), k,
                          ir_type_text(type, expected, sizeof expected)),
                     done);
        map[info->first_output + k] = out[k];
    }
done:
    st_arena_clear(&scratch);
    return status;
}

/* What makes the values of a node of the given graph has an origin, what its definition makes on
 * the way has none. */
static void mark_values(ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                        const ir_value_t *map, bool given) {
    const ir_node_info_t *info = ir_node(from, node);
    if (!given && !info->origin) return;
    for (uint32_t k = 0; k < info->n_outputs; k++) {
        ir_node_info_t *made =
            &to->nodes.data[to->values.data[map[info->first_output + k]].producer];
        if (!made->origin) made->origin = info->origin ? info->origin : 1;
    }
}

static st_status_t expand_or_clone(void *context, ir_graph_t *to, const ir_graph_t *from,
                                   ir_node_t node, ir_value_t *map) {
    const wanted_t *wanted = context;
    rule_t rule = rule_of(from, node, context);
    if (rule)
        TRY(expand_node(to, from, node, rule, map));
    else
        TRY(ir_graph_clone_node_bodies(to, from, node, NULL, expand_body, context, map));
    if (wanted->definitions) mark_values(to, from, node, map, wanted->given);
    return ST_OK;
}

static st_status_t expand_round(const ir_graph_t *graph, wanted_t *wanted, ir_graph_t **out_graph) {
    return ir_graph_rewrite(graph, NULL, expand_or_clone, wanted, out_graph);
}

static st_status_t expand_all(const ir_graph_t *graph, wanted_t *wanted, ir_graph_t **out_graph) {
    *out_graph = NULL;
    ir_graph_t *current = NULL;
    const bool given = wanted->given;
    TRY(expand_round(graph, wanted, &current));
    wanted->given = false;
    for (int round = 1;; round++) {
        ir_node_t i = find_wanted(current, wanted);
        if (i == current->nodes.n) break;
        st_status_t status;
        ir_graph_t *next = NULL;
        if (round < MAX_ROUNDS)
            status = expand_round(current, wanted, &next);
        else
            status = FAIL(ST_INTERNAL, "the definition of %s contains itself",
                          ir_node_label(current, i));
        ir_graph_destroy(current);
        if (status != ST_OK) return status;
        current = next;
    }
    wanted->given = given;
    *out_graph = current;
    return ST_OK;
}

st_status_t ir_expand_composites(const ir_graph_t *graph, bool (*wanted)(const ir_op_def_t *def),
                                 ir_graph_t **out_graph) {
    return expand_all(graph, &(wanted_t){wanted, false, false}, out_graph);
}

st_status_t ir_expand_definitions(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return expand_all(graph, &(wanted_t){NULL, true, true}, out_graph);
}
