/* The oracle's part for products, windows, attention, losses and normalizations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

/* ---- contractions ---- */

bool oracle_matmul(const o_call_t *c) {
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
        c->out[0][i] = sum + (c->p->n_in > 2 ? c->in[2].v[i] : 0);
    }
    (void)b;
    return true;
}

/* Every triple (x position, w position, y position) that a convolution multiplies. */
bool oracle_convolution(const o_call_t *c) {
    ir_op_t op = c->p->op;
    const ir_type_t *x = op == IR_OP_CONV_GRAD_INPUT ? &c->p->out[0] : &c->p->in[0];
    const ir_type_t *w = op == IR_OP_CONV_GRAD_WEIGHT ? &c->p->out[0] : &c->p->in[1];
    const ir_type_t *y = op == IR_OP_CONV              ? &c->p->out[0]
                         : op == IR_OP_CONV_GRAD_INPUT ? &c->p->in[0]
                                                       : &c->p->in[1];
    int64_t groups = attr_int(c, "groups"), o_each = w->dims[0] / groups;
    int64_t stride[D] = {0}, pad[D] = {0}, dilation[D] = {0};
    for (int32_t d = 2; d < x->rank; d++) {
        stride[d] = attr_at(c, "strides", d - 2);
        pad[d] = attr_at(c, "pads_low", d - 2);
        dilation[d] = attr_at(c, "dilations", d - 2);
    }
    for (int64_t i = 0; i < count(&c->p->out[0]); i++) c->out[0][i] = 0;
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
                at_x[d] = at_y[d] * stride[d] - pad[d] + at_w[d] * dilation[d];
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

bool oracle_pooling(const o_call_t *c) {
    ir_op_t op = c->p->op;
    bool grad = op == IR_OP_AVG_POOL_GRAD, max = op == IR_OP_MAX_POOL;
    const ir_type_t *x = grad ? &c->p->out[0] : &c->p->in[0];
    const ir_type_t *y = grad ? &c->p->in[0] : &c->p->out[0];
    for (int64_t i = 0; grad && i < count(x); i++) c->out[0][i] = 0;
    ir_type_t kernel = ir_type_scalar(IR_F32);
    kernel.rank = x->rank - 2;
    for (int32_t d = 0; d < kernel.rank; d++) kernel.dims[d] = attr_at(c, "kernel", d);
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

bool oracle_max_pool_grad(const o_call_t *c) {
    const ir_type_t *dy = &c->p->in[0], *dx = &c->p->out[0];
    int64_t planes = dy->dims[0] * dy->dims[1];
    int64_t n_in = planes ? count(dx) / planes : 0, n_out = planes ? count(dy) / planes : 0;
    for (int64_t i = 0; i < count(dx); i++) c->out[0][i] = 0;
    for (int64_t i = 0; i < count(dy); i++)
        c->out[0][i / n_out * n_in + (int64_t)c->in[1].v[i]] += c->in[0].v[i];
    return true;
}

/* ---- attention ---- */

static double attention_score(const o_call_t *c, const o_tensor_t *q, const o_tensor_t *k,
                              const o_tensor_t *mask, const int64_t at[4]) {
    int64_t h = q->type->dims[1], g = k->type->dims[1], d = q->type->dims[3];
    int64_t window = attr_int(c, "window"), m = at[2], s = at[3];
    const int64_t place = m + attr_int(c, "offset");
    if (attr_int(c, "causal") && s > place) return -INFINITY;
    if (window && llabs(place - s) >= window) return -INFINITY;
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

bool oracle_attention(const o_call_t *c) {
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

bool oracle_attention_grad(const o_call_t *c) {
    const o_tensor_t *dout = &c->in[0], *q = &c->in[1], *k = &c->in[2], *v = &c->in[3],
                     *o = &c->in[4], *lse = &c->in[5], none = {NULL, NULL};
    const o_tensor_t *mask = c->p->n_in > 6 ? &c->in[6] : &none;
    double scale = attr_float(c, "scale");
    if (scale == 0) scale = 1 / sqrt((double)q->type->dims[3]);
    for (int j = 0; j < 3; j++)
        for (int64_t i = 0; i < count(&c->p->out[j]); i++) c->out[j][i] = 0;
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

bool oracle_softmaxes(const o_call_t *c) {
    const ir_type_t *x = &c->p->in[0];
    int64_t axis = attr_int(c, "axis");
    for (int64_t first = 0; first < count(x); first++) {
        int64_t at[D];
        unravel(x, first, at);
        if (at[axis] != 0) continue; /* a row is gone through from its first element */
        double sum = 0;
        for (; at[axis] < x->dims[axis]; at[axis]++) {
            int64_t j = ravel(x, at);
            double a = c->in[0].v[j];
            sum += c->p->op == IR_OP_SOFTMAX_GRAD       ? a * c->in[1].v[j]
                   : c->p->op == IR_OP_LOG_SOFTMAX_GRAD ? a
                                                        : exp(a);
        }
        for (at[axis] = 0; at[axis] < x->dims[axis]; at[axis]++) {
            int64_t i = ravel(x, at);
            double own = c->in[0].v[i];
            c->out[0][i] = c->p->op == IR_OP_SOFTMAX        ? exp(own) / sum
                           : c->p->op == IR_OP_LOG_SOFTMAX  ? own - log(sum)
                           : c->p->op == IR_OP_SOFTMAX_GRAD ? c->in[1].v[i] * (own - sum)
                                                            : own - exp(c->in[1].v[i]) * sum;
        }
    }
    return true;
}

bool oracle_cross_entropies(const o_call_t *c) {
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
        for (int64_t k = 0; k < classes; k++) sum += exp(row[k]);
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

bool oracle_channels(const o_call_t *c) {
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

bool oracle_row_norms(const o_call_t *c) {
    ir_op_t op = c->p->op;
    bool layer = op == IR_OP_LAYER_NORM;
    int64_t h = count(&c->p->in[1]), rows = count(&c->p->out[1]);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in[0].v + r * h;
        double mean = 0, square = 0;
        for (int64_t i = 0; i < h && layer; i++) mean += x[i] / (double)h;
        for (int64_t i = 0; i < h; i++) square += pow(x[i] - mean, 2) / (double)h;
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
bool oracle_row_norm_grads(const o_call_t *c) {
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

bool oracle_rope(const o_call_t *c) {
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
