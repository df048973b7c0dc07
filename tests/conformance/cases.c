#include "cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/convert.h"
#include "ir/window.h"

/* ---- types ---- */

const ir_dtype_t *conf_types(const conf_case_t *row, int *out_n) {
    static ir_dtype_t types[16];
    int n = 0;
    for (const char *c = row->types; *c; c++) {
        if (*c == 'f') {
            types[n++] = IR_F32;
            types[n++] = IR_F64;
            types[n++] = IR_F16;
            types[n++] = IR_BF16;
        } else if (*c == 'i') {
            types[n++] = IR_I32;
            types[n++] = IR_I64;
            types[n++] = IR_U8;
            types[n++] = IR_I8;
        } else if (*c == 'b') {
            types[n++] = IR_BOOL;
        } else {
            types[n++] = IR_F32;
        }
    }
    *out_n = n;
    return types;
}

/* ---- inputs ---- */

static uint64_t random_state;

static uint64_t next_random(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

static double uniform(void) {
    return (double)next_random() / (double)(1u << 31);
}

static double element(char fill, double number, ir_dtype_t dtype) {
    if (fill == '=') return number;
    if (fill == '<') return (double)(next_random() % (uint64_t)(2 * number)) - number;
    if (fill == '^') return (double)(next_random() % (uint64_t)number);
    if (dtype == IR_BOOL) return (double)(next_random() % 2);
    if (!ir_dtype_is_float(dtype)) {
        double integer = (double)(next_random() % 9) - 4;
        if (dtype == IR_U8) integer += 4;
        return fill == '+' ? 1 + (double)(next_random() % 4) : integer;
    }
    return fill == '+' ? 0.5 + 1.5 * uniform() : 4 * uniform() - 2;
}

static const char *parse_input(conf_built_t *built, uint32_t j, const char *at, ir_dtype_t dtype) {
    char kind = *at++, fill = 0;
    double number = 0;
    if (*at == '+') {
        fill = *at++;
    } else if (*at != ':') {
        fill = *at++;
        number = strtod(at, (char **)&at);
    }
    if (*at != ':') fail_msg("%s: input %u: ':' expected at '%s'", built->name, j, at);
    at++;
    ir_type_t *type = &built->in[j];
    *type = ir_type_scalar(kind == 'i'                  ? IR_I32
                           : kind == 'l'                ? IR_I64
                           : kind == 'b'                ? IR_BOOL
                           : kind == 'd'                ? IR_F64
                           : kind == 'h'                ? IR_F16
                           : kind == 'W' || kind == 'w' ? ir_dtype_wide(dtype)
                                                        : dtype);
    built->fixed[j] = kind != 'T' && kind != 'W';
    while (*at && *at != ' ') {
        type->dims[type->rank++] = strtoll(at, (char **)&at, 10);
        if (*at == ',') at++;
    }
    int64_t n = ir_type_elements(type);
    built->in_data[j] = n ? aligned_alloc(64, (ir_type_bytes(type) + 127) & ~(size_t)63) : NULL;
    built->in_values[j] = malloc((size_t)(n + 1) * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        ir_element_store(type->dtype, built->in_data[j], (size_t)i,
                         element(fill, number, type->dtype));
        built->in_values[j][i] = ir_element_load(type->dtype, built->in_data[j], (size_t)i);
    }
    while (*at == ' ') at++;
    return at;
}

/* ---- attributes ---- */

static void default_attr(ir_attr_t *attr, const ir_attr_spec_t *spec) {
    *attr = (ir_attr_t){.kind = spec->kind};
    if (spec->kind == IR_ATTR_FLOAT)
        attr->f = spec->number;
    else if (spec->kind == IR_ATTR_STRING)
        attr->s = spec->text ? spec->text : "";
    else if (spec->kind != IR_ATTR_INTS && spec->kind != IR_ATTR_DATA &&
             spec->kind != IR_ATTR_GRAPH)
        attr->i = (int64_t)spec->number;
}

/* Elements of a constant are given as numbers and stored in its dtype, which comes before them. */
static void parse_data(conf_built_t *built, ir_attr_t *attr, const char *value) {
    ir_dtype_t dtype = (ir_dtype_t)built->attrs[0].i;
    size_t n = 0;
    while (*value && *value != ' ') {
        ir_element_store(dtype, built->data_bytes, n++, strtod(value, (char **)&value));
        if (*value == ',') value++;
    }
    attr->data.p = built->data_bytes;
    attr->data.bytes = n * ir_dtype_bytes(dtype);
}

static void parse_attr(conf_built_t *built, uint32_t a, const char *value, ir_dtype_t dtype) {
    ir_attr_t *attr = &built->attrs[a];
    char word[32] = "";
    sscanf(value, "%31[^ ]", word);
    switch (attr->kind) {
        case IR_ATTR_FLOAT:
            attr->f = strtod(value, NULL);
            return;
        case IR_ATTR_DTYPE:
            attr->i = strcmp(word, "T") == 0 ? dtype : ir_dtype_parse(word);
            return;
        case IR_ATTR_STRING:
            strcpy(built->strings[a], word);
            attr->s = built->strings[a];
            return;
        case IR_ATTR_DATA:
            parse_data(built, attr, value);
            return;
        case IR_ATTR_GRAPH:
            attr->graph = built->bodies[a] = conf_body(word, dtype);
            return;
        case IR_ATTR_INTS:
            attr->ints.v = built->ints[a];
            while (*value && *value != ' ') {
                built->ints[a][attr->ints.n++] = strtoll(value, (char **)&value, 10);
                if (*value == ',') value++;
            }
            return;
        case IR_ATTR_INT:
        case IR_ATTR_BOOL:
            attr->i = strtoll(value, NULL, 10);
            return;
    }
}

static void parse_attrs(conf_built_t *built, const ir_op_def_t *def, const char *text,
                        ir_dtype_t dtype) {
    uint32_t n = ir_op_n_attrs(def);
    for (uint32_t a = 0; a < n; a++) {
        default_attr(&built->attrs[a], &def->attrs[a]);
        if (def->attrs[a].kind == IR_ATTR_INTS) built->attrs[a].ints.v = built->ints[a];
    }
    while (*text) {
        size_t length = strcspn(text, "=");
        uint32_t a = 0;
        while (a < n && (strlen(def->attrs[a].key) != length ||
                         strncmp(def->attrs[a].key, text, length) != 0))
            a++;
        if (a == n) fail_msg("%s: the op has no attribute '%.*s'", built->name, (int)length, text);
        parse_attr(built, a, text + length + 1, dtype);
        text += strcspn(text, " ");
        while (*text == ' ') text++;
    }
}

void conf_build(const conf_case_t *row, ir_dtype_t dtype, conf_built_t *built) {
    const ir_op_def_t *def = ir_op_def(row->op);
    memset(built, 0, sizeof *built);
    snprintf(built->name, sizeof built->name, "%s %s (%s) {%s}", def->name, ir_dtype_text(dtype),
             row->inputs, row->attrs);
    random_state = 88172645463325252u + (uint64_t)row->op;
    uint32_t n_in = 0;
    for (const char *at = row->inputs; *at;) at = parse_input(built, n_in++, at, dtype);
    parse_attrs(built, def, row->attrs, dtype);
    for (uint32_t j = 0; j < n_in && strstr(row->attrs, "channels_last=1"); j++)
        built->in[j] = ir_channels_stored(&built->in[j], true);
    uint32_t n_out = ir_op_n_outputs(def, n_in, built->attrs);
    ir_op_ctx_t ctx = {row->op, n_in, n_out, built->in, built->attrs, built->name};
    if (def->shape(&ctx, built->out) != ST_OK)
        fail_msg("%s: the shape rule refuses: %s", built->name, st_last_error());
    built->terms = row->terms;
    built->problem =
        (kern_problem_t){row->op, n_in, n_out, built->in, built->out, built->attrs, built->name};
}

void conf_release(conf_built_t *built) {
    for (uint32_t a = 0; a < CONF_MAX_ATTRS; a++) ir_graph_destroy(built->bodies[a]);
    for (uint32_t j = 0; j < built->problem.n_in; j++) {
        free(built->in_data[j]);
        free(built->in_values[j]);
    }
}

/* ---- the table ---- */

/* Channels first and last; the dims are given channels first for both. */
#define EITHER(op, inputs, attrs, terms)                 \
    {op, "f", inputs, attrs, terms}, {                   \
        op, "f", inputs, attrs " channels_last=1", terms \
    }

/* Shapes that elementwise ops see: nothing, scalar, one, odd, past a chunk, rank 6. */
#define UNARY_CASES(op, types, fill, attrs)                                                      \
    {op, types, "T" fill ":0", attrs, 0}, {op, types, "T" fill ":", attrs, 0},                   \
        {op, types, "T" fill ":3,0,2", attrs, 0}, {op, types, "T" fill ":1,1", attrs, 0},        \
        {op, types, "T" fill ":7,13", attrs, 0}, {op, types, "T" fill ":2,1,3,2,5,2", attrs, 0}, \
        {op, types, "T" fill ":16387", attrs, 0},
#define BINARY_CASES(op, types, a, b)                                                         \
    {op, types, "T" a ":3,4 T" b ":3,4", "", 0}, {op, types, "T" a ":5,37 T" b ":37", "", 0}, \
        {op, types, "T" a ": T" b ":4", "", 0}, {op, types, "T" a ":6 T" b ":", "", 0},       \
        {op, types, "T" a ":2,3,35 T" b ":3,1", "", 0},                                       \
        {op, types, "T" a ":4,1 T" b ":1,5", "", 0}, {op, types, "T" a ":1 T" b ":0", "", 0}, \
        {op, types, "T" a ":0,3 T" b ":1,3", "", 0},                                          \
        {op, types, "T" a ":2,1,3,1,2 T" b ":1,4,1,5,2", "", 0},                              \
        {op, types, "T" a ":129,131 T" b ":129,131", "", 0},                                  \
        {op, types, "T" a ": T" b ":", "", 0},
#define GRAD_CASES(op, attrs)                                           \
    {op, "f", "T:5,7 T:5,7", attrs, 0}, {op, "f", "T:0 T:0", attrs, 0}, \
        {op, "f", "T: T:", attrs, 0}, {op, "f", "T:33,517 T:33,517", attrs, 0},
#define REDUCE_CASES(op, types, fill)                                                             \
    {op, types, "T" fill ":4,5", "axes=1", 0}, {op, types, "T" fill ":4,5", "axes=0", 0},         \
        {op, types, "T" fill ":4,5", "axes=0,1 keep=1", 0},                                       \
        {op, types, "T" fill ":2,3,5,7", "axes=0,2,3", 0},                                        \
        {op, types, "T" fill ":2,3,5,7", "axes=1,3 keep=1", 0},                                   \
        {op, types, "T" fill ":2,3,2,3,2", "axes=0,2,4", 0},                                      \
        {op, types, "T" fill ":2,1,9,4", "axes=2", 0}, {op, types, "T" fill ":0,3", "axes=1", 0}, \
        {op, types, "T" fill ":1,1", "axes=0", 0}, {op, types, "T" fill ":3,70", "axes=0", 0},

const conf_case_t conf_cases[] = {
    /* sources */
    {IR_OP_CONSTANT, "-", "", "dtype=f32 shape=2,3 data=1,-2,3,4.5,5,6", 0},
    {IR_OP_CONSTANT, "-", "", "dtype=i64 shape=4 data=-7", 0},
    {IR_OP_CONSTANT, "-", "", "dtype=bf16 shape=3,5 data=0.5", 0},
    {IR_OP_CONSTANT, "-", "", "dtype=f64 shape=0,2 data=1", 0},
    {IR_OP_CONSTANT, "-", "", "dtype=bool shape= data=1", 0},
    {IR_OP_IOTA, "-", "", "dtype=f32 shape=3,4 axis=1 start=-1.5 step=0.5", 0},
    {IR_OP_IOTA, "-", "", "dtype=i64 shape=3,4,2 axis=0 start=5 step=-2", 0},
    {IR_OP_IOTA, "-", "", "dtype=u8 shape=7 axis=0", 0},
    {IR_OP_IOTA, "-", "", "dtype=f64 shape=0 axis=0", 0},
    {IR_OP_RANDOM_UNIFORM, "f", "l=42: l=7:", "dtype=T shape=5,7 id=3", 0},
    {IR_OP_RANDOM_UNIFORM, "f", "l=42: l=7:", "dtype=T shape=3,4 id=3 begin=2,1 global=8,7", 0},
    {IR_OP_RANDOM_UNIFORM, "f", "l=-1: l=0:", "dtype=T shape=40001 id=9", 0},
    {IR_OP_RANDOM_UNIFORM, "f", "l=1: l=1:", "dtype=T shape=0,3 id=0", 0},
    {IR_OP_RANDOM_UNIFORM, "f", "l=42: l=7: l=3:", "dtype=T shape=5,7 id=3", 0},
    {IR_OP_RANDOM_UNIFORM, "f", "l=42: l=7: l=3:", "dtype=T shape=3,4 id=3 begin=2,1 global=8,7",
     0},
    /* unary */
    UNARY_CASES(IR_OP_NEG, "fi", "", "") UNARY_CASES(IR_OP_ABS, "fi", "", "") UNARY_CASES(
        IR_OP_EXP, "f", "", "") UNARY_CASES(IR_OP_LOG, "f", "+", "")
        UNARY_CASES(IR_OP_SQRT, "f", "+", "") UNARY_CASES(IR_OP_RSQRT, "f", "+", "") UNARY_CASES(
            IR_OP_RECIPROCAL, "f", "+", "") UNARY_CASES(IR_OP_SIN, "f", "", "")
            UNARY_CASES(IR_OP_COS, "f", "", "") UNARY_CASES(IR_OP_TANH, "f", "", "") UNARY_CASES(
                IR_OP_SIGMOID, "f", "", "") UNARY_CASES(IR_OP_ERF, "f", "", "")
                UNARY_CASES(IR_OP_RELU, "f", "", "") UNARY_CASES(IR_OP_GELU, "f", "", "")
                    UNARY_CASES(IR_OP_GELU, "f", "", "tanh=1") UNARY_CASES(IR_OP_SILU, "f", "", "")
                        UNARY_CASES(IR_OP_SIGN, "fi", "", "") UNARY_CASES(IR_OP_FLOOR, "f", "", "")
                            UNARY_CASES(IR_OP_CEIL, "f", "", "")
                                UNARY_CASES(IR_OP_LOGICAL_NOT, "b", "", "") UNARY_CASES(
                                    IR_OP_SQUARE, "f", "", "") UNARY_CASES(IR_OP_ROUND, "f", "", "")
                                    UNARY_CASES(IR_OP_CAST, "fib", "", "dtype=f32")
                                        UNARY_CASES(IR_OP_CAST, "fib", "", "dtype=f64") UNARY_CASES(
                                            IR_OP_CAST, "fib", "", "dtype=bf16")
                                            UNARY_CASES(IR_OP_CAST, "fib", "", "dtype=i32")
                                                UNARY_CASES(IR_OP_CAST, "fib", "", "dtype=i64")
                                                    UNARY_CASES(IR_OP_CAST, "fib", "", "dtype=bool")
                                                        GRAD_CASES(IR_OP_RELU_GRAD, "") GRAD_CASES(
                                                            IR_OP_GELU_GRAD, "")
                                                            GRAD_CASES(IR_OP_GELU_GRAD, "tanh=1")
                                                                GRAD_CASES(IR_OP_SILU_GRAD, "")
    /* binary */
    BINARY_CASES(IR_OP_ADD, "fi", "", "") BINARY_CASES(IR_OP_SUB, "fi", "", "")
        BINARY_CASES(IR_OP_MUL, "fi", "", "") BINARY_CASES(IR_OP_DIV, "f", "", "+")
            BINARY_CASES(IR_OP_DIV, "i", "", "") BINARY_CASES(IR_OP_POW, "f", "+", "") BINARY_CASES(
                IR_OP_POW, "i", "", "") BINARY_CASES(IR_OP_MAXIMUM, "fi", "", "")
                BINARY_CASES(IR_OP_MINIMUM, "fi", "", "") BINARY_CASES(IR_OP_MOD, "f", "", "+")
                    BINARY_CASES(IR_OP_MOD, "i", "", "") BINARY_CASES(IR_OP_EQ, "fib", "^3", "^3")
                        BINARY_CASES(IR_OP_NE, "fib", "^3", "^3") BINARY_CASES(
                            IR_OP_LT, "fib", "^3", "^3") BINARY_CASES(IR_OP_LE, "fib", "^3", "^3")
                            BINARY_CASES(IR_OP_GT, "fib", "^3", "^3")
                                BINARY_CASES(IR_OP_GE, "fib", "^3", "^3")
                                    BINARY_CASES(IR_OP_LOGICAL_AND, "b", "", "")
                                        BINARY_CASES(IR_OP_LOGICAL_OR, "b", "", ""){
                                            IR_OP_SELECT, "fib", "b:3,4 T:3,4 T:3,4", "", 0},
    {IR_OP_SELECT, "fib", "b:4,1 T:5 T:", "", 0},
    {IR_OP_SELECT, "fib", "b: T:2,3 T:3", "", 0},
    {IR_OP_SELECT, "fib", "b:2,37 T: T:", "", 0},
    {IR_OP_SELECT, "fib", "b:7,1 T:7,40 T:1,40", "", 0},
    {IR_OP_SELECT, "fib", "b:9,40 T: T:40", "", 0},
    {IR_OP_SELECT, "fib", "b:0 T:1 T:", "", 0},
    {IR_OP_SELECT, "fib", "b:130,131 T:130,131 T:130,131", "", 0},
    /* shape */
    {IR_OP_BROADCAST, "fib", "T:3", "shape=4,3", 0},
    {IR_OP_BROADCAST, "fib", "T:3,1,2", "shape=2,3,5,2", 0},
    {IR_OP_BROADCAST, "fib", "T:", "shape=3,41", 0},
    {IR_OP_BROADCAST, "fib", "T:1", "shape=0", 0},
    {IR_OP_BROADCAST, "fib", "T:133,1", "shape=133,130", 0},
    {IR_OP_RESHAPE, "fib", "T:3,4", "shape=2,6", 0},
    {IR_OP_RESHAPE, "fib", "T:1", "shape=", 0},
    {IR_OP_RESHAPE, "fib", "T:0,4", "shape=2,0", 0},
    {IR_OP_RESHAPE, "fib", "T:17,1000", "shape=17000", 0},
    {IR_OP_TRANSPOSE, "fib", "T:3,4", "perm=1,0", 0},
    {IR_OP_TRANSPOSE, "fib", "T:70,131", "perm=1,0", 0},
    {IR_OP_TRANSPOSE, "fib", "T:2,3,4,5", "perm=0,2,1,3", 0},
    {IR_OP_TRANSPOSE, "fib", "T:2,33,3,40", "perm=0,3,2,1", 0},
    {IR_OP_TRANSPOSE, "fib", "T:2,3,4,5,2", "perm=4,0,3,1,2", 0},
    {IR_OP_TRANSPOSE, "fib", "T:3,1,4", "perm=2,1,0", 0},
    {IR_OP_TRANSPOSE, "fib", "T:0,3", "perm=1,0", 0},
    {IR_OP_TRANSPOSE, "fib", "T:", "perm=", 0},
    {IR_OP_SLICE, "fib", "T:7,9", "begin=1,2 end=6,9 step=1,3", 0},
    {IR_OP_SLICE, "fib", "T:7,9", "begin=6,0 end=-1,9 step=-1,1", 0},
    {IR_OP_SLICE, "fib", "T:7,9", "begin=5,8 end=0,-1 step=-2,-3", 0},
    {IR_OP_SLICE, "fib", "T:4,5", "begin=2,1 end=2,4 step=1,1", 0},
    {IR_OP_SLICE, "fib", "T:2,3,150,41", "begin=0,1,0,3 end=2,3,150,40 step=1,1,1,1", 0},
    {IR_OP_PAD, "fi", "T:3,4", "low=1,0 high=0,2 value=3", 0},
    {IR_OP_PAD, "fi", "T:2,3,35", "low=0,1,2 high=1,0,3", 0},
    {IR_OP_PAD, "fi", "T:0,2", "low=1,1 high=1,0 value=2", 0},
    {IR_OP_PAD, "fi", "T:", "low= high=", 0},
    {IR_OP_CONCAT, "fib", "T:2,3 T:2,1 T:2,4", "axis=1", 0},
    {IR_OP_CONCAT, "fib", "T:2,3 T:0,3 T:1,3", "axis=0", 0},
    {IR_OP_CONCAT, "fib", "T:2,3,70 T:2,5,70", "axis=1", 0},
    {IR_OP_CONCAT, "fib", "T:5", "axis=0", 0},
    {IR_OP_GATHER, "fib", "T:5,4 i<5:3", "axis=0", 0},
    {IR_OP_GATHER, "fib", "T:3,7,2 l<7:2,3", "axis=1", 0},
    {IR_OP_GATHER, "fib", "T:4,6 i<6:", "axis=1", 0},
    {IR_OP_GATHER, "fib", "T:4,3 i<4:0", "axis=0", 0},
    {IR_OP_GATHER, "fib", "T:33,130 l<33:211", "axis=0", 0},
    {IR_OP_SCATTER_ADD, "f", "T:3,4 i<5:3", "axis=0 extent=5", 256},
    {IR_OP_SCATTER_ADD, "f", "T:3,2,3,2 l<7:2,3", "axis=1 extent=7", 256},
    {IR_OP_SCATTER_ADD, "f", "T:0,4 i<5:0", "axis=0 extent=5", 256},
    {IR_OP_SCATTER_ADD, "f", "T:211,70 l<33:211", "axis=0 extent=33", 256},
    {IR_OP_SCATTER_ADD, "f", "T:300,64 i<2000:300", "axis=0 extent=2000", 256},
    {IR_OP_SCATTER_ADD, "f", "T:2,700,16 l=3:700", "axis=1 extent=5", 700},
    {IR_OP_GATHER_ALONG, "fib", "T:3,5 i<5:3,2", "axis=1", 0},
    {IR_OP_GATHER_ALONG, "fib", "T:4,2,3 l<4:6,2,3", "axis=0", 0},
    {IR_OP_GATHER_ALONG, "fib", "T:4,2 l<4:0,2", "axis=0", 0},
    {IR_OP_SCATTER_ALONG_ADD, "f", "T:3,2 i<5:3,2", "axis=1 extent=5", 0},
    {IR_OP_SCATTER_ALONG_ADD, "f", "T:6,2,3 l<4:6,2,3", "axis=0 extent=4", 0},
    {IR_OP_GATHER_ND, "fib", "T:3,3,4 i<3:5,2", "", 0},
    {IR_OP_GATHER_ND, "fib", "T:6,2 l<6:2,2,1", "", 0},
    {IR_OP_GATHER_ND, "fib", "T:3,3 i<3:2", "", 0},
    {IR_OP_SCATTER_ND_ADD, "f", "T:5,4 i<3:5,2", "shape=3,3,4", 0},
    {IR_OP_SCATTER_ND_ADD, "f", "T:2,2,2 l<6:2,2,1", "shape=6,2", 0},
    {IR_OP_FLIP, "fib", "T:3,4", "axes=1", 0},
    {IR_OP_FLIP, "fib", "T:2,3,5,130", "axes=0,2", 0},
    {IR_OP_FLIP, "fib", "T:0,4", "axes=0", 0},
    /* reductions */
    REDUCE_CASES(IR_OP_REDUCE_SUM, "fi", ""){IR_OP_REDUCE_SUM, "f", "T:0,3", "axes=0", 0},
    {IR_OP_REDUCE_SUM, "f", "T:70001", "axes=0", 0},
    {IR_OP_REDUCE_SUM, "f", "T:300,131", "axes=0", 0},
    {IR_OP_REDUCE_SUM, "f", "T:2,40007", "axes=1", 0},
    {IR_OP_REDUCE_SUM, "f", "T:", "axes=", 0},
    REDUCE_CASES(IR_OP_REDUCE_MEAN, "f", ""){IR_OP_REDUCE_MEAN, "f", "T:70001", "axes=0", 0},
    REDUCE_CASES(IR_OP_REDUCE_MAX, "fi", ""){IR_OP_REDUCE_MAX, "f", "T:70001", "axes=0", 0},
    REDUCE_CASES(IR_OP_REDUCE_MIN, "fi", ""){IR_OP_REDUCE_MIN, "f", "T:70001", "axes=0", 0},
    {IR_OP_REDUCE_PROD, "f", "T+:4,5", "axes=1", 0},
    {IR_OP_REDUCE_PROD, "fi", "T:3,4", "axes=0", 0},
    {IR_OP_REDUCE_PROD, "fi", "T:2,3,2", "axes=0,2 keep=1", 0},
    {IR_OP_ARGMAX, "fi", "T:4,5", "axis=1", 0},
    {IR_OP_ARGMAX, "fi", "T:4,5", "axis=0 keep=1", 0},
    {IR_OP_ARGMAX, "fi", "T^2:3,40,2", "axis=1", 0},
    {IR_OP_CUMSUM, "fi", "T:4,5", "axis=1", 256},
    {IR_OP_CUMSUM, "fi", "T:4,5", "axis=0 exclusive=1", 256},
    {IR_OP_CUMSUM, "fi", "T:2,5,3", "axis=1 reverse=1", 256},
    {IR_OP_CUMSUM, "fi", "T:2,5", "axis=1 reverse=1 exclusive=1", 256},
    {IR_OP_CUMSUM, "f", "T:2,0", "axis=1", 256},
    {IR_OP_SUM_SQUARES, "f", "T:4,5 T:7 T:", "", 0},
    {IR_OP_SUM_SQUARES, "f", "T:0", "", 0},
    {IR_OP_SUM_SQUARES, "f", "T:40000 T:3", "", 0},
    {IR_OP_SUM_SQUARES, "f", "T:20001 W:17000 T:0 T:40000", "", 0},
    {IR_OP_SUM_SQUARES, "-", "T:20001 h:17000 h:0 T:4", "", 0},
    /* contractions */
    {IR_OP_MATMUL, "f", "T:3,5 T:5,4", "", 512},
    {IR_OP_MATMUL, "f", "T:5,3 T:5,4", "transpose_a=1", 512},
    {IR_OP_MATMUL, "f", "T:3,5 T:4,5", "transpose_b=1", 512},
    {IR_OP_MATMUL, "f", "T:5,3 T:4,5", "transpose_a=1 transpose_b=1", 512},
    {IR_OP_MATMUL, "f", "T:2,3,5 T:5,4", "", 512},
    {IR_OP_MATMUL, "f", "T:2,5,3 T:5,4", "transpose_a=1", 512},
    {IR_OP_MATMUL, "f", "T:2,1,3,5 T:4,5,2", "", 512},
    {IR_OP_MATMUL, "f", "T:3,5 T:2,5,4", "", 512},
    {IR_OP_MATMUL, "f", "T:0,5 T:5,4", "", 512},
    {IR_OP_MATMUL, "f", "T:3,0 T:0,4", "", 512},
    {IR_OP_MATMUL, "f", "T:1,1 T:1,1", "", 512},
    {IR_OP_MATMUL, "f", "T:131,67 T:67,97", "", 512},
    {IR_OP_MATMUL, "f", "T:300,43 T:35,300", "transpose_a=1 transpose_b=1", 512},
    {IR_OP_MATMUL, "f", "T:3,5 T:5,4 T:3,4", "", 512},
    {IR_OP_MATMUL, "f", "T:5,3 T:4,5 T:3,4", "transpose_a=1 transpose_b=1", 512},
    {IR_OP_MATMUL, "f", "T:2,3,5 T:5,4 T:2,3,4", "", 512},
    {IR_OP_MATMUL, "f", "T:2,1,3,5 T:4,5,2 T:2,4,3,2", "", 512},
    {IR_OP_MATMUL, "f", "T:3,0 T:0,4 T:3,4", "", 512},
    {IR_OP_MATMUL, "f", "T:131,67 T:67,97 T:131,97", "", 512},
    {IR_OP_MATMUL, "f", "T:131,67 T:67,97 W:131,97", "", 512},
    {IR_OP_MATMUL, "f", "T:64,130 T:64,40 W:130,40", "transpose_a=1", 512},
    EITHER(IR_OP_CONV, "T:2,3,7 T:4,3,3", "strides=1 pads_low=0 pads_high=0 dilations=1", 512),
    EITHER(IR_OP_CONV, "T:2,3,7 T:4,3,3 T:4", "strides=2 pads_low=1 pads_high=0 dilations=2", 512),
    EITHER(IR_OP_CONV, "T:2,4,6,5 T:6,2,3,3 T:6",
           "strides=1,2 pads_low=1,1 pads_high=1,1 dilations=1,1 groups=2", 512),
    EITHER(IR_OP_CONV, "T:2,3,8,9 T:5,3,3,2",
           "strides=2,3 pads_low=1,0 pads_high=2,1 dilations=1,2", 512),
    EITHER(IR_OP_CONV, "T:1,4,5,5 T:4,1,3,3",
           "strides=1,1 pads_low=1,1 pads_high=1,1 dilations=1,1 groups=4", 512),
    EITHER(IR_OP_CONV, "T:2,2,4,5,6 T:3,2,2,3,2",
           "strides=1,2,1 pads_low=0,1,1 pads_high=1,1,0 dilations=1,1,2", 512),
    EITHER(IR_OP_CONV, "T:2,3,4,4 T:5,3,1,1",
           "strides=1,1 pads_low=0,0 pads_high=0,0 dilations=1,1", 512),
    EITHER(IR_OP_CONV, "T:0,3,4,4 T:5,3,1,1",
           "strides=1,1 pads_low=0,0 pads_high=0,0 dilations=1,1", 512),
    EITHER(IR_OP_CONV, "T:3,8,9,20 T:17,8,3,3",
           "strides=1,1 pads_low=1,1 pads_high=1,1 dilations=1,1", 512),
    EITHER(IR_OP_CONV, "T:2,2,6,6 T:2,2,2,2",
           "strides=2,2 pads_low=2,2 pads_high=2,2 dilations=1,1", 512),
    EITHER(IR_OP_CONV_GRAD_INPUT, "T:2,4,5 T:4,3,3",
           "strides=1 pads_low=0 pads_high=0 dilations=1 spatial=7", 512),
    EITHER(IR_OP_CONV_GRAD_INPUT, "T:2,6,6,3 T:6,2,3,3",
           "strides=1,2 pads_low=1,1 pads_high=1,1 dilations=1,1 groups=2 spatial=6,5", 512),
    EITHER(IR_OP_CONV_GRAD_INPUT, "T:2,5,5,3 T:5,3,3,2",
           "strides=2,3 pads_low=1,0 pads_high=2,1 dilations=1,2 spatial=8,9", 512),
    EITHER(IR_OP_CONV_GRAD_INPUT, "T:1,1,2 T:1,1,3",
           "strides=2 pads_low=0 pads_high=0 dilations=1 spatial=6", 512),
    EITHER(IR_OP_CONV_GRAD_INPUT, "T:3,17,9,20 T:17,8,3,3",
           "strides=1,1 pads_low=1,1 pads_high=1,1 dilations=1,1 spatial=9,20", 512),
    EITHER(IR_OP_CONV_GRAD_WEIGHT, "T:2,3,7 T:2,4,5",
           "strides=1 pads_low=0 pads_high=0 dilations=1 kernel=3", 512),
    EITHER(IR_OP_CONV_GRAD_WEIGHT, "T:2,4,6,5 T:2,6,6,3",
           "strides=1,2 pads_low=1,1 pads_high=1,1 dilations=1,1 groups=2 kernel=3,3", 512),
    EITHER(IR_OP_CONV_GRAD_WEIGHT, "T:2,3,8,9 T:2,5,5,3",
           "strides=2,3 pads_low=1,0 pads_high=2,1 dilations=1,2 kernel=3,2", 512),
    EITHER(IR_OP_CONV_GRAD_WEIGHT, "T:0,3,4,4 T:0,5,4,4",
           "strides=1,1 pads_low=0,0 pads_high=0,0 dilations=1,1 kernel=1,1", 512),
    EITHER(IR_OP_CONV_GRAD_WEIGHT, "T:19,3,8,8 T:19,5,8,8",
           "strides=1,1 pads_low=1,1 pads_high=1,1 dilations=1,1 kernel=3,3", 512),
    EITHER(IR_OP_MAX_POOL, "T:2,3,9", "kernel=3 strides=2 pads_low=1 pads_high=1 dilations=1", 0),
    EITHER(IR_OP_MAX_POOL, "T:2,3,7,10",
           "kernel=3,2 strides=2,2 pads_low=1,0 pads_high=1,1 dilations=1,2 ceil=1", 0),
    EITHER(IR_OP_MAX_POOL, "T:1,2,4,5,6",
           "kernel=2,2,2 strides=1,2,2 pads_low=0,0,1 pads_high=0,1,0 dilations=1,1,1", 0),
    EITHER(IR_OP_MAX_POOL, "T:0,2,4,4",
           "kernel=2,2 strides=2,2 pads_low=0,0 pads_high=0,0 dilations=1,1", 0),
    EITHER(IR_OP_MAX_POOL, "T:2,16,7,10",
           "kernel=3,3 strides=2,2 pads_low=1,1 pads_high=1,1 dilations=1,1", 0),
    EITHER(IR_OP_MAX_POOL_GRAD, "T:2,16,3 i=4:2,16,3",
           "spatial=9 kernel=5 strides=2 pads_low=0 pads_high=0 dilations=1", 4),
    EITHER(IR_OP_MAX_POOL_GRAD, "T:2,3,1,1 i^12:2,3,1,1",
           "spatial=3,4 kernel=3,4 strides=1,1 pads_low=0,0 pads_high=0,0 dilations=1,1", 0),
    EITHER(IR_OP_MAX_POOL_GRAD, "T:2,16,2,2 i=4:2,16,2,2",
           "spatial=3,3 kernel=3,3 strides=2,2 pads_low=1,1 pads_high=1,1 dilations=1,1", 4),
    EITHER(IR_OP_MAX_POOL_GRAD, "T:2,8,1,1 i^4:2,8,1,1",
           "spatial=3,2 kernel=2,2 strides=2,2 pads_low=0,0 pads_high=0,0 dilations=1,1", 0),
    EITHER(IR_OP_MAX_POOL_GRAD, "T:2,3,5 i^9:2,3,5", "spatial=9", 0),
    EITHER(IR_OP_MAX_POOL_GRAD, "T:2,3,4,5 i^70:2,3,4,5", "spatial=7,10", 0),
    EITHER(IR_OP_AVG_POOL, "T:2,3,9", "kernel=3 strides=2 pads_low=1 pads_high=1", 0),
    EITHER(IR_OP_AVG_POOL, "T:2,3,9",
           "kernel=4 strides=4 pads_low=2 pads_high=2 ceil=1 count_pad=1", 0),
    EITHER(IR_OP_AVG_POOL, "T:2,3,7,10",
           "kernel=3,2 strides=2,2 pads_low=1,0 pads_high=1,1 count_pad=1", 0),
    EITHER(IR_OP_AVG_POOL, "T:2,3,7,10", "kernel=3,2 strides=2,3 pads_low=1,0 pads_high=1,1 ceil=1",
           0),
    EITHER(IR_OP_AVG_POOL, "T:2,5,8,8", "kernel=8,8 strides=1,1 pads_low=0,0 pads_high=0,0", 0),
    EITHER(IR_OP_AVG_POOL_GRAD, "T:2,3,5", "kernel=3 strides=2 pads_low=1 pads_high=1 spatial=9",
           0),
    EITHER(IR_OP_AVG_POOL_GRAD, "T:2,3,3",
           "kernel=4 strides=4 pads_low=2 pads_high=2 ceil=1 count_pad=1 spatial=9", 0),
    EITHER(IR_OP_AVG_POOL_GRAD, "T:2,3,4,5",
           "kernel=3,2 strides=2,2 pads_low=1,0 pads_high=1,1 count_pad=1 spatial=7,10", 0),
    {IR_OP_ATTENTION, "f", "T:2,4,5,3 T:2,2,7,3 T:2,2,7,6", "", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,6,4 T:1,1,6,4 T:1,1,6,4", "causal=1", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,6,4 T:1,2,6,4 T:1,2,6,4", "causal=1 window=3", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,6,4 T:1,2,9,4 T:1,2,9,4", "window=2 scale=0.3", 256},
    {IR_OP_ATTENTION, "f", "T:2,2,4,3 T:2,2,5,3 T:2,2,5,3 b:2,1,4,5", "", 256},
    {IR_OP_ATTENTION, "f", "T:2,2,4,3 T:2,2,5,3 T:2,2,5,3 t:2,1,5", "causal=1", 256},
    {IR_OP_ATTENTION, "f", "T:2,2,4,3 T:2,2,5,3 T:2,2,5,3 w:2,1,4,5", "", 256},
    {IR_OP_ATTENTION, "f", "T:2,4,50,8 T:2,2,50,8 T:2,2,50,8 b:50,50", "", 256},
    {IR_OP_ATTENTION, "f", "T:1,1,9,2 T:1,1,4,2 T:1,1,4,2", "window=3 causal=1", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,101,16 T:1,1,101,16 T:1,1,101,8", "causal=1", 256},
    {IR_OP_ATTENTION, "f", "T:0,2,3,4 T:0,2,3,4 T:0,2,3,4", "", 256},
    {IR_OP_ATTENTION, "f", "T:1,6,2,3 T:1,2,0,3 T:1,2,0,2", "window=5 offset=4", 256},
    {IR_OP_ATTENTION, "f", "T:1,6,2,3 T:1,2,1,3 T:1,2,1,2", "window=5 offset=7", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,3,4 T:1,1,9,4 T:1,1,9,4", "causal=1 offset=6", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,3,4 T:1,2,9,4 T:1,2,9,4", "causal=1 offset=4 window=3", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,6,4 T:1,2,9,4 T:1,2,9,4", "window=2 offset=-3", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,6,4 T:1,1,5,4 T:1,1,5,4", "causal=1 offset=-2", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,60,4 T:1,2,5,4 T:1,2,5,4", "causal=1 offset=-500", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,60,4 T:1,2,40,4 T:1,2,40,4", "causal=1 offset=7 window=9", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,50,4 T:1,2,9,4 T:1,2,9,4", "window=4 offset=500", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,4,3 T:1,2,9,3 T:1,2,9,3 b:4,9", "causal=1 offset=5", 256},
    {IR_OP_ATTENTION, "f", "T:1,2,64,16 T:1,1,200,16 T:1,1,200,16", "causal=1 offset=100", 256},
    {IR_OP_ATTENTION, "f", "T:2,4,100,16 T:2,2,100,16 T:2,2,100,16", "causal=1 window=30", 256},
    {IR_OP_ATTENTION, "f", "T:2,1,4,8 T:2,101,2,8 T:2,101,2,8", "causal=1 offset=57 rows_first=1",
     256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,2,4,3 T:1,2,4,5 T:1,1,6,5 T:1,1,6,3 T:1,2,4,3 W+:1,2,4", "",
     256},
    {IR_OP_ATTENTION_GRAD, "f", "T:2,4,6,4 T:2,4,6,4 T:2,2,6,4 T:2,2,6,4 T:2,4,6,4 W+:2,4,6",
     "causal=1 window=4", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,2,4,3 T:1,2,4,3 T:1,2,5,3 T:1,2,5,3 T:1,2,4,3 W+:1,2,4 b:4,5",
     "", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,2,4,3 T:1,2,4,3 T:1,2,5,3 T:1,2,5,3 T:1,2,4,3 W+:1,2,4 t:1,2,1,5", "scale=0.25", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,2,100,8 T:1,2,100,16 T:1,1,100,16 T:1,1,100,8 T:1,2,100,8 W+:1,2,100", "causal=1", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,6,2,2 T:1,6,2,3 T:1,2,0,3 T:1,2,0,2 T:1,6,2,2 W+:1,6,2",
     "window=5 offset=4", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,6,2,2 T:1,6,2,3 T:1,2,1,3 T:1,2,1,2 T:1,6,2,2 W+:1,6,2",
     "window=5 offset=7", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,2,3,4 T:1,2,3,4 T:1,1,9,4 T:1,1,9,4 T:1,2,3,4 W+:1,2,3",
     "causal=1 offset=6", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,4,5,4 T:1,4,5,4 T:1,2,9,4 T:1,2,9,4 T:1,4,5,4 W+:1,4,5",
     "causal=1 offset=3 window=4", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,2,60,8 T:1,2,60,16 T:1,1,100,16 T:1,1,100,8 T:1,2,60,8 W+:1,2,60", "causal=1 offset=-20",
     256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,2,60,4 T:1,2,60,4 T:1,2,5,4 T:1,2,5,4 T:1,2,60,4 W+:1,2,60",
     "causal=1 offset=-500", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,60,2,8 T:1,60,2,16 T:1,100,1,16 T:1,100,1,8 T:1,60,2,8 W+:1,2,60",
     "causal=1 offset=33 window=20 rows_first=1", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,2,64,16 T:1,2,64,16 T:1,1,200,16 T:1,1,200,16 T:1,2,64,16 W+:1,2,64",
     "causal=1 offset=100 window=90", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:1,2,6,4 T:1,2,6,4 T:1,2,5,4 T:1,2,5,4 T:1,2,6,4 W+:1,2,6",
     "causal=1 offset=2 part=1", 256},
    {IR_OP_ATTENTION, "f", "T:2,5,4,3 T:2,7,2,3 T:2,7,2,6", "rows_first=1", 256},
    {IR_OP_ATTENTION, "f", "T:2,50,4,8 T:2,50,2,8 T:2,50,2,8 b:50,50", "rows_first=1", 256},
    {IR_OP_ATTENTION, "f", "T:2,4,2,3 T:2,5,2,3 T:2,5,2,3 w:2,1,4,5", "rows_first=1", 256},
    {IR_OP_ATTENTION, "f", "T:1,101,2,16 T:1,101,1,16 T:1,101,1,8", "causal=1 rows_first=1", 256},
    {IR_OP_ATTENTION_GRAD, "f", "T:2,6,4,4 T:2,6,4,4 T:2,6,2,4 T:2,6,2,4 T:2,6,4,4 W+:2,4,6",
     "causal=1 window=4 rows_first=1", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,4,2,3 T:1,4,2,3 T:1,5,2,3 T:1,5,2,3 T:1,4,2,3 W+:1,2,4 t:1,2,1,5",
     "scale=0.25 rows_first=1", 256},
    {IR_OP_ATTENTION_GRAD, "f",
     "T:1,100,2,8 T:1,100,2,16 T:1,100,1,16 T:1,100,1,8 T:1,100,2,8 W+:1,2,100",
     "causal=1 rows_first=1", 256},
    /* softmax and loss */
    {IR_OP_SOFTMAX, "f", "T:3,5", "axis=1", 256},
    {IR_OP_SOFTMAX, "f", "T:3,5,2", "axis=1", 256},
    {IR_OP_SOFTMAX, "f", "T:40,1000", "axis=1", 256},
    {IR_OP_SOFTMAX, "f", "T:0,5", "axis=1", 256},
    {IR_OP_SOFTMAX, "f", "T:5,1", "axis=1", 256},
    {IR_OP_SOFTMAX_GRAD, "f", "T:3,5 T:3,5", "axis=1", 256},
    {IR_OP_SOFTMAX_GRAD, "f", "T:3,5,2 T:3,5,2", "axis=1", 256},
    {IR_OP_SOFTMAX_GRAD, "f", "T:40,1000 T:40,1000", "axis=1", 256},
    {IR_OP_LOG_SOFTMAX, "f", "T:3,5", "axis=1", 256},
    {IR_OP_LOG_SOFTMAX, "f", "T:3,5,2", "axis=0", 256},
    {IR_OP_LOG_SOFTMAX, "f", "T:40,1000", "axis=1", 256},
    {IR_OP_LOG_SOFTMAX_GRAD, "f", "T:3,5 T:3,5", "axis=1", 256},
    {IR_OP_LOG_SOFTMAX_GRAD, "f", "T:3,5,2 T:3,5,2", "axis=0", 256},
    {IR_OP_CROSS_ENTROPY, "f", "T:5,7 i^7:5", "", 256},
    {IR_OP_CROSS_ENTROPY, "f", "T:5,3 l^3:5 w+:3", "smoothing=0.1 ignore_index=1", 256},
    {IR_OP_CROSS_ENTROPY, "f", "T:5,3 l^3:5", "mean=0", 256},
    {IR_OP_CROSS_ENTROPY, "f", "T:4,3 l=-100:4", "", 256},
    {IR_OP_CROSS_ENTROPY_ROWS, "f", "T:5,7 i^7:5", "", 256},
    {IR_OP_CROSS_ENTROPY_ROWS, "f", "T:9,3 l^3:9 w+:3", "smoothing=0.1 ignore_index=1", 256},
    {IR_OP_CROSS_ENTROPY_ROWS, "f", "T:0,7 i^7:0", "", 256},
    {IR_OP_CROSS_ENTROPY_ROWS, "f", "T:33,519 i^519:33", "smoothing=0.2", 256},
    {IR_OP_CROSS_ENTROPY_GRAD, "f", "W: T:5,7 i^7:5 W+:5", "", 512},
    {IR_OP_CROSS_ENTROPY_GRAD, "f", "W:9 T:9,3 l^3:9 W+:9 W+:3", "smoothing=0.1 ignore_index=1",
     512},
    {IR_OP_CROSS_ENTROPY_GRAD, "f", "W:33 T:33,519 i^519:33 W+:33", "smoothing=0.2", 512},
    /* normalizations */
    {IR_OP_BATCH_NORM, "f", "T:4,3,5 T:3 T:3 t:3 t+:3", "momentum=0.3", 256},
    {IR_OP_BATCH_NORM, "f", "T:4,3,5 W:3 W:3 w:3 w+:3", "momentum=0.3", 256},
    {IR_OP_BATCH_NORM, "f", "T:4,3 T:3 T:3 t:3 t+:3", "unbiased=0 eps=0.01", 256},
    {IR_OP_BATCH_NORM, "f", "T:4,3,2,2 T:3 T:3 t:3 t+:3", "train=0", 256},
    {IR_OP_CHANNEL_SUM, "f", "T:4,3,5", "", 256},
    {IR_OP_CHANNEL_SUM, "f", "T:4,3", "", 256},
    {IR_OP_CHANNEL_SUM, "f", "T:3,17,40,5", "", 256},
    {IR_OP_CHANNEL_CENTERED_SQUARES, "f", "T:4,3,5 W:3", "", 256},
    {IR_OP_CHANNEL_CENTERED_SQUARES, "f", "T:3,17,40,5 W:17", "", 256},
    {IR_OP_BATCH_NORM_APPLY, "f", "T:4,3,5 W:3 W+:3 T:3 T:3", "count=20", 256},
    {IR_OP_BATCH_NORM_APPLY, "f", "T:4,3 W:3 W+:3 T:3 T:3", "count=4", 256},
    {IR_OP_BATCH_NORM_APPLY, "f", "T:3,17,40,5 W:17 W+:17 T:17 T:17", "count=600", 256},
    {IR_OP_BATCH_NORM_APPLY, "f", "T:3,17,40,5 W:17 W+:17 W:17 W:17", "count=600", 256},
    {IR_OP_BATCH_NORM_GRAD_SUMS, "f", "T:4,3,5 T:4,3,5 W:3 W+:3", "", 256},
    {IR_OP_BATCH_NORM_GRAD_SUMS, "f", "T:3,17,40,5 T:3,17,40,5 W:17 W+:17", "", 256},
    {IR_OP_BATCH_NORM_GRAD_APPLY, "f", "T:4,3,5 T:4,3,5 W:3 W+:3 T:3 W:3 W:3", "count=20", 256},
    {IR_OP_BATCH_NORM_GRAD_APPLY, "f", "T:4,3,5 T:4,3,5 W:3 W+:3 W:3 W:3 W:3", "count=20", 256},
    {IR_OP_BATCH_NORM_GRAD_APPLY, "f", "T:3,17,40,5 T:3,17,40,5 W:17 W+:17 T:17 W:17 W:17",
     "count=600", 256},
    {IR_OP_LAYER_NORM, "f", "T:4,7 T:7 T:7", "", 256},
    {IR_OP_LAYER_NORM, "f", "T:2,3,4 T:3,4 T:3,4", "eps=0.1", 256},
    {IR_OP_LAYER_NORM, "f", "T:131,200 T:200 T:200", "", 256},
    {IR_OP_LAYER_NORM, "f", "T:131,200 W:200 W:200", "", 256},
    {IR_OP_LAYER_NORM, "f", "T:0,7 T:7 T:7", "", 256},
    {IR_OP_LAYER_NORM_GRAD, "f", "T:4,7 T:4,7 W:4 W+:4 T:7", "", 256},
    {IR_OP_LAYER_NORM_GRAD, "f", "T:2,3,4 T:2,3,4 W:2 W+:2 T:3,4", "", 256},
    {IR_OP_LAYER_NORM_GRAD, "f", "T:1025,70 T:1025,70 W:1025 W+:1025 T:70", "", 256},
    {IR_OP_LAYER_NORM_GRAD, "f", "T:1025,70 T:1025,70 W:1025 W+:1025 W:70", "", 256},
    {IR_OP_LAYER_NORM_GRAD, "f", "T:0,7 T:0,7 W:0 W+:0 T:7", "", 256},
    {IR_OP_RMS_NORM, "f", "T:4,7 T:7", "", 256},
    {IR_OP_RMS_NORM, "f", "T:2,3,4 T:4", "eps=0.1", 256},
    {IR_OP_RMS_NORM, "f", "T:131,200 T:200", "", 256},
    {IR_OP_RMS_NORM, "f", "T:131,200 W:200", "", 256},
    {IR_OP_RMS_NORM, "f", "T:5 T:5", "", 256},
    {IR_OP_RMS_NORM_GRAD, "f", "T:4,7 T:4,7 W+:4 T:7", "", 256},
    {IR_OP_RMS_NORM_GRAD, "f", "T:2,3,4 T:2,3,4 W+:2,3 T:4", "", 256},
    {IR_OP_RMS_NORM_GRAD, "f", "T:1025,70 T:1025,70 W+:1025 T:70", "", 256},
    {IR_OP_RMS_NORM_GRAD, "f", "T:1025,70 T:1025,70 W+:1025 W:70", "", 256},
    {IR_OP_ROPE, "f", "T:2,3,5,4 t:5,2 t:5,2", "", 0},
    {IR_OP_ROPE, "f", "T:2,3,5,4 t:5,2 t:5,2", "interleaved=1", 0},
    {IR_OP_ROPE, "f", "T:2,3,65,36 t:65,18 t:65,18", "inverse=1", 0},
    {IR_OP_ROPE, "f", "T:2,3,65,36 w:65,18 w:65,18", "inverse=1", 0},
    {IR_OP_ROPE, "f", "T:1,2,3,6 t:3,3 t:3,3", "interleaved=1 inverse=1", 0},
    {IR_OP_ROPE, "f", "T:2,3,5,32 t:5,16 t:5,16", "", 0},
    {IR_OP_ROPE, "f", "T:2,5,3,48 t:5,24 t:5,24", "inverse=1 rows_first=1", 0},
    {IR_OP_ROPE, "f", "T:2,5,3,48 w:5,24 w:5,24", "rows_first=1", 0},
    {IR_OP_ROPE, "f", "T:2,5,3,4 t:5,2 t:5,2", "rows_first=1", 0},
    {IR_OP_ROPE, "f", "T:2,65,3,36 w:65,18 w:65,18", "inverse=1 interleaved=1 rows_first=1", 0},
    {IR_OP_DROPOUT, "f", "T:5,7 l=42: l=3:", "p=0.3 id=4", 0},
    {IR_OP_DROPOUT, "f", "T:5,7 l=42: l=7: l=3:", "p=0.25 id=3", 0},
    {IR_OP_DROPOUT, "f", "T:4,4 l=42: l=7: l=2:", "p=0.25 id=3", 0},
    {IR_OP_DROPOUT, "f", "T:3,4 l=42: l=3:", "p=0.5 id=4 begin=2,1 global=8,7", 0},
    {IR_OP_DROPOUT, "f", "T:40001 l=-5: l=3:", "p=0.1 id=4", 0},
    {IR_OP_DROPOUT, "f", "T:5,7 l=42: l=3:", "p=0.3 id=4 train=0", 0},
    {IR_OP_DROPOUT, "f", "T:5 l=42: l=3:", "p=1 id=4", 0},
    /* optimizer */
    {IR_OP_SGD, "f", "T:5,7 T:5,7 d=0.1: T=0.5:", "weight_decay=0.01", 0},
    {IR_OP_SGD, "f", "T:17003 T:17003 d=0.1: T=1: T:17003", "momentum=0.9", 0},
    {IR_OP_SGD, "f", "T:5 T:5 d=0.1: T=1: T:5",
     "momentum=0.9 dampening=0.1 nesterov=0 weight_decay=0.1", 0},
    {IR_OP_SGD, "f", "T:5 T:5 d=0.1: T=1: T:5", "momentum=0.9 nesterov=1", 0},
    {IR_OP_SGD, "f", "W:17003 T:17003 d=0.1: W=0.5: W:17003", "momentum=0.9 nesterov=1", 0},
    {IR_OP_SGD, "f", "W:17003 T:17003 d=0.1: W=0.5: b=1:", "", 0},
    {IR_OP_SGD, "f", "W:17003 T:17003 d=0.1: W=0.5: b=0:", "", 0},
    {IR_OP_SGD, "f", "T:5 T:5 d=0.1: T=1: T:5 b=0:", "momentum=0.9", 0},
    {IR_OP_ADAMW, "f", "T:5,7 T:5,7 T:5,7 T+:5,7 d=0.1: l=3: T=0.5:", "", 0},
    {IR_OP_ADAMW, "f", "T:17003 T:17003 T:17003 T+:17003 d=0.01: l=1: T=1:", "weight_decay=0.1", 0},
    {IR_OP_ADAMW, "f", "T:5 T:5 T:5 T+:5 d=0.1: l=1000: T=1:",
     "decoupled=0 weight_decay=0.1 beta1=0.8 beta2=0.95", 0},
    {IR_OP_ADAMW, "f", "T:0 T:0 T:0 T:0 d=0.1: l=3: T=0.5:", "", 0},
    {IR_OP_ADAMW, "f", "W:17003 T:17003 W:17003 W+:17003 d=0.01: l=2: W=0.5:", "", 0},
    {IR_OP_ADAMW, "f", "W:17003 T:17003 W:17003 W+:17003 d=0.01: l=2: W=0.5: b=1:", "", 0},
    {IR_OP_ADAMW, "f", "T:5,7 T:5,7 T:5,7 T+:5,7 d=0.1: l=3: T=0.5: b=0:", "", 0},
    {IR_OP_LR_SCHEDULE, "-", "l=3:", "base=0.1", 0},
    {IR_OP_LR_SCHEDULE, "-", "l=3:", "base=0.1 warmup=10 total=100 kind=linear min=0.01", 0},
    {IR_OP_LR_SCHEDULE, "-", "l=40:", "base=0.1 warmup=10 total=100 kind=linear min=0.01", 0},
    {IR_OP_LR_SCHEDULE, "-", "l=11:", "base=0.1 warmup=10 total=100 kind=cosine min=0.01", 0},
    {IR_OP_LR_SCHEDULE, "-", "l=55:", "base=0.1 warmup=10 total=100 kind=cosine min=0.01", 0},
    {IR_OP_LR_SCHEDULE, "-", "l=500:", "base=0.1 warmup=10 total=100 kind=cosine min=0.01", 0},
    /* regions */
    {IR_OP_FUSED, "f", "T:3,35 T:35", "body=bias", 16},
    {IR_OP_FUSED, "fi", "T:2,6", "body=passes", 0},
    {IR_OP_FUSED, "f", "T:4,5", "body=centre", 16},
    {IR_OP_FUSED, "f", "T:0,3", "body=empty", 0},
    {IR_OP_FUSED, "-", "", "body=source", 0},
    {IR_OP_FUSED, "f", "T:7", "body=nested", 16},
    {IR_OP_FUSED, "f", "T:9,16 T:16", "body=looked_up", 16},
    {IR_OP_FUSED, "f", "T:300,16 T:300,16", "body=scaled_rows", 300},
    {IR_OP_FUSED, "f", "T<16:300,24", "body=statistics", 300},
    {IR_OP_FUSED, "f", "T:30,1400", "body=long_rows", 1400},
    {IR_OP_CROSS_ENTROPY_ROWS, "f", "T:3,2300 l^2300:3", "", 2300},
    {IR_OP_CROSS_ENTROPY_GRAD, "f", "W:270 T:270,4104 l^4104:270 W+:270", "", 4104},
    {IR_OP_FUSED, "f", "T:3,40,1100", "body=inner_statistics", 3300},
    {IR_OP_REPEAT, "f", "T:2,3 l=5: T:4,2,3 T:3,3", "body=recurrence trip=4 carried=2 scanned=1",
     64},
    {IR_OP_REPEAT, "f", "T:2,3 l=5: T:4,2,3 T:3,3",
     "body=recurrence trip=4 carried=2 scanned=1 reverse=1", 64},
    {IR_OP_REPEAT, "fi", "T:4 T:4 T:3,4", "body=swap trip=3 carried=2 scanned=1", 4},
    {IR_OP_REPEAT, "fi", "T:4 T:4 T:3,4", "body=swap trip=3 carried=2 scanned=1 reverse=1", 4},
    {IR_OP_REPEAT, "f", "T:4,5 T:5", "body=sum trip=4 scanned=1", 0},
    {IR_OP_REPEAT, "f", "T:3 T:3", "body=power trip=5 carried=1", 64},
    {IR_OP_REPEAT, "f", "T:3 T:3", "body=power trip=0 carried=1", 0},
    {IR_OP_REPEAT, "f", "T:3 T:3", "body=power trip=1 carried=1", 4},
    {IR_OP_REPEAT, "f", "T:2 T:2,3,2 T:2", "body=loops trip=2 carried=1 scanned=1", 64},
    {IR_OP_COND, "f", "b=1: T:3 T:3", "then=plus else=times", 16},
    {IR_OP_COND, "f", "b=0: T:3 T:3", "then=plus else=times", 16},
};
const size_t conf_n_cases = sizeof conf_cases / sizeof *conf_cases;
