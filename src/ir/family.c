/* Graphs with open sizes from samples (family.h). */
#include "ir/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/expression.h"
#include "base/number.h"
#include "ir/convert.h"
#include "ir/op.h"
#include "ir/structure.h"
#include "ir/verify.h"

enum {
    MAX_PRODUCTS = 35, /* of 4 symbols, degree ≤ 3 */
    MAX_SAMPLES = MAX_PRODUCTS + 8,
    MAX_DEGREE = 3,
    MAX_DIVISOR = 64,
    MAX_TEXT = 512,
    MAX_VARYING_DATA = 64, /* elements of a constant */
};

typedef struct product {
    uint8_t power[IR_FAMILY_SYMBOLS];
    int degree;
} product_t;

typedef struct family {
    size_t n_symbols;
    const ir_symbol_t *symbols;
    product_t products[MAX_PRODUCTS]; /* the first is 1; by degree */
    size_t n_products, n_samples;
    int64_t sizes[MAX_SAMPLES][IR_FAMILY_SYMBOLS]; /* the first is the example */
    double value_of[MAX_SAMPLES][MAX_PRODUCTS];
    ir_graph_t *graphs[MAX_SAMPLES];
    ir_graph_t *result;
} family_t;

/* ---- products and samples ---- */

static void list_products(family_t *f) {
    for (int degree = 0; degree <= MAX_DEGREE; degree++)
        for (int code = 0; code < 256; code++) { /* two bits a symbol */
            product_t p = {.degree = 0};
            for (size_t i = 0; i < IR_FAMILY_SYMBOLS; i++) {
                p.power[i] = (uint8_t)(code >> 2 * i & 3);
                p.degree += p.power[i];
            }
            if (p.degree == degree && code < 1 << 2 * f->n_symbols && f->n_products < MAX_PRODUCTS)
                f->products[f->n_products++] = p;
        }
}

static bool is_taken(const family_t *f, size_t sample, size_t symbol, int64_t size) {
    for (size_t i = 0; i < symbol; i++)
        if (f->sizes[sample][i] == size) return true;
    return false;
}

/* A size within the bounds near `wanted` that no symbol before it has, where there is one. */
static int64_t pick_size(const family_t *f, size_t sample, size_t symbol, int64_t wanted) {
    const ir_symbol_t *s = &f->symbols[symbol];
    if (wanted < s->min) wanted = s->min;
    if (wanted > s->max) wanted = s->max;
    for (int64_t step = 0; step <= (int64_t)f->n_symbols; step++) {
        if (wanted <= s->max - step && !is_taken(f, sample, symbol, wanted + step))
            return wanted + step;
        if (wanted >= s->min + step && !is_taken(f, sample, symbol, wanted - step))
            return wanted - step;
    }
    return wanted;
}

/* The example, both ends where they are near enough to be built, and points that are spread so that
 * no two products agree on all of them. */
static void list_samples(family_t *f) {
    static const int64_t largest_end = 1 << 13, spread = 24;
    uint64_t state = 88172645463325252u; /* xorshift: the same on every machine */
    f->n_samples = f->n_products + 5;
    for (size_t s = 0; s < f->n_samples; s++)
        for (size_t i = 0; i < f->n_symbols; i++) {
            const ir_symbol_t *symbol = &f->symbols[i];
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            int64_t low = symbol->min > 2 ? symbol->min : 2;
            int64_t wanted = low + (int64_t)(state % (uint64_t)spread) + (int64_t)s;
            if (s == 0) wanted = symbol->example;
            if (s == 1) wanted = low;
            if (s == 2 && symbol->max <= largest_end) wanted = symbol->max;
            if (s > 2 && symbol->max < low + spread + (int64_t)f->n_samples)
                wanted = low + (int64_t)(state % (uint64_t)(symbol->max - low + 1));
            f->sizes[s][i] = pick_size(f, s, i, wanted);
        }
    for (size_t s = 0; s < f->n_samples; s++)
        for (size_t p = 0; p < f->n_products; p++) {
            f->value_of[s][p] = 1;
            for (size_t i = 0; i < f->n_symbols; i++)
                for (int k = 0; k < f->products[p].power[i]; k++)
                    f->value_of[s][p] *= (double)f->sizes[s][i];
        }
}

/* ---- expressions as text ---- */

static void append(char *text, const char *more) {
    size_t used = strlen(text);
    snprintf(text + used, MAX_TEXT - used, "%s", more);
}

static void append_product(const family_t *f, char *text, size_t p) {
    const char *mark = "";
    for (size_t i = 0; i < f->n_symbols; i++)
        for (int k = 0; k < f->products[p].power[i]; k++) {
            append(text, mark);
            append(text, f->symbols[i].name);
            mark = "*";
        }
}

typedef struct lookup {
    const family_t *f;
    size_t sample;
} lookup_t;

