/* Unpacking an ONNX model that may be hostile. See onnx_guard.c. */
#ifndef STATOR_IMPORT_ONNX_GUARD_H
#define STATOR_IMPORT_ONNX_GUARD_H

#include <onnx/onnx.pb-c.h>

#include "base/arena.h"
#include "base/status.h"

/* Unpacks the model into `arena`, which owns it. */
st_status_t onnx_unpack(const void *data, size_t bytes, st_arena_t *arena,
                        const Onnx__ModelProto **out_model) ST_WARN_UNUSED;

#endif
