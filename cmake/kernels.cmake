# CPU kernels: how src/kernels/ is compiled.
#
#   src/kernels/cpu/*.c      once for each machine level below, chosen at run time
#                            fused_joined.c without fused multiply-add: it says why
#   src/kernels/onednn/*.c   once, where oneDNN is there
#   the rest                 once, plain

# No -ffast-math: NaN and infinity must keep their meaning (a NaN in a gradient is a skipped step,
# not a wrong one). What remains: no errno from math calls, fused multiply-add, no trap order.
set(kernel_options -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(kernel_archs base v3 v4)
  set(kernel_options_base -march=x86-64 -O2) # for processors before 2013: small rather than unrolled
  set(kernel_options_v3 -march=x86-64-v3)
  set(kernel_options_v4 -march=x86-64-v4 -mprefer-vector-width=512)
else()
  set(kernel_archs base)
  set(kernel_options_base "")
endif()

# oneDNN is looked for by header and library rather than by its CMake package: Debian's package
# file insists on OpenCL headers, which Stator has no use for, and 2.x and 3.x differ in layout.
set(STATOR_ONEDNN AUTO CACHE STRING "oneDNN for matmul and convolution: AUTO, ON or OFF")
set_property(CACHE STATOR_ONEDNN PROPERTY STRINGS AUTO ON OFF)
set(STATOR_ONEDNN_ROOT "" CACHE PATH "Where oneDNN is installed, if not with the system")
set(STATOR_HAVE_ONEDNN FALSE)
if(NOT STATOR_ONEDNN STREQUAL OFF)
  find_path(ONEDNN_INCLUDE dnnl.h HINTS ${STATOR_ONEDNN_ROOT} PATH_SUFFIXES include)
  find_library(ONEDNN_LIBRARY dnnl HINTS ${STATOR_ONEDNN_ROOT} PATH_SUFFIXES lib)
  if(ONEDNN_INCLUDE AND ONEDNN_LIBRARY)
    set(STATOR_HAVE_ONEDNN TRUE)
    add_library(oneDNN SHARED IMPORTED)
    set_target_properties(oneDNN PROPERTIES IMPORTED_LOCATION ${ONEDNN_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE})
  elseif(STATOR_ONEDNN STREQUAL AUTO)
    message(STATUS "oneDNN not found: products run on Stator's own kernels, slower")
  else()
    message(FATAL_ERROR "STATOR_ONEDNN=ON but dnnl.h and libdnnl were not found: install "
                        "libdnnl-dev, or set STATOR_ONEDNN_ROOT")
  endif()
endif()

# stator_kernel_variants(<list of sources>): compiles src/kernels/cpu/ for each machine level and
# replaces those entries of the list by the objects; drops oneDNN's folder where it is not found.
function(stator_kernel_variants list_name)
  set(sources ${${list_name}})
  set(cpu_sources ${sources})
  list(FILTER cpu_sources INCLUDE REGEX "/src/kernels/cpu/")
  list(FILTER sources EXCLUDE REGEX "/src/kernels/(cpu|cuda)/")
  if(NOT STATOR_HAVE_ONEDNN)
    list(FILTER sources EXCLUDE REGEX "/src/kernels/onednn/")
  endif()
  if(cpu_sources)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/fused_joined.c PROPERTIES
                                COMPILE_OPTIONS -ffp-contract=off)
    foreach(arch IN LISTS kernel_archs)
      add_library(stator_kernels_${arch} OBJECT ${cpu_sources})
      target_include_directories(stator_kernels_${arch} PRIVATE ${CMAKE_SOURCE_DIR}/src)
      target_compile_definitions(stator_kernels_${arch} PRIVATE KERN_ARCH=${arch})
      target_compile_options(stator_kernels_${arch} PRIVATE
                             ${kernel_options} ${kernel_options_${arch}})
      list(APPEND sources $<TARGET_OBJECTS:stator_kernels_${arch}>)
      set_property(GLOBAL APPEND PROPERTY STATOR_OBJECTS stator_kernels_${arch})
    endforeach()
  endif()
  set(${list_name} ${sources} PARENT_SCOPE)
endfunction()

# stator_text_of(<name> <file> <header>): <name>[] as the file's text, declared in <header>.
function(stator_text_of name file header out_source)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  set(source ${CMAKE_BINARY_DIR}/generated/${name}.c)
  file(CONFIGURE OUTPUT ${source} CONTENT
       "#include \"${header}\"\n\nconst char ${name}[] = {${bytes}0};\n" @ONLY)
  set(${out_source} ${source} PARENT_SCOPE)
endfunction()
