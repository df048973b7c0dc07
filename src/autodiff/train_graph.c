/* Assembly of the training step. See train_graph.h for what it adds.
 *
 * Gradients are used as the backward pass leaves them: clipping and the division by the
 * micro-batches' count are one scalar that the optimizer nodes multiply by, so no gradient is read
 * and written once more. */
#include "autodiff/train_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autodiff/backward.h"
#include "base/words.h"
#include "ir/build.h"
#include "ir/learning_rate.h"
#include "ir/op.h"

/* Micro-batches are unrolled, and each one's sweep passes over the graph so far. */
enum { NAME_BYTES = 1024 };

/* What the groups make of one parameter. */
typedef struct setting {
    const char *name;
    double lr_scale, weight_decay;
} setting_t;

typedef struct train {
    const ad_train_options_t *options;
    ad_backward_t *backward;
    const setting_t *settings;
    ir_build_t b;
    ir_value_t step, lr;
    ir_value_t apply;              /* bool[]: the step counts; IR_NONE: always */
    ir_value_t scale;              /* what gradients are multiplied by; IR_NONE: 1 */
    ir_value_t cast[IR_DTYPE_END]; /* `scale` by dtype */
} train_t;

/* ---- optimizers ---- */

typedef struct optimizer {
    const char *name;
    double lr, weight_decay; /* defaults */
    /* Appends the update of parameter i; returns its new value. */
    ir_value_t (*apply)(train_t *t, size_t i);
} optimizer_t;

static ir_value_t apply_sgd(train_t *t, size_t i);
static ir_value_t apply_adamw(train_t *t, size_t i);
static ir_value_t apply_adam(train_t *t, size_t i);

static const optimizer_t optimizers[] = {
    {"sgd", 1e-3, 0, apply_sgd},
    {"adamw", 1e-3, 0.01, apply_adamw},
    {"adam", 1e-3, 0, apply_adam},
};

static st_status_t find_optimizer(const char *name, const optimizer_t **out_optimizer) {
    *out_optimizer = NULL;
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++)
        if (name && strcmp(optimizers[i].name, name) == 0) {
            *out_optimizer = &optimizers[i];
            return ST_OK;
        }
    return FAIL(ST_INVALID, "optimizer '%s' is not known: sgd, adamw or adam", name ? name : "");
}

static ir_value_t add_buffer(train_t *t, const char *prefix, const char *name, ir_type_t type) {
    return ad_new_state(&t->b, prefix, name, type);
}

static ir_value_t rate_of(train_t *t, size_t i) {
    double factor = t->settings[i].lr_scale;
    return factor == 1 ? t->lr : ir_b_scale(&t->b, t->lr, factor);
}

static ir_value_t scale_for(train_t *t, ir_dtype_t dtype) {
    if (t->b.status == ST_OK && t->cast[dtype] == IR_NONE)
        t->cast[dtype] =
            t->scale == IR_NONE ? ir_b_scalar(&t->b, dtype, 1) : ir_b_cast(&t->b, t->scale, dtype);
    return t->cast[dtype];
}

static ir_value_t apply_sgd(train_t *t, size_t i) {
    const ad_train_options_t *o = t->options;
    const ir_value_t p = t->backward->params[i], g = t->backward->grads[i];
    const ir_type_t type = *ir_b_type(&t->b, p);
    const bool momentum = o->momentum != 0;
    ir_value_t in[6] = {p, g, rate_of(t, i), scale_for(t, type.dtype), IR_NONE, IR_NONE};
    uint32_t n = 4;
    if (momentum) in[n++] = add_buffer(t, "optim.momentum.", t->settings[i].name, type);
    if (t->apply != IR_NONE) in[n++] = t->apply;
    ir_value_t out = ir_b_node(
        &t->b, IR_OP_SGD, n, in, 3,
        (ir_arg_t[]){IR_ARG_FLOAT("momentum", o->momentum), IR_ARG_BOOL("nesterov", o->nesterov),
                     IR_ARG_FLOAT("weight_decay", t->settings[i].weight_decay)});
    ir_b_update(&t->b, p, out);
    if (momentum) ir_b_update(&t->b, in[4], out + 1);
    return out;
}

