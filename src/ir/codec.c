/* Graphs as bytes. See codec.h for the contract; the messages are built and read in wire.c. */
#include "ir/codec.h"

#include "base/file.h"
#include "base/memory.h"
#include "ir/container.h"
#include "ir/wire.h"

static const ir_container_kind_t graph_file = {
    {'S', 'T', 'A', 'T', 'O', 'R', 'G', '\n'}, IR_GRAPH_VERSION, "graph"};

st_status_t ir_graph_encode(const ir_graph_t *graph, uint8_t **out_data, size_t *out_bytes) {
    *out_data = NULL;
    *out_bytes = 0;
    st_arena_t arena = {0};
    Stator__Wire__Graph *wire = NULL;
    st_status_t status = ST_OK;
    TRY_GOTO(ir_graph_to_wire(graph, &arena, &wire), done);
    size_t payload = stator__wire__graph__get_packed_size(wire);
    if (payload > IR_CONTAINER_MAX_PAYLOAD_BYTES)
        TRY_GOTO(
            FAIL(ST_DOES_NOT_FIT,
                 "graph '%s' needs %zu bytes, the limit of a file is %zu: keep large constants "
                 "as buffers",
                 graph->name, payload, IR_CONTAINER_MAX_PAYLOAD_BYTES),
            done);
    size_t bytes = IR_CONTAINER_HEADER_BYTES + payload;
    uint8_t *data = st_malloc(bytes);
    if (!data) TRY_GOTO(st_no_memory(bytes, "an encoded graph"), done);
    stator__wire__graph__pack(wire, data + IR_CONTAINER_HEADER_BYTES);
    ir_container_seal(&graph_file, data, payload);
    *out_data = data;
    *out_bytes = bytes;
done:
    st_arena_clear(&arena);
    return status;
}

st_status_t ir_graph_decode(const void *data, size_t bytes, ir_graph_t **out_graph) {
    *out_graph = NULL;
    const uint8_t *payload;
    size_t payload_bytes;
    TRY(ir_container_open(&graph_file, data, bytes, &payload, &payload_bytes));
    st_arena_t arena = {0};
    ProtobufCMessage *wire;
    st_status_t status =
        ir_wire_unpack(&stator__wire__graph__descriptor, payload, payload_bytes, &arena, &wire);
    if (status == ST_OK) status = ir_graph_from_wire((const Stator__Wire__Graph *)wire, out_graph);
    st_arena_clear(&arena);
    return status;
}

st_status_t ir_graph_save(const ir_graph_t *graph, const char *path) {
    uint8_t *data;
    size_t bytes;
    TRY(ir_graph_encode(graph, &data, &bytes));
    st_status_t status = st_file_write(path, data, bytes);
    st_free(data);
    return status;
}

st_status_t ir_graph_load(const char *path, ir_graph_t **out_graph) {
    *out_graph = NULL;
    st_file_t file;
    TRY(st_file_open(path, &file));
    st_status_t status = ir_graph_decode(file.data, file.bytes, out_graph);
    st_file_close(&file);
    return status == ST_OK ? ST_OK : st_error_context(status, "'%s'", path);
}
