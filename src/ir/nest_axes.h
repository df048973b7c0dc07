/* Which axes the dims of a body's values are: the first step of building a nest.
 *
 * Each dim is a row of axes, outermost first; a dim of extent 1 has none. Elementwise ops make the
 * dims of operands and result equal, reshapes cut axes into factors: union-find over axes, with
 * splits. What remains distinct in the end are the axes of the nest. */
#ifndef STATOR_IR_NEST_AXES_H
#define STATOR_IR_NEST_AXES_H

#include "base/vec.h"
#include "ir/graph.h"

enum { NEST_ROW_MAX = 16 }; /* axes of one value */

typedef struct nest_row {
    uint32_t n;
    uint32_t axis[NEST_ROW_MAX];
} nest_row_t;

/* Of the union-find; number 0 is not used. */
typedef struct nest_class {
    int64_t extent;
    uint32_t parent;    /* itself: a root */
    uint32_t high, low; /* factors of a root that was split; 0: none */
    uint32_t domain;    /* of an unsplit root: next towards the root of its domain */
} nest_class_t;

typedef struct nest_axes {
    ST_VEC(nest_class_t) classes;
    ST_VEC(uint32_t) members; /* of all groups: [n, class …] at group */
    uint32_t *groups;         /* [n_values][IR_MAX_RANK] of each dim; 0: no axes */
    const char *reason;       /* why the body is no nest, NULL so far */
    st_status_t status;       /* sticky */
} nest_axes_t;

/* Gives every dim of every value of a live node its axes, and every axis its domain. ST_OK with
 * axes->reason set: not possible. */
st_status_t nest_axes_build(nest_axes_t *axes, const ir_graph_t *body,
                            const bool *live) ST_WARN_UNUSED;
void nest_axes_free(nest_axes_t *axes);
/* The axes of dim `dim` of `value`: classes that nothing splits, each the root of its set. */
nest_row_t nest_axes_dim(const nest_axes_t *axes, ir_value_t value, int32_t dim);
/* Those of all dims of a value with this type. */
nest_row_t nest_axes_all(const nest_axes_t *axes, ir_value_t value, int32_t rank);
/* The axis that stands for the whole domain of `axis`. */
uint32_t nest_axes_domain(const nest_axes_t *axes, uint32_t axis);

#endif
