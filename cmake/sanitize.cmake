# Sanitizers, fuzzing and coverage: flags of the whole build.

if(STATOR_SANITIZE)
  # A finding ends the program, so that the test fails.
  add_compile_options(-fsanitize=${STATOR_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${STATOR_SANITIZE})
endif()
if(STATOR_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "STATOR_FUZZ needs clang: it brings libFuzzer")
  endif()
  add_compile_definitions(STATOR_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(STATOR_COVERAGE)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "STATOR_COVERAGE needs clang: llvm-cov reads its profiles")
  endif()
  # As in the fuzzers: what lies behind a checksum is reached.
  add_compile_definitions(STATOR_FUZZ)
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
endif()
