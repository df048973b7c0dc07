/* CUDA C of a schedule's kernels.
 *
 * A statement is one C variable s<index>: a scalar, or an array of `vector` elements where it depends
 * on the vector axis, or one per chunk of a row where a row's loads stay in registers. Statements are
 * written where their axes' loops are: uniform values first, then what rows know, then elements.
 * Nothing is included, and names are few: compiling one kernel takes tens of milliseconds. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ir/op.h"
#include "kernels/emit/schedule.h"
#include "kernels/emit/source.h"

typedef struct text {
    char *data;
    size_t n, capacity;
    bool failed;
} text_t;

typedef struct writer {
    const emit_schedule_t *s;
    const nest_t *nest;
    const emit_kernel_t *k;
    text_t *out;
    bool *needed;      /* [stmts] of the kernel */
    bool *written;     /* [stmts] in scope at row level or above */
    uint8_t *stage;    /* [stmts] ROWS: row reductions before it */
    const char *index; /* C type of positions */
    bool persistent;   /* ROWS: loads along a row are kept */
} writer_t;

__attribute__((format(printf, 2, 3))) static void put(writer_t *w, const char *format, ...) {
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

static const nest_stmt_t *stmt_at(const writer_t *w, nest_value_t v) {
    return &w->nest->stmts[v];
}

static bool is_real(const nest_stmt_t *stmt) {
    return stmt->kind == NEST_RANDOM || (stmt->kind != NEST_IOTA && ir_dtype_is_float(stmt->dtype));
}

static const char *tensor_type(ir_dtype_t dtype) {
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

static const char *value_type(const writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    if (!is_real(stmt)) return "long long";
    if (stmt->domain == NEST_NONE || (!stmt->mask && !stmt->over)) return "double";
    return w->s->wide[stmt->domain] ? "double" : "float";
}

/* Accumulator of a reduction, in registers and in the workspace. */
static const char *sum_type(const writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    if (!is_real(stmt)) return "long long";
    return stmt->domain == NEST_NONE || w->s->wide[stmt->domain] ? "double" : "float";
}

static bool along_vector(const writer_t *w, nest_value_t v) {
    return w->k->vector_axis >= 0 && (stmt_at(w, v)->mask >> w->k->vector_axis & 1);
}

static bool is_kept(const writer_t *w, nest_value_t v) {
    return w->persistent && stmt_at(w, v)->kind == NEST_LOAD && (stmt_at(w, v)->mask & w->k->cols);
}

/* Variable of a value at the element at hand. */
static void put_name(writer_t *w, nest_value_t v) {
    put(w, "s%u", v);
    if (is_kept(w, v)) put(w, "[e]");
    if (along_vector(w, v)) put(w, "[v]");
}

/* The value in the arithmetic of the statement `in`. */
static void put_arg(writer_t *w, nest_value_t in, nest_value_t v) {
    bool real = is_real(stmt_at(w, v));
    const char *type = value_type(w, in);
    if (real && is_real(stmt_at(w, in)) && strcmp(type, value_type(w, v)) != 0)
        put(w, "(%s)", type);
    put_name(w, v);
}

/* ---- positions ---- */

static void put_position(writer_t *w, const nest_access_t *a, uint32_t mask) {
    put(w, "%" PRId64, a->offset);
    for (uint32_t i = 0; i < NEST_MAX_AXES; i++)
        if ((mask >> i & 1) && a->stride[i])
            put(w, " + i%u * (%s)%" PRId64, i, w->index, a->stride[i]);
}

/* Position among the points of `mask`, the last axis fastest. */
static void put_point(writer_t *w, uint32_t domain, uint32_t mask) {
    const nest_domain_t *d = &w->nest->domains[domain];
    bool first = true;
    for (uint32_t i = 0; i < d->n_axes; i++) {
        if (!(mask >> i & 1)) continue;
        uint32_t inner = mask & ~((2u << i) - 1);
        put(w, "%si%u * (%s)%" PRId64, first ? "" : " + ", i, w->index, nest_points(d, inner));
        first = false;
    }
    if (first) put(w, "0");
}

/* Axes of `mask` from the linear position `from`; the vector axis, if among them, in steps of
 * `vector`. */
static void put_axes(writer_t *w, uint32_t mask, const char *from) {
    const nest_domain_t *d = &w->nest->domains[w->k->domain];
    put(w, "%s r = %s;\n", w->index, from);
    for (int32_t i = (int32_t)d->n_axes - 1; i >= 0; i--) {
        if (!(mask >> i & 1)) continue;
        bool last = (mask & ((1u << i) - 1)) == 0;
        int64_t step = i == w->k->vector_axis ? w->k->vector : 1;
        int64_t extent = d->axes[i].extent / step;
        if (last)
            put(w, "const %s i%d = r", w->index, i);
        else
            put(w, "const %s i%d = r %% (%s)%" PRId64, w->index, i, w->index, extent);
        put(w, step > 1 ? " * %" PRId64 ";\n" : ";\n", step);
        if (!last) put(w, "r /= (%s)%" PRId64 ";\n", w->index, extent);
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
        real |= is_real(stmt_at(w, stmt->args[j]));
    return real;
}

static void put_pattern(writer_t *w, nest_value_t v, const char *pattern) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    const char *type = is_real(stmt) ? value_type(w, v) : NULL;
    for (uint32_t j = 0; j < stmt->n_args && !type; j++)
        if (is_real(stmt_at(w, stmt->args[j]))) type = value_type(w, stmt->args[j]);
    for (const char *c = pattern; *c; c++) {
        if (*c == '$') {
            nest_value_t arg = stmt->args[*++c - '0'];
            if (type && is_real(stmt_at(w, arg)) && strcmp(type, value_type(w, arg)) != 0)
                put(w, "(%s)", type);
            put_name(w, arg);
        } else if (*c == 'R') {
            put(w, "%s", type ? type : "long long");
        } else {
            put(w, "%c", *c);
        }
    }
}

static void put_cast(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    nest_value_t arg = stmt->args[0];
    if (stmt->dtype == IR_BOOL) {
        put_name(w, arg);
        put(w, " != 0");
    } else if (is_real(stmt)) {
        put(w, "(%s)", value_type(w, v));
        put_name(w, arg);
    } else {
        put(w, "(long long)(%s)", tensor_type(stmt->dtype));
        put_name(w, arg);
    }
}

static st_status_t put_operation(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    if (stmt->op == IR_OP_CAST) {
        put_cast(w, v);
        return ST_OK;
    }
    if (stmt->op == IR_OP_GELU || stmt->op == IR_OP_GELU_GRAD) {
        put(w, "%s(", gelu_names[stmt->op == IR_OP_GELU_GRAD][stmt->flag]);
        for (uint32_t j = 0; j < stmt->n_args; j++) {
            put(w, j ? ", " : "");
            put_arg(w, v, stmt->args[j]);
        }
        put(w, ")");
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof op_rows / sizeof op_rows[0]; i++) {
        if (op_rows[i].op != stmt->op) continue;
        bool real = real_arithmetic(w, stmt);
        const char *pattern = real ? op_rows[i].real : op_rows[i].integer;
        if (!pattern) break;
        bool narrow = !real && stmt->dtype != IR_I64 && stmt->dtype != IR_BOOL;
        if (narrow) put(w, "(long long)(%s)(", tensor_type(stmt->dtype));
        put_pattern(w, v, pattern);
        if (narrow) put(w, ")");
        return ST_OK;
    }
    return FAIL(ST_UNSUPPORTED, "op %s of %s has no CUDA form in a nest", ir_op_def(stmt->op)->name,
                ir_dtype_text(stmt->dtype));
}

/* ---- loads ---- */

static void put_tensor(writer_t *w, const nest_access_t *a) {
    put(w, "((const %s *)p.t[%u])", tensor_type(a->dtype), a->tensor);
}

static void put_index(writer_t *w, nest_value_t v) {
    const nest_access_t *a = &stmt_at(w, v)->access;
    put(w, " + checked(p, ");
    put_name(w, a->index);
    put(w, ", %" PRId64 ", ", a->index_extent);
    put_point(w, stmt_at(w, v)->domain, stmt_at(w, a->index)->mask);
    put(w, ") * %" PRId64 "ll", a->index_stride);
}

static void put_load(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    const nest_access_t *a = &stmt->access;
    bool vector = along_vector(w, v), real = is_real(stmt);
    uint32_t mask = stmt->mask;
    if (a->index != NEST_NONE) mask |= stmt_at(w, a->index)->mask;
    if (vector && a->tensor != NEST_NONE && emit_access_vector(w->k, a)) {
        put(w, "load<%u>(", w->k->vector);
        put_tensor(w, a);
        put(w, " + ");
        put_position(w, a, mask);
        if (a->index != NEST_NONE) put_index(w, v);
        put(w, ", s%u%s);\n", v, is_kept(w, v) ? "[e]" : "");
        return;
    }
    if (vector) put(w, "EACH ");
    put_name(w, v);
    put(w, " = %s(", real ? "real" : "(long long)");
    if (a->tensor == NEST_NONE)
        put(w, "d%u", v);
    else
        put_tensor(w, a);
    put(w, "[");
    put_position(w, a, mask);
    if (vector && a->stride[w->k->vector_axis])
        put(w, " + v * (%s)%" PRId64, w->index, a->stride[w->k->vector_axis]);
    if (a->index != NEST_NONE) put_index(w, v);
    put(w, "]);\n");
}

/* ---- statements ---- */

static void put_declaration(writer_t *w, nest_value_t v) {
    if (is_kept(w, v)) return; /* declared with the row */
    put(w, "%s s%u", value_type(w, v), v);
    if (along_vector(w, v)) put(w, "[%u]", w->k->vector);
    put(w, ";\n");
}

static void put_random(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    put(w, "uniform24((long long)");
    put_name(w, stmt->args[0]);
    put(w, ", %" PRId64 "ll, (long long)", stmt->integer);
    put_name(w, stmt->args[1]);
    put(w, ", ");
    put_position(w, &stmt->access, stmt->mask);
    if (along_vector(w, v)) put(w, " + v * %" PRId64 "ll", stmt->access.stride[w->k->vector_axis]);
    put(w, ")");
}

/* Made by a kernel before this one? */
static bool is_stored_uniform(const writer_t *w, nest_value_t v) {
    return w->s->uniform[v] != UINT64_MAX &&
           (w->k->shape != EMIT_UNIFORM || w->s->level[v] < w->k->level);
}

static st_status_t put_stmt(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    const emit_grid_t *grid = &w->s->grid[v];
    put_declaration(w, v);
    if (!grid->is_grid && stmt->kind == NEST_LOAD) {
        put_load(w, v);
        return ST_OK;
    }
    if (along_vector(w, v)) put(w, "EACH ");
    put_name(w, v);
    put(w, " = ");
    if (grid->is_grid) {
        put(w, "(%s)((const %s *)(p.work + %" PRIu64 "ull))[", value_type(w, v), sum_type(w, v),
            grid->result);
        if (stmt->domain != NEST_NONE) put_point(w, stmt->domain, stmt->mask);
        if (stmt->domain == NEST_NONE) put(w, "0");
        if (along_vector(w, v)) {
            uint32_t inner = stmt->mask & ~((2u << w->k->vector_axis) - 1);
            put(w, " + v * %" PRId64, nest_points(&w->nest->domains[stmt->domain], inner));
        }
        put(w, "]");
    } else if (is_stored_uniform(w, v)) {
        put(w, "*(const %s *)(p.work + %" PRIu64 "ull)", value_type(w, v), w->s->uniform[v]);
    } else if (stmt->kind == NEST_CONSTANT) {
        if (is_real(stmt))
            put(w, isfinite(stmt->real) ? "(%s)%.17g" : "(%s)special(%.17g)", value_type(w, v),
                stmt->real);
        else
            put(w, "%" PRId64 "ll", stmt->integer);
    } else if (stmt->kind == NEST_IOTA) {
        put_position(w, &stmt->access, stmt->mask);
        if (along_vector(w, v))
            put(w, " + v * %" PRId64 "ll", stmt->access.stride[w->k->vector_axis]);
    } else if (stmt->kind == NEST_RANDOM) {
        put_random(w, v);
    } else {
        TRY(put_operation(w, v));
    }
    put(w, ";\n");
    return ST_OK;
}

/* ---- slices of a kernel ---- */

static void mark(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    if (w->needed[v]) return;
    w->needed[v] = true;
    if (w->s->grid[v].is_grid || is_stored_uniform(w, v)) return;
    for (uint32_t j = 0; j < stmt->n_args; j++) mark(w, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE) mark(w, stmt->access.index);
}

static nest_value_t reduced(const writer_t *w, nest_value_t reduce) {
    return stmt_at(w, reduce)->args[0];
}

static bool in_row(const writer_t *w, nest_value_t v) {
    return w->k->shape == EMIT_ROWS && stmt_at(w, v)->kind == NEST_REDUCE && !w->s->grid[v].is_grid;
}

/* What the kernel needs, and how many row reductions lie before each. */
static void find_slice(writer_t *w) {
    const emit_kernel_t *k = w->k;
    uint32_t n = w->nest->n_stmts;
    memset(w->needed, 0, n * sizeof *w->needed);
    memset(w->written, 0, n * sizeof *w->written);
    memset(w->stage, 0, n * sizeof *w->stage);
    for (uint32_t i = 0; i < k->n_stores; i++) mark(w, w->nest->stores[k->stores[i]].value);
    for (uint32_t i = 0; i < k->n_reduces && k->shape != EMIT_FINISH; i++)
        mark(w, reduced(w, k->reduces[i]));
    for (nest_value_t v = 0; v < n && k->shape == EMIT_UNIFORM; v++)
        if (w->s->uniform[v] != UINT64_MAX && w->s->level[v] == k->level) mark(w, v);
    for (nest_value_t v = 0; v < n; v++) {
        const nest_stmt_t *stmt = stmt_at(w, v);
        if (!w->needed[v] || w->s->grid[v].is_grid || is_stored_uniform(w, v)) continue;
        for (uint32_t j = 0; j < stmt->n_args; j++)
            if (w->stage[stmt->args[j]] > w->stage[v]) w->stage[v] = w->stage[stmt->args[j]];
        if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE &&
            w->stage[stmt->access.index] > w->stage[v])
            w->stage[v] = w->stage[stmt->access.index];
        if (in_row(w, v)) w->stage[v]++;
    }
}

/* Writes the statements of the slice whose axes are all in `mask` and which are not there yet, up to
 * `stage`. */
static st_status_t put_stmts_within(writer_t *w, uint32_t mask, uint8_t stage) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        if (!w->needed[v] || w->written[v] || w->stage[v] > stage || in_row(w, v)) continue;
        if (stmt_at(w, v)->mask & ~mask) continue;
        TRY(put_stmt(w, v));
        w->written[v] = true;
    }
    return ST_OK;
}

