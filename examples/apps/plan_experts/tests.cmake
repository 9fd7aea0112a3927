# SPDX-License-Identifier: Apache-2.0
# Tests of the programs plan_experts and make_loads, as a user runs them.
set(folder ${CMAKE_CURRENT_LIST_DIR}/tests)
set(inputs ${CMAKE_CURRENT_BINARY_DIR}/plan_experts_inputs)

find_package(pugixml REQUIRED)

# Parts of the program: tests/<part>.test.cpp is the ctest plan_experts.part.<part>.
file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.test.cpp)
add_executable(plan_experts_tests ${sources})
target_link_libraries(plan_experts_tests PRIVATE plan_experts_parts plimsoll_test_main pugixml::pugixml)
target_compile_options(plan_experts_tests PRIVATE ${plimsoll_test_optimization})
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  string(REPLACE ".test" "" name ${name})
  add_test(NAME plan_experts.part.${name} COMMAND plan_experts_tests --source-file=*/${name}.test.cpp)
  set_tests_properties(plan_experts.part.${name} PROPERTIES LABELS host TIMEOUT 120)
endforeach()

# The program as a whole.
foreach(helper IN ITEMS make_inputs check_plan check_loads check_report check_transfers)
  add_executable(${helper} ${folder}/${helper}.cpp)
  target_link_libraries(${helper} PRIVATE plimsoll_example pugixml::pugixml)
  target_compile_options(${helper} PRIVATE ${plimsoll_test_optimization})
endforeach()
add_executable(draw_layer ${folder}/draw_layer.cpp)
target_link_libraries(draw_layer PRIVATE plan_experts_parts)
target_compile_options(draw_layer PRIVATE ${plimsoll_test_optimization})

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

foreach(case IN ITEMS table same_plan_from_any_file formats plan_in_use evaluate layers
                      nodes_and_refinement report report_in_browser readme progress no_load uneven_slots layers_without_load
                      auto auto_table verdict craft craft_table craft_plan_in_use craft_formats
                      gem gem_table gem_formats
                      previous previous_table previous_budget previous_given previous_uneven
                      slot_loads other_ranks traffic engine_default
                      no_output output_replaces full_output
                      ring copies_beyond_ranks signals empty_names output_through_links
                      layer_ids_with_steps key
                      all_or_nothing refusal_keeps_the_old_file help)
  plimsoll_accepts(plan_experts.${case} ${case})
endforeach()
# Sanitizers need additional memory, and minutes to plan a whole model twice.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  plimsoll_accepts(plan_experts.guide guide)
  plimsoll_accepts(plan_experts.memory memory)
  plimsoll_accepts(plan_experts.out_of_memory out_of_memory)
endif()
# The test in a browser takes the longest; ctest starts tests with a higher cost first.
set_tests_properties(plan_experts.report_in_browser PROPERTIES COST 30000)
plimsoll_accepts(make_loads make_loads)
plimsoll_accepts(make_loads.extremes make_loads_extremes)
plimsoll_accepts(make_loads.workloads make_loads_workloads)
plimsoll_accepts(make_loads.like make_loads_like)
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
  plimsoll_accepts(plan_experts.gem.gpu gem_gpu device)
  set_tests_properties(plan_experts.gem.gpu PROPERTIES TIMEOUT 900)  # by emulation
else()
  plimsoll_refuses(plan_experts.gpu "--policy: expected a build with CUDA for gpu, got one without"
    plan_experts ${inputs}/loads.npy --ranks 2 --slots 8 --policy gpu --output plan.json)
endif()

# Refused files of loads. Every test also requests an output, which must not appear.
# plimsoll_refuses_loads(<file> <regex>)
function(plimsoll_refuses_loads file regex)
  string(REGEX REPLACE "\\.npy$" "" name ${file})
  plimsoll_refuses(plan_experts.refuses.${name} "^plan_experts: LOADS: [^ ]*: expected ${regex}"
    plan_experts ${inputs}/${file} --ranks 2 --slots 6 --output plan.json)
