/* Attention: softmax(q k^T * scale, masked) v, and what makes an attention node leaner.
 *
 * From the softmax's input down to the product of q and k, in any order and number: factors (mul or
 * div, also on q and k), masks that are added (also subtracted), masks that select between score
 * and a fill, casts, and reshapes that only regroup batch and heads. Above: a select that turns NaN
 * rows into 0. k^T comes as a transpose or as the product's attribute.
 *
 * Masks. A constant one is evaluated: where it hides by batch-independent rows and keys, and the
 * attributes causal and window say the same element by element, it becomes them. Any other stays as
 * the mask operand: bool where its fill is -inf, else added. What must hold for equality:
 *   - a finite fill counts as hiding if no score is within 1e8 of it (mask_hides);
 *   - it becomes an attribute only if every query sees some key, and if no other mask stays that
 *     could hide the rest (a row all of whose keys are hidden by finite fills is not empty);
 *   - a finite fill that depends on data is added, which is the same where it absorbs any score
 *     (mask_absorbs), and no match where it does not;
 *   - a row whose keys are all hidden by -inf is NaN in the chain and 0 in the op: what exporters
 *     select afterwards.
 * A mask with parameters in it is no match: the op has no gradient for it.
 *
 * Grouped heads: keys and values that repeat each head r times (expand and reshape, gather, or a
 * broadcast dim) are given as they were before.
 *
 * Rounding: products and sums of scores are not rounded to the graph's type in between; several
 * factors become one, in float64. A factor on q or k of an attention node moves into its scale only
 * if it is a power of two. */
#include <string.h>

#include "base/memory.h"
#include "fusion/masks.h"
#include "fusion/patterns.h"

static const match_definition_t definitions[] = {
    {"softmax", "?p:softmax(?s)"},
    {"probs", "~<softmax> | ~select(ne(~<softmax>, ~?p), 0, ~?p)"},
    {0},
};

/* Queries times keys that a constant mask is looked at for. */
enum { MAX_MASKS = SITE_MAX_IN - 3, MAX_PLANE = 1 << 28 };

typedef struct mask {
    ir_value_t value;
    fuse_mask_kind_t kind;
    double fill, factor;
} mask_t;

/* One attention, as it is being read. */
typedef struct reading {
    fuse_site_t *site;
    ir_value_t q, k, v;
    bool k_is_keys_last, v_is_keys_last; /* [.., D, S] and [.., E, S]: still to be transposed */
    double scale;
    ir_dtype_t score_dtype;
    int64_t b, h, m, s;
    uint32_t n_masks;
    mask_t masks[MAX_MASKS];
    bool causal;
    int64_t window;
    bool nothing_to_prove; /* an attention node: hidden rows are 0 before and after */
} reading_t;

/* Of site->i, for the build; from MASKS on one number a mask. */
enum { B, H, HEADS, CAUSAL, WINDOW, K_TURNED, V_TURNED, N_MASKS, SCORES, MASKS };

static bool uniform(reading_t *r, ir_value_t value, double *out, st_status_t *status) {
    bool found = false;
    if (*status == ST_OK) *status = fuse_cone_uniform(r->site->match.cone, value, out, &found);
    return *status == ST_OK && found;
}

/* ---- from the softmax down to q and k ---- */

static bool descend(reading_t *r, ir_value_t at, double factor, st_status_t *status);

static bool push_mask(reading_t *r, ir_value_t value, fuse_mask_kind_t kind, double fill,
                      double factor) {
    if (r->n_masks == MAX_MASKS || r->site->trained[value]) return false;
    r->masks[r->n_masks++] = (mask_t){value, kind, fill, factor};
    return true;
}

/* A score plus or minus a mask: whichever operand leads to the product of q and k. */
static bool descend_sum(reading_t *r, const ir_node_info_t *node, double factor,
                        st_status_t *status) {
    const reading_t before = *r;
    const uint32_t n_nodes = r->site->match.n_nodes;
    double sign = node->op == IR_OP_SUB ? -1 : 1;
    for (int j = 0; j < (node->op == IR_OP_SUB ? 1 : 2); j++) {
        *r = before;
        r->site->match.n_nodes = n_nodes;
        if (push_mask(r, node->inputs[1 - j], MASK_ADD, 0, factor * sign) &&
            descend(r, node->inputs[j], factor, status))
            return true;
    }
    return false;
}

