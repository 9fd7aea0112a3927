#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# performance.sh PROGRAM: tests import and table, on invented numbers.
set -euo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir results
fail() { echo "performance.sh: $1"; exit 1; }
refuses() { # MESSAGE ARGUMENT...
  local code=0
  "$program" "${@:2}" >out 2>error || code=$?
  ((code == 2)) && grep -qF -- "$1" error || fail "expected exit code 2 and '$1', got $code and: $(cat error)"
}
prints() { # LINE, of the table
  "$program" table results >out
  grep -qxF -- "$1" out || fail "expected the line $1 in: $(cat out)"
}

aggregate() { # NAME AGGREGATE TIME UNIT [PROCESSOR-TIME]
  echo "{\"name\": \"x\", \"run_name\": \"$1/iterations:1/repeats:200/real_time\", \"run_type\": \"aggregate\"," \
    "\"repetitions\": 200, \"aggregate_name\": \"$2\", \"real_time\": $3, \"cpu_time\": ${5-$3}, \"time_unit\": \"$4\"}"
}
raw() { # BENCHMARK...
  local IFS=,
  echo '{"context": {"date": "2001-02-03T04:05:06+00:00", "num_cpus": 2, "load_avg": [0.27, 1, 1]}, "benchmarks": ['"$*"']}'
}
ours=("$(aggregate goal/eplb mean 9 us)" "$(aggregate goal/eplb median 2 ms)" "$(aggregate goal/eplb p99 2500.5 us)")
loops=("$(aggregate goal/eplb/vs:loops median 26e6 ns)" "$(aggregate goal/eplb/vs:loops p99 30 ms)")
heaps=("$(aggregate goal/eplb/vs:heaps median 1500 us)" "$(aggregate goal/eplb/vs:heaps p99 0.0016 s)")
other='{"name": "metrics", "run_name": "metrics", "run_type": "iteration", "real_time": 1, "time_unit": "ns"}'

# Nothing measured.
prints '| `eplb` | host | - | 1.50 ms | not measured | - | - |'
prints '| `eplb` | NVIDIA H200 | - | 150 µs | not measured | - | - |'

# A host: units, ratios on both sides of 1, a missed goal.
raw "${ours[@]}" "$other" "${loops[@]}" "${heaps[@]}" >raw.json
"$program" import raw.json --commit 0123456789abcdef-dirty --cpu 'Some CPU' >results/host.json
prints '| `eplb` | Some CPU | 0.75 x as fast as `heaps`, 13 x as fast as `loops` | 1.50 ms | no | 2.00 ms * | 2.50 ms * |'
prints '| `eplb` | NVIDIA H200 | - | 150 µs | not measured | - | - |'
grep -q '^- Some CPU: 2 cores, .*load average at the start 0.3, version [0-9.]* and uncommitted changes, 2001-02-03 (`host.json`)$' out ||
  fail "$(cat out)"

# A limit that is a multiple of an alternative.
drop=("$(aggregate goal/token_drop median 20 us)" "$(aggregate goal/token_drop p99 30 us)")
prints '| `token_drop` | NVIDIA H200 | - | 3.0 x `one_read` | not measured | - | - |'
nth="$(aggregate goal/token_drop/vs:nth_element p99 9 us)"
raw "${ours[@]}" "${drop[@]}" "$nth" "$(aggregate goal/token_drop/vs:nth_element median 7 us)" >raw.json
"$program" import raw.json --commit c --cpu 'Some CPU' >results/host.json
prints '| `token_drop` | Some CPU | 0.35 x as fast as `nth_element` | 2.5 x `nth_element` | no | 20.0 µs * | 30.0 µs * |'
raw "${ours[@]}" "${drop[@]}" "$nth" "$(aggregate goal/token_drop/vs:nth_element median 8 us)" >raw.json
"$program" import raw.json --commit c --cpu 'Some CPU' >results/host.json
prints '| `token_drop` | Some CPU | 0.40 x as fast as `nth_element` | 2.5 x `nth_element` | yes | 20.0 µs * | 30.0 µs * |'
raw "${ours[@]}" "${drop[@]}" >raw.json
"$program" import raw.json --commit c --cpu 'Some CPU' >results/host.json
refuses 'host.json: goal/token_drop: without goal/token_drop/vs:nth_element' table results
raw "${ours[@]}" >raw.json
"$program" import raw.json --commit c --cpu 'Some CPU' >results/host.json

