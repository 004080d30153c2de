# tandem_embed(NAME x SPACE a::b FILES page/index.html ...)
#   A library tandem_x with the files' contents: std::string_view a::b::IndexHtml() for
#   page/index.html, declared in "x.h". Built again when a file changes.
function(tandem_embed)
  cmake_parse_arguments(ARG "" "NAME;SPACE" "FILES" ${ARGN})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/embedded)
  set(paths)
  foreach(file ${ARG_FILES})
    list(APPEND paths ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  add_custom_command(
    OUTPUT ${folder}/${ARG_NAME}.cc ${folder}/${ARG_NAME}.h
    COMMAND ${CMAKE_COMMAND} "-DNAME=${ARG_NAME}" "-DSPACE=${ARG_SPACE}" "-DFILES=${paths}"
            "-DFOLDER=${folder}" -P ${CMAKE_SOURCE_DIR}/tools/cmake/write_embedded.cmake
    DEPENDS ${paths} ${CMAKE_SOURCE_DIR}/tools/cmake/write_embedded.cmake VERBATIM)
  add_library(tandem_${ARG_NAME} STATIC ${folder}/${ARG_NAME}.cc)
  target_include_directories(tandem_${ARG_NAME} PUBLIC ${folder})
endfunction()
