/* IDX files: see images.h. */
#include "state/images.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/memory.h"

enum { MAX_RANK = 3, MAX_EXPANSION = 1032 }; /* the largest ratio deflate reaches */

/* Bytes in order, from memory or through zlib. */
typedef struct source {
    const char *what;
    const uint8_t *plain;
    size_t plain_bytes;
    bool is_compressed;
    z_stream stream;
} source_t;

static st_status_t source_open(source_t *source, const void *data, size_t bytes, const char *what) {
    *source = (source_t){.what = what, .plain = data, .plain_bytes = bytes};
    source->is_compressed = bytes >= 2 && source->plain[0] == 0x1f && source->plain[1] == 0x8b;
    if (!source->is_compressed) return ST_OK;
    if (inflateInit2(&source->stream, 16 + MAX_WBITS) != Z_OK) {
        return FAIL(ST_NO_MEMORY, "%s: out of memory for decompression", what);
    }
    source->stream.next_in = (Bytef *)(uintptr_t)data;
    return ST_OK;
}

static void source_close(source_t *source) {
    if (source->is_compressed) inflateEnd(&source->stream);
}

/* One call of inflate on what is left of the input, in steps that fit zlib's 32-bit counts. */
static int inflate_step(source_t *source) {
    z_stream *stream = &source->stream;
    size_t used = (size_t)(stream->next_in - source->plain);
    size_t left = source->plain_bytes - used;
    stream->avail_in = left < UINT_MAX ? (uInt)left : UINT_MAX;
    return inflate(stream, Z_NO_FLUSH);
}

/* Exactly `bytes` bytes. */
static st_status_t source_read(source_t *source, void *out, size_t bytes) {
    if (!source->is_compressed) {
        if (bytes > source->plain_bytes) {
            return FAIL(ST_PARSE, "%s: the file ends early, %zu bytes are missing", source->what,
                        bytes - source->plain_bytes);
        }
        memcpy(out, source->plain, bytes);
        source->plain += bytes;
        source->plain_bytes -= bytes;
        return ST_OK;
    }
    uint8_t *cursor = out;
    while (bytes > 0) {
        source->stream.next_out = cursor;
        source->stream.avail_out = bytes < UINT_MAX ? (uInt)bytes : UINT_MAX;
        int code = inflate_step(source);
        size_t done = (size_t)(source->stream.next_out - cursor);
        cursor += done;
        bytes -= done;
        if (code == Z_MEM_ERROR) {
            return FAIL(ST_NO_MEMORY, "%s: out of memory for decompression", source->what);
        }
        if (bytes > 0 && (code != Z_OK || done == 0)) {
            return FAIL(ST_PARSE, "%s: the compressed data is damaged or ends early (%s)",
                        source->what,
                        source->stream.msg != NULL ? source->stream.msg : "cut short");
        }
    }
    return ST_OK;
}

/* The data must end here; for compressed data that also checks its checksum. */
static st_status_t source_end(source_t *source) {
    if (!source->is_compressed) {
        if (source->plain_bytes == 0) return ST_OK;
        return FAIL(ST_PARSE, "%s: %zu bytes follow the data", source->what, source->plain_bytes);
    }
    uint8_t extra;
    source->stream.next_out = &extra;
    source->stream.avail_out = 1;
    int code = inflate_step(source);
    bool is_all_read = (size_t)(source->stream.next_in - source->plain) == source->plain_bytes;
    if (code == Z_STREAM_END && source->stream.avail_out == 1 && is_all_read) return ST_OK;
    return FAIL(ST_PARSE, "%s: the compressed data is damaged or more follows", source->what);
}

