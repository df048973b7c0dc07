/* Content of inputs: the same numbers for the same state, on any machine. */
#ifndef STATOR_TESTS_CAPI_FEED_H
#define STATOR_TESTS_CAPI_FEED_H

#include <stdint.h>

#include "stator/stator.h"

/* Fills `data`, of the port's bytes: float64 in [-1, 1), integers (int64) in [0, n_labels). `state`
 * is the place in the sequence. */
void feed_fill(const stator_tensor_t *port, void *data, int64_t n_labels, uint64_t *state);

#endif
