#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# accepts.sh CASE PROGRAMS INPUTS EXPECTED
# Runs one of the cases below; each is a ctest entry. PROGRAMS is the folder of plan_experts, make_loads
# and check_plan, INPUTS the folder that make_inputs filled, and EXPECTED the folder with the expected
# tables.
set -euo pipefail
case=$1 programs=$2 inputs=$3 expected=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

plan() { "$programs/plan_experts" "$@"; }
loads() { "$programs/make_loads" "$@"; }
fail() { echo "accepts.sh: $1"; exit 1; }
same() { cmp "$1" "$2" || fail "expected $1 and $2 to be equal"; }

# Prints the table, without the time.
table() {
  plan "$@" >printed
  sed -E "s/[0-9]+\.[0-9]+ ms/# ms/; s|$inputs/||g" printed >table
  grep -q '# ms' table || fail "expected a planning time"
}

# Compares the table with NAME.expected; writes that where PLIMSOLL_UPDATE_EXPECTED is set.
expect_table() { # NAME
  [[ ! ${PLIMSOLL_UPDATE_EXPECTED-} ]] || cp table "$expected/$1.expected"
  diff "$expected/$1.expected" table
}

drifting() {
  loads --steps 6 --layers 5 --experts 64 --tokens 2048 --top-k 6 --skew 0.8 --drift 0.2 --seed 7 \
    --output "$1"
}

case_table() {
  table "$inputs/loads.npy" --ranks 4 --slots 8 --output plan.json
  expect_table loads
  "$programs/check_plan" "$inputs/loads.npy" plan.json 4 8 0.9
  [[ $(ls) == $'plan.json\nprinted\ntable' ]] || fail "expected no other file, got: $(ls)"
}

case_same_plan_from_any_file() {
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output two.json
  for other in steps.npy floats.npy floats32.npy loads.json loads.csv; do
    plan "$inputs/$other" --ranks 4 --slots 8 --output other.json
    same two.json other.json
    plan - --ranks 4 --slots 8 --output other.json <"$inputs/$other"
    same two.json other.json
  done
}

# Writes the plan in $1, for loads $2 on $3 ranks, in every format, and reads the same plan back.
round_trips() {
  local format name
  for format in plimsoll sglang trtllm vllm vllm-ascend npy; do
    case $format in trtllm) name=$format.yaml ;; npy) name=$format.npy ;; *) name=$format.json ;; esac
    plan "$2" --plan "$1" --planner none --ranks "$3" --format $format --output "$name" "${@:4}" >/dev/null
    plan "$2" --plan "$name" --planner none --ranks "$3" --output again.json "${@:4}" >/dev/null
    same "$1" again.json
  done
}

case_formats() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --apart rank --output plan.json
  round_trips plan.json loads.npy 8
  # Layers 3, 4 and 7 of a model of nine layers, of which three were measured.
  plan loads.npy --layers 1:4 --layer-ids 3,4,7 --ranks 4 --replicas-per-rank 4 \
    --apart rank --output plan.json
  round_trips plan.json loads.npy 4 --layers 1:4 --layer-ids 3,4,7 --model-layers 9
  [[ $(wc -l <sglang.json) == 11 ]] || fail "expected a row for each of the nine layers"
  grep -q '^  7: ' trtllm.yaml || fail "expected the model's layer 7"
}

# Without --ranks and --slots, those of the plan in use are taken.
case_plan_in_use() {
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output old.json
  table "$inputs/loads.npy" --plan old.json --output new.json
  same old.json new.json
  grep -Eq '^ +before +0\.9688 ' table && fail "expected the loads' name before 'before'"
  grep -Eq 'loads\.npy +before +0\.9688 ' table || fail "expected the plan in use as 'before': $(cat table)"
  grep -q '^before: old.json$' table || fail "expected the name of the plan in use"
  plan "$inputs/loads.npy" --plan old.json --slots 12 --output new.json
  "$programs/check_plan" "$inputs/loads.npy" new.json 4 12 0.97
}

case_evaluate() {
  table "$inputs/steps.npy" --ranks 4 --slots 8 --evaluate "$inputs/other.npy" --expert-bytes 1MB
  expect_table evaluate
}

# Rows after a dense layer: the plan has the layer ids of the model.
case_layers() {
  plan "$inputs/loads.npy" --layer-ids 1: --ranks 4 --slots 8 --output two.json
  plan "$inputs/dense.npy" --layers 1: --ranks 4 --slots 8 --output dense.json
  same two.json dense.json
  plan "$inputs/loads.npy" --layer-ids 1: --ranks 4 --slots 8 --model-layers 4 --format sglang \
    --output sglang.json >printed
  grep -q '^2 layers (1 to 2) of 6 experts' printed || fail "$(cat printed)"
  [[ $(sed -n '2p;5p' sglang.json) == $'[0,1,2,3,4,5,0,1],\n[0,1,2,3,4,5,0,1]' ]] ||
    fail "expected the identity in layers 0 and 3: $(cat sglang.json)"
}

case_nodes_and_refinement() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --nodes 2 --groups 8 --output nodes.json >printed
  grep -q '(eplb, 8 groups on 2 nodes, seq,' printed || fail "$(cat printed)"
  "$programs/check_plan" loads.npy nodes.json 8 80 0.9
  plan loads.npy --ranks 8 --slots 80 --refine joint --output joint.json >printed
  grep -q '(eplb, refined by joint, seq,' printed || fail "$(cat printed)"
  "$programs/check_plan" loads.npy joint.json 8 80 0.98
}

# Loads that change from step to step, so that replicas pay more in some layers than in others.
case_craft() {
  drifting loads.npy
  plan loads.npy --planner craft --ranks 8 --output auto.json --json result.json --report report.html >printed
  "$programs/check_plan" loads.npy auto.json 8 uneven 0.9
  "$programs/check_report" report.html result.json
  grep -q '^replicas: .* (chosen at the knee), ' printed || fail "$(cat printed)"
  plan loads.npy --planner craft --ranks 8 --replicas-per-rank auto --output same.json
  same auto.json same.json
  plan loads.npy --planner craft --ranks 8 --replicas-per-rank 3 --output three.json >printed
  grep -q '^replicas: 3 on each rank over all layers (as asked.*), 24 in all, ' printed || fail "$(cat printed)"
  # The bytes of 3.5 experts allow 3 on each rank.
  plan loads.npy --planner craft --ranks 8 --expert-bytes 2MB --budget-bytes 7MB --output bytes.json >printed
  grep -q '^replicas: 3 on each rank over all layers (as many as 6.68 MiB hold.*), 24 in all, ' printed || fail "$(cat printed)"
  same three.json bytes.json
  plan loads.npy --planner craft --ranks 8 --replicas-per-rank 0 --output none.json >/dev/null
  "$programs/check_plan" loads.npy none.json 8 64 0
  # A single step, with only one of the layers planned.
  plan "$inputs/loads.npy" --planner craft --ranks 4 --layers :1 --output one.json >/dev/null
  plan - --planner craft --ranks 4 --layers :1 --output pipe.json <"$inputs/loads.csv" >/dev/null
  same one.json pipe.json
}

