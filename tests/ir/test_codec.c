/* `.stator` files: round trip, every kind of damage, memory in proportion to the input. */
#include "ir/codec.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ir/build.h"
#include "ir/container.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/wire.h"

static const char sample[] =
    "graph \"sample\" producer \"hand\" {\n"
    "  %0 x = input {dtype=f32, shape=[4,8], batch_axis=-1} : f32[4,8]\n"
    "  %1 \"a w\" = parameter {dtype=f32, shape=[8]} : f32[8]\n"
    "  %2 = constant {dtype=f32, shape=[4,8], data=0.5} : f32[4,8]\n"
    "  %3 = constant {dtype=i64, shape=[3], data=[1,-2,3]} : i64[3]\n"
    "  %4 = add(%0, %2) : f32[4,8]\n"
    "  %5, %6 norm = rms_norm(%4, %1) {eps=1e-05} : f32[4,8], f32[4]\n"
    "  phase backward\n"
    "  %7 = cast(%3) {dtype=f32} : f32[3]\n"
    "  %8 = gelu(%5) {tanh=true} : f32[4,8]\n"
    "  phase optimizer\n"
    "  update(%1, %1)\n"
    "  output \"y\" = %8\n"
    "  output \"c\" = %7\n"
    "  alias \"tied\" = \"a w\"\n"
    "}\n";

