#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check.sh SOURCE-DIR: `script/gpu-check --run` with stand-ins for the GPU, the programs and compute-sanitizer.
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "gpu_check.sh: $1"; exit 1; }

gpu=build/gpu
mkdir -p script path $gpu/bin $gpu/tests/golden
cp "$source/script/gpu-check" script/
cp "$source/tests/golden/check_hashes.sh" $gpu/tests/golden/
echo 'hash suite.case 0123456789abcdef' >$gpu/tests/golden/hashes.txt
echo c0ffee >$gpu/commit
echo 1.2.3 >$gpu/version
touch $gpu/turns

stand_in() { # PROGRAM, its text from standard input
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
# A test program: counts cases, and does in the end what its text says.
test_program() {
  stand_in "$gpu/bin/$1" < <(
    echo 'echo "${0##*/} $*" >>../../calls'
    echo 'if [[ $* == *--count* ]]; then echo "test cases matching the current filters: 3"; exit; fi'
    cat
  )
}
test_program team_cu <<<'echo passed'
test_program hashes_cu <<<'echo; echo "hash suite.case 0123456789abcdef"'
test_program other_hashes_cu <<<'echo; echo "hash suite.case fedcba9876543210"'
test_program failing_cu <<<'echo "/some/folder/tests/x.hpp:1: expected 1, \"got\" 2"; exit 1'
test_program hanging_cu <<<'sleep 600'
test_program without_gpu_cu <<<'echo "no GPU: cases skip"'
stand_in path/nvidia-smi <<<'echo "Some GPU, 1.2"'
stand_in path/compute-sanitizer <<'TOOL'
echo "$*" >>../../sanitized
case $*  in
  *synccheck*) echo "Error: cannot start" ; exit 1 ;;
  *racecheck*hashes_cu*) echo "RACECHECK SUMMARY: 2 hazards displayed"; exit 86 ;;
  *hanging*) sleep 600 ;;
esac
echo "ERROR SUMMARY: 0 errors"
TOOL
stand_in $gpu/bin/plimsoll_bench_cuda <<'BENCH'
names=(other/first goal/hangs goal/works goal/works/vs:peer goal/crashes)
[[ $* != *list_tests* ]] || { printf '%s\n' "${names[@]}"; exit; }
for argument; do
  [[ $argument != --benchmark_filter=* ]] || filter=${argument#*=}
  [[ $argument != --benchmark_out=* ]] || file=${argument#*=}
done
case $filter in
  '^goal/hangs$') sleep 600 ;;
  '^goal/crashes$') exit 139 ;;
esac
echo '{"benchmarks": [{"run_name": "'"$filter"'"}]}' >"$file"
BENCH

export PATH=$folder/path:$PATH
run() { # SECONDS: sets code; a run that does not end by itself is ended
  rm -rf results calls sanitized
  code=0
  OUT=$folder/results timeout 300 script/gpu-check --run "$@" >out 2>&1 || code=$?
}
is() { # EXPRESSION: in Python, of the result r and the statuses by kind and name
  python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
status = {(s["kind"], s["name"]): s["status"] for s in r["steps"]}
assert eval(sys.argv[2]), (sys.argv[2], r)' results/*.json "$1" || fail "$(cat out)"
}

# Of every stage something hangs, and yet all have their turn.
run 60
((code == 1)) || fail "expected exit code 1, got $code: $(cat out)"
is 'r["finished"] and r["gpu"] == "Some GPU" and r["driver"] == "1.2" and r["commit"] == "c0ffee" and r["version"] == "1.2.3"'
is '[s["name"] for s in r["stages"]] == ["smoke", "tests", "benchmarks", "sanitizers"]'
is 'status["smoke", "team_cu"] == "passed"'
is 'status["test", "hashes_cu"] == "passed" and status["test", "other_hashes_cu"] == "failed: hashes differ"'
is 'status["test", "failing_cu"] == "failed: exit 1" and status["test", "hanging_cu"] == "failed: time limit"'
is 'status["test", "without_gpu_cu"] == "failed: the program found no GPU"'
is '[s["log"] for s in r["steps"] if s["name"] == "failing_cu"][0] == "tests/x.hpp:1: expected 1, \"got\" 2"'
is '[s["name"] for s in r["steps"] if s["kind"] == "benchmark"] == ["goal/hangs", "goal/works", "goal/works/vs:peer", "goal/crashes", "other/first"]'
is 'status["benchmark", "goal/hangs"] == "failed: time limit" and status["benchmark", "goal/crashes"] == "failed: exit 139"'
is '[b["benchmarks"][0]["run_name"] for b in r["benchmarks"]] == ["^goal/works$", "^goal/works/vs:peer$", "^other/first$"]'
is 'status["memcheck", "hashes_cu"] == "clean" and status["memcheck", "hanging_cu"] == "not run: time limit"'
is 'status["racecheck", "hashes_cu"] == "failed: errors found" and status["racecheck", "team_cu"] == "clean"'
is 'status["synccheck", "team_cu"] == "not run: Error: cannot start" and ("synccheck", "hashes_cu") not in status'
grep -q -- '--test-case=\*team: smoke\*' calls || fail "no smoke test in $(cat calls)"
grep -q 'hashes_cu --test-case-exclude=\*<thrust::host>\*,\*<thrust::omp::par>\*' calls || fail "host policies in $(cat calls)"
grep -q 'hashes_cu --test-case=\*<gpu(stream)>\*,\*captured in a CUDA graph\*' sanitized || fail "cases of $(cat sanitized)"

