/* Graphs as protobuf messages. See wire.h for the contract.
 *
 * Decoding trusts nothing: each node goes through ir_graph_add, which refuses unknown ops, wrong
 * attribute kinds and inputs that no earlier node makes (so there are no cycles), and runs the
 * shape rule; the types in the message are then compared with what the rule said. What is left
 * (names, outputs, aliases, updates) is the verifier's. */
#include "ir/wire.h"

#include <string.h>

#include "ir/body.h"
#include "ir/codec.h"
#include "ir/op.h"
#include "ir/structure.h"
#include "ir/symbols.h"
#include "ir/verify.h"

/* ---- to wire ---- */

/* Messages hold char * for strings that they never write to. protobuf-c drops a string in a oneof
 * if it is its own constant for "", hence a different one here. */
static char *wire_string(const char *text) {
    static char empty[] = "";
    return text[0] ? (char *)(uintptr_t)text : empty;
}

st_status_t ir_type_to_wire(const ir_type_t *type, st_arena_t *arena,
                            Stator__Wire__Type **out_wire) {
    Stator__Wire__Type *wire = st_arena_alloc(arena, sizeof *wire);
    int64_t *dims = st_arena_copy(arena, type->dims, (size_t)type->rank * sizeof *dims);
    if (!wire || !dims) return st_no_memory(sizeof *wire, "a type message");
    stator__wire__type__init(wire);
    wire->dtype = (uint32_t)type->dtype;
    wire->n_dims = (size_t)type->rank;
    wire->dims = dims;
    *out_wire = wire;
    return ST_OK;
}

static st_status_t ints_to_wire(const ir_attr_t *attr, st_arena_t *arena,
                                Stator__Wire__Ints **out_wire) {
    Stator__Wire__Ints *wire = st_arena_alloc(arena, sizeof *wire);
    if (!wire) return st_no_memory(sizeof *wire, "an attribute message");
    stator__wire__ints__init(wire);
    wire->n_values = attr->ints.n;
    wire->values = (int64_t *)(uintptr_t)attr->ints.v;
    *out_wire = wire;
    return ST_OK;
}

/* A body as a packed message. */
static st_status_t body_to_wire(const ir_graph_t *body, st_arena_t *arena,
                                ProtobufCBinaryData *out_data) {
    Stator__Wire__Graph *wire;
    TRY(ir_graph_to_wire(body, arena, &wire));
    size_t bytes = stator__wire__graph__get_packed_size(wire);
    uint8_t *data = st_arena_alloc(arena, bytes);
    if (!data) return st_no_memory(bytes, "a body's message");
    stator__wire__graph__pack(wire, data);
    *out_data = (ProtobufCBinaryData){bytes, data};
    return ST_OK;
}

static st_status_t attr_to_wire(const ir_attr_spec_t *spec, const ir_attr_t *attr,
                                st_arena_t *arena, Stator__Wire__Attribute *wire) {
    stator__wire__attribute__init(wire);
    wire->key = wire_string(spec->key);
    switch (attr->kind) {
        case IR_ATTR_INT:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_INT_VALUE;
            wire->int_value = attr->i;
            return ST_OK;
        case IR_ATTR_FLOAT:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_FLOAT_VALUE;
            wire->float_value = attr->f;
            return ST_OK;
        case IR_ATTR_BOOL:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_BOOL_VALUE;
            wire->bool_value = attr->i != 0;
            return ST_OK;
        case IR_ATTR_DTYPE:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_DTYPE_VALUE;
            wire->dtype_value = (uint32_t)attr->i;
            return ST_OK;
        case IR_ATTR_INTS:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_INTS_VALUE;
            return ints_to_wire(attr, arena, &wire->ints_value);
        case IR_ATTR_STRING:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_STRING_VALUE;
            wire->string_value = wire_string(attr->s);
            return ST_OK;
        case IR_ATTR_DATA:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_DATA_VALUE;
            wire->data_value.len = attr->data.bytes;
            wire->data_value.data = (uint8_t *)(uintptr_t)attr->data.p;
            return ST_OK;
        case IR_ATTR_GRAPH:
            wire->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_GRAPH_VALUE;
            return body_to_wire(attr->graph, arena, &wire->graph_value);
    }
    return FAIL(ST_INTERNAL, "attribute '%s' has no kind", spec->key);
}

