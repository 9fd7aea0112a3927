#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# accepts.sh CASE PROGRAMS INPUTS EXPECTED
# One case below per ctest entry. PROGRAMS is the folder of plan_experts, make_loads, check_plan;
# INPUTS the one that make_inputs filled; EXPECTED the one with the tables to compare with.
set -euo pipefail
case=$1 programs=$2 inputs=$3 expected=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

plan() { "$programs/plan_experts" "$@"; }
loads() { "$programs/make_loads" "$@"; }
fail() { echo "accepts.sh: $1"; exit 1; }
same() { cmp "$1" "$2" || fail "expected $1 and $2 to be equal"; }

# The table, with the time left out.
table() {
  plan "$@" >printed
  sed -E 's/[0-9]+\.[0-9]+ ms/# ms/' printed >table
  grep -q '# ms' table || fail "expected a planning time"
}

drifting() {
  loads --steps 6 --layers 5 --experts 64 --tokens 2048 --top-k 6 --skew 0.8 --drift 0.2 --seed 7 \
    --output "$1"
}

case_table() {
  table "$inputs/loads.npy" --ranks 4 --slots 8 --output plan.json
  diff "$expected/loads.expected" table
  "$programs/check_plan" "$inputs/loads.npy" plan.json 4 8 0.9
  [[ $(ls) == $'plan.json\nprinted\ntable' ]] || fail "expected no other file, got: $(ls)"
}

case_same_plan_from_any_file() {
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output two.json
  for other in steps floats floats32; do
    plan "$inputs/$other.npy" --ranks 4 --slots 8 --output other.json
    same two.json other.json
  done
}

case_no_load() {
  plan "$inputs/zeros.npy" --ranks 2 --slots 4 --output plan.json
  "$programs/check_plan" "$inputs/zeros.npy" plan.json 2 4 1
}

case_uneven_slots() {
  drifting loads.npy
  plan loads.npy --ranks 7 --slots 80 --output plan.json
  "$programs/check_plan" loads.npy plan.json 7 80 0.9
}

case_no_output() {
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --planner eplb --policy seq >/dev/null
  [[ -z $(ls -A) ]] || fail "expected no file, got: $(ls -A)"
}

case_output_replaces() {
  echo old >real.json
  ln -s real.json link.json
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output link.json
  [[ -L link.json ]] || fail "expected the link to stay a link"
  "$programs/check_plan" "$inputs/loads.npy" real.json 4 8 0.9
}

case_refusal_keeps_the_old_file() {
  echo old >plan.json
  plan "$inputs/negative.npy" --ranks 2 --slots 2 --output plan.json && fail "expected a refusal"
  [[ $(cat plan.json) == old && $(ls -A) == plan.json ]] || fail "expected the old file alone"
}

case_help() {
  plan --help | grep -q -- '--slots' || fail "expected the options of plan_experts"
  loads --help | grep -q -- '--skew' || fail "expected the options of make_loads"
}

case_omp() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --policy seq --output seq.json
  for threads in 1 2 5; do
    OMP_NUM_THREADS=$threads plan loads.npy --ranks 8 --slots 80 --policy omp --output omp.json
    same seq.json omp.json
  done
  "$programs/check_plan" loads.npy omp.json 8 80 0.95
}

# Without a GPU the program must say so; the case then counts as skipped, not as passed.
case_gpu() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --policy seq --output seq.json
  local code=0
  plan loads.npy --ranks 8 --slots 80 --policy gpu --output gpu.json 2>message || code=$?
  if ((code == 2)) && grep -Eq 'no CUDA-capable device|driver version' message; then
    grep -Eq '^plan_experts: --policy: expected a GPU .*, got ' message || fail "$(cat message)"
    [[ ! -e gpu.json ]] || fail "expected no file"
    echo "skipped: $(cat message)"
    exit 0
  fi
  ((code == 0)) || fail "$(cat message)"
  same seq.json gpu.json
}

case_make_loads() {
  drifting a.npy >printed
  grep -Fxq 'a.npy: steps 6, layers 5, experts 64, token copies per layer and step 12288' printed ||
    fail "expected another line than: $(cat printed)"
  drifting b.npy
  same a.npy b.npy
  # Committed, because the same options must give the same bytes on every machine.
  [[ $(sha256sum <a.npy) == "$(cat "$expected/make_loads.sha256")" ]] ||
    fail "expected the bytes of make_loads.sha256, got $(sha256sum <a.npy)"
  "$programs/check_loads" a.npy 6 5 64 2048 6
}

case_make_loads_extremes() {
  loads --steps 1 --layers 1 --experts 1 --tokens 5 --top-k 1 --output one.npy
  "$programs/check_loads" one.npy 1 1 1 5 1
  loads --steps 3 --layers 2 --experts 9 --tokens 7 --top-k 9 --skew 16 --drift 16 --output all.npy
  "$programs/check_loads" all.npy 3 2 9 7 9
  loads --steps 40 --layers 1 --experts 300 --tokens 2147483647 --top-k 300 --skew 3 \
    --output big.npy
  "$programs/check_loads" big.npy 40 1 300 2147483647 300
  loads --steps 2 --layers 1 --experts 10 --tokens 10 --top-k 3 --skew 0 --drift 0 --output even.npy
  "$programs/check_loads" even.npy 2 1 10 10 3
}

# A file size limit stands in for a full disk: the write fails half way.
case_make_loads_full_disk() {
  local code=0
  (
    trap '' XFSZ
    ulimit -f 8
    loads --steps 9 --layers 9 --experts 256 --output loads.npy
  ) 2>message || code=$?
  ((code == 2)) || fail "expected exit code 2, got $code: $(cat message)"
  grep -q '^make_loads: --output: expected a file that can be written, got ' message ||
    fail "$(cat message)"
  [[ $(ls) == message ]] || fail "expected no file, got: $(ls)"
}

case_trace() {
  local trace=${PLIMSOLL_TRACE_DIR:-}
  if [[ -z $trace || ! -d $trace ]]; then
    echo "skipped: PLIMSOLL_TRACE_DIR names no folder"
    exit 0
  fi
  local file=$trace/glm-5.2-ten-domains/counts_by_domain.npy
  plan "$file" --ranks 64 --slots 320 --output plan.json
  "$programs/check_plan" "$file" plan.json 64 320 0.977
}

"case_$case"
