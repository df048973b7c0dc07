/* What the reader and the writer of safetensors share: limits and checksums. */
#ifndef STATOR_STATE_SAFETENSORS_INTERNAL_H
#define STATOR_STATE_SAFETENSORS_INTERNAL_H

#include "state/safetensors.h"

/* The format's own limit on the header. */
enum { SAFETENSORS_MAX_HEADER_BYTES = 100000000 };

#define SAFETENSORS_CHECKSUM_KEY "stator.xxh64"
#define SAFETENSORS_CHECKSUM_PREFIX "stator.xxh64."

/* Of a tensor's name, type and shape: what the hash of its data begins with. */
uint64_t safetensors_tensor_seed(const safetensors_tensor_t *tensor);
/* Of a tensor's data, name, type and shape. */
uint64_t safetensors_tensor_hash(const safetensors_tensor_t *tensor);
/* Chains one metadata entry into a running hash; entries come in ascending order of their keys. */
uint64_t safetensors_metadata_hash(uint64_t hash, const char *key, const char *value);
/* Bytes of the shape, false when they overflow or a dim is negative. */
bool safetensors_shape_bytes(safetensors_dtype_t dtype, int32_t rank, const int64_t *dims,
                             size_t *out_bytes);

#endif
