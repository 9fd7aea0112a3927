# SPDX-License-Identifier: Apache-2.0
# Checks the output of capacity_mask; capacity_mask_gpu prints the same.
set(program $<TARGET_FILE:capacity_mask_example>)
target_compile_options(capacity_mask_example PRIVATE ${plimsoll_test_optimization})
set(print_as_expected ${CMAKE_COMMAND} -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/capacity_mask.expected)
add_test(NAME example.capacity_mask
         COMMAND ${print_as_expected} -DPROGRAM=${program}
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
set(tests example.capacity_mask)
if(TARGET capacity_mask_gpu)
  add_dependencies(plimsoll_device_examples capacity_mask_gpu)
  add_test(NAME example.capacity_mask.gpu
           COMMAND ${print_as_expected} -DPROGRAM=$<TARGET_FILE:capacity_mask_gpu>
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
  set_tests_properties(example.capacity_mask.gpu PROPERTIES
    LABELS device TIMEOUT 60 SKIP_REGULAR_EXPRESSION "capacity_mask_gpu: no GPU: ")
endif()

# capacity_mask_prints(<name> <regex> <argument>...)
function(capacity_mask_prints name regex)
  add_test(NAME example.capacity_mask.${name} COMMAND ${program} --steps 1 ${ARGN})
  set_tests_properties(example.capacity_mask.${name} PROPERTIES PASS_REGULAR_EXPRESSION "${regex}")
  set(tests ${tests} example.capacity_mask.${name} PARENT_SCOPE)
endfunction()
set(right "outputs are right")
capacity_mask_prints(rank "256 times its experts for every rank.*dropped 12.1 % of the choices; ${right}"
  --level rank)
capacity_mask_prints(loose "dropped 0.0 % of the choices; ${right}" --gamma 3)
capacity_mask_prints(none_fit "dropped 99.6 % of the choices; ${right}" --gamma 0)
capacity_mask_prints(expanded
  "after +1.000 +1.000 .*dropped 27.2 % of the choices, took up 557 others; ${right}" --expanded)
capacity_mask_prints(priority
  "dropped 57.4 % of the choices, 89.4 % of images' and 25.4 % of text's; ${right}"
  --priority --gamma 0.5)
capacity_mask_prints(uneven
  "dropped 10.7 % of the choices, 21.3 % of images' and 0.0 % of text's, took up 33 others; ${right}"
  --level rank --expanded --priority --experts 7 --ranks 3 --top-k 3 --tokens 100 --seed 3)
capacity_mask_prints(one "dropped 0.0 % of the choices; ${right}"
  --tokens 1 --experts 1 --top-k 1 --ranks 1)

# capacity_mask_refuses(<name> <regex> <argument>...)
function(capacity_mask_refuses name regex)
  add_test(NAME example.capacity_mask.refuses.${name}
           COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/apps/plan_experts/tests/refuses.sh
                   "^capacity_mask: ${regex}" ${program} ${ARGN})
  set(tests ${tests} example.capacity_mask.refuses.${name} PARENT_SCOPE)
endfunction()
capacity_mask_refuses(no_tokens "--tokens: Value 0 not in range 1 to 1048576" --tokens 0)
capacity_mask_refuses(words "--gamma: Value much " --gamma much)
capacity_mask_refuses(negative_gamma "--gamma: Value -1 not in range" --gamma -1)
capacity_mask_refuses(nan_gamma "--gamma: not a number" --gamma nan)
capacity_mask_refuses(unknown_level "--level: node not in " --level node)
capacity_mask_refuses(large_top_k "--top-k: more than --experts" --top-k 9)
capacity_mask_refuses(many_ranks "--ranks: more than --experts" --ranks 9)
capacity_mask_refuses(unknown_option ".*--step" --step 1)
set_tests_properties(${tests} PROPERTIES LABELS host TIMEOUT 60)