static ir_value_t apply_moments(train_t *t, size_t i, bool decoupled) {
    const ad_train_options_t *o = t->options;
    const ir_value_t p = t->backward->params[i], g = t->backward->grads[i];
    const ir_type_t type = *ir_b_type(&t->b, p);
    ir_value_t m = add_buffer(t, "optim.m.", t->settings[i].name, type);
    ir_value_t v = add_buffer(t, "optim.v.", t->settings[i].name, type);
    ir_value_t out = ir_b_node(
        &t->b, IR_OP_ADAMW, t->apply == IR_NONE ? 7 : 8,
        (ir_value_t[]){p, g, m, v, rate_of(t, i), t->step, scale_for(t, type.dtype), t->apply}, 5,
        (ir_arg_t[]){IR_ARG_FLOAT("beta1", o->beta1), IR_ARG_FLOAT("beta2", o->beta2),
                     IR_ARG_FLOAT("eps", o->eps),
                     IR_ARG_FLOAT("weight_decay", t->settings[i].weight_decay),
                     IR_ARG_BOOL("decoupled", decoupled)});
    ir_b_update(&t->b, p, out);
    ir_b_update(&t->b, m, out + 1);
    ir_b_update(&t->b, v, out + 2);
    return out;
}
static ir_value_t apply_adamw(train_t *t, size_t i) {
    return apply_moments(t, i, true);
}
static ir_value_t apply_adam(train_t *t, size_t i) {
    return apply_moments(t, i, false);
}

/* ---- options and groups ---- */

st_status_t ad_train_defaults(const char *optimizer, ad_train_options_t *out_options) {
    const optimizer_t *row;
    *out_options = (ad_train_options_t){0};
    TRY(find_optimizer(optimizer, &row));
    *out_options = (ad_train_options_t){.optimizer = row->name,
                                        .lr = row->lr,
                                        .weight_decay = row->weight_decay,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8,
                                        .schedule = "constant",
                                        .accumulate = 1};
    return ST_OK;
}

static st_status_t check_options(const ad_train_options_t *o, ir_rate_t *out_rate) {
    *out_rate =
        (ir_rate_t){.base = o->lr, .min = o->min_lr, .warmup = o->warmup, .total = o->total};
    TRY(ir_rate_kind_parse(o->schedule, &out_rate->kind));
    TRY(ir_rate_check(out_rate));
    if (!(o->weight_decay >= 0 && isfinite(o->weight_decay)))
        return FAIL(ST_INVALID, "weight decay is %g, a finite number ≥ 0 is needed",
                    o->weight_decay);
    if (!(o->clip_norm >= 0 && isfinite(o->clip_norm)))
        return FAIL(ST_INVALID, "clip_norm is %g, a finite number ≥ 0 is needed (0: off)",
                    o->clip_norm);
    if (!(o->ema_decay >= 0 && o->ema_decay < 1))
        return FAIL(ST_INVALID, "ema_decay is %g, 0 ≤ decay < 1 is needed (0: off)", o->ema_decay);
    if (!(o->scaling.fixed >= 0 && isfinite(o->scaling.fixed)))
        return FAIL(ST_INVALID, "the loss scale is %g, a finite number > 0 is needed (0: off)",
                    o->scaling.fixed);
    if (o->scaling.dynamic && (o->scaling.fixed != 0 || !o->scaling.skip))
        return FAIL(
            ST_INVALID,
            "a dynamic loss scale excludes a fixed one and needs steps that can be skipped");
    if (o->accumulate < 1)
        return FAIL(ST_INVALID, "accumulate is %lld, at least one micro-batch is needed",
                    (long long)o->accumulate);
    return ST_OK;
}

