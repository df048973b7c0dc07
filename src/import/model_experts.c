/* Routed experts (model_experts.h).
 *
 *   router    shares = softmax(x · routerᵀ) [B, S, E], as exp(log softmax), both of which are
 *             float32 in mixed precision: shares of 8 bits would tie. Choices one after the other
 *             by argmax, the chosen one struck out: ties go to the lower expert
 *   place     a token's place in its expert is the number of tokens before it: all earlier
 *             choices', then by order (cumulative sums of one-hot choices). Places from the
 *             capacity C on are dropped.
 *   dispatch  slot (e, place) holds the token's number, put there by a scatter; x is gathered by
 *             slot [B, E·C, H]. Empty slots read token 0, and nobody reads what becomes of it.
 *   experts   [E, B·C, H], three products with the experts' weights
 *   combine   each choice gathers its slot's answer, times its share, 0 where it was dropped
 *   balance   means over all tokens of the batch, so that no part of it has to be even by itself
 *
 * Not taken: one-hot products for dispatch and combine (GShard), whose cost grows with the square
 * of the sequence. Sources: Shazeer et al., "Outrageously large neural networks", 2017; Lepikhin et
 * al., "GShard", 2020 (capacity, order of choices); Fedus et al., "Switch transformers", 2021
 * (balance; of several choices and layers as Mixtral has it). */
#include "import/model_experts.h"

#include <math.h>

typedef struct routing {
    ir_build_t *b;
    const model_experts_t *e;
    int64_t batch, length, hidden, n_experts, capacity;
    ir_value_t number;        /* i64[1, 1, E]: of experts */
    ir_value_t shares;        /* [B, S, E] */
    ir_value_t left;          /* the same, chosen ones struck out */
    ir_value_t taken;         /* i64[B, 1, E]: tokens that an expert has of earlier choices */
    ir_value_t token_plus;    /* f32[B, S]: a token's number, + 1 */
    model_balance_t *balance; /* NULL: not wanted */
} routing_t;

/* One of a token's experts. */
typedef struct choice {
    ir_value_t share; /* [B, S] */
    ir_value_t has;   /* bool[B, S]: there was room */
    ir_value_t slot;  /* i64[B, S]: expert · C + place, 0 where there was none */
} choice_t;

int64_t model_capacity(int64_t length, int64_t n_experts, int64_t routed, double factor) {
    const double share = ceil((double)routed * (double)length * factor / (double)n_experts - 1e-9);
    return share < 1 ? 1 : share > (double)length ? length : (int64_t)share;
}

static ir_value_t sum_experts(ir_build_t *b, ir_value_t x) {
    const int64_t last = 2;
    return ir_b_reduce(b, IR_OP_REDUCE_SUM, x, 1, &last, false);
}

/* Mean over all tokens of x [B, S, E]. */
static ir_value_t mean_of_tokens(ir_build_t *b, ir_value_t x) {
    const int64_t tokens[] = {0, 1};
    return ir_b_reduce(b, IR_OP_REDUCE_MEAN, x, 2, tokens, false);
}

/* One choice of all tokens, bool[B, S, E]. */
static void count_choice(routing_t *r, ir_value_t chosen) {
    ir_build_t *b = r->b;
    if (!r->balance) return;
    ir_value_t part = mean_of_tokens(b, ir_b_cast(b, chosen, IR_F32));
    r->balance->chosen =
        r->balance->chosen == IR_NONE ? part : ir_b_binary(b, IR_OP_ADD, r->balance->chosen, part);
}

