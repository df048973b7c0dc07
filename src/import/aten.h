/* Interpreter of ATen graphs: each node becomes IR nodes through one row of a table.
 *
 * Values. Names map to slots. An ATen graph mutates (add_, relu_, batch norm's statistics), the IR
 * does not: a mutation gives the slot a new IR value, and slots of one storage remember which
 * version of it they have seen, so that
 *
 *   x ──slot 0──┐              y = view(x)     slot 1, version 0
 *   y ──slot 1──┴─ storage 0   x.add_(1)       slot 0 has a new value, storage 0 version 1
 *                              use of y        slot 1 has seen version 0 only: an error, not a
 * wrong number
 *
 * A name that stands for the very same tensor (the result of add_, detach, a `to` that changes
 * nothing) shares the slot.
 *
 * Handlers read arguments with aten_int and its like and hand results to aten_return. The status is
 * sticky (a->b.status), as in ir/build.h: after a failure everything is a no-op. The dispatcher
 * adds node and op to messages and refuses arguments that no handler looked at. */
#ifndef STATOR_IMPORT_ATEN_H
#define STATOR_IMPORT_ATEN_H

#include <json-c/json.h>

#include "import/import.h"
#include "import/known.h"
#include "ir/build.h"

typedef enum aten_kind {
    ATEN_NONE = 0,
    ATEN_TENSOR,
    ATEN_BOOL,
    ATEN_INT,
    ATEN_FLOAT,
} aten_kind_t;

/* What a name or an argument stands for. */
typedef struct aten_item {
    aten_kind_t kind;
    uint32_t slot; /* tensor */
    int64_t i;     /* bool, int; in a result that shares a slot: 1 + that slot */
    double f;      /* float */
} aten_item_t;

typedef struct aten_slot {
    ir_value_t value;
    uint32_t storage;
    uint32_t seen; /* version of the storage that `value` is of */
} aten_slot_t;

typedef struct aten_storage {
    uint32_t version;
    const char *name;       /* of the value that made it, and … */
    const char *changed_by; /* … of the node that changed it last */
} aten_storage_t;

typedef struct aten_binding {
    const char *name; /* NULL: free */
    aten_item_t item;
} aten_binding_t;

/* Names of one graph: open addressing. */
typedef struct aten_scope {
    aten_binding_t *bindings;
    size_t n, cap;
    json_object *tensor_values; /* descriptions by name, may be NULL */
} aten_scope_t;

typedef struct aten aten_t;
typedef struct aten_op {
    const char *name; /* "add.Tensor", without the common prefix */
    void (*handle)(aten_t *a);
    uint32_t flags;
    int32_t arg; /* for handlers of several rows: an ir_op_t or a variant */
} aten_op_t;
enum {
    ATEN_MUTABLE = 1 << 0, /* the variant with "_" is the same with the result written to self */
    ATEN_VIEW = 1 << 1,    /* results share the first argument's storage, of a list one each */
    ATEN_ALIAS = 1 << 2,   /* a result that is the argument's value is the argument itself */
    ATEN_SHAPE = 1 << 3, /* the archive's word on shapes is not taken: PyTorch writes wrong ones */
};

struct aten {
    ir_build_t b;
    import_result_t *result;
    const struct pt2_sizes *sizes; /* of the archive's symbols */
    st_arena_t *arena;             /* scratch, lives as long as the import */
    aten_scope_t *scope;
    ST_VEC(aten_slot_t) slots;
    ST_VEC(aten_storage_t) storages;
    ST_VEC(bool) depends;                /* by IR value: on a parameter, differentiably */
    ir_value_t random_seed, random_step; /* IR_NONE until a random op needs them */
    int64_t n_random;
    int depth;             /* of nested graphs */
    bool in_body;          /* nodes go into the body of a condition or a loop */
    import_knowns_t known; /* of the graph that nodes go into */
    int64_t known_left;
    /* the node at hand */
    json_object *node, *inputs;
    const char *node_name, *target;
    const aten_op_t *op;
    uint32_t used;                /* bit i: argument i was looked at */
    bool fresh;                   /* the handler made a copy although its row says alias */
    ST_VEC(aten_item_t) returned; /* tensors: .slot is the IR value here */
};

/* Row of a target, NULL if there is none; *out_mutates is set where it is the variant with "_". */
const aten_op_t *aten_find(const char *target, bool *out_mutates);

