/* What recomputation weighs (recompute.h): which nodes may run again, what that takes, and what it
 * takes to keep a value. */
#ifndef STATOR_FUSION_RECOMPUTE_MODEL_H
#define STATOR_FUSION_RECOMPUTE_MODEL_H

#include "fusion/recompute.h"

/* How far recomputation may go. */
typedef enum remat_level {
    REMAT_FUSED = 0, /* what loop nests take in */
    REMAT_ALL,       /* products, convolutions, attention and the like too */
    REMAT_NEVER,
} remat_level_t;

/* What stands for one forward node. Times are in picoseconds: capacities are whole numbers. */
typedef struct remat_node {
    bool backward; /* runs in or after the backward pass; nothing below is set */
    bool used;     /* backward nodes read it, or what comes from it */
    bool soft;     /* a loop nest takes it in */
    bool view;
    bool reduces;  /* its results are small beside what it reads: they are kept */
    uint8_t level; /* remat_level_t: from which on it may run again */
    uint64_t again_ps;
} remat_node_t;

typedef struct remat_value {
    bool needed;    /* a backward node reads it */
    bool small;     /* a statistic: kept even where its node runs again */
    uint64_t bytes; /* that keeping it takes; 0: it is there anyway */
    uint64_t keep_ps;
} remat_value_t;

typedef struct remat_model {
    const ir_graph_t *graph;
    ir_uses_t uses;
    remat_node_t *nodes;
    remat_value_t *values;
    uint64_t step_ps; /* that the step takes at least: nodes that no loop nest takes in, and what
                       * nests read from them and write for them */
} remat_model_t;

/* `body`: the graph is one, its inputs are there whatever is kept. */
st_status_t remat_model_open(const ir_graph_t *graph, const ir_target_t *target, bool fuses,
                             bool body, const recompute_rules_t *rules,
                             remat_model_t *out_model) ST_WARN_UNUSED;
void remat_model_close(remat_model_t *model); /* zeroed is fine */

/* Appends copies of the nodes that run again, each before the first backward node that reads it.
 * `graph` differs from the model's in sizes only. */
st_status_t remat_copy(const remat_model_t *model, const bool *again, const ir_graph_t *graph,
                       ir_graph_t **out_graph) ST_WARN_UNUSED;

/* Marks the nodes that run in or after the backward pass: those of later phases or in `late` (NULL:
 * no others), and what reads them. */
void remat_mark_backward(const ir_graph_t *graph, const bool *late, bool *out_backward);

#endif
