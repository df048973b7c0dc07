/* Groups: a partition of a graph's nodes that stays acyclic while groups are joined.
 *
 * Two groups may become one where no path leads from one to the other through a third: the third
 * would have to run both after and before the joined group.
 *
 *       a ──► x ──► b      a and b cannot be joined, unless x joins them too
 *       └───────────┘
 *
 * The groups stand in a topological order that each join repairs (Pearce and Kelly, "A dynamic
 * topological sort algorithm for directed acyclic graphs", JEA 2006): only groups between the two
 * are looked at and moved. The search is bounded by GROUPS_SEARCH_EDGES, so that a join takes
 * constant time at most; what lies farther apart is not joined, which is safe.
 *
 * Edges are the data's and those that every order keeps besides (ir/order.h). */
#ifndef STATOR_FUSION_GROUPS_H
#define STATOR_FUSION_GROUPS_H

#include "ir/graph.h"
#include "ir/order.h"

enum { GROUPS_SEARCH_EDGES = 1024 };

typedef uint32_t group_t;

typedef enum groups_verdict {
    GROUPS_FREE = 0, /* may be joined */
    GROUPS_CYCLE,    /* a path leads through a third group */
    GROUPS_FAR,      /* not known: the search came to its bound */
} groups_verdict_t;

typedef ST_VEC(group_t) groups_list_t;

typedef struct groups {
    const ir_graph_t *graph;
    ir_uses_t uses;
    ir_neighbours_t after, before; /* order edges beside the data's */
    group_t *of;                   /* [nodes] */
    ir_node_t *next;               /* [nodes]: next member of the same group, IR_NONE */
    ir_node_t *first, *last;       /* [groups]: members; as many groups as nodes at first */
    uint32_t *size;                /* [groups]: 0 for one that was joined to another */
    uint32_t *position;            /* [groups]: topological */
    uint32_t *seen, now;           /* [groups]: stamp of the search at hand */
    groups_list_t ahead, behind;   /* found by the last search */
    ST_VEC(uint32_t) positions;
} groups_t;

/* Each node alone. */
st_status_t groups_open(const ir_graph_t *graph, groups_t *out_groups) ST_WARN_UNUSED;
void groups_close(groups_t *groups); /* zeroed is fine */

/* Whether a and b may be joined; *out_third is a group on the way for GROUPS_CYCLE. */
st_status_t groups_test(groups_t *groups, group_t a, group_t b, groups_verdict_t *out_verdict,
                        group_t *out_third) ST_WARN_UNUSED;
/* Joins b to a, or a to b, whichever is smaller to the larger; they were found GROUPS_FREE, with no
 * join since. */
st_status_t groups_join(groups_t *groups, group_t a, group_t b, group_t *out_joined) ST_WARN_UNUSED;
/* Number of marked groups, itself included, on the longest way to each node's group: marked groups
 * of one level do not depend on each other, and joining each level's makes no cycle. */
st_status_t groups_levels(const groups_t *groups, const bool *marked,
                          uint32_t *out_level) ST_WARN_UNUSED;
/* Joins `n` groups that do not depend on each other, in one step. Positions then mean nothing until
 * groups_order. */
group_t groups_join_all(groups_t *groups, uint32_t n, const group_t *list);
/* Nodes in an order that keeps groups together and all edges, near the order of the graph; gives
 * the groups their positions in it. ST_INTERNAL if there is a cycle. */
st_status_t groups_order(groups_t *groups, ir_node_t *out_order) ST_WARN_UNUSED;

#endif
