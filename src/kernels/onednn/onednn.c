/* List of the oneDNN kernels, and what concerns the library as a whole. */
#include "kernels/onednn/onednn.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const kern_impl_t *const kern_onednn[] = {&kern_onednn_matmul, &kern_onednn_conv,
                                          &kern_onednn_conv_grad_input,
                                          &kern_onednn_conv_grad_weight, NULL};

void kern_onednn_version(char *buffer, size_t capacity) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(buffer, capacity, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

/* The runtime is whatever oneDNN was linked with: looked up by name, so that we need none
 * ourselves. A build of oneDNN without OpenMP has no threads to hold back. */
typedef struct runtime {
    int (*get)(void);
    void (*set)(int);
} runtime_t;

static runtime_t runtime;
static pthread_once_t runtime_once = PTHREAD_ONCE_INIT;

static void runtime_find(void) {
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    void *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!get || !set) return;
    memcpy(&runtime.get, &get, sizeof get);
    memcpy(&runtime.set, &set, sizeof set);
}

int kern_onednn_enter(void) {
    pthread_once(&runtime_once, runtime_find);
    int before = runtime.get ? runtime.get() : 1;
    if (before != 1) runtime.set(1);
    return before;
}

void kern_onednn_leave(int before) {
    if (before != 1) runtime.set(before);
}
