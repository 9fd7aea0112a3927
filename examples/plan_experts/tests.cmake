# SPDX-License-Identifier: Apache-2.0
# Tests of the programs plan_experts and make_loads, as a user runs them.
set(folder ${CMAKE_CURRENT_LIST_DIR}/tests)
set(inputs ${CMAKE_CURRENT_BINARY_DIR}/plan_experts_inputs)

foreach(helper IN ITEMS make_inputs check_plan check_loads)
  add_executable(${helper} ${folder}/${helper}.cpp)
  target_link_libraries(${helper} PRIVATE plimsoll_dev nlohmann_json::nlohmann_json)
endforeach()

add_test(NAME plan_experts.inputs COMMAND make_inputs ${inputs})
set_tests_properties(plan_experts.inputs PROPERTIES
  FIXTURES_SETUP plan_experts_inputs LABELS host TIMEOUT 60)

# plimsoll_accepts(<test> <case of accepts.sh> [<label>])
function(plimsoll_accepts test case)
  add_test(NAME ${test}
           COMMAND ${PLIMSOLL_BASH} ${folder}/accepts.sh ${case} $<TARGET_FILE_DIR:plan_experts>
                   ${inputs} ${folder})
  set(label host)
  if(ARGC GREATER 2)
    set(label ${ARGV2})
  endif()
  set_tests_properties(${test} PROPERTIES
    FIXTURES_REQUIRED plan_experts_inputs LABELS ${label} TIMEOUT 120
    SKIP_REGULAR_EXPRESSION "skipped: ")
endfunction()

