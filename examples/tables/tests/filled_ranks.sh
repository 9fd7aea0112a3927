#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# filled_ranks.sh FILLED_RANKS: tests rules that its tables must keep for any tokens.
set -euo pipefail
filled_ranks=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "filled_ranks.sh: $1"; exit 1; }

# Prints the rules that do not hold. Rounded numbers may differ by `last`, one in their last place.
wrong() {
  awk -F ' *[|] *' '
    function must(what, holds) { if (!holds) print "line " NR ": " what }
    function at_most(a, b, last) { return a + 0 <= b + last }
    /^$/ { ++table; row = 0; next }
    ++row <= 2 { next }
    { ++rows[table + 0] }
    table != 1 {
      home = $4; least = $5; sampled = $8
      must("the surplus rule reaches the lowest peak", $7 == least)
      must("no peak is lower", at_most(least, $6) && at_most(least, sampled) && at_most(least, $9))
      must("visited ranks do at least as well as sampled", at_most($6, sampled))
      must("rows at home have the highest peak", home > least && at_most($6, home))
      must("SGLang has ranks that are alike, below 32", ($10 == "-") == ($3 >= 32 || /speed/))
      gain[$2, $3] = home - least
    }
    table == 1 {
      # Of the 9 rows of work that a token is, at least those above the peak of one rank must move.
      least_moved = 100 * 9 * gain[$2, $3] / $3
      must("enough rows move", at_most(least_moved, $4, 0.15) && at_most(least_moved, $5, 0.15))
      must("half of the moved rows are saved", at_most(2 * $4, $6) && at_most(2 * $5, $7))
      must("new destinations are moved rows", at_most($8, $5) && at_most($9, $7))
      must("half of the new destinations are saved", at_most(2 * $8, $9))
      must("a part of the surplus stays", 0 <= $10 + 0 && at_most($10, 100))
    }
    END { must("18, 18 and 4 rows", rows[0] == 18 && rows[1] == 18 && rows[2] == 4) }' "$1"
}

"$filled_ranks" page.md >out
[[ -z $(wrong out) ]] || fail "$(wrong out; cat out)"

# The rules detect other methods and other numbers of rows.
seen() { [[ -n $(wrong altered) ]] || fail "expected to see $1 in: $(cat altered)"; }
column() {  # column TO FROM TABLE...: what TO would be if it were done as FROM
  awk -F '|' -v OFS='|' -v to="$(($1 + 1))" -v from="$(($2 + 1))" -v tables=" ${*:3} " '
    /^$/ { ++table }
    index(tables, " " table + 0 " ") && NF > 1 { $to = $from }
    { print }' out >altered
}
column 6 3 0 && seen 'rows that stay at home'
column 6 8 0 && seen 'sampled rows instead of surplus'
column 5 3 2 && seen 'rows that stay at home, where ranks differ'
column 3 5 1 && seen 'the moves of sampled rows'
column 4 6 1 && seen 'the moves of rows sampled from all ranks'
column 3 9 1 && seen 'too few moves'
column 7 8 1 && seen 'as many new destinations'
sed '0,/^| 0.50 | 16 /{/^| 0.50 | 16 /d}' out >altered && seen 'a row less'
