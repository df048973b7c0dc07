/* oneDNN's implementations, contributed to the kernel table. oneDNN serves 2.x and 3.x, whose C
 * interfaces differ; its types stay within this folder. */
#ifndef STATOR_KERNELS_ONEDNN_ONEDNN_H
#define STATOR_KERNELS_ONEDNN_ONEDNN_H

#include "kernels/kernel.h"

extern const kern_impl_t *const kern_onednn[];
/* "oneDNN 2.6.3": the library in use, not the header. */
void kern_onednn_version(char *buffer, size_t capacity);

/* Calls into the library come from our team, one thread each: a thread that enters for the first
 * time tells the OpenMP runtime below it not to start threads of its own. */
void kern_onednn_enter(void);

extern const kern_impl_t kern_onednn_matmul;

#endif
