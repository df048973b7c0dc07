/* Guarding the generated protobuf reader.
 *
 * That reader recurses with the nesting of messages, without a limit, and a message of two bytes
 * becomes a struct of a hundred. So the wire format is walked first, with the reader's own
 * descriptors: the walk has the same structure, allocates nothing, refuses deep nesting, and adds
 * up what unpacking will take.
 *
 * Limits: MOST_BYTES a file (protobuf's own), MOST_DEPTH levels (a graph in a graph takes three),
 * and MOST_STRUCTS bytes of structs beside the tensors' data. */
#include "import/onnx_guard.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "import/onnx.h"

enum { MOST_BYTES = INT32_MAX, MOST_DEPTH = 64, MOST_STRUCTS = 512 << 20 };
/* What the reader keeps for each field while it unpacks a message. */
enum { FIELD_BYTES = 48 };

typedef struct cursor {
    const uint8_t *at, *end;
} cursor_t;

static bool read_varint(cursor_t *c, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        uint8_t byte = *c->at++;
        if (shift < 64) *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

/* One field: its number, wire type and, for lengths, the bytes; false if it is malformed. */
typedef struct field {
    uint32_t number, wire;
    uint64_t value;
    cursor_t body;
} field_t;

static bool read_field(cursor_t *c, field_t *f) {
    uint64_t tag;
    if (!read_varint(c, &tag) || tag >> 32 || tag >> 3 == 0) return false;
    f->number = (uint32_t)(tag >> 3);
    f->wire = (uint32_t)(tag & 7);
    f->body = *c;
    size_t left;
    if (f->wire == PROTOBUF_C_WIRE_TYPE_VARINT) return read_varint(c, &f->value);
    if (f->wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
        if (!read_varint(c, &f->value)) return false;
    } else if (f->wire == PROTOBUF_C_WIRE_TYPE_64BIT || f->wire == PROTOBUF_C_WIRE_TYPE_32BIT) {
        f->value = f->wire == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 4;
    } else {
        return false;
    }
    left = (size_t)(c->end - c->at);
    if (f->value > left) return false;
    f->body = (cursor_t){c->at, c->at + f->value};
    c->at += f->value;
    return true;
}

/* ---- the walk ---- */

/* Fields of newer schemas that may be passed over: descriptions, devices, overload names of
 * functions. Any other unknown field is an error: to leave out, say, an attribute would change the
 * model. */
static const struct {
    const ProtobufCMessageDescriptor *type;
    uint32_t number;
} newer_fields[] = {
    {&onnx__node_proto__descriptor, 8},      {&onnx__node_proto__descriptor, 9},
    {&onnx__node_proto__descriptor, 10},     {&onnx__value_info_proto__descriptor, 4},
    {&onnx__graph_proto__descriptor, 16},    {&onnx__tensor_proto__descriptor, 16},
    {&onnx__function_proto__descriptor, 11}, {&onnx__function_proto__descriptor, 12},
    {&onnx__function_proto__descriptor, 13}, {&onnx__function_proto__descriptor, 14},
    {&onnx__model_proto__descriptor, 26},
};

static bool may_skip(const ProtobufCMessageDescriptor *type, const field_t *f) {
    bool listed = false;
    for (size_t i = 0; i < sizeof newer_fields / sizeof newer_fields[0]; i++)
        listed |= newer_fields[i].type == type && newer_fields[i].number == f->number;
    return listed && f->wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
}

typedef struct walk {
    const uint8_t *start;
    size_t structs;
} walk_t;

static st_status_t walk_message(walk_t *w, const ProtobufCMessageDescriptor *type, cursor_t c,
                                int depth) {
    if (depth > MOST_DEPTH)
        return FAIL(ST_PARSE, "messages are nested more than %d deep at byte %zu", MOST_DEPTH,
                    (size_t)(c.at - w->start));
    w->structs += type->sizeof_message;
    while (c.at < c.end) {
        size_t at = (size_t)(c.at - w->start);
        field_t f;
        if (!read_field(&c, &f))
            return FAIL(ST_PARSE, "the protobuf is truncated or malformed at byte %zu (in %s)", at,
                        type->name);
        w->structs += FIELD_BYTES;
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, f.number);
        if (w->structs > MOST_STRUCTS)
            return FAIL(ST_DOES_NOT_FIT, "more than %d MiB of structure up to byte %zu",
                        MOST_STRUCTS >> 20, at);
        if (!field && !may_skip(type, &f))
            return FAIL(ST_PARSE, "%s has a field %u at byte %zu, which is not in ONNX's schema",
                        type->name, (unsigned)f.number, at);
        if (!field) continue;
        bool prefixed = f.wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && prefixed)
            TRY(walk_message(w, field->descriptor, f.body, depth + 1));
    }
    return ST_OK;
}

/* ---- unpacking ---- */

typedef struct allocator {
    st_arena_t *arena;
    size_t failed; /* bytes of the request that could not be met */
} allocator_t;

static void *arena_alloc(void *state, size_t bytes) {
    allocator_t *a = state;
    void *memory = st_arena_alloc(a->arena, bytes);
    if (!memory) a->failed = bytes;
    return memory;
}

static void arena_free(void *state, void *memory) {
    (void)state, (void)memory; /* all of it goes with the arena */
}

st_status_t onnx_unpack(const void *data, size_t bytes, st_arena_t *arena,
                        const Onnx__ModelProto **out_model) {
    *out_model = NULL;
    if (bytes > MOST_BYTES)
        return FAIL(ST_DOES_NOT_FIT,
                    "the model is %zu bytes, protobuf ends at %d: save it with external data",
                    bytes, MOST_BYTES);
    walk_t walk = {.start = data};
    TRY(walk_message(&walk, &onnx__model_proto__descriptor,
                     (cursor_t){data, (const uint8_t *)data + bytes}, 0));
    allocator_t state = {.arena = arena};
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &state};
    *out_model = onnx__model_proto__unpack(&allocator, bytes, data);
    if (*out_model) return ST_OK;
    if (state.failed) return st_no_memory(state.failed, "an ONNX model");
    return FAIL(ST_PARSE,
                "the protobuf is malformed: a field has another wire type than ONNX's schema");
}

/* ---- probe ---- */

/* Protobuf has no magic number: the first fields must be ones of ModelProto, with their wire types.
 */
bool onnx_probe(const void *data, size_t bytes) {
    enum { LOOKED_AT = 2 };
    cursor_t c = {data, (const uint8_t *)data + bytes};
    for (int i = 0; i < LOOKED_AT && c.at < c.end; i++) {
        field_t f;
        const uint8_t *start = c.at;
        bool whole = read_field(&c, &f);
        if (!whole && (i == 0 || c.at == start)) {
            /* a first field that is cut off may still say that this is the graph of a model */
            cursor_t tag = {start, c.end};
            uint64_t value;
            return i > 0 || (read_varint(&tag, &value) && value == (7 << 3 | 2));
        }
        if (!whole) return true;
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(&onnx__model_proto__descriptor, f.number);
        bool number = field && field->type == PROTOBUF_C_TYPE_INT64;
        if (!field || number != (f.wire == PROTOBUF_C_WIRE_TYPE_VARINT)) return false;
        if (!number && f.wire != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) return false;
        if (f.number == 1 && (f.value == 0 || f.value > 1000)) return false; /* ir_version */
    }
    return bytes > 0;
}
