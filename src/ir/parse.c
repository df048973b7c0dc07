/* Parser of the text form: a lexer with one token of lookahead and recursive descent over a grammar
 * whose depth only bodies add to. See text.h for the form.
 *
 *   graph     = "graph" [string] ["producer" string] "{" { statement } "}"
 *   statement = "output" name "=" value | "alias" name "=" name | "phase" word
 *             | [ [value { "," value }] [name] "=" ] op [ "(" [value { "," value }] ")" ]
 *               [ "{" [key "=" attribute { "," key "=" attribute }] "}" ] [ ":" type { "," type } ]
 *   attribute = int | float | "true" | "false" | dtype | ints | string | data | graph
 *   type      = dtype "[" [int { "," int }] "]"
 *
 * Tokens point into the text; what a statement needs beyond that lives in an arena that is emptied
 * after it, since the graph keeps its own copies. */
#include <inttypes.h>
#include <string.h>

#include "base/map.h"
#include "base/number.h"
#include "base/vec.h"
#include "ir/body.h"
#include "ir/convert.h"
#include "ir/op.h"
#include "ir/structure.h"
#include "ir/symbols.h"
#include "ir/text.h"
#include "ir/verify.h"

enum { MAX_ATTRS = 64, ELEMENT_BYTES = 8 };

typedef enum token_kind {
    TOKEN_END,
    TOKEN_WORD,  /* identifier */
    TOKEN_VALUE, /* text is the name without % */
    TOKEN_NUMBER,
    TOKEN_STRING, /* text is what stands between the quotes, escapes as written */
    TOKEN_MARK,   /* one of {}()[],=: */
} token_kind_t;

typedef struct token {
    token_kind_t kind;
    const char *text;
    size_t bytes;
    uint32_t line, column;
} token_t;

typedef struct parser {
    const char *at, *end, *line_start;
    uint32_t line;
    token_t token; /* the next one */
    ir_graph_t *graph;
    st_map_t values;             /* value name → id */
    st_arena_t arena;            /* of the statement */
    ST_VEC(ir_graph_t *) bodies; /* the same */
    int depth;                   /* bodies around the graph */
    ST_VEC(token_t) results;
    ST_VEC(ir_value_t) inputs;
    ST_VEC(int64_t) ints;
    ST_VEC(unsigned char) data;
} parser_t;

#define FAIL_AT(token_, ...) place_error(FAIL(ST_PARSE, __VA_ARGS__), (token_))

static st_status_t place_error(st_status_t status, const token_t *token) {
    return st_error_context(status, "line %" PRIu32 ", column %" PRIu32, token->line,
                            token->column);
}

/* ---- lexer ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_word(char c) {
    return is_letter(c) || is_digit(c) || c == '.';
}

static void skip_space(parser_t *p) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#')
            while (p->at < p->end && *p->at != '\n') p->at++;
        if (p->at == p->end) return;
        if (*p->at == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r') {
            return;
        }
    }
}

/* End of a number: letters, digits and dots, and a sign after an exponent letter. */
static const char *number_end(const char *at, const char *end) {
    bool hex = end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    if (end - at > 3 && (at[0] == '-' || at[0] == '+'))
        hex = at[1] == '0' && (at[2] == 'x' || at[2] == 'X');
    const char *c = at + 1;
    for (; c < end; c++) {
        char before = c[-1] | 0x20; /* lower case */
        bool sign = (*c == '+' || *c == '-') && before == (hex ? 'p' : 'e');
        if (!is_word(*c) && !sign) break;
    }
    return c;
}

