/* Minimum cut of a directed network.
 *
 * Problem: vertices are to be put on the side of a source or of a sink; an arc costs its capacity
 * where it leads from the source's side to the sink's. Find the sides that cost least.
 *
 * Algorithm: maximum flow by Dinic (blocking flows on levels of equal distance), on arrays: arc i
 * and its reverse are 2i and 2i + 1, a depth-first walk without recursion keeps one current arc a
 * vertex. O(vertices² · arcs), near linear on networks of a few layers. Capacities are whole
 * numbers; an infinite one counts as one more than all finite ones together, so that nothing can
 * overflow and a cut through it is known as one that is none.
 *
 * Of all least cuts the one with the fewest vertices on the sink's side is given. It is unique, so
 * the result depends on neither the order of the arcs nor that of the vertices, and what looks the
 * same is decided the same.
 *
 * Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
 * estimation", Soviet Math. Doklady 11, 1970. */
#ifndef STATOR_BASE_FLOW_H
#define STATOR_BASE_FLOW_H

#include "base/status.h"
#include "base/vec.h"

#define ST_FLOW_INFINITE UINT64_MAX
/* Finite capacities together. */
#define ST_FLOW_LIMIT ((uint64_t)1 << 61)

typedef struct st_flow_arc {
    uint32_t from, to;
    uint64_t capacity;
} st_flow_arc_t;

typedef struct st_flow {
    uint32_t n;
    ST_VEC(st_flow_arc_t) arcs;
} st_flow_t;

void st_flow_open(uint32_t n_vertices, st_flow_t *out_flow);
void st_flow_close(st_flow_t *flow); /* zeroed is fine */
/* A capacity of 0 is fine, and so are several arcs between two vertices. `*out_arc`, where not
 * NULL, is the arc's index: its capacity may be changed between cuts. */
st_status_t st_flow_arc(st_flow_t *flow, uint32_t from, uint32_t to, uint64_t capacity,
                        uint32_t *out_arc) ST_WARN_UNUSED;
/* out_sink[v]: v is on the sink's side. *out_value is what the cut costs. ST_INVALID where every
 * cut goes through an infinite arc, ST_DOES_NOT_FIT where finite capacities exceed ST_FLOW_LIMIT
 * together. */
st_status_t st_flow_cut(const st_flow_t *flow, uint32_t source, uint32_t sink, bool *out_sink,
                        uint64_t *out_value) ST_WARN_UNUSED;

#endif
