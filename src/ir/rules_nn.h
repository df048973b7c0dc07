/* Rules that the contraction, composite and state ops share: type checks with full messages, splits
 * along dims that all operands have in the same place, and refusals of gradients that have no rule.
 */
#ifndef STATOR_IR_RULES_NN_H
#define STATOR_IR_RULES_NN_H

#include "ir/op.h"

/* Input j is of a float type; `what` names it in the message. */
st_status_t ir_need_float(const ir_op_ctx_t *ctx, uint32_t j, const char *what) ST_WARN_UNUSED;
/* Input j has exactly this type. */
st_status_t ir_need_type(const ir_op_ctx_t *ctx, uint32_t j, const char *what,
                         const ir_type_t *expected) ST_WARN_UNUSED;
/* Input j has dtype `dtype` and this shape. */
st_status_t ir_need_shape(const ir_op_ctx_t *ctx, uint32_t j, const char *what, ir_dtype_t dtype,
                          int32_t rank, const int64_t *dims) ST_WARN_UNUSED;
/* Input j has this shape and the dtype `dtype` or ir_dtype_wide of it: what may stay f32 beside an
 * activation of a small float. */
st_status_t ir_need_beside(const ir_op_ctx_t *ctx, uint32_t j, const char *what, ir_dtype_t dtype,
                           int32_t rank, const int64_t *dims) ST_WARN_UNUSED;
/* Attribute "axis" within 0 … rank of input 0 - 1 (importers resolve negative ones). */
st_status_t ir_need_axis(const ir_op_ctx_t *ctx, int32_t *out_axis) ST_WARN_UNUSED;
/* Of collectives that cut: the attributes "axis", "granules" and `sizes` have an entry for each
 * input. */
st_status_t ir_need_each(const ir_op_ctx_t *ctx, const char *sizes) ST_WARN_UNUSED;
/* Entry j of the attribute "axis" is a dim of input j. */
st_status_t ir_need_cut(const ir_op_ctx_t *ctx, uint32_t j, int32_t *out_axis) ST_WARN_UNUSED;
/* A rank's `part` of `extent` along axis[j] is made of whole granules, of which there are
 * granules[j]: 0 <= part <= extent, both multiples of extent / granules. */
st_status_t ir_need_granules(const ir_op_ctx_t *ctx, uint32_t j, int64_t extent,
                             int64_t part) ST_WARN_UNUSED;
/* The same of any dim, for ops that have one operand. */
st_status_t ir_check_granules(int64_t axis, int64_t granules, int64_t extent,
                              int64_t part) ST_WARN_UNUSED;
/* Attribute "peer" is a coordinate. */
st_status_t ir_need_peer(const ir_op_ctx_t *ctx) ST_WARN_UNUSED;

/* Input j is the gradient of a parameter of type `p`: its shape, and a float type no wider. */
st_status_t ir_need_gradient(const ir_op_ctx_t *ctx, uint32_t j, const ir_type_t *p) ST_WARN_UNUSED;

/* FAILs if a gradient arrives at output k, which has no rule; `what` names the output. */
st_status_t ir_no_output_gradient(const ir_value_t *dout, uint32_t k,
                                  const char *what) ST_WARN_UNUSED;
/* FAILs if the gradient of input j is wanted, which has no rule. */
st_status_t ir_no_input_gradient(const bool *want, uint32_t j, const char *what) ST_WARN_UNUSED;

/* [B,H,M,D] of a tensor that has its rows before its heads where `rows_first`; rank 4, else
 * itself. */
ir_type_t ir_heads_first(const ir_type_t *type, bool rows_first);

/* Splits along one of the dims in the set `dims` (bit d), which stands at the same place in all
 * operands of `inputs` and `outputs` (bit j: operand j); other inputs are replicated. The outputs
 * of `partial` come out as partial sums. Proposes what occurs among the placements that the inputs
 * arrive with. */
void ir_strategies_dims(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t dims,
                        uint32_t inputs, uint32_t outputs, uint32_t partial);
/* Partial sums pass from input j to output 0, the other inputs being replicated: for ops that are
 * linear in input j. */
void ir_strategies_linear(ir_strategy_list_t *list, uint32_t j);
/* Collectives of one operand under the split over another mesh axis: any dim but the one along
 * which parts are put together or cut (attribute `axis`), and partial sums. */
void ir_strategies_collective(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);
/* Attention over heads: where one of the inputs `heads` (q, k, v and what is like them) arrives
 * split along its heads, all are, and so are the outputs but for output `lse` of rank 3 and input
 * `lse_in`, whose heads are dim 1 (UINT32_MAX: there is none), and input `mask` if it has heads.
 * Granules are groups of query heads with their key head: they divide the key heads. */
void ir_strategies_heads(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t heads,
                         uint32_t lse_in, uint32_t lse, uint32_t mask);
/* Attention over parts of its queries, keys whole: where one of the inputs `rows` (q and what is
 * like it) arrives split along its rows, all are, and so are output 0, `lse` and `lse_in` (dim 2),
 * and `mask` if it has rows; the outputs of `partial` are sums. */
void ir_strategies_queries(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t rows,
                           uint32_t lse_in, uint32_t lse, uint32_t mask, uint32_t partial);
/* localize of attention, whose output 0 is `out`: the part's first query stands where it stood. */
void ir_localize_rows(const ir_op_ctx_t *global, const ir_part_t *out, ir_attr_t *attrs);
/* differs_by_place of attention: causal and window count the rows of parts from their places. */
bool ir_counts_rows(const ir_op_ctx_t *ctx, ir_placement_t out);
/* Appends unless the list has an equal one. */
void ir_strategy_add_new(const ir_op_ctx_t *ctx, ir_strategy_list_t *list,
                         const ir_strategy_t *item);

/* softmax and log_softmax, and their gradients from dy and y. */
st_status_t ir_shape_softmax(const ir_op_ctx_t *ctx, ir_type_t *out);
st_status_t ir_shape_softmax_grad(const ir_op_ctx_t *ctx, ir_type_t *out);
st_status_t ir_gradient_softmax(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                                const bool *want, ir_value_t *din, ir_op_t grad);
void ir_strategies_softmax(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);
void ir_strategies_softmax_grad(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);

/* Bits 0 … n - 1. */
static inline uint32_t ir_first_bits(int32_t n) {
    return n <= 0 ? 0 : n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

#endif