/* Marks in want[] what of the slice `v` needs at element level. */
static void want_elements(writer_t *w, bool *want, nest_value_t v) {
    const nest_stmt_t *stmt = stmt_at(w, v);
    if (want[v] || w->written[v]) return;
    want[v] = true;
    if (w->s->grid[v].is_grid || is_stored_uniform(w, v)) return;
    for (uint32_t j = 0; j < stmt->n_args; j++) want_elements(w, want, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE)
        want_elements(w, want, stmt->access.index);
}

static st_status_t put_wanted(writer_t *w, const bool *want) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (want[v]) TRY(put_stmt(w, v));
    return ST_OK;
}

/* ---- sinks ---- */

static void put_store(writer_t *w, uint32_t index) {
    const nest_store_t *store = &w->nest->stores[index];
    const nest_access_t *a = &store->access;
    const char *type = tensor_type(a->dtype);
    uint32_t tensor = w->nest->n_operands + a->tensor;
    bool along = w->k->vector_axis >= 0 && (store->mask >> w->k->vector_axis & 1);
    if (along && along_vector(w, store->value) && emit_access_vector(w->k, a)) {
        put(w, "store<%u>((%s *)p.t[%u] + ", w->k->vector, type, tensor);
        put_position(w, a, store->mask);
        put(w, ", s%u);\n", store->value);
        return;
    }
    if (along) put(w, "EACH ");
    put(w, "((%s *)p.t[%u])[", type, tensor);
    put_position(w, a, store->mask);
    if (along) put(w, " + v * (%s)%" PRId64, w->index, a->stride[w->k->vector_axis]);
    put(w, "] = to<%s>(", type);
    put_name(w, store->value);
    put(w, ");\n");
}

