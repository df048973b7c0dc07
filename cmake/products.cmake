# What is built from the folders: the `stator` command.

file(GLOB_RECURSE tools_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tools/*.c)
if(tools_sources AND TARGET stator_capi)
  # Linked to the static parts, so that the command runs from wherever it is copied to.
  add_executable(stator_command ${tools_sources})
  set_target_properties(stator_command PROPERTIES OUTPUT_NAME stator
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_compile_definitions(stator_command PRIVATE STATOR_VERSION="${PROJECT_VERSION}")
  target_link_libraries(stator_command PRIVATE stator_capi)
endif()