static ir_graph_t *make(void) {
    ir_graph_t *graph;
    if (ir_graph_parse(sample, sizeof sample - 1, &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}
static uint8_t *encode(const ir_graph_t *graph, size_t *out_bytes) {
    uint8_t *data;
    if (ir_graph_encode(graph, &data, out_bytes) != ST_OK) fail_msg("%s", st_last_error());
    return data;
}

static void round_trip_keeps_everything(void **state) {
    (void)state;
    ir_graph_t *graph = make(), *back;
    size_t bytes, again_bytes;
    uint8_t *data = encode(graph, &bytes), *again;
    char *text;
    if (ir_graph_decode(data, bytes, &back) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_graph_print(back, &text), ST_OK);
    assert_string_equal(text, sample);
    again = encode(back, &again_bytes);
    assert_int_equal(bytes, again_bytes);
    assert_memory_equal(data, again, bytes);
    st_free(data);
    st_free(again);
    st_free(text);
    ir_graph_destroy(graph);
    ir_graph_destroy(back);
}

/* What a writer that knew no phases wrote has none of these fields. */
static void absent_phases_are_forward(void **state) {
    (void)state;
    ir_graph_t *graph = make(), *back;
    st_arena_t arena = {0};
    Stator__Wire__Graph *wire;
    assert_int_equal(ir_graph_to_wire(graph, &arena, &wire), ST_OK);
    for (size_t i = 0; i < wire->n_nodes; i++) {
        assert_int_equal(wire->nodes[i]->phase, ir_node(graph, (ir_node_t)i)->phase);
        wire->nodes[i]->phase = 0;
    }
    size_t with = 0, without;
    st_free(encode(graph, &with));
    assert_int_equal(ir_graph_from_wire(wire, &back), ST_OK);
    for (ir_node_t i = 0; i < back->nodes.n; i++)
        assert_int_equal(ir_node(back, i)->phase, IR_PHASE_FORWARD);
    st_free(encode(back, &without));
    assert_int_equal(with - without, 2 * 3); /* three nodes' tag and value: fields left out */
    st_arena_clear(&arena);
    ir_graph_destroy(graph);
    ir_graph_destroy(back);
}

static void assert_refused(const void *data, size_t bytes, st_status_t expected,
                           const char *message) {
    ir_graph_t *graph = (ir_graph_t *)1;
    st_clear_error();
    st_status_t status = ir_graph_decode(data, bytes, &graph);
    if (status != expected || !strstr(st_last_error(), message))
        fail_msg("status %d, '%s' expected in '%s'", status, message, st_last_error());
    assert_null(graph);
}

static void header_faults_are_told_apart(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    size_t bytes;
    uint8_t *data = encode(graph, &bytes);
    assert_memory_equal(data, "STATORG\n\1\0\0\0\0\0\0\0", 16);
    assert_refused(data, 0, ST_PARSE, "the file is empty");
    assert_refused(data, 5, ST_PARSE, "truncated: 5 bytes, the header alone has 32");
    assert_refused(data, 32, ST_PARSE, "truncated: 0 bytes follow the header");
    assert_refused(data, bytes - 1, ST_PARSE, "truncated");
    assert_refused("PK\3\4", 4, ST_PARSE, "not a Stator graph");
    data[0] ^= 1;
    assert_refused(data, bytes, ST_PARSE, "not a Stator graph");
    data[0] ^= 1;
    data[8] = 2;
    assert_refused(data, bytes, ST_UNSUPPORTED,
                   "graph format version 2 is newer than this build reads (1)");
    data[8] = 0;
    assert_refused(data, bytes, ST_PARSE, "malformed header");
    data[8] = 1;
    data[13] = 1;
    assert_refused(data, bytes, ST_PARSE, "malformed header");
    data[13] = 0;
    data[16]--;
    assert_refused(data, bytes, ST_PARSE, "1 bytes too many at offset");
    data[16]++;
    data[23] = 0x7f;
    assert_refused(data, bytes, ST_PARSE, "the limit is 2147483647");
    data[23] = 0;
    ir_graph_t *back;
    assert_int_equal(ir_graph_decode(data, bytes, &back), ST_OK); /* undamaged again */
    ir_graph_destroy(back);
    st_free(data);
    ir_graph_destroy(graph);
}

static void every_bit_flip_and_truncation_is_caught(void **state) {
    (void)state;
#ifdef STATOR_FUZZ
    print_message("skipped: this build does not verify checksums\n");
    skip();
#endif
    ir_graph_t *graph = make(), *back;
    size_t bytes;
    uint8_t *data = encode(graph, &bytes);
    for (size_t i = 0; i < bytes * 8; i++) {
        data[i / 8] ^= (uint8_t)(1u << (i % 8));
        st_clear_error();
        assert_int_not_equal(ir_graph_decode(data, bytes, &back), ST_OK);
        assert_true(strlen(st_last_error()) > 0);
        data[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    for (size_t n = 0; n < bytes; n++) assert_int_equal(ir_graph_decode(data, n, &back), ST_PARSE);
    st_free(data);
    ir_graph_destroy(graph);
}

/* Seals any payload, so that the damage reaches the decoder. */
static uint8_t *sealed(const void *payload, size_t bytes) {
    static const ir_container_kind_t kind = {{'S', 'T', 'A', 'T', 'O', 'R', 'G', '\n'}, 1, "graph"};
    uint8_t *data = st_malloc(IR_CONTAINER_HEADER_BYTES + bytes);
    if (bytes) memcpy(data + IR_CONTAINER_HEADER_BYTES, payload, bytes);
    ir_container_seal(&kind, data, bytes);
    return data;
}

/* With valid checksums: each flip decodes to some other verified graph, or is refused with a
 * message; nothing else happens (sanitizer builds see to that). */
static void damaged_payloads_are_refused_or_valid(void **state) {
    (void)state;
    ir_graph_t *graph = make(), *back;
    size_t bytes, n_refused = 0;
    uint8_t *data = encode(graph, &bytes);
    size_t payload_bytes = bytes - IR_CONTAINER_HEADER_BYTES;
    uint8_t *payload = data + IR_CONTAINER_HEADER_BYTES;
    for (size_t i = 0; i < payload_bytes * 8; i++) {
        payload[i / 8] ^= (uint8_t)(1u << (i % 8));
        uint8_t *file = sealed(payload, payload_bytes);
        st_clear_error();
        if (ir_graph_decode(file, bytes, &back) != ST_OK) {
            n_refused++;
            assert_null(back);
            assert_true(strlen(st_last_error()) > 0);
        }
        ir_graph_destroy(back);
        st_free(file);
        payload[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    /* what flips may change unnoticed are bits of names and numbers, a minority of this file */
    assert_true(n_refused > payload_bytes * 8 / 4);
    uint8_t *garbage = sealed("\xff\xff\xff", 3);
    assert_refused(garbage, IR_CONTAINER_HEADER_BYTES + 3, ST_PARSE,
                   "the 3 bytes after the header are no Graph message");
    st_free(garbage);
    st_free(data);
    ir_graph_destroy(graph);
}

/* ---- structural faults, made on the message ---- */

typedef void edit_t(Stator__Wire__Graph *wire);

static void assert_edit_refused(edit_t *edit, st_status_t expected, const char *message) {
    ir_graph_t *graph = make();
    st_arena_t arena = {0};
    Stator__Wire__Graph *wire;
    assert_int_equal(ir_graph_to_wire(graph, &arena, &wire), ST_OK);
    edit(wire);
    size_t bytes = stator__wire__graph__get_packed_size(wire);
    uint8_t *payload = st_malloc(bytes);
    stator__wire__graph__pack(wire, payload);
    uint8_t *file = sealed(payload, bytes);
    assert_refused(file, bytes + IR_CONTAINER_HEADER_BYTES, expected, message);
    st_free(file);
    st_free(payload);
    st_arena_clear(&arena);
    ir_graph_destroy(graph);
}

static uint32_t forward[] = {5, 2}, itself[] = {4, 2}, absent[] = {UINT32_MAX, 2};
static char x_name[] = "x", y_name[] = "y", odd_key[] = "odd", nobody[] = "nobody";
static int64_t huge_dims[] = {INT64_MAX / 8, 16};
static int64_t negative_dims[] = {-1, 8};
static int64_t ninth_dims[9];
static ProtobufCMessageUnknownField unknown = {99, PROTOBUF_C_WIRE_TYPE_VARINT, 1, (uint8_t *)"\1"};

static void forward_input(Stator__Wire__Graph *w) {
    w->nodes[4]->inputs = forward;
}
static void own_input(Stator__Wire__Graph *w) {
    w->nodes[4]->inputs = itself;
}
static void absent_input(Stator__Wire__Graph *w) {
    w->nodes[4]->inputs = absent;
}
static void unknown_op(Stator__Wire__Graph *w) {
    w->nodes[4]->op = 9999;
}
static void no_op(Stator__Wire__Graph *w) {
    w->nodes[4]->op = 0;
}
static void big_op(Stator__Wire__Graph *w) {
    w->nodes[4]->op = UINT32_MAX;
}
static void too_few_inputs(Stator__Wire__Graph *w) {
    w->nodes[4]->n_inputs = 1;
}
static void wrong_kind(Stator__Wire__Graph *w) {
    w->nodes[5]->attributes[0]->value_case = STATOR__WIRE__ATTRIBUTE__VALUE_BOOL_VALUE;
}
static void no_kind(Stator__Wire__Graph *w) {
    w->nodes[5]->attributes[0]->value_case = STATOR__WIRE__ATTRIBUTE__VALUE__NOT_SET;
}
static void unknown_key(Stator__Wire__Graph *w) {
    w->nodes[5]->attributes[0]->key = odd_key;
}
static void repeated_key(Stator__Wire__Graph *w) {
    w->nodes[0]->attributes[1] = w->nodes[0]->attributes[0];
}
static void too_many_attributes(Stator__Wire__Graph *w) {
    w->nodes[4]->attributes = w->nodes[0]->attributes;
    w->nodes[4]->n_attributes = 1;
}
static void missing_attribute(Stator__Wire__Graph *w) {
    w->nodes[0]->n_attributes = 1;
}
static void bad_dtype(Stator__Wire__Graph *w) {
    w->nodes[0]->attributes[0]->dtype_value = 200;
}
static void huge_shape(Stator__Wire__Graph *w) {
    w->nodes[0]->attributes[1]->ints_value->values = huge_dims;
}
static void negative_shape(Stator__Wire__Graph *w) {
    w->nodes[0]->attributes[1]->ints_value->values = negative_dims;
}
static void high_rank(Stator__Wire__Graph *w) {
    w->nodes[0]->attributes[1]->ints_value->values = ninth_dims;
    w->nodes[0]->attributes[1]->ints_value->n_values = 9;
}
static void short_data(Stator__Wire__Graph *w) {
    w->nodes[3]->attributes[2]->data_value.len = 12;
}
static void other_type(Stator__Wire__Graph *w) {
    w->nodes[4]->outputs[0]->dtype = IR_F64;
}
static void bad_type(Stator__Wire__Graph *w) {
    w->nodes[4]->outputs[0]->dtype = 77;
}
static void too_few_types(Stator__Wire__Graph *w) {
    w->nodes[5]->n_outputs = 1;
}
static void repeated_name(Stator__Wire__Graph *w) {
    w->nodes[1]->name = x_name;
}
static void repeated_output(Stator__Wire__Graph *w) {
    w->outputs[1]->name = y_name;
}
static void absent_output(Stator__Wire__Graph *w) {
    w->outputs[0]->value = 9;
}
static void alias_of_nothing(Stator__Wire__Graph *w) {
    w->aliases[0]->stored = nobody;
}
static void alias_taken(Stator__Wire__Graph *w) {
    w->aliases[0]->name = x_name;
}
static void newer_message(Stator__Wire__Graph *w) {
    w->format_version = 2;
}
static void versionless(Stator__Wire__Graph *w) {
    w->format_version = 0;
}
static void late_phase(Stator__Wire__Graph *w) {
    w->nodes[5]->phase = IR_PHASE_END;
}
static void unknown_field(Stator__Wire__Graph *w) {
    w->nodes[2]->base.n_unknown_fields = 1;
    w->nodes[2]->base.unknown_fields = &unknown;
}

static void structural_faults_are_named(void **state) {
    (void)state;
    static const struct {
        edit_t *edit;
        st_status_t status;
        const char *message;
    } cases[] = {
        {forward_input, ST_PARSE, "node 4: add (node 4): input 0 is value 5, which does not exist"},
        {own_input, ST_PARSE, "input 0 is value 4, which does not exist"},
        {absent_input, ST_PARSE, "input 0 is value 4294967295"},
        {unknown_op, ST_UNSUPPORTED, "node 4: op id 9999 is not known"},
        {no_op, ST_UNSUPPORTED, "op id 0 is not known"},
        {big_op, ST_UNSUPPORTED, "op id 4294967295 is not known"},
        {too_few_inputs, ST_PARSE, "1 inputs given"},
        {wrong_kind, ST_PARSE, "node 5: rms_norm 'norm': attribute 'eps' has the wrong kind"},
        {no_kind, ST_PARSE, "attribute 'eps' has no value"},
        {unknown_key, ST_PARSE, "there is no attribute 'odd'"},
        {repeated_key, ST_PARSE, "attribute 'dtype' is given twice"},
        {too_many_attributes, ST_PARSE, "1 attributes, the op has 0"},
        {missing_attribute, ST_PARSE, "attribute 'shape' is missing"},
        {bad_dtype, ST_PARSE, "element type 200 is not known"},
        {huge_shape, ST_DOES_NOT_FIT, "overflows 63 bits"},
        {negative_shape, ST_PARSE, "-1"},
        {high_rank, ST_PARSE, "9"},
        {short_data, ST_PARSE, "12 bytes given for i64[3]"},
        {other_type, ST_PARSE, "output 0 is stored as f64[4,8], the shape rule says f32[4,8]"},
        {bad_type, ST_PARSE, "element type 77 is not known"},
        {too_few_types, ST_PARSE, "1 output types, the op has 2 outputs"},
        {repeated_name, ST_PARSE, "the name is taken by node 0"},
        {repeated_output, ST_PARSE, "output name 'y' is used twice"},
        {absent_output, ST_PARSE, "output 'y' is value 9, which does not exist"},
        {alias_of_nothing, ST_PARSE, "alias 'tied' stands for 'nobody'"},
        {alias_taken, ST_PARSE, "alias 'x': the name is taken"},
        {newer_message, ST_UNSUPPORTED, "graph version 2, this build reads 1 to 1"},
        {versionless, ST_UNSUPPORTED, "graph version 0"},
        {late_phase, ST_PARSE, "node 5: phase 3 is not known"},
        {unknown_field, ST_PARSE, "node 2: Node message has the unknown field 99"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_edit_refused(cases[i].edit, cases[i].status, cases[i].message);
}

/* A splat of 2^40 elements is a small file and takes little memory to read; the graph's arena shows
 * what was allocated for it. */
static void memory_follows_the_file_not_the_shape(void **state) {
    (void)state;
    ir_graph_t *graph, *back;
    size_t bytes;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_b_splat(&b, ir_type_make(IR_F64, 2, (int64_t[]){1 << 20, 1 << 20}), 3);
    assert_int_equal(b.status, ST_OK);
    uint8_t *data = encode(graph, &bytes);
    assert_true(bytes < 128);
    assert_int_equal(ir_graph_decode(data, bytes, &back), ST_OK);
    assert_true(back->arena.total_bytes < 64 * 1024);
    st_free(data);
    ir_graph_destroy(graph);
    ir_graph_destroy(back);
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    ir_graph_t *graph = make();
    st_status_t status;
    int64_t n = 0;
    do {
        ir_graph_t *back = NULL;
        uint8_t *data = NULL;
        size_t bytes;
        st_memory_fail_after(n++, false);
        status = ir_graph_encode(graph, &data, &bytes);
        if (status == ST_OK) status = ir_graph_decode(data, bytes, &back);
        st_memory_fail_after(-1, false);
        st_free(data);
        ir_graph_destroy(back);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        assert_true(n < 1000);
    } while (status != ST_OK);
    assert_true(n > 5);
    ir_graph_destroy(graph);
}

/* ---- files ---- */

static void files_are_saved_whole(void **state) {
    (void)state;
    char folder[] = "/tmp/stator-codec-XXXXXX", path[64], missing[64], inside[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/g.stator", folder);
    snprintf(missing, sizeof missing, "%s/missing.stator", folder);
    snprintf(inside, sizeof inside, "%s/none/g.stator", folder);
    ir_graph_t *graph = make(), *back;
    assert_int_equal(ir_graph_save(graph, path), ST_OK);
    assert_int_equal(ir_graph_save(graph, path), ST_OK); /* over an existing file */
    assert_int_equal(ir_graph_load(path, &back), ST_OK);
    assert_int_equal(back->nodes.n, graph->nodes.n);
    ir_graph_destroy(back);
    assert_int_equal(ir_graph_load(missing, &back), ST_NOT_FOUND);
    assert_non_null(strstr(st_last_error(), "missing.stator"));
    assert_int_equal(ir_graph_save(graph, inside), ST_NOT_FOUND); /* no such folder */
    assert_int_equal(ir_graph_load(folder, &back), ST_IO);
    FILE *file = fopen(path, "r+b"); /* damage: the message names the file */
    assert_non_null(file);
    assert_int_equal(fputc('X', file), 'X');
    fclose(file);
    assert_int_equal(ir_graph_load(path, &back), ST_PARSE);
    assert_non_null(strstr(st_last_error(), "g.stator': not a Stator graph"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* empty: no temporary file was left */
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_keeps_everything),
        cmocka_unit_test(absent_phases_are_forward),
        cmocka_unit_test(header_faults_are_told_apart),
        cmocka_unit_test(every_bit_flip_and_truncation_is_caught),
        cmocka_unit_test(damaged_payloads_are_refused_or_valid),
        cmocka_unit_test(structural_faults_are_named),
        cmocka_unit_test(memory_follows_the_file_not_the_shape),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(files_are_saved_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