endfunction()
plimsoll_refuses_loads(missing.npy "a readable file, got No such file")
plimsoll_refuses_loads(folder.npy "a readable file, got Is a directory")
plimsoll_refuses_loads(empty.npy "a \\.npy file, got an empty file")
plimsoll_refuses_loads(empty.json "[^,]*, got an empty file")
plimsoll_refuses_loads(empty.csv "[^,]*, got an empty file")
plimsoll_refuses_loads(text.npy "a \\.npy file, which starts with .*, got a file that does not")
plimsoll_refuses_loads(array.json ".*JSON.*, got ")
plimsoll_refuses_loads(loads.txt ".*\\.npy.*\\.json.*\\.csv.*, got ")
plimsoll_refuses_loads(loads.pt ".*, got .*read_recordings\\.py")
plimsoll_refuses_loads(no_key.json ".*logical_count.*, got .*counts")
plimsoll_refuses_loads(plan.json ".*logical_count.*, got .*--plan")
plimsoll_refuses_loads(transposed.npy "shape \\(layers, experts\\), got \\(6, 4\\).* transposed")
plimsoll_refuses_loads(truncated.npy "12 values of 8 bytes .*, got 93 bytes \\(truncated file\\)")
plimsoll_refuses_loads(truncated_header.npy "a header of 118 bytes, got 30 \\(truncated file\\)")
plimsoll_refuses_loads(trailing.npy "12 values .*, got 97 bytes \\(trailing bytes\\)")
plimsoll_refuses_loads(corrupt.npy
  "the header keys descr, fortran_order and shape, got 'shap!'")
plimsoll_refuses_loads(no_experts.npy "no empty dimension, got shape \\(2, 0\\)")
plimsoll_refuses_loads(complex.npy "a dtype of .*, got '<c8'")
plimsoll_refuses_loads(huge.npy "999899999990001 values of 8 bytes .*, got 96 bytes")
plimsoll_refuses_loads(rank1.npy
  "shape \\(layers, experts\\) or \\(steps, layers, experts\\), got \\(4,\\)")
plimsoll_refuses_loads(rank4.npy "shape .*, got \\(1, 1, 2, 2\\)")
set(range "loads from 0 to below 2\\^47, got")
plimsoll_refuses_loads(negative.npy "${range} -4 in layer 1, expert 1")
plimsoll_refuses_loads(nan.npy "${range} NaN in layer 1, expert 0")
plimsoll_refuses_loads(infinite.npy "${range} inf in layer 0, expert 1")
plimsoll_refuses_loads(above_range_float.npy "${range} 1.* in layer 0, expert 1")
plimsoll_refuses_loads(above_range.npy
  "a total below 2\\^47 per layer, got at least 140737488355328 in layer 0")
# Faults that the sum of the steps would hide, or in which it would overflow.
plimsoll_refuses_loads(negative_step.npy "${range} -4 in step 1, layer 0, expert 1")
plimsoll_refuses_loads(nan_step.npy "${range} NaN in step 1, layer 0, expert 0")
plimsoll_refuses_loads(overflow.npy "${range} 9223372036854775807 in step 0, layer 0, expert 0")
plimsoll_refuses_loads(total_of_steps.npy
  "a total below 2\\^47 per layer over all steps, got at least 140737488355328 in layer 1")

# The options: <name> <regex> <argument>...
function(plimsoll_refuses_options name regex)
  plimsoll_refuses(plan_experts.refuses.${name} "^plan_experts: ${regex}"
    plan_experts ${inputs}/loads.npy ${ARGN})
endfunction()
set(good --ranks 4 --slots 8)
set(out --output plan.json)
plimsoll_refuses(plan_experts.refuses.no_loads "^plan_experts: LOADS: expected a value, got none"
  plan_experts ${good} ${out})
plimsoll_refuses_options(no_ranks "--ranks: expected a value, got none" --slots 8 ${out})
plimsoll_refuses_options(no_slots
  "--slots: expected a value, or one of --replicas-per-rank, got none" --ranks 4 ${out})
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
plimsoll_refuses_options(slots_and_replicas
  "--slots: expected 14, the 6 experts and --replicas-per-rank 2 on 4 ranks, got 8"
  ${good} --replicas-per-rank 2 ${out})
plimsoll_refuses_options(many_nodes "--nodes: expected at most one for each of the 4 ranks, got 5"
  ${good} --nodes 5 ${out})
plimsoll_refuses_options(groups "--groups: expected a divisor of the 6 experts, got 4"
  ${good} --groups 4 ${out})
plimsoll_refuses_options(groups_and_nodes "--groups: expected a multiple of the 4 nodes, got 2"
  ${good} --nodes 4 --groups 2 ${out})
plimsoll_refuses_options(apart_on_one_node "--apart: expected --nodes above 1 for node, got 1"
  ${good} --apart node ${out})
plimsoll_refuses_options(apart_in_groups
  "--apart: expected none or rank where --groups keep to nodes, got 'node'"
  ${good} --apart node --nodes 2 --groups 2 ${out})
plimsoll_refuses_options(unknown_planner
  "--planner: expected eplb, auto, flow, craft, gem or none, got 'elpb'. did you mean eplb\\?"
  ${good} --planner elpb ${out})
plimsoll_refuses_options(planner_like_craft
  "--planner: .*, got 'carft'. did you mean craft\\?" --planner carft --ranks 4 ${out})
