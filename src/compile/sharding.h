/* Which placements a step takes along one axis of the mesh.
 *
 * Problem: the optimizer of placements (shard/energy.h) minimizes a sum; what counts is the time of
 * the schedule, with communication beside computation, and whether it fits. So several candidates
 * are made, each is simulated, and the one that takes least time of those that fit is chosen: every
 * uniform plan (shard/uniform.h), solved by elimination or cuts, and as the lowering's own rules
 * make it (shard/forms.h), whichever takes less; and the best free choices, at several weights of
 * communication (of which part will be hidden) and, under a limit, several budgets for what the sum
 * knows of memory. Since the uniform plans are candidates, none of them is faster. What is chosen
 * is lowered to be sure; a candidate that cannot be drops out, and says why.
 *
 * Simulation (sharding_simulate) runs the global graph in its order on one rank: each node takes
 * what it does on the largest part (shard/price.h); a conversion that goes over the links starts
 * when its value has been made, and is waited for before its first reader; weights are gathered
 * ahead, in the order of their readers, as far as PREFETCH bytes go, and again for each phase. Two
 * streams, as in simulate.h. Memory is what lies in states and what is alive at the fullest moment
 * of that order, without recomputation, fusion or writing in place: more than the plan will need,
 * alike for all candidates.
 *
 * Time: model and solution some tens of milliseconds for a Llama of any depth, simulations
 * linear. */
#ifndef STATOR_COMPILE_SHARDING_H
#define STATOR_COMPILE_SHARDING_H

#include "shard/forms.h"
#include "shard/model.h"

typedef struct sharding_price {
    double step_us;    /* compute + exposed */
    double compute_us; /* of one rank */
    double exposed_us; /* communication that nothing hides */
    double link_us;    /* communication, hidden or not */
    uint64_t state_bytes,
        live_bytes; /* of one rank; live: beside the states, at the fullest moment */
} sharding_price_t;

typedef struct sharding_row {
    char name[24]; /* "dp", …; "auto": free choices */
    sharding_price_t price;
    bool exact; /* by the energy: no other labels of the form cost less */
    bool fits;
    int form; /* the form of the axis of which this is the lowering: shard_form_t, which the data
               * axis has, of others 0; -1: the choices say it */
    const char *reason; /* it cannot be lowered, for this; NULL: it can */
    shard_choices_t
        choices; /* of a form: for another graph than the request's, into which it is worked */
} sharding_row_t;

typedef struct sharding_request {
    const ir_graph_t *graph; /* what is lowered: without composites */
    const ir_target_t *target;
    shard_ring_t ring;   /* weight 1 */
    double link_overlap; /* simulate.h */
    bool splits_inputs;
    const char *lowers;    /* the lowering's own forms of an axis of this name (shard/forms.h) are
                         * candidates; NULL: none */
    uint64_t memory_limit; /* of states and live values together; 0: none */
    const char
        *pins; /* placements asked for (shard/pins.h), which all candidates keep to; NULL: none */
    const bool *whole; /* [nodes]: parameters that stay whole, whatever the candidate; NULL: none */
    const ir_mesh_t *mesh; /* with pins: the mesh, of which this is axis `axis` */
    uint32_t axis;
} sharding_request_t;

typedef struct sharding {
    uint32_t n_rows, chosen;
    sharding_row_t *rows; /* the uniform plans that are possible, then the best free choice */
    double us;            /* processor time of all of it */
    void *own;
} sharding_t;

/* UNSUPPORTED: a node with bodies, or no candidate can be lowered. Where no candidate keeps within
 * the limit the smallest is chosen, which does not fit: it may once values are computed again. */
st_status_t sharding_choose(const sharding_request_t *request,
                            sharding_t *out_sharding) ST_WARN_UNUSED;
/* Tells the lowering what row `row` says. `settled` is open for the request's graph, and empty. */
st_status_t sharding_settle(const sharding_request_t *request, const sharding_t *sharding,
                            uint32_t row, shard_settled_t *settled) ST_WARN_UNUSED;
void sharding_free(sharding_t *sharding); /* zeroed is fine */
/* What the lowering's own form of axis `request->lowers` takes: shard_form_t of the data axis, of
 * others DP. Not `*out_possible`: it cannot be lowered. */
st_status_t sharding_price_form(const sharding_request_t *request, shard_form_t form,
                                sharding_price_t *out_price, bool *out_possible) ST_WARN_UNUSED;
/* What choices take. */
st_status_t sharding_simulate(const sharding_request_t *request, const shard_choices_t *choices,
                              sharding_price_t *out_price) ST_WARN_UNUSED;

#endif
