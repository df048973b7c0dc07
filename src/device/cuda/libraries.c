/* Each library is opened once a process, by the loader's rules first (so that a program which has
 * one loaded shares it), then where NVIDIA's Python packages and toolkits put it. */
#include "device/cuda/libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"

enum { MIN_DNN = 91600, MIN_NCCL = 22700 };

typedef struct library_name {
    const char *title, *file;
} library_name_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Below each folder of option cuda-path and the usual places. */
static void *open_below(const char *root, const char *file) {
    static const char *const patterns[] = {"%s/%s", "%s/lib/%s", "%s/lib64/%s", "%s/*/lib/%s"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        char pattern[1024];
        glob_t found;
        if ((size_t)snprintf(pattern, sizeof pattern, patterns[i], root, file) >= sizeof pattern)
            continue;
        void *library = NULL;
        if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t k = 0; k < found.gl_pathc && !library; k++)
                library = dlopen(found.gl_pathv[k], RTLD_NOW | RTLD_LOCAL);
        globfree(&found);
        if (library) return library;
    }
    return NULL;
}

static st_status_t open_library(const library_name_t *name, void **out_library) {
    char why[512] = "";
    *out_library = NULL;
    char folders[2048];
    TRY(st_process_option("cuda-path", folders, sizeof folders));
    char *rest = folders;
    for (char *folder; (folder = strsep(&rest, ":")) && !*out_library;)
        if (folder[0]) *out_library = open_below(folder, name->file);
    if (!*out_library) *out_library = dlopen(name->file, RTLD_NOW | RTLD_LOCAL);
    if (!*out_library) snprintf(why, sizeof why, "%s", dlerror());
    if (!*out_library) *out_library = open_below("/usr/local/cuda", name->file);
    if (*out_library) return ST_OK;
    return FAIL(
        ST_NOT_FOUND,
        "%s is needed and does not open: %s; option cuda-path may list folders that have it",
        name->title, why);
}

static st_status_t find(void *library, const library_name_t *name, const char *symbol, void *out) {
    void *address = dlsym(library, symbol);
    if (!address)
        return FAIL(ST_UNSUPPORTED, "%s (%s) has no function '%s': it is too old", name->title,
                    name->file, symbol);
    memcpy(out, &address, sizeof address);
    return ST_OK;
}

#define FIND(symbol) TRY(find(library, name, #symbol, &out->symbol));

static st_status_t fill_blas(void *library, const library_name_t *name, dev_cuda_blas_t *out) {
    CUDA_BLAS_FUNCTIONS(FIND)
    size_t version = out->cublasLtGetVersion();
    if (version / 10000 != 13)
        return FAIL(ST_UNSUPPORTED, "%s is of version %zu: 13 is needed", name->title, version);
    return ST_OK;
}

static st_status_t fill_dnn(void *library, const library_name_t *name, dev_cuda_dnn_t *out) {
    CUDA_DNN_FUNCTIONS(FIND)
    size_t version = out->cudnnGetVersion();
    if (version / 10000 != 9 || version < MIN_DNN)
        return FAIL(ST_UNSUPPORTED,
                    "%s is of version %zu: 9.16 (91600) or a later 9 is needed, as attention is "
                    "wrong before",
                    name->title, version);
    return ST_OK;
}

static st_status_t fill_rtc(void *library, const library_name_t *name, dev_cuda_rtc_t *out) {
    CUDA_RTC_FUNCTIONS(FIND)
    int major = 0, minor = 0;
    if (out->nvrtcVersion(&major, &minor) != NVRTC_SUCCESS || major != 13)
        return FAIL(ST_UNSUPPORTED, "%s is of version %d.%d: 13 is needed", name->title, major,
                    minor);
    return ST_OK;
}

static st_status_t fill_nccl(void *library, const library_name_t *name, dev_cuda_nccl_t *out) {
    CUDA_NCCL_FUNCTIONS(FIND)
    int version = 0;
    if (out->ncclGetVersion(&version) != ncclSuccess || version / 10000 != 2 || version < MIN_NCCL)
        return FAIL(ST_UNSUPPORTED, "%s is of version %d: 2.27 (22700) or a later 2 is needed",
                    name->title, version);
    return ST_OK;
}

/* dev_cuda_<short>: the table, filled once; a failure is found again at the next call. */
#define LIBRARY(short_, title_, file_)                                           \
    st_status_t dev_cuda_##short_(const dev_cuda_##short_##_t **out_functions) { \
        static const library_name_t name = {title_, file_};                      \
        static dev_cuda_##short_##_t functions;                                  \
        static bool filled;                                                      \
        void *library;                                                           \
        *out_functions = NULL;                                                   \
        pthread_mutex_lock(&mutex);                                              \
        st_status_t status = filled ? ST_OK : open_library(&name, &library);     \
        if (status == ST_OK && !filled) {                                        \
            status = fill_##short_(library, &name, &functions);                  \
            filled = status == ST_OK;                                            \
        }                                                                        \
        pthread_mutex_unlock(&mutex);                                            \
        if (status == ST_OK) *out_functions = &functions;                        \
        return status;                                                           \
    }
LIBRARY(blas, "cuBLASLt", "libcublasLt.so.13")
LIBRARY(dnn, "cuDNN", "libcudnn.so.9")
LIBRARY(rtc, "NVRTC", "libnvrtc.so.13")
LIBRARY(nccl, "NCCL", "libnccl.so.2")

