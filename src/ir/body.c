/* Bodies. See body.h for the contract. */
#include "ir/body.h"

#include <stdio.h>
#include <string.h>

uint32_t ir_body_n_inputs(const ir_graph_t *body) {
    uint32_t n = 0;
    for (size_t i = 0; i < body->nodes.n; i++) n += body->nodes.data[i].op == IR_OP_INPUT;
    return n;
}

void ir_body_inputs(const ir_graph_t *body, ir_value_t *out) {
    for (size_t i = 0; i < body->nodes.n; i++)
        if (body->nodes.data[i].op == IR_OP_INPUT) *out++ = body->nodes.data[i].first_output;
}

ir_node_t ir_body_next_input(const ir_graph_t *body, ir_node_t from) {
    while (from < body->nodes.n && ir_node(body, from)->op != IR_OP_INPUT) from++;
    return from;
}

st_status_t ir_body_check_operand(const ir_graph_t *body, ir_node_t input, uint32_t j,
                                  const ir_type_t *seen) {
    const ir_node_info_t *node = ir_node(body, input);
    const ir_type_t *type = ir_value_type(body, node->first_output);
    char given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    if (ir_type_equal(type, seen)) return ST_OK;
    return FAIL(ST_INVALID, "operand %u is %s to the body, its input '%s' is %s", j,
                ir_type_text(seen, given, sizeof given), node->name,
                ir_type_text(type, expected, sizeof expected));
}

bool ir_node_is_random(const ir_node_info_t *node) {
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t n = ir_op_n_attrs(def);
    if (def->flags & IR_RANDOM) return true;
    for (uint32_t a = 0; a < n; a++)
        if (node->attrs[a].kind == IR_ATTR_GRAPH && ir_body_is_random(node->attrs[a].graph))
            return true;
    return false;
}

bool ir_body_is_random(const ir_graph_t *body) {
    for (size_t i = 0; i < body->nodes.n; i++)
        if (ir_node_is_random(&body->nodes.data[i])) return true;
    return false;
}

int ir_graph_depth(const ir_graph_t *graph) {
    int depth = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        uint32_t n = ir_op_n_attrs(ir_op_def(node->op));
        for (uint32_t a = 0; a < n; a++) {
            if (node->attrs[a].kind != IR_ATTR_GRAPH) continue;
            int inner = 1 + ir_graph_depth(node->attrs[a].graph);
            if (inner > depth) depth = inner;
        }
    }
    return depth;
}

st_status_t ir_body_check(const ir_graph_t *body) {
    if (body->aliases.n)
        return FAIL(ST_INVALID, "a body has no state, hence no alias: '%s'",
                    body->aliases.data[0].name);
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        uint32_t flags = ir_op_def(ir_node(body, i)->op)->flags;
        const char *what = flags & IR_STATE         ? "state"
                           : flags & IR_COLLECTIVE  ? "a collective"
                           : flags & IR_SIDE_EFFECT ? "an effect"
                                                    : NULL;
        if (what)
            return FAIL(ST_INVALID, "%s is %s, which a body must not have", ir_node_label(body, i),
                        what);
    }
    return ST_OK;
}

ir_value_t ir_b_body_input(ir_build_t *b, const ir_type_t *type) {
    char name[16];
    if (b->status != ST_OK) return IR_NONE;
    snprintf(name, sizeof name, "%u", ir_body_n_inputs(b->graph));
    return ir_b_input(b, name, *type, -1);
}

ir_value_t ir_b_body_input_beside(ir_build_t *b, const ir_graph_t *from, const ir_type_t *type) {
    char name[24];
    if (b->status != ST_OK) return IR_NONE;
    uint32_t number = ir_body_n_inputs(b->graph);
    do snprintf(name, sizeof name, "%u", number++);
    while (ir_graph_find(from, name) != IR_NONE || ir_graph_find(b->graph, name) != IR_NONE);
    return ir_b_input(b, name, *type, -1);
}

ir_node_t *ir_body_inputs_first(const ir_graph_t *body) {
    ir_node_t *order = st_calloc(body->nodes.n + 1, sizeof *order);
    size_t at = 0;
    if (!order) return NULL;
    for (int others = 0; others < 2; others++)
        for (ir_node_t i = 0; i < body->nodes.n; i++)
            if ((ir_node(body, i)->op != IR_OP_INPUT) == others) order[at++] = i;
    return order;
}

void ir_b_body_output(ir_build_t *b, ir_value_t value) {
    char name[24];
    if (b->status != ST_OK) return;
    snprintf(name, sizeof name, "%zu", b->graph->outputs.n);
    ir_b_output(b, name, value);
}

st_status_t ir_body_add_output(ir_graph_t *body, ir_value_t value) {
    char name[32];
    for (size_t i = body->outputs.n;; i++) {
        snprintf(name, sizeof name, "%zu", i);
        if (ir_graph_find_output(body, name) == IR_NONE) break;
    }
    return ir_graph_append_output(body, name, value);
}

st_status_t ir_body_inline(ir_graph_t *graph, const ir_graph_t *body, const ir_value_t *inputs,
                           ir_value_t *out) {
    ir_value_t *map = st_malloc(body->values.n * sizeof *map);
    st_status_t status = ST_OK;
    if (!map) return st_no_memory(body->values.n * sizeof *map, "a body's values");
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        if (node->op == IR_OP_INPUT) {
            map[node->first_output] = *inputs++;
            continue;
        }
        TRY_GOTO(ir_graph_clone_node(graph, body, i, NULL, map), done);
        graph->nodes.data[graph->nodes.n - 1].phase = graph->phase;
        graph->nodes.data[graph->nodes.n - 1].slot = graph->slot;
    }
    for (size_t k = 0; k < body->outputs.n; k++) out[k] = map[body->outputs.data[k].value];
done:
    st_free(map);
    return status;
}

/* ---- control flow ---- */

ir_region_info_t ir_region_info(const ir_node_info_t *node) {
    const ir_attr_spec_t *specs = ir_op_def(node->op)->attrs;
    ir_region_info_t info = {.trip = 1};
    if (!(ir_op_def(node->op)->flags & IR_REGION)) return (ir_region_info_t){0};
    for (uint32_t i = 0; specs[i].key; i++) {
        const ir_attr_t *attr = &node->attrs[i];
        if (specs[i].kind == IR_ATTR_GRAPH) {
            ASSERT(info.n_bodies < IR_MAX_BODIES);
            info.attr[info.n_bodies] = i;
            info.bodies[info.n_bodies++] = attr->graph;
        } else if (strcmp(specs[i].key, "carried") == 0) {
            info.carried = (uint32_t)attr->i;
        } else if (strcmp(specs[i].key, "scanned") == 0) {
            info.scanned = (uint32_t)attr->i;
        } else if (strcmp(specs[i].key, "trip") == 0) {
            info.trip = attr->i;
        } else if (strcmp(specs[i].key, "reverse") == 0) {
            info.reverse = attr->i != 0;
        }
    }
    info.n_inputs = ir_body_n_inputs(info.bodies[0]);
    info.first = node->n_inputs - info.n_inputs;
    return info;
}
