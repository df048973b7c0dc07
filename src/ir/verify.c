/* Graph verifier. See verify.h for the list of rules.
 *
 * One walk over the nodes, with a name index for the uniqueness rules. Nothing read from the graph
 * is used as an index before it has been compared with the array's size, so that a broken graph
 * gives a message and not a crash. */
#include "ir/verify.h"

#include <inttypes.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "ir/body.h"
#include "ir/structure.h"
#include "ir/symbols.h"

typedef struct verifier {
    const ir_graph_t *graph;
    int depth;        /* bodies around it */
    st_map_t names;   /* of inputs, parameters and buffers, then aliases → node */
    uint8_t *updated; /* [n_values] state that an update has written */
    ir_type_t *types; /* scratch: inputs of a node, then its outputs */
    size_t n_types;
    ir_value_t next_value; /* first output the next node must have */
} verifier_t;

static bool is_state(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_STATE) != 0;
}

static st_status_t verify_at(const ir_graph_t *graph, int depth);

/* A body is a graph, and pure. */
static st_status_t verify_body(const ir_graph_t *body, int depth) {
    if (depth >= IR_MAX_DEPTH)
        return FAIL(ST_INVALID, "bodies in bodies, %d deep at most", IR_MAX_DEPTH);
    TRY(verify_at(body, depth + 1));
    return ir_body_check(body);
}

static st_status_t check_attrs(const ir_op_def_t *def, const ir_node_info_t *node, int depth) {
    uint32_t n = ir_op_n_attrs(def);
    if (n && !node->attrs) return FAIL(ST_INVALID, "the attributes are missing");
    for (uint32_t i = 0; i < n; i++) {
        const ir_attr_spec_t *spec = &def->attrs[i];
        const ir_attr_t *attr = &node->attrs[i];
        if (attr->kind != spec->kind)
            return FAIL(ST_INVALID, "attribute '%s' is of kind %s, %s is expected", spec->key,
                        ir_attr_kind_text(attr->kind), ir_attr_kind_text(spec->kind));
        bool bad = (attr->kind == IR_ATTR_BOOL && attr->i != 0 && attr->i != 1) ||
                   (attr->kind == IR_ATTR_DTYPE && !ir_dtype_valid(attr->i)) ||
                   (attr->kind == IR_ATTR_STRING && !attr->s) ||
                   (attr->kind == IR_ATTR_INTS && attr->ints.n && !attr->ints.v) ||
                   (attr->kind == IR_ATTR_DATA && attr->data.bytes && !attr->data.p) ||
                   (attr->kind == IR_ATTR_GRAPH && !attr->graph);
        if (bad && (attr->kind == IR_ATTR_BOOL || attr->kind == IR_ATTR_DTYPE))
            return FAIL(ST_INVALID, "attribute '%s' is %" PRId64 ", which is no %s", spec->key,
                        attr->i, ir_attr_kind_text(spec->kind));
        if (bad) return FAIL(ST_INVALID, "attribute '%s' points nowhere", spec->key);
        if (attr->kind != IR_ATTR_GRAPH) continue;
        st_status_t status = verify_body(attr->graph, depth);
        if (status != ST_OK) return st_error_context(status, "attribute '%s'", spec->key);
    }
    return ST_OK;
}

static st_status_t check_counts(verifier_t *v, const ir_op_def_t *def, const ir_node_info_t *node) {
    if (node->n_inputs < (uint32_t)def->min_inputs ||
        (def->max_inputs != IR_VARIADIC && node->n_inputs > (uint32_t)def->max_inputs))
        return FAIL(ST_INVALID, "%u inputs, which the op does not take", node->n_inputs);
    uint32_t n_outputs = ir_op_n_outputs(def, node->n_inputs, node->attrs);
    if (node->n_outputs != n_outputs)
        return FAIL(ST_INVALID, "%u outputs, %u expected", node->n_outputs, n_outputs);
    if ((unsigned)node->phase >= IR_PHASE_END)
        return FAIL(ST_INVALID, "phase %d, the last is %d", (int)node->phase, IR_PHASE_END - 1);
    ir_value_t first = n_outputs ? v->next_value : IR_NONE;
    if (node->first_output != first || n_outputs > v->graph->values.n - v->next_value)
        return FAIL(ST_INVALID, "first output is value %u, %u expected (%zu values)",
                    node->first_output, first, v->graph->values.n);
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (node->inputs[j] >= v->next_value)
            return FAIL(ST_INVALID, "input %u is value %u, which no earlier node makes", j,
                        node->inputs[j]);
    return ST_OK;
}

