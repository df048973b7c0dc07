/* Patterns over a graph, written as text, matched with full backtracking.
 *
 *   mul(?w, mul(?x, rsqrt(add(reduce_mean(square(?x)), #eps))))
 *
 *   op(p, …)   a node of that op and number of inputs, by its first output; the operands of
 *              commutative ops in either order
 *   ?x         captures a value; the second time it must be the same value
 *   ?x:p       captures the value that p matches
 *   #s         captures the number that all elements of a constant have (fusion/cone.h)
 *   0.5, -1    a constant whose elements all are this number, to within float32's rounding
 *   p | q      either; ( ) group
 *   ~p         p, perhaps behind casts between float types, reshapes and broadcasts
 *   <name>     the definition of that name: a pattern of its own, in place
 *
 * A match holds what was captured and which nodes it consists of: all that an `op(…)` or `~` met,
 * none of the captures' own producers. */
#ifndef STATOR_FUSION_MATCH_H
#define STATOR_FUSION_MATCH_H

#include "fusion/cone.h"

enum { MATCH_MAX_NAMES = 32, MATCH_MAX_NODES = 80 };

/* Named patterns for <name>; the last row has name NULL. */
typedef struct match_definition {
    const char *name;
    const char *text;
} match_definition_t;

typedef struct match_pattern match_pattern_t;

/* The texts are our own: one that does not parse is an error of ours (ST_INTERNAL says where).
 * `definitions` may be NULL. */
st_status_t match_compile(const char *text, const match_definition_t *definitions,
                          match_pattern_t **out_pattern) ST_WARN_UNUSED;
void match_free(match_pattern_t *pattern);
/* The ops a root may have: whether a node of this op is worth trying. */
bool match_may_start(const match_pattern_t *pattern, ir_op_t op);

typedef struct match {
    const match_pattern_t *pattern;
    fuse_cone_t *cone;
    ir_value_t value[MATCH_MAX_NAMES]; /* of ?name, IR_NONE: not captured */
    double number[MATCH_MAX_NAMES];    /* of #name, NAN: not captured */
    uint32_t n_nodes;
    ir_node_t nodes[MATCH_MAX_NODES]; /* a node may stand twice */
} match_t;

/* Captures by name; a name that the pattern does not have is never captured. */
ir_value_t match_value(const match_t *match, const char *name);
double match_number(const match_t *match, const char *name);
/* Adds a node to those the match consists of; false: there is no room, so it is no match. */
bool match_add_node(match_t *match, ir_node_t node);

/* Says whether what has matched so far is right: attributes, shapes, values. Where it says no, the
 * search goes on with the other ways to match. */
typedef st_status_t match_check_t(match_t *match, void *context, bool *out_accepted);

/* Tries `pattern` at `root`. Steps are bounded, so a match costs a constant. */
st_status_t match_at(const match_pattern_t *pattern, fuse_cone_t *cone, ir_value_t root,
                     match_check_t *check, void *context, match_t *out_match,
                     bool *out_found) ST_WARN_UNUSED;

#endif
