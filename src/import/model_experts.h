/* Routed experts with static capacity: a part of a model, in primitives.
 *
 * Every size is known when the graph is built, nothing depends on the order in which ranks run, and
 * sequences do not mix: splitting the batch changes nothing. */
#ifndef STATOR_IMPORT_MODEL_EXPERTS_H
#define STATOR_IMPORT_MODEL_EXPERTS_H

#include "ir/build.h"

typedef struct model_experts {
    ir_value_t router;         /* [experts, hidden] */
    ir_value_t gate, up, down; /* [experts, inner, hidden] twice, [experts, hidden, inner] */
    int64_t routed;            /* experts of a token */
    double capacity_factor;
} model_experts_t;

/* What an expert takes of a sequence: ceil(routed · length · factor / experts) tokens, 1 …
 * length. */
int64_t model_capacity(int64_t length, int64_t n_experts, int64_t routed, double factor);
/* How evenly a router spreads tokens: what it chooses, and how much it likes what it could
 * choose. */
typedef struct model_balance {
    ir_value_t chosen; /* f32[experts]: part of all tokens that chose the expert, room or not */
    ir_value_t liked;  /* f32[experts]: mean of the expert's share over all tokens */
} model_balance_t;

/* x [batch, length, hidden] → the experts' answers, weighted by the router's softmax over all
 * experts, of which the chosen ones' shares are made to sum to 1; zeros where no expert had
 * room. `out_balance` NULL: not wanted. */
ir_value_t model_route(ir_build_t *b, const model_experts_t *experts, ir_value_t x,
                       model_balance_t *out_balance) ST_WARN_UNUSED;
/* The load-balancing loss of `n` routers, all of whose tokens count alike: experts · sum over
 * experts of chosen · liked, k where tokens are spread evenly over k choices each. The choices have
 * no gradient. */
ir_value_t model_balance_loss(ir_build_t *b, size_t n,
                              const model_balance_t *routers) ST_WARN_UNUSED;

#endif