static st_status_t next(parser_t *p) {
    skip_space(p);
    token_t *token = &p->token;
    *token = (token_t){TOKEN_END, p->at, 0, p->line, (uint32_t)(p->at - p->line_start) + 1};
    if (p->at == p->end) return ST_OK;
    char c = *p->at;
    const char *to = p->at + 1;
    if (c == '%') {
        token->kind = TOKEN_VALUE;
        token->text++;
        while (to < p->end && is_word(*to)) to++;
        if (to == token->text) return FAIL_AT(token, "'%%' without a value name");
    } else if (is_letter(c)) {
        token->kind = TOKEN_WORD;
        while (to < p->end && is_word(*to)) to++;
    } else if (is_digit(c) || c == '-' || c == '+' || c == '.') {
        token->kind = TOKEN_NUMBER;
        to = number_end(p->at, p->end);
    } else if (c == '"') {
        token->kind = TOKEN_STRING;
        token->text++;
        while (to < p->end && *to != '"' && *to != '\n')
            to += *to == '\\' && to + 1 < p->end ? 2 : 1;
        if (to >= p->end || *to != '"') return FAIL_AT(token, "the string does not end");
        token->bytes = (size_t)(to - token->text);
        p->at = to + 1;
        return ST_OK;
    } else if (c && strchr("{}()[],=:", c)) {
        token->kind = TOKEN_MARK;
    } else {
        return FAIL_AT(token, "unexpected character 0x%02x", (unsigned char)c);
    }
    token->bytes = (size_t)(to - token->text);
    p->at = to;
    return ST_OK;
}

/* ---- pieces ---- */

static bool is_mark(const parser_t *p, char mark) {
    return p->token.kind == TOKEN_MARK && p->token.text[0] == mark;
}
static bool token_is(const token_t *token, const char *word) {
    return token->kind == TOKEN_WORD && token->bytes == strlen(word) &&
           memcmp(token->text, word, token->bytes) == 0;
}

/* Says what was found instead. */
static st_status_t unexpected(const parser_t *p, const char *expected) {
    const token_t *token = &p->token;
    if (token->kind == TOKEN_END)
        return FAIL_AT(token, "%s expected, the text ends here", expected);
    int shown = token->bytes < 40 ? (int)token->bytes : 40;
    return FAIL_AT(token, "%s expected, found '%.*s'", expected, shown, token->text);
}

static st_status_t expect_mark(parser_t *p, char mark) {
    if (!is_mark(p, mark)) return unexpected(p, (char[]){'\'', mark, '\'', 0});
    return next(p);
}

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One escape at `at` (after the backslash); returns the bytes it takes, 0 if it is none. */
static size_t unescape(const char *at, const char *end, char *out) {
    static const char letters[] = "\"\\ntr", meanings[] = "\"\\\n\t\r";
    if (at == end) return 0;
    if (*at == 'x') {
        int high = end - at > 2 ? hex_digit(at[1]) : -1, low = end - at > 2 ? hex_digit(at[2]) : -1;
        if (high < 0 || low < 0 || (high | low) == 0) return 0; /* strings end at a NUL byte */
        *out = (char)(high << 4 | low);
        return 3;
    }
    const char *found = *at ? strchr(letters, *at) : NULL;
    if (!found) return 0;
    *out = meanings[found - letters];
    return 1;
}

/* Text of a string or word token, in the statement's arena. */
static st_status_t token_text(parser_t *p, const token_t *token, const char **out_text) {
    char *text = st_arena_alloc(&p->arena, token->bytes + 1);
    if (!text) return st_no_memory(token->bytes, "a string");
    size_t n = 0;
    for (const char *c = token->text, *end = c + token->bytes; c < end;) {
        char byte = *c++;
        if (byte == '\0') return FAIL_AT(token, "a NUL byte in a string");
        if (byte == '\\' && token->kind == TOKEN_STRING) {
            size_t used = unescape(c, end, &byte);
            if (!used)
                return FAIL_AT(token, "bad escape at byte %zu of the string",
                               (size_t)(c - token->text));
            c += used;
        }
        text[n++] = byte;
    }
    text[n] = '\0';
    *out_text = text;
    return ST_OK;
}

static st_status_t parse_name(parser_t *p, const char **out_name) {
    if (p->token.kind != TOKEN_STRING && p->token.kind != TOKEN_WORD)
        return unexpected(p, "a name");
    TRY(token_text(p, &p->token, out_name));
    return next(p);
}

static st_status_t parse_value(parser_t *p, ir_value_t *out_value) {
    if (p->token.kind != TOKEN_VALUE) return unexpected(p, "a %value");
    if (!st_map_get(&p->values, p->token.text, p->token.bytes, out_value))
        return FAIL_AT(&p->token, "%%%.*s is used before it is defined",
                       p->token.bytes < 40 ? (int)p->token.bytes : 40, p->token.text);
    return next(p);
}