static bool group_matches(const ad_group_t *group, const char *name) {
    return group->exact ? strcmp(group->pattern, name) == 0 : st_glob(group->pattern, name);
}

/* Applies the groups to the parameters of `forward`; arrays have one entry a parameter. */
static st_status_t apply_groups(const ir_graph_t *forward, const ad_train_options_t *o,
                                setting_t *settings, bool *frozen) {
    size_t n = 0;
    for (size_t i = 0; i < forward->nodes.n; i++)
        if (forward->nodes.data[i].op == IR_OP_PARAMETER)
            settings[n++] = (setting_t){forward->nodes.data[i].name, 1, o->weight_decay};
    for (size_t g = 0; g < o->n_groups; g++) {
        const ad_group_t *group = &o->groups[g];
        bool used = false;
        for (size_t i = 0; i < n; i++) {
            if (!group_matches(group, settings[i].name)) continue;
            used = true;
            if (!isnan(group->lr_scale)) settings[i].lr_scale = group->lr_scale;
            if (!isnan(group->weight_decay)) settings[i].weight_decay = group->weight_decay;
            frozen[i] |= group->frozen;
        }
        if (!used)
            return FAIL(ST_INVALID, "parameter group '%s' matches none of the %zu parameters",
                        group->pattern, n);
        /* NaN: not set */
        if (isinf(group->lr_scale) || group->lr_scale < 0)
            return FAIL(ST_INVALID, "parameter group '%s': the rate's factor is %g, %s",
                        group->pattern, group->lr_scale, "a finite number ≥ 0 is needed");
        if (isinf(group->weight_decay) || group->weight_decay < 0)
            return FAIL(ST_INVALID, "parameter group '%s': weight decay is %g, %s", group->pattern,
                        group->weight_decay, "a finite number ≥ 0 is needed");
    }
    return ST_OK;
}

st_status_t ad_no_decay_groups(const ir_graph_t *graph, st_arena_t *arena, size_t *out_n,
                               const ad_group_t **out_groups) {
    *out_n = 0;
    *out_groups = NULL;
    ad_group_t *groups = st_arena_array(arena, graph->nodes.n, sizeof *groups);
    size_t n = 0;
    if (!groups) return st_no_memory(graph->nodes.n * sizeof *groups, "parameter groups");
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (node->op != IR_OP_PARAMETER || ir_value_type(graph, node->first_output)->rank > 1)
            continue;
        const char *name = st_arena_strdup(arena, node->name);
        if (!name) return st_no_memory(strlen(node->name), "parameter groups");
        groups[n++] = (ad_group_t){name, NAN, 0, false, true};
    }
    *out_n = n;
    *out_groups = groups;
    return ST_OK;
}

/* ---- loss ---- */

static bool is_loss(const ir_graph_t *graph, ir_value_t value) {
    const ir_type_t *type = ir_value_type(graph, value);
    return ir_dtype_is_float(type->dtype) && type->rank == 0;
}

static st_status_t find_loss(const ir_graph_t *graph, const char *name, size_t *out_output) {
    char list[600] = "";
    size_t used = 0, n_scalars = 0, only = 0;
    *out_output = 0;
    if (graph->outputs.n == 0)
        return FAIL(ST_NOT_FOUND, "the graph has no outputs: one is needed, the loss");
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const ir_output_t *output = &graph->outputs.data[i];
        char text[IR_TYPE_TEXT_BYTES];
        if (strcmp(output->name, name ? name : "loss") == 0) {
            if (!is_loss(graph, output->value))
                return FAIL(ST_INVALID, "output '%s' is %s, a loss is a float scalar", output->name,
                            ir_type_text(ir_value_type(graph, output->value), text, sizeof text));
            *out_output = i;
            return ST_OK;
        }
        if (is_loss(graph, output->value)) n_scalars++, only = i;
        if (used < sizeof list)
            used += (size_t)snprintf(
                list + used, sizeof list - used, "%s%s %s", i ? ", " : "", output->name,
                ir_type_text(ir_value_type(graph, output->value), text, sizeof text));
    }
    if (name) return FAIL(ST_NOT_FOUND, "there is no output '%s'; outputs: %s", name, list);
    if (n_scalars != 1)
        return FAIL(
            ST_NOT_FOUND,
            "no output is named 'loss' and %zu are float scalars: name the loss; outputs: %s",
            n_scalars, list);
    *out_output = only;
    return ST_OK;
}

