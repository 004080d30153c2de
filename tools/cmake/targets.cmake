# tandem_library(NAME x SRCS a.cc DEPS y [TORCH])
#   A static library tandem_x. Sources and dependencies are listed, never globbed. Headers are included
#   by their path from the root ("common/status/status_macros.h"). TORCH: the library uses tensors; it
#   gets LibTorch and the precompiled header.
# tandem_binary(NAME x SRCS main.cc DEPS y [TORCH])       build/bin/x
# tandem_test(NAME x SRCS x_test.cc DEPS y LABELS unit [TORCH] [TIMEOUT seconds])
#   A GoogleTest binary. Labels: unit (no process, no network), integration (services, processes),
#   long (only in tools/test --all).
set(TANDEM_PRECOMPILED ${CMAKE_SOURCE_DIR}/common/precompiled.h)

function(_tandem_target target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "TORCH" "" "DEPS")
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  get_target_property(kind ${target} TYPE)
  set(scope PUBLIC)
  if(kind STREQUAL "EXECUTABLE")
    set(scope PRIVATE)
  endif()
  foreach(dep ${ARG_DEPS})
    if(NOT TARGET tandem_${dep} AND (TARGET ${dep} OR dep MATCHES "::|^-"))
      target_link_libraries(${target} ${scope} ${dep})
    else()
      target_link_libraries(${target} ${scope} tandem_${dep})
    endif()
  endforeach()
  if(ARG_TORCH)
    target_link_libraries(${target} ${scope} torch_cpu)
    if(kind STREQUAL "EXECUTABLE")
      # The precompiled header fits only code that is made the way it was made itself.
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
    if(NOT target STREQUAL "tandem_precompiled")
      target_precompile_headers(${target} REUSE_FROM tandem_precompiled)
    endif()
  endif()
endfunction()

function(tandem_library)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SRCS;DEPS" ${ARGN})
  add_library(tandem_${ARG_NAME} STATIC ${ARG_SRCS})
  set(torch)
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  _tandem_target(tandem_${ARG_NAME} DEPS ${ARG_DEPS} ${torch})
endfunction()

function(tandem_binary)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set(torch)
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  _tandem_target(${ARG_NAME} DEPS ${ARG_DEPS} ${torch})
endfunction()

function(tandem_test)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set(torch)
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  _tandem_target(${ARG_NAME} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main ${torch})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # What tools/test --all builds a second time, with AddressSanitizer.
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/common/" AND unit IN_LIST ARG_LABELS)
    if(NOT TARGET common_tests)
      add_custom_target(common_tests)
    endif()
    add_dependencies(common_tests ${ARG_NAME})
  endif()
  gtest_discover_tests(${ARG_NAME} DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    # Two variables in one ENVIRONMENT would be split at their semicolon on the way.
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    ENVIRONMENT_MODIFICATION "TANDEM_SOURCE=set:${CMAKE_SOURCE_DIR}")
endfunction()

include(GoogleTest)
