/* stator plan: what a step will hold and take, before anything runs. Takes a graph, with the
 * options of compile, or a finished plan. */
#include <string.h>

#include "tools/tool.h"

enum { SHOWN_TENSORS = 10, SHOWN_KERNELS = 15 };

/* ---- JSON ---- */

static void json_key(const char *key, bool first) {
    printf("%s\"%s\":", first ? "" : ",", key);
}
static void json_bytes(const char *key, uint64_t value) {
    printf(",\"%s\":%llu", key, (unsigned long long)value);
}
static void json_number(const char *key, double value) {
    json_key(key, false);
    tool_json_number(stdout, value);
}
static void json_text(const char *key, const char *value, bool first) {
    json_key(key, first);
    tool_json_string(stdout, value);
}

static void json_memory(const stator_report_t *report) {
    stator_report_memory_t row;
    json_key("memory", false);
    for (size_t i = 0; stator_report_memory_at(report, i, &row); i++) {
        printf("%s{", i ? "," : "[");
        json_text("region", row.region, true);
        json_text("kind", row.kind, false);
        json_bytes("bytes", row.bytes);
        printf("}");
    }
    printf("]");
}

static void json_tensors(const stator_report_t *report) {
    stator_report_tensor_t row;
    json_key("tensors", false);
    printf("[");
    for (size_t i = 0; stator_report_tensor_at(report, i, &row); i++) {
        printf("%s{", i ? "," : "");
        json_text("name", row.tensor.name, true);
        json_text("kind", row.kind, false);
        json_text("dtype", stator_dtype_text(row.tensor.dtype), false);
        printf(",\"shape\":[");
        for (int32_t d = 0; d < row.tensor.rank; d++)
            printf("%s%lld", d ? "," : "", (long long)row.tensor.dims[d]);
        printf("]");
        json_bytes("bytes", row.tensor.bytes);
        printf(",\"from\":%u,\"to\":%u}", row.from, row.to);
    }
    printf("]");
}

static void json_kernels(const stator_report_t *report) {
    stator_report_kernel_t row;
    json_key("kernel_rows", false);
    printf("[");
    for (size_t i = 0; stator_report_kernel_at(report, i, &row); i++) {
        printf("%s{", i ? "," : "");
        json_text("name", row.name, true);
        json_bytes("calls", row.n_calls);
        json_number("us", row.us);
        json_number("flop", row.flop);
        json_number("bytes", row.bytes);
        json_number("memory_us", row.memory_us);
        json_text("refusals", row.refusals, false);
        printf("}");
    }
    printf("]");
}

static void json_passes(const stator_report_t *report) {
    stator_report_pass_t row;
    json_key("passes", false);
    printf("[");
    for (size_t i = 0; stator_report_pass_at(report, i, &row); i++) {
        printf("%s{", i ? "," : "");
        json_text("name", row.name, true);
        json_number("us", row.us);
        printf("}");
    }
    printf("]");
}

static void json_fusion(const stator_report_t *report) {
    stator_report_fused_t row;
    stator_report_boundary_t apart;
    json_key("fused", false);
    printf("[");
    for (size_t i = 0; stator_report_fused_at(report, i, &row); i++) {
        printf("%s{", i ? "," : "");
        json_text("name", row.name, true);
        json_text("ops", row.ops, false);
        json_bytes("nodes", row.n_nodes);
        json_bytes("launches_apart", row.launches_apart);
        json_number("us", row.us);
        json_number("us_apart", row.us_apart);
        json_bytes("bytes_saved", row.bytes_saved);
        printf("}");
    }
    printf("]");
    json_key("boundaries", false);
    printf("[");
    for (size_t i = 0; stator_report_boundary_at(report, i, &apart); i++) {
        printf("%s{", i ? "," : "");
        json_text("from", apart.from, true);
        json_text("to", apart.to, false);
        json_text("why", apart.why, false);
        json_text("reason", apart.reason, false);
        json_bytes("bytes", apart.bytes);
        json_number("us_apart", apart.us_apart);
        json_number("us_together", apart.us_together);
        printf("}");
    }
    printf("]");
}

