# Finds Debian's packages by their CMake files or pkg-config, and LibTorch and Arrow in the folders
# of tools/setup, which lists packages and versions.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
find_package(ZLIB REQUIRED)
pkg_check_modules(png REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(jpeg REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(webp REQUIRED IMPORTED_TARGET libwebp)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(prometheus REQUIRED IMPORTED_TARGET prometheus-cpp-core)
find_package(Boost 1.74 REQUIRED)  # Asio and Beast, which are headers
if(TANDEM_TESTS)
  find_package(GTest REQUIRED)
endif()

execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup --print
                OUTPUT_VARIABLE TANDEM_LIBTORCH_DEFAULT OUTPUT_STRIP_TRAILING_WHITESPACE)
set(TANDEM_LIBTORCH ${TANDEM_LIBTORCH_DEFAULT} CACHE PATH "LibTorch: a folder with include/ and lib/")
if(NOT EXISTS ${TANDEM_LIBTORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no LibTorch in ${TANDEM_LIBTORCH}; run tools/setup, or set TANDEM_LIBTORCH")
endif()

# Tensors, autograd, c10d with Gloo. libtorch_cpu loads two small CUDA libraries beside it, but
# needs no GPU.
add_library(torch_cpu INTERFACE)
target_include_directories(torch_cpu SYSTEM INTERFACE
  ${TANDEM_LIBTORCH}/include ${TANDEM_LIBTORCH}/include/torch/csrc/api/include)
target_compile_definitions(torch_cpu INTERFACE USE_C10D_GLOO AT_PER_OPERATOR_HEADERS)
# Without this flag the templates behind at::parallel_for run serially. The runtime is LibTorch's,
# below.
target_compile_options(torch_cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
target_link_libraries(torch_cpu INTERFACE
  ${TANDEM_LIBTORCH}/lib/libtorch_cpu.so ${TANDEM_LIBTORCH}/lib/libc10.so
  ${TANDEM_LIBTORCH}/lib/libgomp.so.1)
target_link_options(torch_cpu INTERFACE -Wl,--allow-shlib-undefined)

# Arrow and Parquet, for data sets in tables. The libraries are of the wheel of tools/setup.
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup --print-arrow
                OUTPUT_VARIABLE TANDEM_ARROW_DEFAULT OUTPUT_STRIP_TRAILING_WHITESPACE)
set(TANDEM_ARROW_FOLDER ${TANDEM_ARROW_DEFAULT} CACHE PATH "Arrow: a folder with include/ and lib/")
set(arrow_found OFF)
if(EXISTS ${TANDEM_ARROW_FOLDER}/lib/libparquet.so)
  set(arrow_found ON)
endif()
option(TANDEM_ARROW "Read Parquet and Arrow files; needs Arrow's libraries in TANDEM_ARROW_FOLDER" ${arrow_found})
if(TANDEM_ARROW)
  if(NOT arrow_found)
    message(FATAL_ERROR "no Arrow in ${TANDEM_ARROW_FOLDER}; run tools/setup, or set TANDEM_ARROW_FOLDER or TANDEM_ARROW=OFF")
  endif()
  add_library(arrow INTERFACE)
  target_include_directories(arrow SYSTEM INTERFACE ${TANDEM_ARROW_FOLDER}/include)
  target_link_libraries(arrow INTERFACE ${TANDEM_ARROW_FOLDER}/lib/libparquet.so ${TANDEM_ARROW_FOLDER}/lib/libarrow.so)
endif()

if(TANDEM_CUDA)
  # One, or `release`: native code for every GPU from A100 and A10 to Blackwell, and PTX, which later
  # ones compile when they start. The programs refuse other GPUs (common/host/gpus.h).
  set(TANDEM_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures: a list as in CMAKE_CUDA_ARCHITECTURES, or release")
  if(TANDEM_CUDA_ARCHITECTURES STREQUAL release)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100-real 120)
  else()
    set(CMAKE_CUDA_ARCHITECTURES ${TANDEM_CUDA_ARCHITECTURES})
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION --std=c++20)  # CMake 3.25 does not know it of nvcc 13
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit 13.0 REQUIRED)
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  # Link libraries. Only sources named by tandem_cuda_sources() get headers and definitions; all
  # others compile as without CUDA.
  add_library(torch_cuda INTERFACE)
  target_link_libraries(torch_cuda INTERFACE torch_cpu
    -Wl,--no-as-needed ${TANDEM_LIBTORCH}/lib/libtorch_cuda.so -Wl,--as-needed
    ${TANDEM_LIBTORCH}/lib/libc10_cuda.so ${CUDA_cudart_LIBRARY} ${NCCL_LIBRARY})
  # FlashInfer's headers and their own CCCL: CUDA 13.0's is too old.
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup --print-flashinfer
                  OUTPUT_VARIABLE TANDEM_FLASHINFER_DEFAULT OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(TANDEM_FLASHINFER ${TANDEM_FLASHINFER_DEFAULT} CACHE PATH "FlashInfer: a folder with include/ and cccl/")
  if(NOT EXISTS ${TANDEM_FLASHINFER}/include/flashinfer/attention/prefill.cuh)
    message(FATAL_ERROR "no FlashInfer in ${TANDEM_FLASHINFER}; run tools/setup --cuda, or set TANDEM_FLASHINFER")
  endif()
endif()

function(tandem_cuda_sources)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_DEFINITIONS "TANDEM_CUDA"
    INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS};${NCCL_INCLUDE}")
endfunction()

# Kernels that instantiate FlashInfer's templates.
function(tandem_flashinfer_sources)
  set(folders cccl/cub cccl/libcudacxx/include cccl/thrust include)
  list(TRANSFORM folders PREPEND "${TANDEM_FLASHINFER}/")
  set_source_files_properties(${ARGN} PROPERTIES INCLUDE_DIRECTORIES "${folders}" COMPILE_OPTIONS "--disable-warnings")
endfunction()
