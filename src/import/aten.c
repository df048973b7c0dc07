/* The interpreter of ATen graphs: names, slots, mutation, dispatch. See aten.h. */
#include "import/aten.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "import/pt2_meta.h"
#include "ir/op.h"

void aten_fail(aten_t *a, st_status_t status, const char *format, ...) {
    if (a->b.status != ST_OK) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    a->b.status = FAIL(status, "%s", text);
}

static void set_status(aten_t *a, st_status_t status) {
    if (a->b.status == ST_OK) a->b.status = status;
}

void aten_free(aten_t *a) {
    ST_VEC_FREE(&a->slots);
    ST_VEC_FREE(&a->storages);
    ST_VEC_FREE(&a->depends);
    ST_VEC_FREE(&a->returned);
    ST_VEC_FREE(&a->known.values);
}

ir_type_t aten_type(const aten_t *a, ir_value_t value) {
    return *ir_b_type(&a->b, value);
}

/* ---- names ---- */

static aten_binding_t *find_binding(const aten_scope_t *scope, const char *name) {
    size_t at = (size_t)st_hash_string(name) & (scope->cap - 1);
    while (scope->bindings[at].name && strcmp(scope->bindings[at].name, name) != 0)
        at = (at + 1) & (scope->cap - 1);
    return &scope->bindings[at];
}

aten_item_t *aten_lookup(const aten_scope_t *scope, const char *name) {
    if (scope->cap == 0) return NULL;
    aten_binding_t *binding = find_binding(scope, name);
    return binding->name ? &binding->item : NULL;
}

static bool grow_scope(aten_t *a, aten_scope_t *scope) {
    size_t cap = scope->cap ? scope->cap * 2 : 64;
    aten_binding_t *fresh = st_arena_array(a->arena, cap, sizeof *fresh);
    if (!fresh) return false;
    aten_scope_t grown = {.bindings = fresh, .cap = cap};
    for (size_t i = 0; i < scope->cap; i++)
        if (scope->bindings[i].name)
            *find_binding(&grown, scope->bindings[i].name) = scope->bindings[i];
    scope->bindings = fresh;
    scope->cap = cap;
    return true;
}

void aten_bind(aten_t *a, const char *name, aten_item_t item) {
    aten_scope_t *scope = a->scope;
    if (!aten_ok(a)) return;
    if (scope->n * 2 >= scope->cap && !grow_scope(a, scope)) {
        set_status(a, st_no_memory(scope->cap * sizeof(aten_binding_t), "the names of a graph"));
        return;
    }
    aten_binding_t *binding = find_binding(scope, name);
    if (binding->name) {
        aten_fail(a, ST_PARSE, "the name '%s' is given to two values", name);
        return;
    }
    *binding = (aten_binding_t){name, item};
    scope->n++;
}

/* ---- slots ---- */

static uint32_t add_slot(aten_t *a, ir_value_t value, uint32_t storage) {
    if (!aten_ok(a)) return 0;
    aten_slot_t slot = {value, storage, a->storages.data[storage].version};
    set_status(a, ST_VEC_PUSH(&a->slots, slot));
    return (uint32_t)a->slots.n - 1;
}

static uint32_t add_storage(aten_t *a, const char *name) {
    if (!aten_ok(a)) return 0;
    set_status(a, ST_VEC_PUSH(&a->storages, ((aten_storage_t){0, name, ""})));
    return (uint32_t)a->storages.n - 1;
}

void aten_bind_tensor(aten_t *a, const char *name, ir_value_t value) {
    uint32_t storage = add_storage(a, name);
    uint32_t slot = add_slot(a, value, storage);
    aten_bind(a, name, (aten_item_t){.kind = ATEN_TENSOR, .slot = slot});
}

ir_value_t aten_slot_value(aten_t *a, uint32_t slot) {
    if (!aten_ok(a)) return IR_NONE;
    const aten_slot_t *s = &a->slots.data[slot];
    const aten_storage_t *storage = &a->storages.data[s->storage];
    if (s->seen == storage->version) return s->value;
    aten_fail(a, ST_UNSUPPORTED,
              "reads a view of '%s' that node '%s' has changed through another view; export with "
              "run_decompositions(), which removes mutation",
              storage->name, storage->changed_by);
    return IR_NONE;
}