static const char *combiner(const writer_t *w, nest_value_t v) {
    static const struct {
        ir_op_t op;
        const char *name;
    } rows[] = {{IR_OP_REDUCE_SUM, "Sum"},
                {IR_OP_REDUCE_PROD, "Product"},
                {IR_OP_REDUCE_MAX, "Maximum"},
                {IR_OP_REDUCE_MIN, "Minimum"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].op == stmt_at(w, v)->op) return rows[i].name;
    return "Sum";
}

/* a<v> = a<v> joined with the argument, which may be constant along the vector. */
static void put_accumulate(writer_t *w, nest_value_t v, const char *element) {
    put(w, "EACH a%u%s = %s::of(a%u%s, (%s)", v, element, combiner(w, v), v, element,
        sum_type(w, v));
    put_name(w, reduced(w, v));
    put(w, ");\n");
}

/* ---- kernels ---- */

static int64_t points(const writer_t *w, uint32_t mask) {
    return nest_points(&w->nest->domains[w->k->domain], mask);
}

static st_status_t put_uniform(writer_t *w) {
    put(w, "if (threadIdx.x) return;\n");
    TRY(put_stmts_within(w, 0, 255));
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (w->s->uniform[v] != UINT64_MAX && w->s->level[v] == w->k->level)
            put(w, "*(%s *)(p.work + %" PRIu64 "ull) = s%u;\n", value_type(w, v), w->s->uniform[v],
                v);
    for (uint32_t i = 0; i < w->k->n_stores; i++) put_store(w, w->k->stores[i]);
    return ST_OK;
}

