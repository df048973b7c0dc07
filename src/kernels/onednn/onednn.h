/* oneDNN's implementations, contributed to the kernel table. oneDNN serves 2.x and 3.x, whose C
 * interfaces differ; its types stay within this folder. */
#ifndef STATOR_KERNELS_ONEDNN_ONEDNN_H
#define STATOR_KERNELS_ONEDNN_ONEDNN_H

#include "kernels/kernel.h"

extern const kern_impl_t *const kern_onednn[];
/* "oneDNN 2.6.3": the library in use, not the header. */
void kern_onednn_version(char *buffer, size_t capacity);

/* Calls into the library come from our team, one thread each, between enter and leave: the OpenMP
 * runtime below the library shall not start threads of its own. enter returns what leave restores,
 * so that the setting of the program around us stays as it was. */
int kern_onednn_enter(void);
void kern_onednn_leave(int before);

extern const kern_impl_t kern_onednn_matmul, kern_onednn_conv, kern_onednn_conv_grad_input,
    kern_onednn_conv_grad_weight;

#endif
