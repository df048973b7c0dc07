/* The pass "recompute" (recompute.h). */
#include "compile/recompute.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "compile/advice.h"
#include "compile/passes.h"
#include "compile/plan_body.h"
#include "compile/report.h"
#include "fusion/unread.h"
#include "ir/body.h"

/* How much longer a step may take to need less memory without being told to, on devices whose
 * memory is what limits models and batches. */
static const double SLACK = 0.02;

static uint64_t program_bytes(const plan_program_t *program) {
    uint64_t bytes = 0;
    for (int r = PLAN_STATE; r < PLAN_REGION_END; r++) bytes += program->region_bytes[r];
    return bytes;
}

uint64_t compile_rank_bytes(const plan_t *plan) {
    uint64_t most = 0;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const uint64_t bytes = program_bytes(&plan->programs[p]);
        if (bytes > most) most = bytes;
    }
    return most;
}

void compile_fit_close(compile_fit_t *fit) {
    recompute_destroy(fit->path);
    if (fit->chosen != fit->like) fuse_decision_destroy(fit->chosen);
    fuse_decision_destroy(fit->like);
    st_free(fit->never);
    st_free(fit->late);
    for (uint32_t p = 0; fit->before && p < fit->n_before; p++) ir_graph_destroy(fit->before[p]);
    st_free(fit->before);
    *fit = (compile_fit_t){0};
}

/* ---- the pass ---- */

static uint64_t limit_of(const compile_context_t *c) {
    return c->options.memory_limit ? c->options.memory_limit : c->target.machine->memory_bytes;
}

static bool has_backward(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->phase != IR_PHASE_FORWARD) return true;
    return false;
}

static uint32_t place_for(const compile_context_t *c, const recompute_t *path) {
    switch (c->options.recompute) {
        case COMPILE_RECOMPUTE_AUTO:
            return recompute_within(path, c->target.machine->memory_bytes ? SLACK : 0);
        case COMPILE_RECOMPUTE_OFF:
            return 0;
        case COMPILE_RECOMPUTE_FUSED:
            return recompute_last_fused(path);
        case COMPILE_RECOMPUTE_FULL:
            return recompute_n_points(path) - 1;
    }
    return 0;
}

/* Takes the programs over, so that they can be had again. */
static st_status_t keep_programs(compile_fit_t *fit, plan_t *plan) {
    fit->before = st_calloc(plan->n_programs, sizeof *fit->before);
    if (!fit->before) return st_no_memory(plan->n_programs * sizeof *fit->before, "the programs");
    fit->n_before = plan->n_programs;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        TRY(fuse_drop_unread(plan->programs[p].graph, &fit->before[p]));
        compile_replace(&plan->programs[p].graph, NULL);
        ir_graph_mark_origins(fit->before[p]);
    }
    return ST_OK;
}

/* ---- keeping the bits of sums ---- */

/* What fusion makes of a program, or of the body of its loop. */
static st_status_t decide_part(const compile_context_t *c, const ir_graph_t *graph,
                               const fuse_decision_t *like, fuse_decision_t **out_decision) {
    const ir_node_t loop = recompute_loop(graph);
    if (loop == IR_NONE) return fuse_decide(graph, &c->target, like, out_decision);
    const ir_region_info_t info = ir_region_info(ir_node(graph, loop));
    ir_graph_t *body;
    *out_decision = NULL;
    TRY(plan_body_graph(info.bodies[0], info.carried, &body));
    st_status_t status = fuse_decide(body, &c->target, like, out_decision);
    ir_graph_destroy(body);
    return status;
}

static size_t n_nodes(const ir_graph_t *graph) {
    const ir_node_t loop = recompute_loop(graph);
    return loop == IR_NONE ? graph->nodes.n
                           : ir_region_info(ir_node(graph, loop)).bodies[0]->nodes.n;
}

