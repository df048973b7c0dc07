/* Printer of the text form. See text.h for the form. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "ir/convert.h"
#include "ir/op.h"
#include "ir/structure.h"
#include "ir/text.h"

enum { LONGEST_LIST = 64, ELEMENT_BYTES = 8 };

typedef struct printer {
    st_text_t text;
    int depth; /* of the graph that is being written: bodies are indented */
} printer_t;

static st_status_t put(printer_t *p, const char *text) {
    return st_text_put_bytes(&p->text, text, strlen(text));
}

static st_status_t put_quoted(printer_t *p, const char *text) {
    TRY(put(p, "\""));
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            TRY(st_text_put(&p->text, "\\%c", byte));
        else if (byte == '\n')
            TRY(put(p, "\\n"));
        else if (byte < 0x20 || byte == 0x7f)
            TRY(st_text_put(&p->text, "\\x%02x", byte));
        else
            TRY(st_text_put_bytes(&p->text, c, 1));
    }
    return put(p, "\"");
}

static bool is_bare(const char *name) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    static const char *const words[] = {"graph", "producer", "output", "alias",
                                        "phase", "symbol",   "vary"};
    if (!name[0] || !strchr(letters, name[0])) return false;
    for (const char *c = name; *c; c++)
        if (!strchr(letters, *c) && !strchr("0123456789.", *c)) return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(name, words[i]) == 0) return false;
    return true;
}
static st_status_t put_name(printer_t *p, const char *name) {
    return is_bare(name) ? put(p, name) : put_quoted(p, name);
}

/* ---- data ---- */

/* Text of element i; false if reading it back would not give the same bytes. */
static bool element_text(ir_dtype_t dtype, const void *data, size_t i, char *buffer) {
    size_t bytes = ir_dtype_bytes(dtype);
    const char *original = (const char *)data + i * bytes;
    unsigned char back[ELEMENT_BYTES] = {0};
    if (dtype == IR_BOOL) {
        int64_t value = ir_element_load_i64(dtype, data, i);
        snprintf(buffer, ST_NUMBER_BYTES, "%s", value ? "true" : "false");
        ir_element_store_i64(dtype, back, 0, value);
        return memcmp(back, original, bytes) == 0;
    }
    if (!ir_dtype_is_float(dtype)) {
        int64_t value = ir_element_load_i64(dtype, data, i);
        snprintf(buffer, ST_NUMBER_BYTES, "%" PRId64, value);
        ir_element_store_i64(dtype, back, 0, value);
        return memcmp(back, original, bytes) == 0;
    }
    double value = ir_element_load(dtype, data, i);
    for (int digits = 1; digits <= 17; digits++) {
        double read;
        st_double_text(value, digits, buffer);
        if (!st_double_parse(buffer, strlen(buffer), &read)) continue;
        ir_element_store(dtype, back, 0, read);
        if (memcmp(back, original, bytes) == 0) return true;
        if (value != value) return false;
    }
    return false;
}

static st_status_t put_hex(printer_t *p, const void *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = data;
    TRY(put(p, "0x"));
    TRY(ST_VEC_RESERVE(&p->text, p->text.n + 2 * bytes));
    for (size_t i = 0; i < bytes; i++) {
        p->text.data[p->text.n++] = digits[from[i] >> 4];
        p->text.data[p->text.n++] = digits[from[i] & 15];
    }
    return ST_OK;
}

static st_status_t put_data(printer_t *p, ir_dtype_t dtype, const void *data, size_t bytes) {
    size_t each = ir_dtype_bytes(dtype);
    char text[ST_NUMBER_BYTES];
    if (bytes == 0) return put(p, "[]");
    if (each == 0 || bytes % each || bytes / each > LONGEST_LIST) return put_hex(p, data, bytes);
    size_t n = bytes / each, start = p->text.n;
    if (n > 1) TRY(put(p, "["));
    for (size_t i = 0; i < n; i++) {
        if (!element_text(dtype, data, i, text)) {
            p->text.n = start;
            return put_hex(p, data, bytes);
        }
        TRY(st_text_put(&p->text, "%s%s", i ? "," : "", text));
    }
    return n > 1 ? put(p, "]") : ST_OK;
}

