/* What training tells as it goes: the line on standard output, JSON lines, TensorBoard's events
 * (progress.h). */
#include "tools/progress.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- opening ---- */

/* What a step has so many of, and what of it the target's products could do. */
static stator_status_t take_rates(const tool_t *tool, progress_t *p, const stator_plan_t *plan) {
    stator_report_t *report;
    TOOL_TRY(stator_report_create(plan, 0, &report));
    tool_warn_of_last_resorts(tool, report);
    stator_report_totals_t totals = stator_report_totals(report);
    p->useful_us = totals.model_utilization * totals.step_us;
    stator_report_destroy(report);
    p->items = tool_items(plan, &p->unit);
    return STATOR_OK;
}

stator_status_t progress_open(const tool_t *tool, const stator_plan_t *plan,
                              const stator_session_t *session, int64_t first_step, int64_t n_steps,
                              progress_t *p) {
    const char *path = tool_text(tool, "log"), *events = tool_text(tool, "tensorboard");
    stator_session_info_t info = stator_session_info(session);
    if (!tool_leads(tool)) path = events = ""; /* files are one process's */
    *p = (progress_t){
        .first_step = first_step,
        .n_steps = n_steps,
        .bytes = info.state_bytes + info.work_bytes + info.comm_bytes + info.feeds_bytes,
        .log_path = path,
        .live = isatty(STDOUT_FILENO)};
    TOOL_TRY(take_rates(tool, p, plan));
    if (path[0]) {
        p->log = fopen(path, tool_text(tool, "resume")[0] ? "a" : "w");
        if (!p->log) return tool_fail(STATOR_IO, "%s: %s", path, strerror(errno));
    }
    return events[0] ? tool_events_create(events, &p->events) : STATOR_OK;
}

void progress_begin(progress_t *p) {
    p->started = tool_seconds();
}

void progress_close(progress_t *p) {
    if (p->log) fclose(p->log);
    tool_events_destroy(p->events);
    *p = (progress_t){0};
}

/* ---- a step ---- */

static double share(const progress_t *p, double us) {
    return us > 0 ? p->useful_us / us : 0;
}

static stator_status_t log_flush(const progress_t *p) {
    if (fflush(p->log) != 0 || ferror(p->log))
        return tool_fail(STATOR_IO, "%s: writing failed: %s", p->log_path, strerror(errno));
    return STATOR_OK;
}

static void log_number(const progress_t *p, const char *key, double value) {
    fprintf(p->log, ",\"%s\":", key);
    tool_json_number(p->log, value);
}

static stator_status_t log_step(const progress_t *p, const progress_step_t *s) {
    if (!p->log) return STATOR_OK;
    fprintf(p->log, "{\"step\":%lld", (long long)s->step);
    log_number(p, "loss", s->loss);
    if (s->grad_norm) log_number(p, "grad_norm", *s->grad_norm);
    if (s->lr) log_number(p, "lr", *s->lr);
    if (s->loss_scale) log_number(p, "loss_scale", *s->loss_scale);
    if (s->counts_skipped) fprintf(p->log, ",\"skipped\":%s", s->skipped ? "true" : "false");
    fprintf(p->log, ",\"step_ms\":%.3f", s->us * 1e-3);
    log_number(p, "rate", s->us > 0 ? p->items / s->us * 1e6 : 0);
    log_number(p, "utilization", share(p, s->us));
    fprintf(p->log, "}\n");
    return log_flush(p);
}

static stator_status_t add_events(const progress_t *p, const progress_step_t *s) {
    if (!p->events) return STATOR_OK;
    TOOL_TRY(tool_events_scalar(p->events, s->step, "train/loss", s->loss));
    if (s->grad_norm)
        TOOL_TRY(tool_events_scalar(p->events, s->step, "train/grad_norm", *s->grad_norm));
    if (s->lr) TOOL_TRY(tool_events_scalar(p->events, s->step, "train/lr", *s->lr));
    if (s->loss_scale)
        TOOL_TRY(tool_events_scalar(p->events, s->step, "train/loss_scale", *s->loss_scale));
    if (s->us > 0)
        TOOL_TRY(tool_events_scalar(p->events, s->step, "speed/rate", p->items / s->us * 1e6));
    TOOL_TRY(tool_events_scalar(p->events, s->step, "speed/step_ms", s->us * 1e-3));
    TOOL_TRY(tool_events_scalar(p->events, s->step, "speed/utilization", share(p, s->us)));
    return tool_events_scalar(p->events, s->step, "memory/rank_bytes", (double)p->bytes);
}

static void show_step(const progress_t *p, const progress_step_t *s) {
    /* the first step compiles kernels and fills caches: the others tell how fast it goes */
    const bool first = s->step == p->first_step + 1;
    double elapsed = first ? s->us * 1e-6 : tool_seconds() - p->stepped;
    double done = first ? 1 : (double)(s->step - p->first_step - 1);
    double rate = elapsed > 0 ? done / elapsed : 0;
    bool last = s->step == p->n_steps;
    int64_t every = p->n_steps < 20 ? 1 : p->n_steps / 20;
    char memory[32];
    if (!p->live && !last && !s->skipped && s->step % every != 0 && s->step != 1) return;
    printf("%sstep %lld/%lld  loss %.4f%s  %.2f steps/s", p->live ? "\r\033[K" : "",
           (long long)s->step, (long long)p->n_steps, s->loss, s->skipped ? "  skipped" : "", rate);
    if (p->items > 1) printf("  %.0f %s", rate * p->items, p->unit);
    printf("  util %.1f %%  %s a rank  %.0f s left%s", 100 * share(p, s->us),
           tool_bytes(p->bytes, memory), rate > 0 ? (double)(p->n_steps - s->step) / rate : 0,
           p->live && !last ? "" : "\n");
    fflush(stdout);
}

stator_status_t progress_step(progress_t *p, const progress_step_t *s) {
    if (s->step == p->first_step + 1) p->stepped = tool_seconds();
    TOOL_TRY(log_step(p, s));
    TOOL_TRY(add_events(p, s));
    show_step(p, s);
    return STATOR_OK;
}

/* ---- an evaluation ---- */

stator_status_t progress_evaluation(const progress_t *p, int64_t step, double loss, double accuracy,
                                    bool final) {
    printf("%sstep %lld  held-out loss %.4f", p->live ? "\r\033[K" : "", (long long)step, loss);
    printf(accuracy >= 0 ? "  accuracy %.2f %%\n" : "\n", 100 * accuracy);
    fflush(stdout);
    if (p->events) {
        TOOL_TRY(tool_events_scalar(p->events, step, "eval/loss", loss));
        if (accuracy >= 0) TOOL_TRY(tool_events_scalar(p->events, step, "eval/accuracy", accuracy));
    }
    if (!p->log) return STATOR_OK;
    fprintf(p->log, "{\"step\":%lld", (long long)step);
    log_number(p, final ? "held_out_loss" : "eval_loss", loss);
    if (accuracy >= 0) fprintf(p->log, ",\"accuracy\":%.17g", accuracy);
    fprintf(p->log, ",\"seconds\":%.3f}\n", tool_seconds() - p->started);
    return log_flush(p);
}
