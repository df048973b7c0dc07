/* Orders, and the rules of the layout pass by op (layout.h). */
#ifndef STATOR_FUSION_LAYOUT_RULES_H
#define STATOR_FUSION_LAYOUT_RULES_H

#include "fusion/layout.h"

/* A permutation of dims in nibbles, outermost first: dim i in memory is dim order >> 4 i & 15. */
typedef uint32_t layout_order_t;

static inline int32_t layout_at(layout_order_t order, int32_t i) {
    return (int32_t)(order >> (4 * i) & 15);
}
static inline layout_order_t layout_put(layout_order_t order, int32_t i, int64_t dim) {
    return (order & ~((layout_order_t)15 << (4 * i))) | (layout_order_t)dim << (4 * i);
}
layout_order_t layout_plain(int32_t rank);
/* [0,2,1,3] for rank 4; [0,2,…,1]. */
layout_order_t layout_rows_first(void);
layout_order_t layout_channels_last(int32_t rank);
/* Where dim `dim` lies. */
int32_t layout_place(layout_order_t order, int32_t rank, int32_t dim);
/* The dims of the last `own` of `rank` dims, in the order that they have in `order`. */
layout_order_t layout_tail(layout_order_t order, int32_t rank, int32_t own);
ir_type_t layout_stored(const ir_type_t *type, layout_order_t order);

typedef enum layout_form {
    LAYOUT_AS_IS = 0, /* the node, its operands in the orders that it asks for */
    LAYOUT_GONE,      /* a transpose: the result is the operand */
    LAYOUT_RESHAPE,   /* shape attribute in the result's order */
    LAYOUT_AXES,      /* attribute `axes` or `axis`, begin, end, step follow the operand's order */
    LAYOUT_LIFTED,    /* operands of lower rank get dims of 1 where the result's order has others */
    LAYOUT_FLIPPED,   /* transpose flags of a product: bit 0 of the turn a's, bit 1 b's */
    LAYOUT_TURNED,    /* rows_first or channels_last */
    LAYOUT_FLAT,      /* [N,…,C] as [N·…, C] */
} layout_form_t;

struct layout_decision {
    const ir_graph_t *const *graphs; /* while it is made */
    uint32_t n_graphs;
    const ir_graph_t *graph; /* of costs */
    const ir_target_t *target;
    bool keep;                     /* the graph stays as it is */
    bool exact;                    /* sums keep their order */
    bool conv_last;                /* convolutions take channels last where they can */
    uint32_t *first;               /* [nodes + 1] of a node's operands in `asked` */
    layout_order_t *asked, *order; /* of operands; [values] */
    layout_order_t *want;          /* [values]: 0: none. What readers would like */
    uint8_t *unit;                 /* [values]: bit d: dim d is 1 in all graphs */
    uint8_t *form, *turn;          /* [nodes] */
};

/* Whether the two orders of a value of this rank lie alike in memory. */
bool layout_alike(const layout_decision_t *d, int32_t rank, ir_value_t value, layout_order_t a,
                  layout_order_t b);
/* Fills in what node n asks for and the orders of its results from those of its operands. */
void layout_choose(layout_decision_t *d, ir_node_t n);
/* Adds what node n, whose results' wants are known, would like its operands to be. */
void layout_wish(layout_decision_t *d, ir_node_t n);
/* Can the node run with its form's attribute set, and has it not yet? */
bool layout_can_turn(const layout_decision_t *d, ir_node_t n, const char *key);

#endif
