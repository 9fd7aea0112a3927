# SPDX-License-Identifier: Apache-2.0
# What tests/outside/xllm.test.cpp and rtp_llm.test.cpp call: the planners of examples/cpp_engines.
set(folder ${PROJECT_SOURCE_DIR}/examples/cpp_engines)
add_library(plimsoll_cpp_engines STATIC EXCLUDE_FROM_ALL
  ${folder}/planner.cpp ${folder}/xllm/eplb_policy.cpp ${folder}/rtp_llm/balance_plan.cpp)
target_link_libraries(plimsoll_cpp_engines PRIVATE plimsoll_dev)
foreach(program IN ITEMS outside_xllm outside_rtp_llm joined_cpp)
  if(TARGET ${program})
    get_target_property(is_part ${program} IMPORTED)  # of joined_cpp
    if(NOT is_part)
      target_link_libraries(${program} PRIVATE plimsoll_cpp_engines)
    endif()
  endif()
endforeach()
