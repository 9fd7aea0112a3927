# SPDX-License-Identifier: Apache-2.0
# Compares the output of split_step for any number of processes. split_step_nccl needs a GPU for
# every process and is only compiled here.
if(TARGET split_step_nccl)
  set_target_properties(split_step_nccl PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  add_dependencies(plimsoll_device_examples split_step_nccl)
endif()
# Compiling takes longer than running.
foreach(target IN ITEMS split_step split_step_parts)
  target_compile_options(${target} PRIVATE ${plimsoll_test_optimization})
endforeach()

set(program $<TARGET_FILE:split_step>)
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/split_step.expected)
add_test(NAME example.split_step.4
         COMMAND ${print_as_expected}
                 "-DPROGRAM=${MPIEXEC_EXECUTABLE};${MPIEXEC_NUMPROC_FLAG};4;${program}"
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
add_test(NAME example.split_step.3
         COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 ${program}
                 --experts 7 --replicas 2 --tokens 100 --top-k 2 --seed 3)
add_test(NAME example.split_step.1 COMMAND split_step --steps 2 --replicas 0)
set(tests example.split_step.4 example.split_step.3 example.split_step.1)

# split_step_refuses(<name> <regex> <argument>...)
function(split_step_refuses name regex)
  add_test(NAME example.split_step.refuses.${name}
           COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/apps/plan_experts/tests/refuses.sh
                   "^split_step: ${regex}" ${program} ${ARGN})
  set(tests ${tests} example.split_step.refuses.${name} PARENT_SCOPE)
endfunction()
split_step_refuses(no_steps "--steps: Value 0 not in range 1 to 1000000" --steps 0)
split_step_refuses(words "--tokens: Value many " --tokens many)
split_step_refuses(large_top_k "--top-k: more than --experts" --experts 4 --top-k 5)
split_step_refuses(many_ids "--tokens: gives 2.31 ids or more with --top-k and the ranks"
  --experts 512 --tokens 16777216 --top-k 512)
split_step_refuses(unknown_option ".*--step" --step 1)
set_tests_properties(${tests} PROPERTIES ENVIRONMENT "${plimsoll_mpi_environment}" LABELS host TIMEOUT 60)
