/* ONNX's recurrent layers: LSTM. */
#include <string.h>

#include "import/onnx_reader.h"
#include "import/recurrent.h"

enum { IN_X, IN_W, IN_R, IN_B, IN_LENGTHS, IN_H, IN_C, IN_PEEPHOLES };

typedef struct lstm {
    ir_value_t x, w, r, bias, h0, c0; /* x [T,B,I]; the others with the directions in front */
    int64_t batch, hidden;
    int32_t n_directions;
    bool batch_first;
} lstm_t;

/* Row d of a tensor with the directions in front. */
static ir_value_t of_direction(onnx_t *o, ir_value_t x, int32_t d) {
    ir_type_t type = onnx_type(o, x);
    if (!onnx_ok(o)) return IR_NONE;
    ir_value_t part = ir_b_slice_axis(&o->b, x, 0, d, d + 1);
    return ir_b_reshape(&o->b, part, type.rank - 1, type.dims + 1);
}

/* Dims must be as given (-1: any), or the message says which input it is. */
static void expect(onnx_t *o, ir_value_t x, const char *what, int32_t rank, const int64_t *dims) {
    ir_type_t type = onnx_type(o, x);
    char text[IR_TYPE_TEXT_BYTES];
    bool fits = type.rank == rank;
    for (int32_t i = 0; fits && i < rank; i++) fits = dims[i] < 0 || type.dims[i] == dims[i];
    if (onnx_ok(o) && !fits)
        onnx_fail(o, ST_INVALID, "input '%s' is %s, which does not fit the others", what,
                  ir_type_text(&type, text, sizeof text));
}

/* What is not here changes the numbers, so it is refused. */
static void refuse_variants(onnx_t *o) {
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    const Onnx__AttributeProto *names = onnx_attribute(o, "activations");
    for (size_t i = 0; names && i < names->n_strings; i++)
        if (names->strings[i].len != strlen(usual[i % 3]) ||
            memcmp(names->strings[i].data, usual[i % 3], names->strings[i].len) != 0)
            onnx_fail(o, ST_UNSUPPORTED, "activation %zu is '%.*s', only Sigmoid, Tanh, Tanh are",
                      i, (int)names->strings[i].len, (const char *)names->strings[i].data);
    if (onnx_has(o, "clip")) onnx_fail(o, ST_UNSUPPORTED, "attribute 'clip' has no equivalent");
    if (onnx_int(o, "input_forget", 0))
        onnx_fail(o, ST_UNSUPPORTED, "attribute 'input_forget' has no equivalent");
    if (onnx_has_input(o, IN_LENGTHS))
        onnx_fail(o, ST_UNSUPPORTED,
                  "input 'sequence_lens' is given: sequences of different lengths have no "
                  "equivalent, pad them to one length");
    if (onnx_has_input(o, IN_PEEPHOLES))
        onnx_fail(o, ST_UNSUPPORTED, "input 'P' (peepholes) has no equivalent");
}

/* [D,B,H] of zeros where the input is absent; with layout 1 it comes as [B,D,H]. */
static ir_value_t state_input(onnx_t *o, size_t i, const lstm_t *l, const char *what) {
    const int64_t dims[] = {l->n_directions, l->batch, l->hidden};
    ir_value_t given = onnx_in_or_none(o, i);
    if (given == IR_NONE)
        return ir_b_splat(&o->b, ir_type_make(onnx_type(o, l->x).dtype, 3, dims), 0);
    if (l->batch_first) given = ir_b_swap(&o->b, given, 0, 1);
    expect(o, given, what, 3, dims);
    return given;
}

