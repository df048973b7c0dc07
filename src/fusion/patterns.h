/* What the pattern files of recognition (recognize_*.c) share: rows, and what a check sees. */
#ifndef STATOR_FUSION_PATTERNS_H
#define STATOR_FUSION_PATTERNS_H

#include <math.h>

#include "fusion/match.h"
#include "ir/build.h"

enum { SITE_MAX_IN = 8, SITE_MAX_NUMBERS = 24 };

typedef struct fuse_row fuse_row_t;

/* One place where a row matches. The check fills in what its build needs. */
typedef struct fuse_site {
    match_t match;
    const fuse_row_t *row;
    const uint8_t *trained; /* [values]: depends on a parameter */
    ir_type_t type;         /* of the root's first output */
    uint32_t n_in;
    ir_value_t in[SITE_MAX_IN]; /* the only values that the build reads */
    int64_t i[SITE_MAX_NUMBERS];
    double f[SITE_MAX_NUMBERS];
} fuse_site_t;

/* Whether the match is one; may set site->in, i and f. */
typedef st_status_t fuse_check_t(fuse_site_t *site, bool *out_accepted);
/* The first output of what stands for the root; in[k] is site->in[k] in the new graph. */
typedef ir_value_t fuse_build_t(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in);

struct fuse_row {
    const char *pattern;
    fuse_check_t *check;
    fuse_build_t *build;
};

typedef struct fuse_patterns {
    const match_definition_t *definitions;
    const fuse_row_t *rows; /* ends with a row whose pattern is NULL; larger patterns first */
} fuse_patterns_t;

extern const fuse_patterns_t fuse_patterns_attention, fuse_patterns_norm, fuse_patterns_rope,
    fuse_patterns_activation, fuse_patterns_softmax;

/* ---- for checks ---- */

static inline const ir_graph_t *site_graph(const fuse_site_t *site) {
    return site->match.cone->graph;
}
static inline const ir_type_t *site_type(const fuse_site_t *site, ir_value_t value) {
    return ir_value_type(site_graph(site), value);
}
static inline const ir_node_info_t *site_producer(const fuse_site_t *site, ir_value_t value) {
    return ir_value_producer(site_graph(site), value);
}
/* Adds an input of the build; its index. */
uint32_t site_add(fuse_site_t *site, ir_value_t value);

/* Whether `reduction` (a reduce node's result) goes over the last `n` dims of x and no others; n
 * out. */
bool site_reduces_trailing(const fuse_site_t *site, ir_value_t reduction, const ir_type_t *x,
                           int32_t *out_n);
/* Whether a value broadcasts against x as a statistic of its rows: x's dims with the last n 1. */
bool site_is_statistic(const fuse_site_t *site, ir_value_t value, const ir_type_t *x, int32_t n);
/* Whether a value varies along the last n dims of x only, and has these in full. */
bool site_is_trailing(const fuse_site_t *site, ir_value_t value, const ir_type_t *x, int32_t n);

/* ---- for builds ---- */

/* `x` in the shape of the last n dims of `type`, in f32 beside a smaller float, else in its
 * type. */
ir_value_t site_trailing(ir_build_t *b, ir_value_t x, const ir_type_t *type, int32_t n);
/* `x` in the root's type: shape and element type. */
ir_value_t site_as_root(const fuse_site_t *site, ir_build_t *b, ir_value_t x);

#endif
