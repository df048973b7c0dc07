/* The graph: static single assignment over typed tensors.
 *
 * Nodes and values are 32-bit ids into arrays; everything belongs to one arena, freed as a whole.
 * Invariant: the inputs of node i are outputs of nodes < i, so array order is a topological order
 * and, after the order pass, the order of execution. A pass reads one graph and writes another
 * (ir_graph_clone_node copies a node through a value map), or appends to one.
 *
 *   nodes   [ input x | parameter w | matmul | … ]      outputs [ {value, "loss"} … ]
 *   values  [ x       | w           | y      | … ]  aliases [ {"lm_head.weight" → "embed.weight"} ]
 *
 * A node may own a graph as an attribute, its body: ids count anew in it, and it goes with the
 * outer graph (body.h).
 */
#ifndef STATOR_IR_GRAPH_H
#define STATOR_IR_GRAPH_H

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "ir/types.h"

/* Op ids are wire ids (src/ir/ops.def). */
typedef enum ir_op {
    IR_OP_NONE = 0,
#define OP(enumerator, name, wire, ...) IR_OP_##enumerator = (wire),
#include "ir/ops.def"
#undef OP
    IR_OP_END
} ir_op_t;

typedef uint32_t ir_value_t;
typedef uint32_t ir_node_t;
#define IR_NONE UINT32_MAX

typedef enum ir_attr_kind {
    IR_ATTR_INT = 1, /* i */
    IR_ATTR_FLOAT,   /* f */
    IR_ATTR_BOOL,    /* i: 0 or 1 */
    IR_ATTR_DTYPE,   /* i: ir_dtype_t */
    IR_ATTR_INTS,    /* ints */
    IR_ATTR_STRING,  /* s */
    IR_ATTR_DATA,    /* data: raw little-endian elements */
    IR_ATTR_GRAPH,   /* graph: a body (body.h) */
} ir_attr_kind_t;

/* One attribute value. A node's attributes stand in the order of its op's schema, none missing. */
typedef struct ir_attr {
    ir_attr_kind_t kind;
    union {
        int64_t i;
        double f;
        const char *s;
        struct {
            const int64_t *v;
            uint32_t n;
        } ints;
        struct {
            const void *p;
            size_t bytes;
        } data;
        const struct ir_graph *graph;
    };
} ir_attr_t;

/* Which part of a training step a node belongs to. Passes that weigh what is kept from one part to
 * the next read it; what a node computes does not depend on it. */
typedef enum ir_phase {
    IR_PHASE_FORWARD = 0,
    IR_PHASE_BACKWARD,
    IR_PHASE_OPTIMIZER,
    IR_PHASE_END
} ir_phase_t;

typedef struct ir_node_info {
    ir_op_t op;
    ir_phase_t phase;
    /* Of a pipeline's rank, and of micro-batches that are written out: the turn that the node
     * belongs to. Nodes run in ascending order of slots and are not fused over them. The compiler's
     * alone: not in files, 0 elsewhere. */
    uint32_t slot;
    uint32_t n_inputs, n_outputs;
    const ir_value_t *inputs;
    ir_value_t first_output; /* outputs are first_output … first_output + n_outputs - 1 */
    const ir_attr_t *attrs;  /* as many as the op's schema has */
    const char *name;        /* "" if none; state nodes and inputs: unique, non-empty */
    /* Recomputation: the node of the program before it that this one is or, with `again`, repeats,
     * plus one; 0: not known. Copies of the node keep both, files do not. */
    uint32_t origin;
    bool again;
} ir_node_info_t;

typedef struct ir_value_info {
    ir_type_t type;
    ir_node_t producer;
    uint32_t index; /* which output of the producer */
} ir_value_info_t;

typedef struct ir_output {
    ir_value_t value;
    const char *name;
} ir_output_t;

typedef struct ir_alias {
    const char *name;   /* the other name */
    const char *stored; /* the parameter's or buffer's own name */
} ir_alias_t;

/* A size that is open until it is bound (ir/symbols.h). */
typedef struct ir_symbol {
    const char *name;
    int64_t min, max; /* inclusive; max INT64_MAX: no bound */
    int64_t example;  /* for which the graph stands */
} ir_symbol_t;

/* An entry of an attribute that depends on symbols. */
typedef struct ir_variation {
    ir_value_t value;       /* the node's first output */
    const char *key;        /* of the attribute */
    uint32_t element;       /* of a list or a constant; else 0 */
    const char *expression; /* base/expression.h over the symbols */
} ir_variation_t;

/* Index of the first n names of a list, for the search for duplicates. */
typedef struct ir_names {
    st_map_t map;
    size_t n;
} ir_names_t;

