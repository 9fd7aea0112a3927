# SPDX-License-Identifier: Apache-2.0
# What a call costs on a device, a kernel, a goal and an #include: tests hold them to the limits in *.txt as far as
# that takes seconds; script/device-check --costs prints the figures.
foreach(name IN ITEMS kernels goals)
  plimsoll_add_ctest(costs.${name} LABELS contract COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/costs/${name} --rows)
endforeach()
if(PLIMSOLL_GXX)
  # Nothing depends on how long it takes.
  plimsoll_add_ctest(costs.headers LABELS contract COMMAND ${PLIMSOLL_BASH} -c
    "\"$1\" --rows && \"$1\" ^version.hpp" bash ${CMAKE_CURRENT_SOURCE_DIR}/costs/headers)
endif()

# Only g++ can report basic blocks in this way. A loop over the dimensions of a view must be unrolled, or
# its iterations would count as steps. Other loops must not be duplicated, since each copy would run only
# some of the iterations.
add_custom_target(plimsoll_costs)
if(PLIMSOLL_TEST_TABLES AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_executable(device_costs costs/calls/main.cpp costs/calls/steps.cpp)
  target_link_libraries(device_costs PRIVATE plimsoll_dev)
  target_compile_options(device_costs PRIVATE -O3 -fno-thread-jumps --param=max-completely-peel-times=4)
  set_source_files_properties(costs/calls/main.cpp PROPERTIES COMPILE_OPTIONS -fsanitize-coverage=trace-pc)
  add_dependencies(plimsoll_costs device_costs)
  plimsoll_add_ctest(costs.calls LABELS costs COMMAND device_costs ${CMAKE_CURRENT_SOURCE_DIR}/costs/calls.txt)
  plimsoll_add_ctest(costs.counting LABELS costs COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/costs/calls/test.sh
                     $<TARGET_FILE:device_costs>)
endif()
