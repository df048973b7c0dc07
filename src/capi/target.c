/* Targets by name, and measuring this machine. */
#include "compile/target.h"

#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "exec/calibrate.h"

const char *stator_target_at(size_t index) {
    for (const target_builtin_t *b = target_builtins; b->name; b++)
        if (index-- == 0) return b->name;
    return NULL;
}

stator_status_t stator_target_calibrate(const char *name, char **out_text) {
    CAPI_OUT(out_text);
    CAPI_REQUIRE(name);
    if (!name[0] || strpbrk(name, " \t\r\n#"))
        return capi_status(FAIL(ST_INVALID, "a target is named by one word, not '%s'", name));
    return capi_status(exec_calibrate(name, out_text));
}

stator_status_t stator_target_calibrate_device(const char *device, const char *target,
                                               char **out_text) {
    CAPI_OUT(out_text);
    CAPI_REQUIRE(device);
    CAPI_REQUIRE(target);
    return capi_status(exec_calibrate_device(device, target, out_text));
}