set(craft --planner craft --ranks 4)
plimsoll_refuses_options(craft_without_ranks "--ranks: expected a value, got none" --planner craft ${out})
plimsoll_refuses_options(slots_of_craft
  "--slots: expected no value with --planner craft, .* --budget-bytes limit them, got 8"
  ${craft} --slots 8 ${out})
plimsoll_refuses_options(automatic_without_craft
  "--replicas-per-rank: expected a whole number, since only --planner craft chooses one, got 'auto'"
  --ranks 4 --replicas-per-rank auto ${out})
plimsoll_refuses_options(automatic_without_planner
  "--replicas-per-rank: expected no value with --planner none, .*, got 'auto'"
  --planner none --plan ${inputs}/plan.json --ranks 4 --replicas-per-rank auto ${out})
plimsoll_refuses_options(replicas_not_a_number
  "--replicas-per-rank: expected auto or a whole number from 0 to 65535, got 'atuo'"
  ${craft} --replicas-per-rank atuo ${out})
plimsoll_refuses_options(negative_replicas
  "--replicas-per-rank: expected auto or .*, got '-1'" ${craft} --replicas-per-rank -1 ${out})
plimsoll_refuses_options(replicas_twice
  "--replicas-per-rank: expected one value, got none or several"
  ${craft} --replicas-per-rank 1 --replicas-per-rank auto ${out})
plimsoll_refuses_options(many_replicas
  "--replicas-per-rank: expected at most 2 with --planner craft, one for each layer to plan, got 3"
  ${craft} --replicas-per-rank 3 ${out})
plimsoll_refuses_options(bytes_without_craft
  "--budget-bytes: expected --planner craft with it, got eplb"
  ${good} --expert-bytes 1 --budget-bytes 1GB ${out})
plimsoll_refuses_options(bytes_without_planner
  "--budget-bytes: expected no value with --planner none, "
  --planner none --plan ${inputs}/plan.json --ranks 4 --budget-bytes 1GB ${out})
plimsoll_refuses_options(bytes_of_unknown_experts
  "--expert-bytes: expected a value, since --budget-bytes .*, got none"
  ${craft} --budget-bytes 1GB ${out})
plimsoll_refuses_options(bytes_and_replicas
  "--budget-bytes: expected no value with --replicas-per-rank, got 1000"
  ${craft} --expert-bytes 10 --budget-bytes 1kB --replicas-per-rank auto ${out})
plimsoll_refuses_options(bytes_below_an_expert
  "--budget-bytes: expected at least the 44000000 bytes of one expert, got 43000000"
  ${craft} --expert-bytes 44MB --budget-bytes 43MB ${out})
plimsoll_refuses_options(no_bytes "--budget-bytes: expected .*, got '0'"
  ${craft} --expert-bytes 44MB --budget-bytes 0 ${out})
plimsoll_refuses_options(negative_bytes "--budget-bytes: expected .*, got '-5'"
  ${craft} --expert-bytes 44MB --budget-bytes -5 ${out})
plimsoll_refuses_options(split_like_optimal
  "--split: expected even or optimal, got 'optmal'. did you mean optimal\\?" ${good} --split optmal ${out})
plimsoll_refuses_options(split_of_gem
  "--split: expected no value with --planner gem, .*, got 'even'"
  --planner gem --ranks 4 --latency ${inputs}/curves.json --split even ${out})
plimsoll_refuses_options(auto_refined
  "--refine: expected no value with --planner auto, got 'joint'" --planner auto ${good} --refine joint ${out})
plimsoll_refuses_options(flow_with_groups
  "--groups: expected no value with --planner flow, got '2'" --planner flow ${good} --groups 2 ${out})
plimsoll_refuses_options(auto_without_slots
  "--slots: expected a value, or one of --replicas-per-rank, got none" --planner auto --ranks 4 ${out})
plimsoll_refuses_options(planner_like_gem
  "--planner: .*, got 'gen'. did you mean gem\\?" --planner gen --ranks 4 ${out})
set(latency --latency ${inputs}/curves.json)
plimsoll_refuses_options(latency_without_gem
  "--latency: expected --planner gem with it, got eplb" ${good} ${latency} ${out})
plimsoll_refuses_options(latency_without_planner
  "--latency: expected no value with --planner none, .*, got '[^ ]*curves.json'"
  --planner none --plan ${inputs}/plan.json --ranks 4 ${latency} ${out})
plimsoll_refuses_options(trace_length_without_gem
  "--trace-length: expected --planner gem with it, got craft" --planner craft --ranks 4 --trace-length 2 ${out})
plimsoll_refuses_options(restarts_without_gem
  "--restarts: expected --planner gem with it, got eplb" ${good} --restarts 2 ${out})
plimsoll_refuses_options(gem_without_latency
  "--latency: expected a file with latency curves, since --planner is gem, got no value"
  --planner gem --ranks 4 ${out})
