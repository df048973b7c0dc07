/* The ONNX reader's own parts, shared by src/import/onnx*.c.
 *
 *   onnx.c        the file: guard, unpack, inputs, initializers, nodes, outputs
 *   onnx_node.c   what handlers call: inputs, attributes, results, failures
 *   onnx_table.c  rows {op, first opset, handler}; the list of what has no row
 *   onnx_tensor.c, onnx_external.c   tensor data, in the model and in files beside it
 *   onnx_static.c values known while importing: shapes, axes, bounds
 *   onnx_scope.c  graphs that nodes own
 *   onnx_<group>.c  handlers
 *
 * A handler reads inputs and attributes, appends nodes with ir/build.h and returns outputs in
 * order. The status is sticky (o->b.status). The dispatcher names the node in messages and refuses
 * attributes that no handler looked at. */
#ifndef STATOR_IMPORT_ONNX_READER_H
#define STATOR_IMPORT_ONNX_READER_H

#include <onnx/onnx.pb-c.h>

#include "base/map.h"
#include "import/import.h"
#include "import/known.h"
#include "ir/build.h"

enum { ONNX_FIRST_OPSET = 9, ONNX_LAST_OPSET = 21, ONNX_MAX_LIST = 64 };

/* What a name of the graph stands for. */
typedef struct onnx_value {
    const char *name;
    ir_value_t value;                     /* IR_NONE: an initializer that nothing has read yet */
    const Onnx__TensorProto *initializer; /* NULL: made by a node or an input */
    ir_value_t setting; /* an initializer's constant where it configures an op; IR_NONE before */
    bool is_buffer;     /* an initializer that holds running statistics */
    bool updated;       /* a buffer that has its update */
    bool outside;       /* of the graph around this one */
} onnx_value_t;

/* A file with external data, opened once. */
typedef struct onnx_file {
    const char *location;
    const void *data;
    size_t bytes;
} onnx_file_t;

/* What the graphs of a model share, those that nodes own included. */
typedef struct onnx_shared {
    ST_VEC(onnx_file_t) files;
    int64_t known_left;                  /* elements that may still be computed while importing */
    ir_value_t random_seed, random_step; /* IR_NONE until a random op needs them */
    int64_t n_random;
    /* floating initializers that became constants; scalars that became parameters */
    ST_VEC(const char *) frozen;
    ST_VEC(const char *) scalars;
} onnx_shared_t;

/* What an outer value is in a body. */
typedef struct onnx_capture {
    ir_value_t outside, inside;
} onnx_capture_t;

typedef struct onnx onnx_t;
typedef struct onnx_op {
    const char *name;
    int32_t since; /* the row holds from this opset on, up to the op's next row */
    void (*handle)(onnx_t *o);
    int32_t arg; /* for handlers of several rows: an ir_op_t or a variant */
} onnx_op_t;

struct onnx {
    ir_build_t b;
    import_result_t *result;
    const import_options_t *options;
    const char *path;  /* NULL: the model is only in memory */
    st_arena_t *arena; /* scratch, lives as long as the import */
    const Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;
    int64_t opset;
    st_map_t names; /* → index into values */
    ST_VEC(onnx_value_t) values;
    import_knowns_t *known; /* of the graph that nodes go into */
    onnx_shared_t *all;
    onnx_t *outer; /* of the graph around the node that owns this one; NULL: the model's */
    bool open;     /* puts its nodes into the outer graph */
    ST_VEC(onnx_capture_t) captures;
    /* the node at hand */
    const Onnx__NodeProto *node;
    const onnx_op_t *op;
    uint64_t used; /* bit i: attribute i was looked at */
    size_t n_returned;
};

/* ---- the table (onnx_table.c) ---- */
/* Row of an op at an opset; NULL if there is none. *out_known: some opset has a row. */
const onnx_op_t *onnx_find_op(const char *name, int64_t opset, bool *out_known);
/* Fails with one message that lists all nodes without a row. */
st_status_t onnx_check_supported(const onnx_t *o) ST_WARN_UNUSED;

/* ---- graphs in nodes (onnx_scope.c) ---- */
/* A reader of `graph`, which a node of `o` owns, into a body; `open`: into the graph of `o`. To be
 * closed in any case; hands its status on. */
void onnx_scope_open(onnx_t *o, const Onnx__GraphProto *graph, bool open, onnx_t *out_inner);
void onnx_scope_close(onnx_t *o, onnx_t *inner);
/* The value here of a name of the graph around. */
ir_value_t onnx_outside(onnx_t *o, const char *name);
/* Names input i of the graph. */
void onnx_bind(onnx_t *o, size_t i, ir_value_t value);
/* Its initializers and nodes. */
st_status_t onnx_run_graph(onnx_t *o) ST_WARN_UNUSED;
ir_value_t onnx_graph_output(onnx_t *o, size_t k);