# What users run: the stages' times add up to what is asked for, by default less than 8 minutes.
rm $gpu/bin/{hanging,failing,without_gpu,other_hashes}_cu
stand_in $gpu/bin/plimsoll_bench_cuda <<<'[[ $* == *list_tests* ]] && echo goal/works || echo "{\"benchmarks\": []}" >"${2#*=}"'
run
is 'sum(s["planned_seconds"] for s in r["stages"]) <= 450'
is 'r["finished"] and r["benchmarks"] == [{"benchmarks": []}]'

# A check begins with the runs of compute-sanitizer that the newest result says had no time; then come those that
# reached their limit, and last those that ended. --prepare takes the turns from there to the machine with the GPU.
result_file() { # DATE STEP...: a step is "TOOL PROGRAM STATUS"
  printf '{\n  "gpu": "Some GPU",\n  "date": "%s",\n  "steps": [' "$1"
  printf '%s\n' "${@:2}" | sed -E 's/([^ ]*) ([^ ]*) (.*)/\n    {"kind": "\1", "name": "\2", "status": "\3", "seconds": 0, "log": ""},/'
  printf '    {"kind": "smoke", "name": "team_cu", "status": "passed", "seconds": 0, "log": ""}\n  ]\n}\n'
}
mkdir -p bench/results tests include/plimsoll
cp "$source/include/plimsoll/version.hpp" include/plimsoll/
result_file 2001-01-03 'memcheck first_cu not run: no time left' 'memcheck hashes_cu clean' >bench/results/old.json
result_file 2001-02-01 'memcheck team_cu clean' 'memcheck first_cu clean' 'memcheck hashes_cu not run: no time left' \
  'memcheck team_cu not run: no time left' 'racecheck team_cu clean' 'racecheck first_cu not run: no time left' \
  'racecheck hashes_cu not run: time limit' 'racecheck team_cu failed: errors found' >bench/results/new.json
echo '{"date": "2001-03-01", "device": {}}' >bench/results/host.json
test_program first_cu <<<'echo passed'
test_program new_cu <<<'echo passed'
cp -R $gpu/tests/golden tests/
mv $gpu/bin programs
touch libx.so
stand_in script/bootstrap <<<''
stand_in path/cmake <<<'mkdir -p build/gpu; rm -rf build/gpu/bin; cp -R programs build/gpu/bin'
stand_in path/nvcc <<<'cp "$(type -P true)" "${!#}"'
stand_in path/strip <<<''
stand_in path/ldd <<<"echo 'libx.so => $folder/libx.so (0x0)'"
CUDACXX=nvcc PLIMSOLL_TRACE_DIR='' script/gpu-check --prepare >out 2>&1 || fail "$(cat out)"
rm -r bench
run
is 'r["finished"] and r["version"].count(".") == 2'
sed -nE '/team: smoke/!s|^--tool ([a-z]*) .* bin/([a-z_]*) .*|\1 \2|p' sanitized | diff - <(cat <<'ORDER'
memcheck hashes_cu
memcheck new_cu
memcheck team_cu
racecheck first_cu
racecheck new_cu
racecheck hashes_cu
memcheck first_cu
racecheck team_cu
ORDER
) >order || fail "order of compute-sanitizer's runs: $(cat order)"

# A broken toolchain shows at once.
rm $gpu/programs.tar.gz
test_program team_cu <<<'exit 3'
run 60
((code == 1)) || fail "expected exit code 1, got $code: $(cat out)"
is 'not r["finished"] and [(s["kind"], s["status"]) for s in r["steps"]] == [("smoke", "failed: exit 3")]'

# What cannot run at all.
run 1x
((code == 2)) && grep -q 'expected a number of seconds, got 1x' out || fail "$(cat out)"
stand_in path/nvidia-smi <<<'echo "no devices were found"; exit 6'
run
((code == 1)) && grep -q 'no GPU here (nvidia-smi: no devices were found)' out || fail "$(cat out)"
rm -r $gpu
run
((code == 1)) && grep -q 'no build/gpu here; first run script/gpu-check --prepare' out || fail "$(cat out)"
