/* The oracle: each op from its definition, over coordinates, in double. Shares no code with the
 * kernels: it sees attributes and input values only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "oracle.h"

/* ---- elementwise ---- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double normal_cdf(double x) {
    return 0.5 * erfc(-x / sqrt(2));
}
static double gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
}

static bool unary(const o_call_t *c, double x, double *y) {
    switch (c->p->op) {
        case IR_OP_NEG:
            *y = -x;
            return true;
        case IR_OP_ABS:
            *y = x < 0 ? -x : x;
            return true;
        case IR_OP_EXP:
            *y = exp(x);
            return true;
        case IR_OP_LOG:
            *y = log(x);
            return true;
        case IR_OP_SQRT:
            *y = sqrt(x);
            return true;
        case IR_OP_RSQRT:
            *y = pow(x, -0.5);
            return true;
        case IR_OP_RECIPROCAL:
            *y = 1 / x;
            return true;
        case IR_OP_SIN:
            *y = sin(x);
            return true;
        case IR_OP_COS:
            *y = cos(x);
            return true;
        case IR_OP_TANH:
            *y = tanh(x);
            return true;
        case IR_OP_SIGMOID:
            *y = sigmoid(x);
            return true;
        case IR_OP_ERF:
            *y = erf(x);
            return true;
        case IR_OP_RELU:
            *y = x > 0 ? x : 0;
            return true;
        case IR_OP_GELU:
            *y = attr_int(c, "tanh") ? gelu_tanh(x) : x * normal_cdf(x);
            return true;
        case IR_OP_SILU:
            *y = x * sigmoid(x);
            return true;
        case IR_OP_SIGN:
            *y = x > 0 ? 1 : x < 0 ? -1 : 0;
            return true;
        case IR_OP_FLOOR:
            *y = floor(x);
            return true;
        case IR_OP_CEIL:
            *y = ceil(x);
            return true;
        case IR_OP_LOGICAL_NOT:
            *y = x == 0;
            return true;
        case IR_OP_SQUARE:
            *y = x * x;
            return true;
        case IR_OP_ROUND:
            *y = nearbyint(x);
            return true;
        case IR_OP_CAST:
            *y = c->p->out[0].dtype == IR_BOOL            ? x != 0
                 : !ir_dtype_is_float(c->p->out[0].dtype) ? trunc(x)
                                                          : x;
            return true;
        default:
            return false;
    }
}

/* Slope of an activation by its definition; relu's from y. */
static bool slope(const o_call_t *c, double x, double *y) {
    switch (c->p->op) {
        case IR_OP_RELU_GRAD:
            *y = x > 0;
            return true;
        case IR_OP_SILU_GRAD:
            *y = sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
            return true;
        case IR_OP_GELU_GRAD:
            if (!attr_int(c, "tanh")) {
                *y = normal_cdf(x) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
            } else { /* the same function is x · sigmoid(2u) */
                double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
                double du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
                *y = sigmoid(2 * u) + 2 * du * x * sigmoid(2 * u) * sigmoid(-2 * u);
            }
            return true;
        default:
            return false;
    }
}

