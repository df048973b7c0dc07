/* ATen's products: linear, matmul and its kin, einsum of two operands, attention. */
#include <math.h>
#include <string.h>

#include "import/aten.h"

/* PyTorch multiplies equal types only: half @ float is an error there and here. */
static bool check_same_float(aten_t *a, ir_value_t x, ir_value_t y) {
    ir_dtype_t dx = aten_type(a, x).dtype, dy = aten_type(a, y).dtype;
    if (aten_ok(a) && dx != dy)
        aten_fail(a, ST_INVALID, "%s times %s: a product needs one type; cast one in the model",
                  ir_dtype_text(dx), ir_dtype_text(dy));
    return aten_ok(a);
}

/* x[…, K] times a matrix y[K, N] (or its transpose): the leading dims of x are joined to rows, so
 * that it is one product, and so is the gradient of y. */
static ir_value_t rows_product(aten_t *a, ir_value_t x, ir_value_t y, bool transpose_y) {
    ir_type_t type = aten_type(a, x);
    int64_t rows = 1, k = type.rank ? type.dims[type.rank - 1] : 0;
    for (int32_t i = 0; i + 1 < type.rank; i++) rows *= type.dims[i];
    ir_value_t out = ir_b_reshape(&a->b, x, 2, (int64_t[]){rows, k});
    out = ir_b_matmul(&a->b, out, y, false, transpose_y);
    if (!aten_ok(a)) return IR_NONE;
    type.dims[type.rank - 1] = aten_type(a, out).dims[1];
    return ir_b_reshape(&a->b, out, type.rank, type.dims);
}

void aten_linear(aten_t *a) {
    ir_value_t x = aten_tensor(a, "input"), weight = aten_tensor(a, "weight");
    ir_value_t bias = aten_tensor_or_none(a, "bias");
    if (!check_same_float(a, x, weight)) return;
    ir_type_t x_type = aten_type(a, x), w_type = aten_type(a, weight);
    if (x_type.rank < 1 || w_type.rank != 2 || x_type.dims[x_type.rank - 1] != w_type.dims[1]) {
        char tx[IR_TYPE_TEXT_BYTES], tw[IR_TYPE_TEXT_BYTES];
        aten_fail(a, ST_INVALID, "input %s and weight %s do not fit",
                  ir_type_text(&x_type, tx, sizeof tx), ir_type_text(&w_type, tw, sizeof tw));
        return;
    }
    ir_value_t y = rows_product(a, x, weight, true);
    if (bias != IR_NONE) y = ir_b_binary(&a->b, IR_OP_ADD, y, bias);
    aten_return(a, y);
}

/* torch.matmul: vectors are rows on the left and columns on the right, and vanish from the result.
 */
static ir_value_t matmul(aten_t *a, ir_value_t x, ir_value_t y) {
    if (!check_same_float(a, x, y)) return IR_NONE;
    ir_type_t x_type = aten_type(a, x), y_type = aten_type(a, y);
    if (x_type.rank == 0 || y_type.rank == 0) {
        aten_fail(a, ST_INVALID, "a product with a scalar");
        return IR_NONE;
    }
    if (y_type.rank == 2 && x_type.rank != 2) {
        if (x_type.dims[x_type.rank - 1] == y_type.dims[0]) return rows_product(a, x, y, false);
        aten_fail(a, ST_INVALID, "rows of %lld times a matrix of %lld rows",
                  (long long)x_type.dims[x_type.rank - 1], (long long)y_type.dims[0]);
        return IR_NONE;
    }
    if (x_type.rank == 1) x = ir_b_reshape(&a->b, x, 2, (int64_t[]){1, x_type.dims[0]});
    if (y_type.rank == 1) y = ir_b_reshape(&a->b, y, 2, (int64_t[]){y_type.dims[0], 1});
    ir_value_t out = ir_b_matmul(&a->b, x, y, false, false);
    ir_type_t type = aten_type(a, out);
    if (y_type.rank == 1 && aten_ok(a)) type.rank--;
    if (x_type.rank == 1 && aten_ok(a)) {
        if (y_type.rank != 1) type.dims[type.rank - 2] = type.dims[type.rank - 1];
        type.rank--;
    }
    return ir_b_reshape(&a->b, out, type.rank, type.dims);
}

