/* A named tensor in host memory: how parameters, buffers and optimizer state come in and go out. */
#ifndef STATOR_STATE_TENSOR_H
#define STATOR_STATE_TENSOR_H

#include "ir/types.h"

typedef struct state_tensor {
    const char *name;
    ir_type_t type;
    void *data; /* ir_type_bytes(&type) bytes, dense, row-major */
} state_tensor_t;

/* `other` is another name of the tensor `stored`. */
typedef struct state_alias {
    const char *other;
    const char *stored;
} state_alias_t;

#endif