# plimsoll_refuses(<test> <regex of the message> <program> <argument>...)
function(plimsoll_refuses test regex program)
  add_test(NAME ${test}
           COMMAND ${PLIMSOLL_BASH} ${folder}/refuses.sh ${regex} $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(${test} PROPERTIES
    FIXTURES_REQUIRED plan_experts_inputs LABELS host TIMEOUT 60)
endfunction()

foreach(case IN ITEMS table same_plan_from_any_file no_load uneven_slots no_output output_replaces
                      refusal_keeps_the_old_file help)
  plimsoll_accepts(plan_experts.${case} ${case})
endforeach()
plimsoll_accepts(make_loads make_loads)
plimsoll_accepts(make_loads.extremes make_loads_extremes)
plimsoll_accepts(make_loads.full_disk make_loads_full_disk)
plimsoll_accepts(trace.glm trace trace)
if(OpenMP_CXX_FOUND)
  plimsoll_accepts(plan_experts.omp omp)
else()
  plimsoll_refuses(plan_experts.omp "--policy: expected a build with OpenMP for omp, got one"
    plan_experts ${inputs}/loads.npy --ranks 2 --slots 8 --policy omp --output plan.json)
endif()
if(plimsoll_with_cuda)
  plimsoll_accepts(plan_experts.gpu gpu device)
else()
  plimsoll_refuses(plan_experts.gpu "--policy: expected a build with CUDA for gpu, got one without"
    plan_experts ${inputs}/loads.npy --ranks 2 --slots 8 --policy gpu --output plan.json)
endif()

# The file of loads: every test also asks for an output, which must not appear.
function(plimsoll_refuses_loads name regex)
  plimsoll_refuses(plan_experts.refuses.${name} "^plan_experts: ${regex}"
    plan_experts ${inputs}/${name}.npy --ranks 2 --slots 4 --output plan.json)
endfunction()
set(file "LOADS: [^ ]*\\.npy: expected")
plimsoll_refuses_loads(missing "${file} a readable file, got No such file")
plimsoll_refuses_loads(empty "${file} a \\.npy file, got an empty file")
plimsoll_refuses_loads(text "${file} a \\.npy file, which starts with .*, got a file that does not")
plimsoll_refuses_loads(truncated
  "${file} 12 values of 8 bytes .*, got 93 bytes \\(truncated file\\)")
plimsoll_refuses_loads(truncated_header
  "${file} a header of 118 bytes, got 30 \\(truncated file\\)")
plimsoll_refuses_loads(trailing "${file} 12 values .*, got 97 bytes \\(trailing bytes\\)")
plimsoll_refuses_loads(corrupt
  "${file} the header keys descr, fortran_order and shape, got 'shap!'")
plimsoll_refuses_loads(no_experts "${file} no empty dimension, got shape \\(2, 0\\)")
plimsoll_refuses_loads(complex "${file} a dtype of .*, got '<c8'")
plimsoll_refuses_loads(huge "${file} 999899999990001 values of 8 bytes .*, got 96 bytes")
plimsoll_refuses_loads(rank1
  "${file} shape \\(layers, experts\\) or \\(steps, layers, experts\\), got \\(4,\\)")
plimsoll_refuses_loads(rank4 "${file} shape .*, got \\(1, 1, 2, 2\\)")
set(range "eplb: loads: expected values from 0 to below 2\\^47, got")
plimsoll_refuses_loads(negative "${range} -4 in layer 1, expert 1")
plimsoll_refuses_loads(nan "${range} NaN in layer 1, expert 0")
plimsoll_refuses_loads(infinite "${range} inf in layer 0, expert 1")
plimsoll_refuses_loads(above_range_float "${range} 1.* in layer 0, expert 1")
plimsoll_refuses_loads(above_range
  "eplb: loads: expected a total below 2\\^47 per layer, got 140737488355328 in layer 0")
# In the sum of the steps these would pass or overflow.
set(range "LOADS: expected loads from 0 to below 2\\^47, got")
plimsoll_refuses_loads(negative_step "${range} -4 in step 1, layer 0, expert 1")
plimsoll_refuses_loads(nan_step "${range} NaN in step 1, layer 0, expert 0")
plimsoll_refuses_loads(overflow "${range} 9223372036854775807 in step 0, layer 0, expert 0")
plimsoll_refuses_loads(total_of_steps
  "LOADS: expected a total below 2\\^47 per layer, got 140737488355328 in step 1, layer 1")

# The options: <name> <regex> <argument>...
function(plimsoll_refuses_options name regex)
  plimsoll_refuses(plan_experts.refuses.${name} "^plan_experts: ${regex}"
    plan_experts ${inputs}/loads.npy ${ARGN})
endfunction()
set(out --output plan.json)
plimsoll_refuses_options(no_ranks "--ranks: expected a value, got none" --slots 8 ${out})
plimsoll_refuses_options(no_slots "--slots: expected a value, got none" --ranks 4 ${out})
plimsoll_refuses_options(zero_ranks "--ranks: expected .* from 1 to 32767, got '0'"
  --ranks 0 --slots 8 ${out})
plimsoll_refuses_options(negative_ranks
  "--ranks: expected .*, got '-4'" --ranks -4 --slots 8 ${out})
plimsoll_refuses_options(many_ranks "--ranks: expected .*, got '32768'"
  --ranks 32768 --slots 32768 ${out})
plimsoll_refuses_options(ranks_not_a_number
  "--ranks: expected .*, got '4x'" --ranks 4x --slots 8 ${out})
plimsoll_refuses_options(zero_slots "--slots: expected .*, got '0'" --ranks 4 --slots 0 ${out})
plimsoll_refuses_options(slots_overflow "--slots: expected .*, got '99999999999999999999'"
  --ranks 4 --slots 99999999999999999999 ${out})
plimsoll_refuses_options(few_slots "--slots: expected at least one for each of the 6 experts, got 4"
  --ranks 4 --slots 4 ${out})
plimsoll_refuses_options(fewer_slots_than_ranks
  "--slots: expected at least one for each of the 9 ranks, got 8" --ranks 9 --slots 8 ${out})
plimsoll_refuses_options(many_slots "--slots: expected at most 32772 for 6 experts, got 40000"
  --ranks 4 --slots 40000 ${out})
plimsoll_refuses_options(unknown_planner "--planner: expected eplb, got 'magic'"
  --ranks 4 --slots 8 --planner magic ${out})
plimsoll_refuses_options(unknown_policy "--policy: expected seq, omp or gpu, got 'tpu'"
  --ranks 4 --slots 8 --policy tpu ${out})
plimsoll_refuses_options(unknown_option "The following argument.* --colour"
  --ranks 4 --slots 8 --colour ${out})
plimsoll_refuses_options(output_in_no_folder
  "--output: expected .*, got 'no/plan.json': No such file"
  --ranks 4 --slots 8 --output no/plan.json)
plimsoll_refuses_options(output_is_a_folder "--output: expected .*, got '\\.': Is a directory"
  --ranks 4 --slots 8 --output .)
plimsoll_refuses_options(output_is_a_device
  "--output: expected .*, got '/dev/null': not a regular file"
  --ranks 4 --slots 8 --output /dev/null)
plimsoll_refuses(plan_experts.refuses.no_loads "^plan_experts: LOADS: expected a value, got none"
  plan_experts --ranks 4 --slots 8 ${out})

# make_loads: <name> <regex> <argument>...; complete but for what the arguments add.
function(plimsoll_refuses_to_make name regex)
  plimsoll_refuses(make_loads.refuses.${name} "^make_loads: ${regex}"
    make_loads --layers 2 --experts 8 ${ARGN} --output loads.npy)
endfunction()
plimsoll_refuses_to_make(no_steps "--steps: expected a value, got none")
plimsoll_refuses_to_make(zero_steps "--steps: expected .*, got '0'" --steps 0)
plimsoll_refuses_to_make(negative_tokens "--tokens: expected .*, got '-1'" --steps 1 --tokens -1)
plimsoll_refuses_to_make(large_top_k "--top-k: expected at most --experts \\(8\\), got 9"
  --steps 1 --top-k 9)
plimsoll_refuses_to_make(nan_skew "--skew: expected a number from 0 to 16, got 'nan'"
  --steps 1 --skew nan)
plimsoll_refuses_to_make(negative_drift "--drift: expected .*, got '-0.1'" --steps 1 --drift -0.1)
plimsoll_refuses(make_loads.refuses.many_tokens "^make_loads: --tokens: expected .* below 2\\^40"
  make_loads --steps 1 --layers 1 --experts 600 --tokens 2147483647 --top-k 600 --output loads.npy)
plimsoll_refuses(make_loads.refuses.output_in_no_folder
  "^make_loads: --output: expected .*, got 'no/loads.npy': No such file"
  make_loads --steps 1 --layers 1 --experts 8 --output no/loads.npy)
