# SPDX-License-Identifier: Apache-2.0
# online_balancer and the replayed graph print the same, and the metrics are in Prometheus' format.
target_compile_options(online_balancer PRIVATE ${plimsoll_test_optimization})
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/online_balancer.expected)
add_test(NAME example.online_balancer
         COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:online_balancer>
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
add_test(NAME example.online_balancer.metrics
         COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/online_balancer/check_metrics.sh
                 $<TARGET_FILE:online_balancer> ${CMAKE_CURRENT_BINARY_DIR}/online_balancer.prom)
set_tests_properties(example.online_balancer example.online_balancer.metrics PROPERTIES LABELS host TIMEOUT 60)
if(TARGET online_balancer_gpu)
  add_dependencies(plimsoll_device_examples online_balancer_gpu)
  add_test(NAME example.online_balancer.gpu
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:online_balancer_gpu>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.online_balancer.gpu PROPERTIES
    LABELS device TIMEOUT 900 SKIP_REGULAR_EXPRESSION "online_balancer_gpu: no GPU: ")
endif()
