/* Graphs: where they come from, what is in them, what is derived from them. Building is in
 * build.c. */
#include <math.h>
#include <string.h>

#include "autodiff/train_graph.h"
#include "base/file.h"
#include "base/memory.h"
#include "capi/capi.h"
#include "import/import.h"
#include "import/model.h"
#include "ir/codec.h"
#include "ir/family.h"
#include "ir/op.h"
#include "ir/text.h"

/* ---- life ---- */

st_status_t capi_graph_wrap(ir_graph_t *ir, stator_graph_t **out_graph) {
    stator_graph_t *graph = st_calloc(1, sizeof *graph);
    if (graph) graph->notes = st_strdup("");
    if (!graph || !graph->notes) {
        st_free(graph);
        ir_graph_destroy(ir);
        return st_no_memory(sizeof *graph, "a graph");
    }
    graph->ir = ir;
    *out_graph = graph;
    return ST_OK;
}

st_status_t capi_graph_note(stator_graph_t *graph, const char *note) {
    size_t old = strlen(graph->notes), more = strlen(note);
    char *grown = st_realloc(graph->notes, old + more + 2);
    if (!grown) return st_no_memory(old + more + 2, "a note");
    memcpy(grown + old, note, more);
    memcpy(grown + old + more, "\n", 2);
    graph->notes = grown;
    return ST_OK;
}

stator_status_t stator_graph_create(const char *name, stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    ir_graph_t *ir = NULL;
    st_status_t status = ir_graph_create(name, &ir);
    return capi_status(status == ST_OK ? capi_graph_wrap(ir, out_graph) : status);
}

void stator_graph_destroy(stator_graph_t *graph) {
    if (!graph) return;
    ir_graph_destroy(graph->ir);
    st_free(graph->notes);
    st_free(graph);
}

void stator_free(void *memory) {
    st_free(memory);
}
const char *stator_graph_notes(const stator_graph_t *graph) {
    return graph->notes;
}

/* ---- files ---- */

stator_status_t stator_graph_load(const char *path, stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    CAPI_REQUIRE(path);
    st_file_t file = {0};
    ir_graph_t *ir = NULL;
    st_status_t status = st_file_open(path, &file);
    if (status == ST_OK) {
        bool text = file.bytes >= 5 && memcmp(file.data, "graph", 5) == 0;
        status = text ? ir_graph_parse((const char *)file.data, file.bytes, &ir)
                      : ir_graph_decode(file.data, file.bytes, &ir);
        if (status != ST_OK) st_error_context(status, "%s", path);
    }
    st_file_close(&file);
    return capi_status(status == ST_OK ? capi_graph_wrap(ir, out_graph) : status);
}

stator_status_t stator_graph_save(const stator_graph_t *graph, const char *path) {
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(path);
    return capi_status(ir_graph_save(graph->ir, path));
}

stator_status_t stator_graph_print(const stator_graph_t *graph, char **out_text) {
    CAPI_OUT(out_text);
    CAPI_REQUIRE(graph);
    return capi_status(ir_graph_print(graph->ir, out_text));
}

/* Splits "a,b" in place; the pieces live in the arena. */
static st_status_t split_list(st_arena_t *arena, const char *text, size_t *out_n,
                              const char ***out_items) {
    size_t n = text[0] ? 1 : 0;
    for (const char *p = text; *p; p++) n += *p == ',';
    char *copy = st_arena_strdup(arena, text);
    const char **items = st_arena_array(arena, n, sizeof *items);
    if (!copy || !items) return st_no_memory(n * sizeof *items, "a list");
    for (size_t i = 0; i < n; i++) {
        items[i] = copy;
        copy = strchr(copy, ',');
        if (copy) *copy++ = '\0';
    }
    *out_n = n;
    *out_items = items;
    return ST_OK;
}

