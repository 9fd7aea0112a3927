#!/usr/bin/env bash
# layout.sh FOLDER: headers include only what docs/design.md lets their layer include, and public headers
# stay short enough to read.
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
found=$(grep -rnE '^#include <plimsoll/detail/(call|host|device)/' detail/algorithm detail/common || true)
[[ -z $found ]] || complain "bodies include what launches or prepares them:
$found"
found=$(grep -rnE '^#include <plimsoll/detail/call/' detail/*.hpp detail/host detail/device || true)
[[ -z $found ]] || complain "launchers include calls:
$found"
found=$(grep -nE '^#include <plimsoll/detail/' ./*_types.hpp systems/*_types.hpp || true)
[[ -z $found ]] || complain "types include internal headers:
$found"
found=$(grep -nE '\bfor \((index_t|std::|auto)|\bwhile \(|\blaunch\(' $(ls ./*.hpp systems/*.hpp | grep -vE "/($basics|plimsoll)\.hpp$") || true)
[[ -z $found ]] || complain "public headers contain loops or launches:
$found"

while read -r lines header; do
  most=450
  [[ $header != systems/* ]] || most=200
  ((lines <= most)) || complain "$header has $lines lines, the limit is $most"
done < <(wc -l -- *.hpp systems/*.hpp | grep -v ' total$')
((bad == 0))
