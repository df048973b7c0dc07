/* Slots of turns (turns.h). */
#include "schedule/turns.h"

#include "ir/unroll.h"
#include "schedule/dag.h"

static bool is_there_before(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT ||
           ir_op_is_lasting(node->op);
}

static void find_last(const sched_dag_t *dag, ir_graph_t *graph, uint32_t n_turns) {
    for (ir_node_t n = 0; n < dag->n; n++) {
        ir_node_info_t *node = &graph->nodes.data[n];
        const uint32_t taken = ir_turn_taken(graph, node, n_turns);
        node->slot = taken != IR_NONE                    ? taken + 1
                     : node->phase == IR_PHASE_OPTIMIZER ? n_turns + 1
                                                         : 0;
        if (is_there_before(node)) node->slot = 0;
        for (uint32_t e = dag->before.first[n]; e < dag->before.first[n + 1]; e++) {
            const uint32_t before = ir_node(graph, dag->before.to[e])->slot;
            if (before > node->slot) node->slot = before;
        }
    }
}

static void find_first(const sched_dag_t *dag, ir_graph_t *graph, uint32_t n_turns) {
    for (ir_node_t n = dag->n; n-- > 0;) {
        ir_node_info_t *node = &graph->nodes.data[n];
        if (node->slot || is_there_before(node)) continue;
        node->slot = n_turns + 1;
        for (uint32_t e = dag->after.first[n]; e < dag->after.first[n + 1]; e++) {
            const uint32_t after = ir_node(graph, dag->after.to[e])->slot;
            if (after < node->slot) node->slot = after;
        }
    }
}

st_status_t sched_mark_turns(ir_graph_t *graph, uint32_t n_turns) {
    sched_dag_t dag;
    st_status_t status = sched_dag_build(graph, &dag);
    if (status == ST_OK) {
        find_last(&dag, graph, n_turns);
        find_first(&dag, graph, n_turns);
    }
    sched_dag_free(&dag);
    return status;
}
