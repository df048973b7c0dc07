/* Loop nests: what a fused body computes, element by element, apart from any schedule.
 *
 * A nest is scalar SSA over named axes. A statement has no shape: it has the set of axes that its
 * value depends on, so a broadcast is nothing, a transpose or reshape is another order of strides
 * at a load or a store, and a value is one per point of its axes. Reductions remove axes; what is
 * computed from a reduction may have them again (softmax), which makes stages.
 *
 *   y = x * rsqrt(mean(x^2) + eps) * w       domain 0: i0 = 4096, i1 = 1024
 *     v0 = load 0[1024 i0 + i1]  {i0 i1}       v3 = rsqrt v2             {i0}
 *     v1 = sum over i1 of v0*v0  {i0}          v4 = load 1[i1]           {i1}
 *     v2 = v1 / 1024 + eps       {i0}          store 0[1024 i0 + i1] = v0 * v3 * v4
 *
 * A body may hold several domains that share no axis (the updates of all parameters): they are
 * independent but for uniform values, which depend on no axis at all.
 *
 * Values are computed in f32, or f64 where a value or result with axes is f64 (nest_domain_t.wide),
 * whatever the dtype at the edges; uniform values in f64; integers in 64 bits, wrapped to their
 * dtype. What a node of the body makes is then rounded to its own dtype, as if it had been stored
 * and loaded: a cast between floats. Inside of a composite nothing is rounded. So it does not show
 * in the bits which nodes share a nest, nor which of them run again in another (recomputation), but
 * for the order of sums, which fusion/like.h keeps. To round only what a program without
 * recomputation stores is not enough: what is inside of a nest there would have to stay inside of
 * one wherever it runs again. For the same reason devices may not contract a product and a sum of
 * two nodes into one rounding. */
#ifndef STATOR_IR_NEST_H
#define STATOR_IR_NEST_H

#include "ir/graph.h"

enum {
    NEST_MAX_AXES = 12, /* of a domain, after neighbours that always go together became one */
    NEST_MAX_ARGS = 3,
    NEST_TOGETHER = 64, /* stores of a domain that one pass or kernel surely makes together */
};

typedef uint32_t nest_value_t; /* index of a statement */
#define NEST_NONE UINT32_MAX

typedef struct nest_axis {
    int64_t extent;
} nest_axis_t;

/* Axes that statements connect. Bit i of a mask means axis i. */
typedef struct nest_domain {
    uint32_t n_axes;
    nest_axis_t axes[NEST_MAX_AXES];
    bool wide; /* its values are f64 */
} nest_domain_t;

/* Element offset + sum of stride[i] * i-th axis + index_stride * (value of `index`). */
typedef struct nest_access {
    uint32_t tensor;  /* operand or result; NEST_NONE: `data` */
    const void *data; /* elements of a constant of the body; the nest has its own copy */
    size_t data_bytes;
    ir_dtype_t dtype; /* of the tensor */
    int64_t offset;
    int64_t stride[NEST_MAX_AXES];
    nest_value_t index; /* NEST_NONE, or an integer that chooses along one dim of the tensor: in
                           [-index_extent, index_extent), negative counts from the end */
    int64_t index_stride, index_extent;
    int32_t index_dim; /* of the tensor, for messages */
} nest_access_t;

typedef enum nest_kind {
    NEST_LOAD,     /* access */
    NEST_CONSTANT, /* real, integer: the same number */
    NEST_IOTA,     /* access.offset + strides: an integer position; no tensor */
    NEST_RANDOM,   /* uniform in [0, 1), 24 bits, of the global element access.offset + strides
                      (+ access.index_stride * part); args: seed, step[, part], all uniform;
                      integer: the op's id */
    NEST_OP,       /* elementwise: op of args */
    NEST_REDUCE,   /* op: IR_OP_REDUCE_SUM, _PROD, _MAX, _MIN of args[0] over axes `over` */
} nest_kind_t;

