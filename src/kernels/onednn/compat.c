#include "kernels/onednn/compat.h"

#include <string.h>

#if DNNL_VERSION_MAJOR >= 3
#define MD(compat) ((compat)->md)
typedef const_dnnl_memory_desc_t md_ref_t;
#else
#define MD(compat) (&(compat)->md)
typedef const dnnl_memory_desc_t *md_ref_t;
#endif

static dnnl_format_tag_t row_major(int rank) {
    static const dnnl_format_tag_t tags[] = {
        dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    return rank < (int)(sizeof tags / sizeof *tags) ? tags[rank] : dnnl_format_tag_undef;
}

static dnnl_status_t md_make(compat_md_t *md, int rank, const dnnl_dims_t dims,
                             dnnl_format_tag_t tag) {
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&md->md, rank, dims, dnnl_f32, tag);
#else
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&md->md, rank, dims, dnnl_f32, tag);
#endif
    md->made = status == dnnl_success;
    return status;
}

dnnl_status_t compat_md_plain(compat_md_t *md, int rank, const dnnl_dims_t dims) {
    return md_make(md, rank, dims, row_major(rank));
}

dnnl_status_t compat_md_strided(compat_md_t *md, int rank, const dnnl_dims_t dims,
                                const dnnl_dims_t strides) {
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t status =
        dnnl_memory_desc_create_with_strides(&md->md, rank, dims, dnnl_f32, strides);
#else
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&md->md, rank, dims, dnnl_f32, strides);
#endif
    md->made = status == dnnl_success;
    return status;
}

dnnl_status_t compat_md_any(compat_md_t *md, int rank, const dnnl_dims_t dims) {
    return md_make(md, rank, dims, dnnl_format_tag_any);
}

void compat_md_free(compat_md_t *md) {
#if DNNL_VERSION_MAJOR >= 3
    if (md->made) dnnl_memory_desc_destroy(md->md);
#endif
    md->made = false;
}

size_t compat_md_bytes(const compat_md_t *md) {
    return dnnl_memory_desc_get_size(MD(md));
}

bool compat_md_equal(const compat_md_t *a, const compat_md_t *b) {
    return dnnl_memory_desc_equal(MD(a), MD(b)) != 0;
}

dnnl_status_t compat_memory(dnnl_engine_t engine, const compat_md_t *md, dnnl_memory_t *out) {
    return dnnl_memory_create(out, MD(md), engine, DNNL_MEMORY_NONE);
}

dnnl_status_t compat_reorder(dnnl_engine_t engine, const compat_md_t *from, const compat_md_t *to,
                             dnnl_primitive_t *out) {
    dnnl_primitive_desc_t pd;
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&pd, MD(from), engine, MD(to), engine, NULL);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_create(out, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* Takes over what the primitive chose for one of its tensors. */
static dnnl_status_t md_take(compat_md_t *md, md_ref_t chosen) {
#if DNNL_VERSION_MAJOR >= 3
    compat_md_free(md);
    dnnl_status_t status = dnnl_memory_desc_clone(&md->md, chosen);
    md->made = status == dnnl_success;
    return status;
#else
    md->md = *chosen;
    return dnnl_success;
#endif
}

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t forward_pd(dnnl_engine_t engine, const compat_conv_t *c,
                                dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    return dnnl_convolution_forward_primitive_desc_create(
        pd, engine, dnnl_forward_training, dnnl_convolution_direct, MD(c->x), MD(c->w),
        c->bias ? MD(c->bias) : NULL, MD(c->y), c->strides, c->dilates, c->low, c->high, attr);
}
static dnnl_status_t backward_pd(dnnl_engine_t engine, const compat_conv_t *c,
                                 dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                                 dnnl_primitive_desc_t *pd) {
    if (c->kind == COMPAT_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, MD(c->x), MD(c->w), MD(c->y), c->strides,
            c->dilates, c->low, c->high, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, MD(c->x), MD(c->w), NULL, MD(c->y), c->strides,
        c->dilates, c->low, c->high, hint, attr);
}
#else
static dnnl_status_t forward_pd(dnnl_engine_t engine, const compat_conv_t *c,
                                dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, MD(c->x), MD(c->w),
        c->bias ? MD(c->bias) : NULL, MD(c->y), c->strides, c->dilates, c->low, c->high);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL);
}
static dnnl_status_t backward_pd(dnnl_engine_t engine, const compat_conv_t *c,
                                 dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                                 dnnl_primitive_desc_t *pd) {
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    if (c->kind == COMPAT_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, dnnl_convolution_direct, MD(c->x), MD(c->w), MD(c->y), c->strides, c->dilates,
            c->low, c->high);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, MD(c->x), MD(c->w), NULL, MD(c->y), c->strides,
            c->dilates, c->low, c->high);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(pd, &desc, attr, engine, hint);
}
#endif

dnnl_status_t compat_conv(dnnl_engine_t engine, const compat_conv_t *conv, dnnl_primitive_t *out,
                          size_t *out_scratch_bytes) {
    /* which tensor each query means, by kind: x, w, y */
    static const dnnl_query_t queries[][3] = {
        [COMPAT_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [COMPAT_DATA] = {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        [COMPAT_WEIGHTS] = {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    compat_md_t *sides[3] = {conv->x, conv->w, conv->y};
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = forward_pd(engine, conv, attr, conv->kind == COMPAT_FORWARD ? &pd : &hint);
    if (status == dnnl_success && conv->kind != COMPAT_FORWARD)
        status = backward_pd(engine, conv, attr, hint, &pd);
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = md_take(sides[i], dnnl_primitive_desc_query_md(pd, queries[conv->kind][i], 0));
    if (status == dnnl_success) {
        md_ref_t scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        *out_scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
        status = dnnl_primitive_create(out, pd);
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

dnnl_status_t compat_scratch(dnnl_engine_t engine, dnnl_primitive_t primitive, dnnl_memory_t *out) {
    const_dnnl_primitive_desc_t pd;
    dnnl_status_t status = dnnl_primitive_get_primitive_desc(primitive, &pd);
    if (status != dnnl_success) return status;
    return dnnl_memory_create(out, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
                              engine, DNNL_MEMORY_NONE);
}