static st_status_t parse_int(parser_t *p, int64_t *out_value) {
    if (p->token.kind != TOKEN_NUMBER || !st_int_parse(p->token.text, p->token.bytes, out_value))
        return unexpected(p, "a 64-bit integer");
    return next(p);
}

static st_status_t parse_float(parser_t *p, double *out_value) {
    const token_t *token = &p->token;
    if (token->bytes == 18 && token->text[0] == '0' && token->text[1] == 'x') {
        uint64_t bits = 0;
        size_t i = 2;
        for (; i < 18 && hex_digit(token->text[i]) >= 0; i++)
            bits = bits << 4 | (uint64_t)hex_digit(token->text[i]);
        if (i == 18) {
            memcpy(out_value, &bits, sizeof bits);
            return next(p);
        }
    }
    if ((token->kind != TOKEN_NUMBER && token->kind != TOKEN_WORD) ||
        !st_double_parse(token->text, token->bytes, out_value))
        return unexpected(p, "a number");
    return next(p);
}

static st_status_t parse_bool(parser_t *p, int64_t *out_value) {
    if (!token_is(&p->token, "true") && !token_is(&p->token, "false"))
        return unexpected(p, "true or false");
    *out_value = token_is(&p->token, "true");
    return next(p);
}

static st_status_t parse_dtype(parser_t *p, ir_dtype_t *out_dtype) {
    char name[16];
    *out_dtype = IR_DTYPE_NONE;
    if (p->token.kind == TOKEN_WORD && p->token.bytes < sizeof name) {
        memcpy(name, p->token.text, p->token.bytes);
        name[p->token.bytes] = '\0';
        *out_dtype = ir_dtype_parse(name);
    }
    return *out_dtype == IR_DTYPE_NONE ? unexpected(p, "an element type") : next(p);
}

/* "[1,2,3]" into p->ints. */
static st_status_t parse_ints(parser_t *p) {
    p->ints.n = 0;
    TRY(expect_mark(p, '['));
    while (!is_mark(p, ']')) {
        int64_t value;
        if (p->ints.n) TRY(expect_mark(p, ','));
        TRY(parse_int(p, &value));
        if (p->ints.n == UINT32_MAX) return FAIL_AT(&p->token, "the list is too long");
        TRY(ST_VEC_PUSH(&p->ints, value));
    }
    return next(p);
}

/* ---- attributes ---- */

static st_status_t parse_hex_data(parser_t *p) {
    const token_t *token = &p->token;
    if (token->bytes % 2) return FAIL_AT(token, "an odd number of hex digits");
    size_t n = token->bytes / 2 - 1;
    TRY(ST_VEC_RESERVE(&p->data, n));
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(token->text[2 + 2 * i]), low = hex_digit(token->text[3 + 2 * i]);
        if (high < 0 || low < 0) return FAIL_AT(token, "digit pair %zu is not hexadecimal", i);
        p->data.data[i] = (unsigned char)(high << 4 | low);
    }
    p->data.n = n;
    return next(p);
}

static st_status_t parse_element(parser_t *p, ir_dtype_t dtype) {
    unsigned char bytes[ELEMENT_BYTES];
    token_t at = p->token;
    if (ir_dtype_is_float(dtype)) {
        double value;
        TRY(parse_float(p, &value));
        ir_element_store(dtype, bytes, 0, value);
    } else {
        int64_t value;
        TRY(dtype == IR_BOOL ? parse_bool(p, &value) : parse_int(p, &value));
        ir_element_store_i64(dtype, bytes, 0, value);
        if (ir_element_load_i64(dtype, bytes, 0) != value)
            return FAIL_AT(&at, "%" PRId64 " does not fit in %s", value, ir_dtype_text(dtype));
    }
    size_t n = ir_dtype_bytes(dtype);
    TRY(ST_VEC_RESERVE(&p->data, p->data.n + n));
    memcpy(p->data.data + p->data.n, bytes, n);
    p->data.n += n;
    return ST_OK;
}

/* Raw bytes begin with 0x and have no point and no exponent, which a hexadecimal float would need.
 */