# The planner that lasts longest within the loads, and flow placement, for either split.
case_auto() {
  drifting loads.npy
  plan loads.npy --planner auto --split optimal --ranks 8 --slots 72 --output auto.json --json result.json >printed
  "$programs/check_plan" loads.npy auto.json 8 72 0
  grep -q '^planner chosen: flow_optimal$' printed || fail "$(cat printed)"
  grep -q '^  eplb_spread   0\.' printed || fail "$(cat printed)"
  grep -q '"split": "optimal"' result.json || fail "expected the split in the JSON file"
  plan loads.npy --planner flow --split optimal --ranks 8 --slots 72 --output flow.json >printed
  same auto.json flow.json
  grep -Eq '^mean balancedness of steps that a plan had not seen, optimal split: 0\.' printed || fail "$(cat printed)"
  plan loads.npy --planner flow --ranks 8 --slots 72 --output even.json >/dev/null
  ! cmp -s flow.json even.json || fail "expected another plan for the even split"
  plan loads.npy --planner flow --nodes 2 --ranks 8 --slots 72 --output nodes.json >/dev/null
  "$programs/check_plan" loads.npy nodes.json 8 72 0
  # A single step has no other half.
  plan "$inputs/loads.npy" --planner auto --ranks 4 --slots 8 --output one.json >printed
  grep -q '^  flow_even     not judged$' printed || fail "$(cat printed)"
  # A refinement of the loads at hand is worth little on others.
  plan "$inputs/steps.npy" --ranks 4 --slots 8 --refine packing --evaluate "$inputs/other.npy" >printed
  grep -Eq '^warning: --refine packing changes nothing unseen: ' printed || fail "$(cat printed)"
}

case_auto_table() {
  table "$inputs/steps.npy" --planner auto --split optimal --ranks 4 --slots 8 --evaluate "$inputs/other.npy" --layer-ids 3:
  expect_table auto
}

# Runs plan_experts with --verdict; expects the exit status $1 and a verdict that begins with $2.
says() {
  local status=0
  plan "${@:3}" --verdict >printed || status=$?
  grep -q "^verdict: $2: " printed || fail "expected '$2', got: $(grep '^verdict' printed)"
  [[ $status == "$1" ]] || fail "expected exit status $1, got $status"
  grep -q '^what would change it: ' printed || fail "$(cat printed)"
}
case_verdict() {
  local how=(--planner flow --split optimal --ranks 8) workload
  for workload in w0 w1 w2; do
    loads --workload $workload --steps 8 --layers 4 --experts 64 --tokens 2048 --top-k 6 --output $workload.npy
  done
  says 3 'not now' w0.npy "${how[@]}" --slots 64
  for workload in w1 w2; do
    says 0 'try it' $workload.npy "${how[@]}" --slots 72 --output plan.json --json result.json
    grep -q '"decision": {"answer":"move",' result.json || fail "$(grep decision result.json)"
  done
  says 3 'not now' w1.npy "${how[@]}" --slots 72 --flat-below 8000
  loads --workload w1 --steps 2 --layers 4 --experts 64 --tokens 2048 --top-k 6 --output two.npy
  says 4 'not enough to tell' two.npy "${how[@]}" --slots 72
  # Moves must pay within the horizon.
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 72 --output old.json >/dev/null
  local moved=(w1.npy "${how[@]}" --slots 72 --previous old.json --expert-bytes 44MB)
  says 0 'try it' "${moved[@]}" --horizon 1000
  local steps
  steps=$(sed -nE 's/^verdict: .* pay after ([0-9]+) steps?$/\1/p' printed)
  says 3 'not now' "${moved[@]}" --horizon $((steps - 1))
  says 0 'try it' "${moved[@]}" --horizon "$steps"
  # A plan that was read is judged on all steps.
  says 0 'try it' w1.npy --planner none --plan plan.json --previous old.json --ranks 8
  # Every other planner.
  says 0 'try it' w1.npy --ranks 8 --slots 72
  says 0 'try it' w1.npy --ranks 8 --slots 72 --planner auto --policy seq
  says 0 'try it' w1.npy --ranks 4 --slots 72 --planner gem --latency "$inputs/curves.json" --restarts 1
}

case_craft_table() {
  table "$inputs/steps.npy" --planner craft --ranks 5 --layer-ids 3: --expert-bytes 1MB --replicas-per-rank 1
  expect_table craft
}

# A plan of craft can be in use, be measured on other loads, keep to nodes, and be refined, like any other.
case_craft_plan_in_use() {
  drifting loads.npy
  plan loads.npy --planner craft --ranks 7 --nodes 2 --apart node --refine joint --output old.json >/dev/null
  "$programs/check_plan" loads.npy old.json 7 uneven 0.9
  plan loads.npy --planner none --plan old.json --evaluate loads.npy --output again.json \
    --report report.html --json result.json >/dev/null
  same old.json again.json
  "$programs/check_report" report.html result.json
  plan loads.npy --planner craft --plan old.json --layer-ids 0: --evaluate loads.npy --output new.json \
    --report report.html --json result.json >printed
  grep -q '^before: old.json$' printed || fail "$(cat printed)"
  "$programs/check_plan" loads.npy new.json 7 uneven 0.9
  "$programs/check_report" report.html result.json
}

# Formats that cannot express different numbers of slots name the place, and leave no file.
case_craft_formats() {
  drifting loads.npy
  local format name ranks code
  for format in sglang trtllm vllm vllm-ascend npy; do
    case $format in trtllm) name=plan.yaml ;; npy) name=plan.npy ;; *) name=plan.json ;; esac
    [[ $format == npy ]] && ranks=7 || ranks=8
    code=0
    plan loads.npy --planner craft --ranks $ranks --replicas-per-rank 2 --format $format --output $name \
      --json result.json 2>message >printed || code=$?
    ((code == 2)) || fail "expected exit code 2 of $format, got $code"
    grep -Eq "^plan_experts: --format $format: expected .*slots.* on rank [0-9] in layer [0-9]" message ||
      fail "$(cat message)"
    [[ $(ls | tr '\n' ' ') == 'loads.npy message printed ' ]] || fail "expected no file, got: $(ls)"
  done
}