/* matmul(self, other), mm and bmm (self, mat2), mv (self, vec), dot (self, tensor) */
void aten_matmul(aten_t *a) {
    static const char *const names[] = {"other", "mat2", "vec", "tensor"};
    ir_value_t x = aten_tensor(a, "self"), y = aten_tensor(a, names[a->op->arg]);
    aten_return(a, matmul(a, x, y));
}

/* beta * self + alpha * (x @ y): addmm, baddbmm (arg 1) */
void aten_addmm(aten_t *a) {
    ir_value_t x = aten_tensor(a, a->op->arg ? "batch1" : "mat1");
    ir_value_t y = aten_tensor(a, a->op->arg ? "batch2" : "mat2");
    ir_value_t self = aten_tensor(a, "self");
    double alpha = aten_float(a, "alpha", 1), beta = aten_float(a, "beta", 1);
    ir_value_t out = matmul(a, x, y);
    if (!check_same_float(a, self, out)) return;
    if (alpha != 1) out = ir_b_scale(&a->b, out, alpha);
    if (beta != 0) {
        if (beta != 1) self = ir_b_scale(&a->b, self, beta);
        out = ir_b_binary(&a->b, IR_OP_ADD, out, self);
    }
    aten_return(a, out);
}

/* ---- einsum ---- */

enum { LETTERS = 52 };

