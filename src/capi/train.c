/* Training graphs: options of the table into the options of the training-graph builder. */
#include <math.h>
#include <string.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "base/number.h"
#include "capi/capi.h"
#include "compile/capture.h"

typedef ST_VEC(ad_group_t) groups_t;

static st_status_t group_add(groups_t *groups, st_arena_t *arena, const char *pattern,
                             size_t length, ad_group_t group) {
    char *owned = st_arena_alloc(arena, length + 1);
    if (!owned) return st_no_memory(length, "a parameter group");
    memcpy(owned, pattern, length);
    group.pattern = owned;
    return ST_VEC_PUSH(groups, group);
}

/* "norms" and name patterns, separated by commas: groups without decay. */
static st_status_t read_no_decay(const char *text, const ir_graph_t *graph, st_arena_t *arena,
                                 groups_t *groups) {
    for (const char *at = text; *text;) {
        size_t length = strcspn(at, ",");
        if (length == 0)
            return FAIL(ST_INVALID, "option 'no-decay': a pattern in '%s' is empty", text);
        if (length == 5 && strncmp(at, "norms", 5) == 0) {
            size_t n = 0;
            const ad_group_t *small = NULL;
            TRY(ad_no_decay_groups(graph, arena, &n, &small));
            for (size_t i = 0; i < n; i++) TRY(ST_VEC_PUSH(groups, small[i]));
        } else {
            TRY(group_add(groups, arena, at, length,
                          (ad_group_t){.lr_scale = NAN, .weight_decay = 0}));
        }
        if (!at[length]) break;
        at += length + 1;
    }
    return ST_OK;
}

/* The number of a setting "key:NUMBER", finite and ≥ 0. */
static bool read_setting(const char *text, size_t length, const char *key, double *out) {
    size_t head = strlen(key);
    return length > head && strncmp(text, key, head) == 0 &&
           st_double_parse(text + head, length - head, out) && isfinite(*out) && *out >= 0;
}

/* Settings of one group: "lr:0.1,decay:0" or "frozen". What is not set stays NaN. */
static st_status_t read_settings(const char *text, ad_group_t *out) {
    *out = (ad_group_t){.lr_scale = NAN, .weight_decay = NAN};
    for (;; text++) {
        size_t one = strcspn(text, ",;");
        double value;
        bool twice = false;
        if (one == 0)
            return FAIL(ST_INVALID,
                        "option 'groups': a setting is empty: 'lr:FACTOR', 'decay:RATE' or "
                        "'frozen' is needed");
        if (one == 6 && strncmp(text, "frozen", 6) == 0) {
            twice = out->frozen;
            out->frozen = true;
        } else if (read_setting(text, one, "lr:", &value)) {
            twice = !isnan(out->lr_scale);
            out->lr_scale = value;
        } else if (read_setting(text, one, "decay:", &value)) {
            twice = !isnan(out->weight_decay);
            out->weight_decay = value;
        } else {
            return FAIL(ST_INVALID,
                        "option 'groups': '%.*s' is neither 'lr:FACTOR', 'decay:RATE' (finite "
                        "numbers ≥ 0) nor 'frozen'",
                        (int)one, text);
        }
        if (twice)
            return FAIL(ST_INVALID, "option 'groups': '%.*s' sets again what its group has set",
                        (int)one, text);
        text += one;
        if (*text != ',') return ST_OK;
    }
}

/* "PATTERN=settings;…". The first that matches counts, while the builder lets later groups win: so
 * they are handed over in reverse. */
static st_status_t read_groups(const char *text, st_arena_t *arena, groups_t *groups) {
    size_t first = groups->n;
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ";");
        const char *equals = memchr(at, '=', length);
        if (!equals || equals == at)
            return FAIL(ST_INVALID, "option 'groups': '%.*s' has no PATTERN=", (int)length, at);
        ad_group_t group;
        TRY(read_settings(equals + 1, &group));
        TRY(group_add(groups, arena, at, (size_t)(equals - at), group));
        at += length + (at[length] == ';');
    }
    for (size_t i = first, j = groups->n; i + 1 < j; i++) {
        ad_group_t swapped = groups->data[i];
        groups->data[i] = groups->data[--j];
        groups->data[j] = swapped;
    }
    return ST_OK;
}

