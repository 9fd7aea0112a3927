vcpkg_from_github(
  OUT_SOURCE_PATH SOURCE_PATH
  REPO @OWNER@/plimsoll
  REF "v${VERSION}"
  SHA512 @SHA512@
  HEAD_REF main)

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
  "${CURRENT_PACKAGES_DIR}/share/licenses")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
