/* Small archives made in memory. See pt2_make.h. */
#include "pt2_make.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "ir/convert.h"
#include "ir/expand.h"
#include "ir/op.h"
#include "kernels/table.h"

static void text_bytes(text_t *text, const void *data, size_t bytes) {
    if (text->n + bytes + 1 > text->cap) {
        text->cap = 2 * (text->n + bytes + 64);
        text->data = realloc(text->data, text->cap);
        assert_non_null(text->data);
    }
    if (bytes) memcpy(text->data + text->n, data, bytes);
    text->n += bytes;
    text->data[text->n] = '\0';
}

void text_add(text_t *text, const char *format, ...) {
    char line[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_in_range(n, 0, sizeof line - 1);
    text_bytes(text, line, (size_t)n);
}

/* ---- zip ---- */

static void put(text_t *text, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        text_bytes(text, &byte, 1);
    }
}

static uint8_t *pack(const void *data, size_t bytes, size_t *out_bytes) {
    size_t room = compressBound(bytes) + 64;
    uint8_t *packed = malloc(room);
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)data;
    stream.avail_in = (uInt)bytes;
    stream.next_out = packed;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *out_bytes = room - stream.avail_out;
    deflateEnd(&stream);
    return packed;
}

void zip_add(zip_maker_t *zip, const char *name, const void *data, size_t bytes) {
    size_t packed_bytes = bytes, length = strlen(name), offset = zip->file.n;
    uint8_t *packed = zip->deflate ? pack(data, bytes, &packed_bytes) : NULL;
    uint32_t crc = (uint32_t)crc32(0, data, (uInt)bytes);
    put(&zip->file, 0x04034b50, 4);
    put(&zip->file, 20, 2);
    put(&zip->file, 0, 2);
    put(&zip->file, zip->deflate ? 8 : 0, 2);
    put(&zip->file, 0, 4);
    put(&zip->file, crc, 4);
    put(&zip->file, packed_bytes, 4);
    put(&zip->file, bytes, 4);
    put(&zip->file, length, 2);
    put(&zip->file, 0, 2);
    text_bytes(&zip->file, name, length);
    text_bytes(&zip->file, packed ? packed : data, packed_bytes);
    free(packed);
    text_t *d = &zip->directory;
    put(d, 0x02014b50, 4);
    put(d, 20, 2);
    put(d, 20, 2);
    put(d, 0, 2);
    put(d, zip->deflate ? 8 : 0, 2);
    put(d, 0, 4);
    put(d, crc, 4);
    put(d, zip->zip64 ? UINT32_MAX : packed_bytes, 4);
    put(d, zip->zip64 ? UINT32_MAX : bytes, 4);
    put(d, length, 2);
    put(d, zip->zip64 ? 28 : 0, 2);
    put(d, 0, 8); /* comment length, disk, attributes: 2 + 2 + 2 + 4, two bytes of it below */
    put(d, 0, 2);
    put(d, zip->zip64 ? UINT32_MAX : offset, 4);
    text_bytes(d, name, length);
    if (zip->zip64) {
        put(d, 1, 2);
        put(d, 24, 2);
        put(d, bytes, 8);
        put(d, packed_bytes, 8);
        put(d, offset, 8);
    }
    zip->n++;
}

uint8_t *zip_finish(zip_maker_t *zip, size_t *out_bytes) {
    text_t *file = &zip->file;
    size_t at = file->n, bytes = zip->directory.n;
    text_bytes(file, zip->directory.data, bytes);
    if (zip->zip64) {
        size_t end = file->n;
        put(file, 0x06064b50, 4);
        put(file, 44, 8);
        put(file, 45, 2);
        put(file, 45, 2);
        put(file, 0, 8);
        put(file, zip->n, 8);
        put(file, zip->n, 8);
        put(file, bytes, 8);
        put(file, at, 8);
        put(file, 0x07064b50, 4);
        put(file, 0, 4);
        put(file, end, 8);
        put(file, 1, 4);
    }
    put(file, 0x06054b50, 4);
    put(file, 0, 4);
    put(file, zip->zip64 ? UINT16_MAX : zip->n, 2);
    put(file, zip->zip64 ? UINT16_MAX : zip->n, 2);
    put(file, zip->zip64 ? UINT32_MAX : bytes, 4);
    put(file, zip->zip64 ? UINT32_MAX : at, 4);
    put(file, 0, 2);
    free(zip->directory.data);
    uint8_t *data = (uint8_t *)file->data;
    *out_bytes = file->n;
    *zip = (zip_maker_t){0};
    return data;
}

