#!/usr/bin/env bash
# layout.sh FOLDER: headers include only what docs/design.md lets their layer include, only bodies that prove how
# good their results are write certificates, and public headers stay short enough to read.
set -euo pipefail
cd "$1/plimsoll"
bad=0
complain() {
  echo "$1"
  bad=1
}

basics='config|error|execution|memory|random|types|views'
found=$(grep -rnE '^#include <plimsoll/' detail | grep -vE "<plimsoll/(detail/.*|($basics)\.hpp|(systems/)?[a-z_]+_types\.hpp)>" || true)
[[ -z $found ]] || complain "internal headers include public ones other than $basics and *_types.hpp:
$found"
found=$(grep -rnE '^#include <plimsoll/detail/(planning|call|host|device)/' detail/algorithm detail/common || true)
[[ -z $found ]] || complain "bodies include what launches or prepares them:
$found"
found=$(grep -rnE '^#include <plimsoll/detail/(planning|call)/' detail/*.hpp detail/host detail/device || true)
[[ -z $found ]] || complain "launchers include calls:
$found"
found=$(grep -rnE '^#include <plimsoll/detail/planning/' detail/call || true)
[[ -z $found ]] || complain "calls include planning:
$found"
# What a call prepares and keeps; an algorithm belongs to detail/planning.
prepared='[a-z_]+_pipeline|int32_ids|latency_pieces'
found=$(grep -rnE '^class ' detail/call | grep -vE ":class ($prepared)\b" || true)
[[ -z $found ]] || complain "calls have classes other than $prepared:
$found"
found=$(grep -nE '^#include <plimsoll/detail/' ./*_types.hpp systems/*_types.hpp || true)
[[ -z $found ]] || complain "types include internal headers:
$found"
found=$(grep -nE '\bfor \((index_t|std::|auto)|\bwhile \(|\blaunch\(' $(ls ./*.hpp systems/*.hpp | grep -vE "/($basics|plimsoll)\.hpp$") || true)
[[ -z $found ]] || complain "public headers contain loops or launches:
$found"
# Other bodies have results of their own types: a certificate holds neither their counts nor their speeds.
provers='knapsack|least_loaded|minmax_lp|move_path|placement|refinement|replication|swap_search'
found=$(grep -rnE '\bresult\.(value|lower_bound|work) *=|\bcertificate\{[^}]|\bcertify\(|\bcertificate_status::' detail/algorithm detail/common |
  grep -vE "^detail/algorithm/($provers)\.hpp:" || true)
[[ -z $found ]] || complain "bodies other than $provers write certificates:
$found"

while read -r lines header; do
  most=450
  [[ $header != systems/* ]] || most=200
  ((lines <= most)) || complain "$header has $lines lines, the limit is $most"
done < <(wc -l -- *.hpp systems/*.hpp | grep -v ' total$')
((bad == 0))