void aten_mutate(aten_t *a, uint32_t slot, ir_value_t value) {
    if (!aten_ok(a)) return;
    aten_slot_t *s = &a->slots.data[slot];
    aten_storage_t *storage = &a->storages.data[s->storage];
    s->seen = ++storage->version;
    s->value = value;
    storage->changed_by = a->node_name;
}

/* ---- gradients that must not flow ---- */

static bool value_depends(const aten_t *a, const ir_node_info_t *node, ir_value_t value) {
    if (!ir_dtype_is_float(ir_value_type(a->b.graph, value)->dtype)) return false;
    if (node->op == IR_OP_PARAMETER) return true;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (a->depends.data[node->inputs[j]]) return true;
    return false;
}

bool aten_depends(aten_t *a, ir_value_t value) {
    if (!aten_ok(a)) return false;
    const ir_graph_t *graph = a->b.graph;
    if (ST_VEC_RESERVE(&a->depends, graph->values.n) != ST_OK) {
        set_status(a, ST_NO_MEMORY);
        return false;
    }
    /* values are in order of their producers, so each needs only earlier ones */
    for (size_t v = a->depends.n; v < graph->values.n; v++, a->depends.n++)
        a->depends.data[v] =
            value_depends(a, ir_value_producer(graph, (ir_value_t)v), (ir_value_t)v);
    return a->depends.data[value];
}

void aten_refuse_gradient(aten_t *a, ir_value_t value, const char *why) {
    if (aten_depends(a, value))
        aten_fail(
            a, ST_UNSUPPORTED,
            "%s a value that depends on a parameter: stopping a gradient there is not supported",
            why);
}

/* ---- results ---- */

void aten_return_item(aten_t *a, aten_item_t item) {
    if (aten_ok(a)) set_status(a, ST_VEC_PUSH(&a->returned, item));
}

void aten_return(aten_t *a, ir_value_t value) {
    aten_return_item(a, aten_item_tensor(value));
}

/* Compares an inferred type with what the archive says about the name. */
static void check_described(aten_t *a, const char *name, ir_value_t value) {
    json_object *meta = import_json_get(a->scope->tensor_values, name);
    if (!meta || !aten_ok(a)) return;
    pt2_meta_t described;
    st_status_t status = pt2_meta_read(meta, name, a->sizes, &described);
    ir_type_t type = aten_type(a, value);
    if (status == ST_OK && (ir_type_equal(&described.type, &type) ||
                            (described.symbolic && described.type.dtype == type.dtype)))
        return;
    if (status != ST_OK) {
        set_status(a, status);
        return;
    }
    char want[IR_TYPE_TEXT_BYTES], got[IR_TYPE_TEXT_BYTES];
    ir_type_text(&type, got, sizeof got);
    ir_type_text(&described.type, want, sizeof want);
    if ((a->op->flags & ATEN_SHAPE) && described.type.dtype == type.dtype)
        set_status(a,
                   import_note(a->result,
                               "%s: result '%s' is %s by the operator's definition, and so it is "
                               "here; the archive says %s",
                               a->node_name, name, got, want));
    else
        aten_fail(a, ST_INVALID,
                  "result '%s' is %s by the operator's definition, but the archive says %s", name,
                  got, want);
}

/* Slot of the argument whose storage a view or alias shares: the first one of the schema; result k
 * of a list has entry k's. */
static bool base_slot(aten_t *a, size_t k, uint32_t *out_slot) {
    json_object *first = json_object_array_get_idx(a->inputs, 0);
    json_object *member;
    const char *tag = import_json_tag(import_json_get(first, "arg"), &member);
    if (tag && strcmp(tag, "as_tensors") == 0)
        member = json_object_array_get_idx(member, k);
    else if (!tag || strcmp(tag, "as_tensor") != 0)
        return false;
    const char *name = import_json_string(member, "name");
    aten_item_t *item = name ? aten_lookup(a->scope, name) : NULL;
    if (!item || item->kind != ATEN_TENSOR) return false;
    *out_slot = item->slot;
    return true;
}

