#!/usr/bin/env bash
# alone.sh INCLUDE_DIR COMPILER: every .hpp compiles as the only include, without a warning.
set -uo pipefail
cd "$1" || exit 1
export compiler=$2
check() {
  "$compiler" -std=c++20 -fsyntax-only -fopenmp -I. -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror \
    -x c++ - <<<"#include <$1>" || { echo "^ $1 does not compile alone"; exit 1; }
}
export -f check
headers=$(find plimsoll -name '*.hpp' | sort)
[[ -n $headers ]] || { echo "no headers in $1"; exit 1; }
xargs -P 2 -I{} bash -c 'check {}' <<<"$headers"