static bool size_of_name(void *context, const char *name, size_t bytes, int64_t *out_value) {
    const lookup_t *l = context;
    for (size_t i = 0; i < l->f->n_symbols; i++) {
        const char *known = l->f->symbols[i].name;
        if (strlen(known) != bytes || memcmp(known, name, bytes) != 0) continue;
        *out_value = l->f->sizes[l->sample][i];
        return true;
    }
    return false;
}

/* One entry in all samples. */
typedef struct entry {
    bool whole;
    ir_dtype_t rounds_to; /* elements of constants: compared as that type; else none */
    int64_t i[MAX_SAMPLES];
    double x[MAX_SAMPLES];
} entry_t;

static bool same_element(ir_dtype_t dtype, double a, double b) {
    unsigned char x[8] = {0}, y[8] = {0};
    if (dtype == IR_DTYPE_NONE || dtype == IR_F64)
        return fabs(a - b) <= IR_VARIATION_TOLERANCE * fabs(b);
    ir_element_store(dtype, x, 0, a);
    ir_element_store(dtype, y, 0, b);
    return memcmp(x, y, sizeof x) == 0;
}

static bool gives_all(const family_t *f, const char *text, const entry_t *e) {
    for (size_t s = 0; s < f->n_samples; s++) {
        lookup_t l = {f, s};
        st_number_t number;
        if (st_expression_eval(text, size_of_name, &l, &number) != ST_OK) return false;
        if (e->whole && (!number.whole || number.i != e->i[s])) return false;
        if (!e->whole && !same_element(e->rounds_to, number.f, e->x[s])) return false;
    }
    return true;
}

/* ---- identification ---- */

/* value = c · product / d, d whole and small; for floats also c / product. */
static bool find_product(const family_t *f, const entry_t *e, char text[MAX_TEXT]) {
    for (size_t p = 1; p < f->n_products; p++)
        for (int inverse = 0; inverse < (e->whole ? 1 : 2); inverse++) {
            double c = inverse ? e->x[0] * f->value_of[0][p] : e->x[0] / f->value_of[0][p];
            char number[ST_NUMBER_BYTES];
            bool fits = true;
            for (size_t s = 1; s < f->n_samples && fits; s++) {
                double other = inverse ? e->x[s] * f->value_of[s][p] : e->x[s] / f->value_of[s][p];
                fits = fabs(other - c) <= 1e-6 * fabs(c);
            }
            if (!fits || c == 0) continue;
            for (int d = 1; d <= MAX_DIVISOR; d++) {
                double whole = nearbyint(c * d);
                bool near = fabs(whole - c * d) <= 1e-6 * fabs(whole) && fabs(whole) < 1e15;
                if (!near && d < MAX_DIVISOR) continue;
                text[0] = '\0';
                if (near && whole != 1) {
                    snprintf(number, sizeof number, "%.0f", whole);
                    append(text, number);
                } else if (!near) {
                    append(text, st_double_shortest(c, number));
                }
                if (inverse) append(text, text[0] ? "/(" : "1/(");
                if (!inverse && text[0]) append(text, "*");
                append_product(f, text, p);
                if (inverse) append(text, ")");
                if (near && d > 1) {
                    snprintf(number, sizeof number, "/%d", d);
                    append(text, number);
                }
                if (gives_all(f, text, e)) return true;
                if (near) break;
            }
        }
    return false;
}

/* Coefficients of the first `n` products from the first `n` samples that tell them apart. */
static bool solve(const family_t *f, const entry_t *e, size_t n, double *out) {
    double rows[MAX_SAMPLES][MAX_PRODUCTS + 1];
    for (size_t s = 0; s < f->n_samples; s++) {
        memcpy(rows[s], f->value_of[s], n * sizeof rows[s][0]);
        rows[s][n] = e->x[s];
    }
    for (size_t column = 0; column < n; column++) {
        size_t pivot = column;
        for (size_t s = column; s < f->n_samples; s++)
            if (fabs(rows[s][column]) > fabs(rows[pivot][column])) pivot = s;
        if (fabs(rows[pivot][column]) < 1e-9) return false;
        for (size_t k = 0; k <= n; k++) {
            double swap = rows[column][k];
            rows[column][k] = rows[pivot][k];
            rows[pivot][k] = swap;
        }
        for (size_t s = 0; s < f->n_samples; s++) {
            double factor = s == column ? 0 : rows[s][column] / rows[column][column];
            for (size_t k = column; factor != 0 && k <= n; k++)
                rows[s][k] -= factor * rows[column][k];
        }
    }
    for (size_t k = 0; k < n; k++) out[k] = rows[k][n] / rows[k][k];
    return true;
}

