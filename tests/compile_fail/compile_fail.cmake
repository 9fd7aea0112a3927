# SPDX-License-Identifier: Apache-2.0
# Wrong calls must be refused with a message that helps; see run.sh for what a case states.

function(plimsoll_add_compile_fail source compiler_name)
  file(STRINGS ${source} only REGEX "^// compiler: ")
  if(only AND NOT only STREQUAL "// compiler: ${compiler_name}")
    return()
  endif()
  cmake_path(GET source STEM name)
  if(name STREQUAL "x87" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
    return()
  endif()
  if(name STREQUAL "stream_ref_in_host_file")
    if(NOT PLIMSOLL_CUDA_HEADERS)
      return()
    endif()
    list(APPEND ARGN -isystem ${PLIMSOLL_CUDA_HEADERS} -isystem ${PLIMSOLL_CUDA_HEADERS}/cccl)
  endif()
  plimsoll_add_ctest(compile_fail.${name}.${compiler_name} LABELS compile_fail
    COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/run.sh
            ${source} ${ARGN} -std=c++20 -I${PROJECT_SOURCE_DIR}/include)
endfunction()

file(GLOB sources CONFIGURE_DEPENDS compile_fail/*.cpp)
foreach(source IN LISTS sources)
  if(PLIMSOLL_GXX)
    plimsoll_add_compile_fail(${source} g++ ${PLIMSOLL_GXX} -fsyntax-only)
  endif()
  if(PLIMSOLL_CLANGXX)
    plimsoll_add_compile_fail(${source} clang++ ${PLIMSOLL_CLANGXX} -fsyntax-only)
  endif()
endforeach()

if(plimsoll_with_cuda)
  file(GLOB sources CONFIGURE_DEPENDS compile_fail/*.cu)
  foreach(source IN LISTS sources)
    plimsoll_add_compile_fail(${source} nvcc ${CMAKE_CUDA_COMPILER} -c -o /dev/null -arch=sm_90)
  endforeach()
endif()
