/* Parts of the vocabulary (vocabulary.h). */
#include "shard/vocabulary.h"

#include <math.h>

#include "ir/rules_nn.h"

static const ir_placement_t WHOLE = {IR_REPLICATE, 0, 0}, SUM = {IR_PARTIAL, 0, 0};

/* Adds a node; of its operands up to three have a placement of their own. */
static ir_value_t put(shard_parts_t *p, ir_op_t op, uint32_t n, const ir_value_t *inputs,
                      size_t n_args, const ir_arg_t *args, const ir_placement_t *in,
                      ir_placement_t out) {
    ir_value_t v = ir_b_node(&p->b, op, n, inputs, n_args, args);
    if (p->b.status == ST_OK) p->b.status = p->settle(p->context, in, out);
    return v;
}

static ir_value_t binary(shard_parts_t *p, ir_op_t op, ir_value_t x, ir_value_t y,
                         ir_placement_t px, ir_placement_t py, ir_placement_t out) {
    return put(p, op, 2, (ir_value_t[]){x, y}, 0, NULL, (ir_placement_t[]){px, py}, out);
}
static ir_value_t whole2(shard_parts_t *p, ir_op_t op, ir_value_t x, ir_value_t y) {
    return binary(p, op, x, y, WHOLE, WHOLE, WHOLE);
}
static ir_value_t unary(shard_parts_t *p, ir_op_t op, ir_value_t x, ir_placement_t place) {
    return put(p, op, 1, &x, 0, NULL, &place, place);
}
static ir_value_t number(shard_parts_t *p, ir_dtype_t dtype, double value) {
    ir_value_t v = ir_b_scalar(&p->b, dtype, value);
    if (p->b.status == ST_OK) p->b.status = p->settle(p->context, &WHOLE, WHOLE);
    return v;
}
static ir_value_t cast(shard_parts_t *p, ir_value_t x, ir_dtype_t dtype, ir_placement_t place) {
    ir_arg_t arg = IR_ARG_DTYPE("dtype", dtype);
    if (ir_b_type(&p->b, x)->dtype == dtype) return x;
    return put(p, IR_OP_CAST, 1, &x, 1, &arg, &place, place);
}
static ir_value_t reshape(shard_parts_t *p, ir_value_t x, int32_t rank, const int64_t *dims,
                          ir_placement_t place) {
    ir_arg_t shape = IR_ARG_INTS("shape", dims, rank);
    return put(p, IR_OP_RESHAPE, 1, &x, 1, &shape, &place, place);
}
static ir_value_t select3(shard_parts_t *p, ir_value_t condition, ir_value_t x, ir_value_t y,
                          ir_placement_t px, ir_placement_t py, ir_placement_t out) {
    return put(p, IR_OP_SELECT, 3, (ir_value_t[]){condition, x, y}, 0, NULL,
               (ir_placement_t[]){WHOLE, px, py}, out);
}
/* Over dim 1, kept. */
static ir_value_t reduce(shard_parts_t *p, ir_op_t op, ir_value_t x, ir_placement_t in) {
    ir_arg_t args[2] = {IR_ARG_INTS("axes", ((int64_t[]){1}), 1), IR_ARG_BOOL("keep", true)};
    return put(p, op, 1, &x, 2, args, &in, WHOLE);
}

/* ---- indices of a part ---- */

typedef struct owned {
    ir_value_t mine; /* bool: the part has it */
    ir_value_t rel;  /* i64: where; 0 where it has not */
} owned_t;

