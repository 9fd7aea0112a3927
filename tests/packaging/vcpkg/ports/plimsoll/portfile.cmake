# SPDX-License-Identifier: Apache-2.0
# The port of the checkout that it lies in: vcpkg install plimsoll --overlay-ports=tests/packaging/vcpkg/ports
# vcpkg's cache knows the port's files, not the checkout's: after a change there, add --binarysource=clear.
# In a registry, the line that sets SOURCE_PATH is
#   vcpkg_from_github(OUT_SOURCE_PATH SOURCE_PATH REPO <owner>/plimsoll REF "v${VERSION}" SHA512 <of the archive>)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release) # headers only
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DPLIMSOLL_BUILD_TESTS=OFF
    -DPLIMSOLL_BUILD_EXAMPLES=OFF
    -DPLIMSOLL_BUILD_BENCH=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/plimsoll)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE
  "${CURRENT_PACKAGES_DIR}/debug"
  "${CURRENT_PACKAGES_DIR}/lib"
  "${CURRENT_PACKAGES_DIR}/share/licenses") # the file copyright has it
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