static st_status_t node_to_wire(const ir_graph_t *graph, const ir_node_info_t *node,
                                st_arena_t *arena, Stator__Wire__Node *wire) {
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t n_attrs = ir_op_n_attrs(def);
    stator__wire__node__init(wire);
    wire->op = (uint32_t)node->op;
    wire->phase = (uint32_t)node->phase;
    wire->name = wire_string(node->name);
    wire->n_inputs = node->n_inputs;
    wire->inputs = (uint32_t *)(uintptr_t)node->inputs;
    Stator__Wire__Attribute *attrs = st_arena_array(arena, n_attrs, sizeof *attrs);
    wire->attributes = st_arena_array(arena, n_attrs, sizeof *wire->attributes);
    wire->outputs = st_arena_array(arena, node->n_outputs, sizeof *wire->outputs);
    if (!attrs || !wire->attributes || !wire->outputs)
        return st_no_memory(n_attrs * sizeof *attrs, "a node message");
    for (uint32_t i = 0; i < n_attrs; i++) {
        TRY(attr_to_wire(&def->attrs[i], &node->attrs[i], arena, &attrs[i]));
        wire->attributes[i] = &attrs[i];
    }
    wire->n_attributes = n_attrs;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        TRY(ir_type_to_wire(ir_value_type(graph, node->first_output + k), arena,
                            &wire->outputs[k]));
    wire->n_outputs = node->n_outputs;
    return ST_OK;
}

static st_status_t symbols_to_wire(const ir_graph_t *graph, st_arena_t *arena,
                                   Stator__Wire__Graph *wire) {
    size_t n_symbols = graph->symbols.n, n_variations = graph->variations.n;
    Stator__Wire__Symbol *symbols = st_arena_array(arena, n_symbols, sizeof *symbols);
    Stator__Wire__Variation *variations = st_arena_array(arena, n_variations, sizeof *variations);
    wire->symbols = st_arena_array(arena, n_symbols, sizeof *wire->symbols);
    wire->variations = st_arena_array(arena, n_variations, sizeof *wire->variations);
    if (!symbols || !variations || !wire->symbols || !wire->variations)
        return st_no_memory(n_variations * sizeof *variations, "a graph message");
    for (size_t i = 0; i < n_symbols; i++) {
        stator__wire__symbol__init(&symbols[i]);
        symbols[i].name = wire_string(graph->symbols.data[i].name);
        symbols[i].min = graph->symbols.data[i].min;
        symbols[i].max = graph->symbols.data[i].max;
        symbols[i].example = graph->symbols.data[i].example;
        wire->symbols[i] = &symbols[i];
    }
    for (size_t i = 0; i < n_variations; i++) {
        stator__wire__variation__init(&variations[i]);
        variations[i].value = graph->variations.data[i].value;
        variations[i].key = wire_string(graph->variations.data[i].key);
        variations[i].element = graph->variations.data[i].element;
        variations[i].expression = wire_string(graph->variations.data[i].expression);
        wire->variations[i] = &variations[i];
    }
    wire->n_symbols = n_symbols;
    wire->n_variations = n_variations;
    return ST_OK;
}

st_status_t ir_graph_to_wire(const ir_graph_t *graph, st_arena_t *arena,
                             Stator__Wire__Graph **out_wire) {
    *out_wire = NULL;
    size_t n_nodes = graph->nodes.n, n_outputs = graph->outputs.n, n_aliases = graph->aliases.n;
    Stator__Wire__Graph *wire = st_arena_alloc(arena, sizeof *wire);
    Stator__Wire__Node *nodes = st_arena_array(arena, n_nodes, sizeof *nodes);
    Stator__Wire__Output *outputs = st_arena_array(arena, n_outputs, sizeof *outputs);
    Stator__Wire__Alias *aliases = st_arena_array(arena, n_aliases, sizeof *aliases);
    if (!wire || !nodes || !outputs || !aliases)
        return st_no_memory(n_nodes * sizeof *nodes, "a graph message");
    stator__wire__graph__init(wire);
    wire->nodes = st_arena_array(arena, n_nodes, sizeof *wire->nodes);
    wire->outputs = st_arena_array(arena, n_outputs, sizeof *wire->outputs);
    wire->aliases = st_arena_array(arena, n_aliases, sizeof *wire->aliases);
    if (!wire->nodes || !wire->outputs || !wire->aliases)
        return st_no_memory(n_nodes * sizeof *wire->nodes, "a graph message");
    wire->format_version = IR_GRAPH_VERSION;
    wire->name = wire_string(graph->name);
    wire->producer = wire_string(graph->producer);
    for (size_t i = 0; i < n_nodes; i++) {
        TRY(node_to_wire(graph, &graph->nodes.data[i], arena, &nodes[i]));
        wire->nodes[i] = &nodes[i];
    }
    for (size_t i = 0; i < n_outputs; i++) {
        stator__wire__output__init(&outputs[i]);
        outputs[i].name = wire_string(graph->outputs.data[i].name);
        outputs[i].value = graph->outputs.data[i].value;
        wire->outputs[i] = &outputs[i];
    }
    for (size_t i = 0; i < n_aliases; i++) {
        stator__wire__alias__init(&aliases[i]);
        aliases[i].name = wire_string(graph->aliases.data[i].name);
        aliases[i].stored = wire_string(graph->aliases.data[i].stored);
        wire->aliases[i] = &aliases[i];
    }
    wire->n_nodes = n_nodes;
    wire->n_outputs = n_outputs;
    wire->n_aliases = n_aliases;
    *out_wire = wire;
    return symbols_to_wire(graph, arena, wire);
}