static bool descend_select(reading_t *r, const ir_node_info_t *node, double factor,
                           st_status_t *status) {
    double fill;
    for (int j = 1; j <= 2; j++) {
        if (!uniform(r, node->inputs[3 - j], &fill, status) || !mask_hides(fill, r->score_dtype))
            continue;
        return push_mask(r, node->inputs[0], j == 1 ? MASK_KEEP : MASK_DISCARD, fill * factor, 1) &&
               descend(r, node->inputs[j], factor, status);
    }
    return false;
}

/* A reshape that leaves rows and keys alone. */
static bool regroups(const ir_graph_t *graph, const ir_node_info_t *node) {
    const ir_type_t *x = ir_value_type(graph, node->inputs[0]);
    const ir_type_t *y = ir_value_type(graph, node->first_output);
    return x->rank >= 2 && y->rank >= 2 && x->dims[x->rank - 1] == y->dims[y->rank - 1] &&
           x->dims[x->rank - 2] == y->dims[y->rank - 2];
}

/* Batch and heads are told by the first value with 4 dims on the way. */
static void see_dims(reading_t *r, ir_value_t at) {
    const ir_type_t *type = site_type(r->site, at);
    if (type->rank != 4 || r->b) return;
    r->b = type->dims[0];
    r->h = type->dims[1];
}

static bool descend_product(reading_t *r, const ir_node_info_t *node) {
    r->q = node->inputs[0];
    r->k = node->inputs[1];
    r->k_is_keys_last = !ir_attr_int(node, "transpose_b");
    return !ir_attr_int(node, "transpose_a");
}

static bool descend(reading_t *r, ir_value_t at, double factor, st_status_t *status) {
    const ir_graph_t *graph = site_graph(r->site);
    const ir_node_info_t *node = ir_value_producer(graph, at);
    double number;
    if (graph->values.data[at].index ||
        !match_add_node(&r->site->match, graph->values.data[at].producer))
        return false;
    see_dims(r, at);
    if (node->op == IR_OP_MATMUL && node->n_inputs == 2) {
        r->scale = factor;
        return descend_product(r, node);
    }
    if (node->op == IR_OP_CAST)
        return ir_dtype_is_float(site_type(r->site, node->inputs[0])->dtype) &&
               descend(r, node->inputs[0], factor, status);
    if (node->op == IR_OP_RESHAPE)
        return regroups(graph, node) && descend(r, node->inputs[0], factor, status);
    if (node->op == IR_OP_MUL) {
        for (int j = 0; j < 2; j++)
            if (uniform(r, node->inputs[1 - j], &number, status) && number > 0)
                return descend(r, node->inputs[j], factor * number, status);
        return false;
    }
    if (node->op == IR_OP_DIV)
        return uniform(r, node->inputs[1], &number, status) && number > 0 &&
               descend(r, node->inputs[0], factor / number, status);
    if (node->op == IR_OP_ADD || node->op == IR_OP_SUB) return descend_sum(r, node, factor, status);
    if (node->op == IR_OP_SELECT) return descend_select(r, node, factor, status);
    return false;
}

/* Factors on q or k. `exact`: powers of two only. */
static void take_factors(reading_t *r, ir_value_t *operand, bool exact, st_status_t *status) {
    for (;;) {
        const ir_node_info_t *node = site_producer(r->site, *operand);
        double number = 0;
        int j = 0, exponent;
        if (node->op == IR_OP_MUL)
            while (j < 2 && !uniform(r, node->inputs[1 - j], &number, status)) j++;
        else if (node->op != IR_OP_DIV || !uniform(r, node->inputs[1], &number, status))
            return;
        if (j == 2 || !(number > 0) || isinf(number) || *status != ST_OK) return;
        if (exact && frexp(number, &exponent) != 0.5) return;
        if (!ir_type_equal(site_type(r->site, node->inputs[j]), site_type(r->site, *operand)) ||
            !match_add_node(&r->site->match, site_graph(r->site)->values.data[*operand].producer))
            return;
        r->scale = node->op == IR_OP_MUL ? r->scale * number : r->scale / number;
        *operand = node->inputs[j];
    }
}

