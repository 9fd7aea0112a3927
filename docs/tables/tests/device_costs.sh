#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device_costs.sh DEVICE_COSTS: tests the counts of a body with known costs.
set -euo pipefail
out=$("$1" --toy)
printed() { grep -qF -- "$1" <<<"$out" || { echo "device_costs.sh: expected '$1' in: $out"; exit 1; }; }

# One launch of two counts, since the other has no problems. Of three problems the last has the most
# calls: its two singles count, and its store does not. An array of 48 bytes is set to zero and read.
printed '| toy | 1 (of 1) | 1, 1 | 8 (over: 5) | 42 | 0 B | 48 B | 0 B |'
printed '| toy | `toy_body` | 3 | warp | 6 | 2 | 42 | single | 32 B |'
