/* ONNX's losses over classes: scores [N, C, d…], labels [N, d…], optional class weights [C]. */
#include <string.h>

#include "import/onnx_reader.h"
#include "ir/op.h"

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM, N_REDUCTIONS };

/* No label has this value: what stands for the absence of ignore_index. */
#define NO_LABEL ((int64_t)INT32_MIN)

typedef struct rows {
    ir_value_t scores, labels, weight; /* [R, C], [R], [C] or IR_NONE */
    ir_type_t label_type;
    int64_t n_rows, ignore;
    int reduction;
} rows_t;

/* The class dim moves last, everything else becomes rows. */
static ir_value_t class_rows(onnx_t *o, ir_value_t x, int64_t *out_rows) {
    ir_type_t type = onnx_type(o, x);
    if (onnx_ok(o) && type.rank < 2) onnx_fail(o, ST_INVALID, "scores of %d dims", type.rank);
    if (!onnx_ok(o)) return IR_NONE;
    int64_t perm[IR_MAX_RANK];
    for (int32_t i = 0; i < type.rank; i++) perm[i == 0 ? 0 : i == 1 ? type.rank - 1 : i - 1] = i;
    if (type.rank > 2) x = ir_b_transpose(&o->b, x, perm);
    ir_type_t moved = onnx_type(o, x);
    *out_rows = onnx_product(&moved, 0, type.rank - 1);
    return ir_b_reshape(&o->b, x, 2, (int64_t[]){*out_rows, type.dims[1]});
}

static rows_t read_rows(onnx_t *o, ir_value_t scores) {
    static const char *const names[N_REDUCTIONS] = {"none", "mean", "sum"};
    rows_t r = {.weight = onnx_in_or_none(o, 2)};
    ir_value_t labels = onnx_in(o, 1);
    const char *reduction = onnx_string(o, "reduction", "mean");
    r.ignore = onnx_int(o, "ignore_index", NO_LABEL);
    while (r.reduction < N_REDUCTIONS && strcmp(reduction, names[r.reduction]) != 0) r.reduction++;
    if (onnx_ok(o) && r.reduction == N_REDUCTIONS)
        onnx_fail(o, ST_INVALID, "attribute 'reduction' is '%.32s'", reduction);
    ir_type_t type = onnx_type(o, scores);
    r.label_type = onnx_type(o, labels);
    r.scores = class_rows(o, scores, &r.n_rows);
    bool fits = r.label_type.rank == type.rank - 1;
    for (int32_t i = 0; fits && i < r.label_type.rank; i++)
        fits = r.label_type.dims[i] == type.dims[i == 0 ? 0 : i + 1];
    if (onnx_ok(o) && !fits) {
        char tx[IR_TYPE_TEXT_BYTES], ty[IR_TYPE_TEXT_BYTES];
        onnx_fail(o, ST_INVALID, "scores %s and labels %s do not fit",
                  ir_type_text(&type, tx, sizeof tx), ir_type_text(&r.label_type, ty, sizeof ty));
    }
    r.labels = ir_b_reshape(&o->b, labels, 1, &r.n_rows);
    return r;
}

/* Returns losses by rows, reduced. */
static void return_reduced(onnx_t *o, const rows_t *r, ir_value_t loss, ir_value_t weight) {
    ir_build_t *b = &o->b;
    if (r->reduction == REDUCE_NONE) {
        onnx_return(o, ir_b_reshape(b, loss, r->label_type.rank, r->label_type.dims));
        return;
    }
    ir_value_t sum = ir_b_reduce(b, IR_OP_REDUCE_SUM, loss, 0, NULL, false);
    if (r->reduction == REDUCE_MEAN)
        sum = ir_b_binary(b, IR_OP_DIV, sum,
                          ir_b_reduce(b, IR_OP_REDUCE_SUM, weight, 0, NULL, false));
    onnx_return(o, sum);
}

/* Cross-entropy of score rows, in the op that has it as a whole. */
static void return_cross_entropy(onnx_t *o, const rows_t *r) {
    ir_value_t inputs[] = {r->scores, r->labels, r->weight};
    uint32_t n = r->weight == IR_NONE ? 2 : 3;
    ir_arg_t args[] = {IR_ARG_INT("ignore_index", r->ignore),
                       IR_ARG_BOOL("mean", r->reduction == REDUCE_MEAN)};
    if (r->reduction == REDUCE_NONE)
        return_reduced(o, r, ir_b_node(&o->b, IR_OP_CROSS_ENTROPY_ROWS, n, inputs, 1, args),
                       IR_NONE);
    else
        onnx_return(o, ir_b_node(&o->b, IR_OP_CROSS_ENTROPY, n, inputs, 2, args));
}

void onnx_cross_entropy(onnx_t *o) {
    ir_value_t scores = onnx_in(o, 0);
    rows_t r = read_rows(o, scores);
    if (!onnx_ok(o)) return;
    return_cross_entropy(o, &r);
    if (onnx_wants(o, 1))
        onnx_return(o, ir_b_node(&o->b, IR_OP_LOG_SOFTMAX, 1, &scores, 1,
                                 (ir_arg_t[]){IR_ARG_INT("axis", 1)}));
}

/* The entry that the label picks, negated and weighted; ignored rows count nothing. */
static void return_picked(onnx_t *o, const rows_t *r) {
    ir_build_t *b = &o->b;
    ir_dtype_t dtype = onnx_type(o, r->scores).dtype, label = onnx_type(o, r->labels).dtype;
    ir_value_t counts =
        ir_b_binary(b, IR_OP_NE, r->labels, ir_b_scalar(b, label, (double)r->ignore));
    ir_value_t safe = ir_b_select(b, counts, r->labels, ir_b_scalar(b, label, 0));
    ir_value_t inputs[] = {r->scores, ir_b_reshape(b, safe, 2, (int64_t[]){r->n_rows, 1})};
    ir_value_t picked =
        ir_b_node(b, IR_OP_GATHER_ALONG, 2, inputs, 1, (ir_arg_t[]){IR_ARG_INT("axis", 1)});
    picked = ir_b_unary(b, IR_OP_NEG, ir_b_reshape(b, picked, 1, &r->n_rows));
    ir_value_t weight = ir_b_cast(b, counts, dtype);
    if (r->weight != IR_NONE)
        weight = ir_b_binary(b, IR_OP_MUL, weight, ir_b_gather(b, r->weight, safe, 0));
    ir_value_t loss =
        ir_b_select(b, counts, ir_b_binary(b, IR_OP_MUL, picked, weight), ir_b_scalar(b, dtype, 0));
    return_reduced(o, r, loss, weight);
}

/* Of a log-softmax over the classes it is the cross-entropy of the scores, which is one op. */
void onnx_nll(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0);
    rows_t r = read_rows(o, x);
    if (!onnx_ok(o)) return;
    const ir_node_info_t *node = ir_value_producer(o->b.graph, x);
    if (node->op == IR_OP_LOG_SOFTMAX && ir_attr_int(node, "axis") == 1) {
        r.scores = class_rows(o, node->inputs[0], &r.n_rows);
        if (onnx_ok(o)) return_cross_entropy(o, &r);
    } else {
        return_picked(o, &r);
    }
}