static bool is_raw(const token_t *token) {
    return token->kind == TOKEN_NUMBER && token->bytes >= 2 && token->text[0] == '0' &&
           token->text[1] == 'x' && !memchr(token->text, 'p', token->bytes) &&
           !memchr(token->text, '.', token->bytes);
}

static st_status_t parse_data(parser_t *p, size_t n_args, const ir_arg_t *args) {
    p->data.n = 0;
    if (is_raw(&p->token)) return parse_hex_data(p);
    ir_dtype_t dtype = IR_DTYPE_NONE;
    for (size_t i = 0; i < n_args; i++)
        if (args[i].value.kind == IR_ATTR_DTYPE) dtype = (ir_dtype_t)args[i].value.i;
    if (dtype == IR_DTYPE_NONE)
        return FAIL_AT(&p->token, "data as values needs the attribute dtype before it");
    if (!is_mark(p, '[')) return parse_element(p, dtype);
    TRY(next(p));
    for (bool first = true; !is_mark(p, ']'); first = false) {
        if (!first) TRY(expect_mark(p, ','));
        TRY(parse_element(p, dtype));
    }
    return next(p);
}

static st_status_t parse_graph(parser_t *p);
static void release(parser_t *p);

/* A graph in its own parser, which goes on where this one stands. */
static st_status_t parse_body(parser_t *p, ir_attr_t *out_attr) {
    if (!token_is(&p->token, "graph")) return unexpected(p, "'graph'");
    if (p->depth == IR_MAX_DEPTH)
        return FAIL_AT(&p->token, "bodies in bodies, %d deep at most", IR_MAX_DEPTH);
    TRY(ST_VEC_RESERVE(&p->bodies, p->bodies.n + 1));
    parser_t inner = {.at = p->at,
                      .end = p->end,
                      .line_start = p->line_start,
                      .line = p->line,
                      .token = p->token,
                      .depth = p->depth + 1};
    st_status_t status = parse_graph(&inner);
    if (inner.graph) p->bodies.data[p->bodies.n++] = inner.graph;
    release(&inner);
    p->at = inner.at;
    p->line_start = inner.line_start;
    p->line = inner.line;
    p->token = inner.token;
    out_attr->graph = inner.graph;
    return status;
}

/* What a statement's graph nodes have copied. */
static void clear_statement(parser_t *p) {
    for (size_t i = 0; i < p->bodies.n; i++) ir_graph_destroy(p->bodies.data[i]);
    p->bodies.n = 0;
    st_arena_clear(&p->arena);
}

static st_status_t parse_attr(parser_t *p, const ir_attr_spec_t *spec, size_t n_args,
                              const ir_arg_t *args, ir_attr_t *out_attr) {
    ir_dtype_t dtype;
    *out_attr = (ir_attr_t){.kind = spec->kind};
    switch (spec->kind) {
        case IR_ATTR_INT:
            return parse_int(p, &out_attr->i);
        case IR_ATTR_FLOAT:
            return parse_float(p, &out_attr->f);
        case IR_ATTR_BOOL:
            return parse_bool(p, &out_attr->i);
        case IR_ATTR_DTYPE:
            TRY(parse_dtype(p, &dtype));
            out_attr->i = dtype;
            return ST_OK;
        case IR_ATTR_INTS:
            TRY(parse_ints(p));
            out_attr->ints.v =
                st_arena_copy(&p->arena, p->ints.data, p->ints.n * sizeof *p->ints.data);
            out_attr->ints.n = (uint32_t)p->ints.n;
            return out_attr->ints.v ? ST_OK : st_no_memory(p->ints.n * 8, "a list");
        case IR_ATTR_STRING:
            if (p->token.kind != TOKEN_STRING) return unexpected(p, "a string");
            return parse_name(p, &out_attr->s);
        case IR_ATTR_DATA:
            TRY(parse_data(p, n_args, args));
            out_attr->data.p = st_arena_copy(&p->arena, p->data.data, p->data.n);
            out_attr->data.bytes = p->data.n;
            return out_attr->data.p ? ST_OK : st_no_memory(p->data.n, "a constant");
        case IR_ATTR_GRAPH:
            return parse_body(p, out_attr);
    }
    return FAIL(ST_INTERNAL, "attribute '%s' has no kind", spec->key);
}

