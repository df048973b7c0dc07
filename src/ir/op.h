/* What an op is: one ir_op_def_t a file src/ir/ops/<name>.c, one row in src/ir/ops.def.
 *
 * Three rules every op has:
 *   shape      input types and attributes → output types; the only place that knows them
 *   gradient   appends the nodes that give the inputs' gradients from the outputs' gradients
 *   strategies how the op can be split over ranks (the partition rule)
 */
#ifndef STATOR_IR_OP_H
#define STATOR_IR_OP_H

#include "ir/graph.h"

/* ---- attributes ---- */
typedef struct ir_attr_spec {
    const char *key;
    ir_attr_kind_t kind;
    bool required;
    double number; /* default of INT, BOOL, DTYPE, FLOAT; INTS default to empty, STRING to text */
    const char *text; /* default of STRING; NULL means "" */
} ir_attr_spec_t;

/* What shape and partition rules see of a node. */
typedef struct ir_op_ctx {
    ir_op_t op;
    uint32_t n_inputs, n_outputs;
    const ir_type_t *in; /* [n_inputs] */
    const ir_attr_t *attrs;
    const char *name;
} ir_op_ctx_t;

/* Attribute of a context by key (ASSERTs that the op has it). */
const ir_attr_t *ir_ctx_attr(const ir_op_ctx_t *ctx, const char *key);
static inline int64_t ir_ctx_int(const ir_op_ctx_t *ctx, const char *key) {
    return ir_ctx_attr(ctx, key)->i;
}

/* ---- placement over the ranks of one mesh axis ---- */
typedef enum ir_placement_kind {
    IR_REPLICATE = 0, /* every rank holds all of it */
    IR_SPLIT,         /* rank r holds granules [r·G/n, (r+1)·G/n) of `dim` */
    IR_PARTIAL,       /* the value is the sum over the ranks */
    IR_HELD,          /* rank r holds all of it where bit r of `granules` is set, else nothing: of a
                         pipeline's states, inputs and outputs */
} ir_placement_kind_t;

/* Splits are by granules: dim has `granules` equal parts (a batch of 8 that became 8·32 rows still
 * splits into 8), so uneven splits of one batch agree in all values that carry it. */
typedef struct ir_placement {
    ir_placement_kind_t kind;
    int32_t dim;
    int64_t granules;
} ir_placement_t;

#define IR_PLACE_REPLICATE ((ir_placement_t){IR_REPLICATE, 0, 0})
#define IR_PLACE_PARTIAL ((ir_placement_t){IR_PARTIAL, 0, 0})
#define IR_PLACE_HELD(mask_) ((ir_placement_t){IR_HELD, 0, (mask_)})
enum { IR_MAX_HOLDERS = 62 }; /* ranks that a mask has room for */
#define IR_PLACE_SPLIT(dim_, granules_) ((ir_placement_t){IR_SPLIT, (dim_), (granules_)})
static inline bool ir_placement_equal(ir_placement_t a, ir_placement_t b) {
    return a.kind == b.kind && ((a.kind != IR_SPLIT && a.kind != IR_HELD) ||
                                (a.dim == b.dim && a.granules == b.granules));
}
/* First granule of rank `rank` of `n_ranks`: floor(rank · granules / n_ranks). */
static inline int64_t ir_granule_begin(int64_t granules, int64_t rank, int64_t n_ranks) {
    return rank * granules / n_ranks;
}
/* Part [*begin, *begin + *extent) of a dim of `size` that `rank` holds. */
void ir_split_range(int64_t size, int64_t granules, int64_t rank, int64_t n_ranks, int64_t *begin,
                    int64_t *extent);

/* One legal way to run the op on every rank: what its inputs must be and what its outputs are. */
enum {
    IR_MAX_OPERANDS = 16
}; /* operands a strategy can tell apart; variadic ops: see `variadic` */
typedef struct ir_strategy {
    ir_placement_t in[IR_MAX_OPERANDS];
    ir_placement_t out[IR_MAX_OPERANDS];
} ir_strategy_t;
/* Collects strategies. `have` are the placements the inputs arrive with: rules may use them to
 * propose only splits (dim and granules) that occur. All-replicate is always legal for a pure op
 * and added by the caller: rules do not list it. A variadic op with more than IR_MAX_OPERANDS
 * inputs lists in[0] for all. */
typedef struct ir_strategy_list {
    const ir_placement_t *have; /* [n_inputs] */
    uint32_t n;
    ir_strategy_t items[32];
} ir_strategy_list_t;
/* New all-replicate strategy to fill in; NULL when the list is full. */
ir_strategy_t *ir_strategy_add(ir_strategy_list_t *list);

