/* Stator: tensors on the host – types, descriptions, and named sets read from or written to
 * safetensors.
 *
 * Sets may be read by several threads at once, and added to by one. Functions that read or write
 * files block on the disk, the others do not. (Nearest: safetensors.torch.load_file and save_file;
 * a state_dict.) */
#ifndef STATOR_TENSOR_H
#define STATOR_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "stator/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STATOR_MAX_RANK 8

typedef enum stator_dtype {
    STATOR_DTYPE_NONE = 0,
    STATOR_DTYPE_F32 = 1,
    STATOR_DTYPE_F64 = 2,
    STATOR_DTYPE_F16 = 3,
    STATOR_DTYPE_BF16 = 4,
    STATOR_DTYPE_F8E4M3 = 5,
    STATOR_DTYPE_F8E5M2 = 6,
    STATOR_DTYPE_I8 = 7,
    STATOR_DTYPE_I32 = 8,
    STATOR_DTYPE_I64 = 9,
    STATOR_DTYPE_U8 = 10,
    STATOR_DTYPE_BOOL = 11
} stator_dtype_t;

/* A dense row-major tensor in host memory. `data` belongs to whoever made the description. */
typedef struct stator_tensor {
    const char *name;
    stator_dtype_t dtype;
    int32_t rank;                  /* 0 … STATOR_MAX_RANK */
    int64_t dims[STATOR_MAX_RANK]; /* elements; entries past rank are ignored */
    const void *data;
    size_t bytes;
} stator_tensor_t;

/* "f32", …, "?" for what is no type; bytes an element, 0 for that. Thread-safe. */
STATOR_API const char *stator_dtype_text(stator_dtype_t dtype);
STATOR_API size_t stator_dtype_bytes(stator_dtype_t dtype);

/* A set of named tensors, with aliases (other names of the same tensor, as tied weights have). */
typedef struct stator_tensors stator_tensors_t;

/* Reads a safetensors file (all its checks, and checksums where Stator wrote it). NOT_FOUND; PARSE:
 * where it is damaged; UNSUPPORTED: a type that there is none of here; NO_MEMORY; IO. */
STATOR_API stator_status_t stator_tensors_load(const char *path,
                                               stator_tensors_t **out_tensors) STATOR_WARN_UNUSED;
/* An empty set to add to. */
STATOR_API stator_status_t stator_tensors_create(stator_tensors_t **out_tensors) STATOR_WARN_UNUSED;
/* Adds a copy. INVALID if the name is taken or bytes is not shape times type; NO_MEMORY. */
STATOR_API stator_status_t stator_tensors_add(stator_tensors_t *tensors,
                                              const stator_tensor_t *tensor) STATOR_WARN_UNUSED;
/* Writes atomically: the old file or the whole new one. IO: the text gives path and reason. */
STATOR_API stator_status_t stator_tensors_save(const stator_tensors_t *tensors,
                                               const char *path) STATOR_WARN_UNUSED;
STATOR_API size_t stator_tensors_count(const stator_tensors_t *tensors);
/* In ascending order of names; the data lives as long as the set. An empty tensor past the end. */
STATOR_API stator_tensor_t stator_tensors_at(const stator_tensors_t *tensors, size_t index);
/* By name or alias; NOT_FOUND names the nearest one. */
STATOR_API stator_status_t stator_tensors_find(const stator_tensors_t *tensors, const char *name,
                                               stator_tensor_t *out_tensor) STATOR_WARN_UNUSED;
STATOR_API void stator_tensors_destroy(stator_tensors_t *tensors); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