/* ---- nodes ---- */

static ir_dtype_t data_dtype(const ir_op_def_t *def, const ir_attr_t *attrs) {
    for (uint32_t i = 0; def->attrs[i].key; i++)
        if (def->attrs[i].kind == IR_ATTR_DTYPE && strcmp(def->attrs[i].key, "dtype") == 0)
            return (ir_dtype_t)attrs[i].i;
    return IR_DTYPE_NONE;
}

static st_status_t put_float(printer_t *p, double value) {
    static const double plain_nan = (double)__builtin_nan("");
    char text[ST_NUMBER_BYTES];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value && memcmp(&value, &plain_nan, sizeof value) != 0)
        return st_text_put(&p->text, "0x%016" PRIx64, bits);
    return put(p, st_double_shortest(value, text));
}

static st_status_t put_graph(printer_t *p, const ir_graph_t *graph);

static st_status_t put_indent(printer_t *p) {
    for (int i = 0; i < p->depth; i++) TRY(put(p, "  "));
    return ST_OK;
}

static st_status_t put_body(printer_t *p, const ir_graph_t *body) {
    p->depth++;
    TRY(put_graph(p, body));
    p->depth--;
    return ST_OK;
}

static st_status_t put_attr(printer_t *p, const ir_op_def_t *def, const ir_attr_t *attrs,
                            uint32_t i) {
    const ir_attr_t *attr = &attrs[i];
    switch (attr->kind) {
        case IR_ATTR_INT:
            return st_text_put(&p->text, "%" PRId64, attr->i);
        case IR_ATTR_FLOAT:
            return put_float(p, attr->f);
        case IR_ATTR_BOOL:
            return put(p, attr->i ? "true" : "false");
        case IR_ATTR_DTYPE:
            return put(p, ir_dtype_text((ir_dtype_t)attr->i));
        case IR_ATTR_INTS:
            TRY(put(p, "["));
            for (uint32_t k = 0; k < attr->ints.n; k++)
                TRY(st_text_put(&p->text, "%s%" PRId64, k ? "," : "", attr->ints.v[k]));
            return put(p, "]");
        case IR_ATTR_STRING:
            return put_quoted(p, attr->s);
        case IR_ATTR_DATA:
            return put_data(p, data_dtype(def, attrs), attr->data.p, attr->data.bytes);
        case IR_ATTR_GRAPH:
            return put_body(p, attr->graph);
    }
    return FAIL(ST_INTERNAL, "attribute '%s' has no kind", def->attrs[i].key);
}

static st_status_t put_node(printer_t *p, const ir_graph_t *graph, const ir_node_info_t *node) {
    const ir_op_def_t *def = ir_op_def(node->op);
    TRY(put_indent(p));
    for (uint32_t k = 0; k < node->n_outputs; k++)
        TRY(st_text_put(&p->text, "%s%%%u", k ? ", " : "", node->first_output + k));
    if (node->name[0]) {
        if (node->n_outputs) TRY(put(p, " "));
        TRY(put_name(p, node->name));
    }
    if (node->n_outputs || node->name[0]) TRY(put(p, " = "));
    TRY(put(p, def->name));
    for (uint32_t j = 0; j < node->n_inputs; j++)
        TRY(st_text_put(&p->text, "%s%%%u", j ? ", " : "(", node->inputs[j]));
    if (node->n_inputs) TRY(put(p, ")"));
    uint32_t n_attrs = ir_op_n_attrs(def), n_shown = 0;
    for (uint32_t i = 0; i < n_attrs; i++) {
        ir_attr_t usual = ir_attr_default(&def->attrs[i]);
        if (!def->attrs[i].required && ir_attr_equal(&node->attrs[i], &usual)) continue;
        TRY(st_text_put(&p->text, "%s%s=", n_shown++ ? ", " : " {", def->attrs[i].key));
        TRY(put_attr(p, def, node->attrs, i));
    }
    if (n_shown) TRY(put(p, "}"));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        char type[IR_TYPE_TEXT_BYTES];
        TRY(st_text_put(
            &p->text, "%s%s", k ? ", " : " : ",
            ir_type_text(ir_value_type(graph, node->first_output + k), type, sizeof type)));
    }
    return put(p, "\n");
}

