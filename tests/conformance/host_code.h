/* Device code compiled for this machine (cuda_on_host.h), so that kernels run without a GPU. */
#ifndef TESTS_CONFORMANCE_HOST_CODE_H
#define TESTS_CONFORMANCE_HOST_CODE_H

/* Compiles the C++ file at `path` with `flags` and gives the address of its function `symbol`.
 * NULL: there is no compiler ($CXX, else c++). Fails the test where the file does not compile. */
void *host_code(const char *path, const char *flags, const char *symbol);

#endif
