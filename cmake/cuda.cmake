# libstator_cuda.so: everything that needs the CUDA toolkit, opened at run time only when asked for.

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/src/device/cuda/*.c ${CMAKE_SOURCE_DIR}/src/device/cuda/*.cu
     ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.c ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
if(NOT cuda_sources)
  message(FATAL_ERROR "STATOR_CUDA=ON but src/device/cuda/ has no sources in this version: "
                      "configure with STATOR_CUDA=OFF")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
add_library(stator_cuda SHARED ${cuda_sources})
target_include_directories(stator_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(stator_cuda PRIVATE stator_base CUDA::cudart CUDA::cublasLt CUDA::nvrtc)