/* Of indices 0 … size - 1; where `counted` (IR_NONE: everywhere). */
static owned_t own(shard_parts_t *p, ir_value_t indices, int64_t size, ir_value_t counted) {
    const double n = (double)p->n_ranks;
    ir_arg_t mesh = IR_ARG_STRING("mesh", p->axis);
    if (p->index == IR_NONE) p->index = put(p, IR_OP_AXIS_INDEX, 0, NULL, 1, &mesh, NULL, WHOLE);
    ir_value_t extent = number(p, IR_I64, (double)size), ranks = number(p, IR_I64, n);
    ir_value_t zero = number(p, IR_I64, 0);
    ir_value_t next = whole2(p, IR_OP_ADD, p->index, number(p, IR_I64, 1));
    ir_value_t begin = whole2(p, IR_OP_DIV, whole2(p, IR_OP_MUL, p->index, extent), ranks);
    ir_value_t end = whole2(p, IR_OP_DIV, whole2(p, IR_OP_MUL, next, extent), ranks);
    ir_value_t first = whole2(p, IR_OP_EQ, p->index, zero);
    ir_value_t last = whole2(p, IR_OP_EQ, next, ranks);
    ir_value_t idx = cast(p, indices, IR_I64, WHOLE);
    ir_value_t low = whole2(p, IR_OP_LOGICAL_OR, whole2(p, IR_OP_GE, idx, begin), first);
    ir_value_t high = whole2(p, IR_OP_LOGICAL_OR, whole2(p, IR_OP_LT, idx, end), last);
    owned_t made = {.mine = whole2(p, IR_OP_LOGICAL_AND, low, high)};
    if (counted != IR_NONE) made.mine = whole2(p, IR_OP_LOGICAL_AND, made.mine, counted);
    /* below 0 there is nothing, from the end or otherwise: an index that no part has */
    ir_value_t below = whole2(p, IR_OP_LT, idx, zero);
    ir_value_t rel = whole2(p, IR_OP_SUB, idx, begin);
    rel = select3(p, below, extent, rel, WHOLE, WHOLE, WHOLE);
    made.rel = select3(p, made.mine, rel, zero, WHOLE, WHOLE, WHOLE);
    return made;
}

/* Indices count from the end where they are negative. */
static ir_value_t counted_from_begin(shard_parts_t *p, ir_value_t indices, int64_t size) {
    ir_value_t idx = cast(p, indices, IR_I64, WHOLE);
    ir_value_t below = whole2(p, IR_OP_LT, idx, number(p, IR_I64, 0));
    ir_value_t up = whole2(p, IR_OP_ADD, idx, number(p, IR_I64, (double)size));
    return select3(p, below, up, idx, WHOLE, WHOLE, WHOLE);
}

/* `mine` over the rows of a type whose dims from `axis` on begin with the index's. */
static ir_value_t over_rows(shard_parts_t *p, ir_value_t mine, const ir_type_t *type,
                            int32_t axis) {
    const ir_type_t idx = *ir_b_type(&p->b, mine);
    int64_t dims[IR_MAX_RANK];
    for (int32_t d = 0; d < type->rank; d++)
        dims[d] = d >= axis && d < axis + idx.rank ? idx.dims[d - axis] : 1;
    return reshape(p, mine, type->rank, dims, WHOLE);
}

/* ---- tables ---- */

static void add_gather(shard_parts_t *p, const ir_graph_t *from, const ir_node_info_t *node,
                       const ir_value_t *inputs, ir_value_t *out) {
    const int32_t axis = (int32_t)ir_attr_int(node, "axis");
    const int64_t size = ir_value_type(from, node->inputs[0])->dims[axis];
    const ir_type_t type = *ir_value_type(from, node->first_output);
    owned_t o = own(p, counted_from_begin(p, inputs[1], size), size, IR_NONE);
    ir_arg_t arg = IR_ARG_INT("axis", axis);
    ir_value_t y = put(p, IR_OP_GATHER, 2, (ir_value_t[]){inputs[0], o.rel}, 1, &arg,
                       (ir_placement_t[]){IR_PLACE_SPLIT(axis, size), WHOLE}, SUM);
    out[0] =
        select3(p, over_rows(p, o.mine, &type, axis), y, number(p, type.dtype, 0), SUM, WHOLE, SUM);
}