static st_status_t put_symbols(printer_t *p, const ir_graph_t *graph) {
    for (size_t i = 0; i < graph->symbols.n; i++) {
        const ir_symbol_t *s = &graph->symbols.data[i];
        TRY(put_indent(p));
        TRY(put(p, "symbol "));
        TRY(put_name(p, s->name));
        TRY(st_text_put(&p->text, " = %" PRId64 " [%" PRId64, s->example, s->min));
        if (s->max != INT64_MAX) TRY(st_text_put(&p->text, ",%" PRId64, s->max));
        TRY(put(p, "]\n"));
    }
    for (size_t i = 0; i < graph->variations.n; i++) {
        const ir_variation_t *v = &graph->variations.data[i];
        TRY(put_indent(p));
        TRY(st_text_put(&p->text, "vary %%%u ", v->value));
        TRY(put_name(p, v->key));
        TRY(st_text_put(&p->text, " %u = ", v->element));
        TRY(put_quoted(p, v->expression));
        TRY(put(p, "\n"));
    }
    return ST_OK;
}

static st_status_t put_graph(printer_t *p, const ir_graph_t *graph) {
    TRY(put(p, "graph "));
    if (graph->name[0]) {
        TRY(put_quoted(p, graph->name));
        TRY(put(p, " "));
    }
    if (graph->producer[0]) {
        TRY(put(p, "producer "));
        TRY(put_quoted(p, graph->producer));
        TRY(put(p, " "));
    }
    TRY(put(p, "{\n"));
    ir_phase_t phase = IR_PHASE_FORWARD;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->phase != phase) {
            TRY(put_indent(p));
            TRY(st_text_put(&p->text, "phase %s\n", ir_phase_text(node->phase)));
        }
        phase = node->phase;
        TRY(put_node(p, graph, node));
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        TRY(put_indent(p));
        TRY(put(p, "output "));
        TRY(put_quoted(p, graph->outputs.data[i].name));
        TRY(st_text_put(&p->text, " = %%%u\n", graph->outputs.data[i].value));
    }
    for (size_t i = 0; i < graph->aliases.n; i++) {
        TRY(put_indent(p));
        TRY(put(p, "alias "));
        TRY(put_quoted(p, graph->aliases.data[i].name));
        TRY(put(p, " = "));
        TRY(put_quoted(p, graph->aliases.data[i].stored));
        TRY(put(p, "\n"));
    }
    TRY(put_symbols(p, graph));
    for (int i = 1; i < p->depth; i++) TRY(put(p, "  "));
    return put(p, "}");
}

/* The text so far, ended; frees it after a failure. */
static st_status_t take_text(printer_t *p, st_status_t status, const char *end, char **out_text) {
    if (status == ST_OK) status = put(p, end);
    if (status != ST_OK) {
        ST_VEC_FREE(&p->text);
        return status == ST_NO_MEMORY ? st_no_memory(p->text.cap, "a graph as text") : status;
    }
    *out_text = p->text.data;
    return ST_OK;
}

st_status_t ir_graph_print(const ir_graph_t *graph, char **out_text) {
    *out_text = NULL;
    printer_t p = {.depth = 1};
    return take_text(&p, put_graph(&p, graph), "\n", out_text);
}

st_status_t ir_attr_print(const ir_node_info_t *node, uint32_t index, char **out_text) {
    *out_text = NULL;
    printer_t p = {.depth = 0};
    return take_text(&p, put_attr(&p, ir_op_def(node->op), node->attrs, index), "", out_text);
}
