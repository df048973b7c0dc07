/* What is measured (calibrate.c): single ops, none of them taken from a model. */
#ifndef STATOR_EXEC_CALIBRATE_POINTS_H
#define STATOR_EXEC_CALIBRATE_POINTS_H

#include <stddef.h>

/* An op with its attributes and its operands' types, in which R is a number of rows. */
typedef struct calibrate_point {
    const char *op, *attrs, *shapes;
} calibrate_point_t;

extern const calibrate_point_t calibrate_passes[];
extern const size_t calibrate_n_passes;

typedef struct calibrate_matmul {
    int b, m, n, k;
} calibrate_matmul_t;
extern const calibrate_matmul_t calibrate_matmuls[];
extern const size_t calibrate_n_matmuls;

/* Convolutions and attention. */
extern const calibrate_point_t calibrate_products[];
extern const size_t calibrate_n_products;

#endif