/* ---- the interpreter (aten.c) ---- */
/* Fails with one message that lists all nodes whose target has no row, nested graphs included. */
st_status_t aten_check_supported(json_object *graph) ST_WARN_UNUSED;
/* Appends the nodes of `graph` under the names of a->scope. */
void aten_run(aten_t *a, json_object *graph);
/* Binds a name to a new tensor with storage of its own / looks a name up. */
void aten_bind_tensor(aten_t *a, const char *name, ir_value_t value);
aten_item_t *aten_lookup(const aten_scope_t *scope, const char *name);
void aten_bind(aten_t *a, const char *name, aten_item_t item);
/* Current IR value of a slot; fails if a mutation of its storage through another slot made it
 * stale. */
ir_value_t aten_slot_value(aten_t *a, uint32_t slot);
/* The slot's tensor is overwritten by `value`, of its type. */
void aten_mutate(aten_t *a, uint32_t slot, ir_value_t value);
void aten_free(aten_t *a);
/* Records a failure of the node at hand, unless there is one already. */
void aten_fail(aten_t *a, st_status_t status, const char *format, ...) ST_PRINTF(3, 4);
static inline bool aten_ok(const aten_t *a) {
    return a->b.status == ST_OK;
}

/* ---- arguments, by the schema's name (aten_args.c) ---- */
enum { ATEN_MAX_LIST = 64 };
/* True if the argument is given and not None. */
bool aten_has(aten_t *a, const char *name);
/* Required tensor / IR_NONE where it is left out or None. */
ir_value_t aten_tensor(aten_t *a, const char *name);
ir_value_t aten_tensor_or_none(aten_t *a, const char *name);
/* Slot of a required tensor. */
uint32_t aten_slot(aten_t *a, const char *name);
/* Tensors of a list; absent ones are IR_NONE. The array belongs to the arena. */
uint32_t aten_tensors(aten_t *a, const char *name, ir_value_t **out);
/* A tensor or a Python scalar; kind ATEN_NONE if left out. Tensor: .slot is the IR value. */
aten_item_t aten_item(aten_t *a, const char *name);
int64_t aten_int(aten_t *a, const char *name, int64_t default_value);
int64_t aten_int_required(aten_t *a, const char *name);
double aten_float(aten_t *a, const char *name, double default_value);
bool aten_bool(aten_t *a, const char *name, bool default_value);
const char *aten_string(aten_t *a, const char *name, const char *default_value);
ir_dtype_t aten_dtype(aten_t *a, const char *name, ir_dtype_t default_value);
/* Integers of a list (a single integer is a list of one); returns their number, -1 if left out. */
int32_t aten_ints(aten_t *a, const char *name, int64_t out[ATEN_MAX_LIST]);
/* Same, stretched to `n` entries from one, or `default_value` if left out or empty. */
void aten_ints_n(aten_t *a, const char *name, int32_t n, int64_t default_value, int64_t *out);
/* Axis argument, normalized to 0 … rank - 1 (a scalar has axis 0 and -1). */
int32_t aten_axis(aten_t *a, const char *name, int32_t rank, int64_t default_value);
int32_t aten_axis_of(aten_t *a, int64_t axis, int32_t rank);
/* The argument is read elsewhere or has no meaning here. */
void aten_ignore(aten_t *a, const char *name);
/* Item of an argument union, also for positional arguments of operators without names. */
aten_item_t aten_item_at(aten_t *a, size_t index);
/* The same, a tensor by its slot. */
aten_item_t aten_slot_item_at(aten_t *a, size_t index);
/* Slots of the tensors of a positional list. The array belongs to the arena. */
size_t aten_slots_at(aten_t *a, size_t index, uint32_t **out_slots);

/* The name of a value that a union {"as_tensor": {"name": …}} gives; NULL if it is none. */
const char *aten_union_name(json_object *value);

/* ---- graphs that nodes own (aten_nested.c) ---- */
enum { ATEN_MAX_NESTED = 16 };
/* The node at hand, while a graph that it owns is read. */
typedef struct aten_nest {
    json_object *node, *inputs, *graph; /* `graph`: the one that is read */
    const char *node_name, *target;
    const aten_op_t *op;
    aten_scope_t *scope; /* the one outside */
    aten_scope_t inner;
} aten_nest_t;
/* Opens a scope of its own for the graph that is argument `at`, which must have `n_inputs` inputs.
 * False after a failure; else to be left. */
