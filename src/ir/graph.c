/* Graph storage and construction. See graph.h for the contract. */
#include "ir/graph.h"

#include <stdio.h>
#include <string.h>

#include "ir/body.h"
#include "ir/structure.h"
#include "ir/symbols.h"

/* ---- op table ---- */

static const ir_op_def_t *const defs[IR_OP_END] = {
#define OP(enumerator, name, wire, ...) [IR_OP_##enumerator] = &ir_op_##name,
#include "ir/ops.def"
#undef OP
};

const ir_op_def_t *ir_op_def(ir_op_t op) {
    return (int)op > 0 && op < IR_OP_END ? defs[op] : NULL;
}

const ir_op_def_t *ir_op_def_by_name(const char *name) {
    for (int i = 1; i < IR_OP_END; i++)
        if (defs[i] && defs[i]->name[0] == name[0] && strcmp(defs[i]->name, name) == 0)
            return defs[i];
    return NULL;
}

uint32_t ir_op_n_attrs(const ir_op_def_t *def) {
    uint32_t n = 0;
    while (def->attrs && def->attrs[n].key) n++;
    return n;
}

uint32_t ir_op_n_outputs(const ir_op_def_t *def, uint32_t n_inputs, const ir_attr_t *attrs) {
    if (def->n_outputs != IR_VARIADIC) return (uint32_t)def->n_outputs;
    return def->count_outputs ? def->count_outputs(n_inputs, attrs) : n_inputs;
}

/* ---- attributes ---- */

static const ir_attr_t *attr_of(ir_op_t op, const ir_attr_t *attrs, const char *key) {
    const ir_op_def_t *def = ir_op_def(op);
    for (uint32_t i = 0; def->attrs && def->attrs[i].key; i++)
        if (strcmp(def->attrs[i].key, key) == 0) return &attrs[i];
    ASSERT(false && "the op has no such attribute");
    return NULL;
}
const ir_attr_t *ir_ctx_attr(const ir_op_ctx_t *ctx, const char *key) {
    return attr_of(ctx->op, ctx->attrs, key);
}
const ir_attr_t *ir_node_attr(const ir_node_info_t *node, const char *key) {
    return attr_of(node->op, node->attrs, key);
}
int64_t ir_attr_int(const ir_node_info_t *node, const char *key) {
    return ir_node_attr(node, key)->i;
}
double ir_attr_float(const ir_node_info_t *node, const char *key) {
    return ir_node_attr(node, key)->f;
}

static st_status_t body_own(ir_graph_t *graph, ir_attr_t *attr) {
    ir_graph_t *body = NULL;
    if (!attr->graph) return FAIL(ST_INVALID, "there is no body");
    if (ir_graph_depth(attr->graph) >= IR_MAX_DEPTH)
        return FAIL(ST_DOES_NOT_FIT, "bodies in bodies, %d deep at most", IR_MAX_DEPTH);
    TRY(ir_graph_copy(attr->graph, &body));
    attr->graph = body;
    st_status_t status = ST_VEC_PUSH(&graph->bodies, body);
    if (status != ST_OK) ir_graph_destroy(body);
    return status;
}

/* Copies what an attribute points to into the arena, a body into the graph's list. */
static st_status_t attr_own(ir_graph_t *graph, ir_attr_t *attr) {
    const void *source = NULL;
    size_t bytes = 0;
    switch (attr->kind) {
        case IR_ATTR_INTS:
            source = attr->ints.v;
            bytes = attr->ints.n * sizeof(int64_t);
            break;
        case IR_ATTR_DATA:
            source = attr->data.p;
            bytes = attr->data.bytes;
            break;
        case IR_ATTR_STRING:
            attr->s = st_arena_strdup(&graph->arena, attr->s ? attr->s : "");
            return attr->s ? ST_OK : st_no_memory(0, "an attribute");
        case IR_ATTR_GRAPH:
            return body_own(graph, attr);
        case IR_ATTR_INT:
        case IR_ATTR_FLOAT:
        case IR_ATTR_BOOL:
        case IR_ATTR_DTYPE:
            return ST_OK;
    }
    void *copy = st_arena_copy(&graph->arena, source, bytes);
    if (!copy) return st_no_memory(bytes, "an attribute");
    if (attr->kind == IR_ATTR_INTS)
        attr->ints.v = copy;
    else
        attr->data.p = copy;
    return ST_OK;
}

