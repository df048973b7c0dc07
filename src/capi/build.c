/* Building graphs through the public API. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/text.h"

stator_status_t stator_graph_add(stator_graph_t *graph, const char *op, const char *name,
                                 size_t n_inputs, const stator_value_t *inputs,
                                 const char *attributes, stator_value_t *out_first) {
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(op);
    CAPI_REQUIRE_N(inputs, n_inputs);
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
    CAPI_REQUIRE(out_value);
    *out_value = IR_NONE;
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(tensor);
    CAPI_REQUIRE(tensor->name);
    ir_build_t b = {.graph = graph->ir};
    ir_type_t type;
    const char *name = tensor->name;
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
            return capi_status(
                FAIL(ST_INVALID, "'%s': outputs are added by stator_graph_add_output", name));
        default: /* any number comes through the interface */
            return capi_status(FAIL(ST_INVALID,
                                    "'%s': kind %d is none of STATOR_INPUT, STATOR_PARAMETER and "
                                    "STATOR_BUFFER",
                                    name, (int)kind));
    }
    return capi_status(b.status);
}

stator_status_t stator_graph_add_constant(stator_graph_t *graph, const stator_tensor_t *tensor,
                                          stator_value_t *out_value) {
    CAPI_REQUIRE(out_value);
    *out_value = IR_NONE;
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(tensor);
    CAPI_REQUIRE_N(tensor->data, tensor->bytes);
    ir_build_t b = {.graph = graph->ir};
    ir_type_t type;
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
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(name);
    return capi_status(ir_graph_add_output(graph->ir, name, value));
}

stator_status_t stator_graph_value_type(const stator_graph_t *graph, stator_value_t value,
                                        stator_tensor_t *out_type) {
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(out_type);
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
