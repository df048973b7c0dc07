/* Arithmetic in text over named numbers: "4*batch*(seq + 1)", "1/(batch*seq)".
 *
 * Numbers, names, + - * / // % ** and parentheses, and the functions Max, Min, Mod and FloorDiv
 * (which is how PyTorch writes symbolic sizes). Whole numbers are computed as such, with a check
 * for overflow; a quotient that does not come out even, and what is computed from it, is a double
 * only. */
#ifndef STATOR_BASE_EXPRESSION_H
#define STATOR_BASE_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct st_number {
    bool whole; /* `i` holds it, and `f` the same */
    int64_t i;
    double f;
} st_number_t;

/* Value of a name (not NUL-terminated); false: it is not known. */
typedef bool (*st_expression_name_t)(void *context, const char *name, size_t bytes,
                                     int64_t *out_value);

/* Errors say what is wrong and where. At most 64 parentheses deep. */
st_status_t st_expression_eval(const char *text, st_expression_name_t lookup, void *context,
                               st_number_t *out) ST_WARN_UNUSED;

#endif
