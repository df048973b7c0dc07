# Target descriptions of targets/ as bytes in the library, so that it needs no file to plan for
# them.

file(GLOB target_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/targets/*.target)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${target_files})
set(target_arrays "")
set(target_rows "")
foreach(file IN LISTS target_files)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} bytes HEX)
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND target_arrays "static const unsigned char text_${name}[] = {${bytes}};\n")
  string(APPEND target_rows "    {\"${name}\", text_${name}, ${length}},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/target_builtins.c CONTENT
"/* Made from targets/ by cmake/targets.cmake. */
#include \"compile/target.h\"

@target_arrays@
const target_builtin_t target_builtins[] = {
@target_rows@    {NULL, NULL, 0},
};
" @ONLY)
target_sources(stator_compile PRIVATE ${CMAKE_BINARY_DIR}/generated/target_builtins.c)

# What a kept plan has to be of: the sources of all that makes plans, as a hash in one object.
include(plan_sources)
plan_sources(${CMAKE_SOURCE_DIR}/src pass_sources)
list(TRANSFORM pass_sources PREPEND ${CMAKE_SOURCE_DIR}/src/)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/generated/plan_build.c
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR}/src -DVERSION=${PROJECT_VERSION}
          -DOUT=${CMAKE_BINARY_DIR}/generated/plan_build.c -P ${CMAKE_SOURCE_DIR}/cmake/plan_build.cmake
  DEPENDS ${pass_sources} ${CMAKE_SOURCE_DIR}/cmake/plan_build.cmake
          ${CMAKE_SOURCE_DIR}/cmake/plan_sources.cmake
  COMMENT "Hashing what makes plans" VERBATIM)
target_sources(stator_compile PRIVATE ${CMAKE_BINARY_DIR}/generated/plan_build.c)