static const ir_attr_spec_t *find_spec(const ir_op_def_t *def, const token_t *key) {
    for (const ir_attr_spec_t *spec = def->attrs; spec && spec->key; spec++)
        if (token_is(key, spec->key)) return spec;
    return NULL;
}

static st_status_t parse_attrs(parser_t *p, const ir_op_def_t *def, size_t *n_args,
                               ir_arg_t args[MAX_ATTRS]) {
    *n_args = 0;
    TRY(expect_mark(p, '{'));
    while (!is_mark(p, '}')) {
        if (*n_args) TRY(expect_mark(p, ','));
        const token_t key = p->token;
        if (key.kind != TOKEN_WORD) return unexpected(p, "an attribute name");
        const ir_attr_spec_t *spec = find_spec(def, &key);
        if (!spec)
            return FAIL_AT(&key, "%s has no attribute '%.*s'", def->name,
                           key.bytes < 40 ? (int)key.bytes : 40, key.text);
        for (size_t i = 0; i < *n_args; i++)
            if (args[i].key == spec->key)
                return FAIL_AT(&key, "attribute '%s' is given twice", spec->key);
        ASSERT(*n_args < MAX_ATTRS);
        TRY(next(p));
        TRY(expect_mark(p, '='));
        args[*n_args].key = spec->key;
        TRY(parse_attr(p, spec, *n_args, args, &args[*n_args].value));
        ++*n_args;
    }
    return next(p);
}

/* ---- statements ---- */

static st_status_t parse_type(parser_t *p, ir_type_t *out_type) {
    ir_dtype_t dtype;
    const token_t at = p->token;
    TRY(parse_dtype(p, &dtype));
    TRY(parse_ints(p));
    if (p->ints.n > IR_MAX_RANK)
        return FAIL_AT(&at, "rank %zu is above %d", p->ints.n, IR_MAX_RANK);
    *out_type = ir_type_make(dtype, (int32_t)p->ints.n, p->ints.data);
    return ST_OK;
}

/* ": type, type" compared with what the shape rule said. */
static st_status_t parse_types(parser_t *p, const ir_node_info_t *node) {
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_type_t given;
        char text[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
        TRY(expect_mark(p, k ? ',' : ':'));
        const token_t at = p->token;
        TRY(parse_type(p, &given));
        const ir_type_t *type = ir_value_type(p->graph, node->first_output + k);
        if (!ir_type_equal(&given, type))
            return FAIL_AT(&at, "output %u is %s, the shape rule says %s", k,
                           ir_type_text(&given, text, sizeof text),
                           ir_type_text(type, expected, sizeof expected));
    }
    return ST_OK;
}

static st_status_t define_results(parser_t *p, const token_t *at, const ir_node_info_t *node) {
    if (p->results.n != node->n_outputs)
        return FAIL_AT(at, "%zu results, %s has %u", p->results.n, ir_op_def(node->op)->name,
                       node->n_outputs);
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const token_t *result = &p->results.data[k];
        uint32_t found;
        TRY(st_map_add(&p->values, result->text, result->bytes, node->first_output + k, &found));
        if (found != node->first_output + k)
            return FAIL_AT(result, "%%%.*s is defined twice",
                           result->bytes < 40 ? (int)result->bytes : 40, result->text);
    }
    return ST_OK;
}

/* From the op's name on. */
static st_status_t parse_op(parser_t *p, const token_t *op, const char *name) {
    const char *op_name;
    ir_arg_t args[MAX_ATTRS];
    size_t n_args = 0;
    TRY(token_text(p, op, &op_name));
    const ir_op_def_t *def = op->kind == TOKEN_WORD ? ir_op_def_by_name(op_name) : NULL;
    if (!def) return FAIL_AT(op, "there is no op '%.40s'", op_name);
    p->inputs.n = 0;
    if (is_mark(p, '(')) {
        TRY(next(p));
        while (!is_mark(p, ')')) {
            ir_value_t value;
            if (p->inputs.n) TRY(expect_mark(p, ','));
            TRY(parse_value(p, &value));
            TRY(ST_VEC_PUSH(&p->inputs, value));
        }
        TRY(next(p));
    }
    if (p->inputs.n > UINT32_MAX) return FAIL_AT(op, "%zu inputs", p->inputs.n);
    if (is_mark(p, '{')) TRY(parse_attrs(p, def, &n_args, args));
    st_status_t status = ir_graph_add(p->graph, def->op, name, (uint32_t)p->inputs.n,
                                      p->inputs.data, n_args, args, NULL);
    if (status != ST_OK) return place_error(status == ST_INVALID ? ST_PARSE : status, op);
    const ir_node_info_t *node = ir_node(p->graph, (ir_node_t)(p->graph->nodes.n - 1));
    if (is_mark(p, ':')) TRY(parse_types(p, node));
    return define_results(p, op, node);
}

