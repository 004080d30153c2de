# The script behind common/version: VERSION, COMMIT (empty: ask git), SOURCE, OUTPUT. Sources without
# git, as in an archive, have no commit.
if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(COMMIT)
  string(APPEND VERSION "+g${COMMIT}")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"// Written by tools/cmake/write_build_version.cmake.
#include \"common/version/version.h\"

namespace tandem::version {

absl::string_view BuildVersion() { return \"${VERSION}\"; }

}  // namespace tandem::version
")
