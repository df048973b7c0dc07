#include "import/onnx_make.h"

#include <string.h>

static void *take(make_t *m, size_t bytes) {
    return st_arena_alloc(&m->arena, bytes);
}

static char *text(make_t *m, const char *value) {
    return st_arena_strdup(&m->arena, value);
}

void make_open(make_t *m, int64_t opset) {
    *m = (make_t){.model = ONNX__MODEL_PROTO__INIT,
                  .graph = ONNX__GRAPH_PROTO__INIT,
                  .opset = ONNX__OPERATOR_SET_ID_PROTO__INIT};
    m->opset.has_version = 1;
    m->opset.version = opset;
    m->opsets[0] = &m->opset;
    m->model.has_ir_version = 1;
    m->model.ir_version = 8;
    m->model.graph = &m->graph;
    m->model.n_opset_import = 1;
    m->model.opset_import = m->opsets;
    m->graph.name = "g";
    m->graph.node = m->nodes;
    m->graph.initializer = m->initializers;
    m->graph.input = m->inputs;
    m->graph.output = m->outputs;
}

void make_close(make_t *m) {
    st_arena_clear(&m->arena);
}

static Onnx__ValueInfoProto *value_info(make_t *m, const char *name) {
    Onnx__ValueInfoProto *info = take(m, sizeof *info);
    onnx__value_info_proto__init(info);
    info->name = text(m, name);
    return info;
}

void make_input(make_t *m, const char *name, int32_t dtype, size_t rank, const int64_t *dims) {
    Onnx__ValueInfoProto *info = value_info(m, name);
    Onnx__TypeProto *type = info->type = take(m, sizeof *type);
    onnx__type_proto__init(type);
    Onnx__TypeProto__Tensor *tensor = take(m, sizeof *tensor);
    onnx__type_proto__tensor__init(tensor);
    Onnx__TensorShapeProto *shape = take(m, sizeof *shape);
    onnx__tensor_shape_proto__init(shape);
    shape->n_dim = rank;
    shape->dim = take(m, (rank + 1) * sizeof *shape->dim);
    for (size_t i = 0; i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *dim = shape->dim[i] = take(m, sizeof *dim);
        onnx__tensor_shape_proto__dimension__init(dim);
        dim->value_case = dims[i] == -1 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                                        : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (dims[i] == -1)
            dim->dim_param = "batch";
        else
            dim->dim_value = dims[i];
    }
    tensor->has_elem_type = 1;
    tensor->elem_type = dtype;
    tensor->shape = shape;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    m->inputs[m->graph.n_input++] = info;
}

void make_output(make_t *m, const char *name) {
    m->outputs[m->graph.n_output++] = value_info(m, name);
}

/* Splits "a,,b" into names, empty ones included. */
static char **names(make_t *m, const char *list, size_t *out_n) {
    char *copy = text(m, list), **out = take(m, 16 * sizeof *out);
    *out_n = 0;
    if (!list[0]) return out;
    for (char *at = copy, *comma; at; at = comma) {
        comma = strchr(at, ',');
        if (comma) *comma++ = '\0';
        out[(*out_n)++] = at;
    }
    return out;
}

Onnx__NodeProto *make_node(make_t *m, const char *op, const char *inputs, const char *outputs) {
    Onnx__NodeProto *node = take(m, sizeof *node);
    onnx__node_proto__init(node);
    node->op_type = text(m, op);
    node->name = st_arena_printf(&m->arena, "%s_node", op);
    node->input = names(m, inputs, &node->n_input);
    node->output = names(m, outputs, &node->n_output);
    node->attribute = take(m, 16 * sizeof *node->attribute);
    m->nodes[m->graph.n_node++] = node;
    return node;
}

static Onnx__AttributeProto *attribute(make_t *m, Onnx__NodeProto *node, const char *name,
                                       Onnx__AttributeProto__AttributeType type) {
    Onnx__AttributeProto *a = take(m, sizeof *a);
    onnx__attribute_proto__init(a);
    a->name = text(m, name);
    a->has_type = 1;
    a->type = type;
    node->attribute[node->n_attribute++] = a;
    return a;
}

void make_int(make_t *m, Onnx__NodeProto *node, const char *name, int64_t value) {
    Onnx__AttributeProto *a = attribute(m, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    a->has_i = 1;
    a->i = value;
}

void make_float(make_t *m, Onnx__NodeProto *node, const char *name, float value) {
    Onnx__AttributeProto *a =
        attribute(m, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    a->has_f = 1;
    a->f = value;
}

void make_string(make_t *m, Onnx__NodeProto *node, const char *name, const char *value) {
    Onnx__AttributeProto *a =
        attribute(m, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = 1;
    a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)text(m, value)};
}

void make_ints(make_t *m, Onnx__NodeProto *node, const char *name, size_t n,
               const int64_t *values) {
    Onnx__AttributeProto *a = attribute(m, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->n_ints = n;
    a->ints = st_arena_copy(&m->arena, values, n * sizeof *values);
}

Onnx__TensorProto *make_tensor(make_t *m, const char *name, int32_t dtype, size_t rank,
                               const int64_t *dims, const void *data, size_t bytes) {
    Onnx__TensorProto *t = take(m, sizeof *t);
    onnx__tensor_proto__init(t);
    t->name = text(m, name);
    t->has_data_type = 1;
    t->data_type = dtype;
    t->n_dims = rank;
    t->dims = st_arena_copy(&m->arena, dims, rank * sizeof *dims);
    if (data) {
        t->has_raw_data = 1;
        t->raw_data = (ProtobufCBinaryData){bytes, st_arena_copy(&m->arena, data, bytes)};
    }
    m->initializers[m->graph.n_initializer++] = t;
    return t;
}

void make_floats(make_t *m, const char *name, size_t n, const float *values) {
    make_tensor(m, name, MAKE_F32, 1, (int64_t[]){(int64_t)n}, values, n * sizeof *values);
}

void make_longs(make_t *m, const char *name, size_t n, const int64_t *values) {
    make_tensor(m, name, MAKE_I64, 1, (int64_t[]){(int64_t)n}, values, n * sizeof *values);
}

const void *make_pack(make_t *m, size_t *out_bytes) {
    uint8_t *data = take(m, onnx__model_proto__get_packed_size(&m->model) + 1);
    *out_bytes = onnx__model_proto__pack(&m->model, data);
    return data;
}

st_status_t make_import(make_t *m, const import_options_t *options, import_result_t **out_result) {
    size_t bytes;
    const void *data = make_pack(m, &bytes);
    return import_memory(data, bytes, "made.onnx", options, out_result);
}