static st_status_t put_flat(writer_t *w) {
    put(w, "const %s n = (%s)blockIdx.x * %d + threadIdx.x;\n", w->index, w->index, EMIT_BLOCK);
    put(w, "if (n >= (%s)%" PRId64 ") return;\n", w->index, points(w, w->k->mask) / w->k->vector);
    put_axes(w, w->k->mask, "n");
    TRY(put_stmts_within(w, w->k->mask, 255));
    for (uint32_t i = 0; i < w->k->n_stores; i++) put_store(w, w->k->stores[i]);
    return ST_OK;
}

static void put_partial(writer_t *w, nest_value_t v) {
    put(w, "((%s *)(p.work + %" PRIu64 "ull))", sum_type(w, v), w->s->grid[v].partial);
}

static st_status_t put_lines(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t vectors = points(w, k->cols) / k->vector;
    int64_t part = (vectors + k->splits - 1) / k->splits;
    put(w, "const %s line = blockIdx.x / %" PRId64 "u, split = blockIdx.x %% %" PRId64 "u;\n",
        w->index, k->splits, k->splits);
    put_axes(w, k->rows, "line");
    TRY(put_stmts_within(w, k->rows, 255));
    for (uint32_t i = 0; i < k->n_reduces; i++)
        put(w, "%s a%u = %s::first<%s>();\n", sum_type(w, k->reduces[i]), k->reduces[i],
            combiner(w, k->reduces[i]), sum_type(w, k->reduces[i]));
    put(w, "%s last = (split + 1) * (%s)%" PRId64 ";\n", w->index, w->index, part);
    put(w, "if (last > (%s)%" PRId64 ") last = %" PRId64 ";\n", w->index, vectors, vectors);
    put(w, "for (%s c = split * (%s)%" PRId64 " + threadIdx.x; c < last; c += %d) {\n", w->index,
        w->index, part, EMIT_BLOCK);
    put_axes(w, k->cols, "c");
    TRY(put_stmts_within(w, k->mask, 255));
    for (uint32_t i = 0; i < k->n_reduces; i++) put_accumulate(w, k->reduces[i], "");
    put(w, "}\n");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        put(w, "a%u = block_all<%s, %d>(a%u);\nif (threadIdx.x == 0) ", v, combiner(w, v),
            EMIT_BLOCK, v);
        put_partial(w, v);
        put(w, "[split * (%s)%" PRId64 " + line] = a%u;\n", w->index, points(w, k->rows), v);
    }
    return ST_OK;
}