static int letter_of(char c) {
    return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

/* One term: its letters in order, and where each stands (-1: not there). */
typedef struct term {
    int letters[IR_MAX_RANK];
    int32_t rank, at[LETTERS];
} term_t;

static void parse_term(aten_t *a, const char *text, size_t length, term_t *term) {
    term->rank = 0;
    for (int i = 0; i < LETTERS; i++) term->at[i] = -1;
    for (size_t i = 0; i < length && aten_ok(a); i++) {
        int letter = letter_of(text[i]);
        if (text[i] == ' ') continue;
        if (letter < 0 || term->rank == IR_MAX_RANK || term->at[letter] >= 0)
            aten_fail(a, ST_UNSUPPORTED,
                      "einsum term '%.*s': up to %d different letters are supported", (int)length,
                      text, IR_MAX_RANK);
        else
            term->at[letter] = term->rank, term->letters[term->rank++] = letter;
    }
}

/* x with its dims in the order of `order`, letters absent from it summed away. */
static ir_value_t arrange(aten_t *a, ir_value_t x, const term_t *from, const int *order,
                          int32_t n) {
    int64_t sums[IR_MAX_RANK], perm[IR_MAX_RANK];
    int32_t n_sums = 0, place[IR_MAX_RANK], kept = 0;
    bool moved = false;
    for (int32_t i = 0; i < from->rank; i++) {
        bool wanted = false;
        for (int32_t j = 0; j < n; j++) wanted |= order[j] == from->letters[i];
        if (wanted)
            place[i] = kept++;
        else
            sums[n_sums++] = i;
    }
    if (n_sums) x = ir_b_reduce(&a->b, IR_OP_REDUCE_SUM, x, n_sums, sums, false);
    for (int32_t j = 0; j < n; j++) {
        perm[j] = place[from->at[order[j]]];
        moved |= perm[j] != j;
    }
    return moved ? ir_b_transpose(&a->b, x, perm) : x;
}

/* Two terms as one batched product: letters in both and in the result are the batch, in both and
 * not in the result are contracted, in one and in the result are its rows or columns. */
static ir_value_t contract(aten_t *a, const ir_value_t *xs, const term_t *terms,
                           const term_t *out) {
    int batch[IR_MAX_RANK], shared[IR_MAX_RANK], rows[IR_MAX_RANK], columns[IR_MAX_RANK];
    int32_t n_batch = 0, n_shared = 0, n_rows = 0, n_columns = 0;
    int64_t size[LETTERS], k = 1, m = 1, n = 1;
    for (int t = 0; t < 2; t++)
        for (int32_t i = 0; i < terms[t].rank; i++)
            size[terms[t].letters[i]] = aten_type(a, xs[t]).dims[i];
    for (int letter = 0; letter < LETTERS; letter++) {
        bool in_x = terms[0].at[letter] >= 0, in_y = terms[1].at[letter] >= 0,
             in_out = out->at[letter] >= 0;
        if (in_x && in_y && aten_type(a, xs[0]).dims[terms[0].at[letter]] != size[letter])
            aten_fail(a, ST_INVALID, "an einsum letter has two sizes");
        if (in_x && in_y && !in_out) shared[n_shared++] = letter, k *= size[letter];
    }
    for (int32_t i = 0; i < out->rank; i++) { /* in the result's order, to spare transposes */
        int letter = out->letters[i];
        bool in_x = terms[0].at[letter] >= 0, in_y = terms[1].at[letter] >= 0;
        if (in_x && in_y)
            batch[n_batch++] = letter;
        else if (in_x)
            rows[n_rows++] = letter, m *= size[letter];
        else if (in_y)
            columns[n_columns++] = letter, n *= size[letter];
        else
            aten_fail(a, ST_INVALID, "an einsum letter of the result is in no term");
    }
    if (!aten_ok(a) || n_batch + 2 > IR_MAX_RANK) return IR_NONE;
    int order[3 * IR_MAX_RANK];
    int64_t dims[IR_MAX_RANK];
    term_t made = {.rank = 0};
    for (int32_t i = 0; i < n_batch; i++) order[i] = batch[i], dims[i] = size[batch[i]];
    for (int32_t i = 0; i < n_rows; i++) order[n_batch + i] = rows[i];
    for (int32_t i = 0; i < n_shared; i++) order[n_batch + n_rows + i] = shared[i];
    ir_value_t x = arrange(a, xs[0], &terms[0], order, n_batch + n_rows + n_shared);
    dims[n_batch] = m, dims[n_batch + 1] = k;
    x = ir_b_reshape(&a->b, x, n_batch + 2, dims);
    for (int32_t i = 0; i < n_shared; i++) order[n_batch + i] = shared[i];
    for (int32_t i = 0; i < n_columns; i++) order[n_batch + n_shared + i] = columns[i];
    ir_value_t y = arrange(a, xs[1], &terms[1], order, n_batch + n_shared + n_columns);
    dims[n_batch] = k, dims[n_batch + 1] = n;
    y = ir_b_reshape(&a->b, y, n_batch + 2, dims);
    ir_value_t product = ir_b_matmul(&a->b, x, y, false, false);
    const int *groups[] = {batch, rows, columns};
    int32_t counts[] = {n_batch, n_rows, n_columns};
    for (int g = 0; g < 3; g++)
        for (int32_t i = 0; i < counts[g]; i++) {
            made.letters[made.rank] = groups[g][i];
            made.at[groups[g][i]] = made.rank;
            dims[made.rank++] = size[groups[g][i]];
        }
    product = ir_b_reshape(&a->b, product, made.rank, dims);
    return arrange(a, product, &made, out->letters, out->rank);
}

/* The result's letters: those after "->", else the letters that appear once, in alphabetical order.
 */
static void parse_result(aten_t *a, const char *arrow, const term_t *terms, int n, term_t *out) {
    if (arrow) {
        parse_term(a, arrow + 2, strlen(arrow + 2), out);
        return;
    }
    char text[LETTERS + 1];
    size_t length = 0;
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (int i = 0; i < LETTERS; i++) {
        int letter = letter_of(alphabet[i]), seen = 0;
        for (int t = 0; t < n; t++) seen += terms[t].at[letter] >= 0;
        if (seen == 1) text[length++] = alphabet[i];
    }
    parse_term(a, text, length, out);
}

void aten_einsum(aten_t *a) {
    const char *equation = aten_string(a, "equation", "");
    ir_value_t *xs;
    uint32_t n = aten_tensors(a, "tensors", &xs);
    aten_ignore(a, "path");
    if (aten_ok(a) && n != 1 && n != 2)
        aten_fail(a, ST_UNSUPPORTED, "einsum of %u operands: one and two are supported", n);
    if (!aten_ok(a)) return;
    const char *arrow = strstr(equation, "->"), *at = equation;
    const char *end = arrow ? arrow : equation + strlen(equation);
    term_t terms[2], out;
    for (uint32_t t = 0; t < n && aten_ok(a); t++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = t + 1 < n && comma ? comma : end;
        parse_term(a, at, (size_t)(stop - at), &terms[t]);
        if (aten_ok(a) && (terms[t].rank != aten_type(a, xs[t]).rank || (t + 1 < n && !comma)))
            aten_fail(a, ST_INVALID, "equation '%s' does not fit operand %u of %d dims", equation,
                      t, aten_type(a, xs[t]).rank);
        at = stop < end ? stop + 1 : end;
    }
    if (aten_ok(a)) parse_result(a, arrow, terms, (int)n, &out);
    if (!aten_ok(a)) return;
    if (n == 2 && check_same_float(a, xs[0], xs[1])) {
        ir_value_t value = contract(a, xs, terms, &out);
        if (aten_ok(a) && value == IR_NONE) aten_fail(a, ST_UNSUPPORTED, "einsum of too many dims");
        aten_return(a, value);
        return;
    }
    for (int32_t i = 0; i < out.rank && n == 1; i++)
        if (terms[0].at[out.letters[i]] < 0)
            aten_fail(a, ST_INVALID, "an einsum letter of the result is in no term");
    if (aten_ok(a)) aten_return(a, arrange(a, xs[0], &terms[0], out.letters, out.rank));
}

/* ---- attention ---- */

/* x as [B, H, M, D]: missing leading dims are 1, further ones are joined. */
static ir_value_t to_heads(aten_t *a, ir_value_t x) {
    ir_type_t type = aten_type(a, x);
    if (!aten_ok(a)) return IR_NONE;
    int64_t dims[4] = {1, 1, 1, 1};
    for (int32_t i = 0; i < type.rank; i++) {
        int32_t to = i - type.rank + 4;
        dims[to < 0 ? 0 : to] *= type.dims[i];
    }
    return ir_b_reshape(&a->b, x, 4, dims);
}

/* Keys and values whose batch is 1 are read by all. */
static ir_value_t expand_batch(aten_t *a, ir_value_t x, int64_t batch) {
    ir_type_t type = aten_type(a, x);
    if (!aten_ok(a) || type.dims[0] == batch || type.dims[0] != 1) return x;
    type.dims[0] = batch;
    return ir_b_broadcast(&a->b, x, 4, type.dims);
}

static ir_value_t attention_mask(aten_t *a, ir_value_t mask, ir_dtype_t dtype) {
    ir_type_t type = aten_type(a, mask);
    if (aten_ok(a) && type.rank > 4) {
        aten_fail(a, ST_UNSUPPORTED, "argument 'attn_mask' has %d dims, up to 4 are supported",
                  type.rank);
        return IR_NONE;
    }
    if (type.dtype != IR_BOOL) mask = ir_b_cast(&a->b, mask, dtype);
    return to_heads(a, mask);
}

/* Attention with dropout on its weights, step by step: between softmax and values no single op can
 * reach. Masked products are minus infinity. */
static ir_value_t attention_with_dropout(aten_t *a, ir_value_t q, ir_value_t k, ir_value_t v,
                                         ir_value_t mask, bool causal, double scale, double p) {
    ir_build_t *b = &a->b;
    ir_type_t tq = aten_type(a, q), tk = aten_type(a, k);
    if (aten_ok(a) && tk.dims[1] != tq.dims[1] && tk.dims[1] != 1)
        aten_fail(a, ST_UNSUPPORTED, "argument 'dropout_p' is %g: not supported with grouped heads",
                  p);
    ir_value_t scores = ir_b_matmul(b, q, k, false, true);
    scores = ir_b_scale(b, scores, scale != 0 ? scale : 1 / sqrt((double)tq.dims[3]));
    ir_value_t hidden = ir_b_scalar(b, tq.dtype, -(double)INFINITY);
    if (causal) {
        ir_type_t rows = ir_type_make(IR_I64, 2, (int64_t[]){tq.dims[2], 1});
        ir_type_t columns = ir_type_make(IR_I64, 2, (int64_t[]){1, tk.dims[2]});
        ir_value_t seen =
            ir_b_binary(b, IR_OP_LE, ir_b_iota(b, columns, 1, 0, 1), ir_b_iota(b, rows, 0, 0, 1));
        scores = ir_b_select(b, seen, scores, hidden);
    }
    if (mask != IR_NONE)
        scores = aten_type(a, mask).dtype == IR_BOOL ? ir_b_select(b, mask, scores, hidden)
                                                     : ir_b_binary(b, IR_OP_ADD, scores, mask);
    ir_arg_t axis[] = {IR_ARG_INT("axis", 3)};
    ir_value_t weights = ir_b_node(b, IR_OP_SOFTMAX, 1, &scores, 1, axis);
    return ir_b_matmul(b, aten_dropped(a, weights, p), v, false, false);
}

void aten_attention(aten_t *a) {
    ir_value_t q = aten_tensor(a, "query"), k = aten_tensor(a, "key"), v = aten_tensor(a, "value");
    ir_value_t mask = aten_tensor_or_none(a, "attn_mask");
    double dropout = aten_float(a, "dropout_p", 0), scale = aten_float(a, "scale", 0);
    if (aten_ok(a) && scale == 0 && aten_has(a, "scale"))
        aten_fail(a, ST_UNSUPPORTED, "argument 'scale' is 0");
    bool causal = aten_bool(a, "is_causal", false), grouped = aten_bool(a, "enable_gqa", false);
    if (!check_same_float(a, q, k) || !check_same_float(a, k, v)) return;
    ir_type_t type = aten_type(a, q);
    if (aten_ok(a) && !(dropout >= 0 && dropout <= 1))
        aten_fail(a, ST_INVALID, "argument 'dropout_p' is %g", dropout);
    if (type.rank < 2 || aten_type(a, k).rank != type.rank || aten_type(a, v).rank != type.rank)
        aten_fail(a, ST_INVALID, "query has %d dims, key %d, value %d", type.rank,
                  aten_type(a, k).rank, aten_type(a, v).rank);
    if (causal && mask != IR_NONE)
        aten_fail(a, ST_INVALID, "'attn_mask' and 'is_causal' exclude each other");
    if (!aten_ok(a)) return;
    q = to_heads(a, q), k = to_heads(a, k), v = to_heads(a, v);
    ir_type_t tq = aten_type(a, q), tk = aten_type(a, k);
    k = expand_batch(a, k, tq.dims[0]), v = expand_batch(a, v, tq.dims[0]);
    if (aten_ok(a) && !grouped && tk.dims[1] != tq.dims[1] && tk.dims[1] != 1)
        aten_fail(a, ST_INVALID, "%lld query heads and %lld key heads, without 'enable_gqa'",
                  (long long)tq.dims[1], (long long)tk.dims[1]);
    if (mask != IR_NONE) mask = attention_mask(a, mask, type.dtype);
    ir_value_t inputs[] = {q, k, v, mask};
    ir_arg_t args[] = {IR_ARG_BOOL("causal", causal), IR_ARG_FLOAT("scale", scale)};
    ir_value_t out =
        dropout > 0 ? attention_with_dropout(a, q, k, v, mask, causal, scale, dropout)
                    : ir_b_node(&a->b, IR_OP_ATTENTION, mask == IR_NONE ? 3 : 4, inputs, 2, args);
    type.dims[type.rank - 1] = aten_type(a, v).dims[3];
    aten_return(a, ir_b_reshape(&a->b, out, type.rank, type.dims));
}