/* ---- from wire ---- */

st_status_t ir_wire_check_known(const ProtobufCMessage *message) {
    if (message->n_unknown_fields == 0) return ST_OK;
    return FAIL(ST_PARSE, "%s message has the unknown field %u", message->descriptor->short_name,
                (unsigned)message->unknown_fields[0].tag);
}

st_status_t ir_type_from_wire(const Stator__Wire__Type *wire, ir_type_t *out_type) {
    TRY(ir_wire_check_known(&wire->base));
    if (wire->n_dims > IR_MAX_RANK)
        return FAIL(ST_PARSE, "rank %zu is above %d", wire->n_dims, IR_MAX_RANK);
    if (!ir_dtype_valid(wire->dtype))
        return FAIL(ST_PARSE, "element type %u is not known", (unsigned)wire->dtype);
    *out_type = ir_type_make((ir_dtype_t)wire->dtype, (int32_t)wire->n_dims, wire->dims);
    return ir_type_check(out_type);
}

static st_status_t graph_from_wire(const Stator__Wire__Graph *wire, int depth,
                                   ir_graph_t **out_graph);

/* Here and not in protobuf-c's unpacking, which has no limit, a nest of bodies ends. */
static st_status_t body_from_wire(ProtobufCBinaryData data, int depth, ir_graph_t **out_body) {
    if (depth == IR_MAX_DEPTH)
        return FAIL(ST_DOES_NOT_FIT, "bodies in bodies, %d deep at most", IR_MAX_DEPTH);
    st_arena_t arena = {0};
    ProtobufCMessage *wire;
    st_status_t status =
        ir_wire_unpack(&stator__wire__graph__descriptor, data.data, data.len, &arena, &wire);
    if (status == ST_OK)
        status = graph_from_wire((const Stator__Wire__Graph *)wire, depth + 1, out_body);
    st_arena_clear(&arena);
    return status;
}

/* The attribute borrows from the message, but owns a body. */
static st_status_t attr_from_wire(const Stator__Wire__Attribute *wire, int depth,
                                  ir_attr_t *out_attr) {
    ir_graph_t *body;
    TRY(ir_wire_check_known(&wire->base));
    switch (wire->value_case) {
        case STATOR__WIRE__ATTRIBUTE__VALUE_INT_VALUE:
            *out_attr = (ir_attr_t){.kind = IR_ATTR_INT, .i = wire->int_value};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_FLOAT_VALUE:
            *out_attr = (ir_attr_t){.kind = IR_ATTR_FLOAT, .f = wire->float_value};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_BOOL_VALUE:
            *out_attr = (ir_attr_t){.kind = IR_ATTR_BOOL, .i = wire->bool_value != 0};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_DTYPE_VALUE:
            if (!ir_dtype_valid(wire->dtype_value))
                return FAIL(ST_PARSE, "attribute '%s': element type %u is not known", wire->key,
                            (unsigned)wire->dtype_value);
            *out_attr = (ir_attr_t){.kind = IR_ATTR_DTYPE, .i = wire->dtype_value};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_INTS_VALUE:
            TRY(ir_wire_check_known(&wire->ints_value->base));
            *out_attr = (ir_attr_t){
                .kind = IR_ATTR_INTS,
                .ints = {wire->ints_value->values, (uint32_t)wire->ints_value->n_values}};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_STRING_VALUE:
            *out_attr = (ir_attr_t){.kind = IR_ATTR_STRING, .s = wire->string_value};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_DATA_VALUE:
            *out_attr = (ir_attr_t){.kind = IR_ATTR_DATA,
                                    .data = {wire->data_value.data, wire->data_value.len}};
            return ST_OK;
        case STATOR__WIRE__ATTRIBUTE__VALUE_GRAPH_VALUE: {
            st_status_t status = body_from_wire(wire->graph_value, depth, &body);
            if (status != ST_OK) return st_error_context(status, "attribute '%s'", wire->key);
            *out_attr = (ir_attr_t){.kind = IR_ATTR_GRAPH, .graph = body};
            return ST_OK;
        }
        default:
            return FAIL(ST_PARSE, "attribute '%s' has no value", wire->key);
    }
}

