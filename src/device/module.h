/* Modules: devices whose vendor libraries not every machine has. A module is a shared library
 * libstator_<device>.so that links nothing of libstator and gives one symbol; it carries its own
 * copy of base, ir and the kernels' shared rules (plain functions over the same structs), so host
 * and module must be of one build: `build` is compared byte for byte. */
#ifndef STATOR_DEVICE_MODULE_H
#define STATOR_DEVICE_MODULE_H

#include "base/options.h"
#include "device/device.h"

typedef struct dev_module {
    const char *build; /* DEV_MODULE_BUILD of the module's own build */
    const dev_device_t *device;
    /* kern_impl_t arrays, as kernels/table.c lists them: each ends with NULL, the list too */
    const void *const *kernels;
    /* Where the module's failures are recorded besides; called once, first. */
    void (*forward_errors)(void (*to)(const char *message));
    /* Where it asks for options of the process; called once, too. */
    void (*forward_options)(st_process_option_t to);
} dev_module_t;

/* STATOR_BUILD comes from CMake: the version and a hash of the headers that both sides share. */
#define DEV_MODULE_BUILD STATOR_BUILD
/* The module's only symbol: const dev_module_t *(void). */
#define DEV_MODULE_ENTRY "stator_module"

/* Looks for libstator_<name>.so as below and gives the address of its symbol `entry`. The library
 * stays open. */
st_status_t dev_module_symbol(const char *name, const char *entry,
                              void **out_symbol) ST_WARN_UNUSED;

/* Opens the module of `device` ("cuda") once a process. Looked for in the folder of option
 * module-path, beside this library or program, in ../lib, then where the system's loader looks.
 * FAILs with ST_NOT_FOUND and every place tried, or with what the loader said. */
st_status_t dev_module_open(const char *device, const dev_module_t **out_module) ST_WARN_UNUSED;

#endif
