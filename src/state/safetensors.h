/* Safetensors files: an 8-byte header length, a JSON header, raw little-endian tensors.
 *
 *   +----------+-----------------------------------+--------+--------+-- … --+
 *   | u64 len  | {"__metadata__":{…},"w":{…},… }   | tensor | tensor |       |
 *   +----------+-----------------------------------+--------+--------+-- … --+
 *
 * Reading trusts nothing: every tensor lies inside the data, its size is its shape times its type,
 * tensors neither overlap nor leave holes, and nothing follows the last one.
 *
 * Aliases: a metadata entry "<other name>": "<stored name>" whose value names a stored tensor makes
 * that tensor answer to both names, as safetensors' own save_model writes tied weights.
 *
 * Checksums: files written here hold "stator.xxh64.<name>" for each tensor (over its data, seeded
 * with its name, type and shape) and "stator.xxh64" over all other metadata. Where present they are
 * verified when the file is opened. Other readers see plain metadata. */
#ifndef STATOR_STATE_SAFETENSORS_H
#define STATOR_STATE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ir/types.h"

/* Element types a file can hold. Those without an ir_dtype_t are readable as raw bytes. */
typedef enum safetensors_dtype {
#define STORED(name, text, bytes, ir) SAFETENSORS_##name,
#include "state/safetensors.def"
#undef STORED
    SAFETENSORS_N_DTYPES
} safetensors_dtype_t;

/* "F32", …; never NULL. */
const char *safetensors_dtype_text(safetensors_dtype_t dtype);
size_t safetensors_dtype_bytes(safetensors_dtype_t dtype);
/* IR_DTYPE_NONE where the graph has no such type. */
ir_dtype_t safetensors_to_ir(safetensors_dtype_t dtype);
/* SAFETENSORS_N_DTYPES for IR_DTYPE_NONE. */
safetensors_dtype_t safetensors_from_ir(ir_dtype_t dtype);

typedef struct safetensors_tensor {
    const char *name;
    safetensors_dtype_t dtype;
    int32_t rank;
    int64_t dims[IR_MAX_RANK]; /* entries past rank are 0 */
    const void *data;          /* may be unaligned in files written by others */
    size_t bytes;
} safetensors_tensor_t;

typedef struct safetensors safetensors_t;

/* Maps and checks a file. What is returned by the functions below lives until close. */
st_status_t safetensors_open(const char *path, safetensors_t **out_file) ST_WARN_UNUSED;
/* The same for a buffer, which must outlive the result. */
st_status_t safetensors_open_memory(const void *data, size_t bytes,
                                    safetensors_t **out_file) ST_WARN_UNUSED;
/* The same without reading the tensors, however large they are: their checksums, if the file has
 * them, are left to safetensors_verify, which names the first that does not hold and its place. */
st_status_t safetensors_open_unverified(const char *path, safetensors_t **out_file) ST_WARN_UNUSED;
st_status_t safetensors_verify(const safetensors_t *file) ST_WARN_UNUSED;
/* NULL is fine. */
void safetensors_close(safetensors_t *file);

/* Path, or "memory". */
const char *safetensors_path(const safetensors_t *file);
size_t safetensors_file_bytes(const safetensors_t *file);
/* Stored tensors, in ascending order of their names. */
size_t safetensors_count(const safetensors_t *file);
const safetensors_tensor_t *safetensors_at(const safetensors_t *file, size_t index);
/* By stored name or alias; NULL if there is none. Its `name` is the stored name. */
const safetensors_tensor_t *safetensors_find(const safetensors_t *file, const char *name);
/* Aliases, in ascending order of their names. */
size_t safetensors_alias_count(const safetensors_t *file);
const char *safetensors_alias_name(const safetensors_t *file, size_t index);
const safetensors_tensor_t *safetensors_alias_tensor(const safetensors_t *file, size_t index);
/* NULL if there is no such key. Metadata includes aliases and checksums. */
const char *safetensors_metadata(const safetensors_t *file, const char *key);

/* Writer. Data is borrowed until commit; names and texts are copied. The output is a function of
 * what was added, not of the order: data lies by element size, largest first, then by name, so that
 * every tensor is aligned; the header has the same order and is padded to 8 bytes. */
typedef struct safetensors_writer safetensors_writer_t;
st_status_t safetensors_writer_create(safetensors_writer_t **out_writer) ST_WARN_UNUSED;
/* NULL is fine. */
void safetensors_writer_destroy(safetensors_writer_t *writer);
/* ST_INVALID when the name is empty, reserved or used, or `bytes` is not shape times type. */
st_status_t safetensors_writer_add(safetensors_writer_t *writer, const char *name,
                                   safetensors_dtype_t dtype, int32_t rank, const int64_t *dims,
                                   const void *data, size_t bytes) ST_WARN_UNUSED;
/* A tensor that is read while the file is written, twice (its checksum stands before it), at most
 * SAFETENSORS_BUFFER_BYTES at a time and in ascending order. The source outlives the writer. */
typedef struct safetensors_source {
    st_status_t (*read)(void *context, const char *name, size_t offset, size_t bytes, void *out);
    void *context;
} safetensors_source_t;
enum { SAFETENSORS_BUFFER_BYTES = 16 << 20 };
st_status_t safetensors_writer_add_source(safetensors_writer_t *writer, const char *name,
                                          safetensors_dtype_t dtype, int32_t rank,
                                          const int64_t *dims,
                                          const safetensors_source_t *source) ST_WARN_UNUSED;
st_status_t safetensors_writer_add_metadata(safetensors_writer_t *writer, const char *key,
                                            const char *value) ST_WARN_UNUSED;
/* `other` becomes another name of the tensor `stored`, which must be there by commit. */
st_status_t safetensors_writer_alias(safetensors_writer_t *writer, const char *other,
                                     const char *stored) ST_WARN_UNUSED;
/* Writes atomically: `path` is the previous file or the whole new one. Can be called again. */
st_status_t safetensors_writer_commit(safetensors_writer_t *writer,
                                      const char *path) ST_WARN_UNUSED;
/* The same bytes in memory, from the heap (st_free). */
st_status_t safetensors_writer_encode(safetensors_writer_t *writer, void **out_data,
                                      size_t *out_bytes) ST_WARN_UNUSED;

#endif