plimsoll_refuses_options(gem_without_ranks "--ranks: expected a value, got none"
  --planner gem ${latency} ${out})
plimsoll_refuses_options(gem_refined
  "--refine: expected no value with --planner gem, which considers only latency, got 'joint'"
  --planner gem --ranks 4 ${latency} --refine joint ${out})
plimsoll_refuses_options(gem_without_steps
  "LOADS: expected several steps, \\[steps, layers, experts\\], with --planner gem, got one in [^ ]*loads.npy"
  --planner gem --ranks 4 ${latency} ${out})
plimsoll_refuses_options(output_over_curves "--output: expected another file than --latency, got "
  --planner gem --ranks 4 --latency plan.json ${out})
plimsoll_refuses_options(standard_input_for_curves
  "--latency: expected a file, since --evaluate takes the standard input, got '-'"
  --planner gem --ranks 4 --evaluate - --latency - ${out})

# Loads of slots, and other ranks than those of the plan in use.
plimsoll_refuses_loads(slots.npy "shape .steps, layers, experts., got .2, 4, 2., .*, which --slot-loads reads .*")
plimsoll_refuses_options(loads_of_experts_as_slots
  "LOADS: [^ ]*loads\\.npy: expected loads of the 8 slots .*, on 4 ranks, got .1, 2, 6. as .steps, layers, slots."
  --slot-loads --plan ${inputs}/plan.json --ranks 4 ${out})
plimsoll_refuses(plan_experts.refuses.slots_as_experts
  "--plan: [^ ]*plan\\.json: expected a slot for each of the 8 experts, got none for expert 6 in layer 0. .* add --slot-loads"
  plan_experts ${inputs}/slot_steps.npy --plan ${inputs}/plan.json --ranks 4 ${out})
plimsoll_refuses_options(sources_of_other_ranks
  "--sources: [^ ]*sources\\.npy: expected the shape .3, 2, 6. of .ranks, layers, experts., got .4, 2, 6."
  --ranks 3 --slots 6 --sources ${inputs}/sources.npy ${out})
plimsoll_refuses_options(negative_sources
  "--sources: [^ ]*negative_sources\\.npy: expected loads from 0 .*, got -1 in step 0, layer 1, expert 0"
  --ranks 2 --slots 6 --sources ${inputs}/negative_sources.npy ${out})
set(previous --previous ${inputs}/plan.json)
plimsoll_refuses_options(unknown_lost_rank
  "--lost-ranks: expected some of the 4 ranks of --previous, got 4" ${previous} --ranks 3 --lost-ranks 4 --slots 6 ${out})
plimsoll_refuses_options(too_few_ranks
  "--ranks: expected at least the 3 ranks of --previous that are not lost, got 2"
  --previous ${inputs}/dead_plan.json --ranks 2 --lost-ranks 0 ${out})
plimsoll_refuses_options(all_ranks_lost
  "--lost-ranks: expected a rank of --previous that is not lost, got none"
  --previous ${inputs}/dead_plan.json --lost-ranks 0,1,2,3 ${out})
plimsoll_refuses_options(uneven_ranks_grow
  "--previous: expected as many slots on every rank, 2, of a plan that gets other ranks, got 4 on rank 2"
  --previous ${inputs}/dead_plan.json --ranks 5 ${out})
plimsoll_refuses_options(slots_of_other_ranks
  "--slots: expected the 8 slots of a layer of --previous on 4 ranks, got 9" ${previous} --ranks 4 --slots 9 ${out})
plimsoll_refuses_options(ranks_of_other_slots
  "--previous: [^ ]*plan\\.json: expected ranks of 3 slots, as in the new plan, got 8 slots"
  ${previous} --ranks 5 --slots 15 ${out})
plimsoll_refuses_options(moves_after_a_loss
  "--max-moves: expected no value where experts were lost .*, got a loss of expert 4 in layer 0"
  ${previous} --ranks 3 --slots 6 --lost-ranks 2 --max-moves 3 ${out})
plimsoll_refuses_options(no_planner_after_a_loss
  "--planner: expected one that plans, .*, got a loss of expert 4 in layer 0"
  ${previous} --ranks 3 --lost-ranks 2 --planner none ${out})

plimsoll_refuses_options(horizon_without_verdict
  "--horizon: expected --verdict with it, got none" ${previous} --ranks 4 --horizon 5 ${out})
plimsoll_refuses_options(horizon_without_previous
  "--horizon: expected --previous with it, got none" --ranks 4 --slots 8 --verdict --horizon 5 ${out})
plimsoll_refuses_options(no_horizon
  "--horizon: expected a whole number from 1 to .*, got '0'" ${previous} --ranks 4 --verdict --horizon 0 ${out})
plimsoll_refuses_options(flat_without_verdict
  "--flat-below: expected --verdict with it, got none" --ranks 4 --slots 8 --flat-below 5 ${out})