static bool binary(const o_call_t *c, double a, double b, double *y) {
    bool real = ir_dtype_is_float(c->p->in[0].dtype);
    switch (c->p->op) {
        case IR_OP_ADD:
            *y = a + b;
            return true;
        case IR_OP_SUB:
            *y = a - b;
            return true;
        case IR_OP_MUL:
            *y = a * b;
            return true;
        case IR_OP_DIV:
            *y = real ? a / b : b == 0 ? 0 : trunc(a / b);
            return true;
        case IR_OP_POW:
            *y = real ? pow(a, b) : trunc(b < 0 && a == 0 ? 0 : pow(a, b));
            return true;
        case IR_OP_MAXIMUM:
            *y = fmax(a, b);
            return true;
        case IR_OP_MINIMUM:
            *y = fmin(a, b);
            return true;
        case IR_OP_MOD:
            *y = b == 0 ? 0 : a - b * floor(a / b);
            return true;
        case IR_OP_EQ:
            *y = a == b;
            return true;
        case IR_OP_NE:
            *y = a != b;
            return true;
        case IR_OP_LT:
            *y = a < b;
            return true;
        case IR_OP_LE:
            *y = a <= b;
            return true;
        case IR_OP_GT:
            *y = a > b;
            return true;
        case IR_OP_GE:
            *y = a >= b;
            return true;
        case IR_OP_LOGICAL_AND:
            *y = a != 0 && b != 0;
            return true;
        case IR_OP_LOGICAL_OR:
            *y = a != 0 || b != 0;
            return true;
        default:
            return slope(c, b, y) ? (*y *= a, true) : false;
    }
}

static bool elementwise(const o_call_t *c) {
    const ir_type_t *out = &c->p->out[0];
    for (int64_t i = 0; i < count(out); i++) {
        int64_t at[D];
        double a[3] = {0};
        unravel(out, i, at);
        for (uint32_t j = 0; j < c->p->n_in && j < 3; j++)
            a[j] = broadcast_at(&c->in[j], at, out->rank);
        if (c->p->op == IR_OP_SELECT)
            c->out[0][i] = a[0] ? a[1] : a[2];
        else if (!(c->p->n_in == 1 ? unary(c, a[0], &c->out[0][i])
                                   : binary(c, a[0], a[1], &c->out[0][i])))
            return false;
    }
    return true;
}

/* ---- shape and index ---- */

static bool moves(const o_call_t *c) {
    const ir_type_t *out = &c->p->out[0], *x = &c->p->in[0];
    for (int64_t i = 0; i < count(out); i++) {
        int64_t at[D], from[D];
        unravel(out, i, at);
        memcpy(from, at, sizeof from);
        double value = 0;
        switch (c->p->op) {
            case IR_OP_BROADCAST:
                value = broadcast_at(&c->in[0], at, out->rank);
                break;
            case IR_OP_RESHAPE:
                value = c->in[0].v[i];
                break;
            case IR_OP_TRANSPOSE:
                for (int32_t d = 0; d < out->rank; d++) from[attr_at(c, "perm", d)] = at[d];
                value = inside(&c->in[0], from);
                break;
            case IR_OP_SLICE:
                for (int32_t d = 0; d < out->rank; d++)
                    from[d] = attr_at(c, "begin", d) + at[d] * attr_at(c, "step", d);
                value = inside(&c->in[0], from);
                break;
            case IR_OP_FLIP:
                for (uint32_t a = 0; a < kern_attr(c->p, "axes")->ints.n; a++) {
                    int64_t d = attr_at(c, "axes", a);
                    from[d] = x->dims[d] - 1 - at[d];
                }
                value = inside(&c->in[0], from);
                break;
            case IR_OP_PAD: {
                bool within = true;
                for (int32_t d = 0; d < out->rank; d++) {
                    from[d] = at[d] - attr_at(c, "low", d);
                    within = within && from[d] >= 0 && from[d] < x->dims[d];
                }
                value = within ? inside(&c->in[0], from) : attr_float(c, "value");
                break;
            }
            case IR_OP_CONCAT: {
                int64_t axis = attr_int(c, "axis");
                uint32_t j = 0;
                while (from[axis] >= c->p->in[j].dims[axis]) from[axis] -= c->p->in[j++].dims[axis];
                value = inside(&c->in[j], from);
                break;
            }
            default:
                return false;
        }
        c->out[0][i] = value;
    }
    return true;
}

static int64_t wrapped(double index, int64_t size) {
    return (int64_t)index < 0 ? (int64_t)index + size : (int64_t)index;
}

/* Coordinates in `whole` (x of a gather, the output of its adjoint) that meet coordinates `at` of
 * `part` (the output of a gather, the updates of its adjoint). */
