/* The files of a set, and the boxes of tensors in them.
 *
 * A tensor that a file has a box of only is stored with the box's own shape, and with metadata that
 * says what it is a part of:
 *
 *   "stator.part.<name>": "64,32 16,0"      of a tensor [64, 32], from (16, 0) on */
#ifndef STATOR_STATE_CHECKPOINT_PARTS_H
#define STATOR_STATE_CHECKPOINT_PARTS_H

#include "ir/box.h"
#include "state/safetensors.h"

typedef enum checkpoint_kind {
    CHECKPOINT_MODEL,
    CHECKPOINT_OPTIMIZER,
    CHECKPOINT_N_KINDS
} checkpoint_kind_t;

enum { CHECKPOINT_FILE_NAME_BYTES = 64, CHECKPOINT_MAX_PARTS = 65536 };
#define CHECKPOINT_TRAINER "trainer.json"
#define CHECKPOINT_MANIFEST "manifest.json"

/* "model.safetensors", or of several parts "model-00001-of-00004.safetensors". */
void checkpoint_file_name(checkpoint_kind_t kind, uint32_t part, uint32_t n_parts,
                          char out[CHECKPOINT_FILE_NAME_BYTES]);

/* Says of a tensor of the file what it is a part of; nothing of one that is whole. */
st_status_t checkpoint_write_box(safetensors_writer_t *writer, const char *name,
                                 const ir_type_t *type, const ir_box_t *box) ST_WARN_UNUSED;
/* Type of the whole, and the box. ST_PARSE where the metadata is no such text, or the box does not
 * lie within; ST_UNSUPPORTED where the graph has no such element type. */
st_status_t checkpoint_read_box(const safetensors_t *file, const safetensors_tensor_t *stored,
                                ir_type_t *out_type, ir_box_t *out_box) ST_WARN_UNUSED;

#endif
