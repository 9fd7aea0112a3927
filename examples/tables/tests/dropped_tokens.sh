#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dropped_tokens.sh DROPPED_TOKENS: tests the rows, on synthetic choices.
set -euo pipefail
dropped_tokens=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "dropped_tokens.sh: $1"; exit 1; }
has() { grep -qxF -- "$1" out || fail "expected '$1' in: $(cat out)"; }

# Without traces, rows are copied from the page.
export PLIMSOLL_TRACE_DIR=
old='| DeepSeek-V2-Lite | anything |'
echo "$old" >page.md
"$dropped_tokens" page.md >out 2>error
has "$old"
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"

# npy FILE DTYPE TOKENS K: writes a file of (tokens, 1, k), with values from stdin.
npy() {
  local header="{'descr': '$2', 'fortran_order': False, 'shape': ($3, 1, $4), }"
  { printf "\\x93NUMPY\\1\\0\\x$(printf %02x ${#header})\\0%s" "$header"; cat; } >"$1"
}
repeated() { local i; for ((i = 0; i < $1; ++i)); do printf "$2"; done; }

# A little more than one batch. All tokens choose the first experts, except later tokens of the other
# model, which would change the figures if they were counted.
export PLIMSOLL_TRACE_DIR=traces
mkdir -p traces/gpt-oss-20b-decode traces/deepseek-v2-lite-esft
repeated 1030 '\0\1\2\3' | npy traces/gpt-oss-20b-decode/topk_ids_first32k.npy '|u1' 1030 4
repeated 1030 '\0\x34\0\x34\0\x34\0\x34' |
  npy traces/gpt-oss-20b-decode/topk_scores_first32k.npy '<f2' 1030 4
{ repeated 1024 '\0\1\x10\x11\x20\x3f'; repeated 6 '\1\2\3\4\5\6'; } |
  npy traces/deepseek-v2-lite-esft/topk_ids.npy '|u1' 1030 6
repeated 1030 '\1\0\0\x3c\1\0\0\x3c\1\0\0\x3c' |
  npy traces/deepseek-v2-lite-esft/topk_weights.npy '<f2' 1030 6
"$dropped_tokens" page.md >out
(($(grep -c '^| gpt-oss-20b |' out) == 17 && $(grep -c '^| DeepSeek-V2-Lite |' out) == 17)) ||
  fail "expected 17 rows each: $(cat out)"

# 4 of 32 experts, all on one of 8 ranks, have 1024 tokens each; 128 are the mean of all.
has '| gpt-oss-20b | none | - | 0.00 % | 8.000 | 8.000 | 8.000 |'
has '| gpt-oss-20b | each expert | 1 | 87.50 % | 8.000 | 8.000 | 1.000 |'
has '| gpt-oss-20b | each expert | 2.5 | 68.75 % | 8.000 | 8.000 | 2.500 |'
has '| gpt-oss-20b | each rank | 0.5 | 93.75 % | 8.000 | 8.000 | 0.500 |'
# 6 of 64 experts with 1024 tokens each, 96 being the mean of all: two on rank 0, two on rank 2, one
# each on ranks 4 and 7. A rank may take 8 * 96.
has '| DeepSeek-V2-Lite | none | - | 0.00 % | 10.667 | 2.667 | 2.667 |'
has '| DeepSeek-V2-Lite | each expert | 1 | 90.62 % | 10.667 | 2.667 | 0.250 |'
has '| DeepSeek-V2-Lite | each rank | 2 | 16.67 % | 12.800 | 2.400 | 2.000 |'

# A missing trace, or one of other dimensions, is an error; its rows are not copied from the page.
refused() {
  local code=0
  "$dropped_tokens" page.md >out 2>error || code=$?
  ((code == 2)) && grep -q "$1" error || fail "expected exit code 2, got $code and: $(cat error)"
}
repeated 1030 '\7\7\7\7' | npy traces/gpt-oss-20b-decode/topk_ids_first32k.npy '|u1' 1030 4
refused 'expected different experts for every token'
rm -r traces/gpt-oss-20b-decode
refused topk_ids_first32k.npy