bool aten_nest_open(aten_t *a, size_t at, size_t n_inputs, aten_nest_t *out_nest);
/* Name of input i of the graph. */
const char *aten_nest_input(aten_t *a, const aten_nest_t *nest, size_t i);
/* Runs its nodes. */
void aten_nest_run(aten_t *a, aten_nest_t *nest);
size_t aten_nest_n_outputs(const aten_nest_t *nest);
aten_item_t aten_nest_output(aten_t *a, const aten_nest_t *nest, size_t k);
/* Back to the node that owns it. */
void aten_nest_close(aten_t *a, aten_nest_t *nest);
/* Runs the graph that is argument `at` where the node stands, on these items: tensors by their
 * slots, so that what is written to one inside is seen outside. Its results become the node's.
 * `why`: gradients must not flow through it, for this reason; NULL: they may. */
void aten_run_nested(aten_t *a, size_t at, size_t n, const aten_item_t *items, const char *why);

/* ---- results ---- */
void aten_return(aten_t *a, ir_value_t value);
void aten_return_item(aten_t *a, aten_item_t item);

/* ---- common steps (aten_promote.c) ---- */
/* PyTorch's torch.promote_types; IR_DTYPE_NONE where it refuses or the result does not exist here.
 */
ir_dtype_t aten_promote(ir_dtype_t x, ir_dtype_t y);
/* PyTorch's torch.result_type over tensors and Python scalars. Fails where there is none. */
ir_dtype_t aten_result_type(aten_t *a, uint32_t n, const aten_item_t *items);
/* The item as a value of `dtype`: a cast, or a scalar constant. */
ir_value_t aten_value(aten_t *a, aten_item_t item, ir_dtype_t dtype);
/* Constant of `type` filled with a Python scalar. */
ir_value_t aten_fill(aten_t *a, ir_type_t type, aten_item_t scalar);
aten_item_t aten_item_tensor(ir_value_t value);
/* Element type that a bare scalar gives a new tensor: bool, i64 or f32. */
ir_dtype_t aten_scalar_dtype(aten_item_t scalar);
/* float, or the default float type for integers and bools (division, exp, mean …) */
ir_value_t aten_to_float(aten_t *a, ir_value_t x);
/* Whether a gradient flows from a value to a parameter. */
bool aten_depends(aten_t *a, ir_value_t value);
/* Refuses a value that depends on a parameter: no gradient may flow, and the IR has no stop. */
void aten_refuse_gradient(aten_t *a, ir_value_t value, const char *why);

/* x where it is above (lower) or below the bound, else the bound; `strict`: at the bound no
 * gradient goes to x. */
ir_value_t aten_bounded(aten_t *a, ir_value_t x, ir_value_t bound, bool lower, bool strict);
/* log(1 + u) for u in [0, 1], to the last places however small u is; and of u = exp(-|x|). */
ir_value_t aten_log_one_plus(aten_t *a, ir_value_t u);
ir_value_t aten_log_one_plus_exp(aten_t *a, ir_value_t x);
/* x with a share p of its elements set to 0 in training, the rest scaled up. */
ir_value_t aten_dropped(aten_t *a, ir_value_t x, double p);
ir_type_t aten_type(const aten_t *a, ir_value_t value);
/* x with a dim of extent 1 at `axis` (aten_shape.c). */
ir_value_t aten_with_dim(aten_t *a, ir_value_t x, int32_t axis);
/* bool cast */
ir_value_t aten_to_bool(aten_t *a, ir_value_t x);

