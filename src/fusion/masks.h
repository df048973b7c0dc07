/* Attention masks as numbers: what a constant one hides, and whether "causal" and "window" say
 * it. */
#ifndef STATOR_FUSION_MASKS_H
#define STATOR_FUSION_MASKS_H

#include "fusion/cone.h"

/* How a mask acts on the scores. */
typedef enum fuse_mask_kind {
    MASK_ADD = 0, /* added, times a factor */
    MASK_KEEP,    /* bool: where false, the score becomes the fill */
    MASK_DISCARD, /* bool: where true, the score becomes the fill */
} fuse_mask_kind_t;

/* Whether a score of this number or with this number added has no weight: exp(it - max) is 0 in
 * every float type, for scores above -1e8 (float16: above -6e4). */
bool mask_hides(double number, ir_dtype_t dtype);
/* Whether fill + score = fill in every float type but the 16-bit ones, for scores up to 1e13. */
bool mask_absorbs(double fill);

/* Visibility by [query M][key S], one byte each. */
typedef struct fuse_visible {
    int64_t m, s;
    uint8_t *see;  /* st_free */
    bool infinite; /* what is hidden, is by -inf */
} fuse_visible_t;

st_status_t mask_visible_create(int64_t m, int64_t s, fuse_visible_t *out_visible) ST_WARN_UNUSED;

/* Hides in `visible` what the constant `mask` hides. *out_done false, and nothing changed: it is
 * not constant, does more than hide (a bias), or is not the same for all batch items and heads.
 * `dtype` is the scores'. */
st_status_t mask_apply(fuse_cone_t *cone, ir_value_t mask, fuse_mask_kind_t kind, double fill,
                       double factor, ir_dtype_t dtype, fuse_visible_t *visible,
                       bool *out_done) ST_WARN_UNUSED;

bool mask_rows_see(const fuse_visible_t *visible); /* every query some key */
/* Whether the visible keys are just those of the attributes of op attention; 0: no window. */
bool mask_is_regular(const fuse_visible_t *visible, bool *out_causal, int64_t *out_window);

#endif