/* ---- life ---- */

st_status_t ir_graph_create(const char *name, ir_graph_t **out_graph) {
    *out_graph = NULL;
    ir_graph_t *graph = st_calloc(1, sizeof *graph);
    if (!graph) return st_no_memory(sizeof *graph, "a graph");
    graph->name = st_arena_strdup(&graph->arena, name ? name : "");
    graph->producer = "";
    if (!graph->name) {
        ir_graph_destroy(graph);
        return st_no_memory(0, "a graph");
    }
    *out_graph = graph;
    return ST_OK;
}

void ir_graph_destroy(ir_graph_t *graph) {
    if (!graph) return;
    for (size_t i = 0; i < graph->bodies.n; i++) ir_graph_destroy(graph->bodies.data[i]);
    ST_VEC_FREE(&graph->bodies);
    ST_VEC_FREE(&graph->nodes);
    ST_VEC_FREE(&graph->values);
    ST_VEC_FREE(&graph->outputs);
    ST_VEC_FREE(&graph->aliases);
    ST_VEC_FREE(&graph->symbols);
    ST_VEC_FREE(&graph->variations);
    st_map_free(&graph->output_names.map);
    st_map_free(&graph->alias_names.map);
    st_map_free(&graph->node_names);
    st_arena_clear(&graph->arena);
    st_free(graph);
}

st_status_t ir_graph_create_like(const ir_graph_t *graph, ir_graph_t **out_graph) {
    *out_graph = NULL;
    ir_graph_t *made = NULL;
    TRY(ir_graph_create(graph->name, &made));
    st_status_t status = ST_OK;
    made->producer = st_arena_strdup(&made->arena, graph->producer);
    if (!made->producer) TRY_GOTO(st_no_memory(0, "a graph"), fail);
    for (size_t i = 0; i < graph->aliases.n; i++)
        TRY_GOTO(
            ir_graph_append_alias(made, graph->aliases.data[i].name, graph->aliases.data[i].stored),
            fail);
    *out_graph = made;
    return ST_OK;
fail:
    ir_graph_destroy(made);
    return status;
}

st_status_t ir_graph_copy(const ir_graph_t *graph, ir_graph_t **out_graph) {
    TRY(ir_graph_rewrite(graph, NULL, NULL, NULL, out_graph));
    st_status_t status = ir_symbols_copy(graph, *out_graph);
    if (status == ST_OK) return ST_OK;
    ir_graph_destroy(*out_graph);
    *out_graph = NULL;
    return status;
}

/* ---- reading ---- */

static const char *const phases[] = {"forward", "backward", "optimizer"};

const char *ir_phase_text(ir_phase_t phase) {
    return phase >= 0 && phase < IR_PHASE_END ? phases[phase] : "unknown phase";
}

ir_phase_t ir_phase_parse(const char *text) {
    int phase = 0;
    while (phase < IR_PHASE_END && strcmp(text, phases[phase]) != 0) phase++;
    return (ir_phase_t)phase;
}

static bool op_is_named(ir_op_t op) {
    const ir_op_def_t *def = ir_op_def(op);
    return op == IR_OP_INPUT || (def->flags & IR_STATE);
}

static bool has_name(const ir_graph_t *graph, ir_node_t node, const char *name) {
    return node < graph->nodes.n && op_is_named(graph->nodes.data[node].op) &&
           strcmp(graph->nodes.data[node].name, name) == 0;
}

ir_node_t ir_graph_find(const ir_graph_t *graph, const char *name) {
    for (size_t i = 0; i < graph->aliases.n; i++)
        if (strcmp(graph->aliases.data[i].name, name) == 0) {
            name = graph->aliases.data[i].stored;
            break;
        }
    ir_node_t known;
    if (!st_map_get_string(&graph->node_names, name, &known)) return IR_NONE;
    if (has_name(graph, known, name)) return known;
    /* of a node that a failed pass has cut off again: another may have come after it */
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        if (has_name(graph, i, name)) return i;
    return IR_NONE;
}

