/* Control flow over ranks (internal.h).
 *
 * Problem: place what a repeat or cond takes, carries and gives so that every rank runs its bodies
 * by itself: a body has no collectives, since ranks would have to meet in it once an iteration.
 * Algorithm: a body is decided like any graph (decide.c), but only with conversions that move
 * nothing: a whole value may be cut or become rank 0's part of a sum, no other may change. Carries
 * begin as their operands are; what the body makes of a whole one (a part, or a partial sum, as the
 * gradients of captured values are) becomes its placement, and the body is decided again, until the
 * carries go round. If that fails, operands that are partial sums are summed before; then, at the
 * outermost level, the node runs whole on every rank. As many decisions of the body as it has
 * chained carries, at most. */
#include "ir/body.h"
#include "shard/internal.h"

enum { MAX_ROUNDS = 16 };

typedef struct region {
    shard_lowering_t *around;
    const ir_node_info_t *node;
    ir_region_info_t info;
    shard_lowering_t *made[IR_MAX_BODIES];
    ir_placement_t *in;  /* [n_inputs] as the bodies see them */
    ir_placement_t *out; /* [n_outputs] the same */
} region_t;

static bool is_scanned(const region_t *r, uint32_t j) {
    return j >= r->info.carried && j < r->info.carried + r->info.scanned;
}
/* Results after the carries of a repeat are stacks. */
static bool is_stacked(const region_t *r, uint32_t k) {
    return r->info.n_bodies == 1 && k >= r->info.carried;
}

static ir_placement_t moved(ir_placement_t placement, int32_t by) {
    if (placement.kind == IR_SPLIT) placement.dim += by;
    return placement;
}

/* What the bodies see of operands that are placed so; a split of the iterations is none. */
static void see_operands(region_t *r, const ir_placement_t *have, bool sum_first) {
    for (uint32_t j = 0; j < r->info.n_inputs; j++) {
        ir_placement_t placement = have[r->info.first + j];
        if (sum_first && placement.kind == IR_PARTIAL) placement = IR_PLACE_REPLICATE;
        if (is_scanned(r, j))
            placement = placement.kind == IR_SPLIT && placement.dim == 0 ? IR_PLACE_REPLICATE
                                                                         : moved(placement, -1);
        r->in[j] = placement;
    }
}

static void drop_made(region_t *r) {
    for (uint32_t b = 0; b < r->info.n_bodies; b++) {
        shard_lowering_destroy(r->made[b]);
        r->made[b] = NULL;
    }
}

/* Decides all bodies once, and what their results are: of two branches, what is no whole value. */
static st_status_t decide_bodies(region_t *r) {
    drop_made(r);
    for (uint32_t k = 0; k < r->node->n_outputs; k++) r->out[k] = IR_PLACE_REPLICATE;
    for (uint32_t b = 0; b < r->info.n_bodies; b++) {
        TRY(shard_decide_body(r->info.bodies[b], &r->around->axis, r->in, &r->made[b]));
        for (uint32_t k = 0; k < r->node->n_outputs; k++) {
            ir_placement_t home = r->made[b]->values[r->info.bodies[b]->outputs.data[k].value].home;
            if (r->out[k].kind == IR_REPLICATE)
                r->out[k] = home;
            else if (home.kind != IR_REPLICATE && !ir_placement_equal(home, r->out[k]))
                return FAIL(ST_UNSUPPORTED, "the branches place result %u differently", k);
        }
    }
    return ST_OK;
}

/* Until the carries come out as they went in, or whole, and can be cut. */
static st_status_t settle(region_t *r) {
    for (int round = 0; round < MAX_ROUNDS; round++) {
        bool changed = false;
        TRY(decide_bodies(r));
        for (uint32_t j = 0; j < r->info.carried; j++) {
            if (ir_placement_equal(r->in[j], r->out[j])) continue;
            if (r->in[j].kind == IR_REPLICATE) {
                r->in[j] = r->out[j];
                changed = true;
            } else if (r->out[j].kind != IR_REPLICATE) {
                return FAIL(ST_UNSUPPORTED, "carry %u changes its placement", j);
            } else {
                r->out[j] = r->in[j];
            }
        }
        if (!changed) return ST_OK;
    }
    return FAIL(ST_UNSUPPORTED, "the carries do not settle");
}

/* Fixes how the bodies deliver, and what of them is needed. */
static st_status_t finish_bodies(region_t *r) {
    for (uint32_t b = 0; b < r->info.n_bodies; b++) {
        shard_lowering_t *made = r->made[b];
        made->deliver = st_arena_copy(&made->arena, r->out, r->node->n_outputs * sizeof *r->out);
        if (!made->deliver) return st_no_memory(0, "a body's placements");
        TRY(shard_mark_needed(made));
    }
    return ST_OK;
}

static st_status_t open_region(region_t *r) {
    st_arena_t *arena = &r->around->arena;
    r->info = ir_region_info(r->node);
    r->in = st_arena_array(arena, r->info.n_inputs, sizeof *r->in);
    r->out = st_arena_array(arena, r->node->n_outputs, sizeof *r->out);
    return r->in && r->out ? ST_OK
                           : st_no_memory(r->info.n_inputs * sizeof *r->in, "a node's placements");
}

/* ST_UNSUPPORTED leaves nothing behind. */
static st_status_t place(region_t *r, const ir_placement_t *have) {
    see_operands(r, have, false);
    st_status_t status = settle(r);
    if (status == ST_UNSUPPORTED) {
        see_operands(r, have, true);
        status = settle(r);
    }
    if (status == ST_OK) status = finish_bodies(r);
    if (status != ST_OK) drop_made(r);
    return status;
}

st_status_t shard_decide_region(shard_lowering_t *lowering, ir_node_t n, const ir_placement_t *have,
                                ir_placement_t *in, ir_placement_t *out) {
    region_t r = {.around = lowering, .node = ir_node(lowering->graph, n)};
    shard_node_t *decision = &lowering->nodes[n];
    bool any = false;
    for (uint32_t j = 0; j < r.node->n_inputs; j++) {
        any |= have[j].kind != IR_REPLICATE;
        in[j] = IR_PLACE_REPLICATE;
    }
    for (uint32_t k = 0; k < r.node->n_outputs; k++) out[k] = IR_PLACE_REPLICATE;
    if (!any) return ST_OK;
    TRY(open_region(&r));
    st_status_t status = place(&r, have);
    if (status != ST_OK) return status;
    for (uint32_t j = 0; j < r.info.n_inputs; j++)
        in[r.info.first + j] = moved(r.in[j], is_scanned(&r, j) ? 1 : 0);
    for (uint32_t k = 0; k < r.node->n_outputs; k++)
        out[k] = moved(r.out[k], is_stacked(&r, k) ? 1 : 0);
    for (uint32_t b = 0; b < r.info.n_bodies; b++) {
        r.made[b]->next = lowering->bodies; /* owned by the lowering around them */
        lowering->bodies = r.made[b];
        decision->bodies[b] = r.made[b];
    }
    return ST_OK;
}