/* Appends without a search for duplicates: the verifier finds them by its index. */
static st_status_t parse_output(parser_t *p) {
    const char *name;
    ir_value_t value;
    TRY(parse_name(p, &name));
    TRY(expect_mark(p, '='));
    TRY(parse_value(p, &value));
    return ir_graph_append_output(p->graph, name, value);
}

static st_status_t parse_alias(parser_t *p) {
    const char *name, *stored;
    TRY(parse_name(p, &name));
    TRY(expect_mark(p, '='));
    TRY(parse_name(p, &stored));
    return ir_graph_append_alias(p->graph, name, stored);
}

static st_status_t parse_phase(parser_t *p) {
    const char *text;
    const token_t at = p->token;
    TRY(parse_name(p, &text));
    p->graph->phase = ir_phase_parse(text);
    if (p->graph->phase < IR_PHASE_END) return ST_OK;
    return FAIL_AT(&at, "phase '%.40s', forward, backward or optimizer expected", text);
}

/* "symbol NAME = EXAMPLE [MIN,MAX]", without MAX where there is none. */
static st_status_t parse_symbol(parser_t *p) {
    ir_symbol_t symbol = {.max = INT64_MAX};
    TRY(parse_name(p, &symbol.name));
    TRY(expect_mark(p, '='));
    TRY(parse_int(p, &symbol.example));
    const token_t at = p->token;
    TRY(parse_ints(p));
    if (p->ints.n < 1 || p->ints.n > 2) return FAIL_AT(&at, "[MIN] or [MIN,MAX] expected");
    symbol.min = p->ints.data[0];
    if (p->ints.n == 2) symbol.max = p->ints.data[1];
    st_status_t status = ir_graph_add_symbol(p->graph, &symbol);
    return status == ST_OK ? ST_OK : place_error(status == ST_INVALID ? ST_PARSE : status, &at);
}

/* "vary %VALUE ATTRIBUTE ENTRY = "EXPRESSION"" */
static st_status_t parse_variation(parser_t *p) {
    ir_variation_t variation = {0};
    int64_t element;
    TRY(parse_value(p, &variation.value));
    TRY(parse_name(p, &variation.key));
    const token_t at = p->token;
    TRY(parse_int(p, &element));
    if (element < 0 || element >= UINT32_MAX) return FAIL_AT(&at, "an entry's number expected");
    variation.element = (uint32_t)element;
    TRY(expect_mark(p, '='));
    TRY(parse_name(p, &variation.expression));
    return ir_graph_add_variation(p->graph, &variation);
}

static st_status_t parse_statement(parser_t *p) {
    p->results.n = 0;
    while (p->token.kind == TOKEN_VALUE) {
        TRY(ST_VEC_PUSH(&p->results, p->token));
        TRY(next(p));
        if (!is_mark(p, ',')) break;
        TRY(next(p));
        if (p->token.kind != TOKEN_VALUE) return unexpected(p, "a %value");
    }
    const char *name = NULL;
    token_t first = p->token;
    bool named = first.kind == TOKEN_WORD || first.kind == TOKEN_STRING;
    if (named) TRY(next(p));
    bool word_follows = p->token.kind == TOKEN_WORD || p->token.kind == TOKEN_STRING;
    if (p->results.n == 0 && named && word_follows) {
        if (token_is(&first, "output")) return parse_output(p);
        if (token_is(&first, "alias")) return parse_alias(p);
        if (token_is(&first, "phase")) return parse_phase(p);
        if (token_is(&first, "symbol")) return parse_symbol(p);
    }
    if (p->results.n == 0 && token_is(&first, "vary") && p->token.kind == TOKEN_VALUE)
        return parse_variation(p);
    if (p->results.n || (named && is_mark(p, '='))) {
        if (named) TRY(token_text(p, &first, &name));
        TRY(expect_mark(p, '='));
        if (p->token.kind != TOKEN_WORD) return unexpected(p, "an op");
        first = p->token;
        TRY(next(p));
    } else if (!named || first.kind != TOKEN_WORD) {
        return unexpected(p, "a statement");
    }
    return parse_op(p, &first, name);
}

