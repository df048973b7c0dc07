/* Constant cones: what a value is that follows from constants and iotas alone, as numbers.
 *
 * The elements are computed where somebody asks, in float64 whatever the graph's types: so a
 * question ("is this mask causal?") has the answer that holds for every float type, not the one of
 * one type's rounding. Integers and bools stay what they are. Nothing in the graph changes. */
#ifndef STATOR_FUSION_CONE_H
#define STATOR_FUSION_CONE_H

#include "ir/target.h"

typedef struct fuse_cone {
    const ir_graph_t *graph;
    const ir_target_t *target;
    ir_graph_t *numbers; /* constants: the values that were asked for */
    ir_value_t *known;   /* [values] → value of `numbers`; IR_NONE: not yet; NOT_CONSTANT */
    uint8_t *constant;   /* [values]: follows from constants and iotas alone */
} fuse_cone_t;

/* `target` NULL: only what is a constant already. Both outlive the cone. */
st_status_t fuse_cone_open(const ir_graph_t *graph, const ir_target_t *target,
                           fuse_cone_t *out_cone) ST_WARN_UNUSED;
void fuse_cone_close(fuse_cone_t *cone);

static inline bool fuse_cone_is_constant(const fuse_cone_t *cone, ir_value_t value) {
    return cone->constant[value] != 0;
}

/* Elements of a value; `data` NULL: it has none that are known (not constant, too large, or an op
 * the target does not evaluate). Valid until the cone is closed. */
typedef struct fuse_elements {
    ir_type_t type; /* floats: f64 */
    const void *data;
    bool splat; /* data is one element, which all are */
} fuse_elements_t;
st_status_t fuse_cone_read(fuse_cone_t *cone, ir_value_t value,
                           fuse_elements_t *out_elements) ST_WARN_UNUSED;
/* Element `flat` in row-major order. */
double fuse_element(const fuse_elements_t *elements, int64_t flat);
/* *out_found: all elements (one at least) are *out_number. */
st_status_t fuse_cone_uniform(fuse_cone_t *cone, ir_value_t value, double *out_number,
                              bool *out_found) ST_WARN_UNUSED;

#endif