static void indexed(const o_call_t *c, const ir_type_t *whole, const ir_type_t *part,
                    const int64_t at[D], int64_t to[D]) {
    const o_tensor_t *idx = &c->in[1];
    int32_t r = idx->type->rank;
    if (c->p->op == IR_OP_GATHER || c->p->op == IR_OP_SCATTER_ADD) {
        int64_t axis = attr_int(c, "axis");
        for (int32_t d = 0; d < whole->rank; d++) to[d] = d < axis ? at[d] : at[d + r - 1];
        to[axis] = wrapped(idx->v[ravel(idx->type, at + axis)], whole->dims[axis]);
    } else if (c->p->op == IR_OP_GATHER_ALONG || c->p->op == IR_OP_SCATTER_ALONG_ADD) {
        int64_t axis = attr_int(c, "axis");
        memcpy(to, at, D * sizeof *to);
        to[axis] = wrapped(idx->v[ravel(idx->type, at)], whole->dims[axis]);
    } else {
        int64_t k = idx->type->dims[r - 1], own[D];
        memcpy(own, at, sizeof own);
        for (int64_t d = 0; d < k; d++) {
            own[r - 1] = d;
            to[d] = wrapped(idx->v[ravel(idx->type, own)], whole->dims[d]);
        }
        for (int32_t d = (int32_t)k; d < whole->rank; d++) to[d] = at[r - 1 + d - k];
    }
    (void)part;
}

static bool gathers(const o_call_t *c) {
    const ir_type_t *out = &c->p->out[0];
    int64_t at[D], to[D];
    bool adjoint = c->p->op == IR_OP_SCATTER_ADD || c->p->op == IR_OP_SCATTER_ALONG_ADD ||
                   c->p->op == IR_OP_SCATTER_ND_ADD;
    if (adjoint) {
        const ir_type_t *updates = &c->p->in[0];
        for (int64_t i = 0; i < count(out); i++) c->out[0][i] = 0;
        for (int64_t i = 0; i < count(updates); i++) {
            unravel(updates, i, at);
            indexed(c, out, updates, at, to);
            c->out[0][ravel(out, to)] += c->in[0].v[i];
        }
        return true;
    }
    for (int64_t i = 0; i < count(out); i++) {
        unravel(out, i, at);
        indexed(c, &c->p->in[0], out, at, to);
        c->out[0][i] = inside(&c->in[0], to);
    }
    return true;
}

/* ---- reductions ---- */

static bool reductions(const o_call_t *c) {
    const ir_type_t *x = &c->p->in[0], *out = &c->p->out[0];
    const ir_attr_t *axes = kern_attr(c->p, "axes");
    ir_type_t kept = *x;
    for (uint32_t a = 0; a < axes->ints.n; a++) kept.dims[axes->ints.v[a]] = 1;
    int64_t n = count(out), items = n ? count(x) / n : 0;
    ir_op_t op = c->p->op;
    for (int64_t o = 0; o < n; o++)
        c->out[0][o] = op == IR_OP_REDUCE_PROD  ? 1
                       : op == IR_OP_REDUCE_MAX ? -INFINITY
                       : op == IR_OP_REDUCE_MIN ? INFINITY
                                                : 0;
    for (int64_t i = 0; i < count(x); i++) {
        int64_t at[D];
        unravel(x, i, at);
        for (uint32_t a = 0; a < axes->ints.n; a++) at[axes->ints.v[a]] = 0;
        double *y = &c->out[0][ravel(&kept, at)], v = c->in[0].v[i];
        *y = op == IR_OP_REDUCE_PROD  ? *y * v
             : op == IR_OP_REDUCE_MAX ? fmax(*y, v)
             : op == IR_OP_REDUCE_MIN ? fmin(*y, v)
                                      : *y + v;
    }
    for (int64_t o = 0; o < n && op == IR_OP_REDUCE_MEAN; o++) c->out[0][o] /= (double)items;
    return true;
}

