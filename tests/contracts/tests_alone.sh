#!/usr/bin/env bash
# tests_alone.sh: every test file compiles as a program of its own, without a warning, by clang++ and
# where it is at hand by nvcc. Joined programs (PLIMSOLL_TEST_JOINED) hide a missing #include.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
compile() {
  local flags=(-std=c++20 -Iinclude -Itests '-DPLIMSOLL_TESTS_DIR="tests"' -DPLIMSOLL_TEST_FEW_TYPES)
  if [[ $1 == *.cu ]]; then
    "${CUDACXX:-nvcc}" "${flags[@]}" -arch=compute_90 -ptx -Xcicc -O0 -Xcompiler=-fopenmp -Werror all-warnings -o /dev/null "$1"
  else
    clang++ "${flags[@]}" -fsyntax-only -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror "$1"
  fi || { echo "^ $1 does not compile alone"; return 1; }
}
export -f compile
names=(-name '*.test.cpp')
if command -v "${CUDACXX:-nvcc}" >/dev/null; then
  names+=(-o -name '*.test.cu')
fi
files=$(find tests \( "${names[@]}" \) | sort)
[[ -n $files ]] || { echo "no test files in $PWD"; exit 1; }
xargs -P "$(nproc)" -I{} bash -c 'compile {}' <<<"$files" || exit 1
echo "$(wc -l <<<"$files") test files compile alone"
