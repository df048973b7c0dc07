/* Constant masks (masks.h). All element by element: linear in the mask. */
#include "fusion/masks.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

bool mask_hides(double number, ir_dtype_t dtype) {
    return number <= -1e9 || (dtype == IR_F16 && number <= -65504);
}

bool mask_absorbs(double fill) {
    return fill <= -1e30;
}

st_status_t mask_visible_create(int64_t m, int64_t s, fuse_visible_t *out_visible) {
    size_t n = (size_t)(m * s);
    *out_visible = (fuse_visible_t){m, s, st_malloc(n + 1), true};
    if (!out_visible->see) return st_no_memory(n, "a mask");
    memset(out_visible->see, 1, n);
    return ST_OK;
}

/* What one element of the mask does: 1 nothing, 0 it hides, -1 something else. */
static int effect(double number, fuse_mask_kind_t kind, double fill, double factor,
                  ir_dtype_t dtype, bool *infinite) {
    if (kind != MASK_ADD) {
        if ((number != 0) == (kind == MASK_KEEP)) return 1;
        *infinite &= isinf(fill);
        return mask_hides(fill, dtype) ? 0 : -1;
    }
    if (number == 0) return 1;
    *infinite &= isinf(number);
    return mask_hides(number * factor, dtype) ? 0 : -1;
}

st_status_t mask_apply(fuse_cone_t *cone, ir_value_t mask, fuse_mask_kind_t kind, double fill,
                       double factor, ir_dtype_t dtype, fuse_visible_t *visible, bool *out_done) {
    fuse_elements_t e;
    *out_done = false;
    TRY(fuse_cone_read(cone, mask, &e));
    int64_t rank = e.type.rank, m = visible->m, s = visible->s;
    if (!e.data || ir_type_elements(&e.type) == 0) return ST_OK;
    /* the mask's own rows and keys, 1 where they broadcast */
    int64_t own_s = rank > 0 ? e.type.dims[rank - 1] : 1;
    int64_t own_m = rank > 1 ? e.type.dims[rank - 2] : 1;
    if ((own_s != 1 && own_s != s) || (own_m != 1 && own_m != m)) return ST_OK;
    int64_t plane = own_m * own_s, n = e.splat ? plane : ir_type_elements(&e.type);
    bool infinite = true;
    uint8_t *own = st_malloc((size_t)plane + 1);
    if (!own) return st_no_memory((size_t)plane, "a mask");
    bool same = true;
    for (int64_t i = 0; i < n && same; i++) {
        int what = effect(fuse_element(&e, i), kind, fill, factor, dtype, &infinite);
        if (i < plane) own[i] = what == 1;
        same = what >= 0 && own[i % plane] == (what == 1);
    }
    for (int64_t i = 0; i < m && same; i++)
        for (int64_t j = 0; j < s; j++)
            visible->see[i * s + j] &= own[(own_m == 1 ? 0 : i) * own_s + (own_s == 1 ? 0 : j)];
    visible->infinite &= infinite || !same;
    *out_done = same;
    st_free(own);
    return ST_OK;
}

bool mask_rows_see(const fuse_visible_t *visible) {
    for (int64_t i = 0; i < visible->m; i++)
        if (visible->s == 0 || !memchr(visible->see + i * visible->s, 1, (size_t)visible->s))
            return false;
    return true;
}

static bool matches(const fuse_visible_t *v, bool causal, int64_t window) {
    for (int64_t i = 0; i < v->m; i++)
        for (int64_t j = 0; j < v->s; j++) {
            int64_t distance = i > j ? i - j : j - i;
            bool see = (!causal || j <= i) && (window == 0 || distance < window);
            if (see != (v->see[i * v->s + j] != 0)) return false;
        }
    return true;
}

bool mask_is_regular(const fuse_visible_t *v, bool *out_causal, int64_t *out_window) {
    int64_t farthest = -1;
    bool later = false; /* a query sees a later key */
    for (int64_t i = 0; i < v->m; i++)
        for (int64_t j = 0; j < v->s; j++) {
            if (!v->see[i * v->s + j]) continue;
            int64_t distance = i > j ? i - j : j - i;
            if (distance > farthest) farthest = distance;
            later |= j > i;
        }
    *out_window = 0;
    for (int tries = 0; tries < 2; tries++) {
        for (int causal = 0; causal < 2; causal++) {
            *out_causal = causal != 0;
            if (!(causal && later) && matches(v, *out_causal, *out_window)) return true;
        }
        *out_window = farthest + 1;
        if (*out_window == 0) return false; /* nobody sees anything */
    }
    return false;
}