static bool along_axis(const o_call_t *c) {
    const ir_type_t *x = &c->p->in[0];
    int64_t axis = attr_int(c, "axis"), n = x->dims[axis], at[D], k = 0;
    for (int64_t i = 0; i < count(x); i++) {
        unravel(x, i, at);
        if (c->p->op == IR_OP_ARGMAX) {
            if (at[axis] != 0) continue;
            int64_t best = 0;
            for (int64_t a = 0; a < n; a++) {
                int64_t other[D];
                memcpy(other, at, sizeof other);
                other[axis] = a;
                double v = inside(&c->in[0], other);
                other[axis] = best;
                if (v > inside(&c->in[0], other)) best = a;
            }
            c->out[0][k++] = (double)best; /* order of the kept dims is the order of visits */
            continue;
        }
        bool reverse = attr_int(c, "reverse") != 0, exclusive = attr_int(c, "exclusive") != 0;
        double sum = 0;
        int64_t other[D];
        memcpy(other, at, sizeof other);
        for (int64_t a = 0; a < n; a++) {
            bool before = reverse ? a > at[axis] : a < at[axis];
            other[axis] = a;
            if (before || (a == at[axis] && !exclusive)) sum += inside(&c->in[0], other);
        }
        c->out[0][i] = sum;
    }
    return true;
}

/* ---- sources, random, state ---- */

static uint32_t random_word(const o_call_t *c, uint32_t seed, int64_t i) {
    const ir_type_t *out = &c->p->out[0];
    int64_t at[D], whole = 0;
    uint32_t words[4];
    unravel(out, i, at);
    bool part = kern_attr(c->p, "global")->ints.n > 0;
    for (int32_t d = 0; d < out->rank; d++)
        whole = whole * (part ? attr_at(c, "global", d) : out->dims[d]) + at[d] +
                (part ? attr_at(c, "begin", d) : 0);
    int64_t all = 1;
    for (int32_t d = 0; d < out->rank; d++) all *= part ? attr_at(c, "global", d) : out->dims[d];
    if (c->p->n_in > seed + 2) whole += (int64_t)c->in[seed + 2].v[0] * all;
    st_philox((uint64_t)(int64_t)c->in[seed].v[0], (uint64_t)whole / 4,
              ((uint64_t)attr_int(c, "id") << 32) + (uint64_t)c->in[seed + 1].v[0], words);
    return words[whole % 4];
}

static bool sources(const o_call_t *c) {
    const ir_type_t *out = &c->p->out[0];
    for (int64_t i = 0; i < count(out); i++) {
        int64_t at[D];
        unravel(out, i, at);
        if (c->p->op == IR_OP_IOTA) {
            c->out[0][i] =
                attr_float(c, "start") + attr_float(c, "step") * (double)at[attr_int(c, "axis")];
        } else if (c->p->op == IR_OP_RANDOM_UNIFORM) {
            uint32_t word = random_word(c, 0, i);
            int bits = out->dtype == IR_F16 ? 11 : out->dtype == IR_BF16 ? 8 : 24;
            c->out[0][i] = floor(ldexp(word, bits - 32)) * ldexp(1, -bits);
        } else {
            double x = c->in[0].v[i], p = attr_float(c, "p");
            bool dropped =
                attr_int(c, "train") && (double)(random_word(c, 1, i) >> 8) / (1 << 24) < p;
            c->out[0][i] = dropped ? 0 : attr_int(c, "train") ? x / (1 - p) : x;
        }
    }
    return true;
}

