/* From a forward graph with a loss to the graph of one whole training step: forward, backward,
 * gradient norm and clipping, learning rate, optimizer, state updates.
 *
 * State it adds, all buffers that start at zero:
 *   optim.step             i64[]: completed steps; the step now running is this plus 1. The forward
 *                          graph's own is used if it has one (random ops draw by it)
 *   optim.m.<p>            moments of parameter p (adamw, adam), with optim.v.<p>
 *   optim.momentum.<p>     momentum of parameter p (sgd with momentum)
 *   ema.<p>                moving average of parameter p; takes p itself at the first step
 *
 * and with loss scaling or skipping those of loss_scale.h.
 *
 * Outputs it adds: "grad_norm" (global norm before clipping), "lr", "grad.<p>" if asked, and where
 * steps can be skipped "skipped" (i64[]: 1 for this step) and "loss_scale" (this step's). The
 * forward graph's outputs and updates (running statistics) stay. "loss" is thus the loss before the
 * update. */
#ifndef STATOR_AUTODIFF_TRAIN_GRAPH_H
#define STATOR_AUTODIFF_TRAIN_GRAPH_H

#include <math.h>

#include "autodiff/loss_scale.h"
#include "ir/graph.h"

/* Settings of the parameters whose name matches. All matching groups apply in order, later ones
 * win. */
typedef struct ad_group {
    const char *pattern; /* st_glob's, or a parameter's own name */
    double lr_scale;     /* factor on the rate; NAN: no change */
    double weight_decay; /* NAN: no change */
    bool frozen;         /* true: no gradient, no moments, no update, no average */
    bool exact;          /* `pattern` is a name: its * and ? are plain characters */
} ad_group_t;
/* A group that changes nothing yet. */
#define AD_GROUP(pattern_) ((ad_group_t){(pattern_), NAN, NAN, false, false})

typedef struct ad_train_options {
    const char *optimizer; /* "sgd", "adamw" (decoupled decay), "adam" (L2 decay) */
    double lr, weight_decay;
    double beta1, beta2, eps; /* adamw, adam */
    double momentum;          /* sgd */
    bool nesterov;
    double clip_norm; /* 0: off; else gradients are scaled by min(1, clip_norm / (norm + 1e-6)) */
    const char *schedule; /* "constant", "linear", "cosine": formulas in ir/learning_rate.h */
    int64_t warmup, total;
    double min_lr;
    double ema_decay;     /* 0: off */
    ad_scaling_t scaling; /* of the loss, and skipping: loss_scale.h */
    /* Micro-batches a step, in a loop; 1: off. Inputs that carry the batch get a leading dim of
     * this size, and only the loss remains of the forward graph's outputs. */
    int64_t accumulate;
    bool micro_batch_norm; /* accumulate with batch norm: statistics of each micro-batch */
    size_t n_groups;
    const ad_group_t *groups;
    const char *loss;      /* output name; NULL: "loss", or else the only float scalar output */
    bool gradient_outputs; /* "grad.<p>" outputs, before clipping */
    const char *gradient_names; /* only those of "grad.a,x,grad.b"; NULL: of all parameters */
} ad_train_options_t;

/* Defaults of an optimizer (PyTorch's); FAILs listing the known ones. */
st_status_t ad_train_defaults(const char *optimizer,
                              ad_train_options_t *out_options) ST_WARN_UNUSED;

/* Builds the step. `forward` stays as it is. Errors name option, parameter, pattern or node. */
st_status_t ad_train_graph(const ir_graph_t *forward, const ad_train_options_t *options,
                           ir_graph_t **out_graph) ST_WARN_UNUSED;

/* Forward and backward without an optimizer: the forward graph's outputs and updates, and
 * "grad.<p>" for every parameter. `loss` as in the options. The loss's gradient begins at
 * `loss_scale`, by which the gradients are divided at the end, in float32; 0: none. */
st_status_t ad_gradient_graph(const ir_graph_t *forward, const char *loss, double loss_scale,
                              ir_graph_t **out_graph) ST_WARN_UNUSED;

/* The usual groups that keep weight decay off norms and biases: one for each parameter of rank 0 or
 * 1, by its exact name, with weight_decay 0. They live in `arena`. */
st_status_t ad_no_decay_groups(const ir_graph_t *graph, st_arena_t *arena, size_t *out_n,
                               const ad_group_t **out_groups) ST_WARN_UNUSED;

#endif
