/* What the schema of torch.export archives says about tensors. */
#ifndef STATOR_IMPORT_PT2_META_H
#define STATOR_IMPORT_PT2_META_H

#include "import/import.h"
#include "import/json.h"

/* Element type of a schema code (5 → i64, 7 → f32 …), IR_DTYPE_NONE for types that do not exist
 * here. */
ir_dtype_t pt2_dtype(int64_t code);

/* Where the sizes of symbols come from. */
typedef struct pt2_sizes {
    import_result_t *result;
    const import_options_t *options;
    json_object *ranges; /* the archive's range constraints; NULL: none */
} pt2_sizes_t;

/* A tensor's description ("tensor_meta"). A symbolic size is computed from its symbols; one that
 * cannot be, or without `sizes`, takes its hint, and sets `symbolic`. */
typedef struct pt2_meta {
    ir_type_t type;
    int64_t strides[IR_MAX_RANK];
    int64_t offset; /* elements */
    bool requires_grad;
    bool symbolic;
    bool has_strides; /* and the offset */
} pt2_meta_t;
st_status_t pt2_meta_read(json_object *meta, const char *name, const pt2_sizes_t *sizes,
                          pt2_meta_t *out) ST_WARN_UNUSED;

#endif
