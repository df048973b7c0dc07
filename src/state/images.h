/* Image data in IDX files (as MNIST and Fashion-MNIST have them), plain or compressed with gzip.
 *
 *   images: u32 0x00000803, u32 count, u32 height, u32 width (big-endian), then u8 pixels
 *   labels: u32 0x00000801, u32 count, then u8 labels */
#ifndef STATOR_STATE_IMAGES_H
#define STATOR_STATE_IMAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ir/types.h"

/* Contents of one IDX file of u8. */
typedef struct idx {
    int32_t rank;
    int64_t dims[3];
    uint8_t *data; /* from the heap */
} idx_t;

/* `what` names the data in messages; compressed data is recognized by its first bytes. A compressed
 * file cannot claim more than deflate can expand, so memory stays in proportion to `bytes`. */
st_status_t idx_parse(const void *data, size_t bytes, const char *what,
                      idx_t *out_idx) ST_WARN_UNUSED;
/* A zeroed or freed one is fine. */
void idx_free(idx_t *idx);

typedef struct images {
    int64_t n, height, width; /* one channel */
    uint8_t *pixels;          /* [n, height, width] */
    uint8_t *labels;          /* [n], each below `classes` */
} images_t;

st_status_t images_open(const char *image_path, const char *label_path, int64_t classes,
                        images_t *out_images) ST_WARN_UNUSED;
void images_close(images_t *images);
/* x[n, 1, height, width] = (pixel / 255 - mean) / std as f32; y[n] of `label_dtype` (IR_I32 or
 * IR_I64). */
st_status_t images_fill(const images_t *images, const int64_t *samples, size_t n, double mean,
                        double std, float *x, ir_dtype_t label_dtype, void *y) ST_WARN_UNUSED;

#endif