# Ranks of unequal speed: of eight the first is the slowest.
curves() {
  local speeds=${1-0.5,1,1,1,1,1,1,1}
  echo "{\"tokens\": [64, 128, 192, 256, 4096], \"latency_us\": [[20, 23, 26, 29, 200]], " \
    "\"dense_until\": 256, \"speeds\": [$speeds]}" >curves.json
}

# mean_latency RESULT.json before|after [COMPARISON]: prints the mean latency of one plan
mean_latency() {
  local sides
  sides=$(grep '^"comparisons"' "$1" | grep -o '"latency_us":{"mean":[0-9.e+]*' | cut -d: -f3)
  sed -n "$((2 * ${3-0} + ($([[ $2 == after ]] && echo 2 || echo 1))))p" <<<"$sides"
}

case_gem() {
  drifting loads.npy
  curves
  plan loads.npy --planner gem --latency curves.json --ranks 8 --evaluate loads.npy --output plan.json \
    --json result.json --report report.html >printed
  "$programs/check_plan" loads.npy plan.json 8 64 0.5
  "$programs/check_report" report.html result.json
  grep -Eq '^planned from the last 6 of 6 steps, 30 searches a layer: mean latency [0-9.]+ us, lower bound' printed ||
    fail "$(cat printed)"
  grep -q '(gem, seq, ' printed || fail "$(cat printed)"
  local eplb gem
  gem=$(mean_latency result.json after)
  [[ $gem == "$(mean_latency result.json after 1)" ]] || fail "expected the same on the same loads"
  awk "BEGIN {exit !($gem < 0.9 * $(mean_latency result.json before))}" || fail "expected gem to gain"
  # Equal speeds give another plan.
  curves 1,1,1,1,1,1,1,1
  plan loads.npy --planner gem --latency curves.json --ranks 8 --output alike.json >/dev/null
  cmp -s plan.json alike.json && fail "expected speeds to count"
  # EPLB ignores speeds.
  curves
  plan loads.npy --ranks 8 --slots 64 --output eplb.json >/dev/null
  plan loads.npy --planner gem --latency curves.json --plan eplb.json --ranks 8 --output same.json \
    --json result.json --trace-length 6 --restarts 30 >/dev/null
  same plan.json same.json
  eplb=$(mean_latency result.json before)
  awk "BEGIN {exit !($gem < $eplb)}" || fail "expected less than $eplb us of EPLB, got $gem"
  # Fewer steps and searches; the steps are the last ones.
  plan loads.npy --planner gem --latency curves.json --ranks 8 --trace-length 2 --restarts 1 --output two.json >printed
  grep -q '^planned from the last 2 of 6 steps, 1 search a layer: ' printed || fail "$(cat printed)"
  plan - --planner gem --latency curves.json --ranks 8 --layers 1:3 --output some.json <loads.npy >/dev/null
  plan loads.npy --planner gem --latency - --ranks 8 --layers 1:3 --output pipe.json <curves.json >/dev/null
  same some.json pipe.json
}

case_gem_table() {
  table "$inputs/steps.npy" --planner gem --latency "$inputs/curves.json" --ranks 4 --slots 8 --trace-length 2 \
    --evaluate "$inputs/other.npy" --layer-ids 3:
  expect_table gem
  # One curve with speeds is nearly equivalent.
  plan "$inputs/steps.npy" --planner gem --latency "$inputs/one_curve.json" --ranks 4 >/dev/null
}

# Spare slots hold replicas, and every format round-trips.
case_gem_formats() {
  drifting loads.npy
  curves
  plan loads.npy --planner gem --latency curves.json --ranks 8 --layer-ids 0: --output plan.json >/dev/null
  round_trips plan.json loads.npy 8
  plan loads.npy --planner gem --latency curves.json --ranks 8 --replicas-per-rank 2 --output plan.json \
    --json result.json --report report.html >printed
  grep -q '^5 layers (0 to 4) of 64 experts on 8 ranks of 10 slots: 16 extra replicas a layer' printed ||
    fail "$(cat printed)"
  "$programs/check_plan" loads.npy plan.json 8 80 0.5
  "$programs/check_report" report.html result.json
  round_trips plan.json loads.npy 8
  # The slots of the plan in use.
  plan loads.npy --planner gem --latency curves.json --plan plan.json --output same.json >/dev/null
  same plan.json same.json
}

# moves_of TRANSFERS.json: prints the number of moves
moves_of() { sed -n 's/^"moves": \([0-9]*\),$/\1/p' "$1"; }

# Loads of another hour, and a plan in use.
two_hours() {
  loads --steps 6 --layers 5 --experts 64 --tokens 2048 --top-k 6 --skew 0.8 --drift 0.2 --seed 8 --output new.npy
  drifting old.npy
  plan old.npy --ranks 8 --slots 80 --output old.json >/dev/null
}

# The new plan has the balance of the planner's, with fewer moves, and the transfers lead to it.
case_previous() {
  two_hours
  plan new.npy --ranks 8 --slots 80 --output free.json --json free.result.json >/dev/null
  for rule in one-peer send-receive; do
    plan new.npy --previous old.json --expert-bytes 44MB --rounds $rule --output new.json --transfers t.json \
      --report report.html --json result.json >printed
    "$programs/check_plan" new.npy new.json 8 80 0.95
    "$programs/check_transfers" old.json new.json t.json
    "$programs/check_report" report.html result.json
    grep -Eq "^moves: [1-9][0-9]* slots, [0-9]+ cop(y|ies) within a rank, in 5 of 5 layers$" printed || fail "$(cat printed)"
    grep -Eq "^transfers: [0-9]+ rounds \\($rule\\), at most [0-9]+ a layer, [0-9.]+ [MG]iB in about [0-9.]+ us$" printed ||
      fail "$(cat printed)"
    grep -Eq '^break-even: after [1-9][0-9]* steps, on new.npy, step by step: a step takes about [0-9.]+ us less$' printed ||
      fail "$(cat printed)"
    grep -q '^before: old.json$' printed || fail "$(cat printed)"
    grep -q '^wrote t.json$' printed || fail "$(cat printed)"
  done
  # The plan as the planner makes it, with ranks by other numbers: more moves, the same balance.
  plan new.npy --planner none --plan free.json --previous old.json --output again.json --transfers t2.json >printed
  "$programs/check_transfers" old.json again.json t2.json
  same new.json again.json
  grep -q 'after: the plan that was read, with these moves$' printed || fail "$(cat printed)"
  grep -q '^break-even: unknown without --expert-bytes, on new.npy' printed || fail "$(cat printed)"
  # Nodes keep their ranks; other planners and policies.
  plan new.npy --previous old.json --nodes 2 --bandwidth 25 --expert-bytes 44MB --output nodes.json --transfers t.json >/dev/null
  "$programs/check_transfers" old.json nodes.json t.json
  grep -q '"kind":"across_nodes"' t.json || fail "expected transfers across nodes"
  plan new.npy --planner flow --previous old.json --output flow.json --transfers t.json >/dev/null
  "$programs/check_transfers" old.json flow.json t.json
  for speeds in 0.5,1,1,1,1,1,1,1 1,1,1,1,1,1,1,1; do
    curves $speeds
    plan new.npy --planner gem --latency curves.json --previous old.json --expert-bytes 1MB --output gem.json \
      --transfers t.json --json result.json >printed
    "$programs/check_transfers" old.json gem.json t.json
    grep -q '"token_us":null' result.json || fail "expected latencies to count"
    grep -Eq '^break-even: (never|after [0-9]+ steps?), on new.npy' printed || fail "$(cat printed)"
  done
}

