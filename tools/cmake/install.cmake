# cmake --install and cpack. What runs on a machine without the build's folders:
#
#   bin/               the programs
#   lib/tandem/        the libraries that no Debian package brings: LibTorch's, Arrow's, and in the CUDA
#                      build NVIDIA's (not the driver's); programs find them relative to themselves
#   share/doc/tandem/  licence, notices, and debian-packages.txt: which packages the programs need
#   share/tandem/      configs, examples, and clients: the protos and the source of the Python wheel
#
# Components, each a Debian package: programs (tandem), examples, clients.
set(TANDEM_PROGRAMS tandem tandem-trainer tandem-rollout tandem-inspect tandem-bench-raw tandem-bench-device
                    tandem-check-device)
set_target_properties(${TANDEM_PROGRAMS} PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib/tandem")
foreach(program ${TANDEM_PROGRAMS})
  # RPATH, not RUNPATH: it also holds for libraries that the libraries load, as cuDNN does its parts.
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS ${TANDEM_PROGRAMS} RUNTIME_DEPENDENCY_SET libraries DESTINATION bin COMPONENT programs)

# Debian's libraries stay where their packages put them; NVIDIA's may stand beside those.
set(nvidia "/lib(cudart|cublas|cublasLt|cufft|cufile|cupti|curand|cusolver|cusparse|cusparseLt|cudnn|nccl|nvJitLink|nvrtc|nvshmem[a-z_]*)\\.so")
install(RUNTIME_DEPENDENCY_SET libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\\+\\+)\\.so" "^lib(cuda|nvidia-ml)\\.so"
  POST_INCLUDE_REGEXES ${nvidia}
  POST_EXCLUDE_REGEXES "^/(usr/)?lib"
  DIRECTORIES ${TANDEM_LIBTORCH}/lib ${CUDAToolkit_LIBRARY_DIR}
  DESTINATION lib/tandem COMPONENT programs)
if(TANDEM_CUDA)
  # cuDNN loads its parts by name on demand.
  find_library(TANDEM_CUDNN cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  install(CODE "
    file(REAL_PATH ${TANDEM_CUDNN} cudnn)
    get_filename_component(folder \${cudnn} DIRECTORY)
    file(GLOB parts \${folder}/libcudnn_*.so.[0-9])
    file(INSTALL \${parts} DESTINATION \${CMAKE_INSTALL_PREFIX}/lib/tandem FOLLOW_SYMLINK_CHAIN)"
    COMPONENT programs)
endif()

set(documents share/doc/tandem)
install(FILES LICENSE tools/notices/third_party.md .github/CHANGELOG.md DESTINATION ${documents} COMPONENT programs)
# The licences of the wheels' libraries, and of what those contain.
set(wheels ${TANDEM_LIBTORCH})
if(TANDEM_ARROW)
  list(APPEND wheels ${TANDEM_ARROW_FOLDER})
endif()
foreach(wheel ${wheels})
  get_filename_component(name ${wheel} NAME)
  install(CODE "
    if(NOT EXISTS ${wheel}/licenses)
      message(WARNING \"no licences in ${wheel}, which an older tools/setup unpacked; before you distribute \"
                      \"packages remove it and run tools/setup\")
    endif()" COMPONENT programs)
  install(DIRECTORY ${wheel}/licenses/ DESTINATION ${documents}/licences/${name} COMPONENT programs OPTIONAL)
endforeach()

set(data share/tandem)
install(DIRECTORY tools/configs DESTINATION ${data} COMPONENT examples)
install(DIRECTORY tools/examples DESTINATION ${data} COMPONENT examples USE_SOURCE_PERMISSIONS)
file(CONFIGURE OUTPUT stubs/VERSION CONTENT "${PROJECT_VERSION}\n")
install(DIRECTORY proto/tandem DESTINATION ${data}/clients/proto COMPONENT clients)
install(DIRECTORY tools/stubs tools/export_metrics DESTINATION ${data}/clients/tools COMPONENT clients
        PATTERN __pycache__ EXCLUDE)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stubs/VERSION DESTINATION ${data}/clients/tools/stubs COMPONENT clients)
install(PROGRAMS tools/wheel tools/python DESTINATION ${data}/clients/tools COMPONENT clients)
install(FILES tools/requirements.txt DESTINATION ${data}/clients/tools COMPONENT clients)

# The Debian packages that the programs link, for the archive's readers and for the package's Depends.
set(find_packages "
  set(PROGRAMS ${TANDEM_PROGRAMS})
  set(FOLDER ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  set(WORK ${CMAKE_CURRENT_BINARY_DIR}/debian_packages)
  set(LIBRARIES ${TANDEM_LIBTORCH}/lib ${TANDEM_ARROW_FOLDER}/lib ${CUDAToolkit_LIBRARY_DIR})
  include(${CMAKE_SOURCE_DIR}/tools/cmake/debian_packages.cmake)")
install(CODE "${find_packages}
  file(WRITE \${WORK}/debian-packages.txt \"\${DEBIAN_PACKAGES}\\n\")
  file(INSTALL \${WORK}/debian-packages.txt DESTINATION \${CMAKE_INSTALL_PREFIX}/${documents})"
  COMPONENT programs)
file(CONFIGURE OUTPUT package_options.cmake @ONLY CONTENT "
if(CPACK_GENERATOR STREQUAL DEB)@find_packages@
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS \${DEBIAN_PACKAGES})
endif()
")

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_CONTACT "Tandem's maintainers <tandem@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trainer and rollout services for RL of language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_BINARY_DIR}/package_options.cmake)
set(CPACK_COMPONENTS_ALL programs examples clients)
set(CPACK_THREADS 0)
# One archive with everything; one package per component.
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)  # xz takes minutes for LibTorch
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME tandem)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS python3)  # for rewards in Python
set(CPACK_COMPONENT_EXAMPLES_DESCRIPTION "Configurations and client examples")
set(CPACK_COMPONENT_CLIENTS_DESCRIPTION "Protos and the source of the Python client package")
set(CPACK_DEBIAN_EXAMPLES_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_CLIENTS_PACKAGE_ARCHITECTURE all)
include(CPack)