/* ---- assembly ---- */

/* Norm of all gradients together, before clipping; in the widest of their types, f32 at least. */
static ir_value_t add_grad_norm(train_t *t) {
    ad_backward_t *back = t->backward;
    ir_value_t sum = IR_NONE;
    ir_dtype_t widest = IR_F32;
    ir_value_t *group = st_calloc(back->n, sizeof *group);
    if (!group) {
        t->b.status = st_no_memory(back->n * sizeof *group, "the gradient norm");
        return IR_NONE;
    }
    for (size_t i = 0; i < back->n; i++)
        if (back->grads[i] != IR_NONE && ir_b_type(&t->b, back->grads[i])->dtype == IR_F64)
            widest = IR_F64;
    for (int dtype = 1; dtype < IR_DTYPE_END; dtype++) {
        uint32_t n = 0;
        for (size_t i = 0; i < back->n; i++)
            if (back->grads[i] != IR_NONE &&
                ir_b_type(&t->b, back->grads[i])->dtype == (ir_dtype_t)dtype)
                group[n++] = back->grads[i];
        if (n == 0) continue;
        ir_value_t part =
            ir_b_cast(&t->b, ir_b_node(&t->b, IR_OP_SUM_SQUARES, n, group, 0, NULL), widest);
        sum = sum == IR_NONE ? part : ir_b_binary(&t->b, IR_OP_ADD, sum, part);
    }
    st_free(group);
    ir_value_t norm = ir_b_unary(&t->b, IR_OP_SQRT, sum);
    if (t->options->scaling.skip) /* NaN compares false */
        t->apply = ir_b_binary(&t->b, IR_OP_LT, norm, ir_b_scalar(&t->b, widest, INFINITY));
    if (back->scale.scale != IR_NONE)
        norm = ir_b_binary(&t->b, IR_OP_DIV, norm, ir_b_cast(&t->b, back->scale.scale, widest));
    if (back->divisor != IR_NONE)
        norm = ir_b_binary(&t->b, IR_OP_DIV, norm, ir_b_cast(&t->b, back->divisor, widest));
    return norm;
}

/* The factor on all gradients: clipping, and the divisions that micro-batches and loss scaling left
 * open. */
static void add_scale(train_t *t, ir_value_t norm) {
    const double limit = t->options->clip_norm;
    const ir_value_t divisors[2] = {t->backward->divisor, t->backward->scale.scale};
    ir_dtype_t dtype = ir_b_type(&t->b, norm)->dtype;
    if (limit > 0) {
        ir_value_t room = ir_b_binary(&t->b, IR_OP_DIV, ir_b_scalar(&t->b, dtype, limit),
                                      ir_b_add_scalar(&t->b, norm, 1e-6));
        t->scale = ir_b_binary(&t->b, IR_OP_MINIMUM, room, ir_b_scalar(&t->b, dtype, 1));
    }
    for (int i = 0; i < 2; i++) {
        if (divisors[i] == IR_NONE) continue;
        ir_value_t by = ir_b_cast(&t->b, divisors[i], dtype);
        ir_value_t over = t->scale == IR_NONE ? ir_b_scalar(&t->b, dtype, 1) : t->scale;
        t->scale = ir_b_binary(&t->b, IR_OP_DIV, over, by);
    }
}

