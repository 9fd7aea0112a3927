# SPDX-License-Identifier: Apache-2.0
# The port of vcpkg/central, of the checkout that it lies in instead of a release:
#   vcpkg install plimsoll --overlay-ports=tests/packaging/vcpkg/ports
# vcpkg's cache knows the port's files, not the checkout's: after a change there, add --binarysource=clear.
function(vcpkg_from_github)
  cmake_path(SET checkout NORMALIZE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../../../..")
  set(SOURCE_PATH "${checkout}" PARENT_SCOPE)
endfunction()
include("${CMAKE_CURRENT_LIST_DIR}/../../central/plimsoll/portfile.cmake")