case_previous_table() {
  table "$inputs/steps.npy" --ranks 4 --previous "$inputs/plan.json" --evaluate "$inputs/other.npy" --expert-bytes 1MB \
    --layer-ids 0:
  expect_table previous
}

# A larger budget never gains less, and none is exceeded.
case_previous_budget() {
  two_hours
  plan new.npy --previous old.json --max-moves 0 --expert-bytes 1MB --output zero.json --transfers t.json >printed
  same old.json zero.json
  grep -q '^moves: 0 slots of at most 0, 0 copies within a rank, in 0 of 5 layers$' printed || fail "$(cat printed)"
  grep -q '^transfers: 0 rounds (one-peer), at most 0 a layer, 0 B in about 0.0 us$' printed || fail "$(cat printed)"
  grep -q '^break-even: after 0 steps, on new.npy, step by step: a step takes as long as before$' printed || fail "$(cat printed)"
  local budget gain=0 now
  for budget in 1 5 20 80 400; do
    plan new.npy --previous old.json --max-moves $budget --output new.json --transfers t.json --json result.json >/dev/null
    "$programs/check_transfers" old.json new.json t.json
    (($(moves_of t.json) <= budget)) || fail "expected at most $budget moves, got $(moves_of t.json)"
    now=$(sed -nE 's/.*"gain":\{.*"expected":([^,}]*).*/\1/p' result.json)
    awk "BEGIN {exit !($now >= $gain)}" || fail "expected a gain of at least $gain with $budget moves, got $now"
    gain=$now
  done
  awk "BEGIN {exit !($gain > 0.3)}" || fail "expected a gain from half balanced to nearly balanced, got $gain"
  # Bytes of 5.5 experts allow 5 moves.
  plan new.npy --previous old.json --max-moves 5 --output five.json >/dev/null
  plan new.npy --previous old.json --max-bytes 5500kB --expert-bytes 1MB --output bytes.json >printed
  same five.json bytes.json
  plan new.npy --previous old.json --max-moves 20 --split optimal --output optimal.json --transfers t.json >/dev/null
  "$programs/check_transfers" old.json optimal.json t.json
  (($(moves_of t.json) <= 20)) || fail "expected at most 20 moves"
}

# Without a planner: the plan as it is, or refined.
case_previous_given() {
  two_hours
  plan new.npy --planner none --previous old.json --output same.json --json result.json >printed
  same old.json same.json
  grep -q '^moves: 0 slots, ' printed || fail "$(cat printed)"
  grep -q '"break_even_steps":\[0.0\]' result.json || fail "expected nothing to pay off"
  local refinement least
  for refinement in packing joint; do
    [[ $refinement == joint ]] && least=0.98 || least=0.8  # packing keeps the replicas of old loads
    plan new.npy --planner none --plan old.json --refine $refinement --evaluate old.npy --output refined.json >printed
    "$programs/check_plan" new.npy refined.json 8 80 $least
    grep -q '^before: old.json$' printed || fail "$(cat printed)"
    grep -q "(no planner, refined by $refinement, seq, " printed || fail "$(cat printed)"
    plan new.npy --planner none --previous old.json --refine $refinement --output moved.json --transfers t.json >printed
    "$programs/check_plan" new.npy moved.json 8 80 $least
    "$programs/check_transfers" old.json moved.json t.json
  done
  plan new.npy --planner none --previous old.json --refine joint --max-moves 10 --output ten.json --transfers t.json >/dev/null
  "$programs/check_transfers" old.json ten.json t.json
  (($(moves_of t.json) <= 10)) || fail "expected at most 10 moves"
}

# Ranks with different numbers of slots, layers with different numbers, and a rank without slots.
case_previous_uneven() {
  two_hours
  plan old.npy --ranks 7 --slots 80 --output seven.json >/dev/null
  plan old.npy --planner craft --ranks 8 --replicas-per-rank 3 --output craft.json >/dev/null
  local from
  for from in seven craft; do
    for options in '' '--planner flow' '--max-moves 20' '--planner none --refine joint' '--planner none'; do
      # shellcheck disable=SC2086
      plan new.npy --previous $from.json $options --output new.json --transfers t.json >/dev/null
      "$programs/check_transfers" $from.json new.json t.json
    done
  done
  for options in '' '--max-moves 2' '--planner none --refine packing'; do
    # shellcheck disable=SC2086
    plan "$inputs/loads.npy" --previous "$inputs/dead_plan.json" $options --output new.json --transfers t.json >/dev/null
    "$programs/check_transfers" "$inputs/dead_plan.json" new.json t.json
  done
}