static bool optimizers(const o_call_t *c) {
    int64_t n = count(&c->p->in[0]);
    bool sgd = c->p->op == IR_OP_SGD;
    double lr = c->in[sgd ? 2 : 4].v[0], scale = c->in[sgd ? 3 : 6].v[0];
    double decay = attr_float(c, "weight_decay");
    double mu = sgd ? attr_float(c, "momentum") : 0;
    if (sgd && mu == 0) c->out[1][0] = 0;
    uint32_t last = c->p->n_in - 1;
    if (c->p->in[last].dtype == IR_BOOL && c->in[last].v[0] == 0) { /* nothing changes */
        for (int64_t i = 0; i < n; i++) {
            c->out[0][i] = c->in[0].v[i];
            if (mu != 0) c->out[1][i] = c->in[4].v[i];
            if (!sgd) c->out[1][i] = c->in[2].v[i], c->out[2][i] = c->in[3].v[i];
        }
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        double p = c->in[0].v[i], g = c->in[1].v[i] * scale;
        if (sgd) {
            double step = g + decay * p;
            if (mu != 0) {
                double buffer = mu * c->in[4].v[i] + (1 - attr_float(c, "dampening")) * step;
                c->out[1][i] = buffer;
                step = attr_int(c, "nesterov") ? step + mu * buffer : buffer;
            }
            c->out[0][i] = p - lr * step;
            continue;
        }
        double b1 = attr_float(c, "beta1"), b2 = attr_float(c, "beta2"), t = c->in[5].v[0];
        bool decoupled = attr_int(c, "decoupled") != 0;
        if (!decoupled) g += decay * p;
        double m = b1 * c->in[2].v[i] + (1 - b1) * g, v = b2 * c->in[3].v[i] + (1 - b2) * g * g;
        c->out[1][i] = m;
        c->out[2][i] = v;
        c->out[0][i] =
            p * (decoupled ? 1 - lr * decay : 1) -
            lr * m / (1 - pow(b1, t)) / (sqrt(v / (1 - pow(b2, t))) + attr_float(c, "eps"));
    }
    return true;
}

static bool scalars(const o_call_t *c) {
    double y = 0;
    if (c->p->op == IR_OP_SUM_SQUARES) {
        for (uint32_t j = 0; j < c->p->n_in; j++)
            for (int64_t i = 0; i < count(&c->p->in[j]); i++) y += pow(c->in[j].v[i], 2);
    } else {
        const char *kind = kern_attr(c->p, "kind")->s;
        double s = c->in[0].v[0], base = attr_float(c, "base"), low = attr_float(c, "min");
        double warm = (double)attr_int(c, "warmup"), total = (double)attr_int(c, "total");
        double t = fmin(1, (s - 1 - warm) / (total - warm));
        y = s <= warm                     ? base * s / warm
            : strcmp(kind, "linear") == 0 ? base * (1 - t) + low * t
            : strcmp(kind, "cosine") == 0 ? low + (base - low) * (1 + cos(M_PI * t)) / 2
                                          : base;
    }
    c->out[0][0] = y;
    return true;
}

static bool constants(const o_call_t *c) {
    const ir_attr_t *data = kern_attr(c->p, "data");
    const ir_type_t *out = &c->p->out[0];
    size_t each = ir_dtype_bytes(out->dtype), n = data->data.bytes / each;
    for (int64_t i = 0; i < count(out); i++) {
        const unsigned char *at =
            (const unsigned char *)data->data.p + (n > 1 ? (size_t)i : 0) * each;
        float f32;
        double f64;
        int64_t i64;
        uint16_t half;
        memcpy(&half, at, 2);
        if (out->dtype == IR_F32)
            memcpy(&f32, at, 4), c->out[0][i] = (double)f32;
        else if (out->dtype == IR_F64)
            memcpy(&f64, at, 8), c->out[0][i] = f64;
        else if (out->dtype == IR_I64)
            memcpy(&i64, at, 8), c->out[0][i] = (double)i64;
        else if (out->dtype == IR_BOOL)
            c->out[0][i] = *at;
        else if (out->dtype == IR_BF16) {
            uint32_t bits = (uint32_t)half << 16;
            memcpy(&f32, &bits, 4), c->out[0][i] = (double)f32;
        } else if (out->dtype == IR_F16 && (half >> 10 & 31) > 0 && (half >> 10 & 31) < 31) {
            const double size = ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);
            c->out[0][i] = half >> 15 ? -size : size;
        } else
            return false;
    }
    return true;
}

