/* ATen's losses. Reduction is 0 none, 1 mean, 2 sum. */
#include "import/aten.h"

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

/* Logits and labels as rows. */
typedef struct rows {
    ir_value_t logits, labels; /* [R, C], [R] */
    ir_value_t weight;         /* [C] or IR_NONE */
    ir_type_t label_type;      /* as given */
    int64_t n_rows, classes, ignore;
    int64_t reduction;
} rows_t;

/* Logits [C], [N, C] or [N, C, d…]: the class dim moves last, everything else becomes rows. */
static ir_value_t class_rows(aten_t *a, ir_value_t x, int64_t *n_rows, int64_t *classes) {
    ir_type_t type = aten_type(a, x);
    if (aten_ok(a) && type.rank < 1) aten_fail(a, ST_INVALID, "a loss of a scalar");
    if (!aten_ok(a)) return IR_NONE;
    int32_t axis = type.rank == 1 ? 0 : 1;
    *classes = type.dims[axis];
    *n_rows = 1;
    int64_t perm[IR_MAX_RANK];
    int32_t at = 0;
    for (int32_t i = 0; i < type.rank; i++) {
        if (i == axis) continue;
        perm[at++] = i;
        *n_rows *= type.dims[i];
    }
    perm[at] = axis;
    if (type.rank > 2) x = ir_b_transpose(&a->b, x, perm);
    return ir_b_reshape(&a->b, x, 2, (int64_t[]){*n_rows, *classes});
}

static rows_t read_rows(aten_t *a) {
    rows_t rows = {.n_rows = 0};
    ir_value_t x = aten_tensor(a, "self"), target = aten_tensor(a, "target");
    rows.weight = aten_tensor_or_none(a, "weight");
    rows.reduction = aten_int(a, "reduction", REDUCE_MEAN);
    rows.ignore = aten_int(a, "ignore_index", -100);
    if (aten_ok(a) && (rows.reduction < REDUCE_NONE || rows.reduction > REDUCE_SUM))
        aten_fail(a, ST_INVALID, "argument 'reduction' is %lld", (long long)rows.reduction);
    ir_type_t type = aten_type(a, x);
    rows.label_type = aten_type(a, target);
    rows.logits = class_rows(a, x, &rows.n_rows, &rows.classes);
    bool fits = aten_ok(a) && rows.label_type.rank == type.rank - 1;
    for (int32_t i = 0; fits && i < rows.label_type.rank; i++)
        fits = rows.label_type.dims[i] == type.dims[i == 0 ? 0 : i + 1];
    if (aten_ok(a) && !fits) {
        char tx[IR_TYPE_TEXT_BYTES], ty[IR_TYPE_TEXT_BYTES];
        aten_fail(a, ST_INVALID, "input %s and target %s do not fit",
                  ir_type_text(&type, tx, sizeof tx),
                  ir_type_text(&rows.label_type, ty, sizeof ty));
    }
    rows.labels = ir_b_reshape(&a->b, target, 1, &rows.n_rows);
    return rows;
}

static ir_value_t sum_all(aten_t *a, ir_value_t x) {
    return aten_type(a, x).rank == 0 ? x : ir_b_reduce(&a->b, IR_OP_REDUCE_SUM, x, 0, NULL, false);
}

/* Returns the loss by rows, reduced; then the total weight where the form has it. */
static void return_reduced(aten_t *a, const rows_t *rows, ir_value_t loss, ir_value_t weight,
                           bool with_weight) {
    ir_value_t total = sum_all(a, weight);
    if (rows->reduction == REDUCE_NONE)
        aten_return(a, ir_b_reshape(&a->b, loss, rows->label_type.rank, rows->label_type.dims));
    else if (rows->reduction == REDUCE_SUM)
        aten_return(a, sum_all(a, loss));
    else
        aten_return(a, ir_b_binary(&a->b, IR_OP_DIV, sum_all(a, loss), total));
    if (!with_weight) return;
    /* without reduction PyTorch's total weight is 0 */
    aten_return(a, rows->reduction == REDUCE_NONE
                       ? ir_b_scalar(&a->b, aten_type(a, weight).dtype, 0)
                       : total);
}

