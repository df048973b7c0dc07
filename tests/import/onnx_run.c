#include "import/onnx_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/convert.h"
#include "ir/expand.h"
#include "kernels/table.h"

/* ---- tensors ---- */

static ir_dtype_t dtype_of(int32_t data_type) {
    static const ir_dtype_t known[] = {
        [1] = IR_F32,  [2] = IR_U8,   [3] = IR_I8,   [6] = IR_I32,  [7] = IR_I64,
        [9] = IR_BOOL, [10] = IR_F16, [11] = IR_F64, [16] = IR_BF16};
    return data_type >= 0 && data_type <= 16 ? known[data_type] : IR_DTYPE_NONE;
}

bool onnx_run_tensor(const Onnx__TensorProto *t, ir_type_t *out_type, void **out_data) {
    ir_dtype_t dtype = dtype_of(t->data_type);
    *out_data = NULL;
    if (dtype == IR_DTYPE_NONE || t->n_dims > IR_MAX_RANK) return false;
    *out_type = ir_type_make(dtype, (int32_t)t->n_dims, t->dims);
    size_t bytes = ir_type_bytes(out_type), n = (size_t)ir_type_elements(out_type);
    void *data = *out_data = calloc(1, bytes + 1);
    if (bytes == 0) return true;
    if (t->has_raw_data && t->raw_data.len == bytes)
        memcpy(data, t->raw_data.data, bytes);
    else if (dtype == IR_F32 && t->n_float_data == n)
        memcpy(data, t->float_data, bytes);
    else if (dtype == IR_F64 && t->n_double_data == n)
        memcpy(data, t->double_data, bytes);
    else if (dtype == IR_I64 && t->n_int64_data == n)
        memcpy(data, t->int64_data, bytes);
    else if (t->n_int32_data == n)
        for (size_t i = 0; i < n; i++) /* little-endian: the low bytes come first */
            memcpy((char *)data + i * (bytes / n), &t->int32_data[i], bytes / n);
    return true;
}

/* ---- running ---- */

static void run_fill(onnx_run_t *run, const import_result_t *result) {
    for (size_t i = 0; i < result->tensors.n; i++) {
        const import_tensor_t *tensor = &result->tensors.data[i];
        void *at = onnx_run_at(run, tensor->name, NULL);
        if (at) memcpy(at, tensor->data, tensor->bytes);
    }
}

st_status_t onnx_run_open(onnx_run_t *run, const import_result_t *result) {
    *run = (onnx_run_t){0};
    TRY(ir_expand_composites(result->graph, ir_expand_any, &run->graph));
    run->data = calloc(run->graph->values.n + 1, sizeof *run->data);
    for (size_t v = 0; v < run->graph->values.n; v++)
        run->data[v] = calloc(1, ir_type_bytes(&run->graph->values.data[v].type) + 1);
    run_fill(run, result);
    return ST_OK;
}

void *onnx_run_at(onnx_run_t *run, const char *name, const ir_type_t **out_type) {
    ir_node_t node = ir_graph_find(run->graph, name);
    if (node == IR_NONE) return NULL;
    ir_value_t value = ir_node(run->graph, node)->first_output;
    if (out_type) *out_type = ir_value_type(run->graph, value);
    return run->data[value];
}

static st_status_t run_node(onnx_run_t *run, const ir_node_info_t *node) {
    ir_type_t *in = calloc(node->n_inputs + 1, sizeof *in);
    ir_type_t *out = calloc(node->n_outputs + 1, sizeof *out);
    const void **in_data = calloc(node->n_inputs + 1, sizeof *in_data);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        in[j] = *ir_value_type(run->graph, node->inputs[j]);
        in_data[j] = run->data[node->inputs[j]];
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] = *ir_value_type(run->graph, node->first_output + k);
    kern_problem_t problem = {node->op, node->n_inputs, node->n_outputs, in,
                              out,      node->attrs,    node->name};
    st_status_t status = kern_run_once(&problem, in_data, run->data + node->first_output);
    free(in);
    free(out);
    free(in_data);
    return status;
}

st_status_t onnx_run_nodes(onnx_run_t *run) {
    for (size_t i = 0; i < run->graph->nodes.n; i++) {
        const ir_node_info_t *node = &run->graph->nodes.data[i];
        if (node->op == IR_OP_INPUT || node->n_outputs == 0) continue;
        if (ir_op_def(node->op)->flags & IR_STATE) continue;
        st_status_t status = run_node(run, node);
        if (status != ST_OK)
            return st_error_context(status, "%s", ir_node_label(run->graph, (ir_node_t)i));
    }
    return ST_OK;
}

void onnx_run_close(onnx_run_t *run) {
    for (size_t v = 0; run->data && v < run->graph->values.n; v++) free(run->data[v]);
    free(run->data);
    ir_graph_destroy(run->graph);
    *run = (onnx_run_t){0};
}

/* ---- comparing ---- */

/* Distance from 1 to the next number. */
static double epsilon_of(ir_dtype_t dtype) {
    return dtype == IR_F64    ? 0x1p-52
           : dtype == IR_F16  ? 0x1p-10
           : dtype == IR_BF16 ? 0x1p-7
           : dtype == IR_F32  ? 0x1p-23
                              : 0;
}

bool onnx_run_equal(const ir_type_t *type, const void *got, const void *expected, double scale,
                    char *out, size_t capacity) {
    double eps = epsilon_of(type->dtype) * scale;
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        double a = ir_element_load(type->dtype, got, (size_t)i);
        double b = ir_element_load(type->dtype, expected, (size_t)i);
        if (a == b || fabs(a - b) <= eps * (1 + fabs(b)) || (isnan(a) && isnan(b))) continue;
        snprintf(out, capacity, "element %lld is %.9g, expected %.9g", (long long)i, a, b);
        return false;
    }
    return true;
}

void *onnx_run_file(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    *out_bytes = 0;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *data = malloc((size_t)bytes + 1);
    *out_bytes = fread(data, 1, (size_t)bytes, file);
    fclose(file);
    return data;
}
