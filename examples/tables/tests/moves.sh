#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# moves.sh FOLDER MAKE_LOADS: tests the programs moves, move_budgets, transfer_rounds, move_prices and
# move_curve, which are in FOLDER, on synthetic loads.
set -euo pipefail
programs=$1 make_loads=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "moves.sh: $1"; exit 1; }
tables=(moves move_budgets transfer_rounds move_prices)

# Without traces, the rows are copied from the table of the page, and from no other table.
export PLIMSOLL_TRACE_DIR=
for name in "${tables[@]}"; do
  printf '%s\n' '| 64 + 64 | other |' "<!-- table: examples/tables/$name -->" '| head |' '|---|' '| 8 + 8 | anything |' \
    '<!-- end of table -->' '| 64 + 64 | other |' >page.md
  "$programs/$name" page.md >out 2>error
  [[ $(sed 1,2d out) == '| 8 + 8 | anything |' ]] || fail "$name: $(cat out)"
  grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$name: $(cat error)"
done

# With traces, they are generated.
export PLIMSOLL_TRACE_DIR=traces
mkdir -p traces/glm-5.2-ten-domains
"$make_loads" --steps 10 --layers 8 --experts 96 --skew 1 --drift 0.8 \
  --output traces/glm-5.2-ten-domains/counts_by_chunk.npy >made
for name in "${tables[@]}"; do
  "$programs/$name" page.md >"$name"
done

# An alignment moves no more than the plan as it is, and changes no balance.
awk -F ' *[|] *' '
  NR > 2 { ++rows }
  $3 == "plan in use" { if ($4 + $5 + $6 != 0) exit 1 }
  $3 == "EPLB, every slot loaded again" { if ($4 != 100) exit 1 }
  $3 == "EPLB, changed slots" { raw = $4; copies = $5; even = $7 }
  $3 ~ /preserve/ { if ($4 != raw || $5 > copies) exit 1 }
  $3 ~ /^EPLB, `align`/ { if ($4 > raw || $7 != even) exit 1 }
  $3 == "EPLB, `align`" { if ($4 > 0.9 * raw) exit 1 }
  END { exit rows != 32 }' moves || fail "$(cat moves)"

# A larger budget has larger gains, and the full budget at least that of the fresh plan.
awk -F ' *[|] *' '
  NR > 2 {
    ++rows
    if ($4 == 0 ? $5 + $8 != 0 : $8 < gain) exit 1
    if ($4 == 100 && $8 < 100) exit 1
    gain = $8
  }
  END { exit rows != 42 }' move_budgets || fail "$(cat move_budgets)"

# Every list is within one round of its bound, and at the bound if each direction counts by itself.
awk -F ' *[|] *' '
  NR > 2 {
    ++rows
    if ($5 < $6 || $5 > $6 + 1) exit 1
    if ($4 ~ /send/ && $5 != $6) exit 1
  }
  END { exit rows != 12 }' transfer_rounds || fail "$(cat transfer_rounds)"

# A price moves fewer experts, and a high price fewer than a low one.
awk -F ' *[|] *' '
  NR > 2 {
    ++rows
    moves[$3] += $4
    balance[$3] += $6
  }
  END { exit rows != 21 || moves[0.001] >= moves[0] || moves[0.05] >= moves[0.001] || balance[0.05] >= balance[0.001] }
  ' move_prices || fail "$(cat move_prices)"

# The picture has a line for both splits, and a mark for every plan.
for name in moves move_budgets; do
  echo "<!-- table: examples/tables/$name -->"
  cat "$name"
  echo '<!-- end of table -->'
done >page.md
"$programs/move_curve" page.md >picture
[[ $(grep -c 'path class="[vo]" d="M[0-9.]* [0-9.]*L' picture) == 2 ]] || fail "$(cat picture)"
[[ $(grep -c '^<path class="[pq]"' picture) == 7 ]] || fail "$(cat picture)"
grep -v '| 64 + 64 | EPLB, `align` |' page.md >part.md
code=0
"$programs/move_curve" part.md >picture 2>error || code=$?
((code == 2)) && grep -q 'no row of EPLB, `align`' error || fail "expected exit code 2, got $code: $(cat error)"

# A missing trace is an error; its rows are not copied from the page.
rm -r traces/glm-5.2-ten-domains
for name in "${tables[@]}"; do
  code=0
  "$programs/$name" page.md >out 2>error || code=$?
  ((code == 2)) && grep -q counts_by_chunk error || fail "$name: expected exit code 2, got $code: $(cat error)"
done