/* Cross-entropy of logit rows, in the op that has it as a whole. */
static void return_cross_entropy(aten_t *a, const rows_t *rows, double smoothing,
                                 bool with_weight) {
    ir_value_t inputs[] = {rows->logits, rows->labels, rows->weight};
    uint32_t n = rows->weight == IR_NONE ? 2 : 3;
    ir_arg_t args[] = {IR_ARG_INT("ignore_index", rows->ignore),
                       IR_ARG_FLOAT("smoothing", smoothing),
                       IR_ARG_BOOL("mean", rows->reduction == REDUCE_MEAN)};
    if (rows->reduction == REDUCE_NONE) {
        ir_value_t loss = ir_b_node(&a->b, IR_OP_CROSS_ENTROPY_ROWS, n, inputs, 2, args);
        if (aten_ok(a)) return_reduced(a, rows, loss, loss + 1, with_weight);
        return;
    }
    ir_value_t loss = ir_b_node(&a->b, IR_OP_CROSS_ENTROPY, n, inputs, 3, args);
    aten_return(a, loss);
    if (with_weight && aten_ok(a)) aten_return(a, loss + 1);
}

/* Targets that are probabilities: -sum of weight * target * log softmax over the classes; the mean
 * is over rows. */
static void probabilities(aten_t *a, double smoothing) {
    ir_build_t *b = &a->b;
    int64_t n_rows, classes, target_rows, target_classes;
    ir_value_t x = aten_tensor(a, "self"), target = aten_tensor(a, "target");
    ir_value_t weight = aten_tensor_or_none(a, "weight");
    int64_t reduction = aten_int(a, "reduction", REDUCE_MEAN);
    aten_ignore(a, "ignore_index"); /* has no meaning for probabilities */
    ir_type_t type = aten_type(a, x), target_type = aten_type(a, target);
    if (aten_ok(a) && !ir_dims_equal(&type, &target_type))
        aten_fail(a, ST_INVALID, "input and target of probabilities have different shapes");
    x = class_rows(a, x, &n_rows, &classes);
    target = ir_b_cast(b, class_rows(a, target, &target_rows, &target_classes), type.dtype);
    if (smoothing > 0 && aten_ok(a))
        target =
            ir_b_add_scalar(b, ir_b_scale(b, target, 1 - smoothing), smoothing / (double)classes);
    ir_arg_t axis[] = {IR_ARG_INT("axis", 1)};
    x = ir_b_binary(b, IR_OP_MUL, ir_b_node(b, IR_OP_LOG_SOFTMAX, 1, &x, 1, axis), target);
    if (weight != IR_NONE) x = ir_b_binary(b, IR_OP_MUL, x, weight);
    x = ir_b_unary(b, IR_OP_NEG, ir_b_reduce(b, IR_OP_REDUCE_SUM, x, 1, (int64_t[]){1}, false));
    if (!aten_ok(a)) return;
    if (reduction == REDUCE_NONE) {
        int64_t dims[IR_MAX_RANK];
        int32_t rank = 0;
        for (int32_t i = 0; i < type.rank; i++)
            if (i != (type.rank == 1 ? 0 : 1)) dims[rank++] = type.dims[i];
        aten_return(a, ir_b_reshape(b, x, rank, dims));
    } else {
        aten_return(
            a, ir_b_reduce(b, reduction == REDUCE_MEAN ? IR_OP_REDUCE_MEAN : IR_OP_REDUCE_SUM, x, 0,
                           NULL, false));
    }
}

void aten_cross_entropy(aten_t *a) {
    double smoothing = aten_float(a, "label_smoothing", 0);
    if (aten_ok(a) && !(smoothing >= 0 && smoothing <= 1))
        aten_fail(a, ST_INVALID, "argument 'label_smoothing' is %g", smoothing);
    if (ir_dtype_is_float(aten_type(a, aten_tensor(a, "target")).dtype)) {
        probabilities(a, smoothing);
        return;
    }
    rows_t rows = read_rows(a);
    if (aten_ok(a)) return_cross_entropy(a, &rows, smoothing, false);
}