/* The decision without recomputation, and what follows from it. */
static st_status_t open_like(compile_context_t *c, uint32_t model) {
    compile_fit_t *fit = &c->fit;
    const ir_graph_t *graph = fit->before[model];
    const size_t n = n_nodes(graph);
    if (!compile_fuses(c)) return ST_OK;
    TRY(decide_part(c, graph, NULL, &fit->like));
    for (uint32_t p = 0; p < fit->n_before && recompute_loop(graph) == IR_NONE; p++)
        if (p != model) TRY(fuse_restrict(fit->like, fit->before[p]));
    fit->never = st_calloc(n + 1, sizeof *fit->never);
    fit->late = st_calloc(n + 1, sizeof *fit->late);
    if (!fit->never || !fit->late) return st_no_memory(n, "the recompute pass");
    fuse_mark_late(fit->like, fit->late);
    return ST_OK;
}

static st_status_t open_path(compile_context_t *c, uint32_t model) {
    compile_fit_t *fit = &c->fit;
    const recompute_rules_t rules = {fit->never, fit->late};
    recompute_t *path;
    TRY(recompute_open(fit->before[model], &c->target, compile_fuses(c), &rules, &path));
    recompute_destroy(fit->path);
    fit->path = path;
    fit->n_paths++;
    return ST_OK;
}

static st_status_t apply_place(compile_context_t *c) {
    compile_fit_t *fit = &c->fit;
    for (uint32_t p = 0; p < c->plan->n_programs; p++) {
        ir_graph_t *made;
        TRY(recompute_apply(fit->path, fit->place, fit->before[p], &made));
        compile_replace(&c->plan->programs[p].graph, made);
        TRY(fuse_drop_unread(c->plan->programs[p].graph, &made));
        compile_replace(&c->plan->programs[p].graph, made);
    }
    return ST_OK;
}

/* Whether fusion leaves the order of all sums; if not, what stands against it must never run
 * again. */
static st_status_t keep_sums(compile_context_t *c, uint32_t model, bool *out_alike) {
    compile_fit_t *fit = &c->fit;
    const ir_graph_t *graph = c->plan->programs[model].graph;
    const bool is_body = recompute_loop(graph) != IR_NONE;
    fuse_decision_t *decision = fit->like;
    size_t n_unlike = 0;
    *out_alike = true;
    if (fit->chosen != fit->like) fuse_decision_destroy(fit->chosen);
    fit->chosen = NULL;
    if (!fit->like) return ST_OK;
    if (fit->place) {
        TRY(decide_part(c, graph, fit->like, &decision));
        const ir_node_t *unlike = fuse_unlike(decision, &n_unlike);
        size_t n_known = 0;
        for (size_t i = 0; i < n_unlike; i++) {
            n_known += fit->never[unlike[i]];
            fit->never[unlike[i]] = true;
        }
        if (n_unlike && n_known == n_unlike) /* none can be told: then nothing runs again */
            memset(fit->never, true, n_nodes(fit->before[model]) * sizeof *fit->never);
    }
    *out_alike = n_unlike == 0;
    if (*out_alike && !is_body)
        fit->chosen = decision;
    else if (decision != fit->like)
        fuse_decision_destroy(decision);
    return ST_OK;
}

/* The first place that keeps no more than `bytes`; the last one if there is none. */
static uint32_t place_keeping(const recompute_t *path, uint64_t bytes) {
    const uint32_t n = recompute_n_points(path);
    uint32_t at = 0;
    while (at + 1 < n && recompute_point(path, at).kept_bytes > bytes) at++;
    return at;
}

