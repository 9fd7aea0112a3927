# SPDX-License-Identifier: Apache-2.0
# one_step and the replayed graph print the same.
target_compile_options(one_step PRIVATE ${plimsoll_test_optimization})
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/one_step.expected)
add_test(NAME example.one_step
         COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:one_step>
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
set_tests_properties(example.one_step PROPERTIES LABELS host TIMEOUT 60)
if(TARGET one_step_gpu)
  add_dependencies(plimsoll_device_examples one_step_gpu)
  add_test(NAME example.one_step.gpu
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:one_step_gpu>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.one_step.gpu PROPERTIES
    LABELS device TIMEOUT 60 SKIP_REGULAR_EXPRESSION "one_step_gpu: no GPU: ")
endif()