static choice_t choose(routing_t *r) {
    ir_build_t *b = r->b;
    const int64_t one[] = {r->batch, r->length, 1};
    const ir_arg_t axis = IR_ARG_INT("axis", 2);
    ir_value_t expert = ir_b_node(b, IR_OP_ARGMAX, 1, &r->left, 1, &axis);
    ir_value_t chosen =
        ir_b_binary(b, IR_OP_EQ, r->number, ir_b_reshape(b, expert, 3, one)); /* [B, S, E] */
    ir_value_t zero = ir_b_scalar(b, ir_b_type(b, r->shares)->dtype, 0);
    ir_value_t none = ir_b_scalar(b, ir_b_type(b, r->left)->dtype, -1);
    r->left = ir_b_select(b, chosen, none, r->left);
    count_choice(r, chosen);
    /* places: earlier choices' tokens, then those before it in the sequence */
    ir_value_t count = ir_b_cast(b, chosen, IR_I64);
    const ir_arg_t along[] = {IR_ARG_INT("axis", 1), IR_ARG_BOOL("exclusive", true)};
    ir_value_t before = ir_b_node(b, IR_OP_CUMSUM, 1, &count, 2, along);
    before = ir_b_binary(b, IR_OP_ADD, before, r->taken);
    const int64_t rows = 1;
    r->taken = ir_b_binary(b, IR_OP_ADD, r->taken,
                           ir_b_reduce(b, IR_OP_REDUCE_SUM, count, 1, &rows, true));
    ir_value_t place = sum_experts(b, ir_b_binary(b, IR_OP_MUL, before, count));
    choice_t c = {.share = sum_experts(b, ir_b_select(b, chosen, r->shares, zero))};
    c.has = ir_b_binary(b, IR_OP_LT, place, ir_b_scalar(b, IR_I64, (double)r->capacity));
    c.slot = ir_b_binary(
        b, IR_OP_ADD,
        ir_b_binary(b, IR_OP_MUL, expert, ir_b_scalar(b, IR_I64, (double)r->capacity)), place);
    c.slot = ir_b_select(b, c.has, c.slot, ir_b_scalar(b, IR_I64, 0));
    return c;
}

/* The tokens of this choice where their slots are: [B, E · C], a number + 1, 0 of an empty slot. */
static ir_value_t put(const routing_t *r, const choice_t *c) {
    ir_build_t *b = r->b;
    const ir_value_t in[] = {ir_b_select(b, c->has, r->token_plus, ir_b_scalar(b, IR_F32, 0)),
                             c->slot};
    const ir_arg_t args[] = {IR_ARG_INT("axis", 1),
                             IR_ARG_INT("extent", r->n_experts * r->capacity)};
    return ir_b_node(b, IR_OP_SCATTER_ALONG_ADD, 2, in, 2, args);
}

/* Rows of x [B, N, H] by index [B, M]: [B, M, H]. */
static ir_value_t take(const routing_t *r, ir_value_t x, ir_value_t index) {
    ir_build_t *b = r->b;
    const int64_t n = ir_b_type(b, index)->dims[1];
    index = ir_b_reshape(b, index, 3, (int64_t[]){r->batch, n, 1});
    index = ir_b_broadcast(b, index, 3, (int64_t[]){r->batch, n, r->hidden});
    const ir_arg_t axis = IR_ARG_INT("axis", 1);
    return ir_b_node(b, IR_OP_GATHER_ALONG, 2, (ir_value_t[]){x, index}, 1, &axis);
}

/* Slots [B, E · C, H] through their experts. */
static ir_value_t answer(const routing_t *r, ir_value_t x) {
    ir_build_t *b = r->b;
    const int64_t split[] = {r->batch, r->n_experts, r->capacity, r->hidden};
    const int64_t swapped[] = {r->n_experts, r->batch, r->capacity, r->hidden};
    x = ir_b_swap(b, ir_b_reshape(b, x, 4, split), 0, 1);
    x = ir_b_reshape(b, x, 3, (int64_t[]){r->n_experts, r->batch * r->capacity, r->hidden});
    ir_value_t gate = ir_b_matmul(b, x, r->e->gate, false, true);
    ir_value_t up = ir_b_matmul(b, x, r->e->up, false, true);
    ir_value_t h = ir_b_binary(b, IR_OP_MUL, ir_b_unary(b, IR_OP_SILU, gate), up);
    h = ir_b_reshape(b, ir_b_matmul(b, h, r->e->down, false, true), 4, swapped);
    return ir_b_reshape(b, ir_b_swap(b, h, 0, 1), 3,
                        (int64_t[]){r->batch, r->n_experts * r->capacity, r->hidden});
}

