#!/usr/bin/env bash
# alone.sh: every header as the only include, and every host test file as a program of its own compile with
# clang++ without a warning; all headers together do with g++, whose standard library is the same. Other
# includes and joined programs (PLIMSOLL_TEST_JOINED) hide a missing #include.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
compile() { # COMPILER FILE-OR-HEADER...
  local flags=(-std=c++20 -Iinclude -fsyntax-only -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
  if [[ $2 == tests/* ]]; then
    "$1" "${flags[@]}" -Itests '-DPLIMSOLL_TESTS_DIR="tests"' -DPLIMSOLL_TEST_FEW_TYPES "$2"
  else
    "$1" "${flags[@]}" -Wsign-conversion -x c++ - < <(printf '#include <%s>\n' "${@:2}")
  fi || { echo "^ ${*:2} do not compile with $1"; return 1; }
}
export -f compile

mapfile -t headers < <(cd include && find plimsoll -name '*.hpp' | sort)
mapfile -t files < <(find tests -name '*.test.cpp' | sort)
((${#headers[@]} && ${#files[@]})) || { echo "no headers or no test files in $PWD"; exit 1; }
compile g++ "${headers[@]}" || exit 1
printf '%s\n' "${headers[@]}" "${files[@]}" | xargs -P "$(nproc)" -I{} bash -c 'compile clang++ {}' || exit 1
echo "${#headers[@]} headers and ${#files[@]} test files compile alone"
