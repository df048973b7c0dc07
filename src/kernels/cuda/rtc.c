/* Key of a cubin: hash of source, options, compiler version and architecture. Sources are written
 * with no names in them that change from run to run, so equal nests of one model share a module. */
#include "kernels/cuda/rtc.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "device/cuda/libraries.h"
#include "kernels/cuda/cache.h"

struct rtc_module {
    rtc_module_t *next;
    uint64_t key;
    int device;
    uint32_t uses;
    bool ready; /* else its first user is still making it */
    cudaLibrary_t library;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static rtc_module_t *modules;

/* ---- compiling ---- */

#define RTC_TRY(call)                                                                      \
    do {                                                                                   \
        nvrtcResult rtc_error_ = (call);                                                   \
        if (rtc_error_ != NVRTC_SUCCESS)                                                   \
            return FAIL(ST_DEVICE, "%s: %s", #call, rtc->nvrtcGetErrorString(rtc_error_)); \
    } while (0)

static st_status_t compile_failed(const dev_cuda_rtc_t *rtc, nvrtcProgram program,
                                  nvrtcResult error) {
    size_t bytes = 0;
    char log[1500] = "";
    if (rtc->nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS) {
        char *all = st_malloc(bytes + 1);
        if (all && rtc->nvrtcGetProgramLog(program, all) == NVRTC_SUCCESS)
            snprintf(log, sizeof log, "%s", all);
        st_free(all);
    }
    return FAIL(ST_INTERNAL, "NVRTC: %s: %s", rtc->nvrtcGetErrorString(error), log);
}

static st_status_t take_cubin(const dev_cuda_rtc_t *rtc, nvrtcProgram program, cache_data_t *out) {
    RTC_TRY(rtc->nvrtcGetCUBINSize(program, &out->bytes));
    out->data = st_malloc(out->bytes);
    if (!out->data) return st_no_memory(out->bytes, "a kernel's code");
    RTC_TRY(rtc->nvrtcGetCUBIN(program, (char *)out->data));
    return ST_OK;
}

static st_status_t compile(const char *source, const char *const *options, int n_options,
                           cache_data_t *out) {
    const dev_cuda_rtc_t *rtc;
    nvrtcProgram program;
    TRY(dev_cuda_rtc(&rtc));
    RTC_TRY(rtc->nvrtcCreateProgram(&program, source, "nest.cu", 0, NULL, NULL));
    nvrtcResult error = rtc->nvrtcCompileProgram(program, n_options, options);
    st_status_t status = error == NVRTC_SUCCESS ? take_cubin(rtc, program, out)
                                                : compile_failed(rtc, program, error);
    rtc->nvrtcDestroyProgram(&program);
    if (status != ST_OK) st_free(out->data);
    return status;
}

enum { MAX_OPTIONS = 8 };

typedef struct request {
    const char *source;
    char architecture[64];
    const char *options[MAX_OPTIONS];
    int n_options;
    uint64_t key;
} request_t;

static st_status_t fill_request(const dev_stream_t *stream, const char *source, request_t *out) {
    const dev_cuda_rtc_t *rtc;
    int version[2] = {0, 0};
    TRY(dev_cuda_rtc(&rtc));
    RTC_TRY(rtc->nvrtcVersion(&version[0], &version[1]));
    *out = (request_t){.source = source};
    snprintf(out->architecture, sizeof out->architecture, "--gpu-architecture=sm_%d%d",
             stream->properties.major, stream->properties.minor);
    out->options[out->n_options++] = out->architecture;
    out->options[out->n_options++] = "--std=c++17";
    out->options[out->n_options++] = "-default-device";
    /* a product and a sum are two roundings, whether they share a nest or not */
    out->options[out->n_options++] = "--fmad=false";
    out->options[out->n_options++] =
        "--diag-suppress=177"; /* variables that a nest leaves unused */
    out->key = st_hash64(version, sizeof version, 1);
    for (int i = 0; i < out->n_options; i++)
        out->key = st_hash64(out->options[i], strlen(out->options[i]), out->key);
    out->key = st_hash64(source, strlen(source), out->key);
    return ST_OK;
}

static st_status_t find_cubin(const request_t *request, cache_data_t *out) {
    char path[CACHE_PATH_BYTES];
    TRY(cache_path(request->key, "cubin", path));
    if (cache_read(path, request->key, out)) return ST_OK;
    TRY(compile(request->source, request->options, request->n_options, out));
    cache_write(path, request->key, out);
    return ST_OK;
}

/* ---- modules ---- */

static st_status_t make_library(const request_t *request, int device, cudaLibrary_t *out) {
    cache_data_t cubin = {0};
    TRY(find_cubin(request, &cubin));
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = cudaLibraryLoadData(out, cubin.data, NULL, NULL, 0, NULL, NULL, 0);
    st_free(cubin.data);
    return error == cudaSuccess ? ST_OK : dev_cuda_fail(error, "cudaLibraryLoadData");
}

static void drop(rtc_module_t *module) {
    rtc_module_t **link = &modules;
    while (*link != module) link = &(*link)->next;
    *link = module->next;
    st_free(module);
}

/* The module of a key with one more use, and whether the caller has to make it. Waits for whoever
 * is making it. NULL: out of memory. With the mutex held. */
static rtc_module_t *claim(uint64_t key, int device, bool *out_mine) {
    *out_mine = false;
    for (;;) {
        rtc_module_t *module = modules;
        while (module && (module->key != key || module->device != device)) module = module->next;
        if (module && !module->ready) {
            pthread_cond_wait(&changed, &mutex);
            continue; /* it may have failed and be gone */
        }
        if (!module) {
            module = st_calloc(1, sizeof *module);
            if (!module) return NULL;
            *module = (rtc_module_t){.next = modules, .key = key, .device = device};
            modules = module;
            *out_mine = true;
        }
        module->uses++;
        return module;
    }
}

st_status_t rtc_open(dev_stream_t *stream, const char *source, rtc_module_t **out_module) {
    request_t request;
    bool mine;
    st_status_t status = ST_OK;
    *out_module = NULL;
    TRY(fill_request(stream, source, &request));
    pthread_mutex_lock(&mutex);
    rtc_module_t *module = claim(request.key, stream->index, &mine);
    pthread_mutex_unlock(&mutex);
    if (!module) return st_no_memory(sizeof *module, "a module");
    if (mine) {
        status = make_library(&request, stream->index, &module->library);
        pthread_mutex_lock(&mutex);
        if (status == ST_OK)
            module->ready = true;
        else
            drop(module);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    if (status == ST_OK) *out_module = module;
    return status;
}

void rtc_close(rtc_module_t *module) {
    if (!module) return;
    pthread_mutex_lock(&mutex);
    if (--module->uses == 0) {
        cudaLibraryUnload(module->library);
        drop(module);
    }
    pthread_mutex_unlock(&mutex);
}

st_status_t rtc_kernel(const rtc_module_t *module, const char *name, cudaKernel_t *out_kernel) {
    CUDA_TRY(cudaLibraryGetKernel(out_kernel, module->library, name));
    return ST_OK;
}