static int64_t get_big_u32(const uint8_t *at) {
    return (int64_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static st_status_t read_idx(source_t *source, size_t input_bytes, idx_t *idx) {
    uint8_t header[4 + 4 * MAX_RANK];
    TRY(source_read(source, header, 4));
    if (header[0] != 0 || header[1] != 0 || header[2] != 8 || header[3] < 1 ||
        header[3] > MAX_RANK) {
        return FAIL(ST_PARSE, "%s: not an IDX file of bytes with 1 to 3 dims", source->what);
    }
    idx->rank = header[3];
    TRY(source_read(source, header + 4, 4 * (size_t)idx->rank));
    size_t bytes = 1;
    for (int32_t i = 0; i < idx->rank; i++) {
        idx->dims[i] = get_big_u32(header + 4 + 4 * i);
        if (!st_mul_size(bytes, (size_t)idx->dims[i], &bytes)) bytes = SIZE_MAX;
        if (bytes == SIZE_MAX) return FAIL(ST_PARSE, "%s: its size overflows", source->what);
    }
    size_t expansion = source->is_compressed ? MAX_EXPANSION : 1;
    if (bytes / expansion > input_bytes) {
        return FAIL(ST_PARSE, "%s: claims %zu bytes of data, the file has %zu", source->what, bytes,
                    input_bytes);
    }
    idx->data = st_malloc(bytes);
    if (idx->data == NULL) return st_no_memory(bytes, source->what);
    TRY(source_read(source, idx->data, bytes));
    return source_end(source);
}

st_status_t idx_parse(const void *data, size_t bytes, const char *what, idx_t *out_idx) {
    *out_idx = (idx_t){0};
    source_t source;
    TRY(source_open(&source, data, bytes, what));
    st_status_t status = read_idx(&source, bytes, out_idx);
    source_close(&source);
    if (status != ST_OK) idx_free(out_idx);
    return status;
}

void idx_free(idx_t *idx) {
    st_free(idx->data);
    *idx = (idx_t){0};
}

static st_status_t read_file(const char *path, int32_t rank, idx_t *out_idx) {
    *out_idx = (idx_t){0};
    st_file_t file;
    TRY(st_file_open(path, &file));
    st_status_t status = idx_parse(file.data, file.bytes, path, out_idx);
    st_file_close(&file);
    if (status == ST_OK && out_idx->rank != rank) {
        status = FAIL(ST_PARSE, "'%s' holds %s, expected %s", path,
                      out_idx->rank == 1 ? "labels" : "images", rank == 1 ? "labels" : "images");
        idx_free(out_idx);
    }
    return status;
}

static st_status_t check_labels(const char *path, const idx_t *labels, int64_t classes) {
    for (int64_t i = 0; i < labels->dims[0]; i++) {
        if (labels->data[i] >= classes) {
            return FAIL(ST_PARSE, "'%s': label %lld is %d, there are %lld classes", path,
                        (long long)i, labels->data[i], (long long)classes);
        }
    }
    return ST_OK;
}

st_status_t images_open(const char *image_path, const char *label_path, int64_t classes,
                        images_t *out_images) {
    *out_images = (images_t){0};
    idx_t pixels = {0}, labels = {0};
    st_status_t status;
    TRY_GOTO(read_file(image_path, 3, &pixels), fail);
    TRY_GOTO(read_file(label_path, 1, &labels), fail);
    if (pixels.dims[0] != labels.dims[0]) {
        status = FAIL(ST_PARSE, "'%s' has %lld images, '%s' %lld labels", image_path,
                      (long long)pixels.dims[0], label_path, (long long)labels.dims[0]);
        goto fail;
    }
    TRY_GOTO(check_labels(label_path, &labels, classes), fail);
    *out_images = (images_t){.n = pixels.dims[0],
                             .height = pixels.dims[1],
                             .width = pixels.dims[2],
                             .pixels = pixels.data,
                             .labels = labels.data};
    return ST_OK;
fail:
    idx_free(&pixels);
    idx_free(&labels);
    return status;
}

void images_close(images_t *images) {
    st_free(images->pixels);
    st_free(images->labels);
    *images = (images_t){0};
}

st_status_t images_fill(const images_t *images, const int64_t *samples, size_t n, double mean,
                        double std, float *x, ir_dtype_t label_dtype, void *y) {
    if (label_dtype != IR_I32 && label_dtype != IR_I64) {
        return FAIL(ST_INVALID, "labels are i32 or i64, not %s", ir_dtype_text(label_dtype));
    }
    if (!isfinite(mean) || !(std > 0) || !isfinite(std)) {
        return FAIL(ST_INVALID, "mean %g and standard deviation %g cannot normalize images", mean,
                    std);
    }
    float values[256];
    for (int i = 0; i < 256; i++) values[i] = (float)((i / 255.0 - mean) / std);
    size_t size = (size_t)(images->height * images->width);
    for (size_t i = 0; i < n; i++) {
        if (samples[i] < 0 || samples[i] >= images->n) {
            return FAIL(ST_INVALID, "sample %lld is outside the %lld of this data",
                        (long long)samples[i], (long long)images->n);
        }
        const uint8_t *pixels = images->pixels + (size_t)samples[i] * size;
        for (size_t j = 0; j < size; j++) x[i * size + j] = values[pixels[j]];
        if (label_dtype == IR_I64)
            ((int64_t *)y)[i] = images->labels[samples[i]];
        else
            ((int32_t *)y)[i] = images->labels[samples[i]];
    }
    return ST_OK;
}
