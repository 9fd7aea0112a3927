# SPDX-License-Identifier: Apache-2.0
# Compares the output of spill_step; other numbers of processes and options must exit with code 0.
set(program $<TARGET_FILE:spill_step>)
target_compile_options(spill_step PRIVATE ${plimsoll_test_optimization})
add_test(NAME example.spill_step.4
         COMMAND ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/spill_step.expected
                 "-DPROGRAM=${MPIEXEC_EXECUTABLE};${MPIEXEC_NUMPROC_FLAG};4;${program}"
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
set(tests example.spill_step.4)

# spill_step_runs(<name> <processes> <argument>...)
function(spill_step_runs name processes)
  add_test(NAME example.spill_step.${name}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${processes} ${program} ${ARGN})
  set(tests ${tests} example.spill_step.${name} PARENT_SCOPE)
endfunction()
spill_step_runs(7 7 --experts 5 --top-k 3 --tokens 50 --seed 1) # more ranks than experts
spill_step_runs(limits 6 --nodes 3 --max-imports 1 --max-exports 2 --alpha 1.1 --min-chunk 60)
spill_step_runs(reals 3 --numbers reals --experts 7 --tokens 100 --top-k 1 --hidden 5 --times)
spill_step_runs(no_tokens 2 --tokens 0 --lambda 0)
spill_step_runs(1 1 --steps 2 --lambda 0)

# spill_step_refuses(<name> <regex> <argument>...)
function(spill_step_refuses name regex)
  add_test(NAME example.spill_step.refuses.${name}
           COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/apps/plan_experts/tests/refuses.sh
                   "^spill_step: ${regex}" ${program} ${ARGN})
  set(tests ${tests} example.spill_step.refuses.${name} PARENT_SCOPE)
endfunction()
spill_step_refuses(no_steps "--steps: Value 0 not in range 1 to 1000000" --steps 0)
spill_step_refuses(words "--tokens: Value many " --tokens many)
spill_step_refuses(no_capacity "--alpha: Value 0 not in range" --alpha 0)
spill_step_refuses(nan_lambda "--lambda: not a number" --lambda nan)
spill_step_refuses(unknown_numbers "--numbers: floats not in " --numbers floats)
spill_step_refuses(large_top_k "--top-k: more than --experts" --experts 4 --top-k 5)
spill_step_refuses(many_nodes "--nodes: more than ranks" --nodes 2)
spill_step_refuses(many_ids "--tokens: gives 2.31 ids or more with --top-k and the ranks"
  --experts 512 --tokens 16777216 --top-k 512)
spill_step_refuses(large_sums "--numbers: sums of integers may pass 2.24" --tokens 600000)
spill_step_refuses(unknown_option ".*--step" --step 1)
set_tests_properties(${tests} PROPERTIES ENVIRONMENT "${plimsoll_mpi_environment}" LABELS host TIMEOUT 60)