st_status_t compile_pass_recompute(compile_context_t *c) {
    compile_fit_t *fit = &c->fit;
    plan_t *plan = c->plan;
    bool alike = false, first = !fit->before;
    if (first && !has_backward(plan->programs[compile_largest_program(plan)].graph)) return ST_OK;
    const uint32_t model = first ? compile_largest_program(plan) : fit->model;
    if (first) {
        fit->model = model;
        TRY(keep_programs(fit, plan));
        TRY(open_like(c, model));
        TRY(open_path(c, model));
        fit->place = place_for(c, fit->path);
    }
    for (;;) {
        TRY(apply_place(c));
        TRY(keep_sums(c, model, &alike));
        if (alike) break;
        const uint64_t kept = recompute_point(fit->path, fit->place).kept_bytes;
        TRY(open_path(c, model));
        fit->place = first ? place_for(c, fit->path) : place_keeping(fit->path, kept);
    }
    recompute_summary_t made;
    TRY(recompute_summarize(fit->path, fit->place, fit->before[model], &c->target, &made));
    plan->recompute = (plan_recompute_t){made.n_nodes, made.n_products,  made.freed_bytes,
                                         made.flop,    made.bytes_moved, made.extra_us};
    return ST_OK;
}

/* ---- fitting ---- */

/* Steps by estimates before corners are tried. */
enum { MAX_ESTIMATES = 8 };

/* The first place after `low` that keeps `missing` bytes less, or one more than there are. A plan
 * may get smaller by more than what it keeps less: what is between is looked at once this one
 * fits. */
static uint32_t next_place(const compile_fit_t *fit, uint32_t low, uint64_t missing) {
    const uint64_t kept = recompute_point(fit->path, low).kept_bytes;
    const uint32_t end = recompute_n_points(fit->path);
    uint32_t at = low + 1;
    while (at < end && kept < recompute_point(fit->path, at).kept_bytes + missing) at++;
    return at;
}

typedef struct fitting {
    compile_context_t *c;
    const compile_pass_t *passes;
    size_t n_passes;
    uint64_t limit, least; /* least: of all that was tried */
    char largest[192];     /* the largest tensor of that, at its fullest moment; "" if not known */
} fitting_t;

static st_status_t does_not_fit(const fitting_t *f) {
    char advice[COMPILE_ADVICE_BYTES] = "", size[2][ST_NUMBER_BYTES];
    if (!f->c->options.no_advice) TRY(compile_advise(f->c, f->limit, advice));
    return FAIL(ST_DOES_NOT_FIT, "a rank needs %s, the memory limit is %s%s%s",
                st_size_text(f->least, size[0]), st_size_text(f->limit, size[1]), f->largest,
                advice);
}

/* Of the program that needs most. */
static st_status_t name_largest(fitting_t *f) {
    const plan_t *plan = f->c->plan;
    uint32_t most = 0;
    uint64_t most_bytes = 0;
    report_t *report;
    char type[IR_TYPE_TEXT_BYTES], size[ST_NUMBER_BYTES];
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const uint64_t bytes = program_bytes(&plan->programs[p]);
        if (bytes <= most_bytes) continue;
        most = p;
        most_bytes = bytes;
    }
    TRY(report_memory(plan, f->c->target.context, most, &report));
    f->largest[0] = '\0';
    if (report->n_tensors) {
        const report_tensor_t *t = &report->tensors[0];
        snprintf(f->largest, sizeof f->largest,
                 "; the largest tensor at its peak is '%.64s', %s, %s", t->what,
                 ir_type_text(&t->type, type, sizeof type), st_size_text(t->bytes, size));
    }
    report_destroy(report);
    return ST_OK;
}

static st_status_t try_place(fitting_t *f, uint32_t place, uint64_t *out_bytes) {
    f->c->fit.place = place;
    TRY(compile_run_passes(f->c, f->passes, f->n_passes));
    *out_bytes = compile_rank_bytes(f->c->plan);
    if (*out_bytes >= f->least) return ST_OK;
    f->least = *out_bytes;
    bool silent = f->c->options.no_advice || !f->limit || *out_bytes <= f->limit;
    return silent ? ST_OK : name_largest(f);
}

/* The first place that fits, of those after `low`, which does not, up to `high`, which does; not
 * *out_found: the places have become others on the way, and the last one does not fit. */
