/* The oracle: each op from its definition, over coordinates, in double. Shares no code with the
 * kernels: it sees attributes and input values only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cases.h"

enum { D = IR_MAX_RANK };

typedef struct o_tensor {
    const ir_type_t *type;
    const double *v;
} o_tensor_t;

typedef struct o_call {
    const kern_problem_t *p;
    o_tensor_t in[CONF_MAX_OPERANDS];
    double *const *out;
} o_call_t;

static int64_t attr_int(const o_call_t *c, const char *key) {
    return kern_attr(c->p, key)->i;
}
static double attr_float(const o_call_t *c, const char *key) {
    return kern_attr(c->p, key)->f;
}
static int64_t attr_at(const o_call_t *c, const char *key, int64_t i) {
    return kern_attr(c->p, key)->ints.v[i];
}

/* ---- coordinates ---- */

static int64_t count(const ir_type_t *type) {
    return ir_type_elements(type);
}
static void unravel(const ir_type_t *type, int64_t i, int64_t at[D]) {
    for (int32_t d = type->rank - 1; d >= 0; d--) {
        at[d] = i % type->dims[d];
        i /= type->dims[d];
    }
}
static int64_t ravel(const ir_type_t *type, const int64_t at[D]) {
    int64_t i = 0;
    for (int32_t d = 0; d < type->rank; d++)
        i = i * type->dims[d] + at[d];
    return i;
}
/* Element of an operand that broadcasts to coordinates `at` of a tensor of `rank`. */
static double broadcast_at(const o_tensor_t *x, const int64_t at[D], int32_t rank) {
    int64_t own[D];
    for (int32_t d = 0; d < x->type->rank; d++)
        own[d] = x->type->dims[d] == 1 ? 0 : at[rank - x->type->rank + d];
    return x->v[ravel(x->type, own)];
}
/* Value at coordinates, 0 outside. */
static double inside(const o_tensor_t *x, const int64_t at[D]) {
    for (int32_t d = 0; d < x->type->rank; d++)
        if (at[d] < 0 || at[d] >= x->type->dims[d]) return 0;
    return x->v[ravel(x->type, at)];
}

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
                for (int32_t d = 0; d < out->rank; d++)
                    from[attr_at(c, "perm", d)] = at[d];
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
                while (from[axis] >= c->p->in[j].dims[axis])
                    from[axis] -= c->p->in[j++].dims[axis];
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
        for (int32_t d = 0; d < whole->rank; d++)
            to[d] = d < axis ? at[d] : at[d + r - 1];
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
        for (int32_t d = (int32_t)k; d < whole->rank; d++)
            to[d] = at[r - 1 + d - k];
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
        for (int64_t i = 0; i < count(out); i++)
            c->out[0][i] = 0;
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
    for (uint32_t a = 0; a < axes->ints.n; a++)
        kept.dims[axes->ints.v[a]] = 1;
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
        for (uint32_t a = 0; a < axes->ints.n; a++)
            at[axes->ints.v[a]] = 0;
        double *y = &c->out[0][ravel(&kept, at)], v = c->in[0].v[i];
        *y = op == IR_OP_REDUCE_PROD  ? *y * v
             : op == IR_OP_REDUCE_MAX ? fmax(*y, v)
             : op == IR_OP_REDUCE_MIN ? fmin(*y, v)
                                      : *y + v;
    }
    for (int64_t o = 0; o < n && op == IR_OP_REDUCE_MEAN; o++)
        c->out[0][o] /= (double)items;
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

/* ---- contractions ---- */

