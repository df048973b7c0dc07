/* stator info: what is in a file. The kind is told by content: graph (binary or text), plan,
 * tensors. */
#include <string.h>

#include "tools/tool.h"

static void print_type(const stator_tensor_t *t) {
    printf("%s[", t->dtype ? stator_dtype_text(t->dtype) : "raw");
    for (int32_t i = 0; i < t->rank; i++) printf("%s%lld", i ? "," : "", (long long)t->dims[i]);
    printf("]");
}

static void print_ports(const stator_graph_t *graph, stator_port_kind_t kind, const char *title,
                        bool list) {
    size_t n = stator_graph_count(graph, kind);
    int64_t elements = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        stator_tensor_t t = stator_graph_at(graph, kind, i);
        bytes += t.bytes;
        elements += (int64_t)(t.bytes / stator_dtype_bytes(t.dtype));
    }
    char text[32];
    printf("%-11s %zu, %lld elements, %s\n", title, n, (long long)elements,
           tool_bytes(bytes, text));
    for (size_t i = 0; list && i < n; i++) {
        stator_tensor_t t = stator_graph_at(graph, kind, i);
        printf("  %-40s %s[", t.name, stator_dtype_text(t.dtype));
        for (int32_t d = 0; d < t.rank; d++) {
            const char *open = stator_graph_dim_at(graph, kind, i, d);
            printf("%s", d ? "," : "");
            if (open)
                printf("%s", open);
            else
                printf("%lld", (long long)t.dims[d]);
        }
        printf("]\n");
    }
}

/* What is open, and how it gets a value. Sizes that follow from others are those of the example. */
static void print_symbols(const stator_graph_t *graph) {
    stator_symbol_t s;
    if (!stator_graph_symbol_at(graph, 0, &s)) return;
    printf("open sizes  to be bound when compiling, as with --bind ");
    for (size_t i = 0; stator_graph_symbol_at(graph, i, &s); i++)
        printf("%s%s=%lld", i ? "," : "", s.name, (long long)s.example);
    printf("; other sizes here are for those\n");
    for (size_t i = 0; stator_graph_symbol_at(graph, i, &s); i++) {
        printf("  %-40s %lld ", s.name, (long long)s.least);
        if (s.most == INT64_MAX)
            printf("or more\n");
        else
            printf("to %lld\n", (long long)s.most);
    }
}

static void json_symbols(const stator_graph_t *graph) {
    stator_symbol_t s;
    printf(",\"symbols\":{");
    for (size_t i = 0; stator_graph_symbol_at(graph, i, &s); i++) {
        printf("%s", i ? "," : "");
        tool_json_string(stdout, s.name);
        printf(":{\"least\":%lld,\"example\":%lld", (long long)s.least, (long long)s.example);
        if (s.most != INT64_MAX) printf(",\"most\":%lld", (long long)s.most);
        printf("}");
    }
    printf("}");
}

static stator_status_t graph_info(const tool_t *tool, stator_graph_t *graph) {
    if (tool_flag(tool, "text")) {
        char *text = NULL;
        TOOL_TRY(stator_graph_print(graph, &text));
        fputs(text, stdout);
        stator_free(text);
        return STATOR_OK;
    }
    if (tool_flag(tool, "json")) {
        printf(
            "{\"kind\":\"graph\",\"nodes\":%zu,\"inputs\":%zu,\"outputs\":%zu,\"parameters\":%zu,"
            "\"buffers\":%zu",
            stator_graph_node_count(graph), stator_graph_count(graph, STATOR_INPUT),
            stator_graph_count(graph, STATOR_OUTPUT), stator_graph_count(graph, STATOR_PARAMETER),
            stator_graph_count(graph, STATOR_BUFFER));
        uint64_t elements = 0;
        for (size_t i = 0; i < stator_graph_count(graph, STATOR_PARAMETER); i++) {
            stator_tensor_t t = stator_graph_at(graph, STATOR_PARAMETER, i);
            elements += t.bytes / stator_dtype_bytes(t.dtype);
        }
        printf(",\"parameter_elements\":%llu", (unsigned long long)elements);
        json_symbols(graph);
        printf("}\n");
        return STATOR_OK;
    }
    printf("%-11s %zu\n", "nodes", stator_graph_node_count(graph));
    print_symbols(graph);
    print_ports(graph, STATOR_INPUT, "inputs", true);
    print_ports(graph, STATOR_OUTPUT, "outputs", true);
    print_ports(graph, STATOR_PARAMETER, "parameters", true);
    print_ports(graph, STATOR_BUFFER, "buffers", true);
    return STATOR_OK;
}

