/* CUDA C of the cases' nests through NVRTC: no GPU and no driver is needed. */
#ifndef STATOR_TESTS_CONFORMANCE_COMPILE_NESTS_H
#define STATOR_TESTS_CONFORMANCE_COMPILE_NESTS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct compiled_nests {
    size_t n_nests, n_texts; /* of them different from each other */
    size_t n_known;          /* texts that an earlier run has compiled */
    size_t n_compiled;       /* by this one */
} compiled_nests_t;

/* Writes every case that is a nest, in its last type or in `all_types`, and says why the others are
 * none. Compiles what is new, until `seconds` are over, the forms that few nests have first. With
 * `keeps` what compiles is noted in a file beside the program, so that further runs go on from
 * there. A text that does not compile fails the running test with NVRTC's log. Skips it where there
 * is no NVRTC 13. */
void compile_nests(bool all_types, double seconds, bool keeps, compiled_nests_t *out);

#endif
