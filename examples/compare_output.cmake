# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<program> -DEXPECTED=<file> -P compare_output.cmake
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
file(READ ${EXPECTED} expected)
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "expected:\n${expected}\nprinted:\n${printed}")
endif()
