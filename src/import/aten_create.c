/* ATen operators that make tensors from nothing, copy and convert them, and those that only check.
 */
#include <string.h>

#include "import/aten.h"
#include "ir/op.h"

static ir_type_t shaped(aten_t *a, ir_dtype_t dtype, int32_t rank, const int64_t *dims) {
    if (aten_ok(a) && rank > IR_MAX_RANK) {
        aten_fail(a, ST_UNSUPPORTED, "%d dims, the limit is %d", rank, IR_MAX_RANK);
        rank = 0;
    }
    ir_type_t type = ir_type_make(dtype, rank < 0 ? 0 : rank, dims);
    if (aten_ok(a)) a->b.status = ir_type_check(&type);
    return type;
}

/* The fill value: argument 'fill_value', else the row's (0 for zeros and for empty, whose contents
 * are undefined; 1 for ones). */
static aten_item_t fill_value(aten_t *a) {
    if (a->op->arg >= 0) return (aten_item_t){.kind = ATEN_INT, .i = a->op->arg};
    return aten_item(a, "fill_value");
}

void aten_full(aten_t *a) {
    int64_t dims[ATEN_MAX_LIST];
    int32_t rank = aten_ints(a, "size", dims);
    aten_item_t value = fill_value(a);
    ir_dtype_t dtype = aten_dtype(a, "dtype", a->op->arg >= 0 ? IR_F32 : aten_scalar_dtype(value));
    ir_type_t type = shaped(a, dtype, rank, dims);
    aten_return(a, aten_fill(a, type, value));
}

void aten_full_like(aten_t *a) {
    ir_type_t type = aten_type(a, aten_tensor(a, "self"));
    type.dtype = aten_dtype(a, "dtype", type.dtype);
    aten_return(a, aten_fill(a, type, fill_value(a)));
}

void aten_new_full(aten_t *a) {
    ir_type_t self = aten_type(a, aten_tensor(a, "self"));
    int64_t dims[ATEN_MAX_LIST];
    int32_t rank = aten_ints(a, "size", dims);
    ir_type_t type = shaped(a, aten_dtype(a, "dtype", self.dtype), rank, dims);
    aten_return(a, aten_fill(a, type, fill_value(a)));
}

void aten_scalar_tensor(aten_t *a) {
    aten_item_t value = aten_item(a, "s");
    ir_dtype_t dtype = aten_dtype(a, "dtype", IR_F32);
    aten_return(a, aten_fill(a, ir_type_scalar(dtype), value));
}

static double number(aten_item_t item, double default_value) {
    return item.kind == ATEN_NONE    ? default_value
           : item.kind == ATEN_FLOAT ? item.f
                                     : (double)item.i;
}

/* arange(end), arange(start, end), arange(start, end, step): ceil((end - start) / step) items. */
void aten_arange(aten_t *a) {
    aten_item_t start = aten_item(a, "start"), end = aten_item(a, "end"),
                step = aten_item(a, "step");
    bool is_float = start.kind == ATEN_FLOAT || end.kind == ATEN_FLOAT || step.kind == ATEN_FLOAT;
    ir_dtype_t dtype = aten_dtype(a, "dtype", is_float ? IR_F32 : IR_I64);
    double first = number(start, 0), last = number(end, 0), by = number(step, 1);
    double span = (last - first) / by;
    if (aten_ok(a) && (by == 0 || !(span > -0x1p53 && span < 0x1p53)))
        aten_fail(a, ST_INVALID, "arange from %g to %g by %g", first, last, by);
    if (!aten_ok(a)) return;
    int64_t n = span <= 0 ? 0 : (int64_t)span;
    if ((double)n < span) n++;
    ir_type_t type = shaped(a, dtype, 1, &n);
    aten_return(a, ir_b_iota(&a->b, type, 0, first, by));
}

/* ---- copies ---- */

/* to.*, _to_copy, type_as, float …: arg is the target type of rows that have one. */
void aten_to(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    ir_dtype_t dtype = a->op->arg ? (ir_dtype_t)a->op->arg : aten_type(a, x).dtype;
    dtype = aten_dtype(a, "dtype", dtype);
    if (aten_has(a, "other")) dtype = aten_type(a, aten_tensor(a, "other")).dtype;
    a->fresh = aten_bool(a, "copy", false);
    aten_return(a, ir_b_cast(&a->b, x, dtype));
}

/* clone, contiguous, alias, lift_fresh_copy …: the row's flags say whether the storage is shared.
 */
void aten_same(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    aten_return(a, x);
}

void aten_detach(aten_t *a) {
    ir_value_t x = aten_tensor(a, "self");
    aten_refuse_gradient(a, x, "detaches");
    aten_return(a, x);
}

static ir_value_t broadcast_to(aten_t *a, ir_value_t x, const ir_type_t *type) {
    return ir_b_broadcast(&a->b, x, type->rank, type->dims);
}

/* copy_(src): src in self's type and shape. */
void aten_copy(aten_t *a) {
    ir_type_t self = aten_type(a, aten_tensor(a, "self"));
    ir_value_t source = ir_b_cast(&a->b, aten_tensor(a, "src"), self.dtype);
    aten_return(a, broadcast_to(a, source, &self));
}