plimsoll_refuses_options(negative_flat
  "--flat-below: expected a number from 0 to 1000000000, got '-1'" --ranks 4 --slots 8 --verdict --flat-below -1 ${out})
plimsoll_refuses_options(verdict_of_craft
  "--verdict: expected not to be given with --planner craft, whose layers .*, got it"
  --planner craft --ranks 4 --verdict ${out})
plimsoll_refuses_options(verdict_after_a_loss
  "--verdict: expected not to be given with --lost-ranks, after which experts must move, got it"
  ${previous} --ranks 3 --slots 6 --lost-ranks 2 --verdict ${out})
plimsoll_refuses_options(verdict_of_other_slots
  "--verdict: expected a plan in use with as many slots on every rank as the new plan, got 8 slots .*, and 12"
  --plan ${inputs}/plan.json --ranks 4 --slots 12 --verdict ${out})

# With steps: <name> <regex> <argument>...
function(plimsoll_refuses_gem name regex)
  plimsoll_refuses(plan_experts.refuses.${name} "^plan_experts: ${regex}"
    plan_experts ${inputs}/steps.npy --planner gem ${ARGN} ${out})
endfunction()
plimsoll_refuses_gem(no_trace "--trace-length: expected a whole number from 1 to .*, got '0'"
  --ranks 4 ${latency} --trace-length 0)
plimsoll_refuses_gem(long_trace "--trace-length: expected at most the 2 steps of [^ ]*steps.npy that have load, got 4"
  --ranks 4 ${latency} --trace-length 4)
plimsoll_refuses_gem(no_restarts "--restarts: expected a whole number from 1 to .*, got '0'"
  --ranks 4 ${latency} --restarts 0)
plimsoll_refuses_gem(gem_with_few_slots "--slots: expected at least one for each of the 6 experts, got 5"
  --ranks 4 ${latency} --slots 5)
plimsoll_refuses_gem(gem_with_few_experts "--slots: expected at least one for each of the 7 ranks, got 6"
  --ranks 7 ${latency})
# The curves: <name> <file> <regex>
function(plimsoll_refuses_curves name file regex)
  plimsoll_refuses_gem(curves.${name} "--latency: [^ ]*${file}: expected ${regex}"
    --ranks 4 --latency ${inputs}/${file})
endfunction()
plimsoll_refuses_curves(missing none.json "a readable file, got No such file")
plimsoll_refuses_curves(folder folder.npy "a readable file, got Is a directory")
plimsoll_refuses_curves(text text_curves.json "JSON, got a mistake at line 1, column ")
plimsoll_refuses_curves(no_key misnamed_curves.json "the key latency_us, got none. is it 'latencyus'\\?")
plimsoll_refuses_curves(loads loads.json "latency curves, got loads or a plan .logical_count.")
plimsoll_refuses_curves(ragged ragged_curves.json "4 values in latency_us.3., got 3")
plimsoll_refuses_curves(one_sample one_sample.json "at least 2 samples in tokens, got 1")
plimsoll_refuses_curves(falling falling_curves.json
  ".* do not fall from sample to sample, got 31.5 after 32.0 in rank 3, sample 2 .24 tokens.")
plimsoll_refuses_gem(curves.ranks
  "--latency: [^ ]*curves.json: expected a row in latency_us for each of the 3 ranks, or one for all, got 4"
  --ranks 3 ${latency})
plimsoll_refuses_options(unknown_format
  "--format: expected plimsoll, .* or npy, got 'sgl'. did you mean sglang\\?"
  ${good} --format sgl ${out})
plimsoll_refuses_options(unknown_policy "--policy: expected seq, omp or gpu, got 'tpu'"
  ${good} --policy tpu ${out})
plimsoll_refuses_options(unknown_refinement "--refine: .*. did you mean packing\\?"
  ${good} --refine pack ${out})
plimsoll_refuses_options(unknown_option
  "--slot: expected an option that --help lists, got another. did you mean --slots\\?"
  --ranks 4 --slot 8 ${out})
plimsoll_refuses_options(second_file
  "arguments: expected options, got also '[^ ]*other.npy' .one file at a time. .*quotes.$"
  ${inputs}/other.npy ${good} ${out})
plimsoll_refuses_options(no_file_name "--output: expected one value, got none or several" ${good} --output "")
plimsoll_refuses_options(option_without_value "--ranks: expected one value, got none or several"
  --slots 8 ${out} --ranks)
plimsoll_refuses_options(option_twice "--ranks: expected one value, got none or several"
  ${good} --ranks 4 ${out})
plimsoll_refuses_options(one_layer "--layers: expected layers as first:end, .*, got '1'"
  ${good} --layers 1 ${out})
