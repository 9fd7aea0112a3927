# SPDX-License-Identifier: Apache-2.0
# Properties of the headers that every program which includes them relies on.

function(plimsoll_add_contract name script)
  plimsoll_add_ctest(${name} LABELS contract COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/contracts/${script} ${ARGN})
endfunction()

set(include_dir ${PROJECT_SOURCE_DIR}/include)
get_target_property(headers plimsoll HEADER_SET_headers)
get_target_property(opt_in_headers plimsoll HEADER_SET_opt_in_headers)
list(JOIN headers "\n" listed)
string(APPEND listed "\n")
list(JOIN opt_in_headers "\n" opt_in_lines)
string(APPEND listed "${opt_in_lines}\n")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/listed_headers.txt "${listed}")

plimsoll_add_contract(headers.listed listed.sh ${include_dir} ${CMAKE_CURRENT_BINARY_DIR}/listed_headers.txt)
plimsoll_add_contract(headers.layout layout.sh ${include_dir})
plimsoll_add_contract(headers.entries entries.sh ${PROJECT_SOURCE_DIR})
plimsoll_add_contract(docs.pages pages.sh ${PROJECT_SOURCE_DIR})
plimsoll_add_contract(script.new new_primitive.sh ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
plimsoll_add_contract(headers.macros macros.sh ${include_dir})
plimsoll_add_contract(comments comments.sh ${include_dir} ${PROJECT_SOURCE_DIR}/examples ${PROJECT_SOURCE_DIR}/bench)
plimsoll_add_contract(bodies.no_cmath no_cmath.sh ${include_dir}/plimsoll/detail/algorithm
                      ${include_dir}/plimsoll/detail/common)
foreach(compiler IN ITEMS GXX CLANGXX)
  if(PLIMSOLL_${compiler})
    cmake_path(GET PLIMSOLL_${compiler} FILENAME name)
    plimsoll_add_contract(headers.poison.${name} poison.sh ${include_dir} ${PLIMSOLL_${compiler}})
    plimsoll_add_contract(headers.no_cuda.${name} no_cuda.sh ${include_dir} ${PLIMSOLL_${compiler}})
  endif()
endforeach()

# Every primitive, that is every sample except those of headers on which all depend, has typed tests for every policy.
file(GLOB primitives RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/samples CONFIGURE_DEPENDS samples/*.hpp)
list(TRANSFORM primitives REPLACE "\\.hpp$" "")
list(REMOVE_ITEM primitives all array memory random)
list(TRANSFORM primitives REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE programs)
if(PLIMSOLL_TEST_NO_OMP OR NOT OpenMP_CXX_FOUND)
  list(PREPEND programs --without-omp)
endif()
if(NOT PLIMSOLL_TEST_POLICY)
  plimsoll_add_ctest(policies LABELS host COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/contracts/policies.sh
                     ${programs})
endif()

# Order of arguments, views, names and options of all calls and objects.
plimsoll_add_test_program(api contracts/api.test.cpp)
# Regular expressions take half a minute where sanitizers do not optimize.
target_compile_options(api PRIVATE $<$<CONFIG:None>:-O1>)
plimsoll_add_ctest(api LABELS host COMMAND api)

# A program of two host files, and one that adds a file compiled by nvcc.
plimsoll_add_test_program(odr contracts/odr.test.cpp contracts/odr_other.cpp)
plimsoll_add_ctest(odr LABELS host COMMAND odr)

# Calls of the CUDA runtime, replaced by our own: needs CUDA's headers, but no CUDA compiler and no GPU.
find_path(PLIMSOLL_CUDA_HEADERS cuda_runtime_api.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} /usr/local/cuda/include)
mark_as_advanced(PLIMSOLL_CUDA_HEADERS)
if(PLIMSOLL_CUDA_HEADERS)
  plimsoll_add_test_program(cuda_calls contracts/cuda_calls.cpp)
  target_include_directories(cuda_calls SYSTEM PRIVATE ${PLIMSOLL_CUDA_HEADERS})
  plimsoll_add_ctest(cuda_calls LABELS host COMMAND cuda_calls)
endif()

if(plimsoll_with_cuda)
  plimsoll_add_test_program(odr_cu contracts/odr.test.cpp contracts/odr_other.cpp contracts/odr_nvcc.cu)
  target_compile_definitions(odr_cu PRIVATE PLIMSOLL_TEST_NVCC_TU)
  plimsoll_only_compile(odr_cu)
  plimsoll_add_ctest(odr.cu LABELS device COMMAND odr_cu)

  list(TRANSFORM programs REPLACE "(.+)>" "\\1_cu>")
  plimsoll_add_ctest(policies.cu LABELS device COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/contracts/policies.sh
                     ${programs})

  # Every header, and every body, in two files of device/, for the architectures that users have.
  list(TRANSFORM headers REPLACE "^${include_dir}/(.*)$" "#include <\\1>")
  list(TRANSFORM opt_in_headers REPLACE "^${include_dir}/(.*)$" "#include <\\1>")
  list(JOIN headers "\n" includes)
  list(JOIN opt_in_headers "\n" opt_in_includes)
  file(CONFIGURE OUTPUT generated/every_header.hpp CONTENT "@includes@\n@opt_in_includes@\n" @ONLY)
  add_library(all_headers OBJECT device/all_headers.cu device/all_samples.cu)
  target_link_libraries(all_headers PRIVATE plimsoll_dev)
  plimsoll_only_compile(all_headers -O1)
  target_include_directories(all_headers PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(all_headers PROPERTIES CUDA_ARCHITECTURES "80-real;90-real;120-virtual")
  # These files end last; without it one core would compile them for one architecture after the other.
  target_compile_options(all_headers PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--threads=3>)
  add_dependencies(plimsoll_cuda all_headers)

  # Shared objects for different GPUs in one program.
  plimsoll_add_ctest(architectures.symbols LABELS device COMMAND ${PLIMSOLL_BASH}
                     ${CMAKE_CURRENT_SOURCE_DIR}/contracts/architectures.sh ${CMAKE_NM}
                     "$<TARGET_OBJECTS:all_headers>")
  plimsoll_add_test_program(architectures contracts/architectures.test.cpp)
  foreach(architecture IN ITEMS 80 90)
    add_library(architectures_${architecture} SHARED contracts/architectures.cu)
    target_link_libraries(architectures_${architecture} PRIVATE plimsoll_dev)
    plimsoll_only_compile(architectures_${architecture})
    target_compile_definitions(architectures_${architecture} PRIVATE PLIMSOLL_TEST_ARCHITECTURE=sm_${architecture})
    set_target_properties(architectures_${architecture} PROPERTIES CUDA_ARCHITECTURES ${architecture}-virtual)
    target_link_libraries(architectures PRIVATE architectures_${architecture})
  endforeach()
  plimsoll_add_ctest(architectures LABELS device COMMAND architectures)
  add_dependencies(plimsoll_cuda architectures)
endif()
