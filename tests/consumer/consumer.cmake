# SPDX-License-Identifier: Apache-2.0
# The library as strangers use it: every way to take it, one project or command each, which builds
# main.cpp and runs it.
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/prefix)
set(consumer ${CMAKE_CURRENT_SOURCE_DIR}/consumer)
set(packaging ${CMAKE_CURRENT_SOURCE_DIR}/packaging)
# Copies of examples are built with the flags of this build.
option(PLIMSOLL_TEST_COPIES "Use the library from copies of all examples, and from programs for nvcc, too" ON)
mark_as_advanced(PLIMSOLL_TEST_COPIES)
find_program(PLIMSOLL_NVCC NAMES $ENV{CUDACXX} nvcc) # also where this build is without CUDA
find_program(PLIMSOLL_PKG_CONFIG NAMES pkg-config pkgconf)
mark_as_advanced(PLIMSOLL_NVCC PLIMSOLL_PKG_CONFIG)

# A fresh prefix each time: yesterday's would hide a header that is no longer installed.
plimsoll_add_ctest(package.install LABELS package
  COMMAND ${PLIMSOLL_BASH} -c "rm -rf '${prefix}' && '${CMAKE_COMMAND}' --install '${PROJECT_BINARY_DIR}' --prefix '${prefix}'")
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP plimsoll_prefix)

# plimsoll_add_package_test(<name> COMMAND <command>...): a test of what is installed. Its label is in the
# variable package_label.
set(package_label package)
function(plimsoll_add_package_test name)
  plimsoll_add_ctest(package.${name} LABELS ${package_label} ${ARGN})
  set_tests_properties(package.${name} PROPERTIES FIXTURES_REQUIRED plimsoll_prefix)
endfunction()

if(plimsoll_with_cuda)
  plimsoll_add_ctest(tvm_ffi.gpu LABELS device
    COMMAND ${PLIMSOLL_BASH} ${CMAKE_CURRENT_LIST_DIR}/tvm_ffi_gpu.sh ${PROJECT_SOURCE_DIR}/examples/engines/tvm_ffi
            ${CMAKE_CURRENT_BINARY_DIR}/consumer_tvm_ffi_gpu ${prefix} ${CMAKE_CURRENT_SOURCE_DIR}/golden
            ${CMAKE_CUDA_COMPILER} "${CMAKE_CUDA_ARCHITECTURES}" "${CMAKE_CUDA_FLAGS}")
  set_tests_properties(tvm_ffi.gpu PROPERTIES
    FIXTURES_REQUIRED plimsoll_prefix SKIP_REGULAR_EXPRESSION "skipped: " TIMEOUT 1200)
endif()

# plimsoll_add_consumer(<name> <project> [OPTIONS <cmake option>...] [TARGET <target>] [RUN <command>...]):
# configures and builds a project in a fresh folder, and runs what it built.
function(plimsoll_add_consumer name project)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "TARGET" "OPTIONS;RUN")
  set(after)
  if(arg_TARGET)
    list(APPEND after --build-target ${arg_TARGET})
  endif()
  list(APPEND after --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${arg_OPTIONS})
  if(arg_RUN)
    list(APPEND after --test-command ${arg_RUN})
  endif()
  plimsoll_add_package_test(${name}
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${project} ${CMAKE_CURRENT_BINARY_DIR}/consumer_${name}
            --build-generator ${CMAKE_GENERATOR} --build-makeprogram ${CMAKE_MAKE_PROGRAM} ${after})
endfunction()

# --- CMake -------------------------------------------------------------------------------------------
set(found -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=${PROJECT_VERSION})
set(source -DPLIMSOLL_SOURCE=${PROJECT_SOURCE_DIR})
plimsoll_add_consumer(find_package ${consumer}/find_package OPTIONS ${found} RUN ./consumer)
plimsoll_add_consumer(subdirectory ${consumer}/subdirectory OPTIONS ${source} RUN ./consumer)
plimsoll_add_consumer(fetch_content ${consumer}/fetch_content OPTIONS ${source} RUN ./consumer)
plimsoll_add_consumer(refused_version ${consumer}/find_package
  OPTIONS -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=99)