/* The sum as "(2*a*b - 3)/4"; false where no small divisor makes the coefficients whole. */
static bool write_sum(const family_t *f, size_t n, const double *coefficients,
                      char text[MAX_TEXT]) {
    for (int d = 1; d <= MAX_DIVISOR; d++) {
        bool near = true;
        for (size_t p = 0; p < n; p++)
            near &= fabs(coefficients[p] * d - nearbyint(coefficients[p] * d)) < 1e-4;
        if (!near) continue;
        text[0] = '\0';
        if (d > 1) append(text, "(");
        bool first = true;
        for (size_t p = n; p-- > 0;) {
            double whole = nearbyint(coefficients[p] * d);
            char number[ST_NUMBER_BYTES];
            if (whole == 0) continue;
            append(text, first ? (whole < 0 ? "-" : "") : whole < 0 ? " - " : " + ");
            snprintf(number, sizeof number, "%.0f", fabs(whole));
            if (p == 0 || fabs(whole) != 1) append(text, number);
            if (p && fabs(whole) != 1) append(text, "*");
            append_product(f, text, p);
            first = false;
        }
        char end[16];
        snprintf(end, sizeof end, ")/%d", d);
        if (d > 1) append(text, end);
        return !first;
    }
    return false;
}

static bool find_sum(const family_t *f, const entry_t *e, char text[MAX_TEXT]) {
    double coefficients[MAX_PRODUCTS];
    for (int degree = 1; degree <= MAX_DEGREE; degree++) {
        size_t n = 0;
        while (n < f->n_products && f->products[n].degree <= degree) n++;
        if (solve(f, e, n, coefficients) && write_sum(f, n, coefficients, text) &&
            gives_all(f, text, e))
            return true;
    }
    return false;
}

/* ---- comparison ---- */

typedef struct place {
    ir_node_t node;
    uint32_t attr, element;
} place_t;

static const ir_attr_t *attr_in(const family_t *f, size_t sample, const place_t *at) {
    return &ir_node(f->graphs[sample], at->node)->attrs[at->attr];
}

static void read_entry(const family_t *f, const place_t *at, entry_t *e) {
    const ir_node_info_t *node = ir_node(f->graphs[0], at->node);
    ir_attr_kind_t kind = attr_in(f, 0, at)->kind;
    ir_dtype_t dtype =
        kind == IR_ATTR_DATA ? (ir_dtype_t)ir_attr_int(node, "dtype") : IR_DTYPE_NONE;
    e->whole = kind == IR_ATTR_DATA ? !ir_dtype_is_float(dtype) : kind != IR_ATTR_FLOAT;
    e->rounds_to = e->whole ? IR_DTYPE_NONE : dtype;
    for (size_t s = 0; s < f->n_samples; s++) {
        const ir_attr_t *attr = attr_in(f, s, at);
        if (kind == IR_ATTR_FLOAT)
            e->x[s] = attr->f;
        else if (kind == IR_ATTR_DATA && !e->whole)
            e->x[s] = ir_element_load(dtype, attr->data.p, at->element);
        else if (kind == IR_ATTR_DATA)
            e->x[s] = (double)(e->i[s] = ir_element_load_i64(dtype, attr->data.p, at->element));
        else
            e->x[s] =
                (double)(e->i[s] = kind == IR_ATTR_INTS ? attr->ints.v[at->element] : attr->i);
    }
}

static bool entry_varies(const family_t *f, const entry_t *e) {
    for (size_t s = 1; s < f->n_samples; s++)
        if (e->whole ? e->i[s] != e->i[0] : memcmp(&e->x[s], &e->x[0], sizeof e->x[0]) != 0)
            return true;
    return false;
}

static st_status_t fit_entry(family_t *f, const place_t *at) {
    const ir_node_info_t *node = ir_node(f->result, at->node);
    const char *key = ir_op_def(node->op)->attrs[at->attr].key;
    entry_t e;
    char text[MAX_TEXT];
    read_entry(f, at, &e);
    if (!entry_varies(f, &e)) return ST_OK;
    if (find_product(f, &e, text) || find_sum(f, &e, text))
        return ir_graph_add_variation(
            f->result, &(ir_variation_t){node->first_output, key, at->element, text});
    text[0] = '\0';
    for (size_t i = 0; i < f->n_symbols; i++) {
        append(text, i ? ", " : "");
        append(text, f->symbols[i].name);
    }
    return FAIL(ST_UNSUPPORTED,
                "%s: '%s', entry %u, is no sum of products of %s (%g for the example): bind the "
                "sizes when the model is made or imported",
                ir_node_label(f->result, at->node), key, at->element, text, e.x[0]);
}

static size_t count_entries(const ir_node_info_t *node, const ir_attr_t *attr) {
    if (attr->kind == IR_ATTR_INT || attr->kind == IR_ATTR_FLOAT) return 1;
    if (attr->kind == IR_ATTR_INTS) return attr->ints.n;
    return attr->data.bytes / ir_dtype_bytes((ir_dtype_t)ir_attr_int(node, "dtype"));
}