bool ir_is_shadow(const ir_node_info_t *node) {
    return node->op == IR_OP_BUFFER &&
           strncmp(node->name, IR_SHADOW_PREFIX, strlen(IR_SHADOW_PREFIX)) == 0;
}

ir_node_t ir_master_of(const ir_graph_t *graph, const ir_node_info_t *node) {
    if (!ir_is_shadow(node)) return IR_NONE;
    const ir_node_t found = ir_graph_find(graph, node->name + strlen(IR_SHADOW_PREFIX));
    return found != IR_NONE && ir_node(graph, found)->op == IR_OP_PARAMETER ? found : IR_NONE;
}

ir_value_t ir_graph_find_output(const ir_graph_t *graph, const char *name) {
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (strcmp(graph->outputs.data[i].name, name) == 0) return graph->outputs.data[i].value;
    return IR_NONE;
}

const char *ir_node_label(const ir_graph_t *graph, ir_node_t node) {
    static _Thread_local char label[256];
    const ir_node_info_t *info = ir_node(graph, node);
    if (info->name[0])
        snprintf(label, sizeof label, "node %u (%s '%s')", node, ir_op_def(info->op)->name,
                 info->name);
    else
        snprintf(label, sizeof label, "node %u (%s)", node, ir_op_def(info->op)->name);
    return label;
}

st_status_t ir_uses_build(const ir_graph_t *graph, ir_uses_t *out_uses) {
    *out_uses = (ir_uses_t){0};
    size_t total = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) total += graph->nodes.data[i].n_inputs;
    uint32_t *first = st_calloc(graph->values.n + 2, sizeof *first);
    ir_node_t *node = st_calloc(total, sizeof *node);
    if (!first || !node) {
        st_free(first);
        st_free(node);
        return st_no_memory(total * sizeof *node, "the use lists");
    }
    /* counts shifted by two, so that after the prefix sum first[v + 1] is where v's list is filled
     * */
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (uint32_t j = 0; j < graph->nodes.data[i].n_inputs; j++)
            first[graph->nodes.data[i].inputs[j] + 2]++;
    for (size_t v = 0; v < graph->values.n; v++) first[v + 1] += first[v];
    if (graph->values.n) first[graph->values.n + 1] += first[graph->values.n];
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        for (uint32_t j = 0; j < graph->nodes.data[i].n_inputs; j++)
            node[first[graph->nodes.data[i].inputs[j] + 1]++] = i;
    *out_uses = (ir_uses_t){first, node};
    return ST_OK;
}

void ir_uses_free(ir_uses_t *uses) {
    st_free(uses->first);
    st_free(uses->node);
    *uses = (ir_uses_t){0};
}

/* ---- writing ---- */

enum { SMALL_OPERANDS = 8 };

static st_status_t check_inputs(const ir_graph_t *graph, const ir_op_def_t *def, uint32_t n_inputs,
                                const ir_value_t *inputs) {
    if (n_inputs < (uint32_t)def->min_inputs ||
        (def->max_inputs != IR_VARIADIC && n_inputs > (uint32_t)def->max_inputs))
        return FAIL(ST_INVALID, "%u inputs given, %d%s%d expected", n_inputs, def->min_inputs,
                    def->max_inputs == IR_VARIADIC ? " or more, not " : " to ", def->max_inputs);
    for (uint32_t j = 0; j < n_inputs; j++)
        if (inputs[j] >= graph->values.n)
            return FAIL(ST_INVALID, "input %u is value %u, which does not exist (%zu values)", j,
                        inputs[j], graph->values.n);
    return ST_OK;
}