/* ---- names and nodes (onnx.c) ---- */
st_status_t onnx_add_name(onnx_t *o, onnx_value_t value, const char *what) ST_WARN_UNUSED;
st_status_t onnx_add_initializers(onnx_t *o) ST_WARN_UNUSED;
st_status_t onnx_run_node(onnx_t *o, size_t index) ST_WARN_UNUSED;
/* Value of a name; IR_NONE after a failure. Initializers enter the graph here, when first read. */
ir_value_t onnx_named(onnx_t *o, const char *name);
/* Also names of the graphs around, as this one sees them; NULL: there is none, or no memory for
 * it. */
onnx_value_t *onnx_lookup(onnx_t *o, const char *name);

/* ---- tensors (onnx_tensor.c, onnx_external.c) ---- */
/* Element type of a TensorProto.DataType; IR_DTYPE_NONE if it does not exist here. */
ir_dtype_t onnx_dtype(int64_t data_type);
/* Its name in ONNX, for messages. */
const char *onnx_dtype_name(int64_t data_type);
/* Type and row-major data. The data lives as long as the result. */
st_status_t onnx_tensor_read(onnx_t *o, const Onnx__TensorProto *tensor, const char *name,
                             ir_type_t *out_type, const void **out_data) ST_WARN_UNUSED;
/* `bytes` bytes of a file in the model's folder, as `tensor` says. */
st_status_t onnx_external_read(onnx_t *o, const Onnx__TensorProto *tensor, const char *name,
                               size_t bytes, const void **out_data) ST_WARN_UNUSED;

/* ---- values known while importing (onnx_static.c) ---- */
/* Elements of an IR value that depends on no input, state or random number and is small; NULL else.
 */
const void *onnx_known(onnx_t *o, ir_value_t value);
/* Integers of node input i, which must be known: their number, -1 after a failure. */
int32_t onnx_known_ints(onnx_t *o, size_t i, int64_t out[ONNX_MAX_LIST]);
/* The one element of node input i, which must be known. */
double onnx_known_number(onnx_t *o, size_t i);

/* ---- the node at hand (onnx_node.c) ---- */
size_t onnx_n_inputs(const onnx_t *o); /* without absent ones at the end */
bool onnx_has_input(const onnx_t *o, size_t i);
ir_value_t onnx_in(onnx_t *o, size_t i);         /* required */
ir_value_t onnx_in_or_none(onnx_t *o, size_t i); /* IR_NONE where absent */
/* An input that configures the op (bounds, fill value): a floating initializer is a constant here.
 */
ir_value_t onnx_in_setting(onnx_t *o, size_t i);
bool onnx_wants(const onnx_t *o, size_t output);
bool onnx_has(onnx_t *o, const char *name);
int64_t onnx_int(onnx_t *o, const char *name, int64_t default_value);
bool onnx_flag(onnx_t *o, const char *name, bool default_value);
double onnx_float(onnx_t *o, const char *name, double default_value);
/* The string belongs to the arena. */
const char *onnx_string(onnx_t *o, const char *name, const char *default_value);
/* Number of integers, -1 if the attribute is absent. */
int32_t onnx_ints(onnx_t *o, const char *name, int64_t out[ONNX_MAX_LIST]);
const Onnx__AttributeProto *onnx_attribute(onnx_t *o, const char *name);
/* Axis attribute or number, normalized to 0 … rank - 1. */
int32_t onnx_axis(onnx_t *o, const char *name, int32_t rank, int64_t default_value);
int32_t onnx_axis_of(onnx_t *o, int64_t axis, int32_t rank);
/* Normalizes n axes, which must differ, and sorts them. */
void onnx_sort_axes(onnx_t *o, int32_t n, int64_t *axes, int32_t rank);
/* Axes from input 1 where the opset has it there, else from the attribute: their number, -1 if
 * absent. */
int32_t onnx_axes_input(onnx_t *o, int64_t input_since, int64_t out[ONNX_MAX_LIST]);