static st_status_t take_tensors(const import_result_t *result, stator_tensors_t *tensors) {
    for (size_t i = 0; i < result->tensors.n; i++) {
        const import_tensor_t *t = &result->tensors.data[i];
        if (t->kind == IMPORT_CONSTANT) continue;
        if (strncmp(t->name, "random.", 7) == 0) continue; /* the trainer's, not the model's */
        TRY(capi_tensors_put(tensors, t->name, &t->type, t->data));
        for (uint32_t a = 0; a < t->n_aliases; a++)
            TRY(capi_tensors_alias(tensors, t->aliases[a], t->name));
    }
    return ST_OK;
}

static st_status_t import_model(const char *path, const import_options_t *options,
                                stator_graph_t **out_graph, stator_tensors_t *tensors) {
    import_result_t *result = NULL;
    TRY(import_file(path, options, &result));
    ir_graph_t *ir = result->graph;
    result->graph = NULL;
    st_status_t status = capi_graph_wrap(ir, out_graph);
    for (size_t i = 0; status == ST_OK && i < result->messages.n; i++)
        status = capi_graph_note(*out_graph, result->messages.data[i]);
    if (status == ST_OK) status = take_tensors(result, tensors);
    import_result_destroy(result);
    return status;
}

stator_status_t stator_graph_import(const char *path, const stator_options_t *options,
                                    stator_graph_t **out_graph, stator_tensors_t **out_tensors) {
    CAPI_OUT(out_graph);
    CAPI_OUT(out_tensors);
    CAPI_REQUIRE(path);
    CAPI_REQUIRE(options);
    stator_status_t created = stator_tensors_create(out_tensors);
    if (created != STATOR_OK) return created;
    st_arena_t arena = {0};
    size_t n = 0;
    const char **patterns = NULL;
    st_status_t status =
        split_list(&arena, st_options_string(options->table, "constant"), &n, &patterns);
    ir_binding_t bindings[IR_MAX_SYMBOLS];
    import_options_t import = {
        .constant_patterns = patterns, .n_constant_patterns = n, .bindings = bindings};
    if (status == ST_OK) status = capi_bindings(options, &arena, bindings, &import.n_bindings);
    if (status == ST_OK) status = import_model(path, &import, out_graph, *out_tensors);
    if (status != ST_OK) {
        stator_graph_destroy(*out_graph);
        stator_tensors_destroy(*out_tensors);
        *out_graph = NULL;
        *out_tensors = NULL;
    }
    st_arena_clear(&arena);
    return capi_status(status);
}

/* ---- open sizes ---- */

st_status_t capi_bindings(const stator_options_t *options, st_arena_t *arena, ir_binding_t *out,
                          size_t *out_n) {
    return ir_bindings_parse(st_options_string(options->table, "bind"), arena, out, out_n);
}

stator_status_t stator_graph_bind(const stator_graph_t *graph, const stator_options_t *options,
                                  stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(options);
    st_arena_t arena = {0};
    ir_binding_t bindings[IR_MAX_SYMBOLS];
    ir_graph_t *ir = NULL;
    size_t n = 0;
    st_status_t status = capi_bindings(options, &arena, bindings, &n);
    if (status == ST_OK) status = ir_graph_bind(graph->ir, n, bindings, &ir);
    if (status == ST_OK) status = capi_graph_wrap(ir, out_graph);
    if (status == ST_OK) {
        char *notes = st_strdup(graph->notes);
        if (!notes) status = st_no_memory(0, "notes");
        if (notes) st_free((*out_graph)->notes), (*out_graph)->notes = notes;
    }
    if (status != ST_OK) {
        stator_graph_destroy(*out_graph);
        *out_graph = NULL;
    }
    st_arena_clear(&arena);
    return capi_status(status);
}

/* ---- standard models ---- */

typedef struct model_request {
    const stator_options_t *options;
    bool with_loss;
    int64_t batch, seq, max_seq;
    /* "batch" and "seq" as far as they are open; their place among the symbols */
    ir_symbol_t symbols[2];
    size_t n_symbols;
    int batch_symbol, seq_symbol; /* -1: fixed */
    st_status_t (*build)(const struct model_request *request, int64_t batch, int64_t seq,
                         ir_graph_t **out_graph);
    const void *config;
} model_request_t;