static bool matmul(const o_call_t *c) {
    const ir_type_t *out = &c->p->out[0], *a = &c->p->in[0], *b = &c->p->in[1];
    bool ta = attr_int(c, "transpose_a") != 0, tb = attr_int(c, "transpose_b") != 0;
    int64_t k = a->dims[a->rank - (ta ? 2 : 1)];
    for (int64_t i = 0; i < count(out); i++) {
        int64_t at[D], in_a[D], in_b[D];
        unravel(out, i, at);
        int64_t row = at[out->rank - 2], column = at[out->rank - 1];
        double sum = 0;
        for (int64_t l = 0; l < k; l++) {
            memcpy(in_a, at, sizeof in_a);
            memcpy(in_b, at, sizeof in_b);
            in_a[out->rank - 2] = ta ? l : row;
            in_a[out->rank - 1] = ta ? row : l;
            in_b[out->rank - 2] = tb ? column : l;
            in_b[out->rank - 1] = tb ? l : column;
            sum +=
                broadcast_at(&c->in[0], in_a, out->rank) * broadcast_at(&c->in[1], in_b, out->rank);
        }
        c->out[0][i] = sum;
    }
    (void)b;
    return true;
}

/* Every triple (x position, w position, y position) that a convolution multiplies. */
static bool convolution(const o_call_t *c) {
    ir_op_t op = c->p->op;
    const ir_type_t *x = op == IR_OP_CONV_GRAD_INPUT ? &c->p->out[0] : &c->p->in[0];
    const ir_type_t *w = op == IR_OP_CONV_GRAD_WEIGHT ? &c->p->out[0] : &c->p->in[1];
    const ir_type_t *y = op == IR_OP_CONV              ? &c->p->out[0]
                         : op == IR_OP_CONV_GRAD_INPUT ? &c->p->in[0]
                                                       : &c->p->in[1];
    int64_t groups = attr_int(c, "groups"), o_each = w->dims[0] / groups;
    for (int64_t i = 0; i < count(&c->p->out[0]); i++)
        c->out[0][i] = 0;
    for (int64_t iy = 0; iy < count(y); iy++) {
        int64_t at_y[D], at_w[D], at_x[D];
        unravel(y, iy, at_y);
        if (op == IR_OP_CONV && c->p->n_in > 2) c->out[0][iy] += c->in[2].v[at_y[1]];
        ir_type_t taps = *w;
        taps.dims[0] = 1;
        for (int64_t t = 0; t < count(&taps); t++) {
            unravel(&taps, t, at_w);
            at_w[0] = at_y[1];
            at_x[0] = at_y[0];
            at_x[1] = at_y[1] / o_each * w->dims[1] + at_w[1];
            bool within = true;
            for (int32_t d = 2; d < x->rank; d++) {
                at_x[d] = at_y[d] * attr_at(c, "strides", d - 2) - attr_at(c, "pads_low", d - 2) +
                          at_w[d] * attr_at(c, "dilations", d - 2);
                within = within && at_x[d] >= 0 && at_x[d] < x->dims[d];
            }
            if (!within) continue;
            int64_t ix = ravel(x, at_x), iw = ravel(w, at_w);
            if (op == IR_OP_CONV)
                c->out[0][iy] += c->in[0].v[ix] * c->in[1].v[iw];
            else if (op == IR_OP_CONV_GRAD_INPUT)
                c->out[0][ix] += c->in[0].v[iy] * c->in[1].v[iw];
            else
                c->out[0][iw] += c->in[0].v[ix] * c->in[1].v[iy];
        }
    }
    return true;
}

