/* The processor (machine.h): sysconf of glibc, /proc of Linux. */
#include "base/machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"

void st_cache_bytes(uint64_t out_bytes[3]) {
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                _SC_LEVEL3_CACHE_SIZE};
    for (int i = 0; i < 3; i++) {
        long bytes = sysconf(names[i]);
        out_bytes[i] = bytes > 0 ? (uint64_t)bytes : 0;
    }
}

double st_clock_ghz(void) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    double mhz = 0;
    while (file && mhz <= 0 && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "cpu MHz", 7) != 0 || !value) continue;
        value += 1 + strspn(value + 1, " ");
        if (!st_double_parse(value, strcspn(value, "\n"), &mhz)) mhz = 0;
    }
    if (file) fclose(file);
    return mhz > 0 ? mhz * 1e-3 : 1;
}
