# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<program> -DEXPECTED=<file> -P compare_output.cmake
# Writes the file instead where PLIMSOLL_UPDATE_EXPECTED is set, as the build target update_expected does.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
if(DEFINED ENV{PLIMSOLL_UPDATE_EXPECTED})
  file(WRITE ${EXPECTED} "${printed}")
endif()
file(READ ${EXPECTED} expected)
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "expected:\n${expected}\nprinted:\n${printed}")
endif()
