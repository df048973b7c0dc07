/* Graphs as bytes: `.stator` files (container.h around the Graph message of proto/stator.proto). */
#ifndef STATOR_IR_CODEC_H
#define STATOR_IR_CODEC_H

#include "ir/graph.h"

/* Newest version of the Graph message. */
enum { IR_GRAPH_VERSION = 1 };

/* Bytes of a `.stator` file; equal graphs give equal bytes. The caller frees *out_data with
 * st_free. FAILs ST_DOES_NOT_FIT above 2 GiB - 1: large data belongs into parameters and buffers.
 */
st_status_t ir_graph_encode(const ir_graph_t *graph, uint8_t **out_data,
                            size_t *out_bytes) ST_WARN_UNUSED;
/* Rebuilds the graph node by node with every shape rule and attribute check, and verifies it. Takes
 * time and memory proportional to `bytes`, whatever they are. */
st_status_t ir_graph_decode(const void *data, size_t bytes, ir_graph_t **out_graph) ST_WARN_UNUSED;

/* Atomic: an interrupted save leaves the previous file. */
st_status_t ir_graph_save(const ir_graph_t *graph, const char *path) ST_WARN_UNUSED;
st_status_t ir_graph_load(const char *path, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