typedef struct nest_stmt {
    nest_kind_t kind;
    ir_op_t op;
    ir_dtype_t dtype; /* of the body's value */
    bool flag;        /* gelu, gelu_grad: tanh approximation */
    uint32_t n_args;
    nest_value_t args[NEST_MAX_ARGS]; /* smaller than the statement's own index */
    uint32_t domain;                  /* NEST_NONE where mask and over are empty */
    uint32_t mask;                    /* axes the value depends on */
    uint32_t over; /* NEST_REDUCE: all of them count, also those that the argument
                                         does not depend on */
    double real;
    int64_t integer;
    nest_access_t access;
    ir_node_t node; /* of the body, for messages */
} nest_stmt_t;

/* Result `access.tensor` takes `value` at every point of `mask`, which are the result's axes. */
typedef struct nest_store {
    nest_value_t value;
    uint32_t domain, mask;
    nest_access_t access;
} nest_store_t;

/* `rows` labels in an operand: whoever runs the nest checks beforehand that each is a class or the
 * ignored number, for the statements take it for granted. */
typedef struct nest_labels {
    uint32_t operand;
    ir_dtype_t dtype;
    int64_t rows, classes, ignore;
    ir_node_t node; /* of the body, for messages */
} nest_labels_t;

typedef struct nest {
    st_arena_t arena;
    uint32_t n_operands, n_results; /* the body's inputs and outputs, in order */
    uint32_t n_domains, n_stmts, n_stores;
    nest_domain_t *domains;
    nest_stmt_t *stmts; /* topological; every one is used */
    nest_store_t *stores;
    uint32_t n_labels;
    nest_labels_t *labels;
    struct nest_order *order; /* nest_order.h */
} nest_t;

/* The nest of a body, whose `input` nodes are the operands and whose outputs are the results.
 * ST_OK with *out_nest = NULL: the body is no legal nest, and *out_reason (static text) says why.
 * Legal are elementwise ops, casts, constants, iota, random and dropout, reductions but argmax,
 * broadcast, transpose, reshape along factors, slice and flip of operands, gather and gather_along
 * from operands, and composites with a definition (ir_op_def_t.define or .expand) in these.
 * Other statuses: out of memory. Time linear in the body but for the chains of reshapes.
 *
 * Any legal nest runs as one node; how many passes over its data that takes is the target's
 * answer. A reduction of everything whose result is used elementwise again needs a second one. */
st_status_t nest_build(const ir_graph_t *body, nest_t **out_nest,
                       const char **out_reason) ST_WARN_UNUSED;
void nest_destroy(nest_t *nest); /* NULL is fine */

/* Part of nest_build: the labels that the body, unexpanded, reads. */
st_status_t nest_find_labels(nest_t *nest, const ir_graph_t *body,
                             const char **out_reason) ST_WARN_UNUSED;

/* May result `result` stand in the memory of operand `operand`? True where under any schedule that
 * keeps to nest_order.h, whatever reads an element of the operand, at first hand or computing a
 * value again, is done by the time that the result's element takes its place: the operand is read
 * only there, by the result and by results that are stored with it, before the result's statement.
 * A result that is not computed from the operand never does. */
bool nest_may_reuse(const nest_t *nest, uint32_t result, uint32_t operand);

/* Has the nest sums or products of reals, whose bits depend on the order in which they are made? */
bool nest_has_sums(const nest_t *nest);
/* Is the statement one? */
static inline bool nest_is_sum(const nest_stmt_t *stmt) {
    return stmt->kind == NEST_REDUCE && ir_dtype_is_float(stmt->dtype) &&
           (stmt->op == IR_OP_REDUCE_SUM || stmt->op == IR_OP_REDUCE_PROD);
}

/* Number of points of the axes in `mask`. */
static inline int64_t nest_points(const nest_domain_t *domain, uint32_t mask) {
    int64_t n = 1;
    for (uint32_t i = 0; i < domain->n_axes; i++)
        if (mask >> i & 1) n *= domain->axes[i].extent;
    return n;
}

/* Whether nests take in nodes of this op, as they are or by the op's definition. No contraction:
 * its definition is worth no product. A particular node may still have no form. */
bool nest_takes(ir_op_t op);

#endif
