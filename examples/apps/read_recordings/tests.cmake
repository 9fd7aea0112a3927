# SPDX-License-Identifier: Apache-2.0
# Copies read_recordings to empty folders and runs it there, on recordings that a script makes as engines do.
set(folder ${CMAKE_CURRENT_LIST_DIR}/tests)
add_test(NAME example.read_recordings
         COMMAND ${CMAKE_COMMAND} -E env PLAN_EXPERTS=$<TARGET_FILE:plan_experts>
                 ${PLIMSOLL_BASH} ${folder}/run.sh ${folder}/read_recordings_test.py)
if(PLIMSOLL_TEST_FUZZ)
  add_test(NAME fuzz.read_recordings COMMAND ${PLIMSOLL_BASH} ${folder}/run.sh ${folder}/fuzz_test.py 4000 1)
  set_tests_properties(fuzz.read_recordings PROPERTIES
    LABELS fuzz TIMEOUT 600 SKIP_REGULAR_EXPRESSION "skipped: no python3")
endif()
set_tests_properties(example.read_recordings PROPERTIES
  LABELS host TIMEOUT 600 COST 30000 SKIP_REGULAR_EXPRESSION "skipped: no python3")
