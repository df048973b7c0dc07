/* What the schema of torch.export archives says about tensors. */
#ifndef STATOR_IMPORT_PT2_META_H
#define STATOR_IMPORT_PT2_META_H

#include "import/json.h"
#include "ir/types.h"

/* Element type of a schema code (5 → i64, 7 → f32 …), IR_DTYPE_NONE for types that do not exist
 * here. */
ir_dtype_t pt2_dtype(int64_t code);

/* A tensor's description ("tensor_meta"). A symbolic size takes its hint, which sets `symbolic`. */
typedef struct pt2_meta {
    ir_type_t type;
    int64_t strides[IR_MAX_RANK];
    int64_t offset; /* elements */
    bool requires_grad;
    bool symbolic;
    bool has_strides;
} pt2_meta_t;
st_status_t pt2_meta_read(json_object *meta, const char *name, pt2_meta_t *out) ST_WARN_UNUSED;

#endif