static void open_routing(routing_t *r, ir_value_t x) {
    ir_build_t *b = r->b;
    const ir_arg_t axis = IR_ARG_INT("axis", 2);
    ir_value_t logits = ir_b_cast(b, ir_b_matmul(b, x, r->e->router, false, true), IR_F32);
    logits = ir_b_node(b, IR_OP_LOG_SOFTMAX, 1, &logits, 1, &axis);
    r->shares = ir_b_unary(b, IR_OP_EXP, logits);
    r->left = r->shares;
    if (r->balance) *r->balance = (model_balance_t){IR_NONE, mean_of_tokens(b, r->shares)};
    r->number = ir_b_iota(b, ir_type_make(IR_I64, 3, (int64_t[]){1, 1, r->n_experts}), 2, 0, 1);
    r->taken = ir_b_splat(b, ir_type_make(IR_I64, 3, (int64_t[]){1, 1, r->n_experts}), 0);
    ir_value_t token = ir_b_iota(b, ir_type_make(IR_F32, 2, (int64_t[]){1, r->length}), 1, 1, 1);
    r->token_plus = ir_b_broadcast(b, token, 2, (int64_t[]){r->batch, r->length});
}

ir_value_t model_balance_loss(ir_build_t *b, size_t n, const model_balance_t *routers) {
    if (b->status != ST_OK) return IR_NONE;
    const double n_experts = (double)ir_b_type(b, routers[0].liked)->dims[0];
    ir_value_t chosen = routers[0].chosen, liked = routers[0].liked;
    for (size_t i = 1; i < n; i++) {
        chosen = ir_b_binary(b, IR_OP_ADD, chosen, routers[i].chosen);
        liked = ir_b_binary(b, IR_OP_ADD, liked, routers[i].liked);
    }
    ir_value_t sum =
        ir_b_reduce(b, IR_OP_REDUCE_SUM, ir_b_binary(b, IR_OP_MUL, chosen, liked), 0, NULL, false);
    return ir_b_scale(b, sum, n_experts / ((double)n * (double)n));
}

ir_value_t model_route(ir_build_t *b, const model_experts_t *experts, ir_value_t x,
                       model_balance_t *out_balance) {
    enum { MOST_ROUTED = 64 };
    const ir_type_t type = *ir_b_type(b, x), weights = *ir_b_type(b, experts->router);
    if (b->status != ST_OK) return x;
    routing_t r = {.b = b,
                   .e = experts,
                   .batch = type.dims[0],
                   .length = type.dims[1],
                   .hidden = type.dims[2],
                   .n_experts = weights.dims[0],
                   .balance = out_balance};
    choice_t choices[MOST_ROUTED];
    if (experts->routed > MOST_ROUTED) {
        b->status = FAIL(ST_UNSUPPORTED, "a token goes to %lld experts; %d are possible",
                         (long long)experts->routed, MOST_ROUTED);
        return x;
    }
    r.capacity = model_capacity(r.length, r.n_experts, experts->routed, experts->capacity_factor);
    open_routing(&r, x);
    ir_value_t tokens = IR_NONE, all = IR_NONE, y = IR_NONE;
    for (int64_t j = 0; j < experts->routed; j++) {
        choices[j] = choose(&r);
        ir_value_t own = put(&r, &choices[j]);
        tokens = j ? ir_b_binary(b, IR_OP_ADD, tokens, own) : own;
        all = j ? ir_b_binary(b, IR_OP_ADD, all, choices[j].share) : choices[j].share;
    }
    ir_value_t index = ir_b_cast(b, ir_b_add_scalar(b, tokens, -1), IR_I64);
    index = ir_b_binary(b, IR_OP_MAXIMUM, index, ir_b_scalar(b, IR_I64, 0));
    ir_value_t answers = answer(&r, take(&r, x, index));
    for (int64_t j = 0; j < experts->routed; j++) {
        ir_value_t share = ir_b_binary(b, IR_OP_DIV, choices[j].share, all);
        share =
            ir_b_select(b, choices[j].has, share, ir_b_scalar(b, ir_b_type(b, share)->dtype, 0));
        share = ir_b_reshape(b, share, 3, (int64_t[]){r.batch, r.length, 1});
        share = ir_b_cast(b, share, type.dtype);
        ir_value_t part = ir_b_binary(b, IR_OP_MUL, take(&r, answers, choices[j].slot), share);
        y = j ? ir_b_binary(b, IR_OP_ADD, y, part) : part;
    }
    return y;
}