static st_status_t make_blas(dev_stream_t *stream, cublasLtHandle_t *out_handle) {
    const dev_cuda_blas_t *blas;
    TRY(dev_cuda_blas(&blas));
    cublasStatus_t error = blas->cublasLtCreate(out_handle);
    if (error != CUBLAS_STATUS_SUCCESS)
        return FAIL(ST_DEVICE, "cublasLtCreate: %s", blas->cublasLtGetStatusString(error));
    stream->blas = *out_handle;
    return ST_OK;
}

st_status_t dev_cuda_blas_handle(dev_stream_t *stream, cublasLtHandle_t *out_handle) {
    double begin = dev_cuda_seconds();
    *out_handle = stream->blas;
    if (stream->blas) return ST_OK;
    st_status_t status = make_blas(stream, out_handle);
    dev_cuda_spent(stream, &stream->startup.libraries_s, begin);
    return status;
}

static st_status_t create_dnn(const dev_stream_t *stream, cudnnHandle_t *out_handle) {
    const dev_cuda_dnn_t *dnn;
    TRY(dev_cuda_dnn(&dnn));
    CUDA_TRY(cudaSetDevice(stream->index));
    cudnnStatus_t error = dnn->cudnnCreate(out_handle);
    if (error == CUDNN_STATUS_SUCCESS) error = dnn->cudnnSetStream(*out_handle, stream->stream);
    if (error != CUDNN_STATUS_SUCCESS)
        return FAIL(ST_DEVICE, "cudnnCreate: %s", dnn->cudnnGetErrorString(error));
    return ST_OK;
}

st_status_t dev_cuda_dnn_handle(dev_stream_t *stream, cudnnHandle_t *out_handle) {
    double begin = dev_cuda_seconds();
    *out_handle = stream->dnn;
    if (stream->dnn) return ST_OK;
    st_status_t status = create_dnn(stream, out_handle);
    if (status == ST_OK) stream->dnn = *out_handle;
    dev_cuda_spent(stream, &stream->startup.libraries_s, begin);
    return status;
}

st_status_t dev_cuda_dnn_take(dev_stream_t *stream, cudnnHandle_t *out_handle) {
    struct dev_cuda_spare *spare = NULL;
    double begin = dev_cuda_seconds();
    *out_handle = NULL;
    pthread_mutex_lock(&stream->mutex);
    for (int i = 0; i < DEV_CUDA_SPARE_DNN && !spare; i++)
        if (!stream->spare_dnn[i].taken) spare = &stream->spare_dnn[i];
    if (spare) spare->taken = true;
    pthread_mutex_unlock(&stream->mutex);
    if (!spare) return ST_OK;
    if (!spare->handle) {
        cudnnHandle_t made;
        st_status_t status = create_dnn(stream, &made);
        if (status != ST_OK) return status; /* stays taken: nobody tries again */
        spare->handle = made;
        dev_cuda_spent(stream, &stream->startup.libraries_s, begin);
    }
    *out_handle = spare->handle;
    return ST_OK;
}

void dev_cuda_dnn_give(dev_stream_t *stream, cudnnHandle_t handle) {
    pthread_mutex_lock(&stream->mutex);
    for (int i = 0; i < DEV_CUDA_SPARE_DNN; i++)
        if (stream->spare_dnn[i].handle == handle) stream->spare_dnn[i].taken = false;
    pthread_mutex_unlock(&stream->mutex);
}

static pthread_mutex_t blas_ahead = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t dnn_ahead = PTHREAD_MUTEX_INITIALIZER;

void dev_cuda_blas_ahead(dev_stream_t *stream) {
    cublasLtHandle_t handle;
    if (pthread_mutex_trylock(&blas_ahead) != 0) return;
    if (cudaSetDevice(stream->index) != cudaSuccess ||
        dev_cuda_blas_handle(stream, &handle) != ST_OK)
        st_clear_error();
    pthread_mutex_unlock(&blas_ahead);
}

void dev_cuda_dnn_ahead(dev_stream_t *stream) {
    cudnnHandle_t handle;
    if (pthread_mutex_trylock(&dnn_ahead) != 0) return;
    if (cudaSetDevice(stream->index) != cudaSuccess ||
        dev_cuda_dnn_handle(stream, &handle) != ST_OK)
        st_clear_error();
    pthread_mutex_unlock(&dnn_ahead);
}

void dev_cuda_libraries_release(dev_stream_t *stream) {
    const dev_cuda_blas_t *blas;
    const dev_cuda_dnn_t *dnn;
    if (stream->plans) stream->release_plans(stream);
    if (stream->blas && dev_cuda_blas(&blas) == ST_OK) blas->cublasLtDestroy(stream->blas);
    if (stream->dnn && dev_cuda_dnn(&dnn) == ST_OK) dnn->cudnnDestroy(stream->dnn);
    for (int i = 0; i < DEV_CUDA_SPARE_DNN; i++)
        if (stream->spare_dnn[i].handle && dev_cuda_dnn(&dnn) == ST_OK)
            dnn->cudnnDestroy(stream->spare_dnn[i].handle);
    stream->blas = stream->dnn = NULL;
}