static stator_status_t plan_info(const tool_t *tool, stator_plan_t *plan) {
    if (tool_flag(tool, "text")) {
        char *text = NULL;
        TOOL_TRY(stator_plan_print(plan, &text));
        fputs(text, stdout);
        stator_free(text);
        return STATOR_OK;
    }
    stator_plan_info_t i = stator_plan_info(plan);
    if (tool_flag(tool, "json")) {
        printf(
            "{\"kind\":\"plan\",\"ranks\":%u,\"threads\":%u,\"kernels\":%u,\"collectives\":%u,"
            "\"regions\":{\"state\":%llu,\"work\":%llu,\"comm\":%llu,\"feeds\":%llu},\"live_bound_"
            "bytes\":%llu,"
            "\"packing_gap_percent\":%.3f}\n",
            i.n_ranks, i.n_threads, i.n_kernels, i.n_collectives, (unsigned long long)i.state_bytes,
            (unsigned long long)i.work_bytes, (unsigned long long)i.comm_bytes,
            (unsigned long long)i.feeds_bytes, (unsigned long long)i.live_bound_bytes,
            tool_packing_gap(&i));
        return STATOR_OK;
    }
    char state[32], work[32], comm[32], feeds[32], bound[32];
    printf("ranks       %u, %u thread%s each\nkernels     %u a step\ncollectives %u a step\n",
           i.n_ranks, i.n_threads, i.n_threads == 1 ? "" : "s", i.n_kernels, i.n_collectives);
    printf(
        "memory of the largest rank: state %s, work %s (live bound %s, packed within %.2f %%), "
        "comm %s, next inputs %s\n",
        tool_bytes(i.state_bytes, state), tool_bytes(i.work_bytes, work),
        tool_bytes(i.live_bound_bytes, bound), tool_packing_gap(&i), tool_bytes(i.comm_bytes, comm),
        tool_bytes(i.feeds_bytes, feeds));
    return STATOR_OK;
}

static void tensors_info(const tool_t *tool, const stator_tensors_t *tensors) {
    bool json = tool_flag(tool, "json");
    uint64_t bytes = 0;
    if (json) printf("{\"kind\":\"tensors\",\"tensors\":{");
    for (size_t i = 0; i < stator_tensors_count(tensors); i++) {
        stator_tensor_t t = stator_tensors_at(tensors, i);
        bytes += t.bytes;
        if (json) {
            printf("%s", i ? "," : "");
            tool_json_string(stdout, t.name);
            printf(":\"");
            print_type(&t);
            printf("\"");
        } else {
            printf("%-50s ", t.name);
            print_type(&t);
            printf("\n");
        }
    }
    char text[32];
    if (json)
        printf("},\"bytes\":%llu}\n", (unsigned long long)bytes);
    else
        printf("%zu tensors, %s\n", stator_tensors_count(tensors), tool_bytes(bytes, text));
}

stator_status_t tool_info(tool_t *tool) {
    const char *path = tool->files[0];
    tool_kind_t kind;
    TOOL_TRY(tool_file_kind(path, &kind));
    stator_status_t status;
    stator_graph_t *graph = NULL;
    stator_plan_t *plan = NULL;
    stator_tensors_t *tensors = NULL;
    switch (kind) {
        case TOOL_GRAPH:
            status = stator_graph_load(path, &graph);
            if (status == STATOR_OK) status = graph_info(tool, graph);
            break;
        case TOOL_PLAN:
            status = stator_plan_load(path, &plan);
            if (status == STATOR_OK) status = plan_info(tool, plan);
            break;
        case TOOL_TENSORS:
            status = stator_tensors_load(path, &tensors);
            if (status == STATOR_OK) tensors_info(tool, tensors);
            break;
        default:
            status =
                tool_fail(STATOR_PARSE,
                          "%s: neither a graph, a plan nor a safetensors file; models of other "
                          "systems are read by 'stator import'",
                          path);
    }
    stator_graph_destroy(graph);
    stator_plan_destroy(plan);
    stator_tensors_destroy(tensors);
    return status;
}