void onnx_return(onnx_t *o, ir_value_t value);
void onnx_fail(onnx_t *o, st_status_t status, const char *format, ...) ST_PRINTF(3, 4);
static inline bool onnx_ok(const onnx_t *o) {
    return o->b.status == ST_OK;
}
/* f32[] after a failure */
ir_type_t onnx_type(const onnx_t *o, ir_value_t value);
/* Fails unless both have one element type. */
bool onnx_same_dtype(onnx_t *o, ir_value_t x, ir_value_t y);
/* Constant of a tensor's values. */
ir_value_t onnx_constant(onnx_t *o, const Onnx__TensorProto *tensor, const char *name);
ir_value_t onnx_constant_i64(onnx_t *o, int32_t rank, int64_t n, const int64_t *values);

/* Product of dims [begin, end); saturates, so that no shape made from it passes. */
int64_t onnx_product(const ir_type_t *type, int32_t begin, int32_t end);

/* ---- handlers, by file ---- */
#define ONNX_HANDLER(name) void onnx_##name(onnx_t *o)
/* onnx_elementwise.c */
enum {
    ONNX_SOFTPLUS,
    ONNX_SOFTSIGN,
    ONNX_HARD_SIGMOID,
    ONNX_HARD_SWISH,
    ONNX_ELU,
    ONNX_SELU,
    ONNX_CELU,
    ONNX_MISH,
};
ONNX_HANDLER(unary);
ONNX_HANDLER(identity);
ONNX_HANDLER(composed);
ONNX_HANDLER(gelu);
ONNX_HANDLER(leaky);
ONNX_HANDLER(binary);
ONNX_HANDLER(pow);
ONNX_HANDLER(mod);
ONNX_HANDLER(xor);
ONNX_HANDLER(isnan);
ONNX_HANDLER(isinf);
ONNX_HANDLER(where);
ONNX_HANDLER(cast);
ONNX_HANDLER(cast_like);
ONNX_HANDLER(variadic);
ONNX_HANDLER(clip_attributes);
ONNX_HANDLER(clip);
ONNX_HANDLER(prelu);
/* onnx_create.c */
ONNX_HANDLER(constant_node);
ONNX_HANDLER(constant_of_shape);
ONNX_HANDLER(range);
ONNX_HANDLER(shape);
ONNX_HANDLER(size);
ONNX_HANDLER(dropout);
ONNX_HANDLER(dropout_inference);
/* onnx_shape.c */
ONNX_HANDLER(reshape);
ONNX_HANDLER(flatten);
ONNX_HANDLER(squeeze);
ONNX_HANDLER(unsqueeze);
ONNX_HANDLER(transpose);
ONNX_HANDLER(expand);
ONNX_HANDLER(tile);
ONNX_HANDLER(concat);
ONNX_HANDLER(split);
ONNX_HANDLER(slice_attributes);
ONNX_HANDLER(slice);
ONNX_HANDLER(pad_attributes);
ONNX_HANDLER(pad);
ONNX_HANDLER(trilu);
ONNX_HANDLER(depth_to_space);
ONNX_HANDLER(space_to_depth);
/* onnx_index.c */
ONNX_HANDLER(gather);
ONNX_HANDLER(gather_elements);
ONNX_HANDLER(gather_nd);
ONNX_HANDLER(scatter_elements);
ONNX_HANDLER(scatter_nd);
/* onnx_reduce.c */
enum {
    ONNX_FIRST_COMPOSED = 1 << 16, /* above any IR op */
    ONNX_L1 = ONNX_FIRST_COMPOSED,
    ONNX_L2,
    ONNX_SUM_SQUARE,
    ONNX_LOG_SUM,
    ONNX_LOG_SUM_EXP,
};
ONNX_HANDLER(reduce);
ONNX_HANDLER(argmax);
ONNX_HANDLER(cumsum);
ONNX_HANDLER(softmax);
ONNX_HANDLER(softmax_flat);
ONNX_HANDLER(global_pool);
/* onnx_matmul.c */
ONNX_HANDLER(matmul);
ONNX_HANDLER(gemm);
/* onnx_einsum.c */
ONNX_HANDLER(einsum);
/* onnx_conv.c */
ONNX_HANDLER(conv);
ONNX_HANDLER(conv_transpose);
ONNX_HANDLER(max_pool);
ONNX_HANDLER(average_pool);
/* onnx_norm.c */
ONNX_HANDLER(batch_normalization);
ONNX_HANDLER(layer_normalization);
ONNX_HANDLER(instance_normalization);
/* onnx_recurrent.c */
ONNX_HANDLER(lstm);
/* onnx_control.c */
ONNX_HANDLER(if);
ONNX_HANDLER(loop);
ONNX_HANDLER(scan);
/* onnx_loss.c */
ONNX_HANDLER(cross_entropy);
ONNX_HANDLER(nll);

#endif
