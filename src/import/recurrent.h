/* Recurrent layers as repeat: shared by the importers. */
#ifndef STATOR_IMPORT_RECURRENT_H
#define STATOR_IMPORT_RECURRENT_H

#include "ir/build.h"

/* The four gates' places among the rows of weights and biases. */
typedef struct import_gates {
    int32_t input, forget, cell, output;
} import_gates_t;

/* One direction of one layer over x[T,B,I]. */
typedef struct import_lstm {
    ir_value_t x, w, r; /* w[4H,I], r[4H,H] */
    ir_value_t bias;    /* [4H], of both products together; IR_NONE: none */
    ir_value_t h0, c0;  /* [B,H] */
    import_gates_t gates;
    bool reverse; /* from the last step to the first; results stay in the order of x */
} import_lstm_t;

/* *out_y [T,B,H], *out_h and *out_c [B,H] after the last step taken. The product with x is made for
 * all steps at once; the loop has the other one and what follows. */
void import_lstm(ir_build_t *b, const import_lstm_t *lstm, ir_value_t *out_y, ir_value_t *out_h,
                 ir_value_t *out_c);

#endif