enum { MAX_ATTRS = 64 }; /* more than any schema has */

/* What args_from_wire made. */
static void args_release(size_t n_args, const ir_arg_t args[MAX_ATTRS]) {
    for (size_t i = 0; i < n_args; i++)
        if (args[i].value.kind == IR_ATTR_GRAPH)
            ir_graph_destroy((ir_graph_t *)(uintptr_t)args[i].value.graph);
}

/* *out_n of the args are made, also on failure. */
static st_status_t args_from_wire(const ir_op_def_t *def, const Stator__Wire__Node *wire, int depth,
                                  ir_arg_t args[MAX_ATTRS], size_t *out_n) {
    uint32_t n_known = ir_op_n_attrs(def);
    ASSERT(n_known <= MAX_ATTRS);
    *out_n = 0;
    if (wire->n_attributes > n_known)
        return FAIL(ST_PARSE, "%zu attributes, the op has %u", wire->n_attributes, n_known);
    for (size_t i = 0; i < wire->n_attributes; i++) {
        args[i].key = wire->attributes[i]->key;
        TRY(attr_from_wire(wire->attributes[i], depth, &args[i].value));
        ++*out_n;
        for (size_t j = 0; j < i; j++)
            if (strcmp(args[i].key, args[j].key) == 0)
                return FAIL(ST_PARSE, "attribute '%s' is given twice", args[i].key);
    }
    return ST_OK;
}

static st_status_t check_output_types(const ir_graph_t *graph, const Stator__Wire__Node *wire) {
    const ir_node_info_t *node = ir_node(graph, (ir_node_t)(graph->nodes.n - 1));
    if (wire->n_outputs != node->n_outputs)
        return FAIL(ST_PARSE, "%zu output types, the op has %u outputs", wire->n_outputs,
                    node->n_outputs);
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_type_t stored;
        char given[IR_TYPE_TEXT_BYTES], derived[IR_TYPE_TEXT_BYTES];
        TRY(ir_type_from_wire(wire->outputs[k], &stored));
        const ir_type_t *type = ir_value_type(graph, node->first_output + k);
        if (!ir_type_equal(&stored, type))
            return FAIL(ST_PARSE, "output %u is stored as %s, the shape rule says %s", k,
                        ir_type_text(&stored, given, sizeof given),
                        ir_type_text(type, derived, sizeof derived));
    }
    return ST_OK;
}

static st_status_t node_from_wire(ir_graph_t *graph, const Stator__Wire__Node *wire, int depth) {
    ir_arg_t args[MAX_ATTRS];
    size_t n_args = 0;
    const ir_op_def_t *def = wire->op < (uint32_t)IR_OP_END ? ir_op_def((ir_op_t)wire->op) : NULL;
    TRY(ir_wire_check_known(&wire->base));
    if (!def)
        return FAIL(ST_UNSUPPORTED, "op id %u is not known: the file may need a newer Stator",
                    (unsigned)wire->op);
    if (wire->n_inputs > UINT32_MAX) return FAIL(ST_PARSE, "%zu inputs", wire->n_inputs);
    if (wire->phase >= IR_PHASE_END)
        return FAIL(ST_PARSE, "phase %u is not known, the last is %d", (unsigned)wire->phase,
                    IR_PHASE_END - 1);
    graph->phase = (ir_phase_t)wire->phase;
    st_status_t status = args_from_wire(def, wire, depth, args, &n_args);
    if (status == ST_OK)
        status = ir_graph_add(graph, def->op, wire->name, (uint32_t)wire->n_inputs, wire->inputs,
                              n_args, args, NULL);
    args_release(n_args, args);
    TRY(status);
    return check_output_types(graph, wire);
}