/* A rank's part of a value along its split dim; kind != IR_SPLIT means all of it. */
typedef struct ir_part {
    ir_placement_t placement;
    int64_t begin, extent; /* along placement.dim */
} ir_part_t;

/* ---- the definition ---- */
typedef enum ir_op_flags {
    IR_PURE = 0,
    IR_RANDOM = 1 << 0,      /* pure function of (seed, id, step, global element index) */
    IR_SIDE_EFFECT = 1 << 1, /* never removed, never duplicated */
    IR_COLLECTIVE = 1 << 2,  /* never removed, duplicated or reordered against each other */
    IR_SOURCE = 1 << 3,      /* input, parameter, buffer, constant, iota */
    IR_STATE = 1 << 4,       /* parameter, buffer */
    IR_VIEW = 1 << 5,        /* output 0 is input 0's bytes under another shape */
    IR_ELEMENTWISE = 1 << 6, /* output element i depends on element i of the (broadcast) inputs */
    IR_LINEAR = 1 << 7,   /* linear in all its float inputs together (partial sums pass through) */
    IR_BACKWARD = 1 << 8, /* stems from a gradient rule; has no gradient rule itself */
    IR_START = 1 << 9,    /* a collective's first half; one without it is the wait */
    IR_CONTRACTION = 1 << 11, /* products of matrices or images: never part of a loop nest */
    IR_REGION = 1 << 10,      /* control flow: the session runs its bodies */
    IR_STEP = 1 << 12, /* an optimizer's, of the weight of input 0 by the gradient of input 1 */
    IR_REDUCTION = 1 << 13, /* folds input 0 along the attribute `axes` by one operation */
} ir_op_flags_t;

/* What the runtime writes once, before the first step, and every step reads. */
static inline bool ir_op_is_lasting(ir_op_t op) {
    return op == IR_OP_CONSTANT || op == IR_OP_AXIS_INDEX;
}

enum { IR_VARIADIC = -1 };

typedef struct ir_op_def {
    ir_op_t op;
    const char *name;
    int32_t min_inputs, max_inputs; /* max IR_VARIADIC: any number ≥ min */
    int32_t n_outputs;              /* IR_VARIADIC: see count_outputs */
    uint32_t flags;
    /* Outputs of an op with n_outputs = IR_VARIADIC, from its attributes (of the right kinds, none
     * missing); NULL: as many as inputs. */
    uint32_t (*count_outputs)(uint32_t n_inputs, const ir_attr_t *attrs);
    const ir_attr_spec_t *attrs; /* ends with a row whose key is NULL; NULL: no attributes */

    st_status_t (*shape)(const ir_op_ctx_t *ctx, ir_type_t *out);
    /* Appends to `graph`. dout[k] is the gradient of output k, IR_NONE where none arrives. Sets
     * din[j] for the inputs that have one (preset to IR_NONE; integer inputs stay so). `want[j]`
     * says whether the gradient of input j is needed. NULL for an op with no gradient: then
     * `no_gradient` says why ("integer result", "backward op", "state"); "zero" means the gradient
     * is zero everywhere. */
    st_status_t (*gradient)(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din);
    const char *no_gradient;
    /* Partition rule; never NULL (ir_strategies_none for ops that only run replicated). */
    void (*strategies)(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);
    /* Rewrites attributes for one rank (shapes, starts); attrs[] arrives as a copy of the global
     * ones. `arena` holds what it allocates. NULL: attributes stay. `in`/`out` are the rank's
     * parts. */
    st_status_t (*localize)(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *attrs);
    /* Whether what localize writes depends on where the rank's part lies, not on its size alone,
     * with output 0 placed so. NULL: only of ops with IR_RANDOM. */
    bool (*differs_by_place)(const ir_op_ctx_t *ctx, ir_placement_t out);
    /* Definition in simpler ops, appended to `graph` over `inputs`; fills out[] with the values
     * that replace the outputs. The expand step applies it before the split over ranks. NULL: not
     * composite. */
    st_status_t (*expand)(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          ir_value_t *out);
    /* The same for an op that stays a node and has kernels: what it means in primitives, in the
     * precision of ir_dtype_wide. Loop nests inline it, the expand step does not. NULL: none. */
    st_status_t (*define)(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          ir_value_t *out);
    /* Ops whose gradient rule wants more of the node than its results: whether the node has it, and
     * the node that has (as expand). NULL: nothing is wanted. */
    bool (*is_gradient_form)(const ir_attr_t *attrs);
    st_status_t (*gradient_form)(ir_graph_t *graph, const ir_op_ctx_t *ctx,
                                 const ir_value_t *inputs, ir_value_t *out);
    /* reuse[k] = j + 1: output k may be written over input j (same bytes, elementwise); 0: no.
     * IR_ELEMENTWISE ops may also write over any input of the output's size. */
    uint8_t reuse[4];
    ir_op_t waits_for; /* of a collective's second half: the first; else IR_OP_NONE */
    /* j + 1: input j has a label for each row of input j - 1, logits [rows, classes]: a class, or
     * the attribute `ignore_index`; anything else is an error of the step. 0: no input is so. */
    uint8_t labels;
} ir_op_def_t;