# Loads of slots, with the plan that was in use while they were counted.
case_slot_loads() {
  local use
  for use in plan previous; do
    plan "$inputs/loads.npy" --$use "$inputs/plan.json" --ranks 4 --output experts.json >/dev/null
    plan "$inputs/slots.npy" --slot-loads --$use "$inputs/plan.json" --ranks 4 --evaluate "$inputs/slots.npy" \
      --output slots.json >/dev/null
    same experts.json slots.json
  done
  # The second layer alone; a plan that tells its ranks; nothing but numbers is known of the layers.
  plan "$inputs/loads.npy" --layers 1: --ranks 4 --slots 8 --output experts.json >/dev/null
  plan "$inputs/slots.npy" --slot-loads --layers 1: --plan "$inputs/plan.json" --ranks 4 --output slots.json >/dev/null
  same experts.json slots.json
  plan "$inputs/loads.npy" --planner none --plan "$inputs/plan.json" --ranks 4 --output same.json >/dev/null
  plan "$inputs/loads.npy" --plan same.json --output experts.json >/dev/null
  plan "$inputs/slots.npy" --slot-loads --plan same.json --output slots.json >/dev/null
  same experts.json slots.json
  plan "$inputs/slots.npy" --trust-shape --ranks 2 --slots 4 >printed
  grep -q '^4 layers (0 to 3) of 2 experts ' printed || fail "$(cat printed)"
}

# Ranks that join begin empty; those that are lost take their experts with them.
case_other_ranks() {
  two_hours
  local grown shrunk from
  plan new.npy --planner none --previous old.json --format sglang --output old_sglang.json >/dev/null
  for from in old.json old_sglang.json; do
    plan new.npy --planner none --previous $from --ranks 10 --slots 100 --output grown.json >/dev/null
    plan new.npy --previous $from --ranks 10 --slots 100 --max-moves 30 --output new.json --transfers t.json >printed
    plan new.npy --previous grown.json --max-moves 30 --output again.json --transfers t2.json >/dev/null
    same new.json again.json
    grep -q '^ranks: 10 instead of 8, 2 joined, 0 lost$' printed || fail "$(cat printed)"
    grep -q '^"source_ranks": \[0,1,2,3,4,5,6,7,-1,-1\],$' t.json || fail "$(grep source_ranks t.json)"
    "$programs/check_transfers" grown.json new.json t.json
    diff <(grep -v 'source_ranks\|plan_before' t.json) <(grep -v 'source_ranks\|plan_before' t2.json)
  done
  plan new.npy --previous old.json --ranks 10 --output new.json --transfers t.json >/dev/null
  "$programs/check_plan" new.npy new.json 10 100 0.95
  "$programs/check_transfers" grown.json new.json t.json
  # Rank 2 is lost, and a new one joins in its place: its experts come from elsewhere.
  plan new.npy --previous old.json --lost-ranks 2 --ranks 8 --output new.json --transfers t.json --json result.json >printed
  "$programs/check_plan" new.npy new.json 8 80 0.9
  grep -q '^ranks: 8 instead of 8, 1 joined, 1 lost; ' printed || fail "$(cat printed)"
  grep -q '^"source_ranks": \[0,1,3,4,5,6,7,-1\],$' t.json || fail "$(grep source_ranks t.json)"
  grep -q '"kind":"from_host"' t.json || fail "expected experts of the lost rank to come from the host"
  ! grep -q '^break-even' printed || fail "expected no choice"
  jq -e '.moves.lost_experts > 0 and .moves.ranks_before == 8 and .plan_before == "trivial"' result.json >/dev/null ||
    fail "$(jq .moves result.json)"
  # Fewer ranks: the last ones are lost. With a copy of every expert elsewhere, moves may be limited.
  plan new.npy --previous old.json --ranks 7 --slots 70 --output new.json --transfers t.json >printed
  "$programs/check_plan" new.npy new.json 7 70 0.9
  grep -q '^ranks: 7 instead of 8, 0 joined, 1 lost; ' printed || fail "$(cat printed)"
  plan "$inputs/loads.npy" --ranks 4 --slots 24 --apart rank --output all.json >/dev/null
  plan "$inputs/loads.npy" --previous all.json --ranks 2 --max-moves 1 --json result.json >/dev/null
  jq -e '.moves.lost_experts == 0 and .before.ranks == 2' result.json >/dev/null || fail "$(jq .moves result.json)"
}

# Tokens that cross ranks and nodes, before and after.
case_traffic() {
  table "$inputs/steps.npy" --ranks 4 --plan "$inputs/plan.json" --nodes 2 --sources "$inputs/sources.npy" \
    --json result.json --report report.html
  expect_table traffic
  jq -e '.comparisons[0].after.traffic.nearest.between_nodes <= .comparisons[0].after.traffic.split.between_nodes' \
    result.json >/dev/null || fail "$(jq .comparisons result.json)"
  grep -q '<dt>between nodes</dt>' report.html || fail "expected the traffic in the report"
  plan "$inputs/steps.npy" --layers 1: --ranks 4 --plan "$inputs/plan.json" --sources "$inputs/sources.npy" >printed
  grep -q '^token copies of a step on ' printed || fail "$(cat printed)"
}

# Without a plan in use, before is what the engine of the format does.
case_engine_default() {
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --format trtllm --output plan.yaml --json result.json >printed
  grep -q '^before: rank r begins with expert floor(r x 6 / 4), as in TensorRT-LLM$' printed || fail "$(cat printed)"
  jq -e '.plan_before == "tensorrt-llm" and .before.replica_count[0] == [1,2,1,1,2,1]' result.json >/dev/null ||
    fail "$(jq .before result.json)"
  printf 'num_slots: 8\nlayer_updates_per_iter: 2\n' >online.yaml
  plan "$inputs/loads.npy" --ranks 4 --plan online.yaml --json other.json >/dev/null
  diff <(jq .before result.json) <(jq .before other.json)
}

case_report() {
  drifting loads.npy
  plan loads.npy --layers 1: --ranks 8 --slots 80 --evaluate loads.npy --expert-bytes 1000 \
    --report report.html --json result.json >/dev/null
  "$programs/check_report" report.html result.json
}

case_report_in_browser() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --evaluate loads.npy --report report.html --json result.json \
    >/dev/null
  bash "$expected/browse.sh" report.html result.json "$programs/check_report"
  plan loads.npy --planner craft --ranks 8 --replicas-per-rank 2 --report report.html --json result.json \
    >/dev/null
  bash "$expected/browse.sh" report.html result.json "$programs/check_report"
  curves
  plan loads.npy --planner gem --ranks 8 --latency curves.json --evaluate loads.npy --report report.html \
    --json result.json >/dev/null
  bash "$expected/browse.sh" report.html result.json "$programs/check_report"
}

