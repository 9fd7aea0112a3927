#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# splits.sh SPLITS MAKE_LOADS: tests the rows of measured loads, on synthetic loads.
set -euo pipefail
splits=$1 make_loads=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "splits.sh: $1"; exit 1; }

# Without traces, these rows are copied from the page.
export PLIMSOLL_TRACE_DIR=
old='| GLM-5.2, 80 chunks | anything |'
echo "$old" >page.md
"$splits" page.md >out 2>error
[[ $(tail -n 1 out) == "$old" ]] || fail "$(cat out)"
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"

# Every family's ratios are at least 1, gaps within the tolerance, and no split better than the best.
awk -F ' *[|] *' '
  /^$/ { exit }
  NR > 2 {
    ++rows; instances += $3
    split($4, even, " / "); split($5, five, " / ")
    if (even[1] < 1 || even[2] < even[1] || $7 > 1e-6 || $8 > $3) bad = 1
    if (five[1] < 1 || five[2] < five[1]) bad = 1
  }
  END { exit bad || rows != 13 || instances != 1000 }' out || fail "$(cat out)"

# With traces, they are generated: the exact split has the lowest peaks.
export PLIMSOLL_TRACE_DIR=traces
mkdir -p traces/glm-5.2-ten-domains
"$make_loads" --steps 4 --layers 2 --experts 80 --skew 1 --drift 0.2 \
  --output traces/glm-5.2-ten-domains/counts_by_chunk.npy >made
"$splits" page.md >out
grep '^| GLM-5.2, 80 chunks' out >rows
(($(wc -l <rows) == 4)) || fail "expected 4 rows: $(cat out)"
awk -F ' *[|] *' '{ if ($7 < 1 || $7 > $6 || $7 >= $5) exit 1 }' rows || fail "$(cat rows)"

# A missing trace is an error; its rows are not copied from the page.
rm -r traces/glm-5.2-ten-domains
code=0
"$splits" page.md >out 2>error || code=$?
((code == 2)) && grep -q counts_by_chunk error || fail "expected exit code 2, got $code and: $(cat error)"
