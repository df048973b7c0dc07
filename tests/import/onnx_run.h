/* Runs an imported graph on host memory through the kernels, and compares with expected tensors. */
#ifndef STATOR_TESTS_IMPORT_ONNX_RUN_H
#define STATOR_TESTS_IMPORT_ONNX_RUN_H

#include <onnx/onnx.pb-c.h>

#include "import/import.h"

typedef struct onnx_run {
    ir_graph_t *graph; /* the imported one, composites expanded; owned */
    void **data;       /* by value */
} onnx_run_t;

/* Tensor of a file or model: type and row-major bytes (to be freed). False if it has a type that
 * Stator does not have. */
bool onnx_run_tensor(const Onnx__TensorProto *tensor, ir_type_t *out_type, void **out_data);

/* Prepares a run: state takes the result's tensors. */
st_status_t onnx_run_open(onnx_run_t *run, const import_result_t *result) ST_WARN_UNUSED;
/* Where the data of an input, parameter or buffer lies; NULL if there is none of that name. */
void *onnx_run_at(onnx_run_t *run, const char *name, const ir_type_t **out_type);
st_status_t onnx_run_nodes(onnx_run_t *run) ST_WARN_UNUSED;
void onnx_run_close(onnx_run_t *run);

/* True if all elements agree: floats within the rounding of their type, |a - b| ≤ scale * eps * (1
 * + |b|), a NaN only where a NaN is expected, everything else exactly. `out` says where and how
 * they differ. */
bool onnx_run_equal(const ir_type_t *type, const void *got, const void *expected, double scale,
                    char *out, size_t capacity);

/* Contents of a file (to be freed), NULL if it cannot be read. */
void *onnx_run_file(const char *path, size_t *out_bytes);

#endif
