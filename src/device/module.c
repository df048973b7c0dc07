/* Opening modules (module.h): the loader's dlopen over the places in order, then the entry's build
 * is compared. A module that was opened stays: its code may be on any thread's stack. */
#include "device/module.h"

#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const dev_module_t *opened; /* the one module there is: cuda */

static void adopt(const char *message) {
    st_error_adopt(ST_OK, message);
}

/* Folder of the file that this code was loaded from, "" if unknown. A program has its first
 * argument as that file's name: without a '/' it was found through PATH and says nothing, not the
 * current folder. */
static void own_folder(char *folder, size_t capacity) {
    Dl_info info;
    char path[4096];
    folder[0] = '\0';
    if (!dladdr((const void *)&mutex, &info) || !info.dli_fname) return;
    if (strchr(info.dli_fname, '/')) {
        if ((size_t)snprintf(path, sizeof path, "%s", info.dli_fname) >= sizeof path) return;
    } else {
        ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
        if (bytes <= 0 || bytes == (ssize_t)sizeof path) return;
        path[bytes] = '\0';
    }
    snprintf(folder, capacity, "%s", dirname(path));
}

static void *try_open(const char *folder, const char *below, const char *device, char *tried,
                      size_t tried_bytes) {
    char path[4600];
    snprintf(path, sizeof path, "%s%s%slibstator_%s.so", folder, below, folder[0] ? "/" : "",
             device);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    size_t used = strlen(tried);
    snprintf(tried + used, tried_bytes - used, "%s%s", used ? "; " : "", dlerror());
    return NULL;
}

/* `kind` is what error messages say before the name: "device " or nothing. */
static st_status_t open_library(const char *kind, const char *name, void **out_library) {
    char tried[1600] = "", folder[4096];
    *out_library = NULL;
    TRY(st_process_option("module-path", folder, sizeof folder));
    if (folder[0]) *out_library = try_open(folder, "", name, tried, sizeof tried);
    own_folder(folder, sizeof folder);
    if (!*out_library && folder[0]) *out_library = try_open(folder, "", name, tried, sizeof tried);
    if (!*out_library && folder[0])
        *out_library = try_open(folder, "/../lib", name, tried, sizeof tried);
    if (!*out_library) *out_library = try_open("", "", name, tried, sizeof tried);
    if (*out_library) return ST_OK;
    return FAIL(ST_NOT_FOUND, "%s'%s' needs libstator_%s.so, which does not open: %s", kind, name,
                name, tried);
}

st_status_t dev_module_symbol(const char *name, const char *entry, void **out_symbol) {
    void *library;
    TRY(open_library("", name, &library));
    *out_symbol = dlsym(library, entry);
    if (*out_symbol) return ST_OK;
    dlclose(library);
    return FAIL(ST_UNSUPPORTED, "libstator_%s.so has no entry '%s'", name, entry);
}

static st_status_t open_module(const char *device) {
    void *library;
    TRY(open_library("device ", device, &library));
    void *symbol = dlsym(library, DEV_MODULE_ENTRY);
    const dev_module_t *(*entry)(void);
    memcpy(&entry, &symbol, sizeof entry);
    st_status_t status = ST_OK;
    const dev_module_t *module = symbol ? entry() : NULL;
    if (!module)
        status =
            FAIL(ST_UNSUPPORTED, "libstator_%s.so has no entry '%s'", device, DEV_MODULE_ENTRY);
    else if (strcmp(module->build, DEV_MODULE_BUILD) != 0)
        status = FAIL(ST_UNSUPPORTED, "libstator_%s.so is of build '%s', this library of '%s'",
                      device, module->build, DEV_MODULE_BUILD);
    if (status != ST_OK) {
        dlclose(library);
        return status;
    }
    module->forward_errors(adopt);
    module->forward_options(st_process_option);
    opened = module;
    return ST_OK;
}

st_status_t dev_module_open(const char *device, const dev_module_t **out_module) {
    *out_module = NULL;
    pthread_mutex_lock(&mutex);
    st_status_t status = opened ? ST_OK : open_module(device);
    *out_module = opened;
    pthread_mutex_unlock(&mutex);
    return status;
}
