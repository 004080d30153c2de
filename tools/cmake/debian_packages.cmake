# Sets DEBIAN_PACKAGES to the packages that PROGRAMS in FOLDER link, as a Depends field has them:
# "libgrpc++1.51 (>= 1.51.1), ...". LIBRARIES: folders of the libraries that come with the programs.
# WORK: a scratch folder.
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
if(NOT DPKG_SHLIBDEPS)
  message(WARNING "no dpkg-shlibdeps (package dpkg-dev): the packages that the programs need stay unknown")
  set(DEBIAN_PACKAGES "unknown: dpkg-shlibdeps was not installed")
  return()
endif()
file(WRITE ${WORK}/debian/control "Source: tandem\n\nPackage: tandem\nArchitecture: any\n")  # it wants one
list(TRANSFORM LIBRARIES PREPEND -l)
list(TRANSFORM PROGRAMS PREPEND "-e${FOLDER}/")
execute_process(
  COMMAND ${DPKG_SHLIBDEPS} -O --ignore-missing-info --warnings=0 ${LIBRARIES}
          -xlibgomp1 -xlibnccl2 -xlibcudnn9-cuda-13 ${PROGRAMS}  # lib/tandem has those three
  WORKING_DIRECTORY ${WORK} OUTPUT_VARIABLE DEBIAN_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_VARIABLE errors RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "dpkg-shlibdeps cannot find the packages of ${FOLDER}: ${errors}")
endif()
string(REGEX REPLACE "^shlibs:Depends=" "" DEBIAN_PACKAGES "${DEBIAN_PACKAGES}")