static void read_inputs(onnx_t *o, lstm_t *l) {
    const char *direction = onnx_string(o, "direction", "forward");
    l->n_directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    l->batch_first = o->opset >= 14 && onnx_int(o, "layout", 0) != 0;
    l->x = onnx_in(o, IN_X);
    l->w = onnx_in(o, IN_W);
    l->r = onnx_in(o, IN_R);
    l->bias = onnx_in_or_none(o, IN_B);
    if (!onnx_ok(o)) return;
    expect(o, l->x, "X", 3, (const int64_t[]){-1, -1, -1});
    expect(o, l->r, "R", 3, (const int64_t[]){l->n_directions, -1, -1});
    if (!onnx_ok(o)) return;
    if (l->batch_first) l->x = ir_b_swap(&o->b, l->x, 0, 1);
    const int64_t n_in = onnx_type(o, l->x).dims[2];
    l->batch = onnx_type(o, l->x).dims[1];
    l->hidden = onnx_type(o, l->r).dims[2];
    if (onnx_int(o, "hidden_size", l->hidden) != l->hidden)
        onnx_fail(o, ST_INVALID, "attribute 'hidden_size' is not that of R, %lld",
                  (long long)l->hidden);
    expect(o, l->r, "R", 3, (const int64_t[]){l->n_directions, 4 * l->hidden, l->hidden});
    expect(o, l->w, "W", 3, (const int64_t[]){l->n_directions, 4 * l->hidden, n_in});
    if (l->bias != IR_NONE)
        expect(o, l->bias, "B", 2, (const int64_t[]){l->n_directions, 8 * l->hidden});
    l->h0 = state_input(o, IN_H, l, "initial_h");
    l->c0 = state_input(o, IN_C, l, "initial_c");
}

/* Both biases of a direction, [8H], as the one that they sum to. */
static ir_value_t sum_of_biases(onnx_t *o, const lstm_t *l, int32_t d) {
    if (l->bias == IR_NONE) return IR_NONE;
    ir_value_t both = of_direction(o, l->bias, d);
    return ir_b_binary(&o->b, IR_OP_ADD, ir_b_slice_axis(&o->b, both, 0, 0, 4 * l->hidden),
                       ir_b_slice_axis(&o->b, both, 0, 4 * l->hidden, 8 * l->hidden));
}

/* Results of the directions, side by side on a new dim `axis`. */
static ir_value_t stack(onnx_t *o, const lstm_t *l, const ir_value_t *parts, int32_t axis) {
    ir_value_t wide[2] = {IR_NONE, IR_NONE};
    for (int32_t d = 0; d < l->n_directions && onnx_ok(o); d++) {
        ir_type_t type = onnx_type(o, parts[d]);
        int64_t dims[4] = {0};
        for (int32_t i = 0, from = 0; i <= type.rank; i++)
            dims[i] = i == axis ? 1 : type.dims[from++];
        wide[d] = ir_b_reshape(&o->b, parts[d], type.rank + 1, dims);
    }
    return l->n_directions == 1 ? wide[0] : ir_b_concat(&o->b, 2, wide, axis);
}

/* Y [T,D,B,H], Y_h and Y_c [D,B,H]; with layout 1 [B,T,D,H] and [B,D,H]. Gates stand as i, o, f,
 * c. */
void onnx_lstm(onnx_t *o) {
    lstm_t l = {0};
    ir_value_t y[2], h[2], c[2];
    refuse_variants(o);
    read_inputs(o, &l);
    if (!onnx_ok(o)) return;
    bool backward = strcmp(onnx_string(o, "direction", "forward"), "reverse") == 0;
    for (int32_t d = 0; d < l.n_directions; d++) {
        const import_lstm_t one = {.x = l.x,
                                   .w = of_direction(o, l.w, d),
                                   .r = of_direction(o, l.r, d),
                                   .bias = sum_of_biases(o, &l, d),
                                   .h0 = of_direction(o, l.h0, d),
                                   .c0 = of_direction(o, l.c0, d),
                                   .gates = {.input = 0, .output = 1, .forget = 2, .cell = 3},
                                   .reverse = backward || d == 1};
        import_lstm(&o->b, &one, &y[d], &h[d], &c[d]);
    }
    if (!onnx_ok(o)) return;
    ir_value_t all = stack(o, &l, y, 1);
    if (l.batch_first && onnx_ok(o))
        all = ir_b_transpose(&o->b, all, (const int64_t[]){2, 0, 1, 3});
    onnx_return(o, all);
    onnx_return(o, stack(o, &l, h, l.batch_first ? 1 : 0));
    onnx_return(o, stack(o, &l, c, l.batch_first ? 1 : 0));
}
