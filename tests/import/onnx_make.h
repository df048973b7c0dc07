/* Small ONNX models made in tests: fill, pack, import. Lists of names are separated by commas. */
#ifndef STATOR_TESTS_IMPORT_ONNX_MAKE_H
#define STATOR_TESTS_IMPORT_ONNX_MAKE_H

#include <onnx/onnx.pb-c.h>

#include "base/arena.h"
#include "import/import.h"

enum { MAKE_MOST = 32 };
enum { MAKE_F32 = 1, MAKE_I32 = 6, MAKE_I64 = 7, MAKE_F16 = 10, MAKE_F64 = 11, MAKE_BF16 = 16 };

typedef struct make {
    st_arena_t arena;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__NodeProto *nodes[MAKE_MOST];
    Onnx__TensorProto *initializers[MAKE_MOST];
    Onnx__ValueInfoProto *inputs[MAKE_MOST], *outputs[MAKE_MOST];
} make_t;

void make_open(make_t *m, int64_t opset);
void make_close(make_t *m);
/* A dim of -1 is the symbol "batch". */
void make_input(make_t *m, const char *name, int32_t dtype, size_t rank, const int64_t *dims);
void make_output(make_t *m, const char *name);
Onnx__NodeProto *make_node(make_t *m, const char *op, const char *inputs, const char *outputs);
void make_int(make_t *m, Onnx__NodeProto *node, const char *name, int64_t value);
void make_float(make_t *m, Onnx__NodeProto *node, const char *name, float value);
void make_string(make_t *m, Onnx__NodeProto *node, const char *name, const char *value);
void make_ints(make_t *m, Onnx__NodeProto *node, const char *name, size_t n, const int64_t *values);
/* Initializer with raw data; rank 0: a scalar. */
Onnx__TensorProto *make_tensor(make_t *m, const char *name, int32_t dtype, size_t rank,
                               const int64_t *dims, const void *data, size_t bytes);
/* Initializers of rank 1. */
void make_floats(make_t *m, const char *name, size_t n, const float *values);
void make_longs(make_t *m, const char *name, size_t n, const int64_t *values);
/* Packed bytes, in the arena. */
const void *make_pack(make_t *m, size_t *out_bytes);
st_status_t make_import(make_t *m, const import_options_t *options, import_result_t **out_result);

#endif