static void add_scatter(shard_parts_t *p, const ir_graph_t *from, const ir_node_info_t *node,
                        const ir_value_t *inputs, ir_value_t *out) {
    const int32_t axis = (int32_t)ir_attr_int(node, "axis");
    const int64_t size = ir_attr_int(node, "extent");
    const ir_type_t type = *ir_value_type(from, node->inputs[0]);
    owned_t o = own(p, counted_from_begin(p, inputs[1], size), size, IR_NONE);
    ir_value_t updates = select3(p, over_rows(p, o.mine, &type, axis), inputs[0],
                                 number(p, type.dtype, 0), WHOLE, WHOLE, WHOLE);
    ir_arg_t args[2] = {IR_ARG_INT("axis", axis), IR_ARG_INT("extent", size)};
    out[0] = put(p, IR_OP_SCATTER_ADD, 2, (ir_value_t[]){updates, o.rel}, 2, args,
                 (ir_placement_t[]){WHOLE, WHOLE}, IR_PLACE_SPLIT(axis, size));
}

/* ---- losses ---- */

static ir_value_t counted_rows(shard_parts_t *p, const ir_node_info_t *node, ir_value_t labels) {
    ir_value_t ignored = number(p, IR_I64, (double)ir_attr_int(node, "ignore_index"));
    return whole2(p, IR_OP_NE, cast(p, labels, IR_I64, WHOLE), ignored);
}

static void add_rows(shard_parts_t *p, const ir_graph_t *from, const ir_node_info_t *node,
                     const ir_value_t *inputs, ir_value_t *out) {
    const ir_type_t type = *ir_value_type(from, node->inputs[0]);
    const ir_dtype_t wide = ir_value_type(from, node->first_output)->dtype;
    const int64_t rows = type.dims[0], size = type.dims[1];
    const ir_placement_t part = IR_PLACE_SPLIT(1, size);
    const int64_t column[2] = {rows, 1}, all[2] = {rows, p->n_ranks};
    ir_value_t x = cast(p, inputs[0], wide, part);
    /* of the part: m + log Σ exp(x - m) */
    ir_value_t m = reduce(p, IR_OP_REDUCE_MAX, x, part);
    ir_value_t e = unary(p, IR_OP_EXP, binary(p, IR_OP_SUB, x, m, part, WHOLE, part), part);
    ir_value_t lse =
        whole2(p, IR_OP_ADD, m, unary(p, IR_OP_LOG, reduce(p, IR_OP_REDUCE_SUM, e, part), WHOLE));
    /* of all parts: each rank's is a column of [rows, ranks] */
    ir_arg_t shape = IR_ARG_INTS("shape", all, 2);
    ir_value_t each =
        put(p, IR_OP_BROADCAST, 1, &lse, 1, &shape, &WHOLE, IR_PLACE_SPLIT(1, p->n_ranks));
    m = reduce(p, IR_OP_REDUCE_MAX, each, WHOLE);
    e = unary(p, IR_OP_EXP, whole2(p, IR_OP_SUB, each, m), WHOLE);
    lse =
        whole2(p, IR_OP_ADD, m, unary(p, IR_OP_LOG, reduce(p, IR_OP_REDUCE_SUM, e, WHOLE), WHOLE));
    /* the label's */
    ir_value_t counted = counted_rows(p, node, inputs[1]);
    owned_t o = own(p, inputs[1], size, counted);
    ir_arg_t axis = IR_ARG_INT("axis", 1);
    ir_value_t zero = number(p, wide, 0);
    ir_value_t picked =
        put(p, IR_OP_GATHER_ALONG, 2, (ir_value_t[]){x, reshape(p, o.rel, 2, column, WHOLE)}, 1,
            &axis, (ir_placement_t[]){part, WHOLE}, SUM);
    picked = select3(p, reshape(p, o.mine, 2, column, WHOLE), picked, zero, SUM, WHOLE, SUM);
    out[2] = reshape(p, lse, 1, &rows, WHOLE);
    ir_value_t loss = reshape(p, whole2(p, IR_OP_SUB, lse, picked), 1, &rows, WHOLE);
    out[0] = select3(p, counted, loss, zero, WHOLE, WHOLE, WHOLE);
    out[1] = select3(p, counted, number(p, wide, 1), zero, WHOLE, WHOLE, WHOLE);
}