/* All gradients, or those that the list of names has as grad.<name>. */
static bool is_asked_for(const train_t *t, const char *parameter) {
    const char *list = t->options->gradient_names;
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ",");
        if (n > 5 && strncmp(at, "grad.", 5) == 0 && strlen(parameter) == n - 5 &&
            strncmp(at + 5, parameter, n - 5) == 0)
            return true;
    }
    return !list;
}

static void add_gradient_outputs(train_t *t) {
    const ad_backward_t *back = t->backward;
    for (size_t i = 0; i < back->n; i++) {
        char name[NAME_BYTES];
        ir_value_t grad = back->grads[i];
        if (grad == IR_NONE || t->b.status != ST_OK) continue;
        if (!is_asked_for(t, t->settings[i].name)) continue;
        const ir_value_t divisors[2] = {back->divisor, back->scale.scale};
        for (int d = 0; d < 2; d++)
            if (divisors[d] != IR_NONE)
                grad = ir_b_binary(&t->b, IR_OP_DIV, grad,
                                   ir_b_cast(&t->b, divisors[d], ir_b_type(&t->b, grad)->dtype));
        int length = snprintf(name, sizeof name, "grad.%s", t->settings[i].name);
        if (length < 0 || (size_t)length >= sizeof name)
            t->b.status = FAIL(ST_DOES_NOT_FIT, "the name 'grad.%.60s…' is longer than %d bytes",
                               t->settings[i].name, NAME_BYTES - 1);
        ir_b_output(&t->b, name, grad);
    }
}

/* `made` where the step counts, else `old`. */
static ir_value_t applied(train_t *t, ir_value_t made, ir_value_t old) {
    return t->apply == IR_NONE ? made : ir_b_select(&t->b, t->apply, made, old);
}

/* average' = decay * average + (1 - decay) * p', and p' itself at the first step. */
static void add_average(train_t *t, size_t i, ir_value_t first, ir_value_t updated) {
    const double decay = t->options->ema_decay;
    ir_value_t average =
        add_buffer(t, "ema.", t->settings[i].name, *ir_b_type(&t->b, t->backward->params[i]));
    ir_value_t mixed = ir_b_binary(&t->b, IR_OP_ADD, ir_b_scale(&t->b, average, decay),
                                   ir_b_scale(&t->b, updated, 1 - decay));
    ir_b_update(&t->b, average, applied(t, ir_b_select(&t->b, first, updated, mixed), average));
}

/* The counter of completed steps: the forward graph's own, where random ops already use it, or a
 * new one. */
static ir_value_t step_counter(train_t *t) {
    const ir_type_t type = ir_type_scalar(IR_I64);
    ir_node_t found = t->b.status == ST_OK ? ir_graph_find(t->b.graph, "optim.step") : IR_NONE;
    if (found == IR_NONE) return add_buffer(t, "optim.", "step", type);
    const ir_node_info_t *node = ir_node(t->b.graph, found);
    if (node->op != IR_OP_BUFFER || !ir_type_equal(ir_b_type(&t->b, node->first_output), &type)) {
        t->b.status = FAIL(ST_INVALID,
                           "'optim.step' is the step counter, an i64[] buffer; the model has "
                           "%s of this name",
                           ir_node_label(t->b.graph, found));
        return IR_NONE;
    }
    return node->first_output;
}