static bool pooling(const o_call_t *c) {
    ir_op_t op = c->p->op;
    bool grad = op == IR_OP_AVG_POOL_GRAD, max = op == IR_OP_MAX_POOL;
    const ir_type_t *x = grad ? &c->p->out[0] : &c->p->in[0];
    const ir_type_t *y = grad ? &c->p->in[0] : &c->p->out[0];
    for (int64_t i = 0; grad && i < count(x); i++)
        c->out[0][i] = 0;
    ir_type_t kernel = ir_type_scalar(IR_F32);
    kernel.rank = x->rank - 2;
    for (int32_t d = 0; d < kernel.rank; d++)
        kernel.dims[d] = attr_at(c, "kernel", d);
    for (int64_t iy = 0; iy < count(y); iy++) {
        int64_t at_y[D], tap[D], at_x[D], best = -1;
        double sum = 0, largest = 0, divisor = 0;
        for (int pass = 0; pass < (grad ? 2 : 1); pass++)
            for (int64_t t = 0; t < count(&kernel); t++) {
                unravel(y, iy, at_y);
                unravel(&kernel, t, tap);
                memcpy(at_x, at_y, sizeof at_x);
                bool within = true, padded = true;
                int64_t flat = 0;
                for (int32_t d = 0; d < kernel.rank; d++) {
                    int64_t p = at_y[2 + d] * attr_at(c, "strides", d) - attr_at(c, "pads_low", d) +
                                tap[d] * (max ? attr_at(c, "dilations", d) : 1);
                    at_x[2 + d] = p;
                    within = within && p >= 0 && p < x->dims[2 + d];
                    padded = padded && p < x->dims[2 + d] + attr_at(c, "pads_high", d);
                    flat = flat * x->dims[2 + d] + p;
                }
                if (pass == 1) {
                    if (within) c->out[0][ravel(x, at_x)] += c->in[0].v[iy] / divisor;
                    continue;
                }
                if (!max && (attr_int(c, "count_pad") ? padded : within)) divisor++;
                if (!within || grad) continue;
                double v = c->in[0].v[ravel(x, at_x)];
                sum += v;
                if (best < 0 || v > largest) largest = v, best = flat;
            }
        if (max) {
            c->out[0][iy] = largest;
            c->out[1][iy] = (double)best;
        } else if (!grad) {
            c->out[0][iy] = divisor ? sum / divisor : 0;
        }
    }
    return true;
}

static bool max_pool_grad(const o_call_t *c) {
    const ir_type_t *dy = &c->p->in[0], *dx = &c->p->out[0];
    int64_t planes = dy->dims[0] * dy->dims[1];
    int64_t n_in = planes ? count(dx) / planes : 0, n_out = planes ? count(dy) / planes : 0;
    for (int64_t i = 0; i < count(dx); i++)
        c->out[0][i] = 0;
    for (int64_t i = 0; i < count(dy); i++)
        c->out[0][i / n_out * n_in + (int64_t)c->in[1].v[i]] += c->in[0].v[i];
    return true;
}

/* ---- attention ---- */

static double attention_score(const o_call_t *c, const o_tensor_t *q, const o_tensor_t *k,
                              const o_tensor_t *mask, const int64_t at[4]) {
    int64_t h = q->type->dims[1], g = k->type->dims[1], d = q->type->dims[3];
    int64_t window = attr_int(c, "window"), m = at[2], s = at[3];
    if (attr_int(c, "causal") && s > m) return -INFINITY;
    if (window && llabs(m - s) >= window) return -INFINITY;
    double scale = attr_float(c, "scale") != 0 ? attr_float(c, "scale") : 1 / sqrt((double)d),
           sum = 0;
    for (int64_t i = 0; i < d; i++) {
        int64_t in_q[D] = {at[0], at[1], m, i}, in_k[D] = {at[0], at[1] / (h / g), s, i};
        sum += inside(q, in_q) * inside(k, in_k);
    }
    sum *= scale;
    if (!mask->v) return sum;
    int64_t full[D] = {at[0], at[1], m, s};
    double v = broadcast_at(mask, full, 4);
    if (mask->type->dtype == IR_BOOL) return v ? sum : -INFINITY;
    return sum + v;
}

