/* Statements of a nest in CUDA C (writer.h).
 *
 * A statement is one C variable s<index>: a scalar, or an array of `vector` elements where it
 * depends on the vector axis, or one per chunk of a row where a row's loads stay in registers. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ir/op.h"
#include "kernels/emit/writer.h"

void emit_put(writer_t *w, const char *format, ...) {
    text_t *t = w->out;
    for (int turn = 0; turn < 2 && !t->failed; turn++) {
        va_list args;
        va_start(args, format);
        int n = vsnprintf(t->data ? t->data + t->n : NULL, t->data ? t->capacity - t->n : 0, format,
                          args);
        va_end(args);
        if (n < 0) break;
        if (t->data && t->n + (size_t)n < t->capacity) {
            t->n += (size_t)n;
            return;
        }
        size_t capacity = (t->n + (size_t)n + 1) * 2 + 16384;
        char *grown = st_realloc(t->data, capacity);
        if (!grown) break;
        t->data = grown;
        t->capacity = capacity;
    }
    t->failed = true;
}

/* ---- names and types ---- */

static bool is_real(const nest_stmt_t *stmt) {
    return stmt->kind == NEST_RANDOM || (stmt->kind != NEST_IOTA && ir_dtype_is_float(stmt->dtype));
}

const char *emit_tensor_type(ir_dtype_t dtype) {
    static const struct {
        ir_dtype_t dtype;
        const char *name;
    } types[] = {{IR_F32, "float"}, {IR_F64, "double"},     {IR_BF16, "bf16"},
                 {IR_F16, "f16"},   {IR_I8, "signed char"}, {IR_U8, "unsigned char"},
                 {IR_I32, "int"},   {IR_I64, "long long"},  {IR_BOOL, "bool"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

/* Whole numbers that 32 bits hold: truths, and places among few elements. Half of what a GPU does
 * with 64 bits it does several times slower, converting them above all. */
static bool is_short(const writer_t *w, const nest_stmt_t *stmt) {
    if (stmt->dtype == IR_BOOL) return true;
    if (stmt->kind != NEST_IOTA) return false;
    int64_t low = stmt->access.offset, high = low;
    for (uint32_t i = 0; i < NEST_MAX_AXES; i++) {
        if (!(stmt->mask >> i & 1)) continue;
        const int64_t reach =
            stmt->access.stride[i] * w->nest->domains[stmt->domain].axes[i].extent;
        *(reach < 0 ? &low : &high) += reach;
    }
    return low >= INT32_MIN && high <= INT32_MAX;
}

const char *emit_value_type(const writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    if (!is_real(stmt)) return is_short(w, stmt) ? "int" : "long long";
    if (stmt->domain == NEST_NONE || (!stmt->mask && !stmt->over)) return "double";
    return w->nest->domains[stmt->domain].wide ? "double" : "float";
}

const char *emit_sum_type(const writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    if (!is_real(stmt)) return "long long";
    return stmt->domain == NEST_NONE || w->nest->domains[stmt->domain].wide ? "double" : "float";
}

bool emit_along_vector(const writer_t *w, nest_value_t v) {
    return w->k->vector_axis >= 0 && (emit_stmt(w, v)->mask >> w->k->vector_axis & 1);
}

bool emit_is_kept(const writer_t *w, nest_value_t v) {
    return w->persistent && emit_stmt(w, v)->kind == NEST_LOAD &&
           (emit_stmt(w, v)->mask & w->k->cols);
}

uint32_t emit_number(writer_t *w, nest_value_t v) {
    if (!w->names) return v;
    if (!w->names->stmt[v]) w->names->stmt[v] = ++w->names->n_stmts;
    return w->names->stmt[v] - 1;
}

/* Its index in the kernel's own numbers. */
static uint32_t add_own(writer_t *w, int64_t number) {
    emit_names_t *names = w->names;
    if (ST_VEC_PUSH(&names->own, number) != ST_OK) w->out->failed = true;
    return (uint32_t)names->own.n - 1;
}

void emit_pointer(writer_t *w, uint32_t tensor) {
    emit_names_t *names = w->names;
    if (!names) {
        emit_put(w, "p.t[%u]", tensor);
        return;
    }
    if (!names->slot[tensor]) names->slot[tensor] = add_own(w, tensor);
    emit_put(w, "p.t[own[%u]]", names->slot[tensor]);
}

void emit_own(writer_t *w, int64_t number) {
    if (w->names)
        emit_put(w, "(%s)own[%u]", w->index, add_own(w, number));
    else
        emit_put(w, "(%s)%" PRId64, w->index, number);
}

void emit_work(writer_t *w, const char *type, uint64_t offset) {
    if (w->names)
        emit_put(w, "((%s *)(p.work + own[%u]))", type, add_own(w, (int64_t)offset));
    else
        emit_put(w, "((%s *)(p.work + %" PRIu64 "ull))", type, offset);
}

void emit_name(writer_t *w, nest_value_t v) {
    emit_put(w, "s%u", emit_number(w, v));
    if (emit_is_kept(w, v)) emit_put(w, "[e]");
    if (emit_along_vector(w, v)) emit_put(w, "[v]");
}

/* The value in the arithmetic of the statement `in`. */
static void put_arg(writer_t *w, nest_value_t in, nest_value_t v) {
    bool real = is_real(emit_stmt(w, v));
    const char *type = emit_value_type(w, in);
    if (real && is_real(emit_stmt(w, in)) && strcmp(type, emit_value_type(w, v)) != 0)
        emit_put(w, "(%s)", type);
    emit_name(w, v);
}

/* ---- positions ---- */

void emit_position(writer_t *w, const nest_access_t *a, uint32_t mask) {
    emit_put(w, "%" PRId64, a->offset);
    for (uint32_t i = 0; i < NEST_MAX_AXES; i++)
        if ((mask >> i & 1) && a->stride[i])
            emit_put(w, " + i%u * (%s)%" PRId64, i, w->index, a->stride[i]);
}

/* Position among the points of `mask`, the last axis fastest. */
static void put_point(writer_t *w, uint32_t domain, uint32_t mask) {
    const nest_domain_t *d = &w->nest->domains[domain];
    bool first = true;
    for (uint32_t i = 0; i < d->n_axes; i++) {
        if (!(mask >> i & 1)) continue;
        uint32_t inner = mask & ~((2u << i) - 1);
        emit_put(w, "%si%u * (%s)%" PRId64, first ? "" : " + ", i, w->index, nest_points(d, inner));
        first = false;
    }
    if (first) emit_put(w, "0");
}

void emit_axes(writer_t *w, uint32_t mask, const char *from) {
    const nest_domain_t *d = &w->nest->domains[w->k->domain];
    emit_put(w, "%s r = %s;\n", w->index, from);
    for (int32_t i = (int32_t)d->n_axes - 1; i >= 0; i--) {
        if (!(mask >> i & 1)) continue;
        bool last = (mask & ((1u << i) - 1)) == 0;
        int64_t step = i == w->k->vector_axis ? w->k->vector : 1;
        int64_t extent = d->axes[i].extent / step;
        if (last)
            emit_put(w, "const %s i%d = r", w->index, i);
        else
            emit_put(w, "const %s i%d = r %% (%s)%" PRId64, w->index, i, w->index, extent);
        emit_put(w, step > 1 ? " * %" PRId64 ";\n" : ";\n", step);
        if (!last) emit_put(w, "r /= (%s)%" PRId64 ";\n", w->index, extent);
    }
}

/* ---- operations ---- */

typedef struct op_row {
    ir_op_t op;
    const char *real, *integer; /* $0 $1 $2: arguments, R: the real type; NULL: not of that kind */
} op_row_t;

static const op_row_t op_rows[] = {
    {IR_OP_NEG, "-$0", "-$0"},
    {IR_OP_ABS, "fabs($0)", "$0 < 0 ? -$0 : $0"},
    {IR_OP_EXP, "exp($0)", NULL},
    {IR_OP_LOG, "log($0)", NULL},
    {IR_OP_SQRT, "sqrt($0)", NULL},
    {IR_OP_RSQRT, "(R)1 / sqrt($0)", NULL},
    {IR_OP_RECIPROCAL, "(R)1 / $0", NULL},
    {IR_OP_SIN, "sin($0)", NULL},
    {IR_OP_COS, "cos($0)", NULL},
    {IR_OP_TANH, "tanh($0)", NULL},
    {IR_OP_SIGMOID, "sigmoid($0)", NULL},
    {IR_OP_ERF, "erf($0)", NULL},
    {IR_OP_RELU, "relu($0)", "$0 > 0 ? $0 : 0"},
    {IR_OP_SILU, "$0 * sigmoid($0)", NULL},
    {IR_OP_SIGN, "sign($0)", "($0 > 0) - ($0 < 0)"},
    {IR_OP_FLOOR, "floor($0)", "$0"},
    {IR_OP_CEIL, "ceil($0)", "$0"},
    {IR_OP_ROUND, "rint($0)", "$0"},
    {IR_OP_LOGICAL_NOT, NULL, "!$0"},
    {IR_OP_SQUARE, "$0 * $0", "$0 * $0"},
    {IR_OP_RELU_GRAD, "$1 > 0 ? $0 : (R)0", NULL},
    {IR_OP_SILU_GRAD, "silu_grad($0, $1)", NULL},
    {IR_OP_ADD, "$0 + $1", "$0 + $1"},
    {IR_OP_SUB, "$0 - $1", "$0 - $1"},
    {IR_OP_MUL, "$0 * $1", "$0 * $1"},
    {IR_OP_DIV, "$0 / $1", "int_div($0, $1)"},
    {IR_OP_POW, "pow($0, $1)", "int_pow($0, $1)"},
    {IR_OP_MAXIMUM, "maximum($0, $1)", "$0 > $1 ? $0 : $1"},
    {IR_OP_MINIMUM, "minimum($0, $1)", "$0 < $1 ? $0 : $1"},
    {IR_OP_MOD, "modulo($0, $1)", "int_mod($0, $1)"},
    {IR_OP_EQ, "$0 == $1", "$0 == $1"},
    {IR_OP_NE, "$0 != $1", "$0 != $1"},
    {IR_OP_LT, "$0 < $1", "$0 < $1"},
    {IR_OP_LE, "$0 <= $1", "$0 <= $1"},
    {IR_OP_GT, "$0 > $1", "$0 > $1"},
    {IR_OP_GE, "$0 >= $1", "$0 >= $1"},
    {IR_OP_LOGICAL_AND, NULL, "$0 && $1"},
    {IR_OP_LOGICAL_OR, NULL, "$0 || $1"},
    {IR_OP_SELECT, "$0 ? $1 : $2", "$0 ? $1 : $2"},
};

static const char *const gelu_names[2][2] = {{"gelu", "gelu_tanh"},
                                             {"gelu_grad", "gelu_tanh_grad"}};

/* Arithmetic of a statement: that of its arguments where they are real (a comparison has a bool
 * result), its own otherwise. */
static bool real_arithmetic(const writer_t *w, const nest_stmt_t *stmt) {
    bool real = is_real(stmt);
    for (uint32_t j = stmt->op == IR_OP_SELECT ? 1 : 0; j < stmt->n_args; j++)
        real |= is_real(emit_stmt(w, stmt->args[j]));
    return real;
}

static void put_pattern(writer_t *w, nest_value_t v, const char *pattern) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    const char *type = is_real(stmt) ? emit_value_type(w, v) : NULL;
    for (uint32_t j = 0; j < stmt->n_args && !type; j++)
        if (is_real(emit_stmt(w, stmt->args[j]))) type = emit_value_type(w, stmt->args[j]);
    const bool wide = !type && stmt->dtype != IR_BOOL; /* 32 bits may not hold what comes of them */
    for (const char *c = pattern; *c; c++) {
        if (*c == '$') {
            nest_value_t arg = stmt->args[*++c - '0'];
            if (type && is_real(emit_stmt(w, arg)) && strcmp(type, emit_value_type(w, arg)) != 0)
                emit_put(w, "(%s)", type);
            if (wide && is_short(w, emit_stmt(w, arg))) emit_put(w, "(long long)");
            emit_name(w, arg);
        } else if (*c == 'R') {
            emit_put(w, "%s", type ? type : "long long");
        } else {
            emit_put(w, "%c", *c);
        }
    }
}

static void put_cast(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    nest_value_t arg = stmt->args[0];
    if (stmt->dtype == IR_BOOL) {
        emit_name(w, arg);
        emit_put(w, " != 0");
    } else if (is_real(stmt) && is_real(emit_stmt(w, arg))) { /* rounds */
        emit_put(w, "(%s)real(to<%s>(", emit_value_type(w, v), emit_tensor_type(stmt->dtype));
        emit_name(w, arg);
        emit_put(w, "))");
    } else if (is_real(stmt)) {
        emit_put(w, "(%s)", emit_value_type(w, v));
        emit_name(w, arg);
    } else {
        emit_put(w, "(long long)(%s)", emit_tensor_type(stmt->dtype));
        emit_name(w, arg);
    }
}

static st_status_t put_operation(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    if (stmt->op == IR_OP_CAST) {
        put_cast(w, v);
        return ST_OK;
    }
    if (stmt->op == IR_OP_GELU || stmt->op == IR_OP_GELU_GRAD) {
        emit_put(w, "%s(", gelu_names[stmt->op == IR_OP_GELU_GRAD][stmt->flag]);
        for (uint32_t j = 0; j < stmt->n_args; j++) {
            emit_put(w, j ? ", " : "");
            put_arg(w, v, stmt->args[j]);
        }
        emit_put(w, ")");
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof op_rows / sizeof op_rows[0]; i++) {
        if (op_rows[i].op != stmt->op) continue;
        bool real = real_arithmetic(w, stmt);
        const char *pattern = real ? op_rows[i].real : op_rows[i].integer;
        if (!pattern) break;
        bool narrow = !real && stmt->dtype != IR_I64 && stmt->dtype != IR_BOOL;
        if (narrow) emit_put(w, "(long long)(%s)(", emit_tensor_type(stmt->dtype));
        put_pattern(w, v, pattern);
        if (narrow) emit_put(w, ")");
        return ST_OK;
    }
    return FAIL(ST_UNSUPPORTED, "op %s of %s has no CUDA form in a nest", ir_op_def(stmt->op)->name,
                ir_dtype_text(stmt->dtype));
}

/* ---- loads ---- */

static void put_tensor(writer_t *w, const nest_access_t *a) {
    emit_put(w, "((const %s *)", emit_tensor_type(a->dtype));
    emit_pointer(w, a->tensor);
    emit_put(w, ")");
}

static void put_index(writer_t *w, nest_value_t v) {
    const nest_access_t *a = &emit_stmt(w, v)->access;
    emit_put(w, " + checked(p, ");
    emit_name(w, a->index);
    emit_put(w, ", %" PRId64 ", ", a->index_extent);
    put_point(w, emit_stmt(w, v)->domain, emit_stmt(w, a->index)->mask);
    emit_put(w, "%s) * %" PRId64 "ll", emit_along_vector(w, a->index) ? " + v" : "",
             a->index_stride);
}

static void put_load(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    const nest_access_t *a = &stmt->access;
    bool vector = emit_along_vector(w, v), real = is_real(stmt);
    uint32_t mask = stmt->mask;
    if (a->index != NEST_NONE) mask |= emit_stmt(w, a->index)->mask;
    const bool scattered = a->index != NEST_NONE && emit_along_vector(w, a->index);
    if (vector && !scattered && a->tensor != NEST_NONE && emit_access_vector(w->k, a)) {
        emit_put(w, "load<%u>(", w->k->vector);
        put_tensor(w, a);
        emit_put(w, " + ");
        emit_position(w, a, mask);
        if (a->index != NEST_NONE) put_index(w, v);
        emit_put(w, ", s%u%s);\n", emit_number(w, v), emit_is_kept(w, v) ? "[e]" : "");
        return;
    }
    if (vector) emit_put(w, "EACH ");
    emit_name(w, v);
    emit_put(w, " = %s(", real ? "real" : "(long long)");
    if (a->tensor == NEST_NONE)
        emit_put(w, "d%u", v);
    else
        put_tensor(w, a);
    emit_put(w, "[");
    emit_position(w, a, mask);
    if (vector && a->stride[w->k->vector_axis])
        emit_put(w, " + v * (%s)%" PRId64, w->index, a->stride[w->k->vector_axis]);
    if (a->index != NEST_NONE) put_index(w, v);
    emit_put(w, "]);\n");
}

/* ---- statements ---- */

static void put_declaration(writer_t *w, nest_value_t v) {
    if (emit_is_kept(w, v)) return; /* declared with the row */
    emit_put(w, "%s s%u", emit_value_type(w, v), emit_number(w, v));
    if (emit_along_vector(w, v)) emit_put(w, "[%u]", w->k->vector);
    emit_put(w, ";\n");
}

static void put_random(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    emit_put(w, "uniform24((long long)");
    emit_name(w, stmt->args[0]);
    emit_put(w, ", %" PRId64 "ll, (long long)", stmt->integer);
    emit_name(w, stmt->args[1]);
    emit_put(w, ", ");
    emit_position(w, &stmt->access, stmt->mask);
    if (emit_along_vector(w, v))
        emit_put(w, " + v * %" PRId64 "ll", stmt->access.stride[w->k->vector_axis]);
    if (stmt->n_args > 2) {
        emit_put(w, " + (long long)");
        emit_name(w, stmt->args[2]);
        emit_put(w, " * %" PRId64 "ll", stmt->access.index_stride);
    }
    emit_put(w, ")");
}

bool emit_is_stored_uniform(const writer_t *w, nest_value_t v) {
    return w->s->uniform[v] != UINT64_MAX &&
           (w->k->shape != EMIT_UNIFORM || w->s->level[v] < w->k->level);
}

/* Infinities and NaN have no spelling as numbers. */
static void put_real(writer_t *w, const char *type, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isfinite(value))
        emit_put(w, "(%s)%.17g", type, value);
    else
        emit_put(w, "(%s)__longlong_as_double(0x%016" PRIx64 "ll)", type, bits);
}

st_status_t emit_statement(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    const emit_grid_t *grid = &w->s->grid[v];
    put_declaration(w, v);
    if (stmt->kind == NEST_LOAD) {
        put_load(w, v);
        return ST_OK;
    }
    if (emit_along_vector(w, v)) emit_put(w, "EACH ");
    emit_name(w, v);
    emit_put(w, " = ");
    if (emit_is_result(w->s, w->k->level, v)) {
        emit_put(w, "(%s)((const %s *)(p.work + %" PRIu64 "ull))[", emit_value_type(w, v),
                 emit_sum_type(w, v), grid->result);
        if (stmt->domain != NEST_NONE) put_point(w, stmt->domain, stmt->mask);
        if (stmt->domain == NEST_NONE) emit_put(w, "0");
        if (emit_along_vector(w, v)) {
            uint32_t inner = stmt->mask & ~((2u << w->k->vector_axis) - 1);
            emit_put(w, " + v * %" PRId64, nest_points(&w->nest->domains[stmt->domain], inner));
        }
        emit_put(w, "]");
    } else if (emit_is_stored_uniform(w, v)) {
        emit_put(w, "*(const %s *)(p.work + %" PRIu64 "ull)", emit_value_type(w, v),
                 w->s->uniform[v]);
    } else if (stmt->kind == NEST_CONSTANT) {
        if (is_real(stmt))
            put_real(w, emit_value_type(w, v), stmt->real);
        else
            emit_put(w, "%" PRId64 "ll", stmt->integer);
    } else if (stmt->kind == NEST_IOTA) {
        emit_position(w, &stmt->access, stmt->mask);
        if (emit_along_vector(w, v))
            emit_put(w, " + v * %" PRId64 "ll", stmt->access.stride[w->k->vector_axis]);
    } else if (stmt->kind == NEST_RANDOM) {
        put_random(w, v);
    } else {
        TRY(put_operation(w, v));
    }
    emit_put(w, ";\n");
    return ST_OK;
}
