# SPDX-License-Identifier: Apache-2.0
# script/gpu-check where there is no GPU. It waits for programs that hang: starts first.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  plimsoll_add_ctest(script.gpu_check LABELS script
    COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/gpu_check.sh ${PROJECT_SOURCE_DIR})
  set_tests_properties(script.gpu_check PROPERTIES COST 30000)
endif()