/* Value of the option that leaves the decay to the optimizer. */
static const double OWN_DECAY = -1;

static const char *loss_name(const st_options_t *table) {
    const char *name = st_options_string(table, "loss");
    return name[0] ? name : NULL;
}

/* What one number must be; `below` NAN: no upper bound. Nothing has been built yet. */
static st_status_t check_number(const char *key, double value, bool zero, double below) {
    bool high = isnan(below) ? !isfinite(value) : !(value < below);
    if (!high && (zero ? value >= 0 : value > 0)) return ST_OK;
    if (isnan(below))
        return FAIL(ST_INVALID, "option '%s' is %g; a finite number %s 0 is needed", key, value,
                    zero ? "≥" : ">");
    return FAIL(ST_INVALID, "option '%s' is %g; it must be %s 0 and below %g", key, value,
                zero ? "≥" : ">", below);
}

/* The options' own names are known here and not to the builder. */
static st_status_t check_options(const ad_train_options_t *o) {
    TRY(check_number("lr", o->lr, true, NAN));
    TRY(check_number("min-lr", o->min_lr, true, NAN));
    TRY(check_number("betas", o->beta1, true, 1));
    TRY(check_number("betas", o->beta2, true, 1));
    TRY(check_number("eps", o->eps, false, NAN));
    TRY(check_number("momentum", o->momentum, true, NAN));
    TRY(check_number("weight-decay", o->weight_decay, true, NAN));
    TRY(check_number("clip", o->clip_norm, true, NAN));
    TRY(check_number("ema", o->ema_decay, true, 1));
    if (o->nesterov && o->momentum == 0)
        return FAIL(ST_INVALID, "option 'nesterov' needs a 'momentum' above 0");
    if (o->min_lr > o->lr)
        return FAIL(ST_INVALID, "option 'min-lr' is %g, above option 'lr', which is %g", o->min_lr,
                    o->lr);
    if (o->total > 0 && o->warmup >= o->total)
        return FAIL(ST_INVALID,
                    "option 'warmup' is %lld with %lld 'steps' in total: fewer steps of warm-up "
                    "than steps are needed",
                    (long long)o->warmup, (long long)o->total);
    if (o->total == 0 && strcmp(o->schedule, "constant") != 0)
        return FAIL(ST_INVALID, "option 'schedule' is %s, which needs the number of 'steps'",
                    o->schedule);
    return ST_OK;
}

static st_status_t read_scaling(const st_options_t *table, ad_scaling_t *out) {
    const char *scale = st_options_string(table, "loss-scale");
    *out = (ad_scaling_t){.skip = st_options_bool(table, "skip-nonfinite")};
    if (strcmp(scale, "off") == 0) return ST_OK;
    if (strcmp(scale, "auto") == 0) {
        out->dynamic = strcmp(st_options_string(table, "dtype"), "f16") == 0;
        out->skip |= out->dynamic;
        return ST_OK;
    }
    if (!st_double_parse(scale, strlen(scale), &out->fixed) || !(out->fixed > 0) ||
        !isfinite(out->fixed))
        return FAIL(ST_INVALID,
                    "option 'loss-scale' is '%s'; auto, off or a finite number > 0 is needed",
                    scale);
    return ST_OK;
}