# A result of script/gpu-check; of two results of a device the newer one counts.
gpu_check() { # DATE GPU BENCHMARKS[,BENCHMARKS]...
  echo '{"gpu": "'"$2"'", "driver": "1.2", "version": "3.2.1", "commit": "c0ffee", "date": "'"$1"'", "finished": true, "steps": [
    {"kind": "test", "name": "a", "status": "passed", "seconds": 1, "log": ""},
    {"kind": "test", "name": "b", "status": "failed: exit 1", "seconds": 1, "log": ""},
    {"kind": "benchmark", "name": "c", "status": "done", "seconds": 1, "log": ""},
    {"kind": "memcheck", "name": "a", "status": "clean", "seconds": 1, "log": ""},
    {"kind": "memcheck", "name": "b", "status": "not run: no time left", "seconds": 0, "log": ""},
    {"kind": "memcheck", "name": "c", "status": "not run: no time left", "seconds": 0, "log": ""},
    {"kind": "synccheck", "name": "a", "status": "failed: errors found", "seconds": 1, "log": ""},
    {"kind": "racecheck", "name": "all", "status": "not run: no tool", "seconds": 1, "log": ""}
  ], "benchmarks": ['"$3"']}'
}
gpu_check 2001-01-01 'NVIDIA H200' "$(raw "$(aggregate goal/eplb median 5 us)" "$(aggregate goal/eplb p99 6 us)")" >results/z.json
gpu_check 2001-01-02 'NVIDIA H200' "$(raw "$(aggregate goal/eplb median 150 us)" "$(aggregate goal/eplb p99 160 us)")" >results/a.json
manual=${drop[0]/real_time\",/manual_time\",}
gpu_check 2001-01-02 'Third GPU' "$(raw "$manual" "${drop[1]/real_time\",/manual_time\",}")" >results/d.json
prints '| `token_drop` | Third GPU | - | - | - | 20.0 µs | 30.0 µs |'
gpu_check 2001-01-02 'Other GPU' "$(raw "$(aggregate goal/eplb median 15 us)" "$(aggregate goal/eplb p99 16 us)")" >results/b.json
prints '| `eplb` | NVIDIA H200 | - | 150 µs | yes | 150 µs | 160 µs |'
prints '| `eplb` | Other GPU | - | - | - | 15.0 µs | 16.0 µs |'
prints '- NVIDIA H200: driver 1.2, test programs passed 1 of 2, compute-sanitizer runs clean 1 of 5, failed 1, not run 3 (no time left 2, no tool 1), version 3.2.1, 2001-01-02 (`a.json`)'
! grep -q '`eplb`.*not measured' out || fail "$(cat out)"
says() { # MET: the README's sentence, of the one GPU that has goals
  local goals
  goals=$("$program" table results | grep -c '| NVIDIA H200 | [^|]* | [0-9]')
  [[ $("$program" summary results | tr '\n' ' ') == "On an NVIDIA H200, 1 of 2 test programs passed with the same bits as on the \
host, and $1 of $goals goals of [performance](docs/performance.md) are met. " ]] || fail "$("$program" summary results)"
}
says 1
gpu_check 2001-01-03 'NVIDIA H200' '' >results/a.json
prints '| `eplb` | NVIDIA H200 | - | 150 µs | not measured | - | - |'
says 0
# Each benchmark has its own process: the alternative is in another one, or missing.
broken='{"run_name": "goal/eplb/real_time", "error_occurred": true, "error_message": "out of memory"}'
gpu_check 2001-01-03 'NVIDIA H200' "$(raw "$broken"),$(raw "$other"),$(raw "${drop[@]}"),$(raw)" >results/a.json
prints '| `eplb` | NVIDIA H200 | - | 150 µs | not measured | - | - |'
prints '| `token_drop` | NVIDIA H200 | - | 3.0 x `one_read` | - | 20.0 µs | 30.0 µs |'
one_read="$(raw "$(aggregate goal/token_drop/vs:one_read median 10 us)" "$(aggregate goal/token_drop/vs:one_read p99 11 us)")"
gpu_check 2001-01-03 'NVIDIA H200' "$(raw "${drop[@]}"),$one_read" >results/a.json
prints '| `token_drop` | NVIDIA H200 | 0.50 x as fast as `one_read` | 3.0 x `one_read` | yes | 20.0 µs | 30.0 µs |'
gpu_check 2001-01-03 'NVIDIA H200' "$one_read" >results/a.json
prints '| `token_drop` | NVIDIA H200 | - | 3.0 x `one_read` | not measured | - | - |'

# Files that are not results.
raw "$other" >raw.json
refuses 'expected benchmarks goal/..., got none' import raw.json --commit c
raw '{"run_name": "goal/eplb/real_time", "error_occurred": true, "error_message": "no GPU"}' >raw.json
refuses 'goal/eplb: no GPU' import raw.json --commit c
raw "$(aggregate goal/eplb median 9 us 5)" "${ours[2]}" >raw.json
refuses 'goal/eplb: the median run took 1.8 times its processor time: the machine is not idle' import raw.json --commit c
raw "${heaps[@]}" >raw.json
"$program" import raw.json --commit c --cpu x >results/c.json
refuses 'c.json: goal/eplb/vs:heaps: without goal/eplb' table results
raw "${ours[@]}" "$(aggregate goal/new median 1 us)" "$(aggregate goal/new p99 1 us)" >raw.json
"$program" import raw.json --commit c --cpu x >results/c.json
refuses 'c.json: goal/new: not among the goals' table results
raw "${ours[1]}" >raw.json
"$program" import raw.json --commit c --cpu x >results/c.json
refuses 'c.json: goal/eplb: expected a number for p99' table results
echo '{' >results/c.json
refuses 'c.json: ' table results