static bool plain_oracle(o_call_t *call) {
    static const struct {
        ir_op_t first, last;
        bool (*rule)(const o_call_t *);
    } rules[] = {
        {IR_OP_CONSTANT, IR_OP_CONSTANT, constants},
        {IR_OP_IOTA, IR_OP_RANDOM_UNIFORM, sources},
        {IR_OP_NEG, IR_OP_SELECT, elementwise},
        {IR_OP_BROADCAST, IR_OP_CONCAT, moves},
        {IR_OP_GATHER, IR_OP_SCATTER_ND_ADD, gathers},
        {IR_OP_FLIP, IR_OP_FLIP, moves},
        {IR_OP_REDUCE_SUM, IR_OP_REDUCE_PROD, reductions},
        {IR_OP_ARGMAX, IR_OP_CUMSUM, along_axis},
        {IR_OP_SUM_SQUARES, IR_OP_SUM_SQUARES, scalars},
        {IR_OP_MATMUL, IR_OP_MATMUL, oracle_matmul},
        {IR_OP_CONV, IR_OP_CONV_GRAD_WEIGHT, oracle_convolution},
        {IR_OP_MAX_POOL, IR_OP_MAX_POOL, oracle_pooling},
        {IR_OP_MAX_POOL_GRAD, IR_OP_MAX_POOL_GRAD, oracle_max_pool_grad},
        {IR_OP_AVG_POOL, IR_OP_AVG_POOL_GRAD, oracle_pooling},
        {IR_OP_ATTENTION, IR_OP_ATTENTION, oracle_attention},
        {IR_OP_ATTENTION_GRAD, IR_OP_ATTENTION_GRAD, oracle_attention_grad},
        {IR_OP_SOFTMAX, IR_OP_LOG_SOFTMAX_GRAD, oracle_softmaxes},
        {IR_OP_CROSS_ENTROPY, IR_OP_CROSS_ENTROPY_GRAD, oracle_cross_entropies},
        {IR_OP_BATCH_NORM, IR_OP_BATCH_NORM_GRAD_APPLY, oracle_channels},
        {IR_OP_LAYER_NORM, IR_OP_LAYER_NORM, oracle_row_norms},
        {IR_OP_LAYER_NORM_GRAD, IR_OP_LAYER_NORM_GRAD, oracle_row_norm_grads},
        {IR_OP_RMS_NORM, IR_OP_RMS_NORM, oracle_row_norms},
        {IR_OP_RMS_NORM_GRAD, IR_OP_RMS_NORM_GRAD, oracle_row_norm_grads},
        {IR_OP_ROPE, IR_OP_ROPE, oracle_rope},
        {IR_OP_DROPOUT, IR_OP_DROPOUT, sources},
        {IR_OP_SGD, IR_OP_ADAMW, optimizers},
        {IR_OP_LR_SCHEDULE, IR_OP_LR_SCHEDULE, scalars},
        {IR_OP_FUSED, IR_OP_FUSED, oracle_fused},
        {IR_OP_REPEAT, IR_OP_REPEAT, oracle_repeat},
        {IR_OP_COND, IR_OP_COND, oracle_cond},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (call->p->op >= rules[i].first && call->p->op <= rules[i].last)
            return rules[i].rule(call);
    return false;
}

/* ---- operands in another order ---- */

/* Dims of the plain form of a type: with rows_first rows change places with heads, with
 * channels_last the last dim comes second. false: it has the plain order anyway. */
static bool plain_order(const kern_problem_t *p, const ir_type_t *type, int32_t *order) {
    bool rows = p->op == IR_OP_ATTENTION || p->op == IR_OP_ATTENTION_GRAD || p->op == IR_OP_ROPE;
    for (int32_t d = 0; d < type->rank; d++) order[d] = d;
    if (type->rank < 3 || (rows && type->rank != 4)) return false;
    if (rows) {
        order[1] = 2, order[2] = 1;
    } else {
        order[1] = type->rank - 1;
        for (int32_t d = 2; d < type->rank; d++) order[d] = d - 1;
    }
    return true;
}

/* Element i of the plain tensor → where it is in the other. */
static int64_t element_of(const ir_type_t *plain, const ir_type_t *type, const int32_t *order,
                          int64_t i) {
    int64_t at[D], own[D];
    unravel(plain, i, at);
    for (int32_t d = 0; d < type->rank; d++) own[order[d]] = at[d];
    return ravel(type, own);
}

static ir_type_t plain_type(const ir_type_t *type, const int32_t *order) {
    ir_type_t plain = *type;
    for (int32_t d = 0; d < type->rank; d++) plain.dims[d] = type->dims[order[d]];
    return plain;
}

/* The plain op over copies in the plain order. Masks are in it already. */
static bool turned_oracle(const conf_built_t *built, double *const *out) {
    const kern_problem_t *p = &built->problem;
    ir_type_t in[8], made[4];
    double *in_copy[8] = {0}, *out_copy[4] = {0};
    int32_t order[D];
    kern_problem_t problem = *p;
    o_call_t call = {.p = &problem, .out = out_copy};
    const uint32_t mask = p->op == IR_OP_ATTENTION ? 3 : p->op == IR_OP_ATTENTION_GRAD ? 6 : 8;
    for (uint32_t j = 0; j < p->n_in; j++) {
        const int64_t n = count(&p->in[j]);
        in_copy[j] = malloc(((size_t)n + 1) * sizeof(double));
        bool turn = plain_order(p, &p->in[j], order) && j != mask;
        in[j] = turn ? plain_type(&p->in[j], order) : p->in[j];
        for (int64_t i = 0; i < n; i++)
            in_copy[j][i] = built->in_values[j][turn ? element_of(&in[j], &p->in[j], order, i) : i];
        call.in[j] = (o_tensor_t){&in[j], in_copy[j]};
    }
    for (uint32_t k = 0; k < p->n_out; k++) {
        out_copy[k] = malloc(((size_t)count(&p->out[k]) + 1) * sizeof(double));
        made[k] = plain_order(p, &p->out[k], order) ? plain_type(&p->out[k], order) : p->out[k];
    }
    problem.in = in;
    problem.out = made;
    bool known = plain_oracle(&call);
    for (uint32_t k = 0; k < p->n_out; k++) {
        bool turn = plain_order(p, &p->out[k], order);
        for (int64_t i = 0; known && i < count(&made[k]); i++)
            out[k][turn ? element_of(&made[k], &p->out[k], order, i) : i] = out_copy[k][i];
        free(out_copy[k]);
    }
    for (uint32_t j = 0; j < p->n_in; j++) free(in_copy[j]);
    return known;
}

bool conf_oracle(const conf_built_t *built, double *const *out) {
    const ir_op_def_t *def = ir_op_def(built->problem.op);
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++) {
        const char *key = def->attrs[i].key;
        if ((strcmp(key, "rows_first") == 0 || strcmp(key, "channels_last") == 0) &&
            built->problem.attrs[i].i)
            return turned_oracle(built, out);
    }
    o_call_t call = {.p = &built->problem, .out = out};
    for (uint32_t j = 0; j < built->problem.n_in; j++)
        call.in[j] = (o_tensor_t){&built->problem.in[j], built->in_values[j]};
    return plain_oracle(&call);
}