/* ---- archives ---- */

static int dtype_code(ir_dtype_t dtype) {
    static const struct {
        ir_dtype_t dtype;
        int code;
    } codes[] = {{IR_U8, 1},    {IR_I8, 2},      {IR_I32, 4},    {IR_I64, 5},
                 {IR_F16, 6},   {IR_F32, 7},     {IR_F64, 8},    {IR_BOOL, 12},
                 {IR_BF16, 13}, {IR_F8E4M3, 29}, {IR_F8E5M2, 30}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].dtype == dtype) return codes[i].code;
    fail_msg("no schema code for %s", ir_dtype_text(dtype));
    return 0;
}

ir_type_t type_of(const char *text) {
    char dtype[16];
    size_t n = strcspn(text, "[");
    snprintf(dtype, sizeof dtype, "%.*s", (int)n, text);
    ir_type_t type = ir_type_scalar(ir_dtype_parse(dtype));
    assert_int_not_equal(type.dtype, IR_DTYPE_NONE);
    const char *at = text + n;
    while (*at == '[' || *at == ',') {
        if (at[1] == ']') break;
        char *end;
        type.dims[type.rank++] = strtol(at + 1, &end, 10);
        at = end;
    }
    return type;
}

static void add_meta(text_t *out, const ir_type_t *type, const int64_t *strides, int64_t offset,
                     bool requires_grad) {
    text_add(out, "{\"dtype\":%d,\"sizes\":[", dtype_code(type->dtype));
    int64_t row_major[IR_MAX_RANK], step = 1;
    for (int i = type->rank - 1; i >= 0; i--) row_major[i] = step, step *= type->dims[i];
    for (int i = 0; i < type->rank; i++)
        text_add(out, "%s{\"as_int\":%lld}", i ? "," : "", (long long)type->dims[i]);
    text_add(out, "],\"strides\":[");
    for (int i = 0; i < type->rank; i++)
        text_add(out, "%s{\"as_int\":%lld}", i ? "," : "",
                 (long long)(strides ? strides[i] : row_major[i]));
    text_add(out, "],\"storage_offset\":{\"as_int\":%lld},\"layout\":7,\"requires_grad\":%s}",
             (long long)offset, requires_grad ? "true" : "false");
}

static void add_value(pt2_maker_t *m, const char *name, const ir_type_t *type) {
    text_add(&m->values, "%s\"%s\":", m->values.n ? "," : "", name);
    add_meta(&m->values, type, NULL, 0, false);
}

void pt2_describe(pt2_maker_t *m, const char *name, const char *type_text) {
    ir_type_t type = type_of(type_text);
    add_value(m, name, &type);
}

void pt2_input(pt2_maker_t *m, const char *name, const char *type_text) {
    ir_type_t type = type_of(type_text);
    add_value(m, name, &type);
    text_add(&m->inputs, "%s{\"user_input\":{\"arg\":{\"as_tensor\":{\"name\":\"%s\"}}}}",
             m->inputs.n ? "," : "", name);
}

void pt2_symbolic_input(pt2_maker_t *m, const char *name, const char *dtype, const char *sizes) {
    text_add(&m->values, "%s\"%s\":{\"dtype\":%d,\"sizes\":[", m->values.n ? "," : "", name,
             dtype_code(ir_dtype_parse(dtype)));
    for (const char *at = sizes; *at;) {
        size_t n = strcspn(at, ","), name_bytes = strcspn(at, ":");
        text_add(&m->values, at > sizes ? "," : "");
        if (name_bytes < n)
            text_add(&m->values, "{\"as_expr\":{\"expr_str\":\"%.*s\",\"hint\":{\"as_int\":%.*s}}}",
                     (int)name_bytes, at, (int)(n - name_bytes - 1), at + name_bytes + 1);
        else
            text_add(&m->values, "{\"as_int\":%.*s}", (int)n, at);
        at += n + (at[n] == ',');
    }
    text_add(&m->values,
             "],\"strides\":[],\"storage_offset\":{\"as_int\":0},\"layout\":7,"
             "\"requires_grad\":false}");
    text_add(&m->inputs, "%s{\"user_input\":{\"arg\":{\"as_tensor\":{\"name\":\"%s\"}}}}",
             m->inputs.n ? "," : "", name);
}

