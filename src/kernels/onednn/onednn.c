/* List of the oneDNN kernels, and what concerns the library as a whole. */
#include "kernels/onednn/onednn.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <stdio.h>
#include <string.h>

const kern_impl_t *const kern_onednn[] = {&kern_onednn_matmul, NULL};

void kern_onednn_version(char *buffer, size_t capacity) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(buffer, capacity, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

/* The runtime is whatever oneDNN was linked with: looked up by name, so that we need none
 * ourselves. A build of oneDNN without OpenMP has no threads to hold back. */
void kern_onednn_enter(void) {
    static _Thread_local int entered;
    if (entered) return;
    entered = 1;
    void (*set)(int) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&set, &symbol, sizeof symbol);
    if (set) set(1);
}
