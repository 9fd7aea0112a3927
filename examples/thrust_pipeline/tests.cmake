# SPDX-License-Identifier: Apache-2.0
# thrust_pipeline prints the same on any number of threads, and so does thrust_pipeline_gpu.
target_compile_options(thrust_pipeline PRIVATE ${plimsoll_test_optimization})
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/thrust_pipeline.expected)
foreach(threads IN ITEMS 1 3)
  add_test(NAME example.thrust_pipeline.${threads}
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:thrust_pipeline>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.thrust_pipeline.${threads} PROPERTIES
    LABELS host TIMEOUT 60 ENVIRONMENT OMP_NUM_THREADS=${threads})
endforeach()
if(TARGET thrust_pipeline_gpu)
  add_dependencies(plimsoll_device_examples thrust_pipeline_gpu)
  add_test(NAME example.thrust_pipeline.gpu
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:thrust_pipeline_gpu>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.thrust_pipeline.gpu PROPERTIES
    LABELS device TIMEOUT 60 SKIP_REGULAR_EXPRESSION "thrust_pipeline_gpu: no GPU: ")
endif()