void pt2_state_as(pt2_maker_t *m, const char *kind, const char *name, const char *type_text,
                  const char *path, const int64_t *strides, int64_t offset) {
    ir_type_t type = type_of(type_text);
    bool parameter = strcmp(kind, "parameter") == 0, frozen = strcmp(kind, "frozen") == 0;
    bool loose = strcmp(kind, "loose_buffer") == 0, constant = strcmp(kind, "tensor_constant") == 0;
    const char *spec = frozen ? "parameter" : loose ? "buffer" : kind;
    char argument[128];
    snprintf(argument, sizeof argument, "%s", name);
    for (char *c = argument; *c; c++)
        if (*c == '.') *c = '_';
    add_value(m, argument, &type);
    text_add(&m->inputs,
             "%s{\"%s\":{\"arg\":{\"name\":\"%s\"},\"%s_name\":\"%s\",\"persistent\":%s}}",
             m->inputs.n ? "," : "", spec, argument, spec, name, loose ? "false" : "true");
    text_t *config = loose || constant ? &m->constants : &m->config;
    text_add(config,
             "%s\"%s\":{\"path_name\":\"%s\",\"is_param\":%s,\"use_pickle\":false,\"tensor_meta\":",
             config->n ? "," : "", name, path, parameter || frozen ? "true" : "false");
    add_meta(config, &type, strides, offset, parameter);
    text_add(config, "}");
}

void pt2_state(pt2_maker_t *m, const char *kind, const char *name, const char *type_text,
               const double *values) {
    ir_type_t type = type_of(type_text);
    uint8_t bytes[4096];
    bool outside = strcmp(kind, "loose_buffer") == 0 || strcmp(kind, "tensor_constant") == 0;
    size_t n = (size_t)ir_type_elements(&type);
    assert_true(ir_type_bytes(&type) <= sizeof bytes);
    for (size_t i = 0; i < n; i++) ir_element_store(type.dtype, bytes, i, values[i]);
    char path[64], file[128];
    snprintf(path, sizeof path, "weight_%d", m->n_files++);
    snprintf(file, sizeof file, "%sdata/%s/%s", m->root ? m->root : "model/",
             outside ? "constants" : "weights", path);
    zip_add(&m->files, file, bytes, ir_type_bytes(&type));
    pt2_state_as(m, kind, name, type_text, path, NULL, 0);
}

static const char *add_one(text_t *out, const char *at, const char *end, bool optional) {
    size_t n = strcspn(at, "],");
    if (at + n > end) n = (size_t)(end - at);
    if (*at == '&')
        text_add(out, "{\"as_name\":\"%.*s\"}", (int)n - 1, at + 1);
    else if (*at == '%')
        text_add(out, optional ? "{\"as_tensor\":{\"name\":\"%.*s\"}}" : "{\"name\":\"%.*s\"}",
                 (int)n - 1, at + 1);
    else if (strncmp(at, "None", 4) == 0)
        text_add(out, "{\"as_none\":true}");
    else
        text_add(out, "%.*s", (int)n, at);
    return at + n;
}

/* The value between `at` and `end` as a tagged union. */
static void add_union(text_t *out, const char *at, const char *end) {
    int n = (int)(end - at);
    bool is_float = memchr(at, '.', (size_t)n) || strncmp(at, "1e", 2) == 0;
    if (*at == '[') {
        bool optional = memchr(at, 'N', (size_t)n) != NULL,
             tensors = memchr(at, '%', (size_t)n) != NULL;
        text_add(out, "{\"%s\":[",
                 optional                     ? "as_optional_tensors"
                 : tensors                    ? "as_tensors"
                 : memchr(at, '&', (size_t)n) ? "as_sym_ints"
                                              : "as_ints");
        for (at++; *at != ']';) {
            at = add_one(out, at, end, optional);
            if (*at == ',') text_add(out, ","), at++;
        }
        text_add(out, "]}");
    } else if (*at == '%') {
        text_add(out, "{\"as_tensor\":{\"name\":\"%.*s\"}}", n - 1, at + 1);
    } else if (*at == '$') {
        text_add(out, "%.*s", n - 1, at + 1);
    } else if (*at == '&') {
        text_add(out, "{\"as_sym_int\":{\"as_name\":\"%.*s\"}}", n - 1, at + 1);
    } else if (*at == '\'') {
        text_add(out, "{\"as_string\":\"%.*s\"}", n - 2, at + 1);
    } else if (*at == '#') {
        char dtype[16];
        snprintf(dtype, sizeof dtype, "%.*s", n - 1, at + 1);
        text_add(out, "{\"as_scalar_type\":%d}", dtype_code(ir_dtype_parse(dtype)));
    } else if (*at == 't' || *at == 'f') {
        text_add(out, "{\"as_bool\":%.*s}", n, at);
    } else if (strncmp(at, "None", 4) == 0) {
        text_add(out, "{\"as_none\":true}");
    } else {
        text_add(out, "{\"%s\":%.*s}", is_float ? "as_float" : "as_int", n, at);
    }
}

