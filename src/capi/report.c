/* Reports of plans. */
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "compile/predict.h"
#include "compile/report.h"
#include "fusion/fuse.h"

struct stator_report {
    report_t *report;
    double compile_us;
    size_t n_passes;
    stator_report_pass_t *passes; /* these in the report's arena */
    size_t n_fused, n_boundaries;
    stator_report_fused_t *fused;
    stator_report_boundary_t *boundaries;
    size_t n_alternatives;
    stator_report_alternative_t *alternatives;
    plan_recompute_t recompute;
};

static st_status_t copy_passes(const stator_plan_t *plan, stator_report_t *made) {
    st_arena_t *arena = &made->report->arena;
    made->compile_us = plan->compile_us;
    made->passes = st_arena_array(arena, plan->n_timings, sizeof *made->passes);
    if (!made->passes) return st_no_memory(plan->n_timings * sizeof *made->passes, "a report");
    for (size_t i = 0; i < plan->n_timings; i++) {
        const char *name = st_arena_strdup(arena, plan->timings[i].pass);
        if (!name) return st_no_memory(0, "a report");
        made->passes[made->n_passes++] = (stator_report_pass_t){name, plan->timings[i].us};
    }
    return ST_OK;
}

/* A copy of a text, "" of none. */
static bool keep(st_arena_t *arena, const char *text, const char **out) {
    *out = st_arena_strdup(arena, text ? text : "");
    return *out != NULL;
}

static st_status_t copy_fusion(const fuse_report_t *fusion, stator_report_t *made) {
    st_arena_t *arena = &made->report->arena;
    if (!fusion) return ST_OK;
    size_t n = fusion->n_rows + fusion->n_boundaries;
    made->fused = st_arena_array(arena, fusion->n_rows, sizeof *made->fused);
    made->boundaries = st_arena_array(arena, fusion->n_boundaries, sizeof *made->boundaries);
    if (!made->fused || !made->boundaries) return st_no_memory(n, "a report");
    for (; made->n_fused < fusion->n_rows; made->n_fused++) {
        const fuse_row_t *row = &fusion->rows[made->n_fused];
        stator_report_fused_t *to = &made->fused[made->n_fused];
        *to = (stator_report_fused_t){.n_nodes = row->n_nodes,
                                      .launches_apart = row->launches_apart,
                                      .us = row->us,
                                      .us_apart = row->us_apart,
                                      .bytes_saved = row->bytes_saved};
        if (!keep(arena, row->name, &to->name) || !keep(arena, row->ops, &to->ops))
            return st_no_memory(n, "a report");
    }
    for (; made->n_boundaries < fusion->n_boundaries; made->n_boundaries++) {
        const fuse_boundary_t *row = &fusion->boundaries[made->n_boundaries];
        stator_report_boundary_t *to = &made->boundaries[made->n_boundaries];
        *to = (stator_report_boundary_t){
            .bytes = row->bytes, .us_apart = row->us_apart, .us_together = row->us_together};
        if (!keep(arena, row->from, &to->from) || !keep(arena, row->to, &to->to) ||
            !keep(arena, fuse_why_text(row->why), &to->why) ||
            !keep(arena, row->reason, &to->reason))
            return st_no_memory(n, "a report");
    }
    return ST_OK;
}

static st_status_t copy_alternatives(const plan_t *plan, stator_report_t *made) {
    st_arena_t *arena = &made->report->arena;
    const size_t n = plan->n_alternatives;
    made->alternatives = st_arena_array(arena, n, sizeof *made->alternatives);
    if (!made->alternatives) return st_no_memory(n * sizeof *made->alternatives, "a report");
    for (; made->n_alternatives < n; made->n_alternatives++) {
        const plan_alternative_t *row = &plan->alternatives[made->n_alternatives];
        stator_report_alternative_t *to = &made->alternatives[made->n_alternatives];
        *to = (stator_report_alternative_t){.chosen = row->chosen,
                                            .fits = row->fits,
                                            .step_us = row->step_us,
                                            .exposed_us = row->exposed_us,
                                            .compiled_us = row->compiled_us,
                                            .state_bytes = row->state_bytes,
                                            .live_bytes = row->live_bytes};
        if (!keep(arena, row->axis, &to->axis) || !keep(arena, row->name, &to->name) ||
            !keep(arena, row->reason, &to->reason))
            return st_no_memory(n * sizeof *to, "a report");
    }
    return ST_OK;
}

