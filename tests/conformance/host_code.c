#include "conformance/host_code.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/scratch.h"

void *host_code(const char *path, const char *flags, const char *symbol) {
    char command[9000], made[4200];
    const char *compiler = getenv("CXX") ? getenv("CXX") : "c++";
    snprintf(command, sizeof command, "command -v %s >/dev/null", compiler);
    if (system(command) != 0) return NULL;
    snprintf(made, sizeof made, "%s.so", path);
    snprintf(command, sizeof command,
             "%s -std=c++17 -w %s -fPIC -shared -I%s/tests/conformance -I%s/src '%s' -o '%s'",
             compiler, flags, STATOR_SOURCE_DIR, STATOR_SOURCE_DIR, path, made);
    if (system(command) != 0) fail_msg("%s", command);
    void *library = dlopen(made, RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    void *found = dlsym(library, symbol);
    assert_non_null(found);
    return found;
}
