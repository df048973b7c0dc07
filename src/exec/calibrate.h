/* Measures this machine and writes the description of it that plans are costed by. */
#ifndef STATOR_EXEC_CALIBRATE_H
#define STATOR_EXEC_CALIBRATE_H

#include "base/status.h"

/* A target description (compile/target.h) for device cpu, named `name`: single ops of many kinds
 * and sizes are run, never a whole model. One thread's numbers are processor time, so that other
 * programs on the machine matter little; the gain of more threads is by the clock. Takes about half
 * a minute. *out_text is freed with st_free. */
st_status_t exec_calibrate(const char *name, char **out_text) ST_WARN_UNUSED;
/* The same of another device, from the description `target` (a name or a path) of one of its kind:
 * calibrate_gpu.h says what is measured. */
st_status_t exec_calibrate_device(const char *device, const char *target,
                                  char **out_text) ST_WARN_UNUSED;

#endif
