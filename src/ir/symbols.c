/* Open sizes (symbols.h). */
#include "ir/symbols.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/expression.h"
#include "base/number.h"
#include "ir/convert.h"
#include "ir/op.h"

enum { MAX_LIST = 512 };

bool ir_symbol_name_valid(const char *name) {
    for (const char *c = name; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && (c == name || *c < '0' || *c > '9')) return false;
    }
    return name[0] != '\0';
}

/* ---- adding ---- */

st_status_t ir_graph_add_symbol(ir_graph_t *graph, const ir_symbol_t *symbol) {
    if (!ir_symbol_name_valid(symbol->name))
        return FAIL(ST_INVALID, "'%.64s' is no name for a symbol: letters, digits, underscores",
                    symbol->name);
    for (size_t i = 0; i < graph->symbols.n; i++)
        if (strcmp(graph->symbols.data[i].name, symbol->name) == 0)
            return FAIL(ST_INVALID, "symbol '%s' is declared twice", symbol->name);
    if (graph->symbols.n == IR_MAX_SYMBOLS)
        return FAIL(ST_UNSUPPORTED, "symbol '%s': %d symbols at most", symbol->name,
                    IR_MAX_SYMBOLS);
    ir_symbol_t owned = *symbol;
    owned.name = st_arena_strdup(&graph->arena, symbol->name);
    if (!owned.name) return st_no_memory(0, "a symbol");
    return ST_VEC_PUSH(&graph->symbols, owned);
}

st_status_t ir_graph_add_variation(ir_graph_t *graph, const ir_variation_t *variation) {
    ir_variation_t owned = *variation;
    owned.key = st_arena_strdup(&graph->arena, variation->key);
    owned.expression = st_arena_strdup(&graph->arena, variation->expression);
    if (!owned.key || !owned.expression) return st_no_memory(0, "a variation");
    return ST_VEC_PUSH(&graph->variations, owned);
}

st_status_t ir_symbols_copy(const ir_graph_t *from, ir_graph_t *to) {
    for (size_t i = 0; i < from->symbols.n; i++)
        TRY(ir_graph_add_symbol(to, &from->symbols.data[i]));
    for (size_t i = 0; i < from->variations.n; i++)
        TRY(ir_graph_add_variation(to, &from->variations.data[i]));
    return ST_OK;
}

/* ---- entries ---- */

typedef struct values {
    const ir_graph_t *graph;
    int64_t of[IR_MAX_SYMBOLS]; /* in the order of the graph's symbols */
} values_t;

static bool value_of_name(void *context, const char *name, size_t bytes, int64_t *out_value) {
    const values_t *values = context;
    for (size_t i = 0; i < values->graph->symbols.n; i++) {
        const char *known = values->graph->symbols.data[i].name;
        if (strlen(known) != bytes || memcmp(known, name, bytes) != 0) continue;
        *out_value = values->of[i];
        return true;
    }
    return false;
}

/* Schema position of a variation's attribute, whose entry exists. */
static st_status_t find_entry(const ir_graph_t *graph, const ir_variation_t *v,
                              uint32_t *out_attr) {
    if (v->value >= graph->values.n)
        return FAIL(ST_INVALID, "a variation is of value %u, which does not exist", v->value);
    const ir_node_info_t *node = ir_value_producer(graph, v->value);
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t i = 0, n = ir_op_n_attrs(def);
    while (i < n && strcmp(def->attrs[i].key, v->key) != 0) i++;
    const ir_attr_t *attr = i < n ? &node->attrs[i] : NULL;
    size_t entries = 0;
    if (attr && (attr->kind == IR_ATTR_INT || attr->kind == IR_ATTR_FLOAT)) entries = 1;
    if (attr && attr->kind == IR_ATTR_INTS) entries = attr->ints.n;
    if (attr && attr->kind == IR_ATTR_DATA && strcmp(v->key, "data") == 0) {
        size_t each = ir_dtype_bytes((ir_dtype_t)ir_attr_int(node, "dtype"));
        entries = each ? attr->data.bytes / each : 0;
    }
    if (v->element >= entries)
        return FAIL(ST_INVALID, "%s has no entry %u of an attribute '%s' that can vary",
                    ir_node_label(graph, graph->values.data[v->value].producer), v->element,
                    v->key);
    *out_attr = i;
    return ST_OK;
}