/* Room for `need` types in the scratch array. */
static st_status_t reserve_types(verifier_t *v, size_t need) {
    if (need <= v->n_types) return ST_OK;
    size_t count = need * 2;
    st_free(v->types);
    v->n_types = 0;
    v->types = st_calloc(count, sizeof *v->types);
    if (!v->types) return st_no_memory(count * sizeof *v->types, "the verifier");
    v->n_types = count;
    return ST_OK;
}

static st_status_t check_types(verifier_t *v, const ir_op_def_t *def, ir_node_t id) {
    const ir_graph_t *graph = v->graph;
    const ir_node_info_t *node = ir_node(graph, id);
    TRY(reserve_types(v, (size_t)node->n_inputs + node->n_outputs));
    ir_type_t *in = v->types, *out = v->types + node->n_inputs;
    for (uint32_t j = 0; j < node->n_inputs; j++) in[j] = *ir_value_type(graph, node->inputs[j]);
    memset(out, 0, node->n_outputs * sizeof *out);
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, in, node->attrs, node->name};
    TRY(def->shape(&ctx, out));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value_info_t *value = &graph->values.data[node->first_output + k];
        char given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
        if (value->producer != id || value->index != k)
            return FAIL(ST_INVALID, "value %u says it is output %u of node %u",
                        node->first_output + k, value->index, value->producer);
        TRY(ir_type_check(&out[k]));
        if (!ir_type_equal(&value->type, &out[k]))
            return FAIL(ST_INVALID, "output %u is %s, the shape rule says %s", k,
                        ir_type_text(&value->type, given, sizeof given),
                        ir_type_text(&out[k], expected, sizeof expected));
    }
    return ST_OK;
}

static st_status_t check_update(verifier_t *v, const ir_node_info_t *node) {
    const ir_graph_t *graph = v->graph;
    ir_value_t state = node->inputs[0];
    const ir_node_info_t *owner = ir_value_producer(graph, state);
    char have[IR_TYPE_TEXT_BYTES], want[IR_TYPE_TEXT_BYTES];
    if (!is_state(owner))
        return FAIL(ST_INVALID, "updates value %u of %s, which is no parameter or buffer", state,
                    ir_node_label(graph, graph->values.data[state].producer));
    if (v->updated[state]) return FAIL(ST_INVALID, "'%s' is updated a second time", owner->name);
    v->updated[state] = 1;
    const ir_type_t *type = ir_value_type(graph, state);
    const ir_type_t *given = ir_value_type(graph, node->inputs[1]);
    if (!ir_type_equal(type, given))
        return FAIL(ST_INVALID, "'%s' is %s, its update is %s", owner->name,
                    ir_type_text(type, want, sizeof want), ir_type_text(given, have, sizeof have));
    return ST_OK;
}

static st_status_t check_name(verifier_t *v, const ir_op_def_t *def, ir_node_t id) {
    const ir_node_info_t *node = ir_node(v->graph, id);
    if (node->op != IR_OP_INPUT && !(def->flags & IR_STATE)) return ST_OK;
    bool added;
    if (!node->name[0]) return FAIL(ST_INVALID, "inputs, parameters and buffers need a name");
    TRY(st_map_add_string(&v->names, node->name, id, &added));
    if (added) return ST_OK;
    uint32_t first = IR_NONE;
    st_map_get_string(&v->names, node->name, &first);
    return FAIL(ST_INVALID, "the name is taken by node %u", first);
}

