#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device_costs.sh DEVICE_COSTS: a body whose costs are known is counted right.
set -euo pipefail
out=$("$1" --toy)
printed() { grep -qF -- "$1" <<<"$out" || { echo "device_costs.sh: expected '$1' in: $out"; exit 1; }; }

# One launch of two: the other has no problems. Of three problems the last has the most calls: the
# store is none, and its two singles are. 48 bytes of an array that is set to zero and read.
printed '| toy | 1 (of 1) | 1, 1 | 8 (over: 5) | 42 | 0 B | 48 B | 0 B |'
printed '| toy | `toy_body` | 3 | warp | 6 | 2 | 42 | single | 32 B |'