static st_status_t fit_attr(family_t *f, ir_node_t n, uint32_t attr) {
    place_t at = {n, attr, 0};
    const ir_node_info_t *node = ir_node(f->result, n);
    const ir_attr_t *first = attr_in(f, 0, &at);
    const char *key = ir_op_def(node->op)->attrs[attr].key;
    bool same = true, as_long = true;
    for (size_t s = 1; s < f->n_samples; s++) {
        const ir_attr_t *other = attr_in(f, s, &at);
        same &= ir_attr_equal(first, other);
        if (first->kind == IR_ATTR_INTS) as_long &= first->ints.n == other->ints.n;
        if (first->kind == IR_ATTR_DATA) as_long &= first->data.bytes == other->data.bytes;
    }
    if (same) return ST_OK;
    bool can_vary = first->kind == IR_ATTR_INT || first->kind == IR_ATTR_INTS ||
                    first->kind == IR_ATTR_FLOAT ||
                    (first->kind == IR_ATTR_DATA && strcmp(key, "data") == 0);
    if (!can_vary || !as_long ||
        (first->kind == IR_ATTR_DATA && count_entries(node, first) > MAX_VARYING_DATA))
        return FAIL(ST_UNSUPPORTED,
                    "%s: '%s' depends on open sizes, which a %s of that length cannot: bind the "
                    "sizes when the model is made or imported",
                    ir_node_label(f->result, n), key, ir_attr_kind_text(first->kind));
    for (at.element = 0; at.element < count_entries(node, first); at.element++)
        TRY(fit_entry(f, &at));
    return ST_OK;
}

/* The same nodes, by op, name and operands. */
static st_status_t compare_structure(const family_t *f, size_t sample) {
    const ir_graph_t *a = f->graphs[0], *b = f->graphs[sample];
    ir_node_t n = 0;
    for (; n < a->nodes.n && n < b->nodes.n; n++) {
        const ir_node_info_t *x = ir_node(a, n), *y = ir_node(b, n);
        if (x->op != y->op || x->n_inputs != y->n_inputs || strcmp(x->name, y->name) != 0 ||
            memcmp(x->inputs, y->inputs, x->n_inputs * sizeof *x->inputs) != 0)
            break;
    }
    bool same = n == a->nodes.n && n == b->nodes.n && a->outputs.n == b->outputs.n;
    for (size_t o = 0; same && o < a->outputs.n; o++)
        same = a->outputs.data[o].value == b->outputs.data[o].value;
    if (same) return ST_OK;
    return FAIL(ST_UNSUPPORTED,
                "the graph's nodes depend on open sizes: for %s = %" PRId64
                " it is another from node %u on than for %" PRId64
                "; bind the sizes when the model is made or imported",
                f->symbols[0].name, f->sizes[sample][0], n, f->sizes[0][0]);
}

static st_status_t fit(family_t *f, ir_family_t make, void *context) {
    for (size_t s = 0; s < f->n_samples; s++) {
        TRY(make(context, f->sizes[s], &f->graphs[s]));
        TRY(compare_structure(f, s));
    }
    TRY(ir_graph_copy(f->graphs[0], &f->result));
    for (size_t i = 0; i < f->n_symbols; i++) {
        ir_symbol_t symbol = f->symbols[i];
        symbol.example = f->sizes[0][i];
        TRY(ir_graph_add_symbol(f->result, &symbol));
    }
    for (ir_node_t n = 0; n < f->result->nodes.n; n++)
        for (uint32_t i = 0; i < ir_op_n_attrs(ir_op_def(ir_node(f->result, n)->op)); i++)
            TRY(fit_attr(f, n, i));
    return ir_graph_verify(f->result);
}

st_status_t ir_family_fit(size_t n_symbols, const ir_symbol_t *symbols, ir_family_t make,
                          void *context, ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (n_symbols > IR_FAMILY_SYMBOLS)
        return FAIL(ST_UNSUPPORTED, "%zu open sizes, %d at most: bind some of them", n_symbols,
                    IR_FAMILY_SYMBOLS);
    family_t *f = st_calloc(1, sizeof *f);
    if (!f) return st_no_memory(sizeof *f, "a family of graphs");
    f->n_symbols = n_symbols;
    f->symbols = symbols;
    list_products(f);
    list_samples(f);
    st_status_t status = fit(f, make, context);
    if (status == ST_OK) {
        *out_graph = f->result;
        f->result = NULL;
    }
    ir_graph_destroy(f->result);
    for (size_t s = 0; s < f->n_samples; s++) ir_graph_destroy(f->graphs[s]);
    st_free(f);
    return status;
}
