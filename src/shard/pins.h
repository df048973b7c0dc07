/* Placements that a user asks for:  PATTERN=split(DIM,AXIS);PATTERN=whole(AXIS)
 *
 * A pattern is one of names of parameters, buffers or nodes (* and ?). A state that matches lives
 * so on the axis; of a node that matches, all readers get output 0 so. A pin goes before what a
 * form or a search says of the same value; the last of several pins counts. */
#ifndef STATOR_SHARD_PINS_H
#define STATOR_SHARD_PINS_H

#include "ir/mesh.h"
#include "shard/settle.h"

/* INVALID where the text is no list of pins, the mesh has no such axis, nothing has a name of the
 * pattern, or what has one has no such dim; the message names them. */
st_status_t shard_pins_check(const char *text, const ir_mesh_t *mesh,
                             const ir_graph_t *graph) ST_WARN_UNUSED;
/* Adds those of the axis to what is settled of the graph. They are checked. */
st_status_t shard_pins_apply(const char *text, const ir_mesh_t *mesh, uint32_t axis,
                             const ir_graph_t *graph, shard_settled_t *settled) ST_WARN_UNUSED;

/* Where states are wanted on the axis: [nodes], NULL where they are free. The list is in the arena;
 * placements are of whole dims in parts of one element. */
st_status_t shard_pins_states(const char *text, const ir_mesh_t *mesh, uint32_t axis,
                              const ir_graph_t *graph, st_arena_t *arena,
                              const ir_placement_t *const **out_states) ST_WARN_UNUSED;

#endif