static bool attention(const o_call_t *c) {
    const o_tensor_t *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], none = {NULL, NULL};
    const o_tensor_t *mask = c->p->n_in > 3 ? &c->in[3] : &none;
    const int64_t *qd = q->type->dims, s_all = k->type->dims[2], e_all = v->type->dims[3];
    int64_t row = 0;
    for (int64_t b = 0; b < qd[0]; b++)
        for (int64_t h = 0; h < qd[1]; h++)
            for (int64_t m = 0; m < qd[2]; m++, row++) {
                double total = 0, p[256];
                for (int64_t s = 0; s < s_all; s++) {
                    p[s] = exp(attention_score(c, q, k, mask, (int64_t[]){b, h, m, s}));
                    total += p[s];
                }
                c->out[1][row] = log(total);
                for (int64_t e = 0; e < e_all; e++) {
                    double sum = 0;
                    for (int64_t s = 0; s < s_all; s++) {
                        int64_t in_v[D] = {b, h / (qd[1] / k->type->dims[1]), s, e};
                        sum += p[s] * inside(v, in_v);
                    }
                    c->out[0][row * e_all + e] = total > 0 ? sum / total : 0;
                }
            }
    return true;
}

static bool attention_grad(const o_call_t *c) {
    const o_tensor_t *dout = &c->in[0], *q = &c->in[1], *k = &c->in[2], *v = &c->in[3],
                     *o = &c->in[4], *lse = &c->in[5], none = {NULL, NULL};
    const o_tensor_t *mask = c->p->n_in > 6 ? &c->in[6] : &none;
    double scale = attr_float(c, "scale");
    if (scale == 0) scale = 1 / sqrt((double)q->type->dims[3]);
    for (int j = 0; j < 3; j++)
        for (int64_t i = 0; i < count(&c->p->out[j]); i++)
            c->out[j][i] = 0;
    ir_type_t scores = ir_type_make(IR_F64, 4, q->type->dims);
    scores.dims[3] = k->type->dims[2];
    for (int64_t i = 0; i < count(&scores); i++) {
        int64_t at[D], kv[D];
        unravel(&scores, i, at);
        double p = exp(attention_score(c, q, k, mask, at) - lse->v[i / scores.dims[3]]), ds = 0;
        memcpy(kv, at, sizeof kv);
        kv[1] = at[1] / (q->type->dims[1] / k->type->dims[1]);
        kv[2] = at[3];
        for (int64_t e = 0; e < v->type->dims[3]; e++) {
            int64_t in_o[D] = {at[0], at[1], at[2], e};
            kv[3] = e;
            ds += inside(dout, in_o) * (inside(v, kv) - inside(o, in_o));
            c->out[2][ravel(&c->p->out[2], kv)] += p * inside(dout, in_o);
        }
        ds *= p * scale;
        for (int64_t d = 0; d < q->type->dims[3]; d++) {
            int64_t in_q[D] = {at[0], at[1], at[2], d};
            kv[3] = d;
            c->out[0][ravel(&c->p->out[0], in_q)] += ds * inside(k, kv);
            c->out[1][ravel(&c->p->out[1], kv)] += ds * inside(q, in_q);
        }
    }
    return true;
}

/* ---- softmax and loss ---- */

static bool softmaxes(const o_call_t *c) {
    const ir_type_t *x = &c->p->in[0];
    int64_t axis = attr_int(c, "axis");
    for (int64_t i = 0; i < count(x); i++) {
        int64_t at[D];
        unravel(x, i, at);
        double sum = 0, own = c->in[0].v[i];
        for (at[axis] = 0; at[axis] < x->dims[axis]; at[axis]++) {
            int64_t j = ravel(x, at);
            double a = c->in[0].v[j];
            sum += c->p->op == IR_OP_SOFTMAX_GRAD       ? a * c->in[1].v[j]
                   : c->p->op == IR_OP_LOG_SOFTMAX_GRAD ? a
                                                        : exp(a);
        }
        c->out[0][i] = c->p->op == IR_OP_SOFTMAX        ? exp(own) / sum
                       : c->p->op == IR_OP_LOG_SOFTMAX  ? own - log(sum)
                       : c->p->op == IR_OP_SOFTMAX_GRAD ? c->in[1].v[i] * (own - sum)
                                                        : own - exp(c->in[1].v[i]) * sum;
    }
    return true;
}

