# Writes OUT: a C file with a hash of the sources under ROOT that decide what plans look like. A
# script, run when one of them has changed; nothing but this file is built anew for it.
#
#   cmake -DROOT=<src> -DVERSION=<version> -DOUT=<file> -P plan_build.cmake
#
# Names and contents count, in the order of the names.
include(${CMAKE_CURRENT_LIST_DIR}/plan_sources.cmake)
plan_sources(${ROOT} sources)
set(all "${VERSION}")
foreach(source IN LISTS sources)
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "\n${source} ${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUT} "/* Made by cmake/plan_build.cmake. */
#include \"compile/cache.h\"

const char plan_build[] = \"${VERSION}-${hash}\";
")
