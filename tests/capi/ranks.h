/* Training the same steps on several rank counts: shared by the short and the full form of the
 * test. */
#ifndef STATOR_TESTS_CAPI_RANKS_H
#define STATOR_TESTS_CAPI_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct ranks_case {
    const char *model;       /* "llama" or "resnet" */
    const char *options[24]; /* key, value, …, NULL: model and training */
    int n_steps;
} ranks_case_t;

/* Trains in float64 on 1 rank, then on 2, 3 and 4; fails unless every parameter, buffer and moment
 * is within 1e-9 of the one-rank run, relative to the tensor's largest element. The data is a fixed
 * function of step and element. */
void ranks_check(const ranks_case_t *row);

#endif