/* A start that reads its input until the wait; the others sum in place, or have no input. */
static inline bool ir_start_reads_input(const ir_op_def_t *def) {
    return (def->flags & IR_START) && def->op != IR_OP_ALL_REDUCE_START && def->min_inputs > 0;
}

/* Between two ranks: what one waits for depends on what the other has done before, so starts and
 * waits of such keep their order, all of them. */
static inline bool ir_op_is_pair(ir_op_t op) {
    return op == IR_OP_SEND_START || op == IR_OP_SEND_WAIT || op == IR_OP_RECEIVE_START ||
           op == IR_OP_RECEIVE_WAIT;
}

/* Row of an op; NULL for an unknown id. */
const ir_op_def_t *ir_op_def(ir_op_t op);
const ir_op_def_t *ir_op_def_by_name(const char *name);
/* Number of attributes in the schema. */
uint32_t ir_op_n_attrs(const ir_op_def_t *def);
/* Number of outputs of a node of the op. */
uint32_t ir_op_n_outputs(const ir_op_def_t *def, uint32_t n_inputs, const ir_attr_t *attrs);

#define OP(enumerator, name, wire, ...) extern const ir_op_def_t ir_op_##name;
#include "ir/ops.def"
#undef OP

/* ---- shared rules (src/ir/rules.c) ---- */
void ir_strategies_none(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);
/* All inputs broadcast to output 0 NumPy-wise; a split of an output dim splits the operands that
 * have that dim in full. Adds partial → partial if the op is IR_LINEAR. */
