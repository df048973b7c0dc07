/* What the simplify pass gives its rules (rules_*.c), and their tables.
 *
 * A rule looks at one node of `from` whose inputs are simplified already, `in` of `to`, and may set
 * *out (IR_NONE so far) to a value of `to` of the same type that equals the node's only output. It
 * may make nodes on the way, through the sweep's own functions, which find an equal node that is
 * there. Rules never make a result that another rule turns back: sweeps end when nothing
 * changes. */
#ifndef STATOR_FUSION_RULES_H
#define STATOR_FUSION_RULES_H

#include "base/vec.h"
#include "fusion/fold.h"

typedef struct fuse_seen fuse_seen_t;

/* What a sweep did with a node, for comparing graphs that differ in extents only: `form` without
 * the numbers of values, `whole` with them. */
typedef struct fuse_trail {
    uint64_t form, whole;
} fuse_trail_t;

typedef struct fuse_sweep {
    const ir_graph_t *from;
    const ir_target_t *target;
    fuse_folding_t folding;
    ir_graph_t *to;
    uint8_t *live;    /* [from nodes] */
    uint32_t *n_uses; /* [from values]: by live nodes and outputs */
    ir_value_t *map;  /* [from values] → value of `to` */
    fuse_seen_t *seen;
    size_t seen_capacity, n_seen;
    ST_VEC(ir_value_t) inputs; /* of the node at hand, in `to` */
    size_t n_rewrites;
    const bool *kept;    /* [from nodes]: copied as they are; NULL: none */
    fuse_trail_t *trail; /* [from nodes]: what was done, 0 where it is dead; NULL: not asked */
    bool apart;          /* the node at hand is one of those */
} fuse_sweep_t;

/* One sweep over `from`, its settings filled in; *out_graph is `to`. */
st_status_t fuse_sweep(fuse_sweep_t *s, ir_graph_t **out_graph) ST_WARN_UNUSED;

typedef st_status_t fuse_rule_t(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *in,
                                ir_value_t *out);

/* One rule an op and theme; NULL: none. Shapes are tried before algebra. */
extern fuse_rule_t *const fuse_rules_shape[IR_OP_END], *const fuse_rules_algebra[IR_OP_END];
/* For every elementwise op, after its own. */
fuse_rule_t fuse_rule_elementwise;

/* ---- making nodes ---- */

/* A node of `to` with these attributes by key, the others at their default. */
st_status_t fuse_emit(fuse_sweep_t *s, ir_op_t op, const char *name, uint32_t n_inputs,
                      const ir_value_t *inputs, size_t n_args, const ir_arg_t *args,
                      ir_value_t *out_first) ST_WARN_UNUSED;
/* A node like `node` over other inputs. */
st_status_t fuse_emit_like(fuse_sweep_t *s, const ir_node_info_t *node, const ir_value_t *inputs,
                           ir_value_t *out_first) ST_WARN_UNUSED;
st_status_t fuse_emit_constant(fuse_sweep_t *s, const char *name, const ir_type_t *type,
                               const void *data, size_t bytes, ir_value_t *out) ST_WARN_UNUSED;
/* A scalar of a type. */
st_status_t fuse_emit_scalar(fuse_sweep_t *s, ir_dtype_t dtype, double number,
                             ir_value_t *out) ST_WARN_UNUSED;
/* Reshape, broadcast, transpose to a type; `x` itself where nothing changes. */
st_status_t fuse_emit_shape(fuse_sweep_t *s, ir_op_t op, const char *name, ir_value_t x,
                            const ir_type_t *type, ir_value_t *out) ST_WARN_UNUSED;
st_status_t fuse_emit_transpose(fuse_sweep_t *s, const char *name, ir_value_t x,
                                const int64_t *perm, ir_value_t *out) ST_WARN_UNUSED;

/* ---- looking ---- */

static inline const ir_type_t *fuse_result(const fuse_sweep_t *s, const ir_node_info_t *node) {
    return ir_value_type(s->from, node->first_output);
}
static inline const ir_type_t *fuse_type(const fuse_sweep_t *s, ir_value_t value) {
    return ir_value_type(s->to, value);
}
static inline bool fuse_has_type(const fuse_sweep_t *s, ir_value_t value, const ir_type_t *type) {
    return ir_type_equal(fuse_type(s, value), type);
}
/* Producer of `value` if it is an `op`. Valid until the next emit. */
static inline const ir_node_info_t *fuse_made_by(const fuse_sweep_t *s, ir_value_t value,
                                                 ir_op_t op) {
    const ir_node_info_t *node = ir_value_producer(s->to, value);
    return node->op == op ? node : NULL;
}
/* Whether the node at hand is the only reader of its input j in `from`. */
static inline bool fuse_only_reader(const fuse_sweep_t *s, const ir_node_info_t *node, uint32_t j) {
    return s->n_uses[node->inputs[j]] == 1;
}
/* The permutation of a transpose, normalized. */
void fuse_read_perm(const ir_node_info_t *node, int32_t rank, int64_t *perm);

#endif
