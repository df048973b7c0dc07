/* Einsum of one or two operands, as sums, transposes and one batched product.
 *
 * With two operands a letter is: in both and in the result, batch; in both only, contracted; in one
 * and in the result, rows or columns; in one only, summed before. The product is [batch, rows, k] ×
 * [batch, k, columns], whatever the number of letters. */
#include <string.h>

#include "import/onnx_reader.h"

enum { LETTERS = 52 };

/* The letters of a term in order, and where each stands (-1: not there). */
typedef struct term {
    int32_t rank, letters[IR_MAX_RANK], at[LETTERS];
} term_t;

static int32_t letter_of(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static void term_add(onnx_t *o, term_t *term, int32_t letter) {
    if (letter < 0 || term->rank == IR_MAX_RANK || term->at[letter] >= 0) {
        onnx_fail(o, ST_UNSUPPORTED,
                  "einsum terms of up to %d different letters are supported (no ellipsis, no "
                  "diagonals)",
                  IR_MAX_RANK);
        return;
    }
    term->at[letter] = term->rank;
    term->letters[term->rank++] = letter;
}

static void term_clear(term_t *term) {
    term->rank = 0;
    for (int i = 0; i < LETTERS; i++) term->at[i] = -1;
}

/* Splits an equation into up to two terms and the result. Returns the number of terms. */
static int parse(onnx_t *o, const char *equation, term_t terms[2], term_t *out) {
    int n = 1;
    bool has_result = false;
    term_clear(&terms[0]), term_clear(&terms[1]), term_clear(out);
    for (const char *at = equation; *at && onnx_ok(o); at++) {
        if (*at == ' ') continue;
        if (*at == '-' && at[1] == '>' && !has_result) {
            has_result = true;
            at++;
        } else if (*at == ',' && !has_result && n == 1) {
            n = 2;
        } else {
            term_add(o, has_result ? out : &terms[n - 1], letter_of(*at));
        }
    }
    for (int32_t letter = 0; letter < LETTERS && !has_result; letter++)
        if ((terms[0].at[letter] >= 0) != (n == 2 && terms[1].at[letter] >= 0))
            term_add(o, out, letter);
    return n;
}

/* x with its dims in the order of `order`; letters absent from it are summed away. */
static ir_value_t arrange(onnx_t *o, ir_value_t x, const term_t *from, const term_t *order) {
    int64_t sums[IR_MAX_RANK], perm[IR_MAX_RANK];
    int32_t n_sums = 0, kept = 0, place[IR_MAX_RANK];
    bool moved = false;
    for (int32_t i = 0; i < from->rank; i++) {
        place[i] = kept;
        if (order->at[from->letters[i]] >= 0)
            kept++;
        else
            sums[n_sums++] = i;
    }
    if (n_sums) x = ir_b_reduce(&o->b, IR_OP_REDUCE_SUM, x, n_sums, sums, false);
    for (int32_t j = 0; j < order->rank; j++) {
        perm[j] = place[from->at[order->letters[j]]];
        moved |= perm[j] != j;
    }
    return moved ? ir_b_transpose(&o->b, x, perm) : x;
}

/* Appends a group of letters to an order; returns the product of their sizes. */
static int64_t append(onnx_t *o, term_t *order, const term_t *group, const int64_t *size) {
    int64_t n = 1;
    for (int32_t i = 0; i < group->rank; i++) {
        term_add(o, order, group->letters[i]);
        if (!st_mul_i64(n, size[group->letters[i]], &n))
            onnx_fail(o, ST_UNSUPPORTED, "einsum of too large dims");
    }
    return n;
}

static void contract(onnx_t *o, const ir_value_t *xs, const term_t *terms, const term_t *out,
                     const int64_t *size) {
    term_t batch, rows, columns, shared, orders[3];
    term_clear(&batch), term_clear(&rows), term_clear(&columns), term_clear(&shared);
    for (int i = 0; i < 3; i++) term_clear(&orders[i]);
    for (int32_t i = 0; i < out->rank; i++) {
        int32_t letter = out->letters[i];
        bool in_x = terms[0].at[letter] >= 0, in_y = terms[1].at[letter] >= 0;
        term_add(o, in_x && in_y ? &batch : in_x ? &rows : &columns, letter);
    }
    for (int32_t i = 0; i < terms[0].rank; i++) {
        int32_t letter = terms[0].letters[i];
        if (terms[1].at[letter] >= 0 && out->at[letter] < 0) term_add(o, &shared, letter);
    }
    int64_t n_batch = append(o, &orders[0], &batch, size), m = append(o, &orders[0], &rows, size);
    int64_t k = append(o, &orders[0], &shared, size);
    append(o, &orders[1], &batch, size), append(o, &orders[1], &shared, size);
    int64_t n = append(o, &orders[1], &columns, size);
    append(o, &orders[2], &batch, size), append(o, &orders[2], &rows, size);
    append(o, &orders[2], &columns, size);
    if (!onnx_ok(o)) return;
    ir_build_t *b = &o->b;
    ir_value_t x =
        ir_b_reshape(b, arrange(o, xs[0], &terms[0], &orders[0]), 3, (int64_t[]){n_batch, m, k});
    ir_value_t y =
        ir_b_reshape(b, arrange(o, xs[1], &terms[1], &orders[1]), 3, (int64_t[]){n_batch, k, n});
    ir_value_t product = ir_b_matmul(b, x, y, false, false);
    int64_t dims[IR_MAX_RANK];
    for (int32_t i = 0; i < orders[2].rank; i++) dims[i] = size[orders[2].letters[i]];
    product = ir_b_reshape(b, product, orders[2].rank, dims);
    onnx_return(o, arrange(o, product, &orders[2], out));
}

void onnx_einsum(onnx_t *o) {
    term_t terms[2], out;
    int64_t size[LETTERS] = {0};
    bool seen[LETTERS] = {false};
    const char *equation = onnx_string(o, "equation", "");
    int n = parse(o, equation, terms, &out);
    if (onnx_ok(o) && (size_t)n != onnx_n_inputs(o))
        onnx_fail(o, ST_UNSUPPORTED, "equation '%.64s' and %zu inputs: one and two are supported",
                  equation, onnx_n_inputs(o));
    ir_value_t xs[2] = {onnx_in(o, 0), n == 2 ? onnx_in(o, 1) : IR_NONE};
    for (int t = 0; t < n && onnx_ok(o); t++) {
        ir_type_t type = onnx_type(o, xs[t]);
        if (type.rank != terms[t].rank)
            onnx_fail(o, ST_INVALID, "equation '%.64s' does not fit input %d of %d dims", equation,
                      t, type.rank);
        for (int32_t i = 0; i < terms[t].rank && onnx_ok(o); i++) {
            int32_t letter = terms[t].letters[i];
            if (seen[letter] && size[letter] != type.dims[i])
                onnx_fail(o, ST_INVALID, "equation '%.64s': a letter has two sizes, %lld and %lld",
                          equation, (long long)size[letter], (long long)type.dims[i]);
            seen[letter] = true;
            size[letter] = type.dims[i];
        }
    }
    for (int32_t i = 0; i < out.rank && onnx_ok(o); i++)
        if (!seen[out.letters[i]])
            onnx_fail(o, ST_INVALID, "equation '%.64s': a letter of the result is in no term",
                      equation);
    if (!onnx_ok(o)) return;
    if (n == 1)
        onnx_return(o, arrange(o, xs[0], &terms[0], &out));
    else if (onnx_same_dtype(o, xs[0], xs[1]))
        contract(o, xs, terms, &out, size);
}