static st_status_t narrow(fitting_t *f, uint32_t low, uint32_t high, bool *out_found) {
    const uint32_t n_paths = f->c->fit.n_paths;
    uint64_t bytes;
    *out_found = true;
    while (high > low + 1) {
        const uint32_t at = low + (high - low) / 2;
        TRY(try_place(f, at, &bytes));
        if (f->c->fit.n_paths != n_paths) {
            *out_found = bytes <= f->limit;
            return ST_OK;
        }
        if (bytes <= f->limit)
            high = at;
        else
            low = at;
    }
    return f->c->fit.place == high ? ST_OK : try_place(f, high, &bytes);
}

/* Where estimates do not get there: the first corner that fits, then between it and `low`. */
static st_status_t search(fitting_t *f, uint32_t low, bool *out_found) {
    const uint32_t n_paths = f->c->fit.n_paths;
    uint32_t high = low, at;
    uint64_t bytes;
    *out_found = false;
    while (!*out_found && (at = recompute_next_corner(f->c->fit.path, high)) != high) {
        if (high != low) low = high;
        high = at;
        TRY(try_place(f, high, &bytes));
        *out_found = bytes <= f->limit;
        if (f->c->fit.n_paths != n_paths) return ST_OK; /* places are others now */
    }
    return *out_found ? narrow(f, low, high, out_found) : ST_OK;
}

/* How far the end of the path, where nothing is kept that can be made again, may be above the limit
 * and a place before it still fit: what is made again takes room, too. Ends were at most 2 % above
 * the least place of their path. For advice, which tries many plans, less is enough. */
static const double ROOM = 0.25, ROOM_ELSEWHERE = 1.0 / 64;

/* Whether the end of the path says that no place will fit. *low, which does not, is of the path as
 * it is then. */
static st_status_t is_hopeless(fitting_t *f, uint32_t *low, bool *out_is) {
    const compile_context_t *c = f->c;
    const uint64_t kept = recompute_point(c->fit.path, *low).kept_bytes;
    const uint32_t last = recompute_n_points(c->fit.path) - 1, n_paths = c->fit.n_paths;
    const double room = c->options.no_advice ? ROOM_ELSEWHERE : ROOM;
    uint64_t bytes;
    *out_is = true;
    if (*low == last) return ST_OK;
    TRY(try_place(f, last, &bytes));
    *out_is = (double)bytes > (1 + room) * (double)f->limit;
    if (c->fit.n_paths != n_paths) *low = place_keeping(c->fit.path, kept);
    return ST_OK;
}

st_status_t compile_run_fitting(compile_context_t *c, const compile_pass_t *passes,
                                size_t n_passes) {
    fitting_t f = {c, passes, n_passes, limit_of(c), UINT64_MAX, ""};
    uint64_t bytes;
    bool found = false, hopeless;
    TRY(try_place(&f, 0, &bytes)); /* the first run chooses its own place */
    if (!f.limit || bytes <= f.limit) return ST_OK;
    if (!c->fit.path) return does_not_fit(&f);
    uint32_t low = c->fit.place;
    TRY(is_hopeless(&f, &low, &hopeless));
    if (hopeless) return does_not_fit(&f);
    for (int i = 0; i < MAX_ESTIMATES; i++) {
        uint32_t at = next_place(&c->fit, low, bytes - f.limit);
        if (at == recompute_n_points(c->fit.path)) break;
        const uint32_t n_paths = c->fit.n_paths;
        TRY(try_place(&f, at, &bytes));
        if (bytes <= f.limit && c->fit.n_paths != n_paths) return ST_OK;
        if (bytes <= f.limit) TRY(narrow(&f, low, at, &found));
        if (found) return ST_OK;
        low = c->fit.place;
    }
    const uint32_t n_paths = c->fit.n_paths;
    TRY(search(&f, low, &found));
    if (found) return ST_OK;
    /* memory need not fall all along the path: what is made again takes room too */
    for (uint32_t at = 0, next; !c->options.no_advice; at = next) {
        next = recompute_next_corner(c->fit.path, at);
        if (next == at || (next > low && c->fit.n_paths == n_paths)) break;
        TRY(try_place(&f, next, &bytes));
        if (bytes <= f.limit) return ST_OK;
    }
    return does_not_fit(&f);
}