static st_status_t build_sized(void *context, const int64_t *sizes, ir_graph_t **out_graph) {
    const model_request_t *r = context;
    return r->build(r, r->batch_symbol < 0 ? r->batch : sizes[r->batch_symbol],
                    r->seq_symbol < 0 ? r->seq : sizes[r->seq_symbol], out_graph);
}

static st_status_t add_open(model_request_t *r, const char *name, int64_t max, int64_t example,
                            int *out_place) {
    if (example < 1)
        return FAIL(ST_INVALID, "option '%s' is %lld: an open size needs an example, 1 or more",
                    name, (long long)example);
    *out_place = (int)r->n_symbols;
    r->symbols[r->n_symbols++] = (ir_symbol_t){name, 1, max, example};
    return ST_OK;
}

/* The model for the options' sizes, or for those that the option "symbolic" leaves open. */
static st_status_t build_model(model_request_t *r, stator_graph_t **out_graph) {
    st_arena_t arena = {0};
    const char **open = NULL;
    size_t n_open = 0;
    ir_graph_t *ir = NULL;
    r->batch = st_options_int(r->options->table, "batch");
    r->seq = st_options_int(r->options->table, "seq");
    r->batch_symbol = r->seq_symbol = -1;
    st_status_t status =
        split_list(&arena, st_options_string(r->options->table, "symbolic"), &n_open, &open);
    for (size_t i = 0; status == ST_OK && i < n_open; i++) {
        if (strcmp(open[i], "batch") == 0 && r->batch_symbol < 0)
            status = add_open(r, "batch", INT64_MAX, r->batch, &r->batch_symbol);
        else if (strcmp(open[i], "seq") == 0 && r->seq_symbol < 0 && r->max_seq)
            status = add_open(r, "seq", r->max_seq, r->seq, &r->seq_symbol);
        else
            status = FAIL(ST_INVALID, "option 'symbolic' has '%s'; %s, each once, can stay open",
                          open[i], r->max_seq ? "batch and seq" : "batch");
    }
    if (status == ST_OK)
        status = r->n_symbols ? ir_family_fit(r->n_symbols, r->symbols, build_sized, r, &ir)
                              : r->build(r, r->batch, r->seq, &ir);
    st_arena_clear(&arena);
    return status == ST_OK ? capi_graph_wrap(ir, out_graph) : status;
}

static st_status_t build_llama(const model_request_t *r, int64_t batch, int64_t seq,
                               ir_graph_t **out_graph) {
    return model_llama(r->config, batch, seq, r->with_loss, out_graph);
}

static st_status_t build_resnet(const model_request_t *r, int64_t batch, int64_t seq,
                                ir_graph_t **out_graph) {
    (void)seq;
    return model_resnet(r->config, batch, r->with_loss, out_graph);
}

stator_status_t stator_graph_llama(const stator_options_t *options, int with_loss,
                                   stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    CAPI_REQUIRE(options);
    const char *config_path = st_options_string(options->table, "config");
    model_llama_config_t config;
    if (!config_path[0])
        return capi_status(FAIL(ST_INVALID, "a Llama needs the option 'config' (a config.json)"));
    st_status_t status = model_llama_read_config(config_path, &config);
    if (status != ST_OK) return capi_status(status);
    const int64_t experts = st_options_int(options->table, "experts");
    const int64_t routed = st_options_int(options->table, "experts-per-token");
    const double factor = st_options_float(options->table, "capacity-factor");
    if (experts < 0 || routed < 0 || !(factor >= 0))
        return capi_status(FAIL(ST_INVALID,
                                "options 'experts' (%lld), 'experts-per-token' (%lld) and "
                                "'capacity-factor' (%g) are not negative",
                                (long long)experts, (long long)routed, factor));
    const double balance = st_options_float(options->table, "balance-coefficient");
    if (!(balance >= 0 || balance == -1) || !isfinite(balance))
        return capi_status(
            FAIL(ST_INVALID,
                 "option 'balance-coefficient' is %g; a finite number ≥ 0 is needed, "
                 "or -1, as the configuration says",
                 balance));
    if (balance >= 0) config.balance = balance;
    if (experts) config.experts = experts;
    if (routed) config.routed = routed;
    if (factor > 0) config.capacity_factor = factor;
    model_request_t request = {.options = options,
                               .with_loss = with_loss != 0,
                               .max_seq = config.max_positions,
                               .build = build_llama,
                               .config = &config};
    return capi_status(build_model(&request, out_graph));
}

