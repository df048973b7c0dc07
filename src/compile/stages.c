/* What a nest reads more than once (target.h).
 *
 * A reduction whose result goes back to the points that were summed takes another pass over them.
 * Where the points of one result fit into a cache the later passes are free; where they do not,
 * what they load counts again: each load once for every stage that needs it beyond the first, a
 * stage being how many such reductions lie on the way. A GPU's kernels take squares around a mean
 * with the sum, and exponentials less a maximum with that, so that those lie on no way. Linear in
 * the nest's statements. */
#include <string.h>

#include "base/memory.h"
#include "compile/target.h"
#include "ir/nest_pairs.h"

/* Stage of each statement: how many wide reductions lie on the way to it. */
typedef struct stages {
    const nest_t *nest;
    uint64_t cache_bytes;
    bool pairs;       /* squares around a mean come with it */
    uint8_t *stage;   /* [stmts] */
    uint32_t *needed; /* [stmts]: set of the stages in which the value is computed */
} stages_t;

enum {
    MAX_STAGE = 31,
    ELEMENT_BYTES = 4,
    MIN_CACHE_BYTES = 128 * 1024, /* the nearest cache of this size is what a pass works in */
};

/* Whether the points that one result is reduced from exceed the cache. */
static bool is_wide(const stages_t *s, const nest_stmt_t *stmt) {
    if (stmt->kind != NEST_REDUCE || stmt->domain == NEST_NONE) return false;
    int64_t points = nest_points(&s->nest->domains[stmt->domain], stmt->over);
    return (uint64_t)points > s->cache_bytes / ELEMENT_BYTES;
}

/* What statement `v` is computed from, as it is run: its arguments, or of a pair what both
 * reduce. */
static uint32_t sources_of(const stages_t *s, uint32_t v, uint32_t out[NEST_MAX_ARGS]) {
    const nest_stmt_t *stmt = &s->nest->stmts[v];
    nest_pair_t pair;
    if (s->pairs && (nest_centered_squares(s->nest, v, &pair) ||
                     nest_centered_exponentials(s->nest, v, &pair))) {
        out[0] = pair.of;
        return 1;
    }
    memcpy(out, stmt->args, sizeof stmt->args);
    return stmt->n_args;
}

/* Bytes that are read in more than one stage, once for each beyond the first. */
static double bytes_of(const stages_t *s) {
    const nest_t *nest = s->nest;
    double bytes = 0;
    uint32_t args[NEST_MAX_ARGS];
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const uint32_t n_args = sources_of(s, i, args);
        s->stage[i] = 0;
        s->needed[i] = 0;
        for (uint32_t a = 0; a < n_args; a++) {
            uint32_t arg = args[a];
            uint8_t after = (uint8_t)(s->stage[arg] + is_wide(s, &nest->stmts[arg]));
            if (after > s->stage[i]) s->stage[i] = after < MAX_STAGE ? after : MAX_STAGE;
        }
    }
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        uint32_t v = nest->stores[i].value;
        s->needed[v] |= 1u << s->stage[v];
    }
    for (uint32_t i = nest->n_stmts; i-- > 0;) {
        const nest_stmt_t *stmt = &nest->stmts[i];
        /* what is reduced is computed in the stage of the reduction, all else where it is used */
        uint32_t in = stmt->kind == NEST_REDUCE ? 1u << s->stage[i] : s->needed[i];
        const uint32_t n_args = sources_of(s, i, args);
        for (uint32_t a = 0; a < n_args; a++) s->needed[args[a]] |= in;
        if (stmt->kind != NEST_LOAD || stmt->domain == NEST_NONE) continue;
        int again = __builtin_popcount(s->needed[i]) - 1;
        if (again > 0)
            bytes += again * (double)nest_points(&nest->domains[stmt->domain], stmt->mask) *
                     (double)ir_dtype_bytes(stmt->access.dtype);
    }
    return bytes;
}

/* A nest that no reduction in it can exceed the cache needs no look. */
static bool may_be_wide(const ir_graph_t *body, uint64_t cache_bytes) {
    for (ir_value_t v = 0; v < body->values.n; v++)
        if ((uint64_t)ir_type_elements(ir_value_type(body, v)) > cache_bytes / ELEMENT_BYTES)
            return true;
    return false;
}

static double bytes_of_nest(const nest_t *nest, uint64_t cache_bytes, bool pairs) {
    stages_t s = {.nest = nest, .cache_bytes = cache_bytes, .pairs = pairs};
    double bytes = 0;
    s.stage = st_calloc(nest->n_stmts, sizeof *s.stage);
    s.needed = st_calloc(nest->n_stmts, sizeof *s.needed);
    if (s.stage && s.needed) bytes = bytes_of(&s);
    st_free(s.stage);
    st_free(s.needed);
    return bytes;
}

double target_bytes_again(const target_t *target, const ir_graph_t *body) {
    uint64_t cache_bytes = 0;
    nest_t *nest = NULL;
    const char *reason;
    for (int i = IR_CACHES; i-- > 0;)
        if (target->machine.cache_bytes[i] >= MIN_CACHE_BYTES)
            cache_bytes = target->machine.cache_bytes[i];
    if (!may_be_wide(body, cache_bytes)) return 0;
    if (nest_build(body, &nest, &reason) != ST_OK) st_clear_error();
    const bool pairs = strcmp(target->machine.device, "cpu") != 0;
    double bytes = nest ? bytes_of_nest(nest, cache_bytes, pairs) : 0;
    nest_destroy(nest);
    return bytes;
}
