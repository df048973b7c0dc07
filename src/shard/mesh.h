/* Lowering to all ranks of a mesh: one axis after another (ir/mesh.h has the order), the pipe axis
 * last and in its own way (pipe.h).
 *
 *   global graph ─ tensor ─► graph for tensor 0 ─ data ─► programs of ranks (0,0) (1,0) (2,0)
 *                        └─► graph for tensor 1 ─ data ─► programs of ranks (0,1) (1,1) (2,1)
 *
 * Problem: the graph says what is computed, not where; each rank needs the program of its part, and
 * the ranks' collectives must match.
 * In:  the global program, simplified. Out: a program for each distinct part, those of one stage
 *      with the same nodes in the same order; only sizes, offsets and constants' contents differ.
 *      Together they compute what the global program says; inputs, states and outputs have a
 *      placement by axis.
 * Algorithm: an axis is decided on the largest graph (decide.c: from what is settled beforehand, by
 * a form, pins or a search), and written into every graph that the axes before left (emit.c).
 * Graphs that are equal are found by hash, and made and lowered once: ranks of equal parts cost
 * nothing. Complexity: linear in the nodes times the distinct programs, at most the ranks.
 * Source: placements by mesh axis are those of GSPMD and of PyTorch's DTensor. */
#ifndef STATOR_SHARD_MESH_H
#define STATOR_SHARD_MESH_H

#include "ir/mesh.h"
#include "shard/forms.h"
#include "shard/lower.h"
#include "shard/pipe.h"

/* How the ranks hold a value: by axis. */
typedef struct shard_layout {
    ir_placement_t placements[IR_MAX_AXES];
} shard_layout_t;

typedef struct shard_programs {
    uint32_t n_programs;     /* those of one stage after the other */
    ir_graph_t **graphs;     /* [n_programs], owned unless taken (set to NULL) */
    uint32_t *program_of;    /* [ranks] */
    shard_layout_t *nodes;   /* [nodes of the global graph]: of inputs and states */
    shard_layout_t *outputs; /* [outputs of the global graph] */
} shard_programs_t;

typedef struct shard_mesh_options {
    const ir_mesh_t *mesh;
    shard_form_t form;                 /* of the data axis */
    shard_context_t context_attention; /* of the context axis */
    const char *pins;                  /* what the user asks for (pins.h); NULL: nothing */
    /* Settles an axis in place of the form: `settled` is open for the graph. NULL: the form
     * does. */
    st_status_t (*settle)(void *context, const ir_graph_t *graph, uint32_t axis,
                          shard_settled_t *settled);
    void *settle_context;
    /* Where another plan has a state: [axes], NULL if it has none of the name. Its homes go before
     * those of the form. NULL: there is no such plan. */
    const ir_placement_t *(*home_of)(void *context, const char *name);
    void *context;
    /* Ranks of different classes get programs of their own, though their graphs be equal. NULL: one
     * class. */
    const uint32_t *class_of; /* [ranks] */
    shard_pipe_t pipe;        /* with a pipe axis: all but the axis itself, and who holds states */
} shard_mesh_options_t;

/* What it made before a failure, shard_programs_free frees. */
st_status_t shard_lower_mesh(const ir_graph_t *graph, const shard_mesh_options_t *options,
                             shard_programs_t *out) ST_WARN_UNUSED;
void shard_programs_free(shard_programs_t *programs);

#endif