stator_status_t stator_graph_resnet(const stator_options_t *options, int with_loss,
                                    stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    CAPI_REQUIRE(options);
    const st_options_t *table = options->table;
    model_resnet_config_t config = {.depth = st_options_int(table, "depth"),
                                    .classes = st_options_int(table, "classes"),
                                    .channels = st_options_int(table, "channels"),
                                    .image = st_options_int(table, "image"),
                                    .smoothing = st_options_float(table, "smoothing")};
    model_request_t request = {
        .options = options, .with_loss = with_loss != 0, .build = build_resnet, .config = &config};
    return capi_status(build_model(&request, out_graph));
}

/* ---- contents ---- */

static bool port_matches(const ir_node_info_t *node, stator_port_kind_t kind) {
    return (kind == STATOR_INPUT && node->op == IR_OP_INPUT) ||
           (kind == STATOR_PARAMETER && node->op == IR_OP_PARAMETER) ||
           (kind == STATOR_BUFFER && node->op == IR_OP_BUFFER);
}

size_t capi_port_count(const ir_graph_t *graph, stator_port_kind_t kind) {
    if (kind == STATOR_OUTPUT) return graph->outputs.n;
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) n += port_matches(&graph->nodes.data[i], kind);
    return n;
}

stator_tensor_t capi_port_at(const ir_graph_t *graph, stator_port_kind_t kind, size_t index) {
    if (index >= capi_port_count(graph, kind)) return (stator_tensor_t){0};
    if (kind == STATOR_OUTPUT) {
        const ir_output_t *output = &graph->outputs.data[index];
        return capi_tensor(output->name, ir_value_type(graph, output->value), NULL);
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (port_matches(node, kind) && index-- == 0)
            return capi_tensor(node->name, ir_value_type(graph, node->first_output), NULL);
    }
    ASSERT(false && "port index is in range");
    return (stator_tensor_t){0};
}

stator_tensor_t capi_state_at(const plan_t *plan, stator_port_kind_t kind, size_t index) {
    stator_tensor_t local = capi_port_at(plan_ports(plan), kind, index);
    return local.name ? capi_tensor(local.name, &plan_state(plan, local.name)->type, NULL) : local;
}

size_t stator_graph_count(const stator_graph_t *graph, stator_port_kind_t kind) {
    return capi_port_count(graph->ir, kind);
}
stator_tensor_t stator_graph_at(const stator_graph_t *graph, stator_port_kind_t kind,
                                size_t index) {
    return capi_port_at(graph->ir, kind, index);
}
int stator_graph_symbol_at(const stator_graph_t *graph, size_t index, stator_symbol_t *out_symbol) {
    *out_symbol = (stator_symbol_t){0};
    if (index >= graph->ir->symbols.n) return 0;
    const ir_symbol_t *symbol = &graph->ir->symbols.data[index];
    *out_symbol = (stator_symbol_t){symbol->name, symbol->min, symbol->max, symbol->example};
    return 1;
}

const char *stator_graph_dim_at(const stator_graph_t *graph, stator_port_kind_t kind, size_t index,
                                int32_t dim) {
    const ir_graph_t *ir = graph->ir;
    const ir_node_info_t *port = NULL;
    for (size_t i = 0; i < ir->nodes.n && !port; i++)
        if (port_matches(&ir->nodes.data[i], kind) && index-- == 0) port = &ir->nodes.data[i];
    for (size_t i = 0; port && dim >= 0 && i < ir->variations.n; i++) {
        const ir_variation_t *v = &ir->variations.data[i];
        if (v->value == port->first_output && v->element == (uint32_t)dim &&
            strcmp(v->key, "shape") == 0)
            return v->expression;
    }
    return NULL;
}

size_t stator_graph_node_count(const stator_graph_t *graph) {
    return graph->ir->nodes.n;
}
