/* Multi-tensor nodes: the optimizer's work on many parameters, or the running statistics of many
 * norms, as a few `fused` nodes, each with one domain a tensor.
 *
 * Candidates are the groups that make new values of states. Those on one
 * level of dependence do not depend on each other (groups_levels) and go together in the order of
 * the program, as many as MULTI_MAX_TENSORS allows. A node waits for all of its operands, so that
 * values which would have died one by one live until it runs: those of one node are held to an
 * eighth of all, or MULTI_MIN_BYTES. Linear but for the order of the groups. */
#ifndef STATOR_FUSION_MULTI_H
#define STATOR_FUSION_MULTI_H

#include "fusion/decision.h"

enum {
    MULTI_MAX_TENSORS = 512,       /* operands and results of one node */
    MULTI_MIN_BYTES = 4 * 1048576, /* operands other than states that a node may always have */
};

/* Whether the group is one of the candidates. */
bool multi_makes_state(const fuse_decision_t *d, group_t g);
st_status_t multi_fuse(fuse_decision_t *d) ST_WARN_UNUSED;

#endif