/* fill_(value), zero_() */
void aten_fill_self(aten_t *a) {
    ir_type_t self = aten_type(a, aten_tensor(a, "self"));
    aten_item_t value = {.kind = ATEN_INT};
    if (a->op->arg) value = aten_item(a, "value");
    if (value.kind == ATEN_TENSOR)
        aten_return(a, broadcast_to(a, ir_b_cast(&a->b, value.slot, self.dtype), &self));
    else
        aten_return(a, aten_fill(a, self, value));
}

/* Seed and step counter of random ops: two buffers that exist in graphs with such ops only. */
static void need_random(aten_t *a) {
    if (a->in_body)
        aten_fail(a, ST_UNSUPPORTED,
                  "random numbers inside a condition or a loop are not supported");
    if (a->random_seed != IR_NONE || !aten_ok(a)) return;
    a->random_seed = ir_b_buffer(&a->b, "random.seed", ir_type_scalar(IR_I64));
    a->random_step = ir_b_buffer(&a->b, "random.step", ir_type_scalar(IR_I64));
}

ir_value_t aten_dropped(aten_t *a, ir_value_t x, double p) {
    need_random(a);
    ir_value_t inputs[] = {x, a->random_seed, a->random_step};
    ir_arg_t args[] = {IR_ARG_FLOAT("p", p), IR_ARG_INT("id", a->n_random++)};
    return ir_b_node(&a->b, IR_OP_DROPOUT, 3, inputs, 2, args);
}

/* dropout; native_dropout, whose second result, the mask, is not known here */
void aten_dropout(aten_t *a) {
    ir_value_t x = aten_tensor(a, aten_has(a, "input") ? "input" : "self"); /* dropout_ says self */
    double p = aten_float(a, "p", 0.5);
    bool train = aten_bool(a, "train", false);
    if (aten_ok(a) && !(p >= 0 && p <= 1)) aten_fail(a, ST_INVALID, "argument 'p' is %g", p);
    aten_return(a, !train || p == 0 ? x : aten_dropped(a, x, p));
    if (a->op->arg) aten_return(a, IR_NONE);
}

/* ---- checks ---- */

/* _assert_tensor_metadata(a, size, stride, dtype): strides have no meaning here. */
void aten_assert_metadata(aten_t *a) {
    ir_type_t type = aten_type(a, aten_tensor(a, "a"));
    ir_type_t want = type;
    int64_t dims[ATEN_MAX_LIST];
    int32_t rank = aten_ints(a, "size", dims);
    want.dtype = aten_dtype(a, "dtype", type.dtype);
    aten_ignore(a, "stride");
    if (rank >= 0) want = shaped(a, want.dtype, rank, dims);
    char got[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    if (aten_ok(a) && !ir_type_equal(&type, &want))
        aten_fail(a, ST_INVALID, "asserts %s, the tensor is %s",
                  ir_type_text(&want, expected, sizeof expected),
                  ir_type_text(&type, got, sizeof got));
}

void aten_assert_scalar(aten_t *a) {
    aten_item_t item = aten_item(a, "self");
    const char *message = aten_string(a, "assert_msg", "");
    if (aten_ok(a) && (item.kind == ATEN_INT || item.kind == ATEN_BOOL) && item.i == 0)
        aten_fail(a, ST_INVALID, "the model's own assertion fails: %s", message);
}

/* Constraints on symbols, which are bound here. */
void aten_nothing(aten_t *a) {
    a->used = UINT32_MAX;
}

/* ---- integers of the graph ---- */

void aten_sym_size(aten_t *a) {
    ir_type_t type = aten_type(a, aten_tensor(a, "self"));
    int32_t axis = aten_axis(a, "dim", type.rank, 0);
    aten_return_item(a, (aten_item_t){.kind = ATEN_INT, .i = type.dims[axis]});
}

static int64_t floor_div_int(int64_t x, int64_t y) {
    int64_t q = x / y;
    return (x % y != 0 && (x < 0) != (y < 0)) ? q - 1 : q;
}

/* Python's operators on sizes: arg is the operator's character. */
void aten_operator(aten_t *a) {
    aten_item_t x = aten_item_at(a, 0), y = aten_item_at(a, 1);
    bool ints =
        (x.kind == ATEN_INT || x.kind == ATEN_BOOL) && (y.kind == ATEN_INT || y.kind == ATEN_BOOL);
    if (aten_ok(a) && !ints) aten_fail(a, ST_UNSUPPORTED, "operands other than integers");
    aten_item_t out = {.kind = ATEN_INT};
    bool fits = true;
    int op = a->op->arg;
    if (op == '+') fits = !__builtin_add_overflow(x.i, y.i, &out.i);
    if (op == '-') fits = !__builtin_sub_overflow(x.i, y.i, &out.i);
    if (op == '*') fits = !__builtin_mul_overflow(x.i, y.i, &out.i);
    if (op == '/' || op == '%') {
        fits = y.i != 0 && !(x.i == INT64_MIN && y.i == -1);
        if (fits) out.i = floor_div_int(x.i, y.i);
        if (fits && op == '%') out.i = x.i - out.i * y.i;
    }
    if (strchr("=!<>lg", op)) {
        out.kind = ATEN_BOOL;
        out.i = op == '='   ? x.i == y.i
                : op == '!' ? x.i != y.i
                : op == '<' ? x.i < y.i
                : op == '>' ? x.i > y.i
                : op == 'l' ? x.i <= y.i
                            : x.i >= y.i;
    }
    if (aten_ok(a) && !fits)
        aten_fail(a, ST_INVALID, "%lld %c %lld", (long long)x.i, op, (long long)y.i);
    aten_return_item(a, out);
}
