# SPDX-License-Identifier: Apache-2.0
# The tables of the documentation: ctest table.<name> generates one and compares it with its page; the
# build target update_tables rewrites all of them.
option(PLIMSOLL_TEST_TABLES "Make all tables again in the tests, not only the support matrix" ON)
mark_as_advanced(PLIMSOLL_TEST_TABLES)

set(tables ${CMAKE_CURRENT_LIST_DIR})
set(docs ${PROJECT_SOURCE_DIR}/docs)
add_custom_target(plimsoll_tables) # the programs that make them
add_custom_target(update_tables VERBATIM)
add_dependencies(update_tables plimsoll_tables)

# plimsoll_add_table_test(<name> [LABEL <label>] COMMAND <command>...): the label is table unless given.
function(plimsoll_add_table_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "COMMAND")
  if(NOT arg_LABEL)
    set(arg_LABEL table)
  endif()
  add_test(NAME table.${name} COMMAND ${PLIMSOLL_BASH} ${arg_COMMAND})
  set_tests_properties(table.${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT 60)
endfunction()

# --- support matrix -------------------------------------------------------------------------------
# Rows are headers with a typed test, except those on which all primitives depend; systems come last.
set(rows)
foreach(folder IN ITEMS "" systems/)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/plimsoll/${folder}*.hpp)
  foreach(header IN LISTS headers)
    cmake_path(GET header STEM name)
    if(EXISTS ${PROJECT_SOURCE_DIR}/tests/${name}.cases.hpp
        OR EXISTS ${PROJECT_SOURCE_DIR}/tests/systems/${name}.cases.hpp)
      list(APPEND rows ${name})
    endif()
  endforeach()
endforeach()
list(REMOVE_ITEM rows array execution memory random)

set(host_programs)
set(cuda_programs)
foreach(row IN LISTS rows)
  list(APPEND host_programs $<TARGET_FILE:${row}>)
  add_dependencies(update_tables ${row})
  if(TARGET ${row}_cu)
    list(APPEND cuda_programs $<TARGET_FILE:${row}_cu>)
    add_dependencies(update_tables ${row}_cu)
  endif()
endforeach()
list(JOIN rows " " rows)

set(make_table ${PLIMSOLL_BASH} ${tables}/support_matrix)
if(PLIMSOLL_TEST_NO_OMP OR NOT OpenMP_CXX_FOUND)
  list(APPEND make_table --without-omp)
endif()
list(APPEND make_table ${docs}/support_matrix.md "${rows}")
set(page ${tables}/page --check ${docs}/support_matrix.md)
plimsoll_add_table_test(support_matrix LABEL host COMMAND ${page} ${make_table} ${host_programs})
# One test per compiler, since the CUDA programs are also built and tested alone.
if(plimsoll_with_cuda)
  plimsoll_add_table_test(support_matrix.cu
    LABEL device COMMAND ${page} ${make_table} ${cuda_programs})
endif()
add_custom_command(TARGET update_tables POST_BUILD VERBATIM
  COMMAND ${PLIMSOLL_BASH} ${tables}/page --update ${docs}/support_matrix.md
          ${make_table} ${host_programs} ${cuda_programs})

if(NOT PLIMSOLL_TEST_TABLES)
  return()
endif()

# --- performance ----------------------------------------------------------------------------------
add_executable(performance ${tables}/performance/main.cpp)
target_link_libraries(performance PRIVATE plimsoll_dev CLI11::CLI11 nlohmann_json::nlohmann_json)
# The program reads a few kilobytes; optimization would only double its compile time.
target_compile_options(performance PRIVATE -O0)
# `performance import` records the compiler and the flags of the benchmarks.
set(flags "unknown")
if(PLIMSOLL_BUILD_BENCH)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  set(own "$<TARGET_PROPERTY:plimsoll_bench,COMPILE_OPTIONS>")
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} $<JOIN:$<FILTER:${own},EXCLUDE,^-W>, >")
  string(STRIP "${flags}" flags)
endif()
target_compile_definitions(performance PRIVATE "PLIMSOLL_BENCH_FLAGS=\"${flags}\"")

set(make_table $<TARGET_FILE:performance> table ${PROJECT_SOURCE_DIR}/bench/results)
plimsoll_add_table_test(performance
  COMMAND ${tables}/page --check ${docs}/performance.md ${make_table})
add_custom_command(TARGET update_tables POST_BUILD VERBATIM
  COMMAND ${PLIMSOLL_BASH} ${tables}/page --update ${docs}/performance.md ${make_table})
add_dependencies(plimsoll_tables performance)

