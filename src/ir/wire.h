/* Graphs as protobuf messages, for the codecs of graphs and of plans. */
#ifndef STATOR_IR_WIRE_H
#define STATOR_IR_WIRE_H

#include "ir/graph.h"
#include "stator.pb-c.h"

/* The message of `graph`. Everything it needs is allocated in `arena` or borrowed from the graph:
 * it lives as long as both, and nothing is freed on its own. */
st_status_t ir_graph_to_wire(const ir_graph_t *graph, st_arena_t *arena,
                             Stator__Wire__Graph **out_wire) ST_WARN_UNUSED;
/* Builds and verifies the graph of a message from an untrusted source; the message may go
 * afterwards. */
st_status_t ir_graph_from_wire(const Stator__Wire__Graph *wire,
                               ir_graph_t **out_graph) ST_WARN_UNUSED;

st_status_t ir_type_to_wire(const ir_type_t *type, st_arena_t *arena,
                            Stator__Wire__Type **out_wire) ST_WARN_UNUSED;
/* Checks rank, dtype and dims. */
st_status_t ir_type_from_wire(const Stator__Wire__Type *wire, ir_type_t *out_type) ST_WARN_UNUSED;

/* FAILs if the message has fields that this version does not know: they would be dropped silently.
 */
st_status_t ir_wire_check_known(const ProtobufCMessage *message) ST_WARN_UNUSED;
/* Unpacks a message into `arena`, where it lives; tells a lack of memory from malformed bytes. Note
 * that protobuf-c merges a singular sub-message that occurs again. */
st_status_t ir_wire_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *data,
                           size_t bytes, st_arena_t *arena,
                           ProtobufCMessage **out_message) ST_WARN_UNUSED;

#endif
