/* Stator: targets – descriptions of devices that plans are made for.
 *
 * A description says what a device has, how fast it does what, and which kernels exist there; the
 * option "target" takes one by name or as a file. Descriptions are texts, installed under
 * share/stator/targets and built into the library; targets/README.md tells what they say. Both
 * functions may be called from any thread. (Nearest: XLA's device descriptions, LLVM's -mcpu with
 * its scheduling model.) */
#ifndef STATOR_TARGET_H
#define STATOR_TARGET_H

#include <stddef.h>

#include "stator/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of the built-in description `index`; NULL past the last. Does not block. */
STATOR_API const char *stator_target_at(size_t index);
/* Measures this machine with single operations, never a model, and writes a description of it for
 * device cpu: give it to the option "target" as a file. Blocks for about half a minute and wants
 * the machine to itself: what runs besides, another call too, is measured as slowness. *out_text is
 * freed with stator_free. INVALID: a name that is empty or has blanks. (Nearest:
 * cudnnFindConvolution…, which measures each problem when it is met.) */
STATOR_API stator_status_t stator_target_calibrate(const char *name,
                                                   char **out_text) STATOR_WARN_UNUSED;
/* The same of the first GPU, for device "cuda": times of launches, memory, products, convolutions,
 * attention and pooling, put in place of what the description `target` (a name or a file, for that
 * device) says of them; what single operations do not tell, as links, is as there. Blocks for about
 * a minute. INVALID: the description is of another device. UNSUPPORTED: the device has no clock of
 * its own. (Nearest: as above.) */
STATOR_API stator_status_t stator_target_calibrate_device(const char *device, const char *target,
                                                          char **out_text) STATOR_WARN_UNUSED;

#ifdef __cplusplus
}
#endif
#endif
