/* ATen's recurrent layers: lstm. */
#include "import/aten.h"
#include "import/recurrent.h"

typedef struct lstm {
    ir_value_t *params, *states; /* states: h0 and c0, [layers·directions,B,H] */
    uint32_t per_direction;      /* params of each */
    int32_t n_directions;
    int64_t n_layers;
    bool has_bias;
} lstm_t;

static ir_value_t row(aten_t *a, ir_value_t x, int64_t i) {
    ir_type_t type = aten_type(a, x);
    return ir_b_reshape(&a->b, ir_b_slice_axis(&a->b, x, 0, i, i + 1), type.rank - 1,
                        type.dims + 1);
}

static void read_arguments(aten_t *a, lstm_t *l) {
    uint32_t n_states = aten_tensors(a, "hx", &l->states);
    uint32_t n_params = aten_tensors(a, "params", &l->params);
    l->has_bias = aten_bool(a, "has_biases", true);
    l->n_layers = aten_int(a, "num_layers", 1);
    l->n_directions = aten_bool(a, "bidirectional", false) ? 2 : 1;
    l->per_direction = l->has_bias ? 4 : 2;
    if (!aten_ok(a)) return;
    if (n_states != 2)
        aten_fail(a, ST_INVALID, "argument 'hx' has %u tensors, h and c are needed", n_states);
    if (l->n_layers < 1 || l->n_layers > ATEN_MAX_LIST)
        aten_fail(a, ST_INVALID, "argument 'num_layers' is %lld", (long long)l->n_layers);
    else if (n_params > (uint64_t)l->n_layers * (uint64_t)l->n_directions * l->per_direction)
        aten_fail(a, ST_UNSUPPORTED,
                  "argument 'params' has %u tensors: projections (proj_size) have no equivalent",
                  n_params);
    else if (n_params < (uint64_t)l->n_layers * (uint64_t)l->n_directions * l->per_direction)
        aten_fail(a, ST_INVALID, "argument 'params' has %u tensors, %lld layers need %lld",
                  n_params, (long long)l->n_layers,
                  (long long)(l->n_layers * l->n_directions * l->per_direction));
}

/* Everything that import_lstm takes as given: [T,B,I], [4H,I], [4H,H], [4H] twice, [B,H] twice. */
static bool fits(aten_t *a, const import_lstm_t *one, const ir_value_t *params, bool has_bias) {
    ir_type_t x = aten_type(a, one->x), w = aten_type(a, one->w), r = aten_type(a, one->r);
    ir_type_t h = aten_type(a, one->h0), c = aten_type(a, one->c0);
    if (!aten_ok(a)) return false;
    bool good = x.rank == 3 && w.rank == 2 && r.rank == 2 && h.rank == 2 && ir_type_equal(&h, &c);
    good = good && h.dims[0] == x.dims[1] && r.dims[1] == h.dims[1] && w.dims[1] == x.dims[2] &&
           r.dims[0] == 4 * h.dims[1] && w.dims[0] == r.dims[0];
    for (int i = 2; good && has_bias && i < 4; i++) {
        ir_type_t bias = aten_type(a, params[i]);
        good = bias.rank == 1 && bias.dims[0] == r.dims[0];
    }
    if (!good) aten_fail(a, ST_INVALID, "the shapes of input, hx and params do not fit");
    return good;
}

/* Layer `layer` of x[T,B,I]: [T,B,D·H]; the last states go to h and c. */
static ir_value_t layer_of(aten_t *a, const lstm_t *l, ir_value_t x, int64_t layer, ir_value_t *h,
                           ir_value_t *c) {
    ir_value_t y[2] = {IR_NONE, IR_NONE};
    for (int32_t d = 0; d < l->n_directions && aten_ok(a); d++) {
        const int64_t at = layer * l->n_directions + d;
        const ir_value_t *params = l->params + at * l->per_direction;
        import_lstm_t one = {.x = x,
                             .w = params[0],
                             .r = params[1],
                             .bias = IR_NONE,
                             .h0 = row(a, l->states[0], at),
                             .c0 = row(a, l->states[1], at),
                             .gates = {.input = 0, .forget = 1, .cell = 2, .output = 3},
                             .reverse = d == 1};
        if (!fits(a, &one, params, l->has_bias)) return IR_NONE;
        if (l->has_bias) one.bias = ir_b_binary(&a->b, IR_OP_ADD, params[2], params[3]);
        import_lstm(&a->b, &one, &y[d], &h[at], &c[at]);
    }
    return l->n_directions == 1 ? y[0] : ir_b_concat(&a->b, 2, y, 2);
}

static ir_value_t stack(aten_t *a, const lstm_t *l, ir_value_t *parts) {
    uint32_t n = (uint32_t)(l->n_layers * l->n_directions);
    for (uint32_t i = 0; i < n && aten_ok(a); i++) {
        ir_type_t type = aten_type(a, parts[i]);
        parts[i] = ir_b_reshape(&a->b, parts[i], 3, (int64_t[]){1, type.dims[0], type.dims[1]});
    }
    return ir_b_concat(&a->b, n, parts, 0);
}

/* lstm.input: (output, h_n, c_n). Dropout falls between the layers, in training. */
void aten_lstm(aten_t *a) {
    lstm_t l = {0};
    ir_value_t x = aten_tensor(a, "input");
    double dropout = aten_float(a, "dropout", 0);
    bool train = aten_bool(a, "train", false), batch_first = aten_bool(a, "batch_first", false);
    read_arguments(a, &l);
    if (!aten_ok(a)) return;
    ir_type_t type = aten_type(a, x), state = aten_type(a, l.states[0]);
    if (type.rank != 3 || state.rank != 3 || aten_type(a, l.states[1]).rank != 3 ||
        state.dims[0] != l.n_layers * l.n_directions ||
        aten_type(a, l.states[1]).dims[0] != state.dims[0]) {
        char text[IR_TYPE_TEXT_BYTES], other[IR_TYPE_TEXT_BYTES];
        aten_fail(a, ST_INVALID, "input %s with hx %s for %lld states",
                  ir_type_text(&type, text, sizeof text), ir_type_text(&state, other, sizeof other),
                  (long long)(l.n_layers * l.n_directions));
        return;
    }
    ir_value_t h[2 * ATEN_MAX_LIST], c[2 * ATEN_MAX_LIST];
    if (batch_first) x = ir_b_swap(&a->b, x, 0, 1);
    for (int64_t layer = 0; layer < l.n_layers && aten_ok(a); layer++) {
        if (layer && train && dropout > 0) x = aten_dropped(a, x, dropout);
        x = layer_of(a, &l, x, layer, h, c);
    }
    if (!aten_ok(a)) return;
    aten_return(a, batch_first ? ir_b_swap(&a->b, x, 0, 1) : x);
    aten_return(a, stack(a, &l, h));
    aten_return(a, stack(a, &l, c));
}