set_tests_properties(package.refused_version PROPERTIES
  PASS_REGULAR_EXPRESSION "compatible with requested[ \n]+version \"99\"")
# Names changed after 0.2, so a program that asks for it must not get this version.
plimsoll_add_consumer(refused_earlier_version ${consumer}/find_package
  OPTIONS -DCMAKE_PREFIX_PATH=${prefix} -DPLIMSOLL_WANTED=0.2)
set_tests_properties(package.refused_earlier_version PROPERTIES
  PASS_REGULAR_EXPRESSION "compatible with requested[ \n]+version \"0.2\"")

# A library that installs us with itself, and a user of that library.
set(parent_prefix ${CMAKE_CURRENT_BINARY_DIR}/parent_prefix)
plimsoll_add_consumer(parent ${consumer}/reexport/parent
  OPTIONS ${source} -DCMAKE_INSTALL_PREFIX=${parent_prefix} TARGET install)
set_tests_properties(package.parent PROPERTIES FIXTURES_SETUP plimsoll_parent)
plimsoll_add_consumer(user_of_parent ${consumer}/reexport/user
  OPTIONS -DCMAKE_PREFIX_PATH=${parent_prefix} RUN ./consumer)
set_tests_properties(package.user_of_parent PROPERTIES FIXTURES_REQUIRED plimsoll_parent)

# --- no build system -----------------------------------------------------------------------------------
set(compile ${PLIMSOLL_BASH} ${consumer}/compile.sh)
plimsoll_add_package_test(include COMMAND ${compile} ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/include)
if(PLIMSOLL_PKG_CONFIG)
  plimsoll_add_package_test(pkg_config COMMAND ${CMAKE_COMMAND} -E env
    PKG_CONFIG=${PLIMSOLL_PKG_CONFIG} PKG_CONFIG_PATH=${prefix}/share/pkgconfig ${compile} ${CMAKE_CXX_COMPILER})
endif()

# --- package managers ------------------------------------------------------------------------------------
plimsoll_add_ctest(package.conan LABELS package
  COMMAND ${PLIMSOLL_BASH} ${packaging}/conan.sh ${CMAKE_CXX_COMPILER})