/* ---- shapes ---- */

/* Whether a value is [B, heads, …] or can be reshaped so; heads may be 1 or, with `grouped`, a
 * divisor of h. */
static bool fits(const reading_t *r, ir_value_t value, bool grouped) {
    const ir_type_t *type = site_type(r->site, value);
    if (type->rank == 3) return type->dims[0] == r->b * r->h;
    if (type->rank == 2) return r->b * r->h == 1;
    if (type->rank != 4 || type->dims[0] != r->b) return false;
    int64_t heads = type->dims[1];
    return heads == r->h || (grouped && heads > 0 && r->h % heads == 0);
}

static bool read_shapes(reading_t *r) {
    const ir_type_t *q = site_type(r->site, r->q), *k = site_type(r->site, r->k);
    const ir_type_t *v = site_type(r->site, r->v);
    if (q->rank < 2 || q->rank > 4 || k->rank < 2 || v->rank < 2 || k->dtype != q->dtype ||
        v->dtype != q->dtype)
        return false;
    if (!r->b) { /* no value with 4 dims: the batch of products as the batch */
        r->b = q->rank == 3 ? q->dims[0] : 1;
        r->h = 1;
    }
    r->m = q->dims[q->rank - 2];
    r->s = k->dims[k->rank - (r->k_is_keys_last ? 1 : 2)];
    return r->b > 0 && r->h > 0 && r->m > 0 && r->s > 0 && fits(r, r->q, false) &&
           fits(r, r->k, true) && fits(r, r->v, true) &&
           v->dims[v->rank - (r->v_is_keys_last ? 1 : 2)] == r->s;
}

/* ---- grouped heads ---- */

/* Whether a gather's constant index repeats each of `groups` heads `times` times, in order. */
static bool repeats_heads(reading_t *r, ir_value_t index, int64_t groups, st_status_t *status) {
    fuse_elements_t e;
    if (*status == ST_OK) *status = fuse_cone_read(r->site->match.cone, index, &e);
    if (*status != ST_OK || !e.data || e.type.rank != 1 || e.type.dims[0] % groups) return false;
    int64_t times = e.type.dims[0] / groups;
    for (int64_t i = 0; i < e.type.dims[0]; i++)
        if (fuse_element(&e, i) != (double)(i / times)) return false;
    return true;
}

/* Heads of the value that `value` [B, H, S, D] repeats, and that value; H and itself if it does
 * not. */
static int64_t ungroup(reading_t *r, ir_value_t value, ir_value_t *out, st_status_t *status) {
    const ir_type_t *type = site_type(r->site, value);
    const ir_node_info_t *node = site_producer(r->site, value);
    *out = value;
    if (type->rank != 4) return r->h;
    if (type->dims[1] != r->h) return type->dims[1];
    if (node->op == IR_OP_GATHER && ir_attr_int(node, "axis") == 1) {
        const ir_type_t *x = site_type(r->site, node->inputs[0]);
        if (x->rank == 4 && x->dims[1] > 0 &&
            repeats_heads(r, node->inputs[1], x->dims[1], status)) {
            *out = node->inputs[0];
            return x->dims[1];
        }
    }
    if (node->op == IR_OP_BROADCAST) {
        const ir_type_t *x = site_type(r->site, node->inputs[0]);
        bool heads_only = x->rank == 4 && x->dims[1] == 1;
        for (int i = 0; heads_only && i < 4; i++)
            heads_only = i == 1 || x->dims[i] == type->dims[i];
        if (heads_only) *out = node->inputs[0];
        return heads_only ? 1 : r->h;
    }
    if (node->op != IR_OP_RESHAPE) return r->h;
    node = site_producer(r->site, node->inputs[0]);
    if (node->op != IR_OP_BROADCAST) return r->h;
    const ir_type_t *y = site_type(r->site, node->first_output);
    const ir_type_t *x = site_type(r->site, node->inputs[0]);
    bool repeats = y->rank == 5 && x->rank == 5 && y->dims[0] == type->dims[0] &&
                   y->dims[1] * y->dims[2] == type->dims[1] && y->dims[3] == type->dims[2] &&
                   y->dims[4] == type->dims[3] && x->dims[2] == 1;
    for (int i = 0; repeats && i < 5; i++) repeats = i == 2 || x->dims[i] == y->dims[i];
    if (!repeats) return r->h;
    *out = node->inputs[0];
    return x->dims[1];
}

