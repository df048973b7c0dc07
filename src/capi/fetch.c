/* Values that the option "fetch" keeps as outputs. */
#include <string.h>

#include "base/number.h"
#include "base/words.h"
#include "capi/capi.h"

enum { MOST_NEAR = 4096, NAME_BYTES = 512 };

/* The first output of the node of this name; of several the last one, which is what is left of the
 * earlier. */
static ir_value_t find_value(const ir_graph_t *graph, const char *name) {
    ir_node_t known = ir_graph_find(graph, name);
    if (known != IR_NONE) return ir_node(graph, known)->first_output;
    for (size_t n = graph->nodes.n; n-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, (ir_node_t)n);
        if (node->n_outputs && strcmp(node->name, name) == 0) return node->first_output;
    }
    return IR_NONE;
}

static st_status_t not_found(const ir_graph_t *graph, const char *name) {
    const char *names[MOST_NEAR];
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n && n < MOST_NEAR; i++)
        if (ir_node(graph, (ir_node_t)i)->name[0]) names[n++] = ir_node(graph, (ir_node_t)i)->name;
    const char *near = st_nearest(name, n, names);
    return FAIL(ST_NOT_FOUND, "option 'fetch': the graph has no value '%s'%s%s%s", name,
                near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* "%12": the value that the graph's text form has under this number. */
static st_status_t add_numbered(ir_graph_t *graph, const char *name) {
    int64_t number;
    if (!st_int_parse(name + 1, strlen(name + 1), &number) || number < 0 ||
        number >= (int64_t)graph->values.n)
        return FAIL(ST_NOT_FOUND,
                    "option 'fetch': the graph has no value '%s'; its values are %%0 to %%%zu",
                    name, graph->values.n - 1);
    return ir_graph_add_output(graph, name, (ir_value_t)number);
}

static st_status_t add_one(ir_graph_t *graph, const char *name, bool all) {
    if (ir_graph_find_output(graph, name) != IR_NONE) return ST_OK;
    if (name[0] == '%') return add_numbered(graph, name);
    ir_value_t value = find_value(graph, name);
    if (value != IR_NONE) return ir_graph_add_output(graph, name, value);
    return all ? not_found(graph, name) : ST_OK;
}

st_status_t capi_add_fetches(const st_options_t *table, bool all, ir_graph_t *graph) {
    char name[NAME_BYTES];
    const char *text = st_options_string(table, "fetch");
    for (const char *at = text; *text;) {
        size_t length = strcspn(at, ",");
        if (!length) return FAIL(ST_INVALID, "option 'fetch': a name in '%s' is empty", text);
        if (length >= sizeof name)
            return FAIL(ST_INVALID, "option 'fetch': the name '%.60s…' is longer than %zu bytes",
                        at, sizeof name - 1);
        memcpy(name, at, length);
        name[length] = '\0';
        TRY(add_one(graph, name, all));
        if (!at[length]) break;
        at += length + 1;
    }
    return ST_OK;
}

st_status_t capi_with_fetches(const ir_graph_t *graph, const st_options_t *table, bool all,
                              ir_graph_t **out_copy) {
    *out_copy = NULL;
    if (!st_options_string(table, "fetch")[0]) return ST_OK;
    TRY(ir_graph_copy(graph, out_copy));
    st_status_t status = capi_add_fetches(table, all, *out_copy);
    if (status == ST_OK) return ST_OK;
    ir_graph_destroy(*out_copy);
    *out_copy = NULL;
    return status;
}
