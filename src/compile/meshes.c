/* Meshes, priced (meshes.h). */
#include "compile/meshes.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "ir/structure.h"

/* As a mesh lists them: the last axis joins the nearest ranks. */
typedef enum axis { PIPE = 0, DATA, EXPERT, CONTEXT, TENSOR, N_AXES } axis_t;
static const char *const names[N_AXES] = {IR_AXIS_PIPE, IR_AXIS_DATA, IR_AXIS_EXPERT,
                                          IR_AXIS_CONTEXT, IR_AXIS_TENSOR};

/* One axis alone. */
typedef struct alone {
    axis_t axis;
    uint32_t size, inner; /* ranks of it in one host */
    shard_form_t form;
    sharding_price_t price;
    bool possible;
} alone_t;

typedef struct pricing {
    const meshes_request_t *request;
    sharding_price_t one; /* a single rank's */
    ST_VEC(alone_t) known;
    uint32_t capacity, n;
    mesh_price_t *out;
} pricing_t;

/* ---- one axis ---- */

static st_status_t price_alone(pricing_t *p, axis_t axis, uint32_t size, uint32_t stride,
                               shard_form_t form, const alone_t **out) {
    const meshes_request_t *r = p->request;
    const ir_links_t links = ir_links_of(r->target->machine, size, stride);
    for (size_t i = 0; i < p->known.n; i++) {
        *out = &p->known.data[i];
        if ((*out)->axis == axis && (*out)->size == size && (*out)->inner == links.inner &&
            (*out)->form == form)
            return ST_OK;
    }
    const sharding_request_t request = {
        .graph = r->graph,
        .target = r->target,
        .ring = {size, links, 1, false, NULL},
        .link_overlap = r->target->machine->link_overlap,
        .splits_inputs = axis != TENSOR,
        .lowers = names[axis],
    };
    alone_t made = {.axis = axis, .size = size, .inner = links.inner, .form = form};
    TRY(sharding_price_form(&request, form, &made.price, &made.possible));
    TRY(ST_VEC_PUSH(&p->known, made));
    *out = &p->known.data[p->known.n - 1];
    return ST_OK;
}

/* ---- meshes ---- */

/* What an axis leaves of one rank's. */
typedef struct share {
    uint32_t size;
    double compute, state, live;
    double link_us, hidden_us; /* alone; hidden behind compute_us */
    double weights_us;         /* of link_us: for weights and their gradients */
    double compute_us;
} share_t;

static double part(double of_axis, double of_one) {
    return of_one > 0 ? of_axis / of_one : 1;
}

static st_status_t share_of(pricing_t *p, axis_t axis, const uint32_t *sizes, shard_form_t form,
                            share_t *out, bool *possible) {
    const uint32_t size = sizes[axis], n_micro = p->request->n_micro;
    uint32_t stride = 1;
    const alone_t *alone;
    sharding_price_t price;
    for (int a = axis + 1; a < N_AXES; a++) stride *= sizes[a];
    *out = (share_t){.size = size, .compute = 1, .state = 1, .live = 1};
    if (size < 2) return ST_OK;
    if (axis == PIPE) {
        out->compute = (double)(n_micro + size - 1) / ((double)n_micro * size);
        out->state = 1.0 / size;
        out->live = (double)(n_micro < size ? n_micro : size) / size;
        return ST_OK;
    }
    TRY(price_alone(p, axis, size, stride, axis == DATA ? form : SHARD_FORM_DP, &alone));
    *possible &= alone->possible;
    if (!*possible) return ST_OK;
    price = alone->price;
    out->compute = part(price.compute_us, p->one.compute_us);
    out->state = part((double)price.state_bytes, (double)p->one.state_bytes);
    out->live = part((double)price.live_bytes, (double)p->one.live_bytes);
    out->link_us = out->weights_us = price.link_us;
    out->hidden_us = price.link_us - price.exposed_us;
    out->compute_us = price.compute_us;
    if (axis == TENSOR) out->weights_us = 0;
    if (axis != EXPERT && axis != CONTEXT) return ST_OK;
    /* their gradients are sums as a data axis's are */
    TRY(price_alone(p, DATA, size, stride, SHARD_FORM_DP, &alone));
    out->weights_us = fmin(price.link_us, alone->price.link_us);
    return ST_OK;
}

/* What the axis sends and nothing hides, among the others. */
static double exposed_of(const share_t *shares, axis_t axis, double compute_us) {
    const share_t *own = &shares[axis];
    double states = 1, activations = 1;
    for (int b = 0; b < N_AXES; b++) {
        if (b == (int)axis) continue;
        states *= shares[b].state;
        activations /= shares[b].size;
    }
    const double link = own->weights_us * states + (own->link_us - own->weights_us) * activations;
    const double hidden = own->compute_us > 0 ? own->hidden_us * compute_us / own->compute_us : 0;
    return fmax(0, link - hidden);
}

