/* Merging of collectives.
 *
 * Problem: a collective a tensor means that each pays the link's latency. In: a graph with
 * start/wait pairs of one or more operands, an order of its nodes, and groups of starts. Out: the
 * nodes in that order, with one start and one wait a group:
 *
 *   s0 · s1 · · s2 · · w1 · w0 · w2      →      · · · s012 · · w012 · ·
 *
 * The merged start stands where the group's last start stood, the merged wait where its first wait
 * stood, so the order must have no start of a group after a wait of it. Operands stand in the order
 * of the starts. Linear. */
#ifndef STATOR_SCHEDULE_MERGE_H
#define STATOR_SCHEDULE_MERGE_H

#include "ir/graph.h"

/* `group_of` [nodes]: of a start, its group, below `n_groups`; of other nodes anything. Starts of a
 * group are of one op and mesh axis. */
st_status_t sched_merge(const ir_graph_t *graph, const ir_node_t *order, const uint32_t *group_of,
                        uint32_t n_groups, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