plimsoll_refuses_options(dense_layers_unnamed
  "--layer-ids: expected a value, since LOADS has 2 layers and --model-layers is 3, got none"
  ${good} --model-layers 3 --format sglang ${out})
plimsoll_refuses_options(plan_of_all_layers
  "--plan: [^ ]*plan\\.json: expected a plan of all 3 layers of the model, got 2 rows.* --layer-ids "
  ${good} --layer-ids 1: --model-layers 3 --plan ${inputs}/plan.json ${out})
plimsoll_refuses_options(layers_out_of_range
  "--layers: expected some of the 2 layers of [^ ]*loads\\.npy, got 1:5" ${good} --layers 1:5 ${out})
plimsoll_refuses_options(layers_backwards "--layers: expected an end above .*, got '2:1'"
  ${good} --layers 2:1 ${out})
plimsoll_refuses_options(layers_no_number "--layers: expected layers as .*, got 'one'"
  ${good} --layers one ${out})
plimsoll_refuses_options(few_layer_ids
  "--layer-ids: expected one id for each of the 2 layers to plan, got 1" ${good} --layer-ids 3 ${out})
plimsoll_refuses_options(layer_ids_that_fall
  "--layer-ids: expected ids that increase, got 3 after 5" ${good} --layer-ids 5,3 ${out})
plimsoll_refuses_options(few_model_layers
  "--model-layers: expected more than the largest layer id 7, got 7"
  ${good} --layer-ids 6:8 --model-layers 7 --format sglang ${out})
plimsoll_refuses_options(model_layers_of_no_use
  "--model-layers: expected --format sglang or trtllm, whose files have rows for layers without a plan, got another one"
  ${good} --layer-ids 6:8 --model-layers 9 ${out})
plimsoll_refuses_options(dense_layers_in_sglang
  "--model-layers: expected a value, since --format sglang .* layer 0 is not planned, got none"
  ${good} --layer-ids 1:3 --format sglang ${out})
plimsoll_refuses_options(uneven_slots_in_sglang
  "--format sglang: expected slots that the 3 ranks share evenly, got 8"
  --ranks 3 --slots 8 --format sglang ${out})
plimsoll_refuses_options(empty_slots_in_trtllm
  "--format trtllm: expected no empty slot, got one on rank 0 in layer 0"
  --ranks 2 --slots 20 --apart rank --format trtllm --output plan.yaml)
plimsoll_refuses_options(twins_in_vllm_ascend
  "--format vllm-ascend: expected an expert at most once on a rank, got expert [0-9] twice on rank 0 in layer 0"
  --ranks 1 --slots 8 --format vllm-ascend ${out})
plimsoll_refuses_options(large_expert_bytes
  "--expert-bytes: expected .*, got '99999999999999'" ${good} --expert-bytes 99999999999999 ${out})
plimsoll_refuses_options(unknown_unit "--expert-bytes: " ${good} --expert-bytes 44XB ${out})

# Other loads, and the plan in use.
plimsoll_refuses_options(evaluate_missing "--evaluate: none\\.npy: expected a readable file, got No"
  ${good} --evaluate none.npy ${out})
plimsoll_refuses_options(evaluate_other_layers
  "--evaluate: expected 2 layers of 6 experts, as LOADS, got 3 layers of 6 experts"
  ${good} --evaluate ${inputs}/three_layers.npy ${out})
plimsoll_refuses_options(evaluate_other_experts
  "--evaluate: expected 2 layers of 6 experts, as LOADS, got 2 layers of 5 experts"
  ${good} --evaluate ${inputs}/five_experts.npy ${out})
plimsoll_refuses(plan_experts.refuses.standard_input_twice
  "^plan_experts: --evaluate: expected a file, since LOADS takes the standard input, got '-'"
  plan_experts - ${good} --evaluate - ${out})
plimsoll_refuses_options(plan_missing "--plan: none\\.json: expected a readable file, got No"
  ${good} --plan none.json ${out})
plimsoll_refuses_options(plan_for_other_layers "--plan: [^ ]*short_plan\\.json: expected .*, got "
  ${good} --plan ${inputs}/short_plan.json ${out})
plimsoll_refuses_options(plan_for_other_experts "--plan: [^ ]*other_plan\\.json: expected .*, got "
  ${good} --plan ${inputs}/other_plan.json ${out})
plimsoll_refuses_options(plan_without_ranks "--ranks: expected a value, since [^ ]*plan\\.json .*none"
  --plan ${inputs}/plan.json ${out})
plimsoll_refuses_options(loads_as_plan "--plan: [^ ]*loads\\.json: expected .*LOADS"
  ${good} --plan ${inputs}/loads.json ${out})
plimsoll_refuses_options(no_planner_no_plan "--plan: expected a file .*, got no value"
  --planner none --ranks 4 ${out})
