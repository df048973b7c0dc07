/* Regions: nodes of a graph that become the body of one `fused` node.
 *
 *   graph    %2 = exp(%0)                    region  nodes  exp, mul
 *            %3 = mul(%2, %1)                        inputs %0, %1      read from outside
 *            %4 = matmul(%3, %1)                     outputs %3         read outside
 *
 * A value that a region makes and nothing outside reads needs no memory at all. */
#ifndef STATOR_FUSION_REGION_H
#define STATOR_FUSION_REGION_H

#include "fusion/groups.h"

typedef struct region {
    ST_VEC(ir_node_t) nodes;    /* ascending */
    ST_VEC(ir_value_t) inputs;  /* of the graph, by first use */
    ST_VEC(ir_value_t) outputs; /* ascending */
} region_t;

/* Where a value of the graph stands in the region at hand. */
typedef struct region_slot {
    uint32_t stamp, index;
} region_slot_t;

/* What collecting regions of one graph needs. */
typedef struct regions {
    const groups_t *groups;
    bool *is_output;      /* [values]: of the graph */
    region_slot_t *slots; /* [values] */
    ir_value_t *map;      /* [values]: to values of the body that is being made */
    uint32_t now;
    region_t region; /* the one at hand */
} regions_t;

st_status_t regions_open(const groups_t *groups, regions_t *out_regions) ST_WARN_UNUSED;
void regions_close(regions_t *regions); /* zeroed is fine */

/* The region of `n` groups together, as regions->region, until the next call. */
st_status_t regions_collect(regions_t *regions, uint32_t n, const group_t *list) ST_WARN_UNUSED;
/* Hash of what the region says: equal regions have bodies that are equal but for names. */
uint64_t regions_hash(regions_t *regions);
/* The region as a body, whose inputs and outputs stand as the region's do. `from` is the groups'
 * graph, or one that differs from it in sizes only. */
st_status_t regions_body(regions_t *regions, const ir_graph_t *from,
                         ir_graph_t **out_body) ST_WARN_UNUSED;
/* Appends the region to `to` as one `fused` node over map[inputs]; fills map[] for its outputs. */
st_status_t regions_emit(regions_t *regions, const ir_graph_t *from, ir_graph_t *to,
                         const char *name, ir_value_t *map) ST_WARN_UNUSED;

#endif