static void add_loss_grad(shard_parts_t *p, const ir_graph_t *from, const ir_node_info_t *node,
                          const ir_value_t *inputs, ir_value_t *out) {
    const ir_type_t type = *ir_value_type(from, node->inputs[1]);
    const ir_dtype_t wide = ir_value_type(from, node->inputs[3])->dtype;
    const int64_t rows = type.dims[0], size = type.dims[1], column[2] = {rows, 1};
    const ir_placement_t part = IR_PLACE_SPLIT(1, size);
    ir_value_t x = cast(p, inputs[1], wide, part), zero = number(p, wide, 0);
    ir_value_t lse = reshape(p, inputs[3], 2, column, WHOLE);
    ir_value_t counted = counted_rows(p, node, inputs[2]);
    owned_t o = own(p, inputs[2], size, counted);
    ir_value_t g = select3(p, counted, inputs[0], zero, WHOLE, WHOLE, WHOLE);
    g = reshape(p, g, 2, column, WHOLE);
    ir_value_t e = unary(p, IR_OP_EXP, binary(p, IR_OP_SUB, x, lse, part, WHOLE, part), part);
    ir_value_t dense = binary(p, IR_OP_MUL, e, g, part, WHOLE, part);
    ir_value_t own_g =
        select3(p, reshape(p, o.mine, 2, column, WHOLE), g, zero, WHOLE, WHOLE, WHOLE);
    ir_arg_t args[2] = {IR_ARG_INT("axis", 1), IR_ARG_INT("extent", size)};
    ir_value_t hit = put(p, IR_OP_SCATTER_ALONG_ADD, 2,
                         (ir_value_t[]){own_g, reshape(p, o.rel, 2, column, WHOLE)}, 2, args,
                         (ir_placement_t[]){WHOLE, WHOLE}, part);
    out[0] = cast(p, binary(p, IR_OP_SUB, dense, hit, part, part, part), type.dtype, part);
}

/* ---- entry ---- */

bool shard_has_parts(const ir_graph_t *graph, ir_node_t n, uint32_t n_ranks) {
    const ir_node_info_t *node = ir_node(graph, n);
    int64_t size;
    if (node->op == IR_OP_GATHER)
        size = ir_value_type(graph, node->inputs[0])->dims[ir_attr_int(node, "axis")];
    else if (node->op == IR_OP_SCATTER_ADD)
        size = ir_attr_int(node, "extent");
    else if (node->op == IR_OP_CROSS_ENTROPY_ROWS && node->n_inputs == 2)
        size = ir_value_type(graph, node->inputs[0])->dims[1];
    else if (node->op == IR_OP_CROSS_ENTROPY_GRAD && node->n_inputs == 4)
        size = ir_value_type(graph, node->inputs[1])->dims[1];
    else
        return false;
    const bool loss = node->op == IR_OP_CROSS_ENTROPY_ROWS || node->op == IR_OP_CROSS_ENTROPY_GRAD;
    if (loss && ir_attr_float(node, "smoothing") != 0) return false;
    return size >= n_ranks; /* no part is empty */
}

st_status_t shard_add_parts(shard_parts_t *p, const ir_graph_t *from, ir_node_t n,
                            const ir_value_t *inputs, ir_value_t *out) {
    const ir_node_info_t *node = ir_node(from, n);
    if (node->op == IR_OP_GATHER)
        add_gather(p, from, node, inputs, out);
    else if (node->op == IR_OP_SCATTER_ADD)
        add_scatter(p, from, node, inputs, out);
    else if (node->op == IR_OP_CROSS_ENTROPY_ROWS)
        add_rows(p, from, node, inputs, out);
    else
        add_loss_grad(p, from, node, inputs, out);
    return p->b.status;
}