static bool is_less(const mesh_price_t *a, const mesh_price_t *b) {
    if (a->fits != b->fits) return a->fits;
    return a->fits ? a->step_us < b->step_us
                   : a->state_bytes + a->live_bytes < b->state_bytes + b->live_bytes;
}

/* Keeps the list in order. */
static void keep(pricing_t *p, const mesh_price_t *price) {
    uint32_t at = p->n;
    while (at > 0 && is_less(price, &p->out[at - 1])) at--;
    if (at == p->capacity) return;
    if (p->n < p->capacity) p->n++;
    memmove(&p->out[at + 1], &p->out[at], (p->n - at - 1) * sizeof *p->out);
    p->out[at] = *price;
}

static st_status_t price_mesh(pricing_t *p, const uint32_t *sizes, shard_form_t form,
                              mesh_price_t *best) {
    share_t shares[N_AXES];
    bool possible = true;
    double compute = p->one.compute_us, exposed = 0;
    double state = (double)p->one.state_bytes, live = (double)p->one.live_bytes;
    for (int a = 0; a < N_AXES && possible; a++) {
        TRY(share_of(p, (axis_t)a, sizes, form, &shares[a], &possible));
        compute *= shares[a].compute;
        state *= shares[a].state;
        live *= shares[a].live;
    }
    if (!possible) return ST_OK;
    for (int a = 0; a < N_AXES; a++) exposed += exposed_of(shares, (axis_t)a, compute);
    const uint64_t limit = p->request->memory_limit;
    mesh_price_t price = {.form = form,
                          .step_us = compute + exposed,
                          .exposed_us = exposed,
                          .state_bytes = (uint64_t)state,
                          .live_bytes = (uint64_t)live,
                          .fits = !limit || state + live <= (double)limit};
    for (int a = 0; a < N_AXES; a++) {
        if (sizes[a] < 2) continue;
        strcpy(price.mesh.axes[price.mesh.n].name, names[a]);
        price.mesh.axes[price.mesh.n++].size = sizes[a];
    }
    if (!best->mesh.n || is_less(&price, best)) *best = price;
    return ST_OK;
}

/* Data and tensor axes alone can be asked for without a mesh: they are no news. */
static bool is_news(const uint32_t *sizes, uint32_t n_ranks) {
    return sizes[DATA] < n_ranks && sizes[TENSOR] < n_ranks;
}

static st_status_t price_sizes(pricing_t *p, const uint32_t *sizes) {
    mesh_price_t best = {0};
    if (!is_news(sizes, p->request->n_ranks)) return ST_OK;
    /* zero3 splits experts' weights itself, and leaves an axis of theirs nothing */
    const int last = sizes[EXPERT] > 1 ? SHARD_FORM_ZERO2 : SHARD_FORM_ZERO3;
    const int n_forms = sizes[DATA] > 1 ? last + 1 : 1;
    for (int form = 0; form < n_forms; form++) TRY(price_mesh(p, sizes, (shard_form_t)form, &best));
    if (best.mesh.n) keep(p, &best);
    return ST_OK;
}

/* All sizes of the axes from `axis` on that make `left` ranks. */
static st_status_t price_all(pricing_t *p, const bool *has, int axis, uint32_t left,
                             uint32_t *sizes) {
    if (axis == N_AXES) return left == 1 ? price_sizes(p, sizes) : ST_OK;
    for (uint32_t size = 1; size <= left; size++) {
        if (left % size) continue;
        if (size > 1 && (!has[axis] || (axis == PIPE && size > p->request->n_micro))) break;
        sizes[axis] = size;
        TRY(price_all(p, has, axis + 1, left / size, sizes));
    }
    return ST_OK;
}

/* ---- entry ---- */

/* Axes for which the graph has a use, seen with two ranks. */
static st_status_t find_axes(pricing_t *p, bool *has) {
    const meshes_request_t *r = p->request;
    const alone_t *alone;
    TRY(price_alone(p, DATA, 1, 1, SHARD_FORM_DP, &alone));
    p->one = alone->price;
    has[PIPE] = r->n_micro > 1;
    has[DATA] = true;
    for (int a = EXPERT; a < N_AXES; a++) {
        TRY(price_alone(p, (axis_t)a, 2, 1, SHARD_FORM_DP, &alone));
        has[a] = alone->possible && alone->price.compute_us < p->one.compute_us;
    }
    return ST_OK;
}

st_status_t meshes_price(const meshes_request_t *request, uint32_t capacity,
                         mesh_price_t *out_prices, uint32_t *out_n) {
    pricing_t p = {.request = request, .capacity = capacity, .out = out_prices};
    bool has[N_AXES] = {false};
    uint32_t sizes[N_AXES];
    st_status_t status = find_axes(&p, has);
    if (status == ST_OK) status = price_all(&p, has, 0, request->n_ranks, sizes);
    *out_n = status == ST_OK ? p.n : 0;
    ST_VEC_FREE(&p.known);
    return status;
}