static void bind_result(aten_t *a, const char *name, size_t k) {
    aten_item_t item = a->returned.data[k];
    if (item.kind != ATEN_TENSOR) {
        aten_bind(a, name, item);
        return;
    }
    ir_value_t value = item.slot;
    if (value == IR_NONE || !aten_ok(a)) return; /* a result that nothing here can give: unknown */
    check_described(a, name, value);
    if (item.i > 0) { /* a result of a nested graph: the slot it has inside */
        aten_bind(a, name, (aten_item_t){.kind = ATEN_TENSOR, .slot = (uint32_t)(item.i - 1)});
        return;
    }
    uint32_t base = 0;
    bool shares = (a->op->flags & (ATEN_VIEW | ATEN_ALIAS)) && !a->fresh && base_slot(a, k, &base);
    if (shares && a->slots.data[base].value == value) {
        aten_bind(a, name, (aten_item_t){.kind = ATEN_TENSOR, .slot = base});
    } else if (shares && (a->op->flags & ATEN_VIEW)) {
        uint32_t slot = add_slot(a, value, a->slots.data[base].storage);
        aten_bind(a, name, (aten_item_t){.kind = ATEN_TENSOR, .slot = slot});
    } else {
        aten_bind_tensor(a, name, value);
    }
}

static void bind_named(aten_t *a, json_object *holder, const char *key, size_t *next) {
    const char *name = import_json_string(holder, key);
    if (!name) {
        aten_fail(a, ST_PARSE, "a result has no name");
    } else if (*next >= a->returned.n) {
        aten_fail(a, ST_PARSE, "%zu results are named, the operator gives %zu", *next + 1,
                  a->returned.n);
    } else {
        bind_result(a, name, (*next)++);
    }
}

/* Gives the results to the names of the node's outputs; lists count as their items. */
static void bind_outputs(aten_t *a) {
    json_object *outputs = import_json_array(a->node, "outputs");
    size_t n = outputs ? json_object_array_length(outputs) : 0, next = 0;
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        json_object *member;
        const char *tag = import_json_tag(json_object_array_get_idx(outputs, i), &member);
        if (!tag) {
            aten_fail(a, ST_PARSE, "result %zu is malformed", i);
        } else if (strcmp(tag, "as_tensor") == 0) {
            bind_named(a, member, "name", &next);
        } else if (strcmp(tag, "as_tensors") == 0 && json_object_is_type(member, json_type_array)) {
            for (size_t j = 0; j < json_object_array_length(member) && aten_ok(a); j++)
                bind_named(a, json_object_array_get_idx(member, j), "name", &next);
        } else if (strncmp(tag, "as_sym_", 7) == 0) {
            bind_named(a, member, "as_name", &next);
        } else if (strcmp(tag, "as_none") == 0) {
            next++;
        } else {
            aten_fail(a, ST_UNSUPPORTED, "result %zu is of kind '%s', which is not supported", i,
                      tag);
        }
    }
}

/* The variant with "_": the result goes into self, in self's type, and self is the result. */
static void mutate_self(aten_t *a) {
    uint32_t slot = aten_slot(a, "self");
    if (!aten_ok(a)) return;
    if (a->returned.n != 1) {
        aten_fail(a, ST_INTERNAL, "an operator in place gave %zu results", a->returned.n);
        return;
    }
    ir_value_t value = a->returned.data[0].slot;
    ir_type_t self = aten_type(a, a->slots.data[slot].value), type = aten_type(a, value);
    char to[IR_TYPE_TEXT_BYTES], from[IR_TYPE_TEXT_BYTES];
    bool narrows = ir_dtype_is_float(type.dtype) && !ir_dtype_is_float(self.dtype);
    if (narrows || (self.dtype == IR_BOOL && type.dtype != IR_BOOL) ||
        !ir_dims_equal(&self, &type)) {
        aten_fail(a, ST_INVALID, "a result %s cannot be written into %s in place",
                  ir_type_text(&type, from, sizeof from), ir_type_text(&self, to, sizeof to));
        return;
    }
    aten_mutate(a, slot, ir_b_cast(&a->b, value, self.dtype));
    json_object *outputs = import_json_array(a->node, "outputs"), *member;
    size_t n = outputs ? json_object_array_length(outputs) : 0;
    for (size_t i = 0; i < n; i++) {
        import_json_tag(json_object_array_get_idx(outputs, i), &member);
        const char *name = import_json_string(member, "name");
        if (name) aten_bind(a, name, (aten_item_t){.kind = ATEN_TENSOR, .slot = slot});
    }
}

/* Arguments that say nothing about the values. */
static bool argument_is_moot(const char *name) {
    static const char *const moot[] = {"device",        "layout",        "pin_memory",
                                       "non_blocking",  "memory_format", "requires_grad",
                                       "generator",     "cudnn_enabled", "benchmark",
                                       "deterministic", "allow_tf32",    "implicit"};
    for (size_t i = 0; i < sizeof moot / sizeof moot[0]; i++)
        if (strcmp(moot[i], name) == 0) return true;
    return false;
}