static void json_alternatives(const stator_report_t *report) {
    stator_report_alternative_t row;
    if (!stator_report_alternative_at(report, 0, &row)) return;
    json_key("alternatives", false);
    printf("[");
    for (size_t i = 0; stator_report_alternative_at(report, i, &row); i++) {
        printf("%s{", i ? "," : "");
        json_text("axis", row.axis, true);
        json_text("name", row.name, false);
        printf(",\"chosen\":%s,\"fits\":%s", row.chosen ? "true" : "false",
               row.fits ? "true" : "false");
        json_number("step_us", row.step_us);
        json_number("exposed_us", row.exposed_us);
        json_number("compiled_us", row.compiled_us);
        json_bytes("state_bytes", row.state_bytes);
        json_bytes("live_bytes", row.live_bytes);
        if (row.reason[0]) json_text("reason", row.reason, false);
        printf("}");
    }
    printf("]");
}

static void print_json(const stator_plan_t *plan, const stator_report_t *report, int64_t rank,
                       bool explain) {
    stator_report_totals_t t = stator_report_totals(report);
    stator_plan_info_t info = stator_plan_info(plan);
    printf("{\"target\":");
    tool_json_string(stdout, t.target);
    printf(",\"ranks\":%u,\"rank\":%lld,\"threads\":%u", info.n_ranks, (long long)rank,
           info.n_threads);
    printf(",\"regions\":{\"state\":%llu,\"work\":%llu,\"comm\":%llu,\"feeds\":%llu}",
           (unsigned long long)t.state_bytes, (unsigned long long)t.work_bytes,
           (unsigned long long)t.comm_bytes, (unsigned long long)t.feeds_bytes);
    json_bytes("total_bytes", t.total_bytes);
    json_bytes("live_bound_bytes", t.live_bound_bytes);
    json_bytes("packed_bytes", t.work_bytes);
    json_bytes("capacity_bytes", t.capacity_bytes);
    json_bytes("peak_step", t.peak_step);
    json_bytes("kernels", t.n_kernels);
    json_bytes("collectives", t.n_collectives);
    json_number("flop", t.flop);
    json_number("product_flop", t.product_flop);
    json_number("model_flop", t.model_flop);
    json_number("bytes_moved", t.bytes_moved);
    json_number("bytes_layout_copied", t.bytes_layout_copied);
    json_bytes("recomputed", t.n_recomputed);
    json_bytes("recomputed_products", t.n_recomputed_products);
    json_number("bytes_recomputed", t.bytes_recomputed);
    json_number("flop_recomputed", t.flop_recomputed);
    json_number("us_recomputed", t.us_recomputed);
    json_number("predicted_step_us", t.step_us);
    json_number("forward_us", t.forward_us);
    json_number("backward_us", t.backward_us);
    json_number("optimizer_us", t.optimizer_us);
    json_number("exposed_us", t.exposed_us);
    json_number("peers_us", t.peers_us);
    json_number("link_us", t.link_us);
    json_number("model_utilization", t.model_utilization);
    json_number("hardware_utilization", t.hardware_utilization);
    json_number("compile_us", t.compile_us);
    json_memory(report);
    json_tensors(report);
    json_kernels(report);
    json_passes(report);
    json_alternatives(report);
    if (explain) json_fusion(report);
    printf("}\n");
}

/* ---- tables ---- */

static void print_memory(const stator_report_t *report, const stator_report_totals_t *t) {
    char bytes[32], bound[32];
    stator_report_memory_t row;
    printf("\nmemory of a rank\n");
    for (size_t i = 0; stator_report_memory_at(report, i, &row); i++)
        if (row.bytes)
            printf("  %-5s  %-12s %12s\n", row.region, row.kind, tool_bytes(row.bytes, bytes));
    printf("  %-5s  %-12s %12s", "", "total", tool_bytes(t->total_bytes, bytes));
    if (t->capacity_bytes)
        printf("  of %s, %.1f %%", tool_bytes(t->capacity_bytes, bytes),
               100 * (double)t->total_bytes / (double)t->capacity_bytes);
    printf("\n  work is fullest at step %u: %s alive", t->peak_step,
           tool_bytes(t->live_bound_bytes, bound));
    if (t->live_bound_bytes)
        printf(", packed into %s (+%.2f %%)", tool_bytes(t->work_bytes, bytes),
               100 * ((double)t->work_bytes / (double)t->live_bound_bytes - 1));
    printf("\n");
}

