# SPDX-License-Identifier: Apache-2.0
# The library as strangers use it: every way to take it, one project or command each, which builds
# main.cpp and runs it.
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/prefix)
set(consumer ${CMAKE_CURRENT_SOURCE_DIR}/consumer)
set(packaging ${CMAKE_CURRENT_SOURCE_DIR}/packaging)
find_program(PLIMSOLL_NVCC NAMES $ENV{CUDACXX} nvcc) # also where this build is without CUDA
find_program(PLIMSOLL_PKG_CONFIG NAMES pkg-config pkgconf)
mark_as_advanced(PLIMSOLL_NVCC PLIMSOLL_PKG_CONFIG)

# A fresh prefix each time: yesterday's would hide a header that is no longer installed.
plimsoll_add_ctest(package.install LABELS package
  COMMAND ${PLIMSOLL_BASH} -c "rm -rf '${prefix}' && '${CMAKE_COMMAND}' --install '${PROJECT_BINARY_DIR}' --prefix '${prefix}'")
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP plimsoll_prefix)

# plimsoll_add_package_test(<name> COMMAND <command>...): a test of what is installed.
function(plimsoll_add_package_test name)
  plimsoll_add_ctest(package.${name} LABELS package ${ARGN})
  set_tests_properties(package.${name} PROPERTIES FIXTURES_REQUIRED plimsoll_prefix)
endfunction()

# plimsoll_add_consumer(<name> <project> [OPTIONS <cmake option>...] [TARGET <target>] [RUN <command>...]):
# configures and builds a project in a fresh folder, and runs what it built.
function(plimsoll_add_consumer name project)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "TARGET" "OPTIONS;RUN")
  set(after)
  if(arg_TARGET)
    list(APPEND after --build-target ${arg_TARGET})
  endif()
  list(APPEND after --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${arg_OPTIONS})
  if(arg_RUN)
    list(APPEND after --test-command ${arg_RUN})
  endif()
  plimsoll_add_package_test(${name}
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${project} ${CMAKE_CURRENT_BINARY_DIR}/consumer_${name}
            --build-generator ${CMAKE_GENERATOR} --build-makeprogram ${CMAKE_MAKE_PROGRAM} ${after})
endfunction()

# --- CMake -------------------------------------------------------------------------------------------
set(found -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=${PROJECT_VERSION})
set(source -DPLIMSOLL_SOURCE=${PROJECT_SOURCE_DIR})
plimsoll_add_consumer(find_package ${consumer}/find_package OPTIONS ${found} RUN ./consumer)
plimsoll_add_consumer(subdirectory ${consumer}/subdirectory OPTIONS ${source} RUN ./consumer)
plimsoll_add_consumer(fetch_content ${consumer}/fetch_content OPTIONS ${source} RUN ./consumer)
plimsoll_add_consumer(refused_version ${consumer}/find_package
  OPTIONS -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=99)
set_tests_properties(package.refused_version PROPERTIES
  PASS_REGULAR_EXPRESSION "compatible with requested[ \n]+version \"99\"")
# Names changed after 0.1, so a program that asks for it must not get this version.
plimsoll_add_consumer(refused_earlier_version ${consumer}/find_package
  OPTIONS -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=0.1)
set_tests_properties(package.refused_earlier_version PROPERTIES
  PASS_REGULAR_EXPRESSION "compatible with requested[ \n]+version \"0.1\"")

# A library that installs us with itself, and a user of that library.
set(parent_prefix ${CMAKE_CURRENT_BINARY_DIR}/parent_prefix)
plimsoll_add_consumer(parent ${consumer}/reexport/parent
  OPTIONS ${source} -DCMAKE_INSTALL_PREFIX=${parent_prefix} TARGET install)
set_tests_properties(package.parent PROPERTIES FIXTURES_SETUP plimsoll_parent)
plimsoll_add_consumer(user_of_parent ${consumer}/reexport/user
  OPTIONS -DCMAKE_PREFIX_PATH=${parent_prefix} RUN ./consumer)
set_tests_properties(package.user_of_parent PROPERTIES FIXTURES_REQUIRED plimsoll_parent)

# --- no build system -----------------------------------------------------------------------------------
set(compile ${PLIMSOLL_BASH} ${consumer}/compile.sh)
plimsoll_add_package_test(include COMMAND ${compile} ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/include)
if(PLIMSOLL_PKG_CONFIG)
  plimsoll_add_package_test(pkg_config COMMAND ${CMAKE_COMMAND} -E env
    PKG_CONFIG=${PLIMSOLL_PKG_CONFIG} PKG_CONFIG_PATH=${prefix}/share/pkgconfig ${compile} ${CMAKE_CXX_COMPILER})
endif()

# --- nvcc ----------------------------------------------------------------------------------------------
if(PLIMSOLL_NVCC)
  set(cuda ${found} -DCMAKE_CUDA_COMPILER=${PLIMSOLL_NVCC} -DCMAKE_CUDA_ARCHITECTURES=90-real)
  plimsoll_add_consumer(cuda ${consumer}/cuda OPTIONS ${cuda} RUN ./consumer)
  plimsoll_add_consumer(mixed ${consumer}/mixed OPTIONS ${cuda} RUN ./consumer)
  plimsoll_add_package_test(include_cuda
    COMMAND ${compile} ${PLIMSOLL_NVCC} -arch=sm_90 -x cu -I${prefix}/include)
endif()

# --- package managers ------------------------------------------------------------------------------------
plimsoll_add_ctest(package.conan LABELS package
  COMMAND ${PLIMSOLL_BASH} ${packaging}/conan.sh ${CMAKE_CXX_COMPILER})
set_tests_properties(package.conan PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
plimsoll_add_ctest(package.vcpkg LABELS package
  COMMAND ${PLIMSOLL_BASH} ${packaging}/vcpkg.sh ${CMAKE_CURRENT_BINARY_DIR}/vcpkg ${CMAKE_CXX_COMPILER})
plimsoll_add_ctest(package.versions LABELS package
  COMMAND ${PLIMSOLL_BASH} ${packaging}/versions.sh ${CMAKE_CXX_COMPILER})

# --- what an install must hold ---------------------------------------------------------------------------
plimsoll_add_package_test(every_header_counts
  COMMAND ${PLIMSOLL_BASH} ${packaging}/every_header_counts.sh ${prefix} ${CMAKE_CXX_COMPILER} ${PLIMSOLL_NVCC})

# A user starts from a copy of an example.
if(PLIMSOLL_BUILD_EXAMPLES)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/copy_of_plan_experts)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/loads.csv "3,1\n")
  plimsoll_add_package_test(copy COMMAND ${PLIMSOLL_BASH} -c
    "rm -rf '${copy}' && cp -r '${PROJECT_SOURCE_DIR}/examples/plan_experts' '${copy}'")
  set_tests_properties(package.copy PROPERTIES FIXTURES_SETUP plimsoll_copy)
  plimsoll_add_consumer(copy_of_plan_experts ${copy} OPTIONS ${found} -DCMAKE_BUILD_TYPE=None
    RUN ./plan_experts ${CMAKE_CURRENT_BINARY_DIR}/loads.csv --ranks 3 --slots 3)
  set_tests_properties(package.copy_of_plan_experts PROPERTIES
    COST 100 FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copy")  # takes longest: starts first
endif()
