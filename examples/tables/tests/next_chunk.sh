#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# next_chunk.sh NEXT_CHUNK MAKE_LOADS: tests the rows of measured loads, on synthetic loads.
set -euo pipefail
next_chunk=$1 make_loads=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "next_chunk.sh: $1"; exit 1; }

# Without traces, the rows are copied from the page.
export PLIMSOLL_TRACE_DIR=
old='| unseen steps of GLM-5.2, one domain | anything |'
echo "$old" >page.md
"$next_chunk" page.md >out 2>error
[[ $(tail -n 1 out) == "$old" ]] || fail "$(cat out)"
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"

# With traces, they are generated. No split of a plan is better balanced than the optimal one.
export PLIMSOLL_TRACE_DIR=traces
make() { # FOLDER FILE STEPS
  mkdir -p "traces/$1"
  "$make_loads" --steps "$3" --layers 1 --experts 64 --skew 1 --drift 0.3 --output "traces/$1/$2.npy" >made
}
make glm-5.2-ten-domains counts_by_chunk 80
make gpt-oss-20b-decode counts_by_decode_step 251
make deepseek-v2-lite-esft counts_by_256tok 32
"$next_chunk" page.md >out
awk -F ' *[|] *' '
  NR > 2 {
    ++rows
    for (i = 5; i <= 7; ++i) if ($i <= 0 || $i > 1) exit 1
    if ($6 > $7) exit 1
    if ($4 == "EPLB + joint") joint += $5
    if ($4 == "EPLB") eplb += $5
  }
  END { exit rows != 54 || joint <= eplb }' out || fail "$(cat out)"

# A missing trace is an error; its rows are not copied from the page.
rm -r traces/gpt-oss-20b-decode
code=0
"$next_chunk" page.md >out 2>error || code=$?
((code == 2)) && grep -q counts_by_decode_step error ||
  fail "expected exit code 2, got $code and: $(cat error)"
