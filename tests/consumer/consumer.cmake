# SPDX-License-Identifier: Apache-2.0
# The library as strangers use it: installed and found, as a subdirectory, and refused when the
# version does not fit.
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/prefix)

# A fresh prefix each time: yesterday's would hide a header that is no longer installed.
plimsoll_add_ctest(package.install LABELS package
  COMMAND ${PLIMSOLL_BASH} -c "rm -rf '${prefix}' && '${CMAKE_COMMAND}' --install '${PROJECT_BINARY_DIR}' --prefix '${prefix}'")
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP plimsoll_prefix)

# Configures, builds and runs a consumer project in a fresh folder.
function(plimsoll_add_consumer name project)
  plimsoll_add_ctest(package.${name} LABELS package
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test
            ${CMAKE_CURRENT_SOURCE_DIR}/consumer/${project} ${CMAKE_CURRENT_BINARY_DIR}/consumer_${name}
            --build-generator ${CMAKE_GENERATOR} --build-makeprogram ${CMAKE_MAKE_PROGRAM}
            --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${ARGN}
            --test-command ./consumer)
  set_tests_properties(package.${name} PROPERTIES FIXTURES_REQUIRED plimsoll_prefix)
endfunction()

plimsoll_add_consumer(find_package find_package -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=${PROJECT_VERSION})
plimsoll_add_consumer(subdirectory subdirectory -DPLIMSOLL_SOURCE=${PROJECT_SOURCE_DIR})
plimsoll_add_consumer(refused_version find_package -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=99)
set_tests_properties(package.refused_version PROPERTIES
  PASS_REGULAR_EXPRESSION "compatible with requested[ \n]+version \"99\"")