static bool cross_entropies(const o_call_t *c) {
    bool grad = c->p->op == IR_OP_CROSS_ENTROPY_GRAD, rows = c->p->op == IR_OP_CROSS_ENTROPY_ROWS;
    const o_tensor_t *x = &c->in[grad ? 1 : 0], *label = &c->in[grad ? 2 : 1];
    uint32_t w_at = grad ? 4 : 2;
    const double *w = c->p->n_in > w_at ? c->in[w_at].v : NULL;
    int64_t n = x->type->dims[0], classes = x->type->dims[1];
    double e = attr_float(c, "smoothing"), total = 0, total_weight = 0;
    for (int64_t r = 0; r < n; r++) {
        const double *row = x->v + r * classes;
        int64_t y = (int64_t)label->v[r];
        bool ignored = y == attr_int(c, "ignore_index");
        double sum = 0, loss = 0;
        for (int64_t k = 0; k < classes; k++)
            sum += exp(row[k]);
        double lse = grad ? c->in[3].v[r] : log(sum), all = 0;
        for (int64_t j = 0; j < classes && !ignored; j++)
            all += (w ? w[j] : 1) * (e / (double)classes + (j == y ? 1 - e : 0));
        for (int64_t k = 0; k < classes; k++) {
            /* target distribution times class weight: loss = - sum of t log p */
            double wk = w ? w[k] : 1,
                   t = ignored ? 0 : wk * (e / (double)classes + (k == y ? 1 - e : 0));
            loss += t * (lse - row[k]);
            if (grad) {
                c->out[0][r * classes + k] =
                    c->in[0].v[c->in[0].type->rank ? r : 0] * (exp(row[k] - lse) * all - t);
            }
        }
        double weight = ignored ? 0 : w ? w[y] : 1;
        total += loss;
        total_weight += weight;
        if (rows) c->out[0][r] = loss, c->out[1][r] = weight, c->out[2][r] = lse;
    }
    if (!grad && !rows) {
        c->out[0][0] = attr_int(c, "mean") && total_weight != 0 ? total / total_weight : total;
        c->out[1][0] = total_weight;
    }
    return true;
}

/* ---- normalizations ---- */

static bool channels(const o_call_t *c) {
    ir_op_t op = c->p->op;
    uint32_t x_at = op == IR_OP_BATCH_NORM_GRAD_SUMS || op == IR_OP_BATCH_NORM_GRAD_APPLY ? 1 : 0;
    const ir_type_t *x = &c->p->in[x_at];
    int64_t n_channels = x->dims[1], at[D];
    for (int64_t k = 0; k < n_channels; k++) {
        double sum = 0, squares = 0, sum_dy = 0, sum_dy_xhat = 0, items = 0;
        for (int64_t i = 0; i < count(x); i++) {
            unravel(x, i, at);
            if (at[1] != k) continue;
            items++;
            sum += c->in[x_at].v[i];
            if (op == IR_OP_CHANNEL_CENTERED_SQUARES)
                squares += pow(c->in[0].v[i] - c->in[1].v[k], 2);
            if (op == IR_OP_BATCH_NORM_GRAD_SUMS) {
                sum_dy += c->in[0].v[i];
                sum_dy_xhat += c->in[0].v[i] * (c->in[1].v[i] - c->in[2].v[k]) * c->in[3].v[k];
            }
        }
        double mean = sum / items, var = 0;
        for (int64_t i = 0; i < count(x) && op == IR_OP_BATCH_NORM; i++) {
            unravel(x, i, at);
            if (at[1] == k) var += pow(c->in[0].v[i] - mean, 2) / items;
        }
        if (op == IR_OP_CHANNEL_SUM) c->out[0][k] = sum;
        if (op == IR_OP_CHANNEL_CENTERED_SQUARES) c->out[0][k] = squares;
        if (op == IR_OP_BATCH_NORM_GRAD_SUMS) c->out[0][k] = sum_dy, c->out[1][k] = sum_dy_xhat;
        double m = 0, s = 0, w = 0, b = 0;
        if (op == IR_OP_BATCH_NORM) {
            bool train = attr_int(c, "train") != 0;
            double r = attr_float(c, "momentum"), old_mean = c->in[3].v[k], old_var = c->in[4].v[k];
            m = train ? mean : old_mean;
            s = 1 / sqrt((train ? var : old_var) + attr_float(c, "eps"));
            w = c->in[1].v[k], b = c->in[2].v[k];
            if (attr_int(c, "unbiased")) var *= items / (items - 1);
            c->out[1][k] = m;
            c->out[2][k] = s;
            c->out[3][k] = train ? (1 - r) * old_mean + r * mean : old_mean;
            c->out[4][k] = train ? (1 - r) * old_var + r * var : old_var;
        } else if (op == IR_OP_BATCH_NORM_APPLY) {
            m = c->in[1].v[k], s = c->in[2].v[k], w = c->in[3].v[k], b = c->in[4].v[k];
        } else if (op == IR_OP_BATCH_NORM_GRAD_APPLY) {
            m = c->in[2].v[k], s = c->in[3].v[k], w = c->in[4].v[k];
        } else {
            continue;
        }
        for (int64_t i = 0; i < count(x); i++) {
            unravel(x, i, at);
            if (at[1] != k) continue;
            double xhat = (c->in[x_at].v[i] - m) * s;
            double n = op == IR_OP_BATCH_NORM_GRAD_APPLY ? (double)attr_int(c, "count") : 1;
            c->out[0][i] =
                op == IR_OP_BATCH_NORM_GRAD_APPLY
                    ? w * s * (c->in[0].v[i] - (c->in[5].v[k] + xhat * c->in[6].v[k]) / n)
                    : xhat * w + b;
        }
    }
    return true;
}

