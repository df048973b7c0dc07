/* The pattern matcher (match.h).
 *
 * A pattern is a tree of terms. Matching solves a list of goals "this term at this value": the
 * first goal is replaced by those of its operands, choices (alternatives, operand orders, casts to
 * look through) are tried one after the other, and what a failed choice captured is taken back.
 * Because the rest of the list is part of every try, a choice that fits locally and fails later is
 * undone: no order of writing operands can hide a match. */
#include "fusion/match.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/vec.h"

enum { MAX_ARGS = 4, MAX_DEPTH = 64, MAX_STEPS = 4000, MAX_NAME = 16 };

typedef enum term_kind { OP, CAPTURE, SCALAR, NUMBER, EITHER, LOOSE } term_kind_t;

typedef struct term {
    term_kind_t kind;
    ir_op_t op;
    uint32_t n_args,
        args[MAX_ARGS]; /* OP: operands. CAPTURE: one or none. LOOSE: one. EITHER: two */
    uint32_t name;      /* CAPTURE, SCALAR */
    double number;
} term_t;

struct match_pattern {
    ST_VEC(term_t) terms;
    uint32_t root;
    uint32_t n_names;
    char names[MATCH_MAX_NAMES][MAX_NAME];
};

/* ---- reading ---- */

typedef struct reader {
    match_pattern_t *pattern;
    const match_definition_t *definitions;
    const char *whole, *at;
    int depth;
} reader_t;

static st_status_t read_either(reader_t *r, uint32_t *out);

static st_status_t bad(const reader_t *r, const char *what) {
    return FAIL(ST_INTERNAL, "pattern '%s' at '%.20s': %s", r->whole, r->at, what);
}

static void skip_space(reader_t *r) {
    while (*r->at == ' ' || *r->at == '\n') r->at++;
}