/* Without a search for duplicates: the verifier finds them. */
static st_status_t names_from_wire(ir_graph_t *graph, const Stator__Wire__Graph *wire) {
    for (size_t i = 0; i < wire->n_outputs; i++) {
        TRY(ir_wire_check_known(&wire->outputs[i]->base));
        TRY(ir_graph_append_output(graph, wire->outputs[i]->name, wire->outputs[i]->value));
    }
    for (size_t i = 0; i < wire->n_aliases; i++) {
        TRY(ir_wire_check_known(&wire->aliases[i]->base));
        TRY(ir_graph_append_alias(graph, wire->aliases[i]->name, wire->aliases[i]->stored));
    }
    return ST_OK;
}

static st_status_t symbols_from_wire(ir_graph_t *graph, const Stator__Wire__Graph *wire) {
    for (size_t i = 0; i < wire->n_symbols; i++) {
        const Stator__Wire__Symbol *s = wire->symbols[i];
        TRY(ir_wire_check_known(&s->base));
        TRY(ir_graph_add_symbol(graph, &(ir_symbol_t){s->name, s->min, s->max, s->example}));
    }
    for (size_t i = 0; i < wire->n_variations; i++) {
        const Stator__Wire__Variation *v = wire->variations[i];
        TRY(ir_wire_check_known(&v->base));
        TRY(ir_graph_add_variation(graph,
                                   &(ir_variation_t){v->value, v->key, v->element, v->expression}));
    }
    return ST_OK;
}

static st_status_t graph_from_wire(const Stator__Wire__Graph *wire, int depth,
                                   ir_graph_t **out_graph) {
    *out_graph = NULL;
    TRY(ir_wire_check_known(&wire->base));
    if (wire->format_version == 0 || wire->format_version > IR_GRAPH_VERSION)
        return FAIL(ST_UNSUPPORTED, "graph version %u, this build reads 1 to %d",
                    (unsigned)wire->format_version, IR_GRAPH_VERSION);
    ir_graph_t *graph = NULL;
    st_status_t status = ST_OK;
    TRY(ir_graph_create(wire->name, &graph));
    graph->producer = st_arena_strdup(&graph->arena, wire->producer);
    if (!graph->producer) TRY_GOTO(st_no_memory(0, "a graph"), fail);
    for (size_t i = 0; i < wire->n_nodes; i++) {
        status = node_from_wire(graph, wire->nodes[i], depth);
        if (status != ST_OK) {
            st_error_context(status, "node %zu", i);
            goto fail;
        }
    }
    graph->phase = IR_PHASE_FORWARD;
    TRY_GOTO(names_from_wire(graph, wire), fail);
    TRY_GOTO(symbols_from_wire(graph, wire), fail);
    TRY_GOTO(ir_graph_verify(graph), fail);
    *out_graph = graph;
    return ST_OK;
fail:
    ir_graph_destroy(graph);
    return status == ST_INVALID ? ST_PARSE : status;
}

st_status_t ir_graph_from_wire(const Stator__Wire__Graph *wire, ir_graph_t **out_graph) {
    return graph_from_wire(wire, 0, out_graph);
}

/* ---- unpacking ---- */

typedef struct unpack_memory {
    st_arena_t *arena;
    bool failed;
} unpack_memory_t;

static void *arena_take(void *context, size_t bytes) {
    unpack_memory_t *memory = context;
    void *taken = st_arena_alloc(memory->arena, bytes);
    memory->failed |= !taken;
    return taken;
}
/* The arena frees all at once. */
static void arena_keep(void *context, void *taken) {
    (void)context;
    (void)taken;
}

st_status_t ir_wire_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *data,
                           size_t bytes, st_arena_t *arena, ProtobufCMessage **out_message) {
    unpack_memory_t memory = {arena, false};
    ProtobufCAllocator allocator = {arena_take, arena_keep, &memory};
    *out_message = protobuf_c_message_unpack(descriptor, &allocator, bytes, data);
    if (*out_message) return ST_OK;
    if (memory.failed) return st_no_memory(bytes, "a message");
    return FAIL(ST_PARSE, "the %zu bytes after the header are no %s message", bytes,
                descriptor->short_name);
}
