/* Composites as exporters spell them, and chains that look like them and are not. */
#ifndef STATOR_TESTS_FUSION_SPELLINGS_H
#define STATOR_TESTS_FUSION_SPELLINGS_H

#include <stddef.h>

typedef struct spelling {
    const char *name;
    const char *text;   /* of a graph whose output "loss" is a scalar; parameters have gradients */
    const char *op;     /* that recognition finds once; NULL: it finds nothing */
    const char *absent; /* an op that is gone then; NULL: none in particular */
    const char *contains; /* what the printed graph contains then; NULL: nothing in particular */
    double tolerance;     /* of values and gradients in float64, relative; 0: 1e-9 */
} spelling_t;

extern const spelling_t spellings[];
extern const size_t n_spellings;

#endif