static st_status_t read_train_options(const st_options_t *table, const ir_graph_t *graph,
                                      st_arena_t *arena, groups_t *groups,
                                      ad_train_options_t *out) {
    TRY(ad_train_defaults(st_options_string(table, "optimizer"), out));
    double betas[3] = {0};
    if (st_options_floats(table, "betas", betas, 3) != 2)
        return FAIL(ST_INVALID, "option 'betas' is '%s', two numbers are needed",
                    st_options_string(table, "betas"));
    TRY(read_no_decay(st_options_string(table, "no-decay"), graph, arena, groups));
    TRY(read_groups(st_options_string(table, "groups"), arena, groups));
    out->lr = st_options_float(table, "lr");
    if (st_options_float(table, "weight-decay") != OWN_DECAY)
        out->weight_decay = st_options_float(table, "weight-decay");
    out->beta1 = betas[0];
    out->beta2 = betas[1];
    out->eps = st_options_float(table, "eps");
    out->momentum = st_options_float(table, "momentum");
    out->nesterov = st_options_bool(table, "nesterov");
    out->clip_norm = st_options_float(table, "clip");
    out->schedule = st_options_string(table, "schedule");
    out->warmup = st_options_int(table, "warmup");
    out->total = st_options_int(table, "steps");
    out->min_lr = st_options_float(table, "min-lr");
    out->ema_decay = st_options_float(table, "ema");
    out->accumulate = st_options_int(table, "accumulate");
    const int64_t micro = st_options_int(table, "microbatches");
    if (micro && st_options_given(table, "accumulate") && micro != out->accumulate)
        return FAIL(
            ST_INVALID,
            "option 'microbatches' is %lld, option 'accumulate' %lld: they are the same, one "
            "of them is enough",
            (long long)micro, (long long)out->accumulate);
    if (micro) out->accumulate = micro;
    out->micro_batch_norm = strcmp(st_options_string(table, "batch-norm"), "micro") == 0;
    TRY(read_scaling(table, &out->scaling));
    out->n_groups = groups->n;
    out->groups = groups->data;
    out->loss = loss_name(table);
    out->gradient_names = st_options_string(table, "fetch");
    out->gradient_outputs = strstr(out->gradient_names, "grad.") != NULL;
    return check_options(out);
}

/* The forward graph in composites. */
static st_status_t capture(const stator_graph_t *graph, const st_options_t *table,
                           ir_graph_t **out) {
    const char *dump = st_options_string(table, "dump");
    ir_graph_t *with_outputs;
    TRY(ir_symbols_need_none(graph->ir));
    TRY(capi_with_fetches(graph->ir, table, false, &with_outputs));
    st_status_t status =
        compile_capture(with_outputs ? with_outputs : graph->ir, dump[0] ? dump : NULL, out);
    ir_graph_destroy(with_outputs);
    return status;
}

stator_status_t stator_graph_make_training(const stator_graph_t *graph,
                                           const stator_options_t *options,
                                           stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(options);
    st_arena_t arena = {0};
    groups_t groups = {0};
    ad_train_options_t train;
    ir_graph_t *forward = NULL, *ir = NULL;
    st_status_t status = read_train_options(options->table, graph->ir, &arena, &groups, &train);
    if (status == ST_OK) status = capture(graph, options->table, &forward);
    if (status == ST_OK) status = ad_train_graph(forward, &train, &ir);
    if (status == ST_OK) status = capi_graph_wrap(ir, out_graph);
    ir_graph_destroy(forward);
    ST_VEC_FREE(&groups);
    st_arena_clear(&arena);
    return capi_status(status);
}

stator_status_t stator_graph_add_gradients(const stator_graph_t *graph,
                                           const stator_options_t *options,
                                           stator_graph_t **out_graph) {
    CAPI_OUT(out_graph);
    CAPI_REQUIRE(graph);
    CAPI_REQUIRE(options);
    ir_graph_t *forward = NULL, *ir = NULL;
    ad_scaling_t scaling;
    st_status_t status = read_scaling(options->table, &scaling);
    /* one step has no second try: the scale that training begins with stays */
    const double scale = status != ST_OK ? 0 : scaling.dynamic ? AD_SCALE_FIRST : scaling.fixed;
    if (status == ST_OK) status = capture(graph, options->table, &forward);
    if (status == ST_OK) status = ad_gradient_graph(forward, loss_name(options->table), scale, &ir);
    if (status == ST_OK) status = capi_graph_wrap(ir, out_graph);
    ir_graph_destroy(forward);
    return capi_status(status);
}
