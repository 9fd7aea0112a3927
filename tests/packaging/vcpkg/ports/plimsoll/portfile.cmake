# SPDX-License-Identifier: Apache-2.0
# The port of vcpkg/central, for the checkout that contains it instead of a release:
#   vcpkg install plimsoll --overlay-ports=tests/packaging/vcpkg/ports
# vcpkg's cache tracks the files of the port, not those of the checkout: after a change there, add
# --binarysource=clear.
function(vcpkg_from_github)
  cmake_path(SET checkout NORMALIZE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../../../..")
  set(SOURCE_PATH "${checkout}" PARENT_SCOPE)
endfunction()
include("${CMAKE_CURRENT_LIST_DIR}/../../central/plimsoll/portfile.cmake")