set_tests_properties(package.conan PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
plimsoll_add_ctest(package.vcpkg LABELS package
  COMMAND ${PLIMSOLL_BASH} ${packaging}/vcpkg.sh ${CMAKE_CURRENT_BINARY_DIR}/vcpkg ${CMAKE_CXX_COMPILER})
plimsoll_add_ctest(package.versions LABELS package
  COMMAND ${PLIMSOLL_BASH} ${packaging}/versions.sh ${CMAKE_CXX_COMPILER})

# --- what an install must hold ---------------------------------------------------------------------------
plimsoll_add_package_test(every_header_counts
  COMMAND ${PLIMSOLL_BASH} ${packaging}/every_header_counts.sh ${prefix} ${CMAKE_CXX_COMPILER})
set_tests_properties(package.every_header_counts package.conan PROPERTIES COST 20000)

if(NOT PLIMSOLL_TEST_COPIES)
  return()
endif()
set(package_label copy)

# --- nvcc ----------------------------------------------------------------------------------------------
if(PLIMSOLL_NVCC)
  # That it compiles and links is the test: there may be no GPU to run kernels.
  set(cuda ${found} -DCMAKE_CUDA_COMPILER=${PLIMSOLL_NVCC} -DCMAKE_CUDA_ARCHITECTURES=90-real
    "-DCMAKE_CUDA_FLAGS=-Xcicc -O0 -Xptxas -O0")
  plimsoll_add_consumer(cuda ${consumer}/cuda OPTIONS ${cuda} RUN ./consumer)
  plimsoll_add_consumer(mixed ${consumer}/mixed OPTIONS ${cuda} RUN ./consumer)
  find_program(PLIMSOLL_GCC g++)
  mark_as_advanced(PLIMSOLL_GCC)
  if(PLIMSOLL_GCC)
    plimsoll_add_consumer(mixed_odr ${consumer}/mixed
      OPTIONS ${cuda} -DCMAKE_CXX_COMPILER=${PLIMSOLL_GCC} -DMIXED_ODR=ON RUN ./consumer)
  endif()
  plimsoll_add_package_test(include_cuda
    COMMAND ${compile} ${PLIMSOLL_NVCC} -Xcicc -O0 -Xptxas -O0 -arch=sm_90 -x cu -I${prefix}/include)
  plimsoll_add_package_test(every_device_header_counts
    COMMAND ${PLIMSOLL_BASH} ${packaging}/every_header_counts.sh ${prefix} ${CMAKE_CXX_COMPILER} ${PLIMSOLL_NVCC})
endif()

# --- examples, each copied to a folder of its own ----------------------------------------------------------
if(PLIMSOLL_BUILD_EXAMPLES)
  set(examples ${PROJECT_SOURCE_DIR}/examples)
  set(copies ${CMAKE_CURRENT_BINARY_DIR}/copies)
  # Compiling takes a fifth of the time of -O3, and outputs are the same; the examples themselves are optimized.
  set(optimization -O0)
  plimsoll_add_package_test(copies COMMAND ${PLIMSOLL_BASH} ${consumer}/copy_examples.sh ${examples} ${copies})
  set_tests_properties(package.copies PROPERTIES FIXTURES_SETUP plimsoll_copies)

  # plimsoll_add_copy(<name> [OPTIONS <cmake option>...] [RUN <command>...]): builds a copy against the
  # installed package. RUN is what it then runs, and <name>.expected, if there is one, the exact output.
  function(plimsoll_add_copy name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OPTIONS;RUN")
    set(run)
    if(arg_RUN)
      list(JOIN arg_RUN " " command)
      file(GLOB expected ${examples}/${name}.expected ${examples}/engines/${name}.expected)
      if(expected)
        string(APPEND command " | diff '${expected}' -")
      endif()
      set(run RUN ${PLIMSOLL_BASH} -o pipefail -c ${command})
    endif()
    plimsoll_add_consumer(copy_of_${name} ${copies}/${name}/project
      OPTIONS -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=${optimization}
              -DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS} ${arg_OPTIONS} ${run})
    set_tests_properties(package.copy_of_${name} PROPERTIES FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copies")
  endfunction()

  # Programs of one file, by one command of the compiler; all have the same CMakeLists.txt, which builds
  # the first of them, too.
  plimsoll_add_copy(hello_balance RUN ./hello_balance)
  file(GLOB sources CONFIGURE_DEPENDS ${examples}/*.cpp)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    plimsoll_add_package_test(one_command.${name} COMMAND ${PLIMSOLL_BASH} -o pipefail -c
      "cd '${copies}/${name}' && '${CMAKE_CXX_COMPILER}' -std=c++20 ${optimization} ${CMAKE_CXX_FLAGS} '-I${prefix}/include' project/${name}.cpp -o ${name} && ./${name} | diff '${examples}/${name}.expected' -")
    set_tests_properties(package.one_command.${name} PROPERTIES FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copies")
  endforeach()

  # A folder without dependencies needs no more than that either.
  plimsoll_add_package_test(one_command.online_balancer COMMAND ${PLIMSOLL_BASH} -o pipefail -c
    "cd '${copies}/online_balancer' && '${CMAKE_CXX_COMPILER}' -std=c++20 ${optimization} -pthread ${CMAKE_CXX_FLAGS} '-I${prefix}/include' project/main.cpp -o online_balancer && ./online_balancer | diff '${examples}/online_balancer.expected' -")
  set_tests_properties(package.one_command.online_balancer PROPERTIES FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copies")

  plimsoll_add_copy(cpp_engines RUN ./cpp_engines)
  # As engines build it: one file is C++20 and has the include path.
  separate_arguments(cxx_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  plimsoll_add_package_test(one_include_path.cpp_engines
    COMMAND ${PLIMSOLL_BASH} ${consumer}/cpp_engines.sh ${copies}/cpp_engines/project ${prefix}/include
            ${examples}/engines/cpp_engines.expected ${CMAKE_CXX_COMPILER} ${optimization} ${cxx_flags})
  set_tests_properties(package.one_include_path.cpp_engines PROPERTIES
    FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copies")

  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/loads.csv "3,1\n")
  plimsoll_add_copy(plan_experts RUN ./plan_experts '${CMAKE_CURRENT_BINARY_DIR}/loads.csv' --ranks 3 --slots 3)
  set_tests_properties(package.copy_of_plan_experts PROPERTIES
    FIXTURES_SETUP plimsoll_plan_experts COST 100) # takes longest: starts first
  plimsoll_add_copy(make_loads RUN ./make_loads --steps 1 --layers 2 --experts 8 --output loads.npy)

  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS CXX QUIET)
  if(MPI_CXX_FOUND)
    foreach(name IN ITEMS spill_step split_step)
      plimsoll_add_copy(${name} RUN ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 4 ./${name})
      set_tests_properties(package.copy_of_${name} PROPERTIES ENVIRONMENT "${plimsoll_mpi_environment}")
    endforeach()
    set(online_balancer_options OPTIONS -DONLINE_BALANCER_MPI=ON)
  endif()

  # Thrust comes with the CUDA Toolkit. Without nvcc, only the host parts of profile_ranks are built.
  if(PLIMSOLL_NVCC AND OpenMP_CXX_FOUND)
    plimsoll_add_copy(thrust_pipeline RUN ./thrust_pipeline)
  endif()
  if(PLIMSOLL_NVCC)
    plimsoll_add_copy(profile_ranks RUN ./profile_ranks --help
      OPTIONS -DCMAKE_CUDA_COMPILER=${PLIMSOLL_NVCC} -DCMAKE_CUDA_ARCHITECTURES=90-real)
  else()
    plimsoll_add_copy(profile_ranks OPTIONS -DPROFILE_RANKS_CUDA=OFF)
  endif()

  # What Python calls: the libraries, the program in Python with its output, and the tests.
  foreach(name IN ITEMS torch_ops tvm_ffi)
    plimsoll_add_package_test(copy_of_${name}
      COMMAND ${PLIMSOLL_BASH} ${consumer}/${name}.sh ${copies}/${name}/project ${prefix} ${CMAKE_CXX_COMPILER}
              ${CMAKE_CURRENT_SOURCE_DIR}/golden ${examples}/engines/${name}.expected ${PLIMSOLL_NVCC})
    set_tests_properties(package.copy_of_${name} PROPERTIES
      FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copies" SKIP_REGULAR_EXPRESSION "skipped: " COST 90 TIMEOUT 1200)
  endforeach()
  plimsoll_add_package_test(copy_of_engines
    COMMAND ${PLIMSOLL_BASH} ${consumer}/engines.sh ${examples}/engines ${copies} ${prefix} ${CMAKE_CXX_COMPILER}
            ${CMAKE_CURRENT_BINARY_DIR}/consumer_copy_of_plan_experts/plan_experts)
  set_tests_properties(package.copy_of_engines PROPERTIES
    FIXTURES_REQUIRED "plimsoll_prefix;plimsoll_copies;plimsoll_plan_experts" SKIP_REGULAR_EXPRESSION "skipped: " TIMEOUT 1200)

  # Every other folder gives a program without required arguments.
  set(special spill_step split_step thrust_pipeline)
  file(GLOB lists CONFIGURE_DEPENDS ${examples}/*/CMakeLists.txt)
  foreach(list IN LISTS lists)
    cmake_path(GET list PARENT_PATH folder)
    cmake_path(GET folder FILENAME name)
    if(NOT name IN_LIST special)
      plimsoll_add_copy(${name} RUN ./${name} ${${name}_options})
    endif()
  endforeach()
endif()
