/* What the parts of the lowering to the pipe axis share: who runs what (pipe_nodes.c,
 * pipe_stages.c), sums over stages (pipe_sums.c), the ranks' graphs (pipe_emit.c). */
#ifndef STATOR_SHARD_PIPE_INTERNAL_H
#define STATOR_SHARD_PIPE_INTERNAL_H

#include "base/arena.h"
#include "ir/op.h"
#include "shard/pipe.h"

typedef struct pipe_node {
    bool staged;     /* it has one stage; else it runs anywhere */
    bool of_states;  /* it runs anywhere, made of parameters and buffers alone */
    bool after;      /* staged: behind all passes, as updates are */
    uint8_t pass;    /* staged: pipe_pass_t */
    uint32_t stage;  /* staged */
    uint32_t micro;  /* staged: the last micro-batch that it depends on */
    uint64_t stages; /* stages that its results come by in the forward pass, as bits */
} pipe_node_t;

/* A graph and who runs its nodes. */
typedef struct pipe_nodes {
    const shard_pipe_t *pipe;
    const ir_graph_t *graph;
    uint32_t n_stages;
    bool trains; /* there is a backward pass */
    ir_uses_t uses;
    pipe_node_t *nodes;
    st_arena_t arena;
} pipe_nodes_t;

st_status_t pipe_nodes_open(const shard_pipe_t *pipe, const ir_graph_t *graph,
                            pipe_nodes_t *out_nodes) ST_WARN_UNUSED;
void pipe_nodes_close(pipe_nodes_t *nodes); /* zeroed is fine */

/* Stages of the staged nodes of the forward pass (pipe_stages.c); `micro` and `staged` are
 * there. */
st_status_t pipe_stages_forward(pipe_nodes_t *nodes) ST_WARN_UNUSED;

static inline const pipe_node_t *pipe_producer(const pipe_nodes_t *nodes, ir_value_t v) {
    return &nodes->nodes[nodes->graph->values.data[v].producer];
}
static inline uint32_t pipe_rank(const pipe_nodes_t *nodes, ir_node_t n) {
    return nodes->nodes[n].stage % nodes->pipe->n_ranks;
}
/* A sum over all gradients: each rank has its part of the operands. */
static inline bool pipe_is_joint(const ir_node_info_t *node) {
    return node->op == IR_OP_SUM_SQUARES && node->phase == IR_PHASE_OPTIMIZER;
}

/* Rewrites `graphs` so that sums over several stages are added up stage by stage; *out_any says
 * whether there were any. `graphs` have the nodes of `nodes`. */
st_status_t pipe_sums_split(const pipe_nodes_t *nodes, uint32_t n_graphs, ir_graph_t *const *graphs,
                            ir_graph_t **out_graphs, bool *out_any) ST_WARN_UNUSED;

/* out_graphs[g * ranks + r]. */
st_status_t pipe_emit(const pipe_nodes_t *nodes, const pipe_order_t *order, uint32_t n_graphs,
                      ir_graph_t *const *graphs, ir_graph_t **out_graphs) ST_WARN_UNUSED;

#endif