static bool row_norms(const o_call_t *c) {
    ir_op_t op = c->p->op;
    bool layer = op == IR_OP_LAYER_NORM;
    int64_t h = count(&c->p->in[1]), rows = count(&c->p->out[1]);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in[0].v + r * h;
        double mean = 0, square = 0;
        for (int64_t i = 0; i < h && layer; i++)
            mean += x[i] / (double)h;
        for (int64_t i = 0; i < h; i++)
            square += pow(x[i] - mean, 2) / (double)h;
        double rstd = 1 / sqrt(square + attr_float(c, "eps"));
        for (int64_t i = 0; i < h; i++)
            c->out[0][r * h + i] =
                (x[i] - mean) * rstd * c->in[1].v[i] + (layer ? c->in[2].v[i] : 0);
        if (layer) c->out[1][r] = mean;
        c->out[layer ? 2 : 1][r] = rstd;
    }
    return true;
}

/* With xhat = (x - mean) · rstd and g = dy · w:  dx = rstd · (g - [mean g] - xhat · mean(g ·
 * xhat)). */
static bool row_norm_grads(const o_call_t *c) {
    bool layer = c->p->op == IR_OP_LAYER_NORM_GRAD;
    const double *rstd = c->in[layer ? 3 : 2].v, *w = c->in[layer ? 4 : 3].v;
    int64_t h = count(&c->p->in[layer ? 4 : 3]), rows = count(&c->p->in[2]);
    for (int64_t i = 0; i < h; i++) {
        c->out[1][i] = 0;
        if (layer) c->out[2][i] = 0;
    }
    for (int64_t r = 0; r < rows; r++) {
        double mean_g = 0, mean_gx = 0;
        for (int64_t i = 0; i < h; i++) {
            double dy = c->in[0].v[r * h + i];
            double xhat = (c->in[1].v[r * h + i] - (layer ? c->in[2].v[r] : 0)) * rstd[r];
            mean_g += layer ? dy * w[i] / (double)h : 0;
            mean_gx += dy * w[i] * xhat / (double)h;
            c->out[1][i] += dy * xhat;
            if (layer) c->out[2][i] += dy;
        }
        for (int64_t i = 0; i < h; i++) {
            double xhat = (c->in[1].v[r * h + i] - (layer ? c->in[2].v[r] : 0)) * rstd[r];
            c->out[0][r * h + i] =
                rstd[r] * (c->in[0].v[r * h + i] * w[i] - mean_g - xhat * mean_gx);
        }
    }
    return true;
}