static st_status_t add_optimizer(train_t *t, const optimizer_t *optimizer, const ir_rate_t *rate) {
    const ad_train_options_t *o = t->options;
    ir_build_t *b = &t->b;
    ir_value_t norm = add_grad_norm(t);
    add_scale(t, norm);
    ir_value_t done = step_counter(t);
    t->step = ir_b_add_scalar(b, done, 1);
    ir_b_update(b, done, applied(t, t->step, done));
    t->lr =
        ir_b_node(b, IR_OP_LR_SCHEDULE, 1, &t->step, 5,
                  (ir_arg_t[]){IR_ARG_STRING("kind", o->schedule), IR_ARG_FLOAT("base", rate->base),
                               IR_ARG_INT("warmup", rate->warmup), IR_ARG_INT("total", rate->total),
                               IR_ARG_FLOAT("min", rate->min)});
    ir_value_t first = IR_NONE;
    if (o->ema_decay > 0)
        first =
            ir_b_binary(b, IR_OP_EQ, t->step,
                        ir_b_constant(b, ir_type_scalar(IR_I64), &(int64_t){1}, sizeof(int64_t)));
    for (size_t i = 0; b->status == ST_OK && i < t->backward->n; i++) {
        if (t->backward->grads[i] == IR_NONE) continue;
        ir_value_t updated = optimizer->apply(t, i);
        if (o->ema_decay > 0) add_average(t, i, first, updated);
        if (b->status != ST_OK)
            return st_error_context(b->status, "parameter '%s'", t->settings[i].name);
    }
    ir_b_output(b, "grad_norm", norm);
    ir_b_output(b, "lr", t->lr);
    if (t->apply != IR_NONE) ad_loss_scale_close(b, &t->backward->scale, t->apply);
    return b->status;
}

/* Forward, backward and, with an optimizer, the update. */
static st_status_t build(const ir_graph_t *forward, const ad_train_options_t *o,
                         const optimizer_t *optimizer, const ir_rate_t *rate,
                         ir_graph_t **out_graph) {
    *out_graph = NULL;
    size_t which;
    TRY(find_loss(forward, o->loss, &which));
    const ir_output_t loss = forward->outputs.data[which];
    ad_backward_t back = {.divisor = IR_NONE};
    st_status_t status = ST_OK;
    setting_t *settings = st_calloc(forward->nodes.n, sizeof *settings);
    bool *frozen = st_calloc(forward->nodes.n, sizeof *frozen);
    if (!settings || !frozen) TRY_GOTO(st_no_memory(0, "parameter groups"), done);
    TRY_GOTO(apply_groups(forward, o, settings, frozen), done);
    if (o->accumulate > 1)
        TRY_GOTO(ad_backward_micro(forward, loss.value, loss.name, frozen, &o->scaling,
                                   o->accumulate, o->micro_batch_norm, &back),
                 done);
    else
        TRY_GOTO(ad_backward_whole(forward, loss.value, frozen, &o->scaling, &back), done);
    train_t t = {.options = o,
                 .backward = &back,
                 .settings = settings,
                 .b = {.graph = back.graph},
                 .apply = IR_NONE,
                 .scale = IR_NONE};
    for (int i = 0; i < IR_DTYPE_END; i++) t.cast[i] = IR_NONE;
    back.graph->phase = IR_PHASE_BACKWARD;
    if (o->gradient_outputs) add_gradient_outputs(&t);
    TRY_GOTO(t.b.status, done);
    back.graph->phase = IR_PHASE_OPTIMIZER;
    if (optimizer) TRY_GOTO(add_optimizer(&t, optimizer, rate), done);
    back.graph->phase = IR_PHASE_FORWARD;
    if (t.apply != IR_NONE)
        TRY_GOTO(ad_guard_updates(back.graph, t.apply, out_graph), done);
    else
        *out_graph = back.graph, back.graph = NULL;
done:
    ad_backward_free(&back);
    st_free(settings);
    st_free(frozen);
    return status;
}

st_status_t ad_train_graph(const ir_graph_t *forward, const ad_train_options_t *options,
                           ir_graph_t **out_graph) {
    const optimizer_t *optimizer;
    ir_rate_t rate;
    *out_graph = NULL;
    TRY(find_optimizer(options->optimizer, &optimizer));
    TRY(check_options(options, &rate));
    return build(forward, options, optimizer, &rate, out_graph);
}

st_status_t ad_gradient_graph(const ir_graph_t *forward, const char *loss, double loss_scale,
                              ir_graph_t **out_graph) {
    const ad_train_options_t options = {
        .loss = loss, .accumulate = 1, .gradient_outputs = true, .scaling = {.fixed = loss_scale}};
    return build(forward, &options, NULL, NULL, out_graph);
}
