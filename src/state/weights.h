/* Matching a model's parameters and buffers with a weights file.
 *
 * Names agree when they are equal or differ by one constant prefix that ends at a '.', the same for
 * all, on either side; aliases of the file and of the model count as names. Everything required
 * must be found and every stored tensor must be wanted, or the error lists what is missing and left
 * over (ten names and the count). What is optional (buffers, say) and missing is reported apart.
 * Stored tensors that are no floats (batch norm's counters, say) and are not wanted are ignored and
 * reported.
 * Shapes must be equal; dtypes too, except that f64, f32, f16 and bf16 are converted into each
 * other (rounding to nearest even).
 *
 * A model's tie (several names of one wanted tensor) may be stored once under any of its names, or
 * several times with equal bytes. */
#ifndef STATOR_STATE_WEIGHTS_H
#define STATOR_STATE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "ir/types.h"
#include "state/report.h"
#include "state/safetensors.h"

typedef struct weights_wanted {
    const char *name;
    ir_type_t type;
    bool is_optional;
    const char *const *other_names; /* of a tied tensor; may be NULL when n_other_names is 0 */
    size_t n_other_names;
} weights_wanted_t;

typedef struct weights_match {
    size_t n;
    const safetensors_tensor_t **tensors; /* for each wanted one; NULL: optional and missing */
    char *prefix;                         /* "" when the names are equal */
    bool prefix_in_file;                  /* file name = prefix + wanted name; else the reverse */
    state_report_t missing_optional;
    state_report_t ignored;
} weights_match_t;

/* `file` must outlive the result. ST_INVALID when they do not match. */
st_status_t weights_match(const safetensors_t *file, const weights_wanted_t *wanted,
                          size_t n_wanted, weights_match_t *out_match) ST_WARN_UNUSED;
/* A zeroed or freed one is fine. */
void weights_match_free(weights_match_t *match);

/* Writes all elements of a matched tensor as `dtype` (shape and convertibility were checked when
 * matching `dtype`). */
void weights_read(const safetensors_tensor_t *tensor, ir_dtype_t dtype, void *out);

#endif
