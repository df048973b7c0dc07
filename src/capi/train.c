/* Training graphs: options of the table into the options of the training-graph builder. */
#include <math.h>
#include <string.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "base/number.h"
#include "capi/capi.h"

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
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        if (length == 5 && strncmp(at, "norms", 5) == 0) {
            size_t n = 0;
            const ad_group_t *small = NULL;
            TRY(ad_no_decay_groups(graph, arena, &n, &small));
            for (size_t i = 0; i < n; i++) TRY(ST_VEC_PUSH(groups, small[i]));
        } else if (length > 0) {
            TRY(group_add(groups, arena, at, length,
                          (ad_group_t){.lr_scale = NAN, .weight_decay = 0}));
        }
        at += length + (at[length] == ',');
    }
    return ST_OK;
}

/* Settings of one group: "lr:0.1,decay:0" or "frozen". */
static st_status_t read_settings(const char *text, size_t length, ad_group_t *out) {
    *out = (ad_group_t){.lr_scale = NAN, .weight_decay = NAN};
    const char *end = text + length;
    while (text < end) {
        size_t one = strcspn(text, ",;");
        bool known = false;
        if (one == 6 && strncmp(text, "frozen", 6) == 0)
            out->frozen = known = true;
        else if (one > 3 && strncmp(text, "lr:", 3) == 0)
            known = st_double_parse(text + 3, one - 3, &out->lr_scale);
        else if (one > 6 && strncmp(text, "decay:", 6) == 0)
            known = st_double_parse(text + 6, one - 6, &out->weight_decay);
        if (!known || out->lr_scale < 0 || out->weight_decay < 0)
            return FAIL(ST_INVALID,
                        "option 'groups': '%.*s' is neither 'lr:FACTOR', 'decay:RATE' nor 'frozen'",
                        (int)one, text);
        text += one + (text + one < end);
    }
    return ST_OK;
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
        TRY(read_settings(equals + 1, length - (size_t)(equals + 1 - at), &group));
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
    out->micro_batch_norm = strcmp(st_options_string(table, "batch-norm"), "micro") == 0;
    out->n_groups = groups->n;
    out->groups = groups->data;
    out->loss = loss_name(table);
    return ST_OK;
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
    ir_graph_t *ir = NULL;
    st_status_t status = read_train_options(options->table, graph->ir, &arena, &groups, &train);
    if (status == ST_OK) status = ad_train_graph(graph->ir, &train, &ir);
    if (status == ST_OK) status = capi_graph_wrap(ir, out_graph);
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
    ir_graph_t *ir = NULL;
    st_status_t status = ad_gradient_graph(graph->ir, loss_name(options->table), &ir);
    return capi_status(status == ST_OK ? capi_graph_wrap(ir, out_graph) : status);
}