static st_status_t put_columns(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t kept = points(w, k->rows), n = points(w, k->cols);
    int64_t part = (n + k->splits - 1) / k->splits;
    put(w, "const int x = threadIdx.x %% 32, y = threadIdx.x / 32;\n");
    put(w,
        "const %s column = (%s)(blockIdx.x / %" PRId64 "u) * 32 + x, split = blockIdx.x %% %" PRId64
        "u;\n",
        w->index, w->index, k->splits, k->splits);
    for (uint32_t i = 0; i < k->n_reduces; i++)
        put(w, "%s a%u[V];\nEACH a%u[v] = %s::first<%s>();\n", sum_type(w, k->reduces[i]),
            k->reduces[i], k->reduces[i], combiner(w, k->reduces[i]), sum_type(w, k->reduces[i]));
    put(w, "if (column < (%s)%" PRId64 ") {\n", w->index, kept / k->vector);
    put_axes(w, k->rows, "column");
    TRY(put_stmts_within(w, k->rows, 255));
    put(w, "%s last = (split + 1) * (%s)%" PRId64 ";\n", w->index, w->index, part);
    put(w, "if (last > (%s)%" PRId64 ") last = %" PRId64 ";\n", w->index, n, n);
    put(w, "for (%s o = split * (%s)%" PRId64 " + y; o < last; o += 8) {\n", w->index, w->index,
        part);
    put_axes(w, k->cols, "o");
    TRY(put_stmts_within(w, k->mask, 255));
    for (uint32_t i = 0; i < k->n_reduces; i++) put_accumulate(w, k->reduces[i], "[v]");
    put(w, "}\n}\n");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        put(w, "rows_of_block<%s, V>(a%u, x, y);\n", combiner(w, v), v);
        put(w, "if (y == 0 && column < (%s)%" PRId64 ") EACH ", w->index, kept / k->vector);
        put_partial(w, v);
        put(w, "[split * (%s)%" PRId64 " + column * V + v] = a%u[v];\n", w->index, kept, v);
    }
    return ST_OK;
}