/* The logits whose log-softmax over the classes the input is, or IR_NONE. */
static ir_value_t logits_of(aten_t *a, ir_value_t x) {
    ir_type_t type = aten_type(a, x);
    if (!aten_ok(a)) return IR_NONE;
    const ir_node_info_t *node = ir_value_producer(a->b.graph, x);
    if (node->op != IR_OP_LOG_SOFTMAX) return IR_NONE;
    return ir_attr_int(node, "axis") == (type.rank == 1 ? 0 : 1) ? node->inputs[0] : IR_NONE;
}

/* Negative log-likelihood from its definition: the picked entry, weighted; ignored rows count
 * nothing. */
static void return_picked(aten_t *a, const rows_t *rows, bool with_weight) {
    ir_build_t *b = &a->b;
    ir_dtype_t dtype = aten_type(a, rows->logits).dtype, label = aten_type(a, rows->labels).dtype;
    ir_value_t counts =
        ir_b_binary(b, IR_OP_NE, rows->labels, ir_b_scalar(b, label, (double)rows->ignore));
    ir_value_t safe = ir_b_select(b, counts, rows->labels, ir_b_scalar(b, label, 0));
    ir_value_t column = ir_b_reshape(b, safe, 2, (int64_t[]){rows->n_rows, 1});
    ir_arg_t args[] = {IR_ARG_INT("axis", 1)};
    ir_value_t picked =
        ir_b_node(b, IR_OP_GATHER_ALONG, 2, (ir_value_t[]){rows->logits, column}, 1, args);
    picked = ir_b_unary(b, IR_OP_NEG, ir_b_reshape(b, picked, 1, &rows->n_rows));
    ir_value_t weight = ir_b_cast(b, counts, dtype);
    if (rows->weight != IR_NONE)
        weight = ir_b_binary(b, IR_OP_MUL, weight, ir_b_gather(b, rows->weight, safe, 0));
    ir_value_t zero = ir_b_scalar(b, dtype, 0);
    ir_value_t loss = ir_b_select(b, counts, ir_b_binary(b, IR_OP_MUL, picked, weight), zero);
    if (aten_ok(a)) return_reduced(a, rows, loss, weight, with_weight);
}

/* nll_loss, nll_loss_nd, nll_loss2d; with the total weight (arg 1) the _forward forms. Of a
 * log-softmax it is the cross-entropy of the logits, which is one op. */
void aten_nll(aten_t *a) {
    ir_value_t logits = logits_of(a, aten_tensor(a, "self"));
    rows_t rows = read_rows(a);
    if (!aten_ok(a)) return;
    if (logits == IR_NONE) {
        return_picked(a, &rows, a->op->arg != 0);
        return;
    }
    rows.logits = class_rows(a, logits, &rows.n_rows, &rows.classes);
    return_cross_entropy(a, &rows, 0, a->op->arg != 0);
}

/* Returns a loss by elements, reduced as the node asks. */
static void return_elements(aten_t *a, ir_value_t loss) {
    int64_t reduction = aten_int(a, "reduction", REDUCE_MEAN);
    if (aten_ok(a) && (reduction < REDUCE_NONE || reduction > REDUCE_SUM))
        aten_fail(a, ST_INVALID, "argument 'reduction' is %lld", (long long)reduction);
    if (reduction != REDUCE_NONE && aten_type(a, loss).rank > 0)
        loss = ir_b_reduce(&a->b, reduction == REDUCE_MEAN ? IR_OP_REDUCE_MEAN : IR_OP_REDUCE_SUM,
                           loss, 0, NULL, false);
    aten_return(a, loss);
}

/* With s = |d|: s < edge ? d^2/2 : edge (s - edge/2), over edge for smooth_l1, which with edge 0 is
 * s. At the edge both sides agree in value and gradient. */
static ir_value_t quadratic_then_linear(aten_t *a, ir_value_t d, double edge, bool smooth_l1) {
    ir_build_t *b = &a->b;
    ir_value_t size = ir_b_unary(b, IR_OP_ABS, d);
    if (edge == 0) return size;
    double per = smooth_l1 ? edge : 1;
    ir_value_t near = ir_b_scale(b, ir_b_unary(b, IR_OP_SQUARE, d), 0.5 / per);
    ir_value_t far = ir_b_add_scalar(b, size, -0.5 * edge);
    if (edge != per) far = ir_b_scale(b, far, edge / per);
    ir_value_t is_near =
        ir_b_binary(b, IR_OP_LT, size, ir_b_scalar(b, aten_type(a, d).dtype, edge));
    return ir_b_select(b, is_near, near, far);
}

