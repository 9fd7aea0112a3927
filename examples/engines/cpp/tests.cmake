# SPDX-License-Identifier: Apache-2.0
# The engines' order of calls, and tests/<part>.test.cpp as ctest cpp_engines.<part>: the planner, and per engine
# the values that its own tests expect.
foreach(target IN ITEMS expert_planner cpp_engines_planners cpp_engines_stand_ins cpp_engines)
  target_compile_options(${target} PRIVATE ${plimsoll_test_optimization})
endforeach()
add_test(NAME example.cpp_engines
         COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:cpp_engines>
                 -DEXPECTED=${CMAKE_CURRENT_SOURCE_DIR}/engines/cpp_engines.expected
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/compare_output.cmake)
set_tests_properties(example.cpp_engines PROPERTIES LABELS host TIMEOUT 60)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/engines/cpp/tests/*.test.cpp)
add_executable(cpp_engines_tests ${sources})
target_link_libraries(cpp_engines_tests PRIVATE cpp_engines_stand_ins plimsoll_test_main)
target_compile_options(cpp_engines_tests PRIVATE ${plimsoll_test_optimization})
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  string(REPLACE ".test" "" name ${name})
  add_test(NAME cpp_engines.${name} COMMAND cpp_engines_tests --source-file=*/${name}.test.cpp)
  set(label host)
  if(NOT name STREQUAL planner)
    list(APPEND label outside)
  endif()
  set_tests_properties(cpp_engines.${name} PROPERTIES LABELS "${label}" TIMEOUT 120)
endforeach()