void ir_strategies_elementwise(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);
/* One input, same shape out. */
st_status_t ir_shape_same(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Float input required, same shape out. */
st_status_t ir_shape_float_unary(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Two inputs of one dtype, broadcast. */
st_status_t ir_shape_binary(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Two inputs of one dtype, broadcast, bool out. */
st_status_t ir_shape_compare(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Rows: every dim but the last `n_last` may be split; all inputs listed in `split` (bit j) and all
 * outputs carry the same leading dims; others replicate. For softmax, norms, rope … */
void ir_strategies_rows(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t split_inputs,
                        uint32_t split_outputs, int32_t n_last);
/* Output types of a context by its shape rule (which has already succeeded once). */
void ir_ctx_outputs(const ir_op_ctx_t *ctx, ir_type_t *out);
/* FAILs with "op 'name': …" context. */
#define IR_FAIL_SHAPE(ctx, ...) FAIL(ST_INVALID, __VA_ARGS__)

/* ---- shared checks and shape rules (src/ir/rules_shape.c) ---- */
/* Input j is a float type / a float or integer type / one of i32 and i64. */
st_status_t ir_check_float(const ir_op_ctx_t *ctx, uint32_t j) ST_WARN_UNUSED;
st_status_t ir_check_number(const ir_op_ctx_t *ctx, uint32_t j) ST_WARN_UNUSED;
st_status_t ir_check_index(const ir_op_ctx_t *ctx, uint32_t j) ST_WARN_UNUSED;
/* An attribute that names a dim of `type`: 0 … rank - 1. Negative axes are the importers' to
 * resolve. */
st_status_t ir_check_axis(int64_t axis, const ir_type_t *type) ST_WARN_UNUSED;
/* Ascending, distinct dims of `type`. */
st_status_t ir_check_axes(const ir_attr_t *axes, const ir_type_t *type) ST_WARN_UNUSED;
/* Type from the attributes `dtype` and `shape`. */
st_status_t ir_shape_attributes(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Input 0's dtype with the dims of the attribute `shape`. */
st_status_t ir_shape_of_attribute(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Float or integer input, same type out. */
st_status_t ir_shape_number_unary(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Each input's type is its output's. */
st_status_t ir_shape_each(const ir_op_ctx_t *ctx, ir_type_t *out);
/* The same of floats and integers. */
st_status_t ir_shape_numbers(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Two float or integer inputs of one dtype, broadcast. */
st_status_t ir_shape_number_binary(const ir_op_ctx_t *ctx, ir_type_t *out);
/* One or two bool inputs, broadcast. */
st_status_t ir_shape_bool(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Two inputs of one float type and one shape, which is the output's: dy with x or y. */
st_status_t ir_shape_backward(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Reductions over the attributes {axes, keep}: axes ascending and not empty (unless x is a scalar).
 * */
st_status_t ir_shape_reduce(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Same, of an operation without a value for no elements (max, min). */
st_status_t ir_shape_reduce_nonempty(const ir_op_ctx_t *ctx, ir_type_t *out);
/* Window attributes {begin, global} of random ops: empty, or `type` lies within `global` at
 * `begin`. */
st_status_t ir_check_window(const ir_op_ctx_t *ctx, const ir_type_t *type) ST_WARN_UNUSED;

/* ---- shared partition rules (src/ir/rules.c) ---- */
/* Drops the newest strategy if the list had it already. Call it when one has been filled in. */
void ir_strategy_unique(ir_strategy_list_t *list);
/* If an input of `mask` (bit j) arrives partial: those partial, the others replicated → output 0
 * partial. For ops that are linear in the inputs of the mask together. */
void ir_strategies_partial(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t mask);
/* If input j arrives split on dim d and to_out[d] ≥ 0: input j so, the others replicated → output 0
 * split on dim to_out[d] with the same granules. */
void ir_strategies_map(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t j,
                       const int32_t *to_out);
/* Elementwise, and partial → partial for each input of `mask` alone, the others replicated. */
void ir_strategies_scaling(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t mask);
/* Reductions over {axes, keep}: a split of another dim passes through. */
void ir_strategies_reduce(const ir_op_ctx_t *ctx, ir_strategy_list_t *list);

/* ---- shared localize rules (src/ir/rules.c) ---- */
/* An attribute among a rank's copies, to be rewritten. */
ir_attr_t *ir_attr_of(ir_op_t op, ir_attr_t *attrs, const char *key);
/* ints[index] = value in a copy that `arena` owns. */
st_status_t ir_attr_set_int(ir_attr_t *attr, uint32_t index, int64_t value,
                            st_arena_t *arena) ST_WARN_UNUSED;
/* The attribute `shape` describes output 0: its split dim takes the part's extent. */
st_status_t ir_localize_shape(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                              st_arena_t *arena, ir_attr_t *attrs);
/* The attribute `extent` is that of output 0 along `axis`: of a part of it, the part's. */
st_status_t ir_localize_extent(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                               st_arena_t *arena, ir_attr_t *attrs);
/* The window attributes {begin, global} of random ops describe where output 0's part lies. */
st_status_t ir_localize_window(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                               st_arena_t *arena, ir_attr_t *attrs);

/* ---- shared gradient rules (src/ir/rules_gradient.c) ---- */
/* Of a gather of x by an index along the attribute `axis`: dx is dy scattered by `scatter`, whose
 * attributes are axis and extent. */
st_status_t ir_gradient_scattered(ir_graph_t *graph, ir_node_t node, ir_op_t scatter,
                                  const ir_value_t *dout, const bool *want, ir_value_t *din);
struct ir_build;
/* dx of y = f(x), elementwise. */
typedef ir_value_t (*ir_derive_unary_t)(struct ir_build *b, ir_value_t dy, ir_value_t x,
                                        ir_value_t y);
st_status_t ir_gradient_unary(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                              const bool *want, ir_value_t *din, ir_derive_unary_t derive);
/* Gradient of operand `which` of z = f(operand[0], operand[1]), elementwise, in z's shape: the
 * caller sums it down to the operand's. */
typedef ir_value_t (*ir_derive_binary_t)(struct ir_build *b, ir_value_t dz,
                                         const ir_value_t *operand, ir_value_t z, uint32_t which);
st_status_t ir_gradient_binary(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                               const bool *want, ir_value_t *din, ir_derive_binary_t derive);
/* Derivation of maximum and minimum: an operand for which `loses`(own, other) holds gets nothing, a
 * tie half. */
ir_value_t ir_derive_extreme(struct ir_build *b, ir_value_t dz, const ir_value_t *operand,
                             uint32_t which, ir_op_t loses);
/* reduce_max and reduce_min: elements equal to the result share its gradient equally. */
st_status_t ir_gradient_extreme(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                                const bool *want, ir_value_t *din);
/* f32 for the small floats, else the type itself: where counts and sums of a gradient are computed.
 * */
ir_dtype_t ir_dtype_wide(ir_dtype_t dtype);
/* x / count, computed in ir_dtype_wide. */
ir_value_t ir_b_div_count(struct ir_build *b, ir_value_t x, int64_t count);
/* A reduction's result (kept dims or not) in the shape that `keep` gives. */
ir_value_t ir_b_reduced_keep(struct ir_build *b, const ir_node_info_t *reduction, ir_value_t value);

#endif
