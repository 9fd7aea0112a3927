# SPDX-License-Identifier: Apache-2.0
# Parts of make_loads: tests/<part>.test.cpp is the ctest make_loads.part.<part>. The tests of plan_experts
# run the program as a whole.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/tests/*.test.cpp)
add_executable(make_loads_tests ${sources})
target_link_libraries(make_loads_tests PRIVATE plimsoll_test_main)
target_compile_options(make_loads_tests PRIVATE ${plimsoll_test_optimization})
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  string(REPLACE ".test" "" name ${name})
  add_test(NAME make_loads.part.${name} COMMAND make_loads_tests --source-file=*/${name}.test.cpp)
  set_tests_properties(make_loads.part.${name} PROPERTIES LABELS host TIMEOUT 120)
endforeach()