void pt2_node(pt2_maker_t *m, const char *target, const char *arguments, const char *results) {
    bool whole =
        strchr(target, ':') == NULL && strncmp(target, "torch.", 6) != 0 && target[0] != '*';
    text_add(&m->nodes, "%s{\"target\":\"%s%s\",\"inputs\":[", m->nodes.n ? "," : "",
             whole ? "torch.ops.aten." : "", target + (target[0] == '*'));
    for (const char *at = arguments; *at;) {
        const char *equals = strchr(at, '='), *end = at + strcspn(at, " ");
        assert_non_null(equals);
        text_add(&m->nodes, "%s{\"name\":\"%.*s\",\"arg\":", at > arguments ? "," : "",
                 (int)(equals - at), at);
        add_union(&m->nodes, equals + 1, end);
        text_add(&m->nodes, ",\"kind\":1}");
        at = *end ? end + 1 : end;
    }
    text_add(&m->nodes, "],\"outputs\":[");
    bool list = results[0] == '[';
    if (list) text_add(&m->nodes, "{\"as_tensors\":[");
    for (const char *at = results + list; *at && *at != ']';) {
        size_t n = strcspn(at, ",]");
        if (*at == '&') {
            text_add(&m->nodes, "{\"as_sym_int\":{\"as_name\":\"%.*s\"}}", (int)n - 1, at + 1);
            break;
        }
        text_add(&m->nodes,
                 list ? "%s{\"name\":\"%.*s\"}" : "%s{\"as_tensor\":{\"name\":\"%.*s\"}}",
                 at > results + list ? "," : "", (int)n, at);
        at += n;
        if (*at == ',') at++;
    }
    if (list) text_add(&m->nodes, "]}");
    if (results[0] == '&') results++;
    size_t first = strcspn(results + list, ",]");
    text_add(&m->nodes, "],\"metadata\":{},\"name\":\"%.*s\"}", (int)first, results + list);
}

char *pt2_graph(pt2_maker_t *m, const char *inputs, const char *outputs) {
    static const char *const parts[] = {"${\"as_graph\":{\"name\":\"g\",\"graph\":{\"inputs\":[",
                                        "],\"outputs\":["};
    text_t json = {0};
    for (int i = 0; i < 2; i++) {
        const char *names = i ? outputs : inputs;
        text_add(&json, "%s", parts[i]);
        for (const char *at = names; *at;) {
            size_t n = strcspn(at, ",");
            text_add(&json, "%s{\"as_tensor\":{\"name\":\"%.*s\"}}", at > names ? "," : "", (int)n,
                     at);
            at += n + (at[n] == ',');
        }
    }
    text_add(&json, "],\"nodes\":[%s],\"tensor_values\":{}}}}", m->nodes.data ? m->nodes.data : "");
    free(m->nodes.data);
    *m = (pt2_maker_t){0};
    return json.data;
}

void pt2_output(pt2_maker_t *m, const char *name) {
    text_add(&m->outputs, "%s{\"user_output\":{\"arg\":{\"as_tensor\":{\"name\":\"%s\"}}}}",
             m->outputs.n ? "," : "", name);
}

static const char *contents(const text_t *text) {
    return text->data ? text->data : "";
}

uint8_t *pt2_finish(pt2_maker_t *m, size_t *out_bytes) {
    const char *root = m->root ? m->root : "model/";
    text_t json = {0};
    char name[128];
    static const char *const parts[] = {
        "{\"graph_module\":{\"graph\":{\"inputs\":[],\"outputs\":[],\"nodes\":[",
        "],\"tensor_values\":{", "}},\"signature\":{\"input_specs\":[", "],\"output_specs\":["};
    const text_t *texts[] = {&m->nodes, &m->values, &m->inputs, &m->outputs};
    for (int i = 0; i < 4; i++) {
        text_add(&json, "%s", parts[i]);
        text_bytes(&json, contents(texts[i]), texts[i]->n);
    }
    if (m->extra_spec) text_add(&json, ",%s", m->extra_spec);
    text_add(&json, "]}},");
    if (m->ranges) text_add(&json, "\"range_constraints\":%s,", m->ranges);
    text_add(&json, "\"schema_version\":{\"major\":8,\"minor\":17},\"torch_version\":\"2.11.0\"}");
    snprintf(name, sizeof name, "%smodels/model.json", root);
    zip_add(&m->files, name, json.data, json.n);
    const text_t *configs[] = {&m->config, &m->constants};
    for (int i = 0; i < 2; i++) {
        json.n = 0;
        text_add(&json, "{\"config\":{");
        text_bytes(&json, contents(configs[i]), configs[i]->n);
        text_add(&json, "}}");
        snprintf(name, sizeof name, "%sdata/%s/model_%s_config.json", root,
                 i ? "constants" : "weights", i ? "constants" : "weights");
        zip_add(&m->files, name, json.data, json.n);
    }
    free(json.data);
    text_t *all[] = {&m->nodes, &m->values, &m->inputs, &m->outputs, &m->config, &m->constants};
    for (int i = 0; i < 6; i++) free(all[i]->data);
    uint8_t *file = zip_finish(&m->files, out_bytes);
    *m = (pt2_maker_t){0};
    return file;
}