static st_status_t put_finish(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t n = points(w, k->mask);
    bool whole = k->group == EMIT_BLOCK;
    put(w, "const int x = %s, y = %s;\n", whole ? "0" : "threadIdx.x % 32",
        whole ? "threadIdx.x" : "threadIdx.x / 32");
    put(w, "const %s point = %s;\n", w->index,
        whole ? "blockIdx.x" : "(long long)blockIdx.x * 32 + x");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        const char *type = sum_type(w, v), *join = combiner(w, v);
        put(w, "{\n%s a[1] = {%s::first<%s>()};\n", type, join, type);
        put(w,
            "if (point < (%s)%" PRId64 ")\nfor (%s s = y; s < (%s)%" PRId64
            "; s += %u) a[0] = %s::of(a[0], ",
            w->index, n, w->index, w->index, w->s->grid[v].n_partials, k->group, join);
        put_partial(w, v);
        put(w, "[s * (%s)%" PRId64 " + point]);\n", w->index, n);
        if (whole)
            put(w, "a[0] = block_all<%s, %d>(a[0]);\n", join, EMIT_BLOCK);
        else
            put(w, "rows_of_block<%s, 1>(a, x, y);\n", join);
        put(w,
            "if (y == 0 && point < (%s)%" PRId64 ") ((%s *)(p.work + %" PRIu64
            "ull))[point] = a[0];\n}\n",
            w->index, n, type, w->s->grid[v].result);
    }
    return ST_OK;
}

/* Begins a loop over the vectors of a row that the thread has. */
static void put_row_loop(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t vectors = points(w, k->cols) / k->vector;
    if (k->chunks) {
        put(w, "_Pragma(\"unroll\") for (int e = 0; e < %u; ++e) {\n", k->chunks);
        put(w, "const %s c = e * %u + lane;\n", w->index, k->group);
        put(w, "if (c < (%s)%" PRId64 ") {\n", w->index, vectors);
    } else {
        put(w, "for (%s c = lane; c < (%s)%" PRId64 "; c += %u) {{\n", w->index, w->index, vectors,
            k->group);
    }
    put_axes(w, k->cols, "c");
}

/* Loads along the row that stay in registers: those whose position needs no row reduction. */
static st_status_t put_kept_loads(writer_t *w, bool *want) {
    bool any = false;
    memset(want, 0, w->nest->n_stmts * sizeof *want);
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        if (!w->needed[v] || !is_kept(w, v)) continue;
        put(w, "%s s%u[%u]", value_type(w, v), v, w->k->chunks);
        put(w, along_vector(w, v) ? "[%u];\n" : ";\n", w->k->vector);
        want_elements(w, want, v);
        any = true;
    }
    if (!any) return ST_OK;
    put_row_loop(w);
    TRY(put_wanted(w, want));
    put(w, "}}\n");
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (want[v] && is_kept(w, v)) w->written[v] = true;
    return ST_OK;
}

static st_status_t put_row_stage(writer_t *w, uint8_t stage, bool *want) {
    const emit_kernel_t *k = w->k;
    memset(want, 0, w->nest->n_stmts * sizeof *want);
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        if (!w->needed[v] || !in_row(w, v) || w->stage[v] != stage + 1) continue;
        put(w, "%s a%u = %s::first<%s>();\n", sum_type(w, v), v, combiner(w, v), sum_type(w, v));
        want_elements(w, want, reduced(w, v));
    }
    put_row_loop(w);
    TRY(put_wanted(w, want));
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (w->needed[v] && in_row(w, v) && w->stage[v] == stage + 1) put_accumulate(w, v, "");
    put(w, "}}\n");
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        if (!w->needed[v] || !in_row(w, v) || w->stage[v] != stage + 1) continue;
        put(w, "const %s s%u = %s_all<%s", value_type(w, v), v, k->group == 32 ? "warp" : "block",
            combiner(w, v));
        if (k->group != 32) put(w, ", %u", k->group);
        put(w, ">(a%u);\n", v);
        w->written[v] = true;
    }
    return put_stmts_within(w, k->rows, (uint8_t)(stage + 1));
}