static bool take(reader_t *r, char c) {
    skip_space(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || c == '_' || (c >= '0' && c <= '9');
}

static st_status_t read_word(reader_t *r, char *word, size_t capacity) {
    size_t n = 0;
    while (is_letter(*r->at) && n + 1 < capacity) word[n++] = *r->at++;
    word[n] = '\0';
    return n == 0 || is_letter(*r->at) ? bad(r, "a name is needed") : ST_OK;
}

static st_status_t add_term(reader_t *r, term_t term, uint32_t *out) {
    *out = (uint32_t)r->pattern->terms.n;
    return ST_VEC_PUSH(&r->pattern->terms, term);
}

static st_status_t read_name(reader_t *r, uint32_t *out) {
    char word[MAX_NAME];
    match_pattern_t *p = r->pattern;
    TRY(read_word(r, word, sizeof word));
    for (*out = 0; *out < p->n_names; (*out)++)
        if (strcmp(p->names[*out], word) == 0) return ST_OK;
    if (p->n_names == MATCH_MAX_NAMES) return bad(r, "too many names");
    memcpy(p->names[p->n_names++], word, sizeof word);
    return ST_OK;
}

/* <name>: its text is read here, into terms of this pattern. */
static st_status_t read_definition(reader_t *r, uint32_t *out) {
    char word[MAX_NAME];
    TRY(read_word(r, word, sizeof word));
    if (!take(r, '>')) return bad(r, "'>' is needed");
    for (const match_definition_t *d = r->definitions; d && d->name; d++) {
        if (strcmp(d->name, word) != 0) continue;
        reader_t inner = *r;
        inner.whole = inner.at = d->text;
        inner.depth++;
        if (inner.depth > MAX_DEPTH) return bad(r, "the definition contains itself");
        TRY(read_either(&inner, out));
        skip_space(&inner);
        return *inner.at ? bad(&inner, "it should end here") : ST_OK;
    }
    return bad(r, "there is no such definition");
}

static st_status_t read_operation(reader_t *r, uint32_t *out) {
    char word[40];
    TRY(read_word(r, word, sizeof word));
    const ir_op_def_t *def = ir_op_def_by_name(word);
    if (!def) return bad(r, "that is no op");
    term_t term = {.kind = OP, .op = def->op };
    if (!take(r, '(')) return bad(r, "'(' is needed");
    do {
        if (term.n_args == MAX_ARGS) return bad(r, "too many operands");
        TRY(read_either(r, &term.args[term.n_args++]));
    } while (take(r, ','));
    if (!take(r, ')')) return bad(r, "')' is needed");
    return add_term(r, term, out);
}

static st_status_t read_term(reader_t *r, uint32_t *out) {
    term_t term = {0};
    if (++r->depth > MAX_DEPTH) return bad(r, "too deep");
    if (take(r, '(')) {
        TRY(read_either(r, out));
        if (!take(r, ')')) return bad(r, "')' is needed");
    } else if (take(r, '<')) {
        TRY(read_definition(r, out));
    } else if (take(r, '~')) {
        term.kind = LOOSE;
        term.n_args = 1;
        TRY(read_term(r, &term.args[0]));
        TRY(add_term(r, term, out));
    } else if (take(r, '?')) {
        term.kind = CAPTURE;
        TRY(read_name(r, &term.name));
        if (take(r, ':')) TRY(read_term(r, &term.args[term.n_args++]));
        TRY(add_term(r, term, out));
    } else if (take(r, '#')) {
        term.kind = SCALAR;
        TRY(read_name(r, &term.name));
        TRY(add_term(r, term, out));
    } else if (*r->at == '-' || *r->at == '.' || (*r->at >= '0' && *r->at <= '9')) {
        size_t n = strspn(r->at, "-.0123456789e");
        term.kind = NUMBER;
        if (!st_double_parse(r->at, n, &term.number)) return bad(r, "that is no number");
        r->at += n;
        TRY(add_term(r, term, out));
    } else {
        TRY(read_operation(r, out));
    }
    r->depth--;
    return ST_OK;
}

static st_status_t read_either(reader_t *r, uint32_t *out) {
    TRY(read_term(r, out));
    while (take(r, '|')) {
        term_t term = {.kind = EITHER, .n_args = 2, .args = {*out}};
        TRY(read_term(r, &term.args[1]));
        TRY(add_term(r, term, out));
    }
    return ST_OK;
}

st_status_t match_compile(const char *text, const match_definition_t *definitions,
                          match_pattern_t **out_pattern) {
    *out_pattern = NULL;
    match_pattern_t *pattern = st_calloc(1, sizeof *pattern);
    if (!pattern) return st_no_memory(sizeof *pattern, "a pattern");
    reader_t r = {pattern, definitions, text, text, 0};
    st_status_t status = read_either(&r, &pattern->root);
    skip_space(&r);
    if (status == ST_OK && *r.at) status = bad(&r, "it should end here");
    if (status != ST_OK) {
        match_free(pattern);
        return status;
    }
    *out_pattern = pattern;
    return ST_OK;
}

void match_free(match_pattern_t *pattern) {
    if (!pattern) return;
    ST_VEC_FREE(&pattern->terms);
    st_free(pattern);
}

static bool may_start(const match_pattern_t *pattern, uint32_t at, ir_op_t op) {
    const term_t *term = &pattern->terms.data[at];
    if (term->kind == OP) return term->op == op;
    if (term->kind == EITHER)
        return may_start(pattern, term->args[0], op) || may_start(pattern, term->args[1], op);
    if (term->kind == CAPTURE && term->n_args) return may_start(pattern, term->args[0], op);
    return true;
}

bool match_may_start(const match_pattern_t *pattern, ir_op_t op) {
    return may_start(pattern, pattern->root, op);
}

/* ---- captures ---- */

static uint32_t find_name(const match_t *match, const char *name) {
    uint32_t i = 0;
    while (i < match->pattern->n_names && strcmp(match->pattern->names[i], name) != 0) i++;
    return i;
}

ir_value_t match_value(const match_t *match, const char *name) {
    uint32_t i = find_name(match, name);
    return i < match->pattern->n_names ? match->value[i] : IR_NONE;
}

double match_number(const match_t *match, const char *name) {
    uint32_t i = find_name(match, name);
    return i < match->pattern->n_names ? match->number[i] : NAN;
}

bool match_add_node(match_t *match, ir_node_t node) {
    if (match->n_nodes == MATCH_MAX_NODES) return false;
    match->nodes[match->n_nodes++] = node;
    return true;
}

/* ---- solving ---- */

typedef struct goal {
    uint32_t term;
    ir_value_t value;
    const struct goal *next;
} goal_t;

typedef struct solver {
    match_t *m;
    match_check_t *check;
    void *context;
    uint32_t n_steps;
    st_status_t status; /* not ST_OK: the search is over */
} solver_t;

static bool solve(solver_t *s, const goal_t *goals);

static bool commutes(ir_op_t op) {
    static const bool rows[IR_OP_END] = {
        [IR_OP_ADD] = true,         [IR_OP_MUL] = true,        [IR_OP_MAXIMUM] = true,
        [IR_OP_EQ] = true,          [IR_OP_NE] = true,         [IR_OP_MINIMUM] = true,
        [IR_OP_LOGICAL_AND] = true, [IR_OP_LOGICAL_OR] = true,
    };
    return rows[op];
}

static bool read_number(solver_t *s, ir_value_t value, double *out) {
    bool found;
    s->status = fuse_cone_uniform(s->m->cone, value, out, &found);
    return s->status == ST_OK && found;
}

/* Float32's rounding is allowed: sources write sqrt(2) in the type of their tensors. */
static bool solve_number(solver_t *s, double wanted, ir_value_t value, const goal_t *rest) {
    double given;
    if (!read_number(s, value, &given)) return false;
    double slack = fabs(wanted) * 1.2e-7;
    return (given == wanted || fabs(given - wanted) <= slack) && solve(s, rest);
}

static bool solve_scalar(solver_t *s, uint32_t name, ir_value_t value, const goal_t *rest) {
    double given, *own = &s->m->number[name];
    if (!read_number(s, value, &given)) return false;
    if (!isnan(*own)) return *own == given && solve(s, rest);
    *own = given;
    if (solve(s, rest)) return true;
    *own = NAN;
    return false;
}

static bool solve_capture(solver_t *s, const term_t *term, ir_value_t value, const goal_t *rest) {
    ir_value_t *own = &s->m->value[term->name];
    goal_t inner = {term->args[0], value, rest};
    if (term->n_args) rest = &inner;
    if (*own != IR_NONE) return *own == value && solve(s, rest);
    *own = value;
    if (solve(s, rest)) return true;
    *own = IR_NONE;
    return false;
}

static bool solve_operation(solver_t *s, const term_t *term, ir_value_t value, const goal_t *rest) {
    const ir_graph_t *graph = s->m->cone->graph;
    const ir_value_info_t *info = &graph->values.data[value];
    const ir_node_info_t *node = ir_node(graph, info->producer);
    if (node->op != term->op || node->n_inputs != term->n_args || info->index != 0) return false;
    uint32_t n_nodes = s->m->n_nodes;
    if (!match_add_node(s->m, info->producer)) return false;
    goal_t goals[MAX_ARGS];
    int n_orders = term->n_args == 2 && commutes(term->op) && node->inputs[0] != node->inputs[1];
    for (int order = 0; order <= n_orders; order++) {
        for (uint32_t i = 0; i < term->n_args; i++) {
            uint32_t j = order ? term->n_args - 1 - i : i;
            goals[i] = (goal_t){term->args[i], node->inputs[j],
                                i + 1 < term->n_args ? &goals[i + 1] : rest};
        }
        if (solve(s, &goals[0])) return true;
        if (s->status != ST_OK) return false;
    }
    s->m->n_nodes = n_nodes;
    return false;
}

static bool is_loose(const ir_graph_t *graph, const ir_node_info_t *node) {
    if (node->op == IR_OP_RESHAPE || node->op == IR_OP_BROADCAST) return true;
    return node->op == IR_OP_CAST &&
           ir_dtype_is_float(ir_value_type(graph, node->inputs[0])->dtype) &&
           ir_dtype_is_float(ir_value_type(graph, node->first_output)->dtype);
}

static bool solve_loose(solver_t *s, const term_t *term, ir_value_t value, const goal_t *rest) {
    const ir_graph_t *graph = s->m->cone->graph;
    uint32_t n_nodes = s->m->n_nodes;
    for (;;) {
        goal_t inner = {term->args[0], value, rest};
        if (solve(s, &inner)) return true;
        const ir_node_info_t *node = ir_value_producer(graph, value);
        if (s->status != ST_OK || !is_loose(graph, node)) break;
        if (!match_add_node(s->m, graph->values.data[value].producer)) break;
        value = node->inputs[0];
    }
    s->m->n_nodes = n_nodes;
    return false;
}

static bool solve(solver_t *s, const goal_t *goals) {
    if (s->status != ST_OK || s->n_steps++ > MAX_STEPS) return false;
    if (!goals) {
        bool accepted = true;
        uint32_t n_nodes = s->m->n_nodes; /* the check may add some */
        if (s->check) s->status = s->check(s->m, s->context, &accepted);
        if (s->status != ST_OK || !accepted) s->m->n_nodes = n_nodes;
        return s->status == ST_OK && accepted;
    }
    const term_t *term = &s->m->pattern->terms.data[goals->term];
    ir_value_t value = goals->value;
    const goal_t *rest = goals->next;
    if (term->kind == OP) return solve_operation(s, term, value, rest);
    if (term->kind == CAPTURE) return solve_capture(s, term, value, rest);
    if (term->kind == SCALAR) return solve_scalar(s, term->name, value, rest);
    if (term->kind == NUMBER) return solve_number(s, term->number, value, rest);
    if (term->kind == LOOSE) return solve_loose(s, term, value, rest);
    for (uint32_t i = 0; i < 2; i++) { /* EITHER */
        goal_t one = {term->args[i], value, rest};
        if (solve(s, &one)) return true;
    }
    return false;
}

st_status_t match_at(const match_pattern_t *pattern, fuse_cone_t *cone, ir_value_t root,
                     match_check_t *check, void *context, match_t *out_match, bool *out_found) {
    out_match->pattern = pattern;
    out_match->cone = cone;
    out_match->n_nodes = 0;
    for (uint32_t i = 0; i < MATCH_MAX_NAMES; i++) {
        out_match->value[i] = IR_NONE;
        out_match->number[i] = NAN;
    }
    solver_t s = {out_match, check, context, 0, ST_OK};
    goal_t goal = {pattern->root, root, NULL};
    *out_found = solve(&s, &goal);
    return s.status;
}
