/* Judging regions: whether one may be a `fused` node (legality: it has a loop nest, and the target
 * has a kernel that runs it), and what it costs as one (profit: the target's cost model, and
 * nothing else). Regions that say the same are judged once: the layers of a model are alike, so the
 * time is that of one layer. */
#ifndef STATOR_FUSION_JUDGE_H
#define STATOR_FUSION_JUDGE_H

#include "fusion/region.h"
#include "ir/target.h"

typedef struct judgement {
    uint64_t hash;
    bool legal;
    const char *reason; /* of an illegal one; in the judge's arena */
    uint64_t *reuse; /* [outputs]: bit j, the output may stand in input j's memory; NULL: there are
                         * more than 64 inputs, or it is not legal */
    ir_cost_t cost;  /* of the region as one node; of a single node, as it is */
    bool adds;       /* it makes sums of reals */
    uint64_t sums;   /* how (judge_sums); 0: not asked yet */
} judgement_t;

typedef struct judge {
    const ir_target_t *target;
    st_arena_t arena;
    judgement_t **slots; /* by hash; at most half full */
    size_t n, capacity;
    size_t n_asked; /* for tests: how many were asked for, and `n` of them made */
} judge_t;

void judge_close(judge_t *judge); /* zeroed but for `target` is fine */

/* Judges regions->region. */
st_status_t judge_region(judge_t *judge, regions_t *regions,
                         const judgement_t **out_judgement) ST_WARN_UNUSED;

/* How regions->region adds up its sums: as one node, or as a single node stands by itself
 * (ir_target_t.sums); 0: it makes none, or the target does not tell. */
st_status_t judge_sums(judge_t *judge, regions_t *regions, uint64_t *out_sums) ST_WARN_UNUSED;

#endif