/* Appends the node with attributes that the arena already owns. */
static st_status_t append(ir_graph_t *graph, const ir_op_def_t *def, ir_phase_t phase,
                          uint32_t slot, const char *name, uint32_t n_inputs,
                          const ir_value_t *inputs, const ir_attr_t *attrs, ir_value_t *out_first) {
    ir_type_t small_in[SMALL_OPERANDS], small_out[SMALL_OPERANDS];
    uint32_t n_outputs = ir_op_n_outputs(def, n_inputs, attrs);
    ir_type_t *in = n_inputs <= SMALL_OPERANDS ? small_in : st_calloc(n_inputs, sizeof *in);
    ir_type_t *out = n_outputs <= SMALL_OPERANDS ? small_out : st_calloc(n_outputs, sizeof *out);
    st_status_t status = ST_OK;
    if (!in || !out) TRY_GOTO(st_no_memory(n_inputs * sizeof *in, "a node"), done);
    for (uint32_t j = 0; j < n_inputs; j++) in[j] = *ir_value_type(graph, inputs[j]);
    memset(out, 0, n_outputs * sizeof *out);
    ir_op_ctx_t ctx = {def->op, n_inputs, n_outputs, in, attrs, name};
    TRY_GOTO(def->shape(&ctx, out), done);
    for (uint32_t k = 0; k < n_outputs; k++) TRY_GOTO(ir_type_check(&out[k]), done);
    ir_value_t *owned = st_arena_copy(&graph->arena, inputs, n_inputs * sizeof *inputs);
    const char *owned_name = name[0] ? st_arena_strdup(&graph->arena, name) : "";
    if (!owned || !owned_name) TRY_GOTO(st_no_memory(0, "a node"), done);
    TRY_GOTO(ST_VEC_RESERVE(&graph->values, graph->values.n + n_outputs), done);
    TRY_GOTO(ST_VEC_RESERVE(&graph->nodes, graph->nodes.n + 1), done);
    bool is_new;
    if (op_is_named(def->op))
        TRY_GOTO(
            st_map_add_string(&graph->node_names, owned_name, (ir_node_t)graph->nodes.n, &is_new),
            done);
    ir_node_info_t info = {.op = def->op,
                           .phase = phase,
                           .slot = slot,
                           .n_inputs = n_inputs,
                           .n_outputs = n_outputs,
                           .inputs = owned,
                           .first_output = n_outputs ? (ir_value_t)graph->values.n : IR_NONE,
                           .attrs = attrs,
                           .name = owned_name};
    graph->nodes.data[graph->nodes.n++] = info;
    for (uint32_t k = 0; k < n_outputs; k++)
        graph->values.data[graph->values.n++] =
            (ir_value_info_t){out[k], (ir_node_t)(graph->nodes.n - 1), k};
    if (out_first) *out_first = info.first_output;
done:
    if (in != small_in) st_free(in);
    if (out != small_out) st_free(out);
    return status;
}

static st_status_t attrs_make(ir_graph_t *graph, const ir_op_def_t *def, size_t n_args,
                              const ir_arg_t *args, const ir_attr_t **out_attrs) {
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_attr_t *attrs = st_arena_array(&graph->arena, n_attrs, sizeof *attrs);
    if (!attrs) return st_no_memory(n_attrs * sizeof *attrs, "attributes");
    for (uint32_t i = 0; i < n_attrs; i++) {
        const ir_attr_spec_t *spec = &def->attrs[i];
        const ir_arg_t *given = NULL;
        for (size_t a = 0; a < n_args; a++)
            if (strcmp(args[a].key, spec->key) == 0) given = &args[a];
        if (!given && spec->required)
            return FAIL(ST_INVALID, "attribute '%s' is missing", spec->key);
        if (given && given->value.kind != spec->kind)
            return FAIL(ST_INVALID, "attribute '%s' has the wrong kind", spec->key);
        attrs[i] = given ? given->value : ir_attr_default(spec);
        TRY(attr_own(graph, &attrs[i]));
    }
    for (size_t a = 0; a < n_args; a++) {
        bool known = false;
        for (uint32_t i = 0; i < n_attrs; i++) known |= !strcmp(args[a].key, def->attrs[i].key);
        if (!known) return FAIL(ST_INVALID, "there is no attribute '%s'", args[a].key);
    }
    *out_attrs = attrs;
    return ST_OK;
}

