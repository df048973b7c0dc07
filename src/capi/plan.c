/* Compiling, and plans on disk. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "capi/capi.h"

enum { LONGEST_TIMEOUT_S = 86400 };

static compile_recompute_t recompute_policy(const char *text) {
    static const char *const names[] = {[COMPILE_RECOMPUTE_AUTO] = "auto",
                                        [COMPILE_RECOMPUTE_OFF] = "off",
                                        [COMPILE_RECOMPUTE_FUSED] = "fused",
                                        [COMPILE_RECOMPUTE_FULL] = "full"};
    int policy = COMPILE_RECOMPUTE_FULL; /* the option table takes no other text */
    while (policy > 0 && strcmp(names[policy], text) != 0) policy--;
    return (compile_recompute_t)policy;
}

static shard_form_t form_of(const char *text) {
    static const char *const names[] = {[SHARD_FORM_DP] = "dp",
                                        [SHARD_FORM_ZERO1] = "zero1",
                                        [SHARD_FORM_ZERO2] = "zero2",
                                        [SHARD_FORM_ZERO3] = "zero3"};
    int form = SHARD_FORM_END - 1;
    while (form > SHARD_FORM_DP && strcmp(names[form], text) != 0) form--;
    return (shard_form_t)form; /* auto, too */
}

static compile_switch_t switch_of(const char *text) {
    if (strcmp(text, "auto") == 0) return COMPILE_AUTO;
    return strcmp(text, "on") == 0 ? COMPILE_ON : COMPILE_OFF;
}

static st_status_t read_options(const stator_options_t *options, const stator_plan_t *state_of,
                                compile_options_t *out) {
    const st_options_t *table = options->table;
    int64_t ranks = st_options_int(table, "ranks"), threads = st_options_int(table, "threads");
    if (ranks < 1 || ranks > 1024)
        return FAIL(ST_INVALID, "option 'ranks' is %lld; 1 to 1024 are possible", (long long)ranks);
    if (threads < 0 || threads > 1024)
        return FAIL(ST_INVALID, "option 'threads' is %lld; 0 to 1024 are possible",
                    (long long)threads);
    const int64_t stages = st_options_int(table, "stages-per-rank");
    if (stages < 1 || stages > 62)
        return FAIL(ST_INVALID, "option 'stages-per-rank' is %lld; 1 to 62 are possible",
                    (long long)stages);
    const char *pins = st_options_string(table, "pin");
    const char *mesh_text = st_options_string(table, "mesh");
    const bool tensor_form = strcmp(st_options_string(table, "shard"), "tp") == 0;
    ir_mesh_t mesh = {0};
    if (mesh_text[0]) {
        TRY(ir_mesh_parse(mesh_text, &mesh));
        if (st_options_given(table, "ranks") && ranks != ir_mesh_ranks(&mesh))
            return FAIL(ST_INVALID, "mesh '%s' has %u ranks, option 'ranks' says %lld", mesh_text,
                        ir_mesh_ranks(&mesh), (long long)ranks);
        ranks = ir_mesh_ranks(&mesh);
        if (ranks > 1024)
            return FAIL(ST_INVALID, "mesh '%s' has %lld ranks; 1 to 1024 are possible", mesh_text,
                        (long long)ranks);
        if (tensor_form && ir_mesh_find(&mesh, IR_AXIS_TENSOR) == IR_NONE)
            return FAIL(ST_INVALID,
                        "form 'tp' needs an axis '" IR_AXIS_TENSOR
                        "' in --mesh, which is '%s': data=2,tensor=2, say",
                        mesh_text);
    } else if (tensor_form) {
        mesh = ir_mesh_of_ranks((uint32_t)ranks);
        memcpy(mesh.axes[0].name, IR_AXIS_TENSOR, sizeof IR_AXIS_TENSOR);
    }
    if (threads == 0) {
        threads = st_processor_count() / ranks;
        if (threads < 1) threads = 1;
    }
    double timeout = st_options_float(table, "timeout");
    if (!(timeout > 0) || timeout > LONGEST_TIMEOUT_S)
        return FAIL(ST_INVALID, "option 'timeout' is %g seconds; above 0 up to %d are possible",
                    timeout, LONGEST_TIMEOUT_S);
    const char *dtype = st_options_string(table, "dtype"), *dump = st_options_string(table, "dump");
    const char *device = st_options_string(table, "device");
    const char *cache = st_options_string(table, "plan-cache");
    *out = (compile_options_t){
        .target = st_options_string(table, "target"),
        .device = device[0] ? device : NULL,
        .mesh = mesh,
        .context_attention = strcmp(st_options_string(table, "context-attention"), "ring") == 0
                                 ? SHARD_CONTEXT_RING
                                 : SHARD_CONTEXT_GATHER,
        .schedule = strcmp(st_options_string(table, "pipeline"), "zb") == 0 ? SHARD_ZERO_BUBBLE
                                                                            : SHARD_1F1B,
        .stages_per_rank = (uint32_t)stages,
        .pins = pins[0] ? pins : NULL,
        .form = form_of(st_options_string(table, "shard")),
        .auto_sharding = strcmp(st_options_string(table, "shard"), "auto") == 0,
        .n_ranks = (uint32_t)ranks,
        .n_threads = (uint32_t)threads,
        .dtype = ir_dtype_parse(dtype), /* "auto" names none */
        .reference_kernels = st_options_bool(table, "reference-kernels"),
        .evaluation = strcmp(st_options_string(table, "mode"), "eval") == 0,
        .no_fusion = strcmp(st_options_string(table, "fusion"), "off") == 0,
        .primitives = strcmp(st_options_string(table, "fusion"), "primitives") == 0,
        .explain = st_options_bool(table, "explain"),
        .shadows = switch_of(st_options_string(table, "weight-shadows")),
        .wide_gradients = strcmp(st_options_string(table, "reduce-dtype"), "f32") == 0,
        .no_layout = strcmp(st_options_string(table, "layout"), "off") == 0,
        .bucket_bytes = st_options_size(table, "bucket-size"),
        .feed_ahead = switch_of(st_options_string(table, "feed-ahead")),
        .recompute = recompute_policy(st_options_string(table, "recompute")),
        .memory_limit = st_options_size(table, "memory-limit"),
        .timeout_ms = (uint64_t)ceil(timeout * 1000),
        .state_of = state_of ? state_of->plan : NULL,
        .plan_cache = cache[0] ? cache : NULL,
        .dump = dump[0] ? dump : NULL,
    };
    return ST_OK;
}