static bool is_column_sum(const writer_t *w, nest_value_t v) {
    return (stmt_at(w, reduced(w, v))->mask & w->k->cols) != 0;
}

static st_status_t put_row_sinks(writer_t *w, bool *want) {
    const emit_kernel_t *k = w->k;
    bool any = false;
    memset(want, 0, w->nest->n_stmts * sizeof *want);
    for (uint32_t i = 0; i < k->n_stores; i++) {
        const nest_store_t *store = &w->nest->stores[k->stores[i]];
        if (!(store->mask & k->cols)) continue;
        want_elements(w, want, store->value);
        any = true;
    }
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        if (!is_column_sum(w, k->reduces[i])) continue;
        want_elements(w, want, reduced(w, k->reduces[i]));
        any = true;
    }
    if (any) {
        put_row_loop(w);
        TRY(put_wanted(w, want));
        for (uint32_t i = 0; i < k->n_stores; i++)
            if (w->nest->stores[k->stores[i]].mask & k->cols) put_store(w, k->stores[i]);
        for (uint32_t i = 0; i < k->n_reduces; i++)
            if (is_column_sum(w, k->reduces[i])) put_accumulate(w, k->reduces[i], "[e][v]");
        put(w, "}}\n");
    }
    put(w, "if (lane == 0) {\n");
    for (uint32_t i = 0; i < k->n_stores; i++)
        if (!(w->nest->stores[k->stores[i]].mask & k->cols)) put_store(w, k->stores[i]);
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        if (is_column_sum(w, k->reduces[i])) continue;
        put_partial(w, k->reduces[i]);
        put(w, "[row] = ");
        put_name(w, reduced(w, k->reduces[i]));
        put(w, ";\n");
    }
    put(w, "}\n");
    return ST_OK;
}

static st_status_t put_rows(writer_t *w, bool *want) {
    const emit_kernel_t *k = w->k;
    uint8_t stages = 0;
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (w->needed[v] && w->stage[v] > stages) stages = w->stage[v];
    put(w, "const int lane = threadIdx.x %% %u;\n", k->group);
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        if (!is_column_sum(w, v)) continue;
        put(w, "%s a%u[%u][V];\n", sum_type(w, v), v, k->chunks);
        put(w,
            "_Pragma(\"unroll\") for (int e = 0; e < %u; ++e) EACH a%u[e][v] = %s::first<%s>();\n",
            k->chunks, v, combiner(w, v), sum_type(w, v));
    }
    put(w,
        "for (%s row = (%s)blockIdx.x * %" PRId64 " + threadIdx.x / %u; row < (%s)%" PRId64
        "; row += (%s)gridDim.x * %" PRId64 ") {\n",
        w->index, w->index, k->splits, k->group, w->index, points(w, k->rows), w->index, k->splits);
    put_axes(w, k->rows, "row");
    TRY(put_stmts_within(w, k->rows, 0));
    if (w->persistent) TRY(put_kept_loads(w, want));
    for (uint8_t stage = 0; stage < stages; stage++) TRY(put_row_stage(w, stage, want));
    TRY(put_row_sinks(w, want));
    put(w, "}\n");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        if (!is_column_sum(w, v)) continue;
        put(w, "_Pragma(\"unroll\") for (int e = 0; e < %u; ++e) {\nconst %s c = e * %u + lane;\n",
            k->chunks, w->index, k->group);
        put(w, "if (c < (%s)%" PRId64 ") EACH ", w->index, points(w, k->cols) / k->vector);
        put_partial(w, v);
        put(w, "[(%s)blockIdx.x * %" PRId64 " + c * V + v] = a%u[e][v];\n}\n", w->index,
            points(w, k->cols), v);
    }
    return ST_OK;
}

/* ---- the whole ---- */

