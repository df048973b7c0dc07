/* The devices that this build knows. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "device/module.h"

extern const dev_device_t dev_cpu, dev_null;

typedef struct device_row {
    const char *name;
    const dev_device_t *built_in; /* NULL: in the module of that name */
} device_row_t;

static const device_row_t devices[] = {{"cpu", &dev_cpu}, {"null", &dev_null}, {"cuda", NULL}};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

st_status_t dev_find(const char *name, const dev_device_t **out_device) {
    *out_device = NULL;
    char known[256] = "";
    for (size_t i = 0, used = 0; i < N_DEVICES; i++) {
        const dev_module_t *module;
        if (strcmp(devices[i].name, name) == 0) {
            *out_device = devices[i].built_in;
            if (*out_device) return ST_OK;
            TRY(dev_module_open(name, &module));
            *out_device = module->device;
            return ST_OK;
        }
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     devices[i].name);
    }
    return FAIL(ST_NOT_FOUND, "there is no device '%s': there are %s", name, known);
}
