/* ONNX models: a protobuf of nodes, initializers and typed inputs. See onnx.c. */
#ifndef STATOR_IMPORT_ONNX_H
#define STATOR_IMPORT_ONNX_H

#include "import/import.h"

/* Whether the contents look like an ONNX model (protobuf has no magic number). */
bool onnx_probe(const void *data, size_t bytes);
st_status_t onnx_read(const char *path, const void *data, size_t bytes, const char *what,
                      const import_options_t *options, import_result_t *result);

#endif
