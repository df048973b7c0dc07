# What is built from the folders: libstator.so, libstator.a and the `stator` command.

get_property(libraries GLOBAL PROPERTY STATOR_LIBRARIES)
get_property(object_libraries GLOBAL PROPERTY STATOR_OBJECTS)
set(outside_libraries PkgConfig::PROTOBUF_C PkgConfig::JSON_C ZLIB::ZLIB Threads::Threads m)
if(STATOR_HAVE_ONEDNN)
  list(APPEND outside_libraries oneDNN)
endif()

if(TARGET stator_capi)
  set(objects "")
  foreach(library IN LISTS libraries object_libraries)
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  set(map ${CMAKE_SOURCE_DIR}/src/libstator.map)
  add_library(stator_shared SHARED ${objects})
  set_target_properties(stator_shared PROPERTIES OUTPUT_NAME stator LINKER_LANGUAGE C
                        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                        LINK_DEPENDS ${map})
  target_link_options(stator_shared PRIVATE -Wl,--version-script=${map} -Wl,--gc-sections)
  # A name without a definition fails the build, not the user's program. clang links sanitizer
  # and profile run-times into programs only, so there the names stay open.
  if(NOT (CMAKE_C_COMPILER_ID MATCHES Clang AND (STATOR_SANITIZE OR STATOR_FUZZ)))
    target_link_options(stator_shared PRIVATE -Wl,-z,defs)
  endif()
  target_link_libraries(stator_shared PRIVATE ${outside_libraries})

  # libstator.a is one object whose internal names are local, so that they cannot collide with a
  # user's own (generated protobuf readers, above all).
  set(files "")
  foreach(library IN LISTS libraries)
    list(APPEND files $<TARGET_FILE:${library}>)
  endforeach()
  set(object ${CMAKE_BINARY_DIR}/libstator.o)
  set(archive ${CMAKE_BINARY_DIR}/libstator.a)
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${CMAKE_LINKER} -r -o ${object} --whole-archive ${files}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --keep-global-symbol=stator_* ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} crs ${archive} ${object}
    DEPENDS ${libraries} ${files} BYPRODUCTS ${object}
    COMMENT "Linking libstator.a" VERBATIM)
  add_custom_target(stator_static ALL DEPENDS ${archive})
endif()

file(GLOB_RECURSE tools_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tools/*.c)
if(tools_sources AND TARGET stator_capi)
  add_executable(stator_command ${tools_sources})
  set_target_properties(stator_command PROPERTIES OUTPUT_NAME stator
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  # It takes libstator.so from beside it (as built) or from the library folder (as installed), both
  # relative, so that the tree may be moved.
  # Static builds run from wherever they are copied to; instrumented ones leave names open in
  # libstator.so that only a program's own run-time defines.
  if(STATOR_STATIC OR STATOR_SANITIZE OR STATOR_FUZZ OR STATOR_COVERAGE)
    target_link_libraries(stator_command PRIVATE stator_capi)
    target_link_options(stator_command PRIVATE -Wl,--gc-sections)
  else()
    file(RELATIVE_PATH libraries_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(stator_command PROPERTIES BUILD_WITH_INSTALL_RPATH ON
                          INSTALL_RPATH "$ORIGIN;$ORIGIN/${libraries_from_bin}")
    target_include_directories(stator_command PRIVATE ${CMAKE_SOURCE_DIR}/include
                               ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(stator_command PRIVATE stator_shared m)
  endif()
endif()

# All of them. Neither library is what another target needs to build, so that tests that read them
# as files ask for this one (tests/CMakeLists.txt).
add_custom_target(stator_products)
foreach(product stator_shared stator_static stator_command stator_mpi)
  if(TARGET ${product})
    add_dependencies(stator_products ${product})
  endif()
endforeach()

# Measurements written in C: bench/<name>.c is the program bench_<name>.
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
if(TARGET stator_capi)
  foreach(source IN LISTS bench_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} ${source})
    set_target_properties(bench_${name} PROPERTIES
                          RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    target_link_libraries(bench_${name} PRIVATE stator_capi)
  endforeach()
endif()