static st_status_t wrap(plan_t *plan, size_t n_timings, const compile_timing_t *timings,
                        stator_plan_t **out_plan) {
    stator_plan_t *made = st_calloc(1, sizeof *made);
    compile_timing_t *kept = st_calloc(n_timings, sizeof *kept);
    if (!made || !kept) {
        plan_destroy(plan);
        st_free(made);
        st_free(kept);
        return st_no_memory(sizeof *made, "a plan");
    }
    *made = (stator_plan_t){plan, 0, n_timings, kept};
    for (size_t i = 0; i < n_timings; i++) {
        kept[i] = timings[i];
        made->compile_us += timings[i].us;
    }
    *out_plan = made;
    return ST_OK;
}

stator_status_t stator_plan_compile(const stator_graph_t *graph, const stator_options_t *options,
                                    const stator_plan_t *state_of, stator_plan_t **out_plan) {
    CAPI_OUT(out_plan);
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(options);
    compile_options_t compile;
    plan_t *plan = NULL;
    ir_graph_t *with_outputs = NULL;
    st_status_t status = read_options(options, state_of, &compile);
    if (status == ST_OK) status = capi_with_fetches(graph->ir, options->table, true, &with_outputs);
    if (status == ST_OK)
        status = compile_plan(with_outputs ? with_outputs : graph->ir, &compile, &plan);
    ir_graph_destroy(with_outputs);
    if (status != ST_OK) return capi_status(status);
    const compile_timing_t *timings;
    size_t n = compile_timings(&timings);
    return capi_status(wrap(plan, n, timings, out_plan));
}

void stator_plan_destroy(stator_plan_t *plan) {
    if (!plan) return;
    plan_destroy(plan->plan);
    st_free(plan->timings);
    st_free(plan);
}

stator_status_t stator_plan_save(const stator_plan_t *plan, const char *path) {
    CAPI_REQUIRE(plan);
    CAPI_REQUIRE(path);
    uint8_t *data = NULL;
    size_t bytes = 0;
    st_status_t status = plan_encode(plan->plan, &data, &bytes);
    if (status == ST_OK) status = st_file_write(path, data, bytes);
    st_free(data);
    return capi_status(status);
}