typedef struct ir_graph {
    st_arena_t arena;
    ST_VEC(ir_node_info_t) nodes;
    ST_VEC(ir_value_info_t) values;
    ST_VEC(ir_output_t) outputs;
    ST_VEC(ir_alias_t) aliases;
    ST_VEC(ir_symbol_t) symbols; /* none in a graph that can be compiled */
    ST_VEC(ir_variation_t) variations;
    ST_VEC(struct ir_graph *) bodies;     /* owned; what IR_ATTR_GRAPH attributes point to */
    ir_names_t output_names, alias_names; /* only graph.c's */
    st_map_t node_names;                  /* the same; state and inputs, the first of each name */
    ir_phase_t phase;                     /* cursor: of what ir_graph_add appends */
    uint32_t slot;                        /* the same */
    const char *name;                     /* for messages; "" if none */
    const char *producer; /* who wrote the source model ("pytorch 2.11"); "" if none */
} ir_graph_t;

/* ---- life ---- */
st_status_t ir_graph_create(const char *name, ir_graph_t **out_graph) ST_WARN_UNUSED;
void ir_graph_destroy(ir_graph_t *graph); /* NULL is fine */
/* Sets the origin of each node, and of those of its bodies, to its own place plus one. */
void ir_graph_mark_origins(ir_graph_t *graph);
/* Whether any of its nodes repeats another one. */
bool ir_graph_repeats(const ir_graph_t *graph);
/* Deep copy. */
st_status_t ir_graph_copy(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;
/* Empty graph with the name, producer and aliases of `graph`: where a pass writes to. */
st_status_t ir_graph_create_like(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

/* ---- reading ---- */
static inline const ir_node_info_t *ir_node(const ir_graph_t *graph, ir_node_t node) {
    return &graph->nodes.data[node];
}
static inline const ir_type_t *ir_value_type(const ir_graph_t *graph, ir_value_t value) {
    return &graph->values.data[value].type;
}
static inline const ir_node_info_t *ir_value_producer(const ir_graph_t *graph, ir_value_t value) {
    return &graph->nodes.data[graph->values.data[value].producer];
}
/* "forward", "backward", "optimizer", and back: IR_PHASE_END for any other text. */
const char *ir_phase_text(ir_phase_t phase);
ir_phase_t ir_phase_parse(const char *text);
/* Attribute by name; the op has it (ASSERT). */
const ir_attr_t *ir_node_attr(const ir_node_info_t *node, const char *key);
int64_t ir_attr_int(const ir_node_info_t *node, const char *key);
double ir_attr_float(const ir_node_info_t *node, const char *key);
/* Node with state or input name `name` (parameter, buffer or input; aliases count), IR_NONE if
 * none. */
ir_node_t ir_graph_find(const ir_graph_t *graph, const char *name);
/* Graph output by name: its value, IR_NONE if none. */
ir_value_t ir_graph_find_output(const ir_graph_t *graph, const char *name);
/* "node 17 (matmul 'layers.0.q_proj')": for messages; thread-local buffer, valid until the next
 * call. */
const char *ir_node_label(const ir_graph_t *graph, ir_node_t node);

/* Users of each value in one allocation: the users of v are node[first[v]] … node[first[v + 1] -
 * 1], in order, a node once per use. */
typedef struct ir_uses {
    uint32_t *first; /* n_values + 1 */
    ir_node_t *node;
} ir_uses_t;
st_status_t ir_uses_build(const ir_graph_t *graph, ir_uses_t *out_uses) ST_WARN_UNUSED;
void ir_uses_free(ir_uses_t *uses);

/* Begins the names of buffers that keep a parameter in a smaller type (autodiff/shadow.h). */
#define IR_SHADOW_PREFIX "optim.shadow."
bool ir_is_shadow(const ir_node_info_t *node);
/* The parameter that the node is the shadow of; IR_NONE: it is no shadow, or the graph has no such
 * parameter. */
ir_node_t ir_master_of(const ir_graph_t *graph, const ir_node_info_t *node);

/* ---- writing ---- */
/* New nodes get the phase and the slot of `node`, for which they stand. */
static inline void ir_graph_stand_for(ir_graph_t *graph, const ir_node_info_t *node) {
    graph->phase = node->phase;
    graph->slot = node->slot;
}
static inline void ir_graph_stand_alone(ir_graph_t *graph) {
    graph->phase = IR_PHASE_FORWARD;
    graph->slot = 0;
}
/* One attribute to give to ir_graph_add; attributes left out take the schema's default. What
 * pointers point to is copied, bodies too. */
typedef struct ir_arg {
    const char *key;
    ir_attr_t value;
} ir_arg_t;
#define IR_ARG_INT(key_, v) ((ir_arg_t){(key_), {.kind = IR_ATTR_INT, .i = (v)}})
#define IR_ARG_BOOL(key_, v) ((ir_arg_t){(key_), {.kind = IR_ATTR_BOOL, .i = (v) ? 1 : 0}})
#define IR_ARG_FLOAT(key_, v) ((ir_arg_t){(key_), {.kind = IR_ATTR_FLOAT, .f = (v)}})
#define IR_ARG_DTYPE(key_, v) ((ir_arg_t){(key_), {.kind = IR_ATTR_DTYPE, .i = (v)}})
#define IR_ARG_STRING(key_, v) ((ir_arg_t){(key_), {.kind = IR_ATTR_STRING, .s = (v)}})
#define IR_ARG_INTS(key_, p_, n_) \
    ((ir_arg_t){(key_), {.kind = IR_ATTR_INTS, .ints = {(p_), (uint32_t)(n_)}}})
#define IR_ARG_DATA(key_, p_, bytes_) \
    ((ir_arg_t){(key_), {.kind = IR_ATTR_DATA, .data = {(p_), (bytes_)}}})
#define IR_ARG_GRAPH(key_, p_) ((ir_arg_t){(key_), {.kind = IR_ATTR_GRAPH, .graph = (p_)}})

/* Bytes of all values together: what says which of several graphs of the same nodes is the largest.
 */
uint64_t ir_graph_value_bytes(const ir_graph_t *graph);
/* Appends a node of the phase and the slot that the cursors graph->phase and graph->slot say:
 * checks input count, attributes (kind, required), runs the op's shape rule, and makes its output
 * values. `name` may be NULL. *out_first is the first output value (IR_NONE for an op with none).
 * Errors name op and node name and leave the graph unchanged. */
st_status_t ir_graph_add(ir_graph_t *graph, ir_op_t op, const char *name, uint32_t n_inputs,
                         const ir_value_t *inputs, size_t n_args, const ir_arg_t *args,
                         ir_value_t *out_first) ST_WARN_UNUSED;
/* Appends a copy of `node` of `from` whose inputs are map[old input]; fills map[] for its outputs.
 * `attrs` replaces the attributes (schema order) unless NULL. Shapes are inferred anew. The copy
 * has the phase and the slot of `node`, whatever the cursors say. */
st_status_t ir_graph_clone_node(ir_graph_t *graph, const ir_graph_t *from, ir_node_t node,
                                const ir_attr_t *attrs, ir_value_t *map) ST_WARN_UNUSED;
/* What a pass makes of a body: a graph with as many inputs and outputs. */
typedef st_status_t (*ir_body_pass_t)(void *context, const ir_graph_t *body, ir_graph_t **out_body);
/* ir_graph_clone_node that puts each body of the node through `pass`. How a pass over a graph goes
 * on into bodies: it clones the nodes that it leaves alone so, with itself. */
st_status_t ir_graph_clone_node_bodies(ir_graph_t *graph, const ir_graph_t *from, ir_node_t node,
                                       const ir_attr_t *attrs, ir_body_pass_t pass, void *context,
                                       ir_value_t *map) ST_WARN_UNUSED;
/* What stands in a copy for `node` of `from`: appends to `to` the node itself
 * (ir_graph_clone_node), others, or none, and sets map[] for those of the node's outputs that are
 * still read. */
typedef st_status_t (*ir_rewrite_t)(void *context, ir_graph_t *to, const ir_graph_t *from,
                                    ir_node_t node, ir_value_t *map);
/* Copies `graph`, each node as `rewrite` says (NULL: as it is), with its name, producer, aliases
 * and outputs. Nodes are taken in the order `order`, NULL: as they stand. The cursors of `to`
 * follow them, so that new nodes have the phase and the slot of the node they stand for. */
st_status_t ir_graph_rewrite(const ir_graph_t *graph, const ir_node_t *order, ir_rewrite_t rewrite,
                             void *context, ir_graph_t **out_graph) ST_WARN_UNUSED;
/* Names an output; a second output of one name is an error. */
st_status_t ir_graph_add_output(ir_graph_t *graph, const char *name,
                                ir_value_t value) ST_WARN_UNUSED;
st_status_t ir_graph_add_alias(ir_graph_t *graph, const char *name,
                               const char *stored) ST_WARN_UNUSED;
/* The same without a search for duplicates: for names that are known to differ, as in a copy, or
 * that ir_graph_verify sees before anything else does. */
st_status_t ir_graph_append_output(ir_graph_t *graph, const char *name,
                                   ir_value_t value) ST_WARN_UNUSED;
st_status_t ir_graph_append_alias(ir_graph_t *graph, const char *name,
                                  const char *stored) ST_WARN_UNUSED;

#endif