/* An argument that no handler looked at would be dropped without a word: refuse it. */
static void check_arguments_used(aten_t *a) {
    size_t n = json_object_array_length(a->inputs);
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        if (a->used >> i & 1) continue;
        json_object *input = json_object_array_get_idx(a->inputs, i), *member;
        const char *name = import_json_string(input, "name");
        const char *tag = import_json_tag(import_json_get(input, "arg"), &member);
        if (!name || !tag || argument_is_moot(name) || strcmp(tag, "as_none") == 0) continue;
        aten_fail(a, ST_UNSUPPORTED, "argument '%s' is not supported", name);
    }
}

static void run_node(aten_t *a, json_object *node) {
    bool mutates = false;
    a->node = node;
    a->target = import_json_string(node, "target");
    a->inputs = import_json_array(node, "inputs");
    const char *name = import_json_string(node, "name");
    a->node_name = name ? name : "";
    a->used = 0;
    a->fresh = false;
    a->returned.n = 0;
    if (!a->target || !a->inputs) {
        aten_fail(a, ST_PARSE, "the node has no target or no inputs");
    } else if (json_object_array_length(a->inputs) > 32) {
        aten_fail(a, ST_UNSUPPORTED, "the node has more than 32 arguments");
    } else if (!(a->op = aten_find(a->target, &mutates))) {
        aten_fail(a, ST_UNSUPPORTED, "the operator is not supported");
    } else {
        const char *outer = a->b.name;
        a->b.name = a->node_name;
        a->op->handle(a);
        if (aten_ok(a)) check_arguments_used(a);
        if (mutates)
            mutate_self(a);
        else
            bind_outputs(a);
        a->b.name = outer;
    }
}

void aten_run(aten_t *a, json_object *graph) {
    json_object *nodes = import_json_array(graph, "nodes");
    if (!nodes) aten_fail(a, ST_PARSE, "the graph has no nodes");
    size_t n = nodes ? json_object_array_length(nodes) : 0;
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        json_object *node = json_object_array_get_idx(nodes, i);
        run_node(a, node);
        if (aten_ok(a)) continue;
        const char *name = import_json_string(node, "name"),
                   *target = import_json_string(node, "target");
        a->b.status = st_error_context(a->b.status, "node '%s' (%s)", name ? name : "?",
                                       target ? target : "?");
    }
}

/* ---- what has no row ---- */

typedef struct missing {
    char text[1400];
    size_t n;
} missing_t;

static void collect_missing(json_object *graph, int depth, missing_t *missing);

static void collect_nested(json_object *node, int depth, missing_t *missing) {
    json_object *inputs = import_json_array(node, "inputs");
    size_t n = inputs ? json_object_array_length(inputs) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *input = json_object_array_get_idx(inputs, i), *member;
        const char *tag = import_json_tag(import_json_get(input, "arg"), &member);
        if (tag && strcmp(tag, "as_graph") == 0)
            collect_missing(import_json_get(member, "graph"), depth + 1, missing);
    }
}

static void collect_missing(json_object *graph, int depth, missing_t *missing) {
    json_object *nodes = import_json_array(graph, "nodes");
    size_t n = nodes && depth <= ATEN_MAX_NESTED ? json_object_array_length(nodes) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *node = json_object_array_get_idx(nodes, i);
        const char *target = import_json_string(node, "target"),
                   *name = import_json_string(node, "name");
        bool mutates;
        collect_nested(node, depth, missing);
        if (!target || aten_find(target, &mutates)) continue;
        size_t used = strlen(missing->text);
        missing->n++;
        snprintf(missing->text + used, sizeof missing->text - used, "%s%s (node '%s')",
                 missing->n > 1 ? ", " : "", target, name ? name : "?");
    }
}

st_status_t aten_check_supported(json_object *graph) {
    missing_t missing = {.n = 0};
    collect_missing(graph, 0, &missing);
    if (missing.n == 0) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "%zu node%s cannot be imported, for want of their operators: %s%s",
                missing.n, missing.n == 1 ? "" : "s", missing.text,
                strlen(missing.text) + 1 == sizeof missing.text ? " …" : "");
}