stator_status_t stator_plan_load(const char *path, stator_plan_t **out_plan) {
    CAPI_OUT(out_plan);
    CAPI_REQUIRE(path);
    st_file_t file = {0};
    plan_t *plan = NULL;
    st_status_t status = st_file_open(path, &file);
    if (status == ST_OK) {
        status = plan_decode(file.data, file.bytes, &plan);
        if (status != ST_OK) st_error_context(status, "%s", path);
    }
    st_file_close(&file);
    if (status == ST_OK) status = wrap(plan, 0, NULL, out_plan);
    return capi_status(status);
}

stator_status_t stator_plan_print(const stator_plan_t *plan, char **out_text) {
    CAPI_OUT(out_text);
    CAPI_REQUIRE(plan);
    return capi_status(plan_print(plan->plan, out_text));
}

/* The dim of an input that carries the batch: 1 with gradient accumulation, whose micro-batches
 * come first. −1: none does. */
static int64_t batch_axis(const plan_t *plan, const char *input) {
    const ir_graph_t *graph = plan_ports(plan);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->op == IR_OP_INPUT && strcmp(node->name, input) == 0)
            return ir_attr_int(node, "batch_axis");
    }
    return -1;
}

static void count_items(const plan_t *plan, stator_plan_info_t *info) {
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
        const ir_type_t *type = &plan->inputs[i].type;
        const int64_t axis = batch_axis(plan, plan->inputs[i].name);
        if (axis < 0 || axis >= type->rank) continue;
        info->n_samples = 1;
        for (int64_t d = 0; d <= axis; d++) info->n_samples *= type->dims[d];
        if (axis + 2 == type->rank && (type->dtype == IR_I32 || type->dtype == IR_I64))
            info->n_tokens = info->n_samples * type->dims[axis + 1];
        return;
    }
}

stator_plan_info_t stator_plan_info(const stator_plan_t *plan) {
    const plan_t *p = plan->plan;
    stator_plan_info_t info = {
        .n_ranks = p->n_ranks, .n_threads = p->n_threads, .compile_us = plan->compile_us};
    for (uint32_t i = 0; i < p->n_programs; i++) {
        const plan_program_t *program = &p->programs[i];
        const uint64_t *bytes = program->region_bytes;
        if (bytes[PLAN_STATE] > info.state_bytes) info.state_bytes = bytes[PLAN_STATE];
        if (bytes[PLAN_WORK] > info.work_bytes) info.work_bytes = bytes[PLAN_WORK];
        if (bytes[PLAN_COMM] > info.comm_bytes) info.comm_bytes = bytes[PLAN_COMM];
        if (bytes[PLAN_FEEDS] > info.feeds_bytes) info.feeds_bytes = bytes[PLAN_FEEDS];
        if (program->live_bound_bytes > info.live_bound_bytes)
            info.live_bound_bytes = program->live_bound_bytes;
    }
    const plan_program_t *first = &p->programs[p->program_of[0]];
    for (size_t i = 0; i < first->graph->nodes.n; i++) {
        info.n_kernels += first->steps[i].kind == PLAN_STEP_KERNEL;
        info.n_collectives += first->steps[i].kind == PLAN_STEP_START;
    }
    count_items(p, &info);
    return info;
}

size_t stator_plan_count(const stator_plan_t *plan, stator_port_kind_t kind) {
    if (kind == STATOR_INPUT) return plan->plan->n_inputs;
    if (kind == STATOR_OUTPUT) return plan->plan->n_outputs;
    return capi_port_count(plan_ports(plan->plan), kind);
}

stator_tensor_t stator_plan_at(const stator_plan_t *plan, stator_port_kind_t kind, size_t index) {
    if (index >= stator_plan_count(plan, kind)) return (stator_tensor_t){0};
    if (kind != STATOR_INPUT && kind != STATOR_OUTPUT)
        return capi_state_at(plan->plan, kind, index);
    const plan_port_t *port =
        kind == STATOR_INPUT ? &plan->plan->inputs[index] : &plan->plan->outputs[index];
    return capi_tensor(port->name, &port->type, NULL);
}
