/* The devices that this build knows. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"

extern const dev_device_t dev_cpu, dev_null;

static const dev_device_t *const devices[] = {&dev_cpu, &dev_null};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

st_status_t dev_find(const char *name, const dev_device_t **out_device) {
    *out_device = NULL;
    char known[256] = "";
    for (size_t i = 0, used = 0; i < N_DEVICES; i++) {
        if (strcmp(devices[i]->name, name) == 0) {
            *out_device = devices[i];
            return ST_OK;
        }
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     devices[i]->name);
    }
    return FAIL(ST_NOT_FOUND, "there is no device '%s': this build has %s", name, known);
}
