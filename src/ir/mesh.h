/* The mesh: ranks as points of a grid with named axes.
 *
 *   data=2,tensor=3     rank = 3 · data + tensor          (row-major, the last axis fastest)
 *
 *            tensor 0   1   2       a collective over "tensor" runs in each row by itself,
 *     data 0        0   1   2       one over "data" in each column
 *          1        3   4   5
 *
 * A program is lowered to one axis after another (shard/mesh.h): the data axis after the tensor
 * axis, so that what it splits is what that has left; the expert axis after both, since what its
 * ranks exchange are parts of their own share of the batch; the context axis behind them, for whose
 * ranks a share of one item is best; the pipe axis last, since its programs differ. Where two axes
 * split one dim of a tensor, the later one splits the earlier one's part. */
#ifndef STATOR_IR_MESH_H
#define STATOR_IR_MESH_H

#include "ir/box.h"
#include "ir/op.h"

enum { IR_MAX_AXES = 5, IR_AXIS_NAME_BYTES = 16, IR_MESH_TEXT_BYTES = 128, IR_MAX_RANKS = 65536 };

/* The axis that splits the batch; the only one of a mesh made from a number of ranks. */
#define IR_AXIS_DATA "data"
#define IR_AXIS_TENSOR "tensor"
#define IR_AXIS_EXPERT "expert"   /* splits the batch too, and experts' weights */
#define IR_AXIS_CONTEXT "context" /* splits sequences */
/* Its ranks have different parts of the program: stages of a pipeline (shard/pipe.h). */
#define IR_AXIS_PIPE "pipe"

typedef struct ir_mesh {
    uint32_t n;
    struct {
        char name[IR_AXIS_NAME_BYTES];
        uint32_t size;
    } axes[IR_MAX_AXES];
} ir_mesh_t;

/* One data axis. */
ir_mesh_t ir_mesh_of_ranks(uint32_t n_ranks);
/* "data=2,tensor=2". Axes are those that there is a use for, each once, of at least one rank. */
st_status_t ir_mesh_parse(const char *text, ir_mesh_t *out_mesh) ST_WARN_UNUSED;
/* The same written down; returns `buffer`. */
const char *ir_mesh_text(const ir_mesh_t *mesh, char *buffer, size_t bytes);
bool ir_mesh_equal(const ir_mesh_t *a, const ir_mesh_t *b);

uint32_t ir_mesh_ranks(const ir_mesh_t *mesh);
/* Index of the axis `name`, IR_NONE if the mesh has none of it. */
uint32_t ir_mesh_find(const ir_mesh_t *mesh, const char *name);
/* Ranks from one coordinate of the axis to the next. */
uint32_t ir_mesh_stride(const ir_mesh_t *mesh, uint32_t axis);
uint32_t ir_mesh_coordinate(const ir_mesh_t *mesh, uint32_t rank, uint32_t axis);
/* The rank whose coordinates are those of `rank` but for `coordinate` on `axis`. */
uint32_t ir_mesh_peer(const ir_mesh_t *mesh, uint32_t rank, uint32_t axis, uint32_t coordinate);
/* The axes in the order in which a program is lowered to them: order[0 … n). */
void ir_mesh_order(const ir_mesh_t *mesh, uint32_t *order);

/* The part of a tensor of type `type` that `rank` holds: placements[axis] says how each axis splits
 * it, none partial. IR_GRANULES_EACH: each element along the dim is a granule of its own. */
enum { IR_GRANULES_EACH = 0 };
void ir_mesh_box(const ir_mesh_t *mesh, const ir_placement_t *placements, const ir_type_t *type,
                 uint32_t rank, ir_box_t *out_box);
/* Whether the parts are well defined: dims that there are, which granules divide. */
st_status_t ir_mesh_check_placements(const ir_mesh_t *mesh, const ir_placement_t *placements,
                                     const ir_type_t *type) ST_WARN_UNUSED;
/* Of the ranks that hold the same part of such a tensor, the first. */
bool ir_mesh_is_first_holder(const ir_mesh_t *mesh, const ir_placement_t *placements,
                             uint32_t rank);

#endif
