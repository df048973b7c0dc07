/* Building graphs through the public API, and settling what an importer assumed. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/text.h"

stator_status_t stator_graph_add(stator_graph_t *graph, const char *op, const char *name,
                                 size_t n_inputs, const stator_value_t *inputs,
                                 const char *attributes, stator_value_t *out_first) {
    ir_value_t first = IR_NONE;
    st_status_t status = n_inputs > UINT32_MAX
                             ? FAIL(ST_INVALID, "%zu inputs are too many", n_inputs)
                             : ir_text_add(graph->ir, op, name, (uint32_t)n_inputs, inputs,
                                           attributes ? attributes : "", &first);
    if (out_first) *out_first = first;
    return capi_status(status);
}

stator_status_t stator_graph_add_port(stator_graph_t *graph, stator_port_kind_t kind,
                                      const stator_tensor_t *tensor, stator_value_t *out_value) {
    ir_build_t b = {.graph = graph->ir};
    ir_type_t type;
    *out_value = IR_NONE;
    const char *name = tensor->name ? tensor->name : "";
    st_status_t status = capi_type_of(tensor, &type);
    if (status == ST_OK && ir_graph_find(graph->ir, name) != IR_NONE)
        status = FAIL(ST_INVALID, "the name '%s' is taken", name);
    if (status != ST_OK) return capi_status(status);
    switch (kind) {
        case STATOR_INPUT:
            *out_value = ir_b_input(&b, name, type, type.rank > 0 ? 0 : -1);
            break;
        case STATOR_PARAMETER:
            *out_value = ir_b_parameter(&b, name, type);
            break;
        case STATOR_BUFFER:
            *out_value = ir_b_buffer(&b, name, type);
            break;
        case STATOR_OUTPUT:
            return capi_status(FAIL(ST_INVALID, "'%s': outputs are added by stator_graph_add_output", name));
    }
    return capi_status(b.status);
}

stator_status_t stator_graph_add_constant(stator_graph_t *graph, const stator_tensor_t *tensor,
                                          stator_value_t *out_value) {
    ir_build_t b = {.graph = graph->ir};
    ir_type_t type;
    *out_value = IR_NONE;
    st_status_t status = capi_type_of(tensor, &type);
    if (status == ST_OK && tensor->bytes != ir_type_bytes(&type))
        status = FAIL(ST_INVALID, "a constant of %zu bytes, its shape and type need %zu",
                      tensor->bytes, ir_type_bytes(&type));
    if (status != ST_OK) return capi_status(status);
    *out_value = ir_b_constant(&b, type, tensor->data, tensor->bytes);
    return capi_status(b.status);
}

stator_status_t stator_graph_add_output(stator_graph_t *graph, const char *name,
                                        stator_value_t value) {
    return capi_status(ir_graph_add_output(graph->ir, name, value));
}

stator_status_t stator_graph_value_type(const stator_graph_t *graph, stator_value_t value,
                                        stator_tensor_t *out_type) {
    if (value >= graph->ir->values.n)
        return capi_status(FAIL(ST_INVALID, "there is no value %u", value));
    *out_type = capi_tensor(NULL, ir_value_type(graph->ir, value), NULL);
    return STATOR_OK;
}

int stator_op_at(size_t index, stator_op_info_t *out_info) {
    static const stator_op_info_t rows[] = {
#define OP(enumerator, name, wire, summary) {#name, summary},
#include "ir/ops.def"
#undef OP
    };
    if (index >= sizeof rows / sizeof rows[0]) return 0;
    *out_info = rows[index];
    return 1;
}

/* ---- settling ---- */

static bool has_assumed(const ir_graph_t *graph) {
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.data[i].op == IR_OP_PARAMETER &&
            ir_attr_int(&graph->nodes.data[i], "assumed"))
            return true;
    return false;
}

/* True if `name` is an assumed parameter that the weights do not hold. */
static bool is_missing(const weights_wanted_t *wanted, const weights_match_t *match,
                       const ir_node_info_t *node) {
    if (node->op != IR_OP_PARAMETER || !ir_attr_int(node, "assumed")) return false;
    for (size_t i = 0; i < match->n; i++)
        if (strcmp(wanted[i].name, node->name) == 0) return match->tensors[i] == NULL;
    return false;
}

static st_status_t constant_of(ir_build_t *b, const ir_node_info_t *node, const ir_type_t *type,
                               const stator_tensors_t *values, ir_value_t *out) {
    stator_tensor_t value;
    if (!values)
        return FAIL(ST_NOT_FOUND, "'%s' is not among the weights, and the graph has no values beside it",
                    node->name);
    TRY((st_status_t)stator_tensors_find(values, node->name, &value));
    ir_type_t given;
    TRY(capi_type_of(&value, &given));
    char text[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    if (!ir_type_equal(&given, type))
        return FAIL(ST_INVALID, "the value of '%s' is %s, the graph has %s", node->name,
                    ir_type_text(&given, text, sizeof text),
                    ir_type_text(type, expected, sizeof expected));
    *out = ir_b_constant(b, *type, value.data, value.bytes);
    return b->status;
}

static st_status_t settle(stator_graph_t *graph, const weights_wanted_t *wanted,
                          const weights_match_t *match, const stator_tensors_t *values,
                          ir_value_t *map, ir_graph_t *made) {
    const ir_graph_t *from = graph->ir;
    ir_build_t b = {.graph = made};
    state_report_t constants = {0};
    for (ir_node_t i = 0; i < from->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(from, i);
        if (!is_missing(wanted, match, node)) {
            TRY(ir_graph_clone_node(made, from, i, NULL, map));
            continue;
        }
        state_report_add(&constants, "%s", node->name);
        TRY(constant_of(&b, node, ir_value_type(from, node->first_output), values,
                        &map[node->first_output]));
    }
    for (size_t i = 0; i < from->outputs.n; i++)
        TRY(ir_graph_add_output(made, from->outputs.data[i].name, map[from->outputs.data[i].value]));
    if (constants.n == 0) return ST_OK;
    char note[STATE_REPORT_NAMES * 120];
    return capi_graph_note(graph, state_report_text(&constants, "not among the weights, taken as constant",
                                                    note, sizeof note));
}

stator_status_t stator_graph_settle(stator_graph_t *graph, const stator_tensors_t *weights,
                                    const stator_tensors_t *values) {
    if (!has_assumed(graph->ir)) return STATOR_OK;
    st_arena_t arena = {0};
    capi_file_t file = {0};
    weights_match_t match = {0};
    weights_wanted_t *wanted = NULL;
    ir_graph_t *made = NULL;
    size_t n = 0;
    ir_value_t *map = st_calloc(graph->ir->values.n, sizeof *map);
    st_status_t status =
        map ? capi_tensors_file(weights, &file) : st_no_memory(graph->ir->values.n * 4, "settling");
    if (status == ST_OK) status = capi_wanted(graph->ir, &arena, &n, &wanted);
    if (status == ST_OK) status = weights_match(file.file, wanted, n, &match);
    if (status == ST_OK) status = ir_graph_create_like(graph->ir, &made);
    if (status == ST_OK) status = settle(graph, wanted, &match, values, map, made);
    if (status == ST_OK) {
        ir_graph_destroy(graph->ir);
        graph->ir = made;
    } else {
        ir_graph_destroy(made);
    }
    st_free(map);
    weights_match_free(&match);
    capi_file_release(&file);
    st_arena_clear(&arena);
    return capi_status(status);
}
