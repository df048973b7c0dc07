/* Stator: targets – descriptions of devices that plans are made for.
 *
 * A description says what a device has, how fast it does what, and which kernels exist there; the option
 * "target" takes one by name or as a file. Descriptions are texts, installed under share/stator/targets
 * and built into the library. */
#ifndef STATOR_TARGET_H
#define STATOR_TARGET_H

#include <stddef.h>

#include "stator/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of the built-in description `index`; NULL past the last. Thread-safe. */
STATOR_API const char *stator_target_at(size_t index);
/* Measures this machine with single operations, never a model, and writes a description of it for
 * device cpu: give it to the option "target" as a file. Blocks for about half a minute. *out_text is
 * freed with stator_free. INVALID: a name that is empty or has blanks. */
STATOR_API stator_status_t stator_target_calibrate(const char *name,
                                                   char **out_text) STATOR_WARN_UNUSED;

#ifdef __cplusplus
}
#endif
#endif
