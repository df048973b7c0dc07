# libstator_mpi.so: ranks over MPI, opened at run time only when a process runs under mpirun
# (src/comm/mpi/module.h). Built where MPI is found; nothing else needs it.

option(STATOR_MPI "Build libstator_mpi.so where MPI is found" ON)
if(STATOR_MPI AND NOT STATOR_FUZZ)
  find_package(MPI QUIET COMPONENTS C)
endif()
if(MPI_C_FOUND)
  file(GLOB mpi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/comm/mpi/*.c)
  add_library(stator_mpi MODULE ${mpi_sources})
  target_compile_definitions(stator_mpi PRIVATE STATOR_BUILD="${STATOR_BUILD}")
  target_include_directories(stator_mpi PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(stator_mpi SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
  target_link_libraries(stator_mpi PRIVATE stator_base ${MPI_C_LIBRARIES} Threads::Threads)
  target_link_options(stator_mpi PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL)
  set_target_properties(stator_mpi PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()