# The README shows the output of its commands.
case_readme() {
  local root=$expected/../../../..
  loads --steps 8 --layers 58 --experts 256 --seed 1 --output loads.npy >/dev/null
  table loads.npy --layer-ids 3: --model-layers 61 --ranks 64 --slots 320 --format sglang \
    --output plan.json --report report.html --json result.json
  [[ $(<"$root/README.md") == *"$(sed '/^before/,$d' table)"* ]] ||
    fail "expected in README.md: $(cat table)"
  "$programs/draw_layer" result.json rank_loads.svg
  same rank_loads.svg "$root/docs/images/rank_loads.svg"
}

# The guide shows commands and their output, in which "..." replaces any number of lines.
case_guide() {
  awk '/^```/ { inside = !inside; next } inside' "$expected/../../../../docs/plan_a_model.md" >shown
  awk 'more || /^\$ / { sub(/^\$ /, ""); print; more = /\\$/ }' shown >commands
  awk 'more || /^\$ / { more = /\\$/; next } { print }' shown >wanted
  PATH=$programs:$PATH bash -e commands >printed
  awk '
    BEGIN { while ((getline line < "printed") > 0) printed[++lines] = line }
    $0 == "..." { any = 1; next }
    {
      do ++at; while (any && at <= lines && printed[at] != $0)
      if (at > lines || printed[at] != $0) { print "not printed: " $0; exit 1 }
      any = 0
    }' wanted || fail "docs/plan_a_model.md differs from what its commands print"
}

# A terminal shows the progress of a long reading, and clears it at the end.
case_progress() {
  drifting loads.npy
  slow() { head -c 1000 loads.npy; sleep 0.5; tail -c +1001 loads.npy; }
  command -v script >/dev/null || { echo "skipped: no program 'script' for a terminal"; exit 0; }
  export -f slow  # to the shell that runs it, which must be this one
  SHELL=$BASH script -qec "slow | '$programs/plan_experts' - --ranks 8 --slots 80 >printed" typescript </dev/null >/dev/null
  grep -q 'reading -: ' typescript || fail "expected progress on the terminal: $(cat -v typescript)"
  (($(grep -o 'reading -' typescript | wc -l) <= 3)) || fail "expected at most five lines a second"
  slow | plan - --ranks 8 --slots 80 2>message >printed
  [[ ! -s message ]] || fail "expected no progress without a terminal: $(cat message)"
}

# Standard output that cannot be written is an error.
case_full_output() {
  local code=0
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output plan.json >/dev/full 2>message || code=$?
  ((code == 2)) || fail "expected exit code 2, got $code"
  [[ $(cat message) == 'plan_experts: the standard output: expected it to be written, got an error' ]] ||
    fail "$(cat message)"
  [[ $(ls) == message ]] || fail "expected no file, got: $(ls)"
}

# If one file cannot be written, none appears.
case_all_or_nothing() {
  local code=0
  plan "$inputs/loads.npy" --ranks 3 --slots 8 --format sglang --output plan.json \
    --report report.html --json result.json 2>message || code=$?
  ((code == 2)) || fail "expected exit code 2, got $code"
  grep -q '^plan_experts: --format sglang: expected ' message || fail "$(cat message)"
  [[ $(ls) == message ]] || fail "expected no file, got: $(ls)"
}

case_no_load() {
  plan "$inputs/zeros.npy" --ranks 2 --slots 4 --output plan.json
  "$programs/check_plan" "$inputs/zeros.npy" plan.json 2 4 1
}

