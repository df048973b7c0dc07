/* Initialization by name pattern.
 *
 * A rule is "pattern=kind" or "pattern=kind:number"; rules are joined by ';' and the first whose
 * pattern matches a tensor's name decides. In a pattern '*' is any text and '?' any one character.
 * Rules of the caller come before the defaults.
 *
 *   kind                  value                                                number (default)
 *   zeros, ones           0, 1
 *   constant              the number                                           value
 *   normal                normal, mean 0                                       deviation
 *   uniform               uniform in ±bound                                    bound
 *   kaiming_normal        normal, deviation sqrt(2 / fan in)
 *   kaiming_normal_out    normal, deviation sqrt(2 / fan out)
 *   kaiming_uniform       uniform, bound sqrt(6 / ((1 + a²) fan in))           a (sqrt 5)
 *   xavier_normal         normal, deviation sqrt(2 / (fan in + fan out))
 *   xavier_uniform        uniform, bound sqrt(6 / (fan in + fan out))
 *
 * Fan in is dims[1] times the dims after it, fan out dims[0] times the dims after dims[1], as in
 * PyTorch. Defaults, in this order:
 *
 *   *running_mean, *num_batches_tracked, *bias, *beta   zeros
 *   *running_var, *gamma                                ones
 *   *embed*, *_token                                    normal:0.02
 *   *experts.*weight                                    normal:0.02
 *   *weight of rank 0 or 1                              ones (norms)
 *   any other name of rank 2                            normal:0.02
 *   any other name of rank 3 or more                    kaiming_normal_out (convolutions)
 *
 * An element is a function of (seed, tensor name, element index) alone: the same bits on any
 * device, any number of ranks and threads and in any order. */
#ifndef STATOR_STATE_INIT_H
#define STATOR_STATE_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/draw.h"
#include "base/status.h"
#include "ir/types.h"

typedef struct init_rules init_rules_t;
/* `text` may be NULL or empty: the defaults alone. A malformed rule is ST_INVALID and named. */
st_status_t init_rules_parse(const char *text, init_rules_t **out_rules) ST_WARN_UNUSED;
/* NULL is fine. */
void init_rules_free(init_rules_t *rules);

/* What fills the whole tensor of that name and type (f64, f32, f16, bf16; zeros, ones and constant
 * also integers and bool). A name without a rule is ST_NOT_FOUND, and *out_draw fills it with
 * zeros. */
st_status_t init_draw(const init_rules_t *rules, uint64_t seed, const char *name,
                      const ir_type_t *type, st_draw_t *out_draw) ST_WARN_UNUSED;

#endif