st_status_t ir_graph_add(ir_graph_t *graph, ir_op_t op, const char *name, uint32_t n_inputs,
                         const ir_value_t *inputs, size_t n_args, const ir_arg_t *args,
                         ir_value_t *out_first) {
    if (out_first) *out_first = IR_NONE;
    if (!name) name = "";
    const ir_op_def_t *def = ir_op_def(op);
    if (!def) return FAIL(ST_INVALID, "op id %d is not known", (int)op);
    st_status_t status;
    const ir_attr_t *attrs = NULL;
    TRY_GOTO(check_inputs(graph, def, n_inputs, inputs), fail);
    TRY_GOTO(attrs_make(graph, def, n_args, args, &attrs), fail);
    if (op_is_named(op) && !name[0])
        TRY_GOTO(FAIL(ST_INVALID, "inputs, parameters and buffers need a name"), fail);
    TRY_GOTO(
        append(graph, def, graph->phase, graph->slot, name, n_inputs, inputs, attrs, out_first),
        fail);
    return ST_OK;
fail:
    return name[0] ? st_error_context(status, "%s '%s'", def->name, name)
                   : st_error_context(status, "%s (node %zu)", def->name, graph->nodes.n);
}

st_status_t ir_graph_clone_node(ir_graph_t *graph, const ir_graph_t *from, ir_node_t node,
                                const ir_attr_t *attrs, ir_value_t *map) {
    const ir_node_info_t *info = ir_node(from, node);
    const ir_op_def_t *def = ir_op_def(info->op);
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_attr_t *owned =
        st_arena_copy(&graph->arena, attrs ? attrs : info->attrs, n_attrs * sizeof *owned);
    ir_value_t *inputs = st_arena_array(&graph->arena, info->n_inputs, sizeof *inputs);
    if (!owned || !inputs) return st_no_memory(n_attrs * sizeof *owned, "a node copy");
    for (uint32_t i = 0; i < n_attrs; i++) TRY(attr_own(graph, &owned[i]));
    for (uint32_t j = 0; j < info->n_inputs; j++) inputs[j] = map[info->inputs[j]];
    ir_value_t first = IR_NONE;
    st_status_t status = check_inputs(graph, def, info->n_inputs, inputs);
    if (status == ST_OK)
        status = append(graph, def, info->phase, info->slot, info->name, info->n_inputs, inputs,
                        owned, &first);
    if (status != ST_OK) return st_error_context(status, "%s", ir_node_label(from, node));
    ir_node_info_t *made = &graph->nodes.data[graph->nodes.n - 1];
    made->origin = info->origin;
    made->again = info->again;
    for (uint32_t k = 0; k < info->n_outputs; k++) map[info->first_output + k] = first + k;
    return ST_OK;
}

st_status_t ir_graph_clone_node_bodies(ir_graph_t *graph, const ir_graph_t *from, ir_node_t node,
                                       const ir_attr_t *attrs, ir_body_pass_t pass, void *context,
                                       ir_value_t *map) {
    const ir_node_info_t *info = ir_node(from, node);
    uint32_t n = ir_op_n_attrs(ir_op_def(info->op));
    if (!attrs) attrs = info->attrs;
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any |= attrs[i].kind == IR_ATTR_GRAPH;
    if (!any) return ir_graph_clone_node(graph, from, node, attrs, map);
    st_arena_t scratch = {0};
    ir_attr_t *made = st_arena_copy(&scratch, attrs, n * sizeof *made);
    ir_graph_t **bodies = st_arena_array(&scratch, n, sizeof(ir_graph_t *));
    st_status_t status = ST_OK;
    if (!made || !bodies) {
        st_arena_clear(&scratch);
        return st_no_memory(n * sizeof *made, "a node copy");
    }
    memset(bodies, 0, n * sizeof(ir_graph_t *));
    for (uint32_t i = 0; i < n && status == ST_OK; i++) {
        if (made[i].kind != IR_ATTR_GRAPH) continue;
        status = pass(context, made[i].graph, &bodies[i]);
        if (status != ST_OK) st_error_context(status, "in %s", ir_node_label(from, node));
        made[i].graph = bodies[i];
    }
    if (status == ST_OK) status = ir_graph_clone_node(graph, from, node, made, map);
    for (uint32_t i = 0; i < n; i++) ir_graph_destroy(bodies[i]);
    st_arena_clear(&scratch);
    return status;
}

