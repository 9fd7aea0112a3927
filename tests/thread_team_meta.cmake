# SPDX-License-Identifier: Apache-2.0
# Wrong bodies, each of which thread_team must detect with its own message.
add_executable(thread_team_meta thread_team_meta.cpp)
target_include_directories(thread_team_meta PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(thread_team_meta PRIVATE plimsoll_dev)

function(plimsoll_add_meta_test case message)
  plimsoll_add_ctest(thread_team.${case} LABELS host COMMAND thread_team_meta ${case})
  set_tests_properties(thread_team.${case} PROPERTIES PASS_REGULAR_EXPRESSION "${message}" TIMEOUT 60)
endfunction()

set(site "at [^\n]*thread_team_meta.cpp:[0-9]+")
set(different "different calls in one team:\n  thread 0: ")
plimsoll_add_meta_test(divergent_call
  "${different}for_each with n = 8 ${site}[^\n]*\n  thread [1-3]: for_each with n = 8 ${site}")
plimsoll_add_meta_test(divergent_operation "${different}(single|for_each) with n = 0 ${site}[^\n]*\n  thread [1-3]: (single|for_each) with n = 0 ${site}")
plimsoll_add_meta_test(divergent_n "${different}for_each with n = [89] ${site}[^\n]*\n  thread [1-3]: for_each with n = [89] ${site}")
plimsoll_add_meta_test(divergent_key "${different}queue.replace_top with n = 4, value = [abcd] ${site}")
plimsoll_add_meta_test(divergent_scratch "${different}exclusive_scan with n = 8, value = [0-9a-f]+ ${site}")
plimsoll_add_meta_test(early_exit "${different}(single with n = 0 ${site}[^\n]*\n  thread [1-3]: end of body|end of body\n  thread [1-3]: single with n = 0 ${site})")
plimsoll_add_meta_test(nested_call "nested call: a function passed to for_each with n = 8 ${site}[^\n]* called single with n = 0 ${site}")
plimsoll_add_meta_test(nested_sort "nested call: a function passed to sum with n = 1 ${site}[^\n]* called sort with n = 4")
plimsoll_add_meta_test(duplicate_sort_keys "duplicate keys: sort with n = 4 ${site}")
plimsoll_add_meta_test(duplicate_queue_keys "duplicate keys: queue with n = 4 ${site}")
plimsoll_add_meta_test(duplicate_replacement "duplicate keys: queue.replace_top with n = 4, value = 9 ${site}")
plimsoll_add_meta_test(reserved_key "reserved key: queue.replace_top with n = 4, value = ffffffffffffffff ${site}")
plimsoll_add_meta_test(infinite_wait "no progress for 0.5[0-9]* s; the last calls were\n  thread 0: for_each with n = 64 ${site}")
plimsoll_add_meta_test(scratch_overrun "scratch overrun: the body wrote outside its scratch_bytes\\(\\) = 16")
plimsoll_add_meta_test(scratch_overrun_serial "scratch overrun: the body wrote outside its scratch_bytes\\(\\) = 16")
plimsoll_add_meta_test(two_writers "output 0 differs first in element 0 of 64: serial_team against [0-9]+ threads")
plimsoll_add_meta_test(write_outside "output 0 differs first in element 0 of 64: serial_team against [0-9]+ threads")
plimsoll_add_meta_test(uninitialised_scratch "output 0 differs first in element 0 of 64: serial_team against itself")
plimsoll_add_meta_test(forgotten_index "output 0 differs first in element 7 of 64: serial_team against 1 threads")
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*thread")
  plimsoll_add_meta_test(race_same_value "ThreadSanitizer: data race")
endif()

# No expression: the exit status counts.
plimsoll_add_ctest(thread_team.control LABELS host COMMAND thread_team_meta control)
