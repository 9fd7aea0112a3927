#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# spilled_loads.sh SPILLED_LOADS MAKE_LOADS PAGE: tests rules that its tables must keep: those of
# measured loads in PAGE, and those of synthetic loads.
set -euo pipefail
spilled_loads=$1 make_loads=$2 page=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "spilled_loads.sh: $1"; exit 1; }

# Prints the rules that do not hold. Rounded numbers may differ by `last`, one in their last place.
wrong() {
  awk -F ' *[|] *' '
    function must(what, holds) { if (!holds) print "line " NR ": " what }
    function at_most(a, b, last) { return a + 0 <= b + last + 1e-9 }
    function equal(a, b, last) { return at_most(a, b, last) && at_most(b, a, last) }
    function larger(a, b) { return a + 0 > b + 0 ? a : b }
    # What hot experts, and all others, bring to the first of some ranks, over the mean.
    function first_rank(model, ranks, share, hot,  held, own) {
      held = experts[model] / ranks
      own = hot < held ? hot : held
      return ranks * (share * own / hot + (1 - share) * (held - own) / (experts[model] - hot))
    }
    BEGIN { experts["gpt-oss-120b"] = 128; experts["DeepSeek-V3"] = 256; experts["Kimi-K2"] = 384 }
    /^$/ { ++table; row = 0; next }
    ++row <= 2 { next }
    { ++rows[table + 0] }
    table + 0 == 0 && $3 == "balanced" {
      must("nothing moves without need", $6 == "-" && $7 + $8 + $9 == 0 && $10 == $11)
      must("what stays takes as long", $12 == 1 && $13 == 1)
    }
    table + 0 == 0 && $3 != "balanced" {
      split($3, of, / % into /)
      must("the hot experts are on the first rank",
           equal($4, first_rank($2, 8, of[1] / 100, of[2]), 0.01))
      must("no rank is above its capacity", $5 == 1 && $6 == "optimal")
      must("every rank takes part", 7 <= $7 && $8 <= $7 && 1 <= $9 && $9 <= $8)
      must("a single expert goes to every other rank", of[2] != 1 || ($7 == 7 && $8 == 7 && $9 == 1))
      must("less memory is needed", equal($12, $10 / $11, 0.02) && $12 > 1 && at_most($12, $4, 0))
      must("transfers take a part of what is won", $13 > 1 && at_most($13, $4, 0))
      time = larger(time, $13); tokens = larger(tokens, $4); memory = larger(memory, $12)
    }
    table == 1 {
      must("the figures are those of the paper",
           row != 3 || ($3 == "0.92 to 1.07" && $4 == "1.00 to 1.00"))
      must("time is the most of all", row != 4 || ($3 == 6.1 && $4 == time))
      must("tokens are the most of all", row != 5 || ($3 == "-" && $4 == tokens))
      must("memory is the most of all", row != 6 || ($3 == 5 && $4 == memory))
    }
    table == 2 {
      split("0.3 0.5 0.8 0.95", shares, " ")
      for (i = 1; i <= 4; ++i) {
        must("hot experts are on the first ranks",
             equal($(4 + i), first_rank($2, $3, shares[i], $4), 0.02))
      }
      split($11, transfers, " to "); split($12, from, " to "); split($13, into, " to ")
      must("hardly a token is above a capacity", at_most($9, 1, 0.001))
      must("what is above is not optimal", $9 == 1 || $10 != "4 of 4")
      must("nearly all are optimal", $10 ~ /^[34] of 4$/)
      must("no rank sends more than all", from[1] <= transfers[1] && into[1] >= 1)
      must("a single expert goes to every other rank",
           $4 != 1 || ($11 == $3 - 1 && $12 == $3 - 1 && $13 == 1))
      must("ranks need memory for the mean", $15 < 4 && $15 * 4 < $14)
    }
    table == 3 {
      if ($3 == "plain") {
        plain = $4
        must("nothing moves", $6 + $7 + $8 + $9 == 0 && $11 == 1 && $5 == "-")
      } else {
        must("all are better than plain", $4 < plain && $11 > 1)
        must("what crosses is a transfer", $7 <= $6 && $8 <= $6)
        must("status and peak agree", ($5 == "optimal") == ($4 == 1) || $3 ~ / from, /)
      }
      if ($3 == "LLEP\047s") { across = $7; alike = $11; must("the peak is the least", $5 == "optimal") }
      if ($3 == "nodes" && /far apart/) {
        must("a node keeps what it can", 2 * $7 < across && $11 > alike)
      }
      if ($3 ~ / from, /) {
        split($3, limit, / from, | into/)
        must("limits are kept", $8 <= limit[1] && $9 <= limit[2])
      }
      if ($3 == "nodes, price") must("the price knows what time is", at_most(alike, $11, 0.1))
    }
    table == 4 {
      must("all have chunks of one", $6 == 1)
      must("what is priced pays", $11 >= 1 && at_most($8, $11, 0) && at_most($5, $11, 0))
      must("what pays is larger with larger batches", $11 >= priced)
      priced = $11
      if (row == 3) must("what does not pay is not done", $5 < 1 && $8 < 1 && $10 == 0 && $11 == 1)
    }
    table == 5 {
      split($5, home, " / "); split($7, all, " / ")
      split($9, transfers, " / "); split($10, from, " / "); split($11, into, " / ")
      must("no mean is above the worst", home[1] <= home[2] && all[1] <= all[2] &&
           transfers[1] <= transfers[2] && from[1] <= from[2] && into[1] <= into[2])
      must("spilling makes it more even", 1 <= all[1] && all[2] <= home[2] &&
           (all[1] < home[1] || $6 + 0 == 0))
      must("shares are shares", 0 <= $6 + 0 && at_most($6, 100) && at_most($8, 100))
      must("nodes keep some transfers", at_most($13, $12) && at_most($12, transfers[1]))
      must("what crosses needs two nodes", $3 > 8 || $12 + $13 == 0)
      if ($4 == 1024) { worst = all[2]; mean = all[1] }
      else must("small chunks find room", at_most(all[1], mean) && at_most(all[2], worst))
    }
    END {
      must("39, 4, 18, 18, 6 and 8 rows", rows[0] == 39 && rows[1] == 4 && rows[2] == 18 &&
           rows[3] == 18 && rows[4] == 6 && rows[5] == 8)
    }' "$1"
}