static st_status_t whole_of(const ir_variation_t *v, const st_number_t *number, int64_t *out) {
    if (!number->whole)
        return FAIL(ST_INVALID, "'%s', entry %u: %s is %g, which is no whole number", v->key,
                    v->element, v->expression, number->f);
    *out = number->i;
    return ST_OK;
}

/* Puts an entry's value into a copy of the attribute, which the arena owns. */
static st_status_t store_entry(const ir_node_info_t *node, const ir_variation_t *v,
                               const st_number_t *number, st_arena_t *arena, ir_attr_t *attr) {
    if (attr->kind == IR_ATTR_INT) return whole_of(v, number, &attr->i);
    if (attr->kind == IR_ATTR_FLOAT) {
        attr->f = number->f;
        return ST_OK;
    }
    if (attr->kind == IR_ATTR_INTS) {
        int64_t value = 0;
        TRY(whole_of(v, number, &value));
        return ir_attr_set_int(attr, v->element, value, arena);
    }
    ir_dtype_t dtype = (ir_dtype_t)ir_attr_int(node, "dtype");
    void *data = st_arena_copy(arena, attr->data.p, attr->data.bytes);
    int64_t value = 0;
    if (!data) return st_no_memory(attr->data.bytes, "a constant");
    if (ir_dtype_is_float(dtype)) {
        ir_element_store(dtype, data, v->element, number->f);
    } else {
        TRY(whole_of(v, number, &value));
        ir_element_store_i64(dtype, data, v->element, value);
        if (ir_element_load_i64(dtype, data, v->element) != value)
            return FAIL(ST_INVALID, "'%s', entry %u: %s is %" PRId64 ", too much for %s", v->key,
                        v->element, v->expression, value, ir_dtype_text(dtype));
    }
    attr->data.p = data;
    return ST_OK;
}

/* The node's attributes for these values. */
static st_status_t vary_node(values_t *values, ir_node_t n, const ir_variation_t *first,
                             size_t n_variations, st_arena_t *arena, ir_attr_t **out_attrs) {
    const ir_node_info_t *node = ir_node(values->graph, n);
    uint32_t n_attrs = ir_op_n_attrs(ir_op_def(node->op));
    ir_attr_t *attrs = st_arena_copy(arena, node->attrs, n_attrs * sizeof *attrs);
    if (!attrs) return st_no_memory(n_attrs * sizeof *attrs, "attributes");
    for (size_t i = 0; i < n_variations; i++) {
        const ir_variation_t *v = &first[i];
        uint32_t attr;
        st_number_t number;
        TRY(find_entry(values->graph, v, &attr));
        st_status_t status = st_expression_eval(v->expression, value_of_name, values, &number);
        if (status == ST_OK) status = store_entry(node, v, &number, arena, &attrs[attr]);
        if (status != ST_OK) return st_error_context(status, "%s", ir_node_label(values->graph, n));
    }
    *out_attrs = attrs;
    return ST_OK;
}

/* ---- checks ---- */

static void append(char *text, size_t capacity, const char *more) {
    size_t used = strlen(text);
    snprintf(text + used, capacity - used, "%s", more);
}

static const char *bounds_text(const ir_symbol_t *s, char text[128]) {
    if (s->max == INT64_MAX)
        snprintf(text, 128, "%.64s (%" PRId64 " or more)", s->name, s->min);
    else
        snprintf(text, 128, "%.64s (%" PRId64 " to %" PRId64 ")", s->name, s->min, s->max);
    return text;
}

static const char *list_symbols(const ir_graph_t *graph, const bool *left_out,
                                char text[MAX_LIST]) {
    text[0] = '\0';
    for (size_t i = 0; i < graph->symbols.n; i++) {
        char one[128];
        if (left_out && left_out[i]) continue;
        append(text, MAX_LIST, text[0] ? ", " : "");
        append(text, MAX_LIST, bounds_text(&graph->symbols.data[i], one));
    }
    return text;
}

