/* Lowering to the pipe axis (pipe.h): who runs what, sums over stages, the order, the graphs. */
#include "shard/pipe.h"

#include "base/memory.h"
#include "shard/pipe_internal.h"

typedef struct lowering {
    const shard_pipe_t *pipe;
    uint32_t n_graphs, model;
    ir_graph_t **split; /* [graphs]: where sums were split, owned */
    pipe_nodes_t nodes;
    pipe_order_t order;
} lowering_t;

static st_status_t lower(lowering_t *l, ir_graph_t *const *graphs, ir_graph_t **out_graphs) {
    const shard_pipe_t *pipe = l->pipe;
    bool any;
    TRY(pipe_nodes_open(pipe, graphs[l->model], &l->nodes));
    TRY(pipe_sums_split(&l->nodes, l->n_graphs, graphs, l->split, &any));
    if (any) {
        pipe_nodes_close(&l->nodes);
        graphs = l->split;
        TRY(pipe_nodes_open(pipe, graphs[l->model], &l->nodes));
    }
    TRY(pipe_order_make(pipe->n_ranks, pipe->per_rank, pipe->n_micro, pipe->schedule,
                        l->nodes.trains, &l->order));
    return pipe_emit(&l->nodes, &l->order, l->n_graphs, graphs, out_graphs);
}

st_status_t shard_pipe_lower(const shard_pipe_t *pipe, uint32_t n_graphs, ir_graph_t *const *graphs,
                             uint32_t model, ir_graph_t **out_graphs) {
    lowering_t l = {.pipe = pipe, .n_graphs = n_graphs, .model = model};
    if (pipe->n_ranks * pipe->per_rank > IR_MAX_HOLDERS)
        return FAIL(ST_UNSUPPORTED,
                    "%u stages on each of %u ranks of a pipeline: at most %d stages",
                    pipe->per_rank, pipe->n_ranks, IR_MAX_HOLDERS);
    l.split = st_calloc(n_graphs, sizeof *l.split);
    if (!l.split) return st_no_memory(n_graphs * sizeof *l.split, "a pipeline");
    st_status_t status = lower(&l, graphs, out_graphs);
    for (uint32_t g = 0; g < n_graphs; g++) ir_graph_destroy(l.split[g]);
    st_free(l.split);
    pipe_nodes_close(&l.nodes);
    pipe_order_free(&l.order);
    return status;
}