static void print_tensors(const stator_report_t *report) {
    stator_report_tensor_t row;
    printf("\nlargest at that step\n");
    for (size_t i = 0; i < SHOWN_TENSORS && stator_report_tensor_at(report, i, &row); i++) {
        char bytes[32], shape[192];
        int used = snprintf(shape, sizeof shape, "%s[", stator_dtype_text(row.tensor.dtype));
        for (int32_t d = 0; d < row.tensor.rank; d++)
            used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld", d ? "," : "",
                             (long long)row.tensor.dims[d]);
        printf("  %12s  %-11s %-24s %s], steps %u to %u\n", tool_bytes(row.tensor.bytes, bytes),
               row.kind, row.tensor.name, shape, row.from, row.to);
    }
}

static void print_kernels(const stator_report_t *report, const stator_report_totals_t *t) {
    stator_report_kernel_t row, rest = {.name = "the rest"};
    size_t i = 0;
    printf("\n%9s %6s %6s %10s %10s  %s\n", "us", "%", "calls", "GFLOP/s", "GB/s", "kernel");
    for (; stator_report_kernel_at(report, i, &row); i++) {
        if (i >= SHOWN_KERNELS) {
            rest.us += row.us;
            rest.n_calls += row.n_calls;
            rest.flop += row.flop;
            rest.bytes += row.bytes;
            continue;
        }
        printf("%9.1f %6.1f %6llu %10.1f %10.1f  %s\n", row.us, 100 * row.us / t->step_us,
               (unsigned long long)row.n_calls, row.flop / row.us * 1e-3, row.bytes / row.us * 1e-3,
               row.name);
        if (row.refusals[0]) printf("%45s  last resort: %s\n", "", row.refusals);
    }
    if (rest.n_calls)
        printf("%9.1f %6.1f %6llu %10.1f %10.1f  %s\n", rest.us, 100 * rest.us / t->step_us,
               (unsigned long long)rest.n_calls, rest.flop / rest.us * 1e-3,
               rest.bytes / rest.us * 1e-3, rest.name);
}

/* What was fused, and where not more. */
static void print_fusion(const stator_report_t *report) {
    stator_report_fused_t row;
    stator_report_boundary_t apart;
    char bytes[32];
    size_t n = 0;
    printf("\nfused into one kernel: us, us apart, launches apart, memory traffic saved\n");
    for (; stator_report_fused_at(report, n, &row); n++)
        printf("  %9.1f %9.1f %4u %12s  %s: %s\n", row.us, row.us_apart, row.launches_apart,
               tool_bytes(row.bytes_saved, bytes), row.name, row.ops);
    if (!n) printf("  nothing\n");
    printf("\nnot fused\n");
    for (n = 0; stator_report_boundary_at(report, n, &apart); n++)
        printf("  %12s  %s -> %s: %s\n", tool_bytes(apart.bytes, bytes), apart.from, apart.to,
               apart.reason);
    if (!n) printf("  nothing\n");
}

/* Never "-0.000". */
static double milliseconds(double us) {
    return us > -0.5 && us < 0 ? 0 : us * 1e-3;
}

static void print_recomputed(const stator_report_totals_t *t) {
    char bytes[32];
    if (!t->n_recomputed) return;
    printf("%llu ops run again for the backward pass", (unsigned long long)t->n_recomputed);
    if (t->n_recomputed_products)
        printf(", %llu of them products or the like", (unsigned long long)t->n_recomputed_products);
    printf(": %s less to keep, %.3f GFLOP, %+.3f ms\n",
           tool_bytes((uint64_t)t->bytes_recomputed, bytes), t->flop_recomputed * 1e-9,
           milliseconds(t->us_recomputed));
}

/* "" where there is none. */
static const char *ms_text(double us, char text[32]) {
    text[0] = 0;
    if (us > 0) snprintf(text, 32, "%.3f", us * 1e-3);
    return text;
}

