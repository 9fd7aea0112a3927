#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# replicas.sh REPLICAS MAKE_LOADS: tests the rows of measured loads, on synthetic loads.
set -euo pipefail
replicas=$1 make_loads=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "replicas.sh: $1"; exit 1; }

# Without traces, these rows are copied from the page.
export PLIMSOLL_TRACE_DIR=
old='| GLM-5.2, 80 chunks | anything |'
echo "$old" >page.md
"$replicas" page.md >out 2>error
[[ $(tail -n 1 out) == "$old" ]] || fail "$(cat out)"
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"
(($(grep -c '^| rising skew' out) == 11)) || fail "expected 11 rows: $(cat out)"
grep -qE '^\| rising skew \| EPLB, no replicas \| 0 \| 0 \| [0-9.]+ \(0 %\) \| [0-9.]+ \(0 %\) ' out ||
  fail "expected nothing kept without replicas: $(cat out)"
grep -qE '^\| rising skew \| EPLB, 32 in each layer \| 768 \| 32 \| [0-9.]+ \(100 %\) ' out ||
  fail "expected EPLB to keep all of its gain: $(cat out)"
cp out without

# With traces, they are generated.
export PLIMSOLL_TRACE_DIR=traces
mkdir -p traces/glm-5.2-ten-domains
"$make_loads" --steps 4 --layers 2 --experts 80 --skew 1 --drift 0.2 \
  --output traces/glm-5.2-ten-domains/counts_by_chunk.npy >made
"$replicas" page.md >out
! grep -q anything out || fail "expected all rows to be made: $(cat out)"
(($(grep -c '^| GLM-5.2, 80 chunks' out) == 11)) || fail "expected 11 rows: $(cat out)"
diff <(grep '^| rising' without) <(grep '^| rising' out) || fail "expected the other rows as before"

# A missing trace is an error; its rows are not copied from the page.
rm -r traces/glm-5.2-ten-domains
code=0
"$replicas" page.md >out 2>error || code=$?
((code == 2)) && grep -q counts_by_chunk error || fail "expected exit code 2, got $code and: $(cat error)"