stator_status_t stator_report_create(const stator_plan_t *plan, uint32_t rank,
                                     stator_report_t **out_report) {
    CAPI_OUT(out_report);
    CAPI_REQUIRE(plan);
    stator_report_t *made = st_calloc(1, sizeof *made);
    target_t *target = NULL;
    st_status_t status = made ? ST_OK : st_no_memory(sizeof *made, "a report");
    if (status == ST_OK) status = predict_target(plan->plan, &target);
    if (status == ST_OK) status = report_make(plan->plan, target, rank, &made->report);
    if (status == ST_OK) status = copy_passes(plan, made);
    if (status == ST_OK) status = copy_fusion(plan->plan->fusion, made);
    if (status == ST_OK) status = copy_alternatives(plan->plan, made);
    if (status == ST_OK) made->recompute = plan->plan->recompute;
    target_destroy(target);
    if (status == ST_OK)
        *out_report = made;
    else
        stator_report_destroy(made);
    return capi_status(status);
}

void stator_report_destroy(stator_report_t *report) {
    if (!report) return;
    report_destroy(report->report);
    st_free(report);
}

/* Share of what the device's best products would do in the time. */
static double utilization(const report_t *r, double flop) {
    return r->us > 0 && r->peak_gflops > 0 ? flop * 1e-3 / (r->us * r->peak_gflops) : 0;
}

stator_report_totals_t stator_report_totals(const stator_report_t *report) {
    const report_t *r = report->report;
    return (stator_report_totals_t){
        .target = r->target,
        .state_bytes = r->region_bytes[PLAN_STATE],
        .work_bytes = r->region_bytes[PLAN_WORK],
        .comm_bytes = r->region_bytes[PLAN_COMM],
        .feeds_bytes = r->region_bytes[PLAN_FEEDS],
        .total_bytes = r->total_bytes,
        .live_bound_bytes = r->live_bound_bytes,
        .capacity_bytes = r->capacity_bytes,
        .peak_step = r->peak_step,
        .n_kernels = r->n_launches,
        .n_collectives = r->n_collectives,
        .flop = r->flop,
        .product_flop = r->product_flop,
        .model_flop = r->model_flop,
        .bytes_moved = r->bytes_moved,
        .bytes_layout_copied = r->bytes_layout_copied,
        .bytes_recomputed = (double)report->recompute.freed_bytes,
        .flop_recomputed = report->recompute.flop,
        .n_recomputed = report->recompute.n_nodes,
        .n_recomputed_products = report->recompute.n_products,
        .us_recomputed = report->recompute.extra_us,
        .step_us = r->us,
        .forward_us = r->us_forward,
        .backward_us = r->us_backward,
        .optimizer_us = r->us_optimizer,
        .exposed_us = r->us_exposed,
        .peers_us = r->us_peers,
        .link_us = r->us_link,
        .model_utilization = utilization(r, r->model_flop),
        .hardware_utilization = utilization(r, r->flop),
        .compile_us = report->compile_us,
    };
}

int stator_report_memory_at(const stator_report_t *report, size_t index,
                            stator_report_memory_t *out_row) {
    static const char *const regions[PLAN_REGION_END] = {"", "state", "work", "comm", "feeds"};
    if (index >= REPORT_KINDS) return 0;
    report_kind_t kind = (report_kind_t)index;
    *out_row = (stator_report_memory_t){regions[report_kind_region(kind)], report_kind_text(kind),
                                        report->report->kind_bytes[kind]};
    return 1;
}

int stator_report_tensor_at(const stator_report_t *report, size_t index,
                            stator_report_tensor_t *out_row) {
    if (index >= report->report->n_tensors) return 0;
    const report_tensor_t *row = &report->report->tensors[index];
    *out_row = (stator_report_tensor_t){capi_tensor(row->what, &row->type, NULL),
                                        report_kind_text(row->kind), row->from, row->to};
    out_row->tensor.bytes = row->bytes;
    return 1;
}

int stator_report_kernel_at(const stator_report_t *report, size_t index,
                            stator_report_kernel_t *out_row) {
    if (index >= report->report->n_kernels) return 0;
    const report_kernel_t *row = &report->report->kernels[index];
    *out_row = (stator_report_kernel_t){row->name,  row->n_calls,   row->us,      row->flop,
                                        row->bytes, row->memory_us, row->refusals};
    return 1;
}

int stator_report_pass_at(const stator_report_t *report, size_t index,
                          stator_report_pass_t *out_row) {
    if (index >= report->n_passes) return 0;
    *out_row = report->passes[index];
    return 1;
}

int stator_report_fused_at(const stator_report_t *report, size_t index,
                           stator_report_fused_t *out_row) {
    if (index >= report->n_fused) return 0;
    *out_row = report->fused[index];
    return 1;
}

int stator_report_boundary_at(const stator_report_t *report, size_t index,
                              stator_report_boundary_t *out_row) {
    if (index >= report->n_boundaries) return 0;
    *out_row = report->boundaries[index];
    return 1;
}

int stator_report_alternative_at(const stator_report_t *report, size_t index,
                                 stator_report_alternative_t *out_row) {
    if (index >= report->n_alternatives) return 0;
    *out_row = report->alternatives[index];
    return 1;
}