/* From its first token to the one after it. */
static st_status_t parse_graph(parser_t *p) {
    if (!token_is(&p->token, "graph")) return unexpected(p, "'graph'");
    TRY(next(p));
    const char *name = "", *producer = "";
    if (p->token.kind == TOKEN_STRING) TRY(parse_name(p, &name));
    if (token_is(&p->token, "producer")) {
        TRY(next(p));
        TRY(parse_name(p, &producer));
    }
    TRY(ir_graph_create(name, &p->graph));
    p->graph->producer = st_arena_strdup(&p->graph->arena, producer);
    if (!p->graph->producer) return st_no_memory(0, "a graph");
    TRY(expect_mark(p, '{'));
    while (!is_mark(p, '}')) {
        if (p->token.kind == TOKEN_END) return unexpected(p, "'}'");
        TRY(parse_statement(p));
        clear_statement(p);
    }
    p->graph->phase = IR_PHASE_FORWARD;
    TRY(next(p));
    st_status_t status = ir_graph_verify(p->graph);
    return status == ST_INVALID ? ST_PARSE : status;
}

static st_status_t parse_text(parser_t *p) {
    TRY(next(p));
    TRY(parse_graph(p));
    return p->token.kind == TOKEN_END ? ST_OK : unexpected(p, "the end of the text");
}

static void release(parser_t *p) {
    st_map_free(&p->values);
    clear_statement(p);
    ST_VEC_FREE(&p->bodies);
    ST_VEC_FREE(&p->results);
    ST_VEC_FREE(&p->inputs);
    ST_VEC_FREE(&p->ints);
    ST_VEC_FREE(&p->data);
}

static st_status_t parse_attributes(parser_t *p, const ir_op_def_t *def, size_t *n_args,
                                    ir_arg_t args[MAX_ATTRS]) {
    TRY(next(p));
    TRY(parse_attrs(p, def, n_args, args));
    return p->token.kind == TOKEN_END ? ST_OK : unexpected(p, "the end of the attributes");
}

st_status_t ir_text_add(ir_graph_t *graph, const char *op, const char *name, uint32_t n_inputs,
                        const ir_value_t *inputs, const char *attributes, ir_value_t *out_first) {
    const ir_op_def_t *def = ir_op_def_by_name(op);
    if (!def) return FAIL(ST_INVALID, "there is no op '%s'", op);
    parser_t p = {.line = 1};
    ir_arg_t args[MAX_ATTRS];
    size_t n_args = 0;
    char *text = st_arena_printf(&p.arena, "{%s}", attributes);
    st_status_t status = text ? ST_OK : st_no_memory(strlen(attributes), "attributes");
    if (status == ST_OK) {
        p.at = p.line_start = text;
        p.end = text + strlen(text);
        status = parse_attributes(&p, def, &n_args, args);
        if (status == ST_PARSE) status = st_error_context(ST_INVALID, "attributes of %s", op);
    }
    if (status == ST_OK)
        status = ir_graph_add(graph, def->op, name, n_inputs, inputs, n_args, args, out_first);
    release(&p);
    return status;
}

st_status_t ir_graph_parse(const char *text, size_t bytes, ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (bytes > INT32_MAX)
        return FAIL(ST_PARSE, "%zu bytes of text, the limit is %d", bytes, INT32_MAX);
    parser_t p = {.at = text, .end = text + bytes, .line_start = text, .line = 1};
    st_status_t status = parse_text(&p);
    if (status == ST_OK)
        *out_graph = p.graph;
    else
        ir_graph_destroy(p.graph);
    release(&p);
    return status;
}
