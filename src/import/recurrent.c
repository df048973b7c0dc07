/* Recurrent layers (recurrent.h).
 *
 *   g  = x w^T + bias + h r^T           i, f, o = sigmoid, z = tanh of its quarters
 *   c' = f c + i z,   h' = o tanh(c')   */
#include "import/recurrent.h"

#include "ir/body.h"

/* (h, c, g, r) → (h', c', h'); g is what x adds to the gates. */
static void build_step(ir_build_t *b, const import_lstm_t *lstm, const ir_type_t *state,
                       const ir_type_t *gates, const ir_type_t *r) {
    ir_value_t h = ir_b_body_input(b, state), c = ir_b_body_input(b, state);
    ir_value_t given = ir_b_body_input(b, gates), weight = ir_b_body_input(b, r);
    ir_value_t all = ir_b_binary(b, IR_OP_ADD, given, ir_b_matmul(b, h, weight, false, true));
    const int32_t places[4] = {lstm->gates.input, lstm->gates.forget, lstm->gates.cell,
                               lstm->gates.output};
    ir_value_t gate[4];
    const int64_t n = state->dims[1];
    for (int k = 0; k < 4; k++)
        gate[k] = ir_b_unary(b, k == 2 ? IR_OP_TANH : IR_OP_SIGMOID,
                             ir_b_slice_axis(b, all, 1, places[k] * n, (places[k] + 1) * n));
    c = ir_b_binary(b, IR_OP_ADD, ir_b_binary(b, IR_OP_MUL, gate[1], c),
                    ir_b_binary(b, IR_OP_MUL, gate[0], gate[2]));
    h = ir_b_binary(b, IR_OP_MUL, gate[3], ir_b_unary(b, IR_OP_TANH, c));
    ir_b_body_output(b, h);
    ir_b_body_output(b, c);
    ir_b_body_output(b, h);
}

void import_lstm(ir_build_t *b, const import_lstm_t *lstm, ir_value_t *out_y, ir_value_t *out_h,
                 ir_value_t *out_c) {
    *out_y = *out_h = *out_c = IR_NONE;
    ir_value_t given = ir_b_matmul(b, lstm->x, lstm->w, false, true);
    if (lstm->bias != IR_NONE) given = ir_b_binary(b, IR_OP_ADD, given, lstm->bias);
    if (b->status != ST_OK) return;
    const ir_type_t stack = *ir_b_type(b, given), state = *ir_b_type(b, lstm->h0);
    const ir_type_t gates = ir_type_drop_first(&stack), r = *ir_b_type(b, lstm->r);
    ir_build_t inner = {0};
    b->status = ir_graph_create("", &inner.graph);
    if (b->status != ST_OK) return;
    build_step(&inner, lstm, &state, &gates, &r);
    if (inner.status == ST_OK) {
        ir_value_t operands[] = {lstm->h0, lstm->c0, given, lstm->r};
        ir_arg_t args[] = {IR_ARG_GRAPH("body", inner.graph), IR_ARG_INT("trip", stack.dims[0]),
                           IR_ARG_INT("carried", 2), IR_ARG_INT("scanned", 1),
                           IR_ARG_BOOL("reverse", lstm->reverse)};
        ir_value_t first = ir_b_node(b, IR_OP_REPEAT, 4, operands, 5, args);
        *out_h = first;
        *out_c = first + 1;
        *out_y = first + 2;
    } else {
        b->status = inner.status;
    }
    ir_graph_destroy(inner.graph);
}