static bool rope(const o_call_t *c) {
    const ir_type_t *x = &c->p->in[0];
    int64_t d = x->dims[3], half = d / 2;
    for (int64_t i = 0; i < count(x); i++) {
        int64_t at[D];
        unravel(x, i, at);
        bool interleaved = attr_int(c, "interleaved") != 0;
        int64_t pair = interleaved ? at[3] / 2 : at[3] % half;
        bool second = interleaved ? at[3] % 2 : at[3] >= half;
        double cosine = c->in[1].v[at[2] * half + pair], sine = c->in[2].v[at[2] * half + pair];
        if (attr_int(c, "inverse")) sine = -sine;
        double own = c->in[0].v[i];
        at[3] = interleaved ? 2 * pair + !second : pair + (second ? 0 : half);
        double other = c->in[0].v[ravel(x, at)];
        c->out[0][i] = second ? own * cosine + other * sine : own * cosine - other * sine;
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
    if (sgd && c->p->n_in == 4) c->out[1][0] = 0;
    for (int64_t i = 0; i < n; i++) {
        double p = c->in[0].v[i], g = c->in[1].v[i] * scale;
        if (sgd) {
            double mu = attr_float(c, "momentum"), step = g + decay * p;
            if (c->p->n_in > 4) {
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
            for (int64_t i = 0; i < count(&c->p->in[j]); i++)
                y += pow(c->in[j].v[i], 2);
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
        } else
            return false;
    }
    return true;
}

bool conf_oracle(const conf_built_t *built, double *const *out) {
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
        {IR_OP_MATMUL, IR_OP_MATMUL, matmul},
        {IR_OP_CONV, IR_OP_CONV_GRAD_WEIGHT, convolution},
        {IR_OP_MAX_POOL, IR_OP_MAX_POOL, pooling},
        {IR_OP_MAX_POOL_GRAD, IR_OP_MAX_POOL_GRAD, max_pool_grad},
        {IR_OP_AVG_POOL, IR_OP_AVG_POOL_GRAD, pooling},
        {IR_OP_ATTENTION, IR_OP_ATTENTION, attention},
        {IR_OP_ATTENTION_GRAD, IR_OP_ATTENTION_GRAD, attention_grad},
        {IR_OP_SOFTMAX, IR_OP_LOG_SOFTMAX_GRAD, softmaxes},
        {IR_OP_CROSS_ENTROPY, IR_OP_CROSS_ENTROPY_GRAD, cross_entropies},
        {IR_OP_BATCH_NORM, IR_OP_BATCH_NORM_GRAD_APPLY, channels},
        {IR_OP_LAYER_NORM, IR_OP_LAYER_NORM, row_norms},
        {IR_OP_LAYER_NORM_GRAD, IR_OP_LAYER_NORM_GRAD, row_norm_grads},
        {IR_OP_RMS_NORM, IR_OP_RMS_NORM, row_norms},
        {IR_OP_RMS_NORM_GRAD, IR_OP_RMS_NORM_GRAD, row_norm_grads},
        {IR_OP_ROPE, IR_OP_ROPE, rope},
        {IR_OP_DROPOUT, IR_OP_DROPOUT, sources},
        {IR_OP_SGD, IR_OP_ADAMW, optimizers},
        {IR_OP_LR_SCHEDULE, IR_OP_LR_SCHEDULE, scalars},
    };
    o_call_t call = {.p = &built->problem, .out = out};
    for (uint32_t j = 0; j < built->problem.n_in; j++)
        call.in[j] = (o_tensor_t){&built->problem.in[j], built->in_values[j]};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (built->problem.op >= rules[i].first && built->problem.op <= rules[i].last)
            return rules[i].rule(&call);
    return false;
}
