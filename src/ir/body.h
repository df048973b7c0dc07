/* Bodies: graphs that a node owns as an attribute.
 *
 *   outer   %5, %6 = fused(%3, %4) {body}         operand j  ↔  the body's j-th `input` node
 *   body    { %0 input, %1 input, …, outputs }    result k   ↔  the body's k-th output
 *
 * A body sees nothing of the outer graph but its operands. It is pure: no parameters or buffers, no
 * updates, no collectives, no aliases; bodies may nest, IR_MAX_DEPTH deep. Its inputs have names
 * (any, distinct), but no one looks them up, and their batch axis means nothing: -1 by custom. */
#ifndef STATOR_IR_BODY_H
#define STATOR_IR_BODY_H

#include "ir/build.h"
#include "ir/op.h"

enum {
    IR_MAX_DEPTH = 8,  /* bodies around a node, at most */
    IR_MAX_BODIES = 2, /* of one node */
};

/* The rules above, beside those of every graph (verify.h). FAILs naming the node. */
st_status_t ir_body_check(const ir_graph_t *body) ST_WARN_UNUSED;
/* Bodies inside each other: 0 for a graph without. */
int ir_graph_depth(const ir_graph_t *graph);

/* Control flow (IR_REGION) as what runs it sees it. A cond has carried and scanned 0, trip 1. */
typedef struct ir_region_info {
    uint32_t n_bodies; /* 0: the node is no control flow; 2: operand 0 chooses (then, else) */
    uint32_t n_inputs; /* of each body: the node's operands from `first` on */
    uint32_t first;    /* operand that is the body's input 0 */
    uint32_t carried, scanned; /* of the body's inputs, in this order */
    int64_t trip;
    bool reverse;
    uint32_t attr[IR_MAX_BODIES]; /* place of each body among the node's attributes */
    const ir_graph_t *bodies[IR_MAX_BODIES];
} ir_region_info_t;
ir_region_info_t ir_region_info(const ir_node_info_t *node);

/* Whether it draws random numbers, bodies in it included. */
bool ir_body_is_random(const ir_graph_t *body);
bool ir_node_is_random(const ir_node_info_t *node);

/* First input node from `from` on; the number of nodes if there is none. */
ir_node_t ir_body_next_input(const ir_graph_t *body, ir_node_t from);
/* FAILs unless operand j, which the body sees as `seen`, fits its input node. */
st_status_t ir_body_check_operand(const ir_graph_t *body, ir_node_t input, uint32_t j,
                                  const ir_type_t *seen) ST_WARN_UNUSED;
uint32_t ir_body_n_inputs(const ir_graph_t *body);
/* The values of the input nodes, in order, into out[ir_body_n_inputs]. */
void ir_body_inputs(const ir_graph_t *body, ir_value_t *out);
static inline const ir_type_t *ir_body_output_type(const ir_graph_t *body, size_t k) {
    return ir_value_type(body, body->outputs.data[k].value);
}

/* Next input of a body that is being built, named by its number. */
ir_value_t ir_b_body_input(ir_build_t *b, const ir_type_t *type);
/* The same in a copy of `from`, under a name that none of its inputs has. */
ir_value_t ir_b_body_input_beside(ir_build_t *b, const ir_graph_t *from, const ir_type_t *type);
/* An order for ir_graph_rewrite, the caller's to free; NULL: no memory. A body's inputs come first,
 * so that those which are added to them can come after. */
ir_node_t *ir_body_inputs_first(const ir_graph_t *body);
/* Next output, named by its number. */
void ir_b_body_output(ir_build_t *b, ir_value_t value);

/* One more output of a body that is there, under a name that is free. */
st_status_t ir_body_add_output(ir_graph_t *body, ir_value_t value) ST_WARN_UNUSED;

/* Appends the body's nodes to `graph` over `inputs`, in the phase of its cursor; out[k] is the
 * value of its output k. */
st_status_t ir_body_inline(ir_graph_t *graph, const ir_graph_t *body, const ir_value_t *inputs,
                           ir_value_t *out) ST_WARN_UNUSED;

#endif
