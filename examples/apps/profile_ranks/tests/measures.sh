#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# measures.sh PROGRAMS
# Measures small experts on the first GPU and plans with their curves. PROGRAMS is the folder of
# profile_ranks, plan_experts and make_loads. Exits with 77 if there is no GPU.
set -euo pipefail
programs=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "measures.sh: $1"; exit 1; }

code=0
"$programs/profile_ranks" --hidden 512 --intermediate 256 --experts 2 --max-tokens 2048 --launches 20 \
  --device 0 --output curves.json >printed 2>message || code=$?
cat printed message
if ((code == 77)); then
  grep -q '^profile_ranks: no GPU: ' message || fail "expected a word about the GPU"
  [[ $(ls | tr '\n' ' ') == 'message printed ' ]] || fail "expected no file, got: $(ls)"
  exit 77
fi
((code == 0)) || fail "expected exit code 0, got $code"
grep -Eq '^rank 0 \(.*\): 10 samples, [0-9.]+ us for 64 tokens to [0-9.]+ us for 2560' printed || fail "expected the samples"
"$programs/make_loads" --steps 4 --layers 2 --experts 16 --tokens 1024 --top-k 2 --output loads.npy >/dev/null
"$programs/plan_experts" loads.npy --planner gem --latency curves.json --ranks 8 >printed
grep -q '^planned from the last 4 of 4 steps' printed || fail "$(cat printed)"

code=0
"$programs/profile_ranks" --hidden 512 --intermediate 256 --device 1023 --output curves.json 2>message || code=$?
((code == 2)) && grep -q '^profile_ranks: --device: expected one of the ' message || fail "expected a refusal: $(cat message)"
