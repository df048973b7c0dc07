/* Sessions: state in and out around the runtime's session. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "capi/session.h"
#include "ir/op.h"
#include "state/convert.h"
#include "state/init.h"
#include "state/weights.h"

/* ---- life ---- */

stator_status_t stator_session_create(const stator_plan_t *plan, stator_session_t *share,
                                      stator_session_t **out_session) {
    CAPI_OUT(out_session);
    CAPI_REQUIRE(plan);
    return stator_session_create_on(plan, share, NULL, out_session);
}

stator_status_t stator_session_create_on(const stator_plan_t *plan, stator_session_t *share,
                                         stator_comm_t *comm, stator_session_t **out_session) {
    CAPI_OUT(out_session);
    CAPI_REQUIRE(plan);
    stator_session_t *session = st_calloc(1, sizeof *session);
    if (!session) return capi_status(st_no_memory(sizeof *session, "a session"));
    session->plan = plan;
    session->feeds = st_calloc((size_t)plan->plan->n_inputs + 1, sizeof *session->feeds);
    session->fetches = st_calloc((size_t)plan->plan->n_outputs + 1, sizeof *session->fetches);
    st_status_t status =
        session->feeds && session->fetches
            ? ST_OK
            : st_no_memory(plan->plan->n_outputs * sizeof *session->fetches, "a session");
    if (status == ST_OK)
        status = exec_session_create_on(plan->plan, share ? share->exec : NULL,
                                        comm ? comm->world : NULL, &session->exec);
    if (status != ST_OK) {
        stator_session_destroy(session);
        return capi_status(status);
    }
    *out_session = session;
    return STATOR_OK;
}

void stator_session_destroy(stator_session_t *session) {
    if (!session) return;
    exec_session_destroy(session->exec);
    st_free(session->feeds);
    st_free(session->fetches);
    st_free(session);
}

const char *stator_session_notes(const stator_session_t *session) {
    return exec_session_note(session->exec);
}

/* ---- steps ---- */

/* Type, name and size of what a caller hands over. */
static st_status_t check_given(const stator_tensor_t *tensor, ir_type_t *out_type) {
    if (!tensor->name) return FAIL(ST_INVALID, "a tensor without a name");
    TRY(capi_type_of(tensor, out_type));
    if (tensor->bytes != ir_type_bytes(out_type))
        return FAIL(ST_INVALID, "tensor '%s' has %zu bytes, its shape and type need %zu",
                    tensor->name, tensor->bytes, ir_type_bytes(out_type));
    if (!tensor->data && tensor->bytes)
        return FAIL(ST_INVALID, "tensor '%s' has no data", tensor->name);
    return ST_OK;
}

static st_status_t take_feeds(stator_session_t *session, size_t n_feeds,
                              const stator_tensor_t *feeds) {
    for (size_t i = 0; i < n_feeds; i++) {
        session->feeds[i] = (exec_feed_t){.name = feeds[i].name, .data = feeds[i].data};
        TRY(check_given(&feeds[i], &session->feeds[i].type));
    }
    return ST_OK;
}

static st_status_t take_ports(stator_session_t *session, size_t n_feeds,
                              const stator_tensor_t *feeds, size_t n_fetches,
                              const stator_fetch_t *fetches) {
    TRY(take_feeds(session, n_feeds, feeds));
    for (size_t i = 0; i < n_fetches; i++) {
        if (!fetches[i].name || (!fetches[i].data && fetches[i].bytes))
            return FAIL(ST_INVALID, "fetch %zu ('%s') has no name or no room", i,
                        fetches[i].name ? fetches[i].name : "");
        session->fetches[i] = (exec_fetch_t){fetches[i].name, fetches[i].data, fetches[i].bytes};
    }
    return ST_OK;
}

stator_status_t stator_session_step_start(stator_session_t *session, size_t n_feeds,
                                          const stator_tensor_t *feeds, size_t n_fetches,
                                          const stator_fetch_t *fetches) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE_N(feeds, n_feeds);
    CAPI_REQUIRE_N(fetches, n_fetches);
    /* one more than there can be is enough: the runtime names the one that is unknown or doubled */
    const plan_t *plan = session->plan->plan;
    if (n_feeds > plan->n_inputs) n_feeds = (size_t)plan->n_inputs + 1;
    if (n_fetches > plan->n_outputs) n_fetches = (size_t)plan->n_outputs + 1;
    st_status_t status = exec_session_idle(session->exec);
    if (status == ST_OK) status = take_ports(session, n_feeds, feeds, n_fetches, fetches);
    if (status == ST_OK)
        status = exec_session_step_start(session->exec, n_feeds, session->feeds, n_fetches,
                                         session->fetches);
    return capi_status(status);
}

