# SPDX-License-Identifier: Apache-2.0
# Tests of profile_ranks: the host parts, and the program if there is a GPU.
set(folder ${CMAKE_CURRENT_LIST_DIR}/tests)
add_executable(profile_ranks_tests ${folder}/profile_ranks.test.cpp)
target_link_libraries(profile_ranks_tests PRIVATE profile_ranks_parts plan_experts_parts plimsoll_test_main)
foreach(target IN ITEMS profile_ranks_tests profile_ranks_parts)
  target_compile_options(${target} PRIVATE ${plimsoll_test_optimization})
endforeach()
add_test(NAME profile_ranks.tests COMMAND profile_ranks_tests)
set_tests_properties(profile_ranks.tests PROPERTIES LABELS host TIMEOUT 60)
if(TARGET profile_ranks)
  add_dependencies(plimsoll_device_examples profile_ranks)
  add_test(NAME example.profile_ranks.gpu
           COMMAND ${PLIMSOLL_BASH} ${folder}/measures.sh $<TARGET_FILE_DIR:plan_experts>)
  set_tests_properties(example.profile_ranks.gpu PROPERTIES LABELS device TIMEOUT 120 SKIP_RETURN_CODE 77)
endif()
