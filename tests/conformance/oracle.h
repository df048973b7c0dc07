/* What the oracle's files share: operands as doubles, attributes, coordinates. */
#ifndef STATOR_TESTS_CONFORMANCE_ORACLE_H
#define STATOR_TESTS_CONFORMANCE_ORACLE_H

#include "cases.h"

enum { D = IR_MAX_RANK };

typedef struct o_tensor {
    const ir_type_t *type;
    const double *v;
} o_tensor_t;

typedef struct o_call {
    const kern_problem_t *p;
    o_tensor_t in[CONF_MAX_OPERANDS];
    double *const *out;
} o_call_t;

static inline int64_t attr_int(const o_call_t *c, const char *key) {
    return kern_attr(c->p, key)->i;
}
static inline double attr_float(const o_call_t *c, const char *key) {
    return kern_attr(c->p, key)->f;
}
static inline int64_t attr_at(const o_call_t *c, const char *key, int64_t i) {
    return kern_attr(c->p, key)->ints.v[i];
}

/* ---- coordinates ---- */

static inline int64_t count(const ir_type_t *type) {
    return ir_type_elements(type);
}
static inline void unravel(const ir_type_t *type, int64_t i, int64_t at[D]) {
    for (int32_t d = type->rank - 1; d >= 0; d--) {
        at[d] = i % type->dims[d];
        i /= type->dims[d];
    }
}
static inline int64_t ravel(const ir_type_t *type, const int64_t at[D]) {
    int64_t i = 0;
    for (int32_t d = 0; d < type->rank; d++) i = i * type->dims[d] + at[d];
    return i;
}
/* Element of an operand that broadcasts to coordinates `at` of a tensor of `rank`. */
static inline double broadcast_at(const o_tensor_t *x, const int64_t at[D], int32_t rank) {
    int64_t own[D];
    for (int32_t d = 0; d < x->type->rank; d++)
        own[d] = x->type->dims[d] == 1 ? 0 : at[rank - x->type->rank + d];
    return x->v[ravel(x->type, own)];
}
/* Value at coordinates, 0 outside. */
static inline double inside(const o_tensor_t *x, const int64_t at[D]) {
    for (int32_t d = 0; d < x->type->rank; d++)
        if (at[d] < 0 || at[d] >= x->type->dims[d]) return 0;
    return x->v[ravel(x->type, at)];
}

/* ---- rules of oracle_nn.c ---- */

bool oracle_matmul(const o_call_t *c);
bool oracle_convolution(const o_call_t *c);
bool oracle_pooling(const o_call_t *c);
bool oracle_max_pool_grad(const o_call_t *c);
bool oracle_attention(const o_call_t *c);
bool oracle_attention_grad(const o_call_t *c);
bool oracle_softmaxes(const o_call_t *c);
bool oracle_cross_entropies(const o_call_t *c);
bool oracle_channels(const o_call_t *c);
bool oracle_row_norms(const o_call_t *c);
bool oracle_row_norm_grads(const o_call_t *c);
bool oracle_rope(const o_call_t *c);

/* ---- rules of bodies.c ---- */

/* A body's outputs; false: the oracle does not know an op of it. */
bool conf_body_oracle(const ir_graph_t *body, const double *const *in, double *const *out);
bool oracle_fused(const o_call_t *c);
bool oracle_repeat(const o_call_t *c);
bool oracle_cond(const o_call_t *c);

#endif