# The second layer was not recorded. Nothing is known of it: its slots are numbered, or keep the plan in use.
case_layers_without_load() {
  printf '900,300,250,200,140,110,60,40\n0,0,0,0,0,0,0,0\n' >loads.csv
  printf '0,0,0,0,0,0,0,0\n900,300,250,200,140,110,60,40\n' >other.csv
  local options planned in_use numbered
  numbered='[0,1,2,3,4,5,6,7,0,1,2,3]'
  for options in '' '--refine joint' '--planner flow' '--planner auto' '--apart rank'; do
    # shellcheck disable=SC2086
    plan loads.csv --ranks 4 --slots 12 --format vllm --output plan.json $options >/dev/null
    [[ $(tail -n 2 plan.json | head -n 1) == "$numbered" ]] || fail "expected numbered slots with '$options'"
  done
  plan other.csv --ranks 4 --slots 12 --format vllm --output in_use.json >/dev/null
  in_use=$(tail -n 2 in_use.json | head -n 1)
  for options in '' '--max-moves 3' '--max-moves 20 --split optimal'; do
    # shellcheck disable=SC2086
    plan loads.csv --previous in_use.json --ranks 4 --format vllm --output plan.json $options >/dev/null
    [[ $(tail -n 2 plan.json | head -n 1) == "$in_use" ]] || fail "expected the plan in use with '$options'"
  done
  # A plan in use with two replicas on a rank gives way to --apart.
  printf '[[0,1,2,3,4,5,6,7,0,1,2,3],\n[0,0,1,2,3,4,5,6,7,1,2,3]]\n' >twins.json
  plan loads.csv --plan twins.json --ranks 4 --slots 12 --format vllm --output plan.json >/dev/null
  [[ $(tail -n 2 plan.json | head -n 1) == '[0,0,1,2,3,4,5,6,7,1,2,3]' ]] || fail "expected the plan in use"
  plan loads.csv --plan twins.json --ranks 4 --slots 12 --apart rank --format vllm --output plan.json >/dev/null
  [[ $(tail -n 2 plan.json | head -n 1) == "$numbered" ]] || fail "expected no two replicas on a rank"
  # TensorRT-LLM needs rows of all layers with experts, also of those that were not recorded.
  plan loads.csv --layer-ids 3:5 --model-layers 7 --ranks 4 --slots 12 --output plan.yaml >/dev/null
  planned=$(grep -c '^  [3456]: \[' plan.yaml)
  [[ $planned == 4 ]] || fail "expected rows of layers 3 to 6, got $planned"
  [[ $(grep -c '^  6: \[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3\]' plan.yaml) == 1 ]] || fail "expected numbered slots"
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

# A recorder's ring buffer: 1000 steps of which the first 16 are filled, or a full one of 16 steps that
# begins in the middle. Both give the figures and the plans of the filled steps.
case_ring() {
  loads --steps 16 --layers 5 --experts 64 --tokens 2048 --top-k 6 --skew 0.8 --drift 0.2 --seed 7 \
    --output filled.npy >/dev/null
  local of_step=$((5 * 64 * 4)) name
  local header=$(($(stat -c %s filled.npy) - 16 * of_step))
  # The padding of the header makes space for the longer number of steps.
  { head -c $header filled.npy | sed -e 's/(16, 5, 64)/(1000, 5, 64)/' -e 's/  \n*$/\n/' | head -c $((header - 1))
    echo
    tail -c +$((header + 1)) filled.npy
    head -c $((984 * of_step)) /dev/zero; } >ring.npy
  { head -c $header filled.npy
    tail -c +$((header + 1 + 5 * of_step)) filled.npy
    head -c $((header + 5 * of_step)) filled.npy | tail -c $((5 * of_step)); } >wrapped.npy
  curves
  for name in filled ring wrapped; do
    table $name.npy --ranks 8 --slots 80 --output $name.json
    grep -v '^wrote\|no load' table | sed -e "s/$name.npy/LOADS/" -e 's/, step [0-9]*$//' \
      -e 's/^ *after  /after/' -e 's/  */ /g' >$name.table
    plan $name.npy --planner craft --ranks 8 --output $name.craft.json >/dev/null
    same filled.json $name.json
    same filled.craft.json $name.craft.json
    diff filled.table $name.table || fail "expected the figures of the filled steps from $name"
  done
  table ring.npy --ranks 8 --slots 80
  grep -Fxq 'ring.npy: 984 of 1000 steps have no load and are left out' table || fail "$(cat table)"
  plan ring.npy --planner gem --latency curves.json --ranks 8 --output gem.json >printed
  grep -Eq '^planned from the last 16 of 16 steps, .*: mean latency [1-9][0-9.]* us' printed || fail "$(cat printed)"
  plan filled.npy --planner gem --latency curves.json --ranks 8 --output filled.gem.json >printed
  same filled.gem.json gem.json
}

# An expert with nearly all load gets more copies than there are ranks.
case_copies_beyond_ranks() {
  { printf 999000; printf ',16%.0s' {1..63}; echo; } >hot.csv
  plan hot.csv --ranks 16 --slots 128 >printed
  grep -Eq '^warning: expert 0 of layer 0 has [0-9]+ copies on 16 ranks; .*: plan with --apart rank or --refine joint$' printed ||
    fail "$(cat printed)"
  grep -Eq '^ +after +0\.8' printed || fail "$(cat printed)"
  plan hot.csv --ranks 16 --slots 128 --refine joint >printed
  grep -Eq '^ +after +1\.0' printed || fail "$(cat printed)"
  plan hot.csv --ranks 16 --slots 128 --apart rank >printed
  grep -Eq '^ +after +1\.0' printed || fail "$(cat printed)"
  ! grep -q '^warning' printed || fail "$(cat printed)"
}

# A signal that ends the program leaves none of its files behind.
case_signals() {
  local signal code
  mkfifo loads.pipe
  ulimit -c 0
  for signal in INT TERM HUP USR1 USR2 ALRM XFSZ ABRT SEGV RTMIN; do
    # A background job of a shell without job control ignores SIGINT; env restores the default.
    env --default-signal=INT "$programs/plan_experts" - --ranks 4 --slots 8 --output plan.json --report a.html \
      --json b.json <loads.pipe >/dev/null 2>&1 &
    exec 3>loads.pipe
    for _ in {1..200}; do
      [[ $(ls -A | grep -c tmp) == 3 ]] && break
      sleep 0.05
    done
    [[ $(ls -A | grep -c tmp) == 3 ]] || fail "expected three files to be written, got: $(ls -A)"
    kill -s $signal $!
    code=0
    wait $! || code=$?
    exec 3>&-
    ((code == 128 + $(kill -l $signal))) || fail "expected the end by SIG$signal, got code $code"
    [[ $(ls -A) == loads.pipe ]] || fail "expected no file after SIG$signal, got: $(ls -A)"
  done
}

case_empty_names() {
  local option code
  for option in --output --report --json --plan --previous --transfers --evaluate --layers --layer-ids --key; do
    code=0
    plan "$inputs/loads.npy" --ranks 4 --slots 8 $option "" >printed 2>message || code=$?
    ((code == 2)) || fail "$option: expected exit code 2, got $code"
    [[ $(cat message) == "plan_experts: $option: expected a value, got an empty one" ]] || fail "$(cat message)"
  done
}

# A link to a file that does not exist yet, and a link to that link.
case_output_through_links() {
  mkdir folder
  ln -s folder/real.json link.json
  ln -s "$PWD/link.json" folder/again.json
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output folder/again.json >/dev/null
  [[ -L link.json && -L folder/again.json && -f folder/real.json && ! -L folder/real.json ]] ||
    fail "expected links to stay links: $(ls -l . folder)"
  "$programs/check_plan" "$inputs/loads.npy" folder/real.json 4 8 0.9
  ln -s circle.json circle.json
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output circle.json 2>message && fail "expected a refusal"
  grep -q "^plan_experts: --output: .*'circle.json': Too many levels of symbolic links" message || fail "$(cat message)"
}

case_layer_ids_with_steps() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --layer-ids 1:10:2 --output steps.json >printed
  plan loads.npy --ranks 8 --slots 80 --layer-ids 1,3,5,7,9 --output list.json >/dev/null
  plan loads.npy --ranks 8 --slots 80 --layer-ids 1::2 --output open.json >/dev/null
  same steps.json list.json
  same steps.json open.json
  grep -q '^5 layers (1 to 9, not all)' printed || fail "$(cat printed)"
}

case_key() {
  sed 's/logical_count/counts/' "$inputs/loads.json" >counts.json
  plan "$inputs/loads.npy" --ranks 4 --slots 8 --output plan.json >/dev/null
  plan counts.json --key counts --ranks 4 --slots 8 --output key.json >/dev/null
  same plan.json key.json
}

# peak_of ARGUMENT...: prints the peak memory of the program, in KiB
peak_of() {
  python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$programs/plan_experts" "$@"
}

# Loads that would take 500 MB in memory, in a sparse file: both passes over the file, and a copy of
# the standard input, stay below 256 MiB.
case_memory() {
  command -v python3 >/dev/null || { echo "skipped: no python3 to measure memory"; exit 0; }
  python3 - <<'END'
header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4400, 58, 256), }"
header = header.ljust(117) + "\n"
with open("large.npy", "wb") as out:
    out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    start = out.tell()
    for step in range(0, 4400, 100):  # the others are empty
        out.seek(start + step * 58 * 256)
        out.write(bytes((7 * i + step) % 251 for i in range(256)) * 58)
    out.truncate(start + 4400 * 58 * 256)