stator_status_t stator_session_step_wait(stator_session_t *session) {
    CAPI_REQUIRE(session);
    return capi_status(exec_session_step_wait(session->exec));
}

int stator_session_step_done(stator_session_t *session) {
    return exec_session_step_done(session->exec);
}

stator_status_t stator_session_step(stator_session_t *session, size_t n_feeds,
                                    const stator_tensor_t *feeds, size_t n_fetches,
                                    const stator_fetch_t *fetches) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE_N(feeds, n_feeds);
    CAPI_REQUIRE_N(fetches, n_fetches);
    stator_status_t status = stator_session_step_start(session, n_feeds, feeds, n_fetches, fetches);
    return status == STATOR_OK ? stator_session_step_wait(session) : status;
}

stator_status_t stator_session_feed(stator_session_t *session, size_t n_feeds,
                                    const stator_tensor_t *feeds) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE_N(feeds, n_feeds);
    if (n_feeds > session->plan->plan->n_inputs)
        n_feeds = (size_t)session->plan->plan->n_inputs + 1;
    st_status_t status = take_feeds(session, n_feeds, feeds);
    if (status == ST_OK) status = exec_session_feed(session->exec, n_feeds, session->feeds);
    return capi_status(status);
}

stator_status_t stator_session_fetch(stator_session_t *session, const char *name, void *data,
                                     size_t bytes) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(name);
    CAPI_REQUIRE_N(data, bytes);
    const exec_fetch_t fetch = {name, data, bytes};
    return capi_status(exec_session_fetch(session->exec, &fetch));
}

/* ---- state: names ---- */

const ir_graph_t *capi_session_graph(const stator_session_t *session) {
    return plan_ports(session->plan->plan);
}

size_t stator_session_count(const stator_session_t *session, stator_port_kind_t kind) {
    return capi_port_count(capi_session_graph(session), kind);
}
stator_tensor_t stator_session_at(const stator_session_t *session, stator_port_kind_t kind,
                                  size_t index) {
    return capi_state_at(session->plan->plan, kind, index);
}

const ir_type_t *capi_state_type(const stator_session_t *session, const ir_node_info_t *node) {
    return &plan_state(session->plan->plan, node->name)->type;
}

static bool is_state(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_STATE) != 0;
}
bool capi_is_saved(const ir_node_info_t *node) {
    return is_state(node) && !ir_is_shadow(node);
}
bool capi_is_model_state(const ir_node_info_t *node) {
    static const char *const trainer_prefixes[] = {"optim.", "ema.", "random."};
    if (!is_state(node)) return false;
    if (node->op == IR_OP_PARAMETER) return true;
    for (size_t i = 0; i < sizeof trainer_prefixes / sizeof trainer_prefixes[0]; i++)
        if (strncmp(node->name, trainer_prefixes[i], strlen(trainer_prefixes[i])) == 0)
            return false;
    return true;
}

stator_status_t stator_session_write(stator_session_t *session, const stator_tensor_t *tensor) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(tensor);
    ir_type_t type;
    st_status_t status = check_given(tensor, &type);
    if (status == ST_OK)
        status = exec_state_write(session->exec, tensor->name, &type, tensor->data);
    return capi_status(status);
}

stator_status_t stator_session_read(stator_session_t *session, const char *name, void *data,
                                    size_t bytes) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(name);
    CAPI_REQUIRE_N(data, bytes);
    const ir_graph_t *graph = capi_session_graph(session);
    ir_node_t node = ir_graph_find(graph, name);
    if (node == IR_NONE || !is_state(ir_node(graph, node)))
        return capi_status(FAIL(ST_NOT_FOUND, "there is no state '%s'", name));
    const ir_type_t *type = capi_state_type(session, ir_node(graph, node));
    if (bytes != ir_type_bytes(type))
        return capi_status(FAIL(ST_INVALID, "state '%s' has %zu bytes, room for %zu is given", name,
                                ir_type_bytes(type), bytes));
    return capi_status(exec_state_read(session->exec, name, type, data));
}

/* ---- state: initialization and weights ---- */

/* Graphs with dropout have this buffer; their masks are a function of it and the step. */
static st_status_t write_seed(stator_session_t *session, int64_t seed) {
    const ir_graph_t *graph = capi_session_graph(session);
    ir_type_t type = ir_type_scalar(IR_I64);
    if (ir_graph_find(graph, "random.seed") == IR_NONE) return ST_OK;
    return exec_state_write(session->exec, "random.seed", &type, &seed);
}