/* Keys and values with as few heads as both have. */
static bool ungroup_both(reading_t *r, st_status_t *status) {
    ir_value_t k, v;
    int64_t heads_k = ungroup(r, r->k, &k, status), heads_v = ungroup(r, r->v, &v, status);
    r->site->i[HEADS] = r->h;
    if (heads_k == heads_v && r->h % heads_k == 0) {
        r->site->i[HEADS] = heads_k;
        r->k = k;
        r->v = v;
    }
    return *status == ST_OK;
}

/* ---- masks ---- */

/* A mask that stays must broadcast as [B, H, M, S] does, and have q's type if it is added. A finite
 * fill covers what lies under it, -inf too, so it can be added only where nothing does. */
static bool can_stay(const reading_t *r, const mask_t *mask, bool innermost) {
    const ir_type_t *type = site_type(r->site, mask->value);
    int32_t rank = type->rank;
    if (rank > 4) return false;
    if (rank == 3 && type->dims[0] != 1 && type->dims[0] != r->b * r->h) return false;
    if (rank == 4 && ((type->dims[0] != 1 && type->dims[0] != r->b) ||
                      (type->dims[1] != 1 && type->dims[1] != r->h)))
        return false;
    if (rank > 0 && type->dims[rank - 1] != 1 && type->dims[rank - 1] != r->s) return false;
    if (rank > 1 && type->dims[rank - 2] != 1 && type->dims[rank - 2] != r->m) return false;
    if (mask->kind == MASK_ADD) return type->dtype == site_type(r->site, r->q)->dtype;
    return isinf(mask->fill) || (innermost && mask_absorbs(mask->fill));
}

static void drop_masks(reading_t *r, const bool *constant) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_masks; i++)
        if (!constant[i]) r->masks[n++] = r->masks[i];
    r->n_masks = n;
}

static void add_attributes(reading_t *r, bool causal, int64_t window) {
    r->causal |= causal;
    if (window && (!r->window || window < r->window)) r->window = window;
}

/* Turns what the constant masks hide together into attributes, where they can say it. */
static st_status_t absorb_constants(reading_t *r) {
    bool constant[MAX_MASKS] = {0}, any = false, all = true, causal;
    int64_t window;
    fuse_visible_t visible;
    TRY(mask_visible_create(r->m, r->s, &visible));
    st_status_t status = ST_OK;
    for (uint32_t i = 0; i < r->n_masks && status == ST_OK; i++) {
        const mask_t *mask = &r->masks[i];
        status = mask_apply(r->site->match.cone, mask->value, mask->kind, mask->fill, mask->factor,
                            r->score_dtype, &visible, &constant[i]);
        any |= constant[i];
        all &= constant[i];
    }
    bool proved = r->nothing_to_prove || (mask_rows_see(&visible) && (all || visible.infinite));
    if (status == ST_OK && any && proved && mask_is_regular(&visible, &causal, &window)) {
        add_attributes(r, causal, window);
        drop_masks(r, constant);
    }
    st_free(visible.see);
    return status;
}

static st_status_t absorb_masks(reading_t *r, bool *out_accepted) {
    bool any = false;
    for (uint32_t i = 0; i < r->n_masks; i++)
        any |= fuse_cone_is_constant(r->site->match.cone, r->masks[i].value);
    if (any && r->s <= MAX_PLANE / r->m) TRY(absorb_constants(r));
    *out_accepted = true;
    for (uint32_t i = 0; i < r->n_masks; i++)
        *out_accepted &= can_stay(r, &r->masks[i], i + 1 == r->n_masks);
    return ST_OK;
}

/* ---- checks ---- */