/* ---- running ---- */

static const double *find_feed(const feed_t *feeds, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(feeds[i].name, name) == 0) return feeds[i].values;
    fail_msg("input '%s' is not fed", name);
    return NULL;
}

static void fill_source(const import_result_t *result, const ir_node_info_t *node,
                        const ir_type_t *type, const feed_t *feeds, size_t n_feeds, void *out) {
    if (node->op != IR_OP_INPUT) {
        for (size_t i = 0; i < result->tensors.n; i++) {
            const import_tensor_t *tensor = &result->tensors.data[i];
            if (strcmp(tensor->name, node->name) == 0) {
                memcpy(out, tensor->data, tensor->bytes);
                return;
            }
        }
        fail_msg("state '%s' has no value", node->name);
    }
    const double *values = find_feed(feeds, n_feeds, node->name);
    for (size_t i = 0; i < (size_t)ir_type_elements(type); i++)
        ir_element_store(type->dtype, out, i, values[i]);
}

static void run_node(const ir_graph_t *graph, const ir_node_info_t *node, void **memory) {
    ir_type_t in[32], out[32];
    const void *in_data[32];
    void *out_data[32];
    assert_true(node->n_inputs <= 32 && node->n_outputs <= 32);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        in[j] = *ir_value_type(graph, node->inputs[j]);
        in_data[j] = memory[node->inputs[j]];
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        out[k] = *ir_value_type(graph, node->first_output + k);
        out_data[k] = memory[node->first_output + k];
    }
    kern_problem_t problem = {node->op, node->n_inputs, node->n_outputs, in,
                              out,      node->attrs,    node->name};
    const kern_impl_t *impl = NULL;
    st_status_t status = kern_choose("cpu", &problem, true, &impl);
    if (status == ST_OK) status = kern_run_impl(impl, &problem, 1, in_data, out_data);
    if (status != ST_OK) fail_msg("%s", st_last_error());
}

double *run_graph(const import_result_t *result, const feed_t *feeds, size_t n_feeds,
                  const char *output, ir_type_t *out_type) {
    ir_graph_t *graph = NULL;
    st_status_t status = ir_expand_composites(result->graph, ir_expand_any, &graph);
    if (status != ST_OK) fail_msg("%s", st_last_error());
    void **memory = calloc(graph->values.n, sizeof *memory);
    ir_value_t wanted = ir_graph_find_output(graph, output);
    for (ir_value_t v = 0; v < graph->values.n; v++)
        memory[v] = calloc(1, ir_type_bytes(ir_value_type(graph, v)) + 64);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->op == IR_OP_UPDATE) {
            if (strcmp(ir_value_producer(graph, node->inputs[0])->name, output) == 0)
                wanted = node->inputs[1];
        } else if (node->op == IR_OP_INPUT || node->op == IR_OP_PARAMETER ||
                   node->op == IR_OP_BUFFER) {
            fill_source(result, node, ir_value_type(graph, node->first_output), feeds, n_feeds,
                        memory[node->first_output]);
        } else {
            run_node(graph, node, memory);
        }
    }
    if (wanted == IR_NONE) fail_msg("no output or update '%s'", output);
    *out_type = *ir_value_type(graph, wanted);
    size_t n = (size_t)ir_type_elements(out_type);
    double *values = calloc(n + 1, sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = ir_element_load(out_type->dtype, memory[wanted], i);
    for (ir_value_t v = 0; v < graph->values.n; v++) free(memory[v]);
    free(memory);
    ir_graph_destroy(graph);
    return values;
}
