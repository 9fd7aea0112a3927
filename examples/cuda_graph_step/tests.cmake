# SPDX-License-Identifier: Apache-2.0
# cuda_graph_step and the replayed graph print the same.
target_compile_options(cuda_graph_step PRIVATE ${plimsoll_test_optimization})
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/cuda_graph_step.expected)
add_test(NAME example.cuda_graph_step
         COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:cuda_graph_step>
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
set_tests_properties(example.cuda_graph_step PROPERTIES LABELS host TIMEOUT 60)
if(TARGET cuda_graph_step_gpu)
  add_dependencies(plimsoll_device_examples cuda_graph_step_gpu)
  add_test(NAME example.cuda_graph_step.gpu
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:cuda_graph_step_gpu>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.cuda_graph_step.gpu PROPERTIES
    LABELS device TIMEOUT 60 SKIP_REGULAR_EXPRESSION "cuda_graph_step_gpu: no GPU: ")
endif()