static void hand_over(const reading_t *r) {
    fuse_site_t *site = r->site;
    site->n_in = 0;
    site_add(site, r->q);
    site_add(site, r->k);
    site_add(site, r->v);
    site->i[B] = r->b;
    site->i[H] = r->h;
    site->i[CAUSAL] = r->causal;
    site->i[WINDOW] = r->window;
    site->i[K_TURNED] = r->k_is_keys_last;
    site->i[V_TURNED] = r->v_is_keys_last;
    site->i[N_MASKS] = r->n_masks;
    site->f[0] = r->scale;
    for (uint32_t i = 0; i < r->n_masks; i++) {
        site_add(site, r->masks[i].value);
        site->i[MASKS + i] = r->masks[i].kind;
        site->f[1 + i] = r->masks[i].kind == MASK_ADD ? r->masks[i].factor : r->masks[i].fill;
    }
}

static st_status_t check_chain(fuse_site_t *site, bool *out_accepted) {
    const match_t *m = &site->match;
    const ir_node_info_t *root = ir_node(site_graph(site), m->nodes[0]);
    ir_value_t p = match_value(m, "p"), s = match_value(m, "s");
    const ir_type_t *probs = site_type(site, p), *left = site_type(site, root->inputs[0]);
    reading_t r = {.site = site, .v = match_value(m, "v"), .score_dtype = probs->dtype};
    st_status_t status = ST_OK;
    *out_accepted = false;
    if (ir_attr_int(site_producer(site, p), "axis") != probs->rank - 1 || probs->rank < 2 ||
        ir_attr_int(root, "transpose_a") || ir_type_elements(left) != ir_type_elements(probs) ||
        left->dims[left->rank - 1] != probs->dims[probs->rank - 1] ||
        left->dims[left->rank - 2] != probs->dims[probs->rank - 2])
        return ST_OK;
    r.v_is_keys_last = ir_attr_int(root, "transpose_b") != 0;
    see_dims(&r, root->first_output);
    see_dims(&r, root->inputs[0]);
    see_dims(&r, p);
    if (!descend(&r, s, 1, &status) || status != ST_OK) return status;
    take_factors(&r, &r.q, false, &status);
    take_factors(&r, &r.k, false, &status);
    if (status != ST_OK || !read_shapes(&r) || !ungroup_both(&r, &status)) return status;
    if (isinf(r.scale) || !(r.scale > 0)) return ST_OK;
    TRY(absorb_masks(&r, out_accepted));
    hand_over(&r);
    return ST_OK;
}

/* An attention node of which something can be said better. */
static st_status_t check_node(fuse_site_t *site, bool *out_accepted) {
    const match_t *m = &site->match;
    const ir_node_info_t *node = ir_node(site_graph(site), m->nodes[0]);
    const ir_type_t *q = site_type(site, match_value(m, "q"));
    ir_value_t mask = match_value(m, "mask");
    reading_t r = {.site = site,
                   .q = match_value(m, "q"),
                   .k = match_value(m, "k"),
                   .v = match_value(m, "v"),
                   .scale = ir_attr_float(node, "scale"),
                   .causal = ir_attr_int(node, "causal") != 0,
                   .window = ir_attr_int(node, "window"),
                   .score_dtype = q->dtype,
                   .nothing_to_prove = true,
                   .b = q->dims[0],
                   .h = q->dims[1]};
    st_status_t status = ST_OK;
    *out_accepted = false;
    if (r.scale == 0) r.scale = 1 / sqrt((double)q->dims[3]);
    double scale = r.scale;
    if (ir_attr_int(node, "offset")) return ST_OK; /* masks are held against counting from 0 */
    if (mask != IR_NONE) {
        bool is_bool = site_type(site, mask)->dtype == IR_BOOL;
        if (!push_mask(&r, mask, is_bool ? MASK_KEEP : MASK_ADD, -INFINITY, 1)) return ST_OK;
        r.nothing_to_prove = is_bool;
    }
    take_factors(&r, &r.q, true, &status);
    take_factors(&r, &r.k, true, &status);
    if (status != ST_OK || !read_shapes(&r)) return status;
    int64_t heads = site_type(site, r.k)->dims[1];
    if (!ungroup_both(&r, &status)) return status;
    bool fewer = site->i[HEADS] < heads;
    site->i[HEADS] = fewer ? site->i[HEADS] : heads;
    uint32_t n_masks = r.n_masks;
    TRY(absorb_masks(&r, out_accepted));
    *out_accepted = *out_accepted && (fewer || r.n_masks < n_masks || r.scale != scale);
    hand_over(&r);
    return ST_OK;
}

