/* What the parts of the fuse pass share: the search for groups (fuse.c), the graphs that come of it
 * (apply.c), the report (explain.c). */
#ifndef STATOR_FUSION_DECISION_H
#define STATOR_FUSION_DECISION_H

#include "fusion/copies.h"
#include "fusion/fuse.h"
#include "fusion/judge.h"

enum {
    FUSE_MAX_NODES = 64,   /* of a group that the queue makes */
    FUSE_MAX_TENSORS = 64, /* operands and results together */
    FUSE_MEMORY_PRICE = 1, /* bytes more alive that a byte less moved may cost */
};

struct fuse_decision {
    ir_target_t target;
    size_t n_given;      /* nodes of the graph that it was found on */
    uint8_t *chain;      /* [n_given]: copies_mark */
    bool *fusable_given; /* [n_given] */
    copies_t copies;
    groups_t groups; /* of copies.graph, as all below */
    regions_t regions;
    judge_t judge;
    bool *fusable;   /* [nodes] */
    bool *updates;   /* [nodes]: fusable, and an update reads what it makes */
    double *us;      /* [groups]: what it costs as it stands */
    bool *fused;     /* [groups]: as one node; false: its nodes one by one */
    uint64_t *alone; /* [n_given]: how the node by itself adds up its sums; 0: it makes none */
    uint64_t *sums;  /* [groups]: how the group does */
    const fuse_decision_t *like; /* whose sums are kept (like.h); NULL: any */
    ST_VEC(ir_node_t) unlike;    /* fuse_unlike */
    ir_node_t *order;            /* [nodes] */
    const char **names;          /* [groups]: of fused ones */
    st_arena_t arena;
};

/* Why two groups are apart, and what they cost. FUSE_WHY_END: nothing stands against it. */
typedef struct fuse_verdict {
    fuse_why_t why;
    const char *reason; /* FUSE_NO_NEST */
    group_t third;      /* FUSE_CYCLE */
    double us_apart, us_together;
    double bytes_more; /* FUSE_MEMORY */
} fuse_verdict_t;

st_status_t fuse_try(fuse_decision_t *d, group_t a, group_t b,
                     fuse_verdict_t *out_verdict) ST_WARN_UNUSED;
/* Whether the pass may touch the node at all, before any nest is built. */
bool fuse_is_candidate(const ir_graph_t *graph, ir_node_t node);

#endif
