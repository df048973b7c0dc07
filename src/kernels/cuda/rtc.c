/* Key of a cubin: hash of source, options, compiler version and architecture. The file begins with
 * the key and a checksum, so that a torn or foreign file is compiled anew. Sources are written with
 * no names in them that change from run to run, so equal nests of one model share a module. */
#include "kernels/cuda/rtc.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/options.h"
#include "device/cuda/libraries.h"

struct rtc_module {
    rtc_module_t *next;
    uint64_t key;
    int device;
    uint32_t uses;
    cudaLibrary_t library;
};

typedef struct cubin {
    uint8_t *data;
    size_t bytes;
} cubin_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rtc_module_t *modules;

/* ---- disk ---- */

static bool cache_path(uint64_t key, char *path, size_t capacity) {
    const char *given = st_environment("STATOR_CACHE"), *xdg = st_environment("XDG_CACHE_HOME"),
               *home = st_environment("HOME");
    char folder[2048];
    int n;
    if (given && given[0])
        n = snprintf(folder, sizeof folder, "%s", given);
    else if (xdg && xdg[0])
        n = snprintf(folder, sizeof folder, "%s/stator", xdg);
    else if (home && home[0])
        n = snprintf(folder, sizeof folder, "%s/.cache/stator", home);
    else
        return false;
    if (n < 0 || (size_t)n >= sizeof folder) return false;
    for (char *c = folder + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        mkdir(folder, 0777); /* what cannot be made is found out when the file is written */
        *c = '/';
    }
    mkdir(folder, 0777);
    return (size_t)snprintf(path, capacity, "%s/%016llx.cubin", folder, (unsigned long long)key) <
           capacity;
}

static bool read_cubin(const char *path, uint64_t key, cubin_t *out) {
    FILE *file = fopen(path, "rb");
    uint64_t head[3] = {0};
    if (!file) return false;
    bool ok = fread(head, sizeof head, 1, file) == 1 && head[0] == key && head[1] < 1u << 30;
    out->bytes = ok ? (size_t)head[1] : 0;
    out->data = ok ? st_malloc(out->bytes) : NULL;
    ok = out->data && fread(out->data, 1, out->bytes, file) == out->bytes &&
         st_hash64(out->data, out->bytes, key) == head[2];
    fclose(file);
    if (!ok) st_free(out->data);
    return ok;
}

/* Under a name of its own, then renamed: readers see all of it or nothing. */
static void write_cubin(const char *path, uint64_t key, const cubin_t *cubin) {
    char draft[2200];
    uint64_t head[3] = {key, cubin->bytes, st_hash64(cubin->data, cubin->bytes, key)};
    snprintf(draft, sizeof draft, "%s.%lx", path, (unsigned long)pthread_self());
    FILE *file = fopen(draft, "wb");
    if (!file) return;
    bool ok = fwrite(head, sizeof head, 1, file) == 1 &&
              fwrite(cubin->data, 1, cubin->bytes, file) == cubin->bytes;
    ok = fclose(file) == 0 && ok;
    if (!ok || rename(draft, path) != 0) remove(draft);
}

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

static st_status_t take_cubin(const dev_cuda_rtc_t *rtc, nvrtcProgram program, cubin_t *out) {
    RTC_TRY(rtc->nvrtcGetCUBINSize(program, &out->bytes));
    out->data = st_malloc(out->bytes);
    if (!out->data) return st_no_memory(out->bytes, "a kernel's code");
    RTC_TRY(rtc->nvrtcGetCUBIN(program, (char *)out->data));
    return ST_OK;
}

static st_status_t compile(const char *source, const char *const *options, int n_options,
                           cubin_t *out) {
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

static st_status_t find_cubin(const dev_stream_t *stream, const char *source, uint64_t *out_key,
                              cubin_t *out) {
    const dev_cuda_rtc_t *rtc;
    int version[2] = {0, 0};
    char architecture[64], path[2100];
    TRY(dev_cuda_rtc(&rtc));
    RTC_TRY(rtc->nvrtcVersion(&version[0], &version[1]));
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d",
             stream->properties.major, stream->properties.minor);
    const char *const options[] = {architecture, "--std=c++17", "-default-device", "--restrict",
                                   "--diag-suppress=177"};
    const int n_options = sizeof options / sizeof options[0];
    uint64_t key = st_hash64(version, sizeof version, 1);
    for (int i = 0; i < n_options; i++) key = st_hash64(options[i], strlen(options[i]), key);
    *out_key = key = st_hash64(source, strlen(source), key);
    bool has_path = cache_path(key, path, sizeof path);
    if (has_path && read_cubin(path, key, out)) return ST_OK;
    TRY(compile(source, options, n_options, out));
    if (has_path) write_cubin(path, key, out);
    return ST_OK;
}

/* ---- modules ---- */

static rtc_module_t *find_module(int device, uint64_t key) {
    rtc_module_t *module = modules;
    while (module && (module->key != key || module->device != device)) module = module->next;
    return module;
}

static st_status_t load_module(const dev_stream_t *stream, uint64_t key, const cubin_t *cubin,
                               rtc_module_t **out_module) {
    pthread_mutex_lock(&mutex);
    st_status_t status = ST_OK;
    rtc_module_t *module = find_module(stream->index, key);
    if (!module) {
        cudaLibrary_t library;
        cudaError_t error =
            cudaLibraryLoadData(&library, cubin->data, NULL, NULL, 0, NULL, NULL, 0);
        module = error == cudaSuccess ? st_calloc(1, sizeof *module) : NULL;
        if (error != cudaSuccess)
            status = dev_cuda_fail(error, "cudaLibraryLoadData");
        else if (!module)
            status = st_no_memory(sizeof *module, "a module");
        if (module) {
            *module = (rtc_module_t){modules, key, stream->index, 0, library};
            modules = module;
        }
    }
    if (module) module->uses++;
    pthread_mutex_unlock(&mutex);
    *out_module = module;
    return status;
}

st_status_t rtc_open(dev_stream_t *stream, const char *source, rtc_module_t **out_module) {
    uint64_t key;
    cubin_t cubin = {0};
    *out_module = NULL;
    TRY(find_cubin(stream, source, &key, &cubin));
    st_status_t status = load_module(stream, key, &cubin, out_module);
    st_free(cubin.data);
    return status;
}

void rtc_close(rtc_module_t *module) {
    if (!module) return;
    pthread_mutex_lock(&mutex);
    if (--module->uses == 0) {
        rtc_module_t **link = &modules;
        while (*link != module) link = &(*link)->next;
        *link = module->next;
        cudaLibraryUnload(module->library);
        st_free(module);
    }
    pthread_mutex_unlock(&mutex);
}

st_status_t rtc_kernel(const rtc_module_t *module, const char *name, cudaKernel_t *out_kernel) {
    CUDA_TRY(cudaLibraryGetKernel(out_kernel, module->library, name));
    return ST_OK;
}
