#!/usr/bin/env bash
# alone.sh INCLUDE_DIR COMPILER PATH...: every .hpp there compiles as the only include, without a
# warning.
set -uo pipefail
cd "$1" || exit 1
export compiler=$2
shift 2
check() {
  "$compiler" -std=c++20 -fsyntax-only -fopenmp -I. -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror \
    -x c++ - <<<"#include <$1>" || { echo "^ $1 does not compile alone"; exit 1; }
}
export -f check
# shellcheck disable=SC2068  # patterns of files
headers=$(find $@ -name '*.hpp' | sort)
[[ -n $headers ]] || { echo "no headers in $PWD"; exit 1; }
xargs -P 2 -I{} bash -c 'check {}' <<<"$headers"
