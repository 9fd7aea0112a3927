# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/<name>.fuzz.cpp -> ctest fuzz.<name>: libFuzzer with AddressSanitizer and
# UndefinedBehaviorSanitizer for a fixed seed and number of inputs, from the files in
# tests/fuzz/corpus/<name>. To search longer, run tests/fuzz/<name> of the build folder by hand. A
# build without the examples, whose readers most of these test, leaves them out; so does a build that
# has a sanitizer of its own.
option(PLIMSOLL_TEST_FUZZ "Fuzz readers and checks in the tests" ON)
mark_as_advanced(PLIMSOLL_TEST_FUZZ)
add_custom_target(plimsoll_fuzz)
if(PLIMSOLL_TEST_FUZZ AND PLIMSOLL_CLANGXX AND PLIMSOLL_BUILD_EXAMPLES AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(libraries_plan_file -lyaml-cpp -lfmt)
  set(libraries_curves_file -lyaml-cpp)
  file(GLOB sources CONFIGURE_DEPENDS fuzz/*.fuzz.cpp)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fuzz)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    string(REPLACE ".fuzz" "" name ${name})
    set(program ${CMAKE_CURRENT_BINARY_DIR}/fuzz/${name})
    add_custom_command(OUTPUT ${program}
      COMMAND ${PLIMSOLL_CLANGXX} -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined
              -fno-sanitize-recover=all -I${PROJECT_SOURCE_DIR}/include -MD -MF ${program}.d
              ${source} ${libraries_${name}} -o ${program}
      DEPENDS ${source} DEPFILE ${program}.d VERBATIM)
    add_custom_target(fuzz_${name} ALL DEPENDS ${program})
    add_dependencies(plimsoll_fuzz fuzz_${name})
    file(GLOB corpus CONFIGURE_DEPENDS fuzz/corpus/${name}/*)
    list(JOIN corpus "," seeds)  # named one by one, since libFuzzer writes into folders
    if(seeds)
      string(PREPEND seeds "-seed_inputs=")
    endif()
    plimsoll_add_ctest(fuzz.${name} LABELS fuzz
      COMMAND ${program} -seed=1 -runs=50000 -verbosity=0 ${seeds})
  endforeach()
endif()