st_status_t ir_graph_rewrite(const ir_graph_t *graph, const ir_node_t *order, ir_rewrite_t rewrite,
                             void *context, ir_graph_t **out_graph) {
    *out_graph = NULL;
    ir_graph_t *to = NULL;
    ir_value_t *map = st_malloc(graph->values.n * sizeof *map);
    st_status_t status = ST_OK;
    if (!map) return st_no_memory(graph->values.n * sizeof *map, "a graph copy");
    for (size_t v = 0; v < graph->values.n; v++) map[v] = IR_NONE;
    TRY_GOTO(ir_graph_create_like(graph, &to), fail);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        ir_node_t node = order ? order[i] : (ir_node_t)i;
        ir_graph_stand_for(to, ir_node(graph, node));
        TRY_GOTO(rewrite ? rewrite(context, to, graph, node, map)
                         : ir_graph_clone_node(to, graph, node, NULL, map),
                 fail);
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        TRY_GOTO(ir_graph_append_output(to, graph->outputs.data[i].name,
                                        map[graph->outputs.data[i].value]),
                 fail);
    st_free(map);
    ir_graph_stand_alone(to);
    *out_graph = to;
    return ST_OK;
fail:
    st_free(map);
    ir_graph_destroy(to);
    return status;
}

/* ---- origins ---- */

void ir_graph_mark_origins(ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) graph->nodes.data[n].origin = n + 1;
    for (size_t b = 0; b < graph->bodies.n; b++) {
        ir_graph_t *body = graph->bodies.data[b];
        for (ir_node_t n = 0; n < body->nodes.n; n++) body->nodes.data[n].origin = n + 1;
    }
}

bool ir_graph_repeats(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (graph->nodes.data[n].again) return true;
    return false;
}

uint64_t ir_graph_value_bytes(const ir_graph_t *graph) {
    uint64_t bytes = 0;
    for (ir_value_t v = 0; v < graph->values.n; v++)
        bytes += ir_type_bytes(ir_value_type(graph, v));
    return bytes;
}

/* ---- names ---- */

st_status_t ir_graph_append_output(ir_graph_t *graph, const char *name, ir_value_t value) {
    if (value >= graph->values.n)
        return FAIL(ST_INVALID, "output '%s' is value %u, which does not exist", name, value);
    const char *owned = st_arena_strdup(&graph->arena, name);
    if (!owned) return st_no_memory(0, "an output name");
    return ST_VEC_PUSH(&graph->outputs, ((ir_output_t){value, owned}));
}

st_status_t ir_graph_append_alias(ir_graph_t *graph, const char *name, const char *stored) {
    ir_alias_t alias = {st_arena_strdup(&graph->arena, name),
                        st_arena_strdup(&graph->arena, stored)};
    if (!alias.name || !alias.stored) return st_no_memory(0, "an alias");
    return ST_VEC_PUSH(&graph->aliases, alias);
}

/* The index takes in what was appended since it was last asked, so each name enters it once. */
static st_status_t find_duplicate(ir_names_t *names, const ir_graph_t *graph, size_t n,
                                  const char *(*name_at)(const ir_graph_t *, size_t),
                                  const char *name, bool *out_found) {
    for (; names->n < n; names->n++) {
        uint32_t found;
        const char *known = name_at(graph, names->n);
        TRY(st_map_add(&names->map, known, strlen(known), 0, &found));
    }
    uint32_t value;
    *out_found = st_map_get_string(&names->map, name, &value);
    return ST_OK;
}

static const char *output_name(const ir_graph_t *graph, size_t i) {
    return graph->outputs.data[i].name;
}
static const char *alias_name(const ir_graph_t *graph, size_t i) {
    return graph->aliases.data[i].name;
}

st_status_t ir_graph_add_output(ir_graph_t *graph, const char *name, ir_value_t value) {
    bool found;
    TRY(find_duplicate(&graph->output_names, graph, graph->outputs.n, output_name, name, &found));
    if (found) return FAIL(ST_INVALID, "output name '%s' is used twice", name);
    return ir_graph_append_output(graph, name, value);
}

st_status_t ir_graph_add_alias(ir_graph_t *graph, const char *name, const char *stored) {
    bool found;
    TRY(find_duplicate(&graph->alias_names, graph, graph->aliases.n, alias_name, name, &found));
    if (found) return FAIL(ST_INVALID, "alias '%s' is declared twice", name);
    return ir_graph_append_alias(graph, name, stored);
}