/* ---- building ---- */

/* [B, heads, rows, features] of q, k or v. */
static ir_value_t four_dims(const fuse_site_t *site, ir_build_t *b, ir_value_t x, int64_t heads,
                            bool turned) {
    ir_type_t type = *ir_b_type(b, x);
    int64_t last = type.dims[type.rank - 1], rows = type.dims[type.rank - 2];
    if (type.rank == 4 && type.dims[1] < heads)
        x = ir_b_broadcast(b, x, 4, (int64_t[]){site->i[B], heads, rows, last});
    x = ir_b_reshape(b, x, 4, (int64_t[]){site->i[B], heads, rows, last});
    return turned ? ir_b_swap(b, x, 2, 3) : x;
}

static ir_value_t mask_dims(const fuse_site_t *site, ir_build_t *b, ir_value_t x) {
    ir_type_t type = *ir_b_type(b, x);
    if (type.rank != 3) return x;
    bool shared = type.dims[0] == 1;
    return ir_b_reshape(
        b, x, 4,
        (int64_t[]){shared ? 1 : site->i[B], shared ? 1 : site->i[H], type.dims[1], type.dims[2]});
}

/* All masks that stay, as one: bools combined, sums added, and a bool over both. */
static ir_value_t join_masks(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in,
                             ir_dtype_t dtype) {
    ir_value_t keep = IR_NONE, sum = IR_NONE;
    for (int64_t i = 0; i < site->i[N_MASKS]; i++) {
        ir_value_t mask = mask_dims(site, b, in[3 + i]);
        double number = site->f[1 + i];
        if (site->i[MASKS + i] == MASK_DISCARD) mask = ir_b_unary(b, IR_OP_LOGICAL_NOT, mask);
        if (site->i[MASKS + i] != MASK_ADD && isinf(number)) {
            keep = keep == IR_NONE ? mask : ir_b_binary(b, IR_OP_LOGICAL_AND, keep, mask);
            continue;
        }
        if (site->i[MASKS + i] != MASK_ADD)
            mask = ir_b_select(b, mask, ir_b_scalar(b, dtype, 0), ir_b_scalar(b, dtype, number));
        else if (number != 1)
            mask = ir_b_scale(b, mask, number);
        sum = sum == IR_NONE ? mask : ir_b_binary(b, IR_OP_ADD, sum, mask);
    }
    if (sum == IR_NONE) return keep;
    if (keep == IR_NONE) return sum;
    return ir_b_select(b, keep, sum, ir_b_scalar(b, dtype, -INFINITY));
}

static ir_value_t attend(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    ir_dtype_t dtype = ir_b_type(b, in[0])->dtype;
    ir_value_t operands[4] = {
        four_dims(site, b, in[0], site->i[H], false),
        four_dims(site, b, in[1], site->i[HEADS], site->i[K_TURNED] != 0),
        four_dims(site, b, in[2], site->i[HEADS], site->i[V_TURNED] != 0),
        join_masks(site, b, in, dtype),
    };
    return ir_b_node(
        b, IR_OP_ATTENTION, operands[3] == IR_NONE ? 3 : 4, operands, 3,
        (ir_arg_t[]){IR_ARG_BOOL("causal", site->i[CAUSAL] != 0),
                     IR_ARG_INT("window", site->i[WINDOW]), IR_ARG_FLOAT("scale", site->f[0])});
}

static ir_value_t build_chain(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    return site_as_root(site, b, attend(site, b, in));
}

static const fuse_row_t rows[] = {
    {"matmul(<probs>, ?v)", check_chain, build_chain},
    {"attention(?q, ?k, ?v, ?mask) | attention(?q, ?k, ?v)", check_node, attend},
    {0},
};

const fuse_patterns_t fuse_patterns_attention = {definitions, rows};
