#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# unequal_ranks.sh UNEQUAL_RANKS MAKE_LOADS PAGE: tests rules that its tables must keep: those of
# measured loads in PAGE, and those of synthetic loads.
set -euo pipefail
unequal_ranks=$1 make_loads=$2 page=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "unequal_ranks.sh: $1"; exit 1; }

# wrong TABLES MEASURED: prints the rules that do not hold. For random loads (MEASURED 0) only the steps
# that plans were made from are checked. Rounded numbers may differ by `last`, one in their last place.
wrong() {
  awk -F ' *[|] *' -v measured="$2" '
    function must(what, holds) { if (!holds) print "line " NR ": " what }
    function at_most(a, b, last) { return a + 0 <= b + last + 1e-9 }
    function is_part(part, less, more) {
      return at_most(part, 100 * (1 - less / more), 0.1) && at_most(100 * (1 - less / more), part, 0.1)
    }
    /^$/ { ++table; row = 0; next }
    ++row <= 2 { next }
    { ++rows[table + 0] }
    table + 0 == 0 {
      planned[$3] = $4; unseen[$3] = $5
      must("the last column is what is saved of linear", is_part($6, $5, unseen["linear"]))
      if ($3 == "GEM") {
        for (plan in planned) must("GEM plans best", at_most($4, planned[plan]))
        if (measured) {
          must("EPLB is below linear", planned["EPLB"] < planned["linear"])
          must("GEM is below linear and EPLB", $5 < unseen["linear"] && $5 < unseen["EPLB"])
        }
      }
    }
    table == 1 {
      must("18 starts", $3 > 0 && $3 % 18 == 0)
      must("GEM is below both in 80 % of them", !measured || $6 + 0 >= 80)
      must("below both is below each", at_most($6, $4) && at_most($6, $5))
    }
    table == 2 {
      latency[$2] = $3
      if (row == 3) linear = $3 / (1 - $4 / 100)
      must("what is saved goes with latency", is_part($4, $3, linear))
      must("GEM is below linear", !measured || $4 + 0 > 0)
    }
    table == 3 {
      for (i = 5; i <= 7; ++i) {
        split($i, of, /[ ()]+/)
        mean[i] = of[1]; worst[i] = of[2]
        must("no layer below its bound, the mean below the worst", 1 <= mean[i] && mean[i] <= worst[i])
      }
      must("swaps help, and other starts do", mean[6] < mean[5] && mean[7] < mean[6] &&
           worst[6] <= worst[5] && worst[7] <= worst[6])
      must("swaps were made", 0 < $8)
    }
    END {
      must("8, 2, 7 and 6 rows", rows[0] == 8 && rows[1] == 2 && rows[2] == 7 && rows[3] == 6)
      if (measured) {
        must("16 steps tell more than one", latency["trace of 16"] < latency["trace of 1"])
        must("64 hardly more", at_most(0.99 * latency["trace of 16"], latency["trace of 64"]))
      }
    }' "$1"
}

# Without traces, the rows of measured loads are copied from the page.
export PLIMSOLL_TRACE_DIR=
"$unequal_ranks" "$page" >out 2>error
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"
[[ -z $(wrong out 1) ]] || fail "$(wrong out 1; cat out)"

# The rules detect worse plans and other numbers of rows.
seen() { [[ -n $(wrong altered 1) ]] || fail "expected to see $1 in: $(cat altered)"; }
column() {  # column TO FROM TABLE: what TO would be if it were FROM
  awk -F '|' -v OFS='|' -v to="$(($1 + 1))" -v from="$(($2 + 1))" -v number="$3" '
    /^$/ { ++table }
    table + 0 == number && NF > 1 { $to = $from }
    { print }' out >altered
}
sed 's/| GEM | .*/| GEM | 30.00 | 36.00 | 0.3 % |/' out >altered && seen 'a GEM that only knows its own steps'
sed 's/| EPLB | [0-9.]*/| EPLB | 50.00/' out >altered && seen 'an EPLB that balances nothing'
sed 's/\(| EPLB, .*|\) [0-9.]* %/\1 50.0 %/' out >altered && seen 'a part that is none'
sed 's/^\(| GEM.* |\) [0-9.]* % |\( [0-9.]* % |\)$/\1 79.9 % |\2/' out >altered && seen 'GEM below both too rarely'
sed 's/^\(| trace of 16 |\) [0-9.]*/\1 99.00/' out >altered && seen 'traces that do not help'
column 4 5 3 && seen 'searches without swaps'
column 6 5 3 && seen 'searches from one start'
sed '/^| trace of 8 /d' out >altered && seen 'a row less'

# With traces, they are generated.
export PLIMSOLL_TRACE_DIR=traces
file=traces/gpt-oss-20b-decode/counts_by_decode_step.npy
mkdir -p "${file%/*}"
cp out of_page
"$make_loads" --steps 504 --layers 1 --experts 32 --skew 0.7 --drift 0.03 --output "$file" >made
"$unequal_ranks" "$page" >out
[[ -z $(wrong out 0) ]] || fail "$(wrong out 0; cat out)"
(($(grep -Fxvc -f of_page out) == 8 + 2 + 7)) || fail "expected all rows to be made: $(cat out)"

# 64 tokens for every expert in every step: 4 tiles on every rank, whatever the plan.
"$make_loads" --steps 504 --layers 1 --experts 32 --tokens 512 --top-k 4 --skew 0 --drift 0 \
  --output "$file" >made
"$unequal_ranks" "$page" >out
(($(grep -c '^| gpt-oss-20b.* | 35.84 | 35.84 | 0.0 % |$' out) == 8)) &&
  (($(grep -c '^| GEM.* | 18 | 0.0 % | 0.0 % | 0.0 % | 0.0 % |$' out) == 2)) &&
  (($(grep -c '^| trace.* | 35.84 | 0.0 % |$' out) == 7)) || fail "expected 1.12 x 32 us: $(cat out)"

# A missing or short trace is an error; its rows are not copied from the page.
expect_error() {
  local code=0
  "$unequal_ranks" "$page" >out 2>error || code=$?
  ((code == 2)) && grep -q "$1" error || fail "expected exit code 2, got $code and: $(cat error)"
}
"$make_loads" --steps 503 --layers 1 --experts 32 --output "$file" >made
expect_error '504 or more'
rm "$file"
expect_error counts_by_decode_step