static st_status_t check_node(verifier_t *v, ir_node_t id) {
    const ir_node_info_t *node = ir_node(v->graph, id);
    const ir_op_def_t *def = ir_op_def(node->op);
    if (!def) return FAIL(ST_INVALID, "node %u has the unknown op id %d", id, (int)node->op);
    if (!node->name) return FAIL(ST_INVALID, "node %u has no name string", id);
    st_status_t status = ST_OK;
    TRY_GOTO(check_attrs(def, node, v->depth), fail);
    TRY_GOTO(check_counts(v, def, node), fail);
    TRY_GOTO(check_types(v, def, id), fail);
    TRY_GOTO(check_name(v, def, id), fail);
    v->next_value += node->n_outputs;
    if (node->op == IR_OP_UPDATE) TRY_GOTO(check_update(v, node), fail);
    return ST_OK;
fail:
    return st_error_context(status, "%s", ir_node_label(v->graph, id));
}

static st_status_t check_aliases(verifier_t *v) {
    const ir_graph_t *graph = v->graph;
    for (size_t i = 0; i < graph->aliases.n; i++) {
        const ir_alias_t *alias = &graph->aliases.data[i];
        uint32_t node = IR_NONE;
        /* a name below n_nodes is a node's own; aliases of aliases are not allowed */
        if (!st_map_get_string(&v->names, alias->stored, &node) || node >= graph->nodes.n ||
            !is_state(ir_node(graph, node)))
            return FAIL(ST_INVALID, "alias '%s' stands for '%s', which is no parameter or buffer",
                        alias->name, alias->stored);
        bool added;
        TRY(st_map_add_string(&v->names, alias->name, IR_NONE, &added));
        if (!added) return FAIL(ST_INVALID, "alias '%s': the name is taken", alias->name);
        if (!alias->name[0]) return FAIL(ST_INVALID, "an alias of '%s' is empty", alias->stored);
    }
    return ST_OK;
}

static st_status_t check_outputs(const ir_graph_t *graph) {
    st_map_t names = {0};
    st_status_t status = ST_OK;
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const ir_output_t *output = &graph->outputs.data[i];
        bool added;
        if (!output->name[0]) TRY_GOTO(FAIL(ST_INVALID, "output %zu has no name", i), done);
        if (output->value >= graph->values.n)
            TRY_GOTO(FAIL(ST_INVALID, "output '%s' is value %u, which does not exist (%zu values)",
                          output->name, output->value, graph->values.n),
                     done);
        TRY_GOTO(st_map_add_string(&names, output->name, (uint32_t)i, &added), done);
        if (!added)
            TRY_GOTO(FAIL(ST_INVALID, "output name '%s' is used twice", output->name), done);
    }
done:
    st_map_free(&names);
    return status;
}

static st_status_t verify_at(const ir_graph_t *graph, int depth) {
    verifier_t v = {.graph = graph, .depth = depth};
    st_status_t status = ST_OK;
    if (graph->nodes.n >= IR_NONE || graph->values.n >= IR_NONE)
        return FAIL(ST_DOES_NOT_FIT, "%zu nodes and %zu values, the limit is %u", graph->nodes.n,
                    graph->values.n, IR_NONE - 1);
    v.updated = st_calloc(graph->values.n, 1);
    if (!v.updated) TRY_GOTO(st_no_memory(graph->values.n, "the verifier"), done);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) TRY_GOTO(check_node(&v, i), done);
    if (v.next_value != graph->values.n)
        TRY_GOTO(FAIL(ST_INVALID, "%zu values, the nodes make %u", graph->values.n, v.next_value),
                 done);
    TRY_GOTO(check_aliases(&v), done);
    TRY_GOTO(check_outputs(graph), done);
    if (graph->symbols.n || graph->variations.n) TRY_GOTO(ir_symbols_verify(graph), done);
done:
    st_map_free(&v.names);
    st_free(v.updated);
    st_free(v.types);
    return status;
}

st_status_t ir_graph_verify(const ir_graph_t *graph) {
    return verify_at(graph, 0);
}