st_status_t ir_symbols_need_none(const ir_graph_t *graph) {
    char text[MAX_LIST];
    if (!graph->symbols.n) return ST_OK;
    return FAIL(ST_INVALID, "graph '%s' has sizes that are not bound: %s; bind them (--bind %s=…)",
                graph->name, list_symbols(graph, NULL, text), graph->symbols.data[0].name);
}

static bool doubles_agree(double a, double b) {
    return fabs(a - b) <= IR_VARIATION_TOLERANCE * fabs(b);
}

/* Whether the attribute is the same but for how entry `element` is rounded. */
static bool entry_is(const ir_node_info_t *node, const ir_attr_t *a, const ir_attr_t *b,
                     uint32_t element) {
    if (a->kind == IR_ATTR_INT) return a->i == b->i;
    if (a->kind == IR_ATTR_FLOAT) return doubles_agree(a->f, b->f);
    if (a->kind == IR_ATTR_INTS) return a->ints.v[element] == b->ints.v[element];
    ir_dtype_t dtype = (ir_dtype_t)ir_attr_int(node, "dtype");
    if (dtype == IR_F64)
        return doubles_agree(ir_element_load(dtype, a->data.p, element),
                             ir_element_load(dtype, b->data.p, element));
    return memcmp(a->data.p, b->data.p, a->data.bytes) == 0;
}

static st_status_t verify_variation(values_t *values, const ir_variation_t *v, st_arena_t *arena) {
    ir_attr_t *attrs = NULL;
    uint32_t attr;
    TRY(find_entry(values->graph, v, &attr));
    ir_node_t n = values->graph->values.data[v->value].producer;
    TRY(vary_node(values, n, v, 1, arena, &attrs));
    const ir_node_info_t *node = ir_node(values->graph, n);
    if (entry_is(node, &attrs[attr], &node->attrs[attr], v->element)) return ST_OK;
    return FAIL(ST_INVALID, "%s: '%s', entry %u is not what %s gives for the example",
                ir_node_label(values->graph, n), v->key, v->element, v->expression);
}

st_status_t ir_symbols_verify(const ir_graph_t *graph) {
    values_t values = {.graph = graph};
    st_status_t status = ST_OK;
    if (graph->symbols.n > IR_MAX_SYMBOLS)
        return FAIL(ST_INVALID, "%zu symbols, %d at most", graph->symbols.n, IR_MAX_SYMBOLS);
    for (size_t i = 0; i < graph->symbols.n; i++) {
        const ir_symbol_t *s = &graph->symbols.data[i];
        values.of[i] = s->example;
        if (s->min < 0 || s->min > s->max || s->example < s->min || s->example > s->max)
            return FAIL(ST_INVALID,
                        "symbol '%s' from %" PRId64 " to %" PRId64 " with the example %" PRId64,
                        s->name, s->min, s->max, s->example);
    }
    for (size_t i = 0; i < graph->variations.n && status == ST_OK; i++) {
        st_arena_t arena = {0};
        status = verify_variation(&values, &graph->variations.data[i], &arena);
        st_arena_clear(&arena);
    }
    return status;
}

/* ---- binding ---- */

st_status_t ir_bindings_parse(const char *text, st_arena_t *arena, ir_binding_t *out,
                              size_t *out_n) {
    *out_n = 0;
    char *at = st_arena_strdup(arena, text);
    if (!at) return st_no_memory(strlen(text), "bindings");
    while (*at) {
        char *end = strchr(at, ','), *equals = strchr(at, '=');
        if (end) *end = '\0';
        if (!equals || (end && equals > end))
            return FAIL(ST_INVALID, "'%.64s' is no binding: NAME=SIZE,…", at);
        *equals = '\0';
        if (*out_n == IR_MAX_SYMBOLS)
            return FAIL(ST_INVALID, "%d bindings at most", IR_MAX_SYMBOLS);
        ir_binding_t *binding = &out[(*out_n)++];
        binding->name = at;
        if (!st_int_parse(equals + 1, strlen(equals + 1), &binding->value))
            return FAIL(ST_INVALID, "the size '%.64s' of symbol '%.64s' is no whole number",
                        equals + 1, at);
        at = end ? end + 1 : at + strlen(at) + strlen(equals + 1) + 1;
    }
    return ST_OK;
}