/* What the placements could have been, and which were chosen. */
static void print_alternatives(const stator_report_t *report) {
    stator_report_alternative_t row;
    char states[32], live[32], step[32], exposed[32], compiled[32];
    int wide = 8;
    if (!stator_report_alternative_at(report, 0, &row)) return;
    for (size_t i = 0; stator_report_alternative_at(report, i, &row); i++)
        if ((int)strlen(row.axis) > wide) wide = (int)strlen(row.axis);
    printf(
        "\nplacements, simulated before fusion: ms a step, of them not hidden; states, alive; ms "
        "as compiled\n");
    for (size_t i = 0; stator_report_alternative_at(report, i, &row); i++) {
        snprintf(exposed, sizeof exposed, "%.3f", row.exposed_us * 1e-3);
        if (row.reason[0])
            printf("  %-*s %s: %s\n", wide, row.axis, row.name, row.reason);
        else
            printf("%s %-*s %-8s %10s %10s %12s %12s %10s%s\n", row.chosen ? ">" : " ", wide,
                   row.axis, row.name, ms_text(row.step_us, step), row.step_us > 0 ? exposed : "",
                   row.step_us > 0 ? tool_bytes(row.state_bytes, states) : "",
                   row.step_us > 0 ? tool_bytes(row.live_bytes, live) : "",
                   ms_text(row.compiled_us, compiled), row.fits ? "" : "  too much");
    }
}

static void print_tables(const stator_plan_t *plan, const stator_report_t *report, int64_t rank) {
    stator_report_totals_t t = stator_report_totals(report);
    stator_plan_info_t info = stator_plan_info(plan);
    printf("target %s, %u rank%s", t.target, info.n_ranks, info.n_ranks == 1 ? "" : "s");
    if (info.n_ranks > 1) printf("; rank %lld", (long long)rank);
    printf("; a step is predicted to take %.3f ms", t.step_us * 1e-3);
    if (t.backward_us > 0 || t.optimizer_us > 0)
        printf(": forward %.3f, backward %.3f, optimizer %.3f", t.forward_us * 1e-3,
               t.backward_us * 1e-3, t.optimizer_us * 1e-3);
    if (t.link_us > 0)
        printf("; collectives take %.3f, of which %.3f is not hidden", t.link_us * 1e-3,
               (t.exposed_us - t.peers_us) * 1e-3);
    if (t.peers_us >= 0.5) printf(", waiting for other ranks %.3f", t.peers_us * 1e-3);
    printf(
        "\n%llu kernels, %llu collectives; %.3f GFLOP, of the model's own products %.3f; %.3f GB "
        "moved, of it copies for layout %.3f\n",
        (unsigned long long)t.n_kernels, (unsigned long long)t.n_collectives, t.flop * 1e-9,
        t.model_flop * 1e-9, t.bytes_moved * 1e-9, t.bytes_layout_copied * 1e-9);
    printf("utilization %.1f %% counting the model's products, %.1f %% counting all that runs\n",
           100 * t.model_utilization, 100 * t.hardware_utilization);
    print_recomputed(&t);
    print_alternatives(report);
    print_memory(report, &t);
    print_tensors(report);
    print_kernels(report, &t);
    if (t.compile_us > 0) printf("\ncompiled in %.1f ms\n", t.compile_us * 1e-3);
}

/* ---- entry ---- */

stator_status_t tool_plan(tool_t *tool) {
    stator_plan_t *plan = NULL;
    stator_report_t *report = NULL;
    stator_status_t status;
    const int64_t rank = tool_int(tool, "rank");
    TOOL_TRY_GOTO(tool_compile_or_load(tool, &plan), done);
    if (rank >= stator_plan_info(plan).n_ranks)
        TOOL_TRY_GOTO(tool_fail(STATOR_INVALID, "--rank %lld: the plan has ranks 0 to %u",
                                (long long)rank, stator_plan_info(plan).n_ranks - 1),
                      done);
    TOOL_TRY_GOTO(stator_report_create(plan, (uint32_t)rank, &report), done);
    tool_warn_of_last_resorts(tool, report);
    if (tool_text(tool, "output")[0])
        TOOL_TRY_GOTO(stator_plan_save(plan, tool_text(tool, "output")), done);
    if (tool_flag(tool, "json"))
        print_json(plan, report, rank, tool_flag(tool, "explain"));
    else
        print_tables(plan, report, rank);
    if (tool_flag(tool, "explain") && !tool_flag(tool, "json")) print_fusion(report);
done:
    stator_report_destroy(report);
    stator_plan_destroy(plan);
    return status;
}
