#!/usr/bin/env bash
# no_cuda.sh INCLUDE_DIR COMPILER: on a machine without CUDA the whole library includes none of it.
set -euo pipefail
included=$("$2" -std=c++20 -M -I"$1" -x c++ - <<<'#include <plimsoll/plimsoll.hpp>')
! grep -E '/(cuda|cub|thrust|nv)/|cuda[^ ]*\.h' <<<"$included"
