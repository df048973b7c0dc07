/* Settling a graph with a weights file: state takes the file's names, and what an importer could
 * only assume to be a parameter and the file does not hold becomes a constant. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "ir/build.h"
#include "ir/op.h"

typedef struct settling {
    stator_graph_t *graph;
    ir_graph_t *made;
    stator_tensors_t *values; /* what stands beside the graph; NULL if nothing */
    capi_file_t file;
    st_arena_t arena;
    weights_wanted_t *wanted;
    size_t n_wanted;
    weights_match_t match;
    ir_value_t *map; /* old value → new value */
} settling_t;

/* Place of a state node among the wanted ones, or n_wanted. */
static size_t wanted_index(const settling_t *s, const char *name) {
    size_t i = 0;
    while (i < s->n_wanted && strcmp(s->wanted[i].name, name) != 0) i++;
    return i;
}

/* `name` with the constant prefix put before it or taken away. */
static const char *apply_prefix(settling_t *s, const char *name) {
    size_t length = strlen(s->match.prefix);
    if (s->match.prefix_in_file) return st_arena_printf(&s->arena, "%s%s", s->match.prefix, name);
    return strncmp(name, s->match.prefix, length) == 0 ? name + length : name;
}

/* Stored name where the file holds the tensor, else the name with the prefix. NULL when out of
 * memory. */
static const char *new_name(settling_t *s, const char *name) {
    size_t i = wanted_index(s, name);
    if (i < s->n_wanted && s->match.tensors[i]) return s->match.tensors[i]->name;
    return apply_prefix(s, name);
}

static bool becomes_constant(const settling_t *s, const ir_node_info_t *node) {
    if (node->op != IR_OP_PARAMETER || !ir_attr_int(node, "assumed")) return false;
    size_t i = wanted_index(s, node->name);
    return i < s->n_wanted && !s->match.tensors[i];
}

static st_status_t constant_of(const settling_t *s, const ir_node_info_t *node,
                               const ir_type_t *type, ir_value_t *out) {
    ir_build_t b = {.graph = s->made};
    stator_tensor_t value;
    ir_type_t given;
    char text[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    if (!s->values)
        return FAIL(ST_NOT_FOUND,
                    "'%s' is not among the weights, and no values stand beside the graph",
                    node->name);
    TRY((st_status_t)stator_tensors_find(s->values, node->name, &value));
    TRY(capi_type_of(&value, &given));
    if (!ir_type_equal(&given, type))
        return FAIL(ST_INVALID, "the value of '%s' is %s, the graph has %s", node->name,
                    ir_type_text(&given, text, sizeof text),
                    ir_type_text(type, expected, sizeof expected));
    *out = ir_b_constant(&b, *type, value.data, value.bytes);
    return b.status;
}

static st_status_t copy_nodes(settling_t *s, state_report_t *constants) {
    const ir_graph_t *from = s->graph->ir;
    for (ir_node_t i = 0; i < from->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(from, i);
        if (becomes_constant(s, node)) {
            state_report_add(constants, "%s", node->name);
            TRY(constant_of(s, node, ir_value_type(from, node->first_output),
                            &s->map[node->first_output]));
            continue;
        }
        TRY(ir_graph_clone_node(s->made, from, i, NULL, s->map));
        if (!(ir_op_def(node->op)->flags & IR_STATE)) continue;
        const char *name = new_name(s, node->name);
        const char *owned = name ? st_arena_strdup(&s->made->arena, name) : NULL;
        if (!owned) return st_no_memory(0, "a name");
        s->made->nodes.data[s->made->nodes.n - 1].name = owned;
    }
    for (size_t i = 0; i < from->outputs.n; i++)
        TRY(ir_graph_add_output(s->made, from->outputs.data[i].name,
                                s->map[from->outputs.data[i].value]));
    return ST_OK;
}

static st_status_t add_alias_once(ir_graph_t *graph, const char *name, const char *stored) {
    if (strcmp(name, stored) == 0 || ir_graph_find(graph, stored) == IR_NONE) return ST_OK;
    for (size_t i = 0; i < graph->aliases.n; i++)
        if (strcmp(graph->aliases.data[i].name, name) == 0) return ST_OK;
    return ir_graph_add_alias(graph, name, stored);
}

/* The file's aliases, then the graph's own under their new names. */
static st_status_t copy_aliases(settling_t *s) {
    const ir_graph_t *from = s->graph->ir;
    for (size_t i = 0; i < safetensors_alias_count(s->file.file); i++)
        TRY(add_alias_once(s->made, safetensors_alias_name(s->file.file, i),
                           safetensors_alias_tensor(s->file.file, i)->name));
    for (size_t i = 0; i < from->aliases.n; i++) {
        const char *name = apply_prefix(s, from->aliases.data[i].name);
        const char *stored = new_name(s, from->aliases.data[i].stored);
        if (!name || !stored) return st_no_memory(0, "an alias");
        TRY(add_alias_once(s->made, name, stored));
    }
    return ST_OK;
}

static st_status_t rename_values(settling_t *s) {
    const ir_graph_t *from = s->graph->ir;
    for (size_t i = 0; s->values && i < from->nodes.n; i++) {
        const ir_node_info_t *node = &from->nodes.data[i];
        if (!(ir_op_def(node->op)->flags & IR_STATE) || becomes_constant(s, node)) continue;
        const char *name = new_name(s, node->name);
        if (!name) return st_no_memory(0, "a name");
        TRY(capi_tensors_rename(s->values, node->name, name));
    }
    return ST_OK;
}

static st_status_t settle(settling_t *s) {
    const ir_graph_t *from = s->graph->ir;
    state_report_t constants = {0};
    char note[sizeof constants.text + 100];
    TRY(capi_wanted(from, &s->arena, &s->n_wanted, &s->wanted));
    TRY(weights_match(s->file.file, s->wanted, s->n_wanted, &s->match));
    s->map = st_arena_array(&s->arena, from->values.n, sizeof *s->map);
    if (!s->map) return st_no_memory(from->values.n * sizeof *s->map, "settling");
    TRY(ir_graph_create(from->name, &s->made));
    s->made->producer = st_arena_strdup(&s->made->arena, from->producer);
    if (!s->made->producer) return st_no_memory(0, "a graph");
    TRY(copy_nodes(s, &constants));
    TRY(copy_aliases(s));
    TRY(rename_values(s));
    if (s->match.ignored.n)
        TRY(capi_graph_note(
            s->graph, state_report_text(&s->match.ignored, "weights left aside (no floats)", note,
                                        sizeof note)));
    if (constants.n == 0) return ST_OK;
    return capi_graph_note(
        s->graph,
        state_report_text(&constants, "constants (not among the weights)", note, sizeof note));
}

stator_status_t stator_graph_settle(stator_graph_t *graph, const stator_tensors_t *weights,
                                    stator_tensors_t *values) {
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(weights);
    settling_t s = {.graph = graph, .values = values};
    st_status_t status = ir_symbols_need_none(graph->ir);
    if (status == ST_OK) status = capi_tensors_file(weights, &s.file);
    if (status == ST_OK) status = settle(&s);
    if (status == ST_OK) {
        ir_graph_destroy(graph->ir);
        graph->ir = s.made;
    } else {
        ir_graph_destroy(s.made);
    }
    weights_match_free(&s.match);
    capi_file_release(&s.file);
    st_arena_clear(&s.arena);
    return capi_status(status);
}