END
  local peak
  peak=$(peak_of large.npy --ranks 32 --slots 288)
  ((peak < 256 * 1024)) || fail "expected less than 256 MiB for a file, got $peak KiB"
  peak=$(peak_of - --ranks 32 --slots 288 <large.npy)
  ((peak < 256 * 1024)) || fail "expected less than 256 MiB for the standard input, got $peak KiB"
  # The steps with load fit in memory; all steps would not.
  peak=$(peak_of large.npy --planner craft --ranks 32)
  ((peak < 256 * 1024)) || fail "expected less than 256 MiB for 44 steps, got $peak KiB"
}

# craft reports the memory that it needs if the machine has less.
case_out_of_memory() {
  loads --steps 1600 --layers 20 --experts 256 --output loads.npy >/dev/null
  local code=0
  (
    ulimit -v 100000
    plan loads.npy --planner craft --ranks 8
  ) >printed 2>message || code=$?
  ((code == 2)) || fail "expected exit code 2, got $code: $(cat message)"
  [[ $(cat message) == 'plan_experts: LOADS: expected memory for all steps with load, which --planner craft holds, of loads.npy, 62.50 MiB and more, got less' ]] ||
    fail "$(cat message)"
}

case_help() {
  plan --help >help
  grep -q -- '--slots' help || fail "expected the options of plan_experts"
  loads --help >help
  grep -q -- '--skew' help || fail "expected the options of make_loads"
}

case_omp() {
  drifting loads.npy
  curves
  plan loads.npy --ranks 8 --slots 80 --policy seq --output seq.json
  for threads in 1 2 5; do
    OMP_NUM_THREADS=$threads plan loads.npy --ranks 8 --slots 80 --policy omp --output omp.json
    same seq.json omp.json
    OMP_NUM_THREADS=$threads plan loads.npy --planner craft --ranks 8 --policy omp --output craft_omp.json
    plan loads.npy --planner craft --ranks 8 --output craft.json
    same craft.json craft_omp.json
    OMP_NUM_THREADS=$threads plan loads.npy --planner gem --latency curves.json --ranks 8 --policy omp --output gem_omp.json
    plan loads.npy --planner gem --latency curves.json --ranks 8 --output gem.json
    same gem.json gem_omp.json
  done
  "$programs/check_plan" loads.npy omp.json 8 80 0.95
  two_hours
  moves_by omp
}

# moves_by POLICY: the same plans and transfers as with seq
moves_by() {
  local options
  for options in '' '--max-moves 20' '--planner none --refine joint'; do
    # shellcheck disable=SC2086
    plan new.npy --previous old.json $options --output seq.json --transfers seq.transfers.json >/dev/null
    # shellcheck disable=SC2086
    plan new.npy --previous old.json $options --policy "$1" --output "$1.json" --transfers "$1.transfers.json" >/dev/null
    same seq.json "$1.json"
    same seq.transfers.json "$1.transfers.json"
  done
}

# Skips the case if the last call failed for want of a GPU, which it must report.
without_gpu() {
  local code=$?
  ((code == 2)) && grep -Eq 'no CUDA-capable device|driver version' message || fail "$(cat message)"
  grep -Eq '^plan_experts: --policy: expected a GPU .*, got ' message || fail "$(cat message)"
  [[ ! -e gpu.json ]] || fail "expected no file"
  echo "skipped: $(cat message)"
  exit 0
}

case_gpu() {
  drifting loads.npy
  plan loads.npy --ranks 8 --slots 80 --policy seq --output seq.json
  plan loads.npy --ranks 8 --slots 80 --policy gpu --output gpu.json 2>message || without_gpu
  same seq.json gpu.json
  plan loads.npy --planner craft --ranks 8 --policy seq --output seq.json
  plan loads.npy --planner craft --ranks 8 --policy gpu --output gpu.json
  same seq.json gpu.json
  two_hours
  moves_by gpu
}

case_gem_gpu() {
  drifting loads.npy
  curves
  for slots in 64 80; do
    plan loads.npy --planner gem --latency curves.json --ranks 8 --slots $slots --output seq.json
    plan loads.npy --planner gem --latency curves.json --ranks 8 --slots $slots --policy gpu --output gpu.json 2>message ||
      without_gpu
    same seq.json gpu.json
  done
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

# The bytes of all workloads and of their loads by source are committed.
case_make_loads_workloads() {
  local names=(balanced hot-experts hot-rank spread ragged-sources empty-ranks moving-hot-spot burst) i
  for i in {0..7}; do
    loads --workload "w$i" --steps 5 --layers 2 --experts 24 --tokens 1001 --top-k 4 --seed 3 --output "w$i.npy" \
      --ranks 6 --source-loads "sources$i.npy" >/dev/null
    "$programs/check_loads" "w$i.npy" 5 2 24 1001 4
    loads --workload "${names[i]}" --steps 5 --layers 2 --experts 24 --tokens 1001 --top-k 4 --seed 3 \
      --output again.npy >/dev/null
    same "w$i.npy" again.npy
  done
  sha256sum w?.npy sources?.npy | diff "$expected/make_loads_workloads.sha256" -
}

case_make_loads_like() {
  loads --steps 40 --layers 3 --experts 48 --tokens 1024 --top-k 4 --drift 0.3 --seed 2 --output trace.npy
  loads --like trace.npy --steps 200 --tokens 2000 --top-k 4 --seed 9 --output a.npy >printed
  [[ $(head -1 printed) == 'trace.npy: correlation 0.845 after one step, 0.719 after two: domains of 6.7 steps' ]] ||
    fail "expected another line than: $(cat printed)"
  "$programs/check_loads" a.npy 200 3 48 2000 4
  loads --like trace.npy --steps 200 --tokens 2000 --top-k 4 --seed 9 --output b.npy
  same a.npy b.npy
  sha256sum a.npy | diff "$expected/make_loads_like.sha256" -
}

# A file size limit simulates a full disk: the write fails half way.
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
  plan "$file" --ranks 64 --slots 320 --output plan.json --report report.html --json result.json
  "$programs/check_plan" "$file" plan.json 64 320 0.977
  loads --like "$trace/glm-5.2-ten-domains/counts_by_chunk.npy" --steps 2 --output like.npy >printed
  grep -Fq ': correlation 0.712 after one step, 0.612 after two: domains of 7.1 steps' printed ||
    fail "expected another line than: $(head -1 printed)"
  "$programs/check_report" report.html result.json
  plan "$file" --ranks 64 --slots 320 --apart rank --output plan.json
  round_trips plan.json "$file" 64
  plan "$file" --layer-ids 3: --ranks 64 --slots 320 --apart rank --output plan.json
  round_trips plan.json "$file" 64 --layer-ids 3: --model-layers 78
}

"case_$case"