static void put_data(writer_t *w) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(w, v);
        if (stmt->kind != NEST_LOAD || stmt->access.tensor != NEST_NONE) continue;
        int64_t n = 1 + stmt->access.offset;
        const nest_domain_t *d = stmt->domain == NEST_NONE ? NULL : &w->nest->domains[stmt->domain];
        for (uint32_t i = 0; d && i < d->n_axes; i++)
            if (stmt->mask >> i & 1) n += (d->axes[i].extent - 1) * stmt->access.stride[i];
        put(w, "__device__ const unsigned char b%u[] __attribute__((aligned(16))) = {", v);
        const unsigned char *bytes = stmt->access.data;
        for (int64_t i = 0; i < n * (int64_t)ir_dtype_bytes(stmt->access.dtype); i++)
            put(w, "%u,", bytes[i]);
        put(w, "};\n#define d%u ((const %s *)b%u)\n", v, tensor_type(stmt->access.dtype), v);
    }
}

static st_status_t check_types(const writer_t *w) {
    enum { MAX_DATA = 1 << 16 };
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = stmt_at(w, v);
        if (stmt->kind != NEST_LOAD) continue;
        if (!tensor_type(stmt->access.dtype))
            return FAIL(ST_UNSUPPORTED, "a nest over %s", ir_dtype_text(stmt->access.dtype));
    }
    for (uint32_t i = 0; i < w->nest->n_stores; i++)
        if (!tensor_type(w->nest->stores[i].access.dtype))
            return FAIL(ST_UNSUPPORTED, "a nest over %s",
                        ir_dtype_text(w->nest->stores[i].access.dtype));
    return ST_OK;
}

static bool is_large(const nest_t *nest) {
    for (uint32_t d = 0; d < nest->n_domains; d++)
        if (nest_points(&nest->domains[d], ~0u) >= (int64_t)1 << 30) return true;
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = &nest->stmts[v];
        if (stmt->kind != NEST_LOAD || stmt->domain == NEST_NONE) continue;
        const nest_access_t *a = &stmt->access;
        int64_t end = a->offset + a->index_extent * a->index_stride;
        for (uint32_t i = 0; i < nest->domains[stmt->domain].n_axes; i++)
            end += nest->domains[stmt->domain].axes[i].extent * a->stride[i];
        if (end >= (int64_t)1 << 30 || end <= -((int64_t)1 << 30)) return true;
    }
    return false;
}

static st_status_t put_kernel(writer_t *w, uint32_t index, bool *want) {
    const emit_kernel_t *k = &w->s->kernels[index];
    w->k = k;
    w->persistent = k->shape == EMIT_ROWS && k->keep;
    put(w,
        "extern \"C\" __global__ void __launch_bounds__(%u) k%u(const __grid_constant__ Params p) "
        "{\n",
        emit_threads(k), index);
    put(w, "enum { V = %u };\n", k->vector);
    find_slice(w);
    static st_status_t (*const shapes[])(writer_t *) = {[EMIT_UNIFORM] = put_uniform,
                                                        [EMIT_FLAT] = put_flat,
                                                        [EMIT_COLUMNS] = put_columns,
                                                        [EMIT_LINES] = put_lines,
                                                        [EMIT_FINISH] = put_finish};
    if (k->shape == EMIT_ROWS)
        TRY(put_rows(w, want));
    else
        TRY(shapes[k->shape](w));
    put(w, "}\n");
    return ST_OK;
}

st_status_t emit_source(const emit_schedule_t *schedule, char **out_source) {
    *out_source = NULL;
    uint32_t n = schedule->nest->n_stmts + 1;
    text_t text = {0};
    bool *flags = st_calloc(3 * (size_t)n, sizeof *flags);
    uint8_t *stages = st_calloc(n, sizeof *stages);
    st_status_t status = ST_OK;
    if (!flags || !stages) TRY_GOTO(st_no_memory(n, "the source of a nest"), done);
    writer_t w = {.s = schedule,
                  .nest = schedule->nest,
                  .out = &text,
                  .needed = flags,
                  .written = flags + n,
                  .stage = stages,
                  .index = is_large(schedule->nest) ? "long long" : "int"};
    TRY_GOTO(check_types(&w), done);
    put(&w, "#define N_TENSORS %u\n%s", schedule->nest->n_operands + schedule->nest->n_results,
        emit_prelude);
    put_data(&w);
    for (uint32_t i = 0; i < schedule->n_kernels; i++)
        TRY_GOTO(put_kernel(&w, i, flags + 2 * n), done);
    if (text.failed) status = st_no_memory(text.capacity, "the source of a nest");
done:
    st_free(flags);
    st_free(stages);
    if (status == ST_OK)
        *out_source = text.data;
    else
        st_free(text.data);
    return status;
}