/* ---- handlers, by file ---- */
#define ATEN_HANDLER(name) void aten_##name(aten_t *a)
/* aten_elementwise.c */
ATEN_HANDLER(unary);
ATEN_HANDLER(unary_float);
ATEN_HANDLER(gelu);
ATEN_HANDLER(leaky_relu);
ATEN_HANDLER(add);
ATEN_HANDLER(rsub);
ATEN_HANDLER(mul);
ATEN_HANDLER(div);
ATEN_HANDLER(floor_divide);
ATEN_HANDLER(binary);
ATEN_HANDLER(pow);
ATEN_HANDLER(compare);
ATEN_HANDLER(logical);
ATEN_HANDLER(logical_not);
ATEN_HANDLER(isnan);
ATEN_HANDLER(isinf);
ATEN_HANDLER(clamp);
ATEN_HANDLER(where);
ATEN_HANDLER(masked_fill);
ATEN_HANDLER(addcmul);
ATEN_HANDLER(lerp);
/* aten_activation.c */
ATEN_HANDLER(log1p);
ATEN_HANDLER(expm1);
ATEN_HANDLER(softplus);
ATEN_HANDLER(log_sigmoid);
ATEN_HANDLER(mish);
ATEN_HANDLER(elu);
ATEN_HANDLER(hard_sigmoid);
/* aten_create.c */
ATEN_HANDLER(full);
ATEN_HANDLER(full_like);
ATEN_HANDLER(new_full);
ATEN_HANDLER(scalar_tensor);
ATEN_HANDLER(arange);
ATEN_HANDLER(to);
ATEN_HANDLER(same);
ATEN_HANDLER(detach);
ATEN_HANDLER(copy);
ATEN_HANDLER(fill_self);
ATEN_HANDLER(dropout);
ATEN_HANDLER(assert_metadata);
ATEN_HANDLER(assert_scalar);
ATEN_HANDLER(nothing);
ATEN_HANDLER(sym_size);
ATEN_HANDLER(operator);
/* aten_shape.c */
ATEN_HANDLER(view);
ATEN_HANDLER(view_as);
ATEN_HANDLER(flatten);
ATEN_HANDLER(unflatten);
ATEN_HANDLER(squeeze);
ATEN_HANDLER(unsqueeze);
ATEN_HANDLER(permute);
ATEN_HANDLER(transpose);
ATEN_HANDLER(movedim);
ATEN_HANDLER(transpose_matrix);
ATEN_HANDLER(expand);
ATEN_HANDLER(broadcast_tensors);
ATEN_HANDLER(repeat);
ATEN_HANDLER(repeat_interleave);
/* aten_cut.c */
ATEN_HANDLER(cat);
ATEN_HANDLER(stack);
ATEN_HANDLER(split);
ATEN_HANDLER(split_sizes);
ATEN_HANDLER(chunk);
ATEN_HANDLER(unbind);
ATEN_HANDLER(select);
ATEN_HANDLER(slice);
ATEN_HANDLER(narrow);
ATEN_HANDLER(flip);
ATEN_HANDLER(roll);
ATEN_HANDLER(pad);
ATEN_HANDLER(diff);
ATEN_HANDLER(triangle);
/* aten_index.c */
ATEN_HANDLER(embedding);
ATEN_HANDLER(index_select);
ATEN_HANDLER(gather);
ATEN_HANDLER(index);
/* aten_reduce.c */
ATEN_HANDLER(sum);
ATEN_HANDLER(mean);
ATEN_HANDLER(prod);
ATEN_HANDLER(extremum);
ATEN_HANDLER(extremum_with_index);
ATEN_HANDLER(argmax);
ATEN_HANDLER(variance);
ATEN_HANDLER(any);
ATEN_HANDLER(cumsum);
ATEN_HANDLER(logsumexp);
ATEN_HANDLER(softmax);
/* aten_matmul.c */
ATEN_HANDLER(linear);
ATEN_HANDLER(matmul);
ATEN_HANDLER(addmm);
ATEN_HANDLER(einsum);
ATEN_HANDLER(attention);
/* aten_conv.c */
ATEN_HANDLER(conv);
ATEN_HANDLER(conv_transpose);
ATEN_HANDLER(convolution);
ATEN_HANDLER(max_pool);
ATEN_HANDLER(avg_pool);
ATEN_HANDLER(adaptive_avg_pool);
/* aten_recurrent.c */
ATEN_HANDLER(lstm);
/* aten_norm.c */
ATEN_HANDLER(batch_norm);
ATEN_HANDLER(layer_norm);
ATEN_HANDLER(rms_norm);
ATEN_HANDLER(group_norm);
/* aten_loss.c */
ATEN_HANDLER(cross_entropy);
ATEN_HANDLER(nll);
ATEN_HANDLER(distance);
ATEN_HANDLER(bce_with_logits);
/* aten_nested.c */
ATEN_HANDLER(set_grad);
ATEN_HANDLER(autocast);
/* aten_control.c */
ATEN_HANDLER(cond);
ATEN_HANDLER(while_loop);
ATEN_HANDLER(scan);
ATEN_HANDLER(map);

#endif
