# libstator_cuda.so: everything that needs the CUDA toolkit, opened at run time only when asked for
# (src/device/module.h). The runtime is linked in; cuBLASLt, cuDNN, NVRTC and NCCL are opened when
# the first kernel wants them, so that a machine without one of them loses only what needs it.

if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Hopper's own code, and PTX from which a driver makes code for Ampere and later.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual)
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/src/device/cuda/*.c ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.c ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu
     ${CMAKE_SOURCE_DIR}/src/comm/nccl/*.c ${CMAKE_SOURCE_DIR}/src/comm/nccl/*.cu)
file(GLOB shared_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/emit/*.c)
add_library(stator_cuda MODULE ${cuda_sources} ${shared_sources}
            ${CMAKE_BINARY_DIR}/generated/emit_prelude.c ${CMAKE_SOURCE_DIR}/src/kernels/problem.c
            ${CMAKE_SOURCE_DIR}/src/kernels/product.c ${CMAKE_SOURCE_DIR}/src/kernels/gpu_rules.c
            ${CMAKE_SOURCE_DIR}/src/kernels/record.c ${CMAKE_SOURCE_DIR}/src/kernels/scatter.c
            ${CMAKE_SOURCE_DIR}/src/comm/comm.c ${CMAKE_SOURCE_DIR}/src/comm/sum.c)
set_target_properties(stator_cuda PROPERTIES LINKER_LANGUAGE C CUDA_SEPARABLE_COMPILATION OFF)
target_compile_definitions(stator_cuda PRIVATE STATOR_BUILD="${STATOR_BUILD}")
target_include_directories(stator_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(stator_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE} ${NCCL_INCLUDE}
                           ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(stator_cuda PRIVATE stator_ir stator_base CUDA::cudart_static
                      ${CMAKE_DL_LIBS} rt Threads::Threads m)
target_link_options(stator_cuda PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL)