/* Losses of input - target, by arg. */
enum { DISTANCE_MSE, DISTANCE_L1, DISTANCE_SMOOTH_L1, DISTANCE_HUBER };
void aten_distance(aten_t *a) {
    ir_build_t *b = &a->b;
    aten_item_t x = aten_item(a, "self"), y = aten_item(a, "target");
    int32_t which = a->op->arg;
    bool smooth_l1 = which == DISTANCE_SMOOTH_L1;
    ir_dtype_t dtype = aten_result_type(a, 2, (aten_item_t[]){x, y});
    ir_value_t d = ir_b_binary(b, IR_OP_SUB, aten_value(a, x, dtype), aten_value(a, y, dtype));
    if (which == DISTANCE_MSE || which == DISTANCE_L1) {
        return_elements(a, ir_b_unary(b, which == DISTANCE_L1 ? IR_OP_ABS : IR_OP_SQUARE, d));
        return;
    }
    const char *name = smooth_l1 ? "beta" : "delta";
    double edge = aten_float(a, name, 1);
    if (aten_ok(a) && !(smooth_l1 ? edge >= 0 : edge > 0))
        aten_fail(a, ST_INVALID, "argument '%s' is %g, it must be %s", name, edge,
                  smooth_l1 ? "at least 0" : "above 0");
    return_elements(a, quadratic_then_linear(a, d, edge, smooth_l1));
}

/* With logits x, targets y and p the weight of positives (1 if left out):
 *   (1 - y) x + (1 + (p - 1) y) (max(-x, 0) + log(1 + exp(-|x|)))
 * which for p = 1 is max(x, 0) - x y + log(1 + exp(-|x|)). */
void aten_bce_with_logits(aten_t *a) {
    ir_build_t *b = &a->b;
    aten_item_t given_x = aten_item(a, "self"), given_y = aten_item(a, "target");
    ir_value_t weight = aten_tensor_or_none(a, "weight");
    ir_value_t positives = aten_tensor_or_none(a, "pos_weight");
    ir_dtype_t dtype = aten_result_type(a, 2, (aten_item_t[]){given_x, given_y});
    ir_value_t x = aten_value(a, given_x, dtype), y = aten_value(a, given_y, dtype);
    ir_type_t type = aten_type(a, x), target_type = aten_type(a, y);
    if (aten_ok(a) && !ir_dims_equal(&type, &target_type))
        aten_fail(a, ST_INVALID, "input and target have different shapes");
    ir_value_t zero = ir_b_scalar(b, dtype, 0), one = ir_b_scalar(b, dtype, 1);
    ir_value_t tail = aten_log_one_plus_exp(a, x), loss;
    if (positives == IR_NONE) {
        loss = ir_b_binary(b, IR_OP_SUB, ir_b_binary(b, IR_OP_MAXIMUM, x, zero),
                           ir_b_binary(b, IR_OP_MUL, x, y));
    } else {
        ir_value_t extra = ir_b_add_scalar(b, ir_b_cast(b, positives, dtype), -1);
        ir_value_t factor = ir_b_add_scalar(b, ir_b_binary(b, IR_OP_MUL, extra, y), 1);
        ir_value_t negative = ir_b_unary(b, IR_OP_NEG, x);
        tail = ir_b_binary(b, IR_OP_ADD, tail, ir_b_binary(b, IR_OP_MAXIMUM, negative, zero));
        tail = ir_b_binary(b, IR_OP_MUL, factor, tail);
        loss = ir_b_binary(b, IR_OP_MUL, ir_b_binary(b, IR_OP_SUB, one, y), x);
    }
    loss = ir_b_binary(b, IR_OP_ADD, loss, tail);
    if (weight != IR_NONE) loss = ir_b_binary(b, IR_OP_MUL, loss, ir_b_cast(b, weight, dtype));
    return_elements(a, loss);
}