# Without traces, the rows of measured loads are copied from the page.
export PLIMSOLL_TRACE_DIR=
"$spilled_loads" "$page" >out 2>error
grep -q 'PLIMSOLL_TRACE_DIR names no folder' error || fail "$(cat error)"
[[ -z $(wrong out) ]] || fail "$(wrong out; cat out)"

# The rules detect worse plans and other numbers of rows.
seen() { [[ -n $(wrong altered) ]] || fail "expected to see $1 in: $(cat altered)"; }
column() {  # column TO FROM TABLE: what TO would be if it were FROM
  awk -F '|' -v OFS='|' -v to="$(($1 + 1))" -v from="$(($2 + 1))" -v number="$3" '
    /^$/ { ++table }
    table + 0 == number && NF > 1 { $to = $from }
    { print }' out >altered
}
column 4 3 0 && seen 'peaks as with all tokens at home'
column 10 9 0 && seen 'memory as with all tokens at home'
column 7 8 0 && seen 'fewer transfers'
column 11 2 2 && seen 'a transfer too many'
column 14 13 2 && seen 'more memory than is needed'
column 6 5 3 && seen 'transfers that all cross'
column 10 7 4 && seen 'a price that nobody asks'
column 6 4 5 && seen 'measured loads that stay'
sed 's/\(| 4 from, 2 into a rank |.*|\) 4 | \([0-9]\) |/\1 5 | \2 |/' out >altered && seen 'more than a limit'
sed 's/^| time of a layer, at most | 6.1/| time of a layer, at most | 7.1/' out >altered && seen 'another figure of the paper'
sed '/^| Kimi-K2 | 64 | 4 /d' out >altered && seen 'a row less'

# With traces, they are generated.
export PLIMSOLL_TRACE_DIR=traces
file=traces/glm-5.2-ten-domains/counts_by_chunk.npy
mkdir -p "${file%/*}"
cp out of_page
"$make_loads" --steps 8 --layers 2 --experts 256 --tokens 24576 --top-k 8 --skew 1 --drift 0.2 \
  --output "$file" >made
"$spilled_loads" "$page" >out
[[ -z $(wrong out) ]] || fail "$(wrong out; cat out)"
(($(grep -Fxvc -f of_page out) == 8)) || fail "expected rows to be made: $(cat out)"

# Even loads stay at home: 256 times 64 tokens on any number of ranks.
"$make_loads" --steps 4 --layers 1 --experts 256 --tokens 2048 --top-k 8 --skew 0 --drift 0 \
  --output "$file" >made
"$spilled_loads" "$page" >out
(($(grep -c '| 1.000 / 1.000 | 0.0 % | 1.000 / 1.000 |' out) == 8)) ||
  fail "expected all to stay: $(cat out)"

# A missing trace is an error; its rows are not copied from the page.
rm "$file"
code=0
"$spilled_loads" "$page" >out 2>error || code=$?
((code == 2)) && grep -q counts_by_chunk error || fail "expected exit code 2, got $code and: $(cat error)"
