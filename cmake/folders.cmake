# One static library for each folder of src/.

# stator_folder(<folder> <dependency>...): library stator_<folder> from src/<folder>/**/*.c, linked
# to those dependencies that exist. Dependencies follow the arrows that tests/lint/ checks.
function(stator_folder folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.c)
  if(folder STREQUAL kernels)
    stator_kernel_variants(sources)
    stator_text_of(emit_prelude ${CMAKE_SOURCE_DIR}/src/kernels/emit/prelude.cuh
                   kernels/emit/source.h prelude)
    list(APPEND sources ${prelude})
  elseif(folder STREQUAL device)
    # CUDA lives in a library of its own, see STATOR_CUDA.
    list(FILTER sources EXCLUDE REGEX "/src/device/cuda/")
  endif()
  # So does MPI, see cmake/mpi.cmake.
  list(FILTER sources EXCLUDE REGEX "/src/comm/(mpi|nccl)/")
  if(NOT sources)
    return()
  endif()
  add_library(stator_${folder} STATIC ${sources})
  target_include_directories(stator_${folder} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(stator_${folder} PUBLIC Threads::Threads m)
  foreach(dependency IN LISTS ARGN)
    if(TARGET ${dependency})
      target_link_libraries(stator_${folder} PUBLIC ${dependency})
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY STATOR_LIBRARIES stator_${folder})
  set_property(GLOBAL APPEND PROPERTY STATOR_FOLDERS ${folder})
endfunction()