# --- tables that programs compute ----------------------------------------------------------------
# plimsoll_add_table(<name> <page>): the program tables/<name> gets the page and prints its tables.
function(plimsoll_add_table name page)
  add_executable(${name} ${tables}/${name}/main.cpp)
  target_link_libraries(${name} PRIVATE plimsoll_dev)
  # Figures are the same bits however they are compiled, and this is the fastest in all.
  target_compile_options(${name} PRIVATE -O1)
  set(make_table $<TARGET_FILE:${name}> ${docs}/${page})
  plimsoll_add_table_test(${name}
    COMMAND ${tables}/page --check ${docs}/${page} ${make_table})
  add_custom_command(TARGET update_tables POST_BUILD VERBATIM
    COMMAND ${PLIMSOLL_BASH} ${tables}/page --update ${docs}/${page} ${make_table})
  add_dependencies(plimsoll_tables ${name})
endfunction()

plimsoll_add_table(quality quality.md)
plimsoll_add_table(next_chunk quality.md)
plimsoll_add_table(replicas craft.md)
plimsoll_add_table(unseen_steps flow_placement.md)
plimsoll_add_table(splits minmax_lp.md)
plimsoll_add_table(object_memory memory.md)
# In single precision, a fused multiply-add would change the results.
target_compile_options(splits PRIVATE -ffp-contract=off)
plimsoll_add_table(dropped_tokens token_drop.md)
plimsoll_add_table(filled_ranks waterline.md)
plimsoll_add_table(unequal_ranks gem.md)
plimsoll_add_table(spilled_loads least_loaded.md)
plimsoll_add_table(moves migration.md)
plimsoll_add_table(move_budgets migration.md)
plimsoll_add_table(transfer_rounds migration.md)
plimsoll_add_table(move_prices refinement.md)
# Searches of thousands of plans.
foreach(name IN ITEMS moves move_budgets transfer_rounds move_prices)
  set_tests_properties(table.${name} PROPERTIES TIMEOUT 300)
endforeach()

# plimsoll_add_picture(<name> <image> [<argument>]): the program tables/<name> prints images/<image>.
function(plimsoll_add_picture name image)
  add_executable(${name} ${tables}/${name}/main.cpp)
  target_link_libraries(${name} PRIVATE plimsoll_dev)
  set(picture ${docs}/images/${image})
  set(draw "\"$<TARGET_FILE:${name}>\" ${ARGN}")
  plimsoll_add_table_test(${name} COMMAND -c "${draw} | diff - \"${picture}\"")
  add_custom_command(TARGET update_tables POST_BUILD VERBATIM
    COMMAND ${PLIMSOLL_BASH} -c "${draw} >\"${picture}\"")
  add_dependencies(plimsoll_tables ${name})
endfunction()

plimsoll_add_picture(rank_graph rank_graph.svg)
plimsoll_add_picture(bottleneck minmax_lp.svg)
# Drawn from two tables of the page, so it comes after them.
plimsoll_add_picture(move_curve migration.svg "\"${docs}/migration.md\"")

# --- costs of the device --------------------------------------------------------------------------
# Only g++ can report basic blocks in this way. A loop over the dimensions of a view must be unrolled, or
# its iterations would count as steps. Other loops must not be duplicated, since each copy would run only
# some of the iterations.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  plimsoll_add_table(device_costs device_costs.md)
  target_sources(device_costs PRIVATE ${tables}/device_costs/steps.cpp)
  target_compile_definitions(device_costs PRIVATE
    "PLIMSOLL_KERNEL_COSTS=\"${tables}/device_costs/kernels.md\"")
  target_compile_options(device_costs PRIVATE
    -O3 -fno-thread-jumps --param=max-completely-peel-times=4)
  set_source_files_properties(${tables}/device_costs/main.cpp PROPERTIES
    COMPILE_OPTIONS -fsanitize-coverage=trace-pc)
  set_tests_properties(table.device_costs PROPERTIES TIMEOUT 300)
  plimsoll_add_table_test(makers.device_costs
    COMMAND ${tables}/tests/device_costs.sh $<TARGET_FILE:device_costs>)
endif()
# Compiling all kernels takes minutes, so update_tables does not generate their rows.
plimsoll_add_table_test(kernel_costs
  COMMAND ${tables}/kernel_costs --rows ${tables}/device_costs/kernels.md)

# --- compile times --------------------------------------------------------------------------------
set(make_table ${PLIMSOLL_BASH} ${tables}/compile_times ${docs}/compile_times.md)
plimsoll_add_table_test(compile_times
  COMMAND ${tables}/page --check ${docs}/compile_times.md ${make_table})
add_custom_command(TARGET update_tables POST_BUILD VERBATIM
  COMMAND ${PLIMSOLL_BASH} ${tables}/page --update ${docs}/compile_times.md ${make_table})

# --- tests of the programs that generate tables ---------------------------------------------------
plimsoll_add_table_test(makers.support_matrix COMMAND ${tables}/tests/support_matrix.sh ${tables})
plimsoll_add_table_test(makers.code COMMAND ${tables}/tests/code.sh ${tables})
plimsoll_add_table_test(makers.options COMMAND ${tables}/tests/options.sh ${tables})
plimsoll_add_table_test(makers.performance
  COMMAND ${tables}/tests/performance.sh $<TARGET_FILE:performance>)
plimsoll_add_table_test(makers.compile_times COMMAND ${tables}/tests/compile_times.sh ${tables})
