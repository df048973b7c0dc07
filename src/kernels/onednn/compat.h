/* What differs between oneDNN's C interfaces 2.x and 3.x, behind one face. Memory descriptors are
 * structs by value in 2.x and handles in 3.x; operation descriptors are gone in 3.x. */
#ifndef STATOR_KERNELS_ONEDNN_COMPAT_H
#define STATOR_KERNELS_ONEDNN_COMPAT_H

#include <dnnl.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct compat_md {
    dnnl_memory_desc_t md;
    bool made;
} compat_md_t;

/* f32, row-major / by strides in elements / layout left to the primitive. */
dnnl_status_t compat_md_plain(compat_md_t *md, int rank, const dnnl_dims_t dims);
dnnl_status_t compat_md_strided(compat_md_t *md, int rank, const dnnl_dims_t dims,
                                const dnnl_dims_t strides);
dnnl_status_t compat_md_any(compat_md_t *md, int rank, const dnnl_dims_t dims);
void compat_md_free(compat_md_t *md);
size_t compat_md_bytes(const compat_md_t *md);
bool compat_md_equal(const compat_md_t *a, const compat_md_t *b);

dnnl_status_t compat_memory(dnnl_engine_t engine, const compat_md_t *md, dnnl_memory_t *out);
dnnl_status_t compat_reorder(dnnl_engine_t engine, const compat_md_t *from, const compat_md_t *to,
                             dnnl_primitive_t *out);

typedef enum compat_kind { COMPAT_FORWARD, COMPAT_DATA, COMPAT_WEIGHTS } compat_kind_t;
typedef struct compat_conv {
    compat_kind_t kind;
    compat_md_t *x, *w, *y, *bias; /* x, w, y come in as any and go out as what was chosen */
    const dnnl_dim_t *strides, *dilates, *low, *high;
} compat_conv_t;
/* Primitive with its scratch space given by the caller at execution. */
dnnl_status_t compat_conv(dnnl_engine_t engine, const compat_conv_t *conv, dnnl_primitive_t *out,
                          size_t *out_scratch_bytes);
dnnl_status_t compat_scratch(dnnl_engine_t engine, dnnl_primitive_t primitive, dnnl_memory_t *out);

#endif