static st_status_t take_bindings(const ir_graph_t *graph, size_t n, const ir_binding_t *bindings,
                                 values_t *out) {
    bool bound[IR_MAX_SYMBOLS] = {false};
    char text[MAX_LIST], one[128];
    *out = (values_t){.graph = graph};
    for (size_t b = 0; b < n; b++) {
        size_t i = 0;
        while (i < graph->symbols.n && strcmp(graph->symbols.data[i].name, bindings[b].name) != 0)
            i++;
        if (i == graph->symbols.n)
            return FAIL(ST_NOT_FOUND, "graph '%s' has no symbol '%.64s'%s%s", graph->name,
                        bindings[b].name, graph->symbols.n ? "; it has " : "; its sizes are fixed",
                        list_symbols(graph, NULL, text));
        const ir_symbol_t *s = &graph->symbols.data[i];
        if (bound[i]) return FAIL(ST_INVALID, "symbol '%s' is bound twice", s->name);
        if (bindings[b].value < s->min || bindings[b].value > s->max)
            return FAIL(ST_INVALID, "%" PRId64 " is outside the bounds of symbol %s",
                        bindings[b].value, bounds_text(s, one));
        bound[i] = true;
        out->of[i] = bindings[b].value;
    }
    for (size_t i = 0; i < graph->symbols.n; i++)
        if (!bound[i])
            return FAIL(ST_INVALID, "graph '%s' has sizes that are not bound: %s", graph->name,
                        list_symbols(graph, bound, text));
    return ST_OK;
}

typedef struct binder {
    values_t values;
    size_t *first; /* [nodes + 1]: its variations are sorted[first[n] … first[n + 1]) */
    ir_variation_t *sorted;
} binder_t;

/* Variations by node: a counting sort, so that those of a node keep their order. */
static st_status_t sort_variations(const ir_graph_t *graph, binder_t *b) {
    size_t n = graph->variations.n;
    b->first = st_calloc(graph->nodes.n + 2, sizeof *b->first);
    b->sorted = st_calloc(n, sizeof *b->sorted);
    if (!b->first || !b->sorted) return st_no_memory(n * sizeof *b->sorted, "a binding");
    for (size_t i = 0; i < n; i++)
        b->first[graph->values.data[graph->variations.data[i].value].producer + 2]++;
    for (size_t i = 0; i < graph->nodes.n; i++) b->first[i + 2] += b->first[i + 1];
    for (size_t i = 0; i < n; i++) {
        const ir_variation_t *v = &graph->variations.data[i];
        b->sorted[b->first[graph->values.data[v->value].producer + 1]++] = *v;
    }
    return ST_OK;
}

static st_status_t bind_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                             ir_value_t *map) {
    binder_t *b = context;
    size_t first = b->first[n], count = b->first[n + 1] - first;
    if (!count) return ir_graph_clone_node(to, from, n, NULL, map);
    st_arena_t arena = {0};
    ir_attr_t *attrs = NULL;
    st_status_t status = vary_node(&b->values, n, b->sorted + first, count, &arena, &attrs);
    if (status == ST_OK) status = ir_graph_clone_node(to, from, n, attrs, map);
    st_arena_clear(&arena);
    return status;
}

st_status_t ir_graph_bind(const ir_graph_t *graph, size_t n, const ir_binding_t *bindings,
                          ir_graph_t **out_graph) {
    *out_graph = NULL;
    binder_t b = {0};
    st_status_t status = ST_OK;
    TRY(take_bindings(graph, n, bindings, &b.values));
    TRY_GOTO(sort_variations(graph, &b), done);
    TRY_GOTO(ir_graph_rewrite(graph, NULL, bind_node, &b, out_graph), done);
done:
    st_free(b.first);
    st_free(b.sorted);
    return status == ST_OK ? ST_OK : st_error_context(status, "binding '%s'", graph->name);
}