plimsoll_refuses_options(no_planner_but_slots "--slots: expected no value with --planner none, which takes the plan as it is, got '8'"
  --planner none --plan ${inputs}/plan.json ${good} ${out})

# The plan to move from.
set(previous --previous ${inputs}/plan.json)
plimsoll_refuses_options(previous_missing "--previous: none\\.json: expected a readable file, got No"
  ${good} --previous none.json ${out})
plimsoll_refuses_options(previous_of_other_layers "--previous: [^ ]*short_plan\\.json: expected a plan of all 2 layers of the model, got 1 rows. "
  ${good} --previous ${inputs}/short_plan.json ${out})
plimsoll_refuses_options(previous_of_other_experts
  "--previous: [^ ]*other_plan\\.json: expected experts from 0 to 5, got 6 in layer 0, slot 6"
  ${good} --previous ${inputs}/other_plan.json ${out})
plimsoll_refuses_options(previous_without_ranks "--ranks: expected a value, since [^ ]*plan\\.json .*none"
  ${previous} ${out})
plimsoll_refuses_options(previous_with_other_slots
  "--slots: expected the 8 slots of a layer of --previous on 4 ranks, got 12" --ranks 4 --slots 12 ${previous} ${out})
plimsoll_refuses_options(previous_with_other_replicas
  "--replicas-per-rank: expected the 8 slots of a layer of --previous on 4 ranks, got 10"
  --ranks 4 --replicas-per-rank 1 ${previous} ${out})
plimsoll_refuses_options(given_plan_with_other_slots
  "--previous: expected a plan with 8 slots of a layer, as in --plan, got 12"
  --planner none --ranks 4 --plan ${inputs}/plan.json --previous ${inputs}/wide_plan.json ${out})
plimsoll_refuses_options(given_plan_on_other_slots
  "--previous: expected 2 slots on rank 2 in layer 0, as in --plan, got 4"
  --planner none --ranks 4 --plan ${inputs}/plan.json --previous ${inputs}/dead_plan.json ${out})
plimsoll_refuses_options(previous_of_craft
  "--previous: expected no value with --planner craft, whose layers have slots of their own, got "
  --ranks 4 --planner craft ${previous} ${out})
plimsoll_refuses_options(moves_from_nothing "--max-moves: expected --previous with it, got none"
  ${good} --max-moves 3 ${out})
plimsoll_refuses_options(transfers_from_nothing "--transfers: expected --previous with it, got none"
  ${good} --transfers transfers.json ${out})
plimsoll_refuses_options(negative_moves "--max-moves: expected a whole number from 0 to [0-9]*, got '-1'"
  ${good} ${previous} --max-moves -1 ${out})
plimsoll_refuses_options(two_limits "--max-bytes: expected no value with --max-moves, got '1000'"
  ${good} ${previous} --max-moves 1 --max-bytes 1kB --expert-bytes 10 ${out})
plimsoll_refuses_options(bytes_of_unknown_moves
  "--expert-bytes: expected a value, since --max-bytes is divided by it, got none"
  ${good} ${previous} --max-bytes 1kB ${out})
plimsoll_refuses_options(no_bandwidth "--bandwidth: expected a number above 0, at most 1000000, got '0'"
  ${good} ${previous} --nodes 2 --bandwidth 0 ${out})
plimsoll_refuses_options(negative_token_time "--token-us: expected a number above 0, .*, got '-0.2'"
  ${good} ${previous} --token-us -0.2 ${out})
plimsoll_refuses_options(rounds_like_peer
  "--rounds: expected one-peer or send-receive, got 'one-per'. did you mean one-peer\\?"
  ${good} ${previous} --rounds one-per ${out})
plimsoll_refuses_options(output_over_previous "--output: expected another file than --previous, got "
  ${good} --previous plan.json ${out})
plimsoll_refuses_options(transfers_in_no_folder
  "--transfers: expected .*, got 'no/t.json': No such file" ${good} ${previous} ${out} --transfers no/t.json)

# Output files.
plimsoll_refuses_options(output_in_no_folder
  "--output: expected .*, got 'no/plan.json': No such file" ${good} --output no/plan.json)
plimsoll_refuses_options(report_in_no_folder
  "--report: expected .*, got 'no/a.html': No such file" ${good} ${out} --report no/a.html)
plimsoll_refuses_options(json_in_no_folder
  "--json: expected .*, got 'no/a.json': No such file" ${good} ${out} --json no/a.json)
plimsoll_refuses_options(output_is_a_folder "--output: expected .*, got '[^ ]*': Is a directory"
  ${good} --output ${inputs}/folder.npy)
plimsoll_refuses_options(output_is_a_device
  "--output: expected .*, got '[^ ]*pipe\\.json': not a regular file"
  ${good} --output ${inputs}/pipe.json)
