#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh DEVICE_COSTS: tests the counts of a body with known costs, and what its limits refuse.
set -euo pipefail
program=$1
limits=$(mktemp)
trap 'rm -f "$limits"' EXIT
count() { # EXIT-CODE ROW...: counts under these limits
  local code=0
  printf '%s\n' '# limits' "${@:2}" >"$limits"
  out=$("$program" --toy "$limits" 2>&1) || code=$?
  ((code == $1)) || { echo "test.sh: expected exit code $1 by ${*:2}, got $code and: $out"; exit 1; }
}
printed() { grep -qF -- "$1" <<<"$out" || { echo "test.sh: expected '$1' in: $out"; exit 1; }; }

# One launch of two counts, since the other has no problems. Of three problems the last has the most
# calls: its two singles count, and its store does not. An array of 48 bytes is set to zero and read.
count 0 'call | toy | 1 | 2 | 8 | 1'
printed '| toy | 1 (of 1) | 2 (of 2) | 8 (of 8) | 0 B | 1 (of 1) |'
printed '| toy | `toy_body` | 3 | warp | 6 | 2 | 42 | single | 32 B |'

count 1 'call | toy | 0 | 1 | 7 | 0'
for complaint in 'launches: 1, the limit is 0' 'memsets and copies: 2, the limit is 1' \
  'calls in series: 8, the limit is 7' 'KiB of arrays: 1, the limit is 0'; do
  printed "toy: $complaint"
done
count 1 'alone | toy_body | 40 | why'
printed 'toy: no row in the file of limits'
count 1 'call | toy | 1 | 2 | 8 | 1' 'call | other | 1 | 2 | 8 | 1'
printed 'other: the file of limits has a row, but nothing counts it'
count 1 'call | toy | 1 | 2 | 8 | 1' 'alone | toy_body | 41 | why'
printed 'toy_body: steps alone: 42, the limit is 41'
count 2 'alone | toy_body | 40'
printed 'expected a row of a call or of steps alone, got alone | toy_body | 40'
