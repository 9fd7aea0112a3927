#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quality.sh QUALITY MAKE_LOADS PLAN_EXPERTS: tests the rows of measured loads, on synthetic loads.
set -euo pipefail
quality=$1 make_loads=$2 plan_experts=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "quality.sh: $1"; exit 1; }
printed() { grep -qF -- "$1" out || fail "expected '$1' in: $(cat out)"; }

# Without traces, these rows are copied from the page, and are unknown if it has none.
export PLIMSOLL_TRACE_DIR=
old='| GLM-5.2, ten domains | 64 | 320 | anything |'
echo "$old" >page.md
"$quality" page.md >out 2>error
grep -qxF -- "$old" out || fail "$(cat out)"
printed '| GLM-5.2, ten domains | 32 | 288 | ? | ? |'
printed '| log-normal | 64 | 320 | 58 x 256 | 0.'
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"
cp out without

# With traces, they are generated: parts are summed, as plan_experts sums steps.
export PLIMSOLL_TRACE_DIR=traces
for file in glm-5.2-ten-domains/counts_by_domain gpt-oss-20b-decode/counts_by_dataset \
  olmoe-1b-7b-domains/counts deepseek-v2-lite-esft/counts_by_task; do
  mkdir -p "traces/${file%/*}"
  "$make_loads" --steps 3 --layers 2 --experts 40 --skew 1 --drift 1 --output "traces/$file.npy" >made
done
"$quality" page.md >out
! grep -qE '\?|anything' out || fail "expected all rows to be made: $(cat out)"
[[ $(wc -l <out) == $(wc -l <without) ]] || fail "expected as many lines as without traces: $(cat out)"
row=$(grep '^| OLMoE' out)
"$plan_experts" traces/olmoe-1b-7b-domains/counts.npy --ranks 16 --slots 72 --output plan.json >planned
cells=$(sed -nE '/sum of/,+1s/.* (before|after) +([0-9.]+) +[0-9.]+ +([0-9.]+) .*/\2 (\3)/p' planned |
  while read -r cell; do echo -n " | $cell"; done)
[[ $row == '| OLMoE-1B-7B, six domains | 16 | 72 | 2 x 40'"$cells | "* ]] ||
  fail "expected '$cells' in: $row"

# A missing trace is an error; its row is not copied from the page.
rm -r traces/olmoe-1b-7b-domains
code=0
"$quality" page.md >out 2>error || code=$?
((code == 2)) && grep -q 'counts.npy' error || fail "expected exit code 2, got $code and: $(cat error)"
