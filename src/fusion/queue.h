/* Priority queue of pairs of nodes for the fuse pass, and the pairs of groups that were refused. */
#ifndef STATOR_FUSION_QUEUE_H
#define STATOR_FUSION_QUEUE_H

#include "ir/graph.h"

typedef struct queue_pair {
    double us; /* saved, most first; ties by a, then b */
    ir_node_t a, b;
} queue_pair_t;

typedef struct queue {
    ST_VEC(queue_pair_t) heap;
    uint64_t *refused; /* hashes; 0: empty; at most half full */
    size_t n_refused, capacity;
} queue_t;

void queue_close(queue_t *queue); /* zeroed is fine */
st_status_t queue_push(queue_t *queue, double us, ir_node_t a, ir_node_t b) ST_WARN_UNUSED;
bool queue_pop(queue_t *queue, queue_pair_t *out_pair); /* false: empty */

/* Remembers that two groups of these sizes were refused; groups only grow, so a group and its size
 * say what is in it. */
st_status_t queue_refuse(queue_t *queue, uint32_t a, uint32_t size_a, uint32_t b,
                         uint32_t size_b) ST_WARN_UNUSED;
bool queue_refused(const queue_t *queue, uint32_t a, uint32_t size_a, uint32_t b, uint32_t size_b);

#endif
