#!/usr/bin/env bash
# cost.sh INCLUDE_DIR COMPILER: what including the whole library costs on a machine without CUDA.
# The budget is relative to three common standard headers, as machines differ; processor time, best of five.
set -euo pipefail
budget=5 # times the standard headers
compile() { "$compiler" -std=c++20 -fsyntax-only -I"$include" -x c++ - <<<"$1"; }
include=$1
compiler=$2

ours='#include <plimsoll/plimsoll.hpp>'
standard=$'#include <vector>\n#include <algorithm>\n#include <string>'

if "$compiler" -std=c++20 -M -I"$include" -x c++ - <<<"$ours" | grep -E '/(cuda|cub|thrust|nv)/|cuda[^ ]*\.h'; then
  echo "the host headers reach for CUDA"
  exit 1
fi

milliseconds() {
  local best= run TIMEFORMAT='%U %S'
  for run in 1 2 3 4 5; do
    run=$({ time compile "$1" >&3 2>&3; } 2>&1 3>&2 | awk '{ printf "%d", 1000 * ($1 + $2) }')
    [[ -n $best ]] && ((best <= run)) || best=$run
  done
  echo "$best"
}
compile "$ours"
ours_ms=$(milliseconds "$ours")
standard_ms=$(milliseconds "$standard")
echo "<plimsoll/plimsoll.hpp>: $ours_ms ms; <vector>, <algorithm> and <string>: $standard_ms ms"
((ours_ms <= budget * standard_ms)) || { echo "more than $budget times the standard headers"; exit 1; }