stator_status_t stator_session_initialize(stator_session_t *session,
                                          const stator_options_t *options) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(options);
    const ir_graph_t *graph = capi_session_graph(session);
    init_rules_t *rules = NULL;
    st_draw_t draw;
    const ir_node_info_t *without_rule = NULL;
    uint64_t seed = (uint64_t)st_options_int(options->table, "seed");
    st_status_t status = init_rules_parse(st_options_string(options->table, "init"), &rules);
    for (size_t i = 0; status == ST_OK && i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (!capi_is_model_state(node)) continue;
        const ir_type_t *type = capi_state_type(session, node);
        status = init_draw(rules, seed, node->name, type, &draw);
        /* without a rule it is zero, which is right for a buffer; a parameter is reported at the
         * end */
        if (status == ST_NOT_FOUND) {
            status = ST_OK;
            if (node->op == IR_OP_PARAMETER && !without_rule) without_rule = node;
        }
        if (status == ST_OK) status = exec_state_draw(session->exec, node->name, &draw);
    }
    if (status == ST_OK) status = write_seed(session, (int64_t)seed);
    if (status == ST_OK && without_rule) /* for the message */
        status = init_draw(rules, seed, without_rule->name, capi_state_type(session, without_rule),
                           &draw);
    init_rules_free(rules);
    return capi_status(status);
}

/* Other names of `name`: at most `capacity`, in the graph's order. */
static size_t other_names(const ir_graph_t *graph, const char *name, const char **out,
                          size_t capacity) {
    size_t n = 0;
    for (size_t i = 0; i < graph->aliases.n && n < capacity; i++)
        if (strcmp(graph->aliases.data[i].stored, name) == 0)
            out[n++] = graph->aliases.data[i].name;
    return n;
}

st_status_t capi_wanted(const ir_graph_t *graph, st_arena_t *arena, size_t *out_n,
                        weights_wanted_t **out_wanted) {
    weights_wanted_t *wanted = st_arena_array(arena, graph->nodes.n, sizeof *wanted);
    const char **names = st_arena_array(arena, graph->aliases.n, sizeof *names);
    if (!wanted || !names) return st_no_memory(graph->nodes.n * sizeof *wanted, "weight names");
    size_t n = 0, used = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (!capi_is_model_state(node)) continue;
        size_t others = other_names(graph, node->name, names + used, graph->aliases.n - used);
        bool assumed = node->op == IR_OP_PARAMETER && ir_attr_int(node, "assumed");
        wanted[n++] = (weights_wanted_t){node->name, *ir_value_type(graph, node->first_output),
                                         node->op == IR_OP_BUFFER || assumed, names + used, others};
        used += others;
    }
    *out_n = n;
    *out_wanted = wanted;
    return ST_OK;
}

static st_status_t write_weights(stator_session_t *session, const weights_wanted_t *wanted,
                                 const weights_match_t *match) {
    for (size_t i = 0; i < match->n; i++) {
        if (!match->tensors[i]) continue;
        size_t bytes = ir_type_bytes(&wanted[i].type);
        void *data = st_malloc(bytes);
        if (!data) return st_no_memory(bytes, wanted[i].name);
        weights_read(match->tensors[i], wanted[i].type.dtype, data);
        st_status_t status = exec_state_write(session->exec, wanted[i].name, &wanted[i].type, data);
        st_free(data);
        TRY(status);
    }
    return ST_OK;
}

stator_status_t stator_session_load(stator_session_t *session, const stator_tensors_t *tensors) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(tensors);
    st_arena_t arena = {0};
    size_t n = 0;
    weights_wanted_t *wanted = NULL;
    weights_match_t match = {0};
    capi_file_t file = {0};
    st_status_t status = capi_tensors_file(tensors, &file);
    if (status == ST_OK) status = capi_wanted(capi_session_graph(session), &arena, &n, &wanted);
    for (size_t i = 0; i < n; i++)
        wanted[i].type = plan_state(session->plan->plan, wanted[i].name)->type;
    if (status == ST_OK) status = weights_match(file.file, wanted, n, &match);
    if (status == ST_OK) status = write_weights(session, wanted, &match);
    weights_match_free(&match);
    capi_file_release(&file);
    st_arena_clear(&arena);
    return capi_status(status);
}

