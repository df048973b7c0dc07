/* Reductions of a nest that say "after another one" but can be had in the same pass over the data:
 * what they are centred on cancels out. Who runs a nest may take them together (Chan, Golub,
 * LeVeque 1979 for squares; Milakov, Gimelshein 2018 for exponentials), or one after the other, as
 * they are written. */
#ifndef STATOR_IR_NEST_PAIRS_H
#define STATOR_IR_NEST_PAIRS_H

#include "ir/nest.h"

/* `second` as it is written needs `first`; both reduce `of` over the same axes. */
typedef struct nest_pair {
    nest_value_t first, second, of;
} nest_pair_t;

/* Is `v` the sum of (x - sum(x) / n)^2 with n the points that are summed? x has no part of it.
 * O(1). */
bool nest_centered_squares(const nest_t *nest, nest_value_t v, nest_pair_t *out_pair);

/* Is `v` the sum of e^(x - max(x))? O(1). */
bool nest_centered_exponentials(const nest_t *nest, nest_value_t v, nest_pair_t *out_pair);

#endif
