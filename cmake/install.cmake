# Installation: headers, libraries, the command, pkg-config and CMake packages. All paths inside the
# packages are relative to where they lie, so that the installed tree may be moved.

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/stator)

install(TARGETS stator_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/libstator.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/stator DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/targets DESTINATION ${CMAKE_INSTALL_DATADIR}/stator
        FILES_MATCHING PATTERN "*.target")
if(TARGET stator_mpi)
  install(TARGETS stator_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET stator_command)
  install(TARGETS stator_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# What a program that takes libstator.a must link besides.
set(static_names protobuf-c json-c z pthread m)
if(STATOR_HAVE_ONEDNN)
  get_filename_component(onednn_folder ${ONEDNN_LIBRARY} DIRECTORY)
  list(APPEND static_names dnnl)
  if(STATOR_ONEDNN_ROOT)
    set(static_folder "-L${onednn_folder} ")
    list(TRANSFORM static_names REPLACE "^dnnl$" "${ONEDNN_LIBRARY}" OUTPUT_VARIABLE static_items)
  endif()
endif()
if(NOT static_items)
  set(static_items ${static_names})
endif()
list(TRANSFORM static_names PREPEND "-l" OUTPUT_VARIABLE static_flags)
list(JOIN static_flags " " static_flags)
set(static_flags "${static_folder}${static_flags}")

file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc ${prefix_from_pc})
configure_file(${CMAKE_SOURCE_DIR}/cmake/stator.pc.in ${CMAKE_BINARY_DIR}/stator.pc @ONLY)
configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/cmake/statorConfig.cmake.in ${CMAKE_BINARY_DIR}/statorConfig.cmake
  INSTALL_DESTINATION ${package_folder}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/statorConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/stator.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/statorConfig.cmake ${CMAKE_BINARY_DIR}/statorConfigVersion.cmake
        DESTINATION ${package_folder})
