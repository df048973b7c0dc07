/* Graphs that nodes own: a scope of their own over the values of the graph around; those that run
 * where the node stands (no_grad, autocast). Bodies of control flow are in aten_control.c. */
#include <string.h>

#include "import/aten.h"
#include "import/json.h"

/* ---- the scope ---- */

bool aten_nest_open(aten_t *a, size_t at, size_t n_inputs, aten_nest_t *nest) {
    json_object *input = json_object_array_get_idx(a->inputs, at), *member;
    const char *tag = import_json_tag(import_json_get(input, "arg"), &member);
    json_object *graph = import_json_get(member, "graph");
    json_object *names = import_json_array(graph, "inputs");
    if (!aten_ok(a)) return false;
    if (!tag || strcmp(tag, "as_graph") != 0 || !names || !import_json_array(graph, "outputs")) {
        aten_fail(a, ST_PARSE, "argument %zu is not a graph", at);
        return false;
    }
    if (json_object_array_length(names) != n_inputs) {
        aten_fail(a, ST_PARSE, "the nested graph has %zu inputs, %zu are given",
                  json_object_array_length(names), n_inputs);
        return false;
    }
    if (a->depth >= ATEN_MAX_NESTED) {
        aten_fail(a, ST_UNSUPPORTED, "graphs are nested deeper than %d", ATEN_MAX_NESTED);
        return false;
    }
    *nest = (aten_nest_t){.node = a->node,
                          .inputs = a->inputs,
                          .graph = graph,
                          .node_name = a->node_name,
                          .target = a->target,
                          .op = a->op,
                          .scope = a->scope,
                          .inner = {.tensor_values = import_json_get(graph, "tensor_values")}};
    a->scope = &nest->inner;
    return true;
}

const char *aten_nest_input(aten_t *a, const aten_nest_t *nest, size_t i) {
    json_object *names = import_json_array(nest->graph, "inputs"), *bound;
    import_json_tag(json_object_array_get_idx(names, i), &bound);
    const char *name = import_json_string(bound, "name");
    if (!name) aten_fail(a, ST_PARSE, "input %zu of the nested graph has no name", i);
    return name;
}

void aten_nest_run(aten_t *a, aten_nest_t *nest) {
    a->depth++;
    aten_run(a, nest->graph);
    a->depth--;
}

size_t aten_nest_n_outputs(const aten_nest_t *nest) {
    return json_object_array_length(import_json_array(nest->graph, "outputs"));
}

aten_item_t aten_nest_output(aten_t *a, const aten_nest_t *nest, size_t k) {
    json_object *outputs = import_json_array(nest->graph, "outputs"), *bound;
    import_json_tag(json_object_array_get_idx(outputs, k), &bound);
    const char *name = import_json_string(bound, "name");
    aten_item_t *item = name ? aten_lookup(&nest->inner, name) : NULL;
    if (item) return *item;
    aten_fail(a, ST_PARSE, "output %zu of the nested graph is not one of its values", k);
    return (aten_item_t){0};
}

void aten_nest_close(aten_t *a, aten_nest_t *nest) {
    a->scope = nest->scope;
    a->node = nest->node, a->inputs = nest->inputs, a->op = nest->op;
    a->node_name = nest->node_name, a->target = nest->target;
    a->used = UINT32_MAX;
    a->fresh = false;
    a->returned.n = 0;
}

/* ---- graphs in place of the node ---- */

void aten_run_nested(aten_t *a, size_t at, size_t n, const aten_item_t *items, const char *why) {
    aten_nest_t nest;
    ST_VEC(aten_item_t) results = {0};
    for (size_t i = 0; i < n && why; i++)
        if (items[i].kind == ATEN_TENSOR)
            aten_refuse_gradient(a, aten_slot_value(a, items[i].slot), why);
    if (!aten_nest_open(a, at, n, &nest)) return;
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        const char *name = aten_nest_input(a, &nest, i);
        if (name) aten_bind(a, name, items[i]);
    }
    aten_nest_run(a, &nest);
    for (size_t k = 0; k < aten_nest_n_outputs(&nest) && aten_ok(a); k++) {
        aten_item_t item = aten_nest_output(a, &nest, k);
        if (aten_ok(a)) a->b.status = ST_VEC_PUSH(&results, item);
    }
    aten_nest_close(a, &nest);
    /* the node's results are the inner slots: what aliases inside, aliases outside */
    for (size_t k = 0; k < results.n && aten_ok(a); k++) {
        aten_item_t item = results.data[k];
        if (item.kind == ATEN_TENSOR) {
            item.i = (int64_t)item.slot + 1;
            item.slot = aten_slot_value(a, item.slot);
        }
        aten_return_item(a, item);
    }
    ST_VEC_FREE(&results);
}

/* On the arguments behind the graph. */
static void run_wrapped(aten_t *a, size_t at, const char *why) {
    aten_item_t items[32];
    const size_t n = json_object_array_length(a->inputs), first = at + 1;
    if (n < first) aten_fail(a, ST_PARSE, "argument %zu is missing", at);
    if (!aten_ok(a)) return;
    for (size_t i = first; i < n; i++) items[i - first] = aten_slot_item_at(a, i);
    aten_run_nested(a, at, n - first, items, why);
}

void aten_set_grad(aten_t *a) {
    aten_item_t enabled = aten_item_at(a, 0);
    if (enabled.kind != ATEN_BOOL) aten_fail(a, ST_PARSE, "argument 0 is not a bool");
    run_wrapped(a, 1, enabled.i ? NULL : "torch.no_grad() around");
}

/* wrap_with_autocast(device, dtype, enabled, cache, graph, …) */
void aten_autocast(aten_t *a) {
    aten_item_t enabled = aten_item_at(a, 2);
    if (enabled.kind != ATEN_BOOL) aten_fail(a, ST_PARSE, "argument 2 is not a bool");
    if (enabled.i)
        aten_fail(a, ST_UNSUPPORTED,
                  "autocast inside the model: export it in float32 and choose the precision here");
    run_wrapped(a, 4, NULL);
}
