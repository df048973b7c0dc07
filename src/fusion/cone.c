/* Constant cones (cone.h).
 *
 * Whether a value is constant is one pass over the graph. Elements are computed by walking back
 * over what is not known yet with a stack of nodes (graphs may be deep), and kept as constants of a
 * second graph, where the folding of nodes finds its operands. */
#include "fusion/cone.h"

#include "base/memory.h"
#include "base/vec.h"
#include "fusion/fold.h"
#include "ir/convert.h"

enum { MAX_OUTPUTS = 8, MAX_ATTRS = 64, MAX_INPUTS = 64 };
#define UNKNOWABLE (IR_NONE - 1)

static bool starts_cone(ir_op_t op) {
    return op == IR_OP_CONSTANT || op == IR_OP_IOTA;
}

st_status_t fuse_cone_open(const ir_graph_t *graph, const ir_target_t *target,
                           fuse_cone_t *out_cone) {
    const uint32_t fixed = IR_RANDOM | IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE | IR_REGION;
    fuse_cone_t cone = {.graph = graph, .target = target};
    st_status_t status = ST_OK;
    *out_cone = (fuse_cone_t){0};
    cone.known = st_malloc((graph->values.n + 1) * sizeof *cone.known);
    cone.constant = st_calloc(graph->values.n + 1, 1);
    if (!cone.known || !cone.constant)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *cone.known, "constant cones"), fail);
    TRY_GOTO(ir_graph_create("constants", &cone.numbers), fail);
    for (size_t v = 0; v < graph->values.n; v++) cone.known[v] = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        bool constant =
            starts_cone(node->op) || (node->n_inputs > 0 && !(ir_op_def(node->op)->flags & fixed));
        for (uint32_t j = 0; constant && j < node->n_inputs; j++)
            constant = cone.constant[node->inputs[j]];
        for (uint32_t k = 0; k < node->n_outputs; k++)
            cone.constant[node->first_output + k] = constant;
    }
    *out_cone = cone;
    return ST_OK;
fail:
    fuse_cone_close(&cone);
    return status;
}

void fuse_cone_close(fuse_cone_t *cone) {
    ir_graph_destroy(cone->numbers);
    st_free(cone->known);
    st_free(cone->constant);
    *cone = (fuse_cone_t){0};
}

static ir_type_t wide(const ir_type_t *type) {
    ir_type_t made = *type;
    if (ir_dtype_is_float(made.dtype)) made.dtype = IR_F64;
    return made;
}

static st_status_t keep(fuse_cone_t *cone, ir_value_t value, const void *data, size_t bytes) {
    ir_type_t type = wide(ir_value_type(cone->graph, value));
    return ir_graph_add(
        cone->numbers, IR_OP_CONSTANT, NULL, 0, NULL, 3,
        (ir_arg_t[]){IR_ARG_DTYPE("dtype", type.dtype), IR_ARG_INTS("shape", type.dims, type.rank),
                     IR_ARG_DATA("data", data, bytes)},
        &cone->known[value]);
}

/* A constant of the graph, its elements as float64 if they are floats. */
static st_status_t keep_constant(fuse_cone_t *cone, const ir_node_info_t *node) {
    ir_value_t value = node->first_output;
    const ir_type_t *type = ir_value_type(cone->graph, value);
    const ir_attr_t *data = ir_node_attr(node, "data");
    size_t each = ir_dtype_bytes(type->dtype), n = data->data.bytes / each;
    if (!ir_dtype_is_float(type->dtype) || type->dtype == IR_F64)
        return keep(cone, value, data->data.p, data->data.bytes);
    if (n * sizeof(double) > FUSE_FOLD_MAX_BYTES) {
        cone->known[value] = UNKNOWABLE;
        return ST_OK;
    }
    double *elements = st_malloc(n * sizeof *elements + 1);
    if (!elements) return st_no_memory(n * sizeof *elements, "a constant");
    for (size_t i = 0; i < n; i++) elements[i] = ir_element_load(type->dtype, data->data.p, i);
    st_status_t status = keep(cone, value, elements, n * sizeof *elements);
    st_free(elements);
    return status;
}