plimsoll_refuses_options(output_of_unknown_format
  "--output: expected a name that ends in \\.json, .*, got 'plan'" ${good} --output plan)
plimsoll_refuses_options(output_of_another_format
  "--output: expected a name that ends in \\.yaml or \\.yml for --format trtllm, got 'plan.json'"
  ${good} --format trtllm ${out})
plimsoll_refuses_options(format_of_nothing "--format: expected no value without --output, got 'npy'"
  ${good} --format npy)
plimsoll_refuses_options(report_is_no_page "--report: expected a name that ends in \\.html, got 'a.pdf'"
  ${good} ${out} --report a.pdf)
plimsoll_refuses_options(two_outputs
  "--json: expected another file than --output, got './plan.json' for both"
  ${good} ${out} --json ./plan.json)
plimsoll_refuses_options(output_over_input "--output: expected another file than LOADS, got "
  ${good} --format npy --output ${inputs}/loads.npy)

# make_loads: <name> <regex> <argument>...; the arguments follow a complete command line.
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
plimsoll_refuses_to_make(unknown_workload
  "--workload: expected w0 to w7, or balanced, hot-experts, .*, burst, got 'w8'" --steps 1 --workload w8)
plimsoll_refuses_to_make(skew_of_a_workload "--skew: expected no value with --workload, got '0.5'"
  --steps 1 --workload w1 --skew 0.5)
plimsoll_refuses_to_make(drift_of_a_workload "--drift: expected no value with --workload, got '0'"
  --steps 1 --workload w1 --drift 0)
plimsoll_refuses_to_make(workload_like_a_trace "--like: expected no value with --workload, got 'a.npy'"
  --steps 1 --workload w1 --like a.npy)
plimsoll_refuses_to_make(many_of_the_used_experts
  "--top-k: expected at most the 4 experts that empty-ranks uses, got 5" --steps 1 --workload w5 --top-k 5)
plimsoll_refuses_to_make(sources_of_no_workload "--source-loads: expected --workload with it, got none"
  --steps 1 --source-loads a.npy --ranks 2)
plimsoll_refuses_to_make(sources_of_no_ranks "--source-loads: expected --ranks with it, got none"
  --steps 1 --workload w4 --source-loads a.npy)
plimsoll_refuses_to_make(ranks_of_no_sources "--ranks: expected --source-loads with it, got none"
  --steps 1 --workload w4 --ranks 2)
plimsoll_refuses_to_make(sources_over_output
  "--source-loads: expected another file than --output, got './loads.npy' for both"
  --steps 1 --workload w4 --ranks 2 --source-loads ./loads.npy)
plimsoll_refuses_to_make(sources_in_no_folder
  "--source-loads: expected a file that can be written, got 'no/a.npy': No such file"
  --steps 1 --workload w4 --ranks 2 --source-loads no/a.npy)
plimsoll_refuses_to_make(layers_of_a_trace
  "--layers: expected no value with --like, whose file has them, got '2'" --steps 1 --like a.npy)
# --like: <name> <regex> <file of inputs> <argument>...
function(plimsoll_refuses_trace name regex file)
  plimsoll_refuses(make_loads.refuses.trace.${name} "^make_loads: ${regex}"
    make_loads --steps 2 --like ${inputs}/${file} --output loads.npy ${ARGN})
endfunction()
plimsoll_refuses_trace(missing "--like: [^ ]*none.npy: expected a readable file, got No such file" none.npy)
plimsoll_refuses_trace(folder "--like: [^ ]*folder.npy: expected a readable file, got a folder" folder.npy)
plimsoll_refuses_trace(text "--like: [^ ]*text.npy: expected a .npy file, got another one" text.npy)
plimsoll_refuses_trace(floats "--like: [^ ]*floats.npy: expected integers of 32 or 64 bits, .*, got '<f8'" floats.npy)
plimsoll_refuses_trace(top_k
  "--top-k: expected at most [1-7], since one expert of [^ ]*steps.npy has so large a share of a layer's load, got 8"
  steps.npy)
plimsoll_refuses_trace(drift "--drift: expected no value with --like, got '0.1'" steps.npy --drift 0.1)
plimsoll_refuses(make_loads.refuses.no_layers "^make_loads: --layers: expected a value, got none"
  make_loads --steps 1 --experts 8 --output loads.npy)
plimsoll_refuses(make_loads.refuses.many_tokens "^make_loads: --tokens: expected .* below 2\\^40"
  make_loads --steps 1 --layers 1 --experts 600 --tokens 2147483647 --top-k 600 --output loads.npy)
plimsoll_refuses(make_loads.refuses.output_in_no_folder
  "^make_loads: --output: expected .*, got 'no/loads.npy': No such file"
  make_loads --steps 1 --layers 1 --experts 8 --output no/loads.npy)