static st_status_t restore_one(stator_session_t *session, const ir_node_info_t *node,
                               const safetensors_tensor_t *stored) {
    const ir_type_t *type = capi_state_type(session, node);
    ir_dtype_t from = safetensors_to_ir(stored->dtype);
    ir_type_t given = ir_type_make(from, stored->rank, stored->dims);
    bool convertible = state_can_convert(from) && state_can_convert(type->dtype);
    char text[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    if (!ir_dims_equal(&given, type) || (from != type->dtype && !convertible))
        return FAIL(ST_INVALID, "the value of '%s' is %s, the state is %s", node->name,
                    ir_type_text(&given, text, sizeof text),
                    ir_type_text(type, expected, sizeof expected));
    void *data = st_malloc(ir_type_bytes(type));
    if (!data) return st_no_memory(ir_type_bytes(type), node->name);
    weights_read(stored, type->dtype, data);
    st_status_t status = exec_state_write(session->exec, node->name, type, data);
    st_free(data);
    return status;
}

stator_status_t stator_session_restore(stator_session_t *session, const stator_tensors_t *tensors,
                                       int parameters) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(tensors);
    const ir_graph_t *graph = capi_session_graph(session);
    capi_file_t file = {0};
    st_status_t status = capi_tensors_file(tensors, &file);
    for (size_t i = 0; status == ST_OK && i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (!capi_is_model_state(node) || (node->op == IR_OP_PARAMETER && !parameters)) continue;
        const safetensors_tensor_t *stored = safetensors_find(file.file, node->name);
        if (stored) status = restore_one(session, node, stored);
    }
    capi_file_release(&file);
    return capi_status(status);
}

/* ---- state: export ---- */

static st_status_t export_one(stator_session_t *session, const ir_node_info_t *node,
                              stator_tensors_t *tensors) {
    const ir_type_t *type = capi_state_type(session, node);
    void *data = st_malloc(ir_type_bytes(type));
    if (!data) return st_no_memory(ir_type_bytes(type), node->name);
    st_status_t status = exec_state_read(session->exec, node->name, type, data);
    if (status == ST_OK) status = capi_tensors_put(tensors, node->name, type, data);
    st_free(data);
    return status;
}

stator_status_t stator_session_export(stator_session_t *session, stator_tensors_t **out_tensors) {
    CAPI_OUT(out_tensors);
    CAPI_REQUIRE(session);
    const ir_graph_t *graph = capi_session_graph(session);
    stator_status_t created = stator_tensors_create(out_tensors);
    if (created != STATOR_OK) return created;
    st_status_t status = ST_OK;
    for (size_t i = 0; status == ST_OK && i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (capi_is_saved(node) && capi_is_model_state(node))
            status = export_one(session, node, *out_tensors);
    }
    for (size_t i = 0; status == ST_OK && i < graph->aliases.n; i++)
        status = capi_tensors_alias(*out_tensors, graph->aliases.data[i].name,
                                    graph->aliases.data[i].stored);
    if (status != ST_OK) {
        stator_tensors_destroy(*out_tensors);
        *out_tensors = NULL;
    }
    return capi_status(status);
}

stator_session_info_t stator_session_info(const stator_session_t *session) {
    const exec_session_t *exec = session->exec;
    return (stator_session_info_t){
        .state_bytes = exec_region_bytes(exec, exec_session_first(exec), PLAN_STATE),
        .work_bytes = exec_region_bytes(exec, exec_session_first(exec), PLAN_WORK),
        .comm_bytes = exec_region_bytes(exec, exec_session_first(exec), PLAN_COMM),
        .feeds_bytes = exec_region_bytes(exec, exec_session_first(exec), PLAN_FEEDS),
        .step_us = exec_last_step_us(exec),
        .wait_us = exec_last_wait_us(exec),
    };
}

stator_status_t stator_session_memory(stator_session_t *session, uint64_t *out_taken,
                                      uint64_t *out_free) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(out_taken);
    CAPI_REQUIRE(out_free);
    return capi_status(exec_device_memory(session->exec, out_taken, out_free));
}

stator_startup_t stator_session_startup(const stator_session_t *session) {
    const exec_startup_t s = exec_startup(session->exec);
    return (stator_startup_t){.open_s = s.open_s,
                              .memory_s = s.memory_s,
                              .prepare_s = s.prepare_s,
                              .libraries_s = s.libraries_s,
                              .nests_s = s.nests_s,
                              .plans_s = s.plans_s,
                              .tune_s = s.tune_s,
                              .capture_s = s.capture_s,
                              .n_measured = s.n_measured,
                              .choices = s.choices};
}