/* A node all of whose inputs are known. */
static st_status_t compute(fuse_cone_t *cone, const ir_node_info_t *node) {
    ir_type_t in[MAX_INPUTS], out[MAX_OUTPUTS];
    ir_value_t inputs[MAX_INPUTS];
    ir_attr_t attrs[MAX_ATTRS];
    fuse_folded_t folded[MAX_OUTPUTS];
    uint32_t n_attrs = ir_op_n_attrs(ir_op_def(node->op));
    bool done = false;
    for (uint32_t k = 0; k < node->n_outputs; k++) cone->known[node->first_output + k] = UNKNOWABLE;
    if (node->n_inputs > MAX_INPUTS || node->n_outputs > MAX_OUTPUTS || n_attrs > MAX_ATTRS)
        return ST_OK;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        inputs[j] = cone->known[node->inputs[j]];
        if (inputs[j] == UNKNOWABLE) return ST_OK;
        in[j] = wide(ir_value_type(cone->graph, node->inputs[j]));
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] = wide(ir_value_type(cone->graph, node->first_output + k));
    for (uint32_t i = 0; i < n_attrs; i++) {
        attrs[i] = node->attrs[i];
        if (attrs[i].kind == IR_ATTR_DTYPE && ir_dtype_is_float((ir_dtype_t)attrs[i].i))
            attrs[i].i = IR_F64;
    }
    ir_op_ctx_t ctx = {node->op, node->n_inputs, node->n_outputs, in, attrs, node->name};
    TRY(fuse_evaluate(cone->target, cone->numbers, &ctx, inputs, out, folded, &done));
    st_status_t status = ST_OK;
    for (uint32_t k = 0; done && k < node->n_outputs; k++) {
        if (status == ST_OK)
            status = keep(cone, node->first_output + k, folded[k].data, folded[k].bytes);
        st_free(folded[k].data);
    }
    return status;
}

static st_status_t know(fuse_cone_t *cone, ir_value_t value) {
    const ir_graph_t *graph = cone->graph;
    ST_VEC(ir_node_t) stack = {0};
    st_status_t status = ST_OK;
    TRY_GOTO(ST_VEC_PUSH(&stack, graph->values.data[value].producer), done);
    while (stack.n) {
        const ir_node_info_t *node = ir_node(graph, stack.data[stack.n - 1]);
        size_t before = stack.n;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            if (cone->known[node->inputs[j]] == IR_NONE)
                TRY_GOTO(ST_VEC_PUSH(&stack, graph->values.data[node->inputs[j]].producer), done);
        if (stack.n > before) continue;
        stack.n--;
        if (cone->known[node->first_output] != IR_NONE) continue; /* pushed twice */
        TRY_GOTO(node->op == IR_OP_CONSTANT ? keep_constant(cone, node) : compute(cone, node),
                 done);
    }
done:
    ST_VEC_FREE(&stack);
    return status;
}

st_status_t fuse_cone_read(fuse_cone_t *cone, ir_value_t value, fuse_elements_t *out_elements) {
    *out_elements = (fuse_elements_t){0};
    if (!cone->constant[value]) return ST_OK;
    if (cone->known[value] == IR_NONE) TRY(know(cone, value));
    ir_value_t number = cone->known[value];
    if (number == UNKNOWABLE) return ST_OK;
    const ir_attr_t *data = ir_node_attr(ir_value_producer(cone->numbers, number), "data");
    const ir_type_t *type = ir_value_type(cone->numbers, number);
    *out_elements =
        (fuse_elements_t){*type, data->data.p, data->data.bytes == ir_dtype_bytes(type->dtype)};
    return ST_OK;
}

double fuse_element(const fuse_elements_t *elements, int64_t flat) {
    return ir_element_load(elements->type.dtype, elements->data,
                           elements->splat ? 0 : (size_t)flat);
}

st_status_t fuse_cone_uniform(fuse_cone_t *cone, ir_value_t value, double *out_number,
                              bool *out_found) {
    fuse_elements_t elements;
    *out_found = false;
    if (!cone->constant[value]) return ST_OK;
    const ir_node_info_t *node = ir_value_producer(cone->graph, value);
    /* a table of a constant is no scalar, and need not be converted to see it */
    if (node->op == IR_OP_CONSTANT && !fuse_splat(cone->graph, value)) return ST_OK;
    TRY(fuse_cone_read(cone, value, &elements));
    if (!elements.data || ir_type_elements(&elements.type) == 0) return ST_OK;
    int64_t n = elements.splat ? 1 : ir_type_elements(&elements.type);
    *out_number = fuse_element(&elements, 0);
    for (int64_t i = 1; i < n; i++)
        if (fuse_element(&elements, i) != *out_number) return ST_OK;
    *out_found = true;
    return ST_OK;
}
