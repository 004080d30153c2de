# tandem_library(NAME x SRCS a.cc DEPS y [TORCH])
#   A static library tandem_x. Sources and dependencies are listed, never globbed. Headers are included
#   by their path from the root ("common/status/status_macros.h"). TORCH: the library uses tensors; it
#   gets LibTorch and the precompiled header.
# tandem_binary(NAME x SRCS main.cc DEPS y [TORCH])       build/bin/x
# tandem_test(NAME x SRCS x_test.cc DEPS y LABELS unit [TORCH] [ONE_PROCESS] [TIMEOUT seconds])
#   A GoogleTest binary. Labels: unit (no process, no network; the binary is one test of ctest's),
#   integration (services, processes; each case is one, without ONE_PROCESS), long and attacks (only in tools/test --all).
set(TANDEM_PRECOMPILED ${CMAKE_SOURCE_DIR}/common/precompiled.h)

# Unity builds: includes cost more than the files, so eight files of a target compile as one, in a
# quarter of the time. Names in their anonymous namespaces must therefore differ. Files with Highway
# kernels compile once per instruction set, each on its own.
function(_tandem_unity target)
  list(LENGTH ARGN count)
  if(NOT TANDEM_UNITY OR count LESS 2)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    if(EXISTS ${path})
      file(STRINGS ${path} highway REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
      if(highway)
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endif()
  endforeach()
endfunction()

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
  if(TARGET tandem_sanitizer AND kind STREQUAL "EXECUTABLE")
    target_link_libraries(${target} PRIVATE tandem_sanitizer)
  endif()
  if(ARG_TORCH)
    target_link_libraries(${target} ${scope} torch_cpu)
    if(kind STREQUAL "EXECUTABLE")
      # A precompiled header needs the same flags as the code that uses it.
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
  _tandem_unity(tandem_${ARG_NAME} ${ARG_SRCS})
endfunction()

function(tandem_binary)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set(torch)
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  _tandem_target(${ARG_NAME} DEPS ${ARG_DEPS} ${torch})
  _tandem_unity(${ARG_NAME} ${ARG_SRCS})
endfunction()

# Tests that tools/test builds again with a sanitizer: a target that builds them all, and a label of
# the same name that selects them.
function(_tandem_sanitized test torch labels)
  set(groups)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/common/" AND "unit" IN_LIST labels)
    # Tests without LibTorch and Highway kernels build in a fraction of the time.
    if(torch OR test STREQUAL "model_gemm_test")
      list(APPEND groups tensor_tests)
    else()
      list(APPEND groups common_tests)
    endif()
  elseif(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/services/" AND "unit" IN_LIST labels)
    list(APPEND groups service_tests)
  endif()
  # Multi-threaded tests; not those in which gRPC's threads, which are not instrumented, run our
  # code.
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/(common/(comm|weights)|services/rollout/(engine|scheduler))"
     AND labels MATCHES "^(unit|integration)$")
    list(APPEND groups thread_tests)
  endif()
  foreach(group ${groups})
    if(NOT TARGET ${group})
      add_custom_target(${group})
    endif()
    add_dependencies(${group} ${test})
  endforeach()
  set(sanitized_groups ${groups} PARENT_SCOPE)
endfunction()

function(tandem_test)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH;ONE_PROCESS" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set(torch)
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  _tandem_target(${ARG_NAME} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main ${torch})
  _tandem_unity(${ARG_NAME} ${ARG_SRCS})
  # Tests run briefly: -O2 would cost more compile time than it saves.
  target_compile_options(${ARG_NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  _tandem_sanitized(${ARG_NAME} "${ARG_TORCH}" "${ARG_LABELS}")
  if("unit" IN_LIST ARG_LABELS OR ARG_ONE_PROCESS)
    # Unit tests: LibTorch takes half a second to load.
    if(NOT ARG_TIMEOUT)
      set(ARG_TIMEOUT 600)
    endif()
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS};${sanitized_groups}" TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TANDEM_SOURCE=${CMAKE_SOURCE_DIR}")
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # One process per case, so that cases do not affect each other. On a busy machine, one program
  # that lists its cases slowly would fail all of ctest. Names leave out values of parameters: those of
  # structs hold addresses, and CTest remembers by name how long a test takes.
  gtest_discover_tests(${ARG_NAME} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 NO_PRETTY_VALUES
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    # CMake would split two variables in one ENVIRONMENT at their semicolon.
    ENVIRONMENT "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    ENVIRONMENT_MODIFICATION "TANDEM_SOURCE=set:${CMAKE_SOURCE_DIR}")
endfunction()

# A test of CUDA kernels on tests/support/cuda_emulation.h. Sanitizers look at the kernels for data races
# within a block, misaligned accesses and integers that overflow; LibTorch keeps to one thread, for
# ThreadSanitizer does not see how its threads synchronise. NO_RACES leaves data races out: in templates, GCC
# guards static arrays of __nv_bfloat16 by a byte that says whether they are constructed, though they need no
# construction, and that byte is a race.
function(tandem_kernel_test)
  if(NOT TANDEM_TESTS OR TANDEM_SANITIZER)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH;NO_RACES" "NAME" "SRCS;DEPS;LABELS" ${ARGN})
  set(torch)
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  tandem_test(NAME ${ARG_NAME} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} cuda_emulation LABELS ${ARG_LABELS} ${torch})
  tandem_cuda_sources(${ARG_SRCS})
  set(checks -fsanitize=alignment,signed-integer-overflow,shift,bounds)
  if(NOT ARG_NO_RACES)
    list(APPEND checks -fsanitize=thread)
  endif()
  target_compile_options(${ARG_NAME} PRIVATE ${checks} -fno-sanitize-recover=alignment,signed-integer-overflow,shift,bounds -g1)
  target_link_options(${ARG_NAME} PRIVATE ${checks})
  set_tests_properties(${ARG_NAME} PROPERTIES ENVIRONMENT
    "TANDEM_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};TANDEM_SOURCE=${CMAKE_SOURCE_DIR};OMP_NUM_THREADS=1;MKL_NUM_THREADS=1")
endfunction()

include(GoogleTest)
