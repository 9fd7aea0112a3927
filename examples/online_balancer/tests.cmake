# SPDX-License-Identifier: Apache-2.0
# online_balancer, several processes and the replayed graph print the same, and the metrics are in Prometheus' format.
target_compile_options(online_balancer PRIVATE ${plimsoll_test_optimization})
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/online_balancer.expected)
add_test(NAME example.online_balancer
         COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:online_balancer>
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
add_test(NAME example.online_balancer.metrics
         COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/online_balancer/check_metrics.sh
                 $<TARGET_FILE:online_balancer> ${CMAKE_CURRENT_BINARY_DIR}/online_balancer.prom)
set_tests_properties(example.online_balancer example.online_balancer.metrics PROPERTIES LABELS host TIMEOUT 60)
if(TARGET online_balancer_mpi)
  add_executable(online_balancer_exchange ${CMAKE_CURRENT_SOURCE_DIR}/online_balancer/check_exchange.cpp)
  target_link_libraries(online_balancer_exchange PRIVATE plimsoll_dev MPI::MPI_CXX)
  foreach(target IN ITEMS online_balancer_mpi online_balancer_exchange)
    target_compile_options(${target} PRIVATE ${plimsoll_test_optimization})
  endforeach()
  set(program $<TARGET_FILE:online_balancer_mpi>)
  add_test(NAME example.online_balancer.mpi
           COMMAND ${print_as_expected}
                   "-DPROGRAM=${MPIEXEC_EXECUTABLE};${MPIEXEC_NUMPROC_FLAG};4;${program}"
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  add_test(NAME example.online_balancer.mpi.2
           COMMAND ${print_as_expected}
                   "-DPROGRAM=${MPIEXEC_EXECUTABLE};${MPIEXEC_NUMPROC_FLAG};2;${program}"
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  add_test(NAME example.online_balancer.mpi.3
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 ${program})
  set_tests_properties(example.online_balancer.mpi.3 PROPERTIES
    PASS_REGULAR_EXPRESSION "online_balancer_mpi: expected processes that divide 8 ranks, got 3\n")
  add_test(NAME example.online_balancer.exchange
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 4 $<TARGET_FILE:online_balancer_exchange>)
  # Processes exchange something 15 times a step. Those that wait must leave the core to the others.
  set_tests_properties(
    example.online_balancer.mpi example.online_balancer.mpi.2 example.online_balancer.mpi.3
    example.online_balancer.exchange PROPERTIES
    ENVIRONMENT "${plimsoll_mpi_environment};OMPI_MCA_mpi_yield_when_idle=1" LABELS host TIMEOUT 120)
endif()
if(TARGET online_balancer_gpu)
  add_dependencies(plimsoll_device_examples online_balancer_gpu)
  add_test(NAME example.online_balancer.gpu
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:online_balancer_gpu>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.online_balancer.gpu PROPERTIES
    LABELS device TIMEOUT 900 SKIP_REGULAR_EXPRESSION "online_balancer_gpu: no GPU: ")
endif()
