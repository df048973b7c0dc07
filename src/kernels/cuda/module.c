/* The module's one symbol (device/module.h). */
#include "device/module.h"

#include "kernels/cuda/cuda.h"

static const void *const arrays[] = {kern_cuda_matmul, kern_cuda_conv, kern_cuda_attention,
                                     kern_cuda_own,    kern_cuda_nest, NULL};

bool kern_cuda_type(ir_dtype_t dtype, cudaDataType_t *out_type) {
    static const struct {
        ir_dtype_t dtype;
        cudaDataType_t type;
    } types[] = {{IR_F32, CUDA_R_32F}, {IR_F64, CUDA_R_64F}, {IR_BF16, CUDA_R_16BF},
                 {IR_F16, CUDA_R_16F}, {IR_I32, CUDA_R_32I}, {IR_I64, CUDA_R_64I}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].dtype != dtype) continue;
        *out_type = types[i].type;
        return true;
    }
    return false;
}

__attribute__((visibility("default"))) const dev_module_t *stator_module(void);
const dev_module_t *stator_module(void) {
    static const dev_module_t module = {
        .build = DEV_MODULE_BUILD,
        .device = &dev_cuda,
        .kernels = arrays,
        .forward_errors = st_error_forward,
        .forward_options = st_process_option_forward,
    };
    return &module;
}
