#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_metrics.sh PROGRAM FILE
# Runs online_balancer and checks that FILE is in Prometheus' text format: every family has a HELP and then
# a TYPE line, once, before its samples; names, labels and values have the form of the format; counters end
# in _total and no other names do; no sample is there twice. And that it has the metrics that docs/online.md
# lists, with plausible values.
set -euo pipefail
program=$1 file=$2
rm -f "$file" "$file.tmp"
"$program" "$file" >/dev/null
[[ ! -e $file.tmp ]] || { echo "$file.tmp is left"; exit 1; }

awk '
  function fail(why) { print FILENAME ":" FNR ": " why ": " $0; bad = 1 }
  /^# HELP / {
    family = $3
    if (family !~ /^[a-zA-Z_:][a-zA-Z0-9_:]*$/) fail("no name of a metric")
    if (family in help) fail("a second HELP")
    if (NF < 4) fail("no text")
    help[family] = 1
    next
  }
  /^# TYPE / {
    if ($3 != family) fail("a TYPE without its HELP")
    if ($3 in type) fail("a second TYPE")
    if (NF != 4 || $4 !~ /^(counter|gauge)$/) fail("no type")
    if (($4 == "counter") != ($3 ~ /_total$/)) fail("only counters end in _total")
    type[$3] = $4
    next
  }
  {
    if ($0 !~ /^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*"(,[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*")*\})? -?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?$/)
      fail("no sample")
    name = $1
    sub(/\{.*/, "", name)
    if (name != family || !(name in type)) fail("a sample of another family")
    if ($1 in value) fail("a second sample")
    value[$1] = $2
    if (type[name] == "counter" && $2 < 0) fail("a negative counter")
    if (name == "plimsoll_balancedness" && ($2 <= 0 || $2 > 1)) fail("no balancedness")
    if (name == "plimsoll_busiest_rank" && $2 !~ /^[0-7]$/) fail("no rank")
    samples[name]++
  }
  END {
    split("balancedness 2 busiest_rank 2 decisions_total 4 moves_total 1 dropped_token_copies_total 1 planning_seconds_total 1", expected, " ")
    for (i = 1; i in expected; i += 2)
      if (samples["plimsoll_" expected[i]] != expected[i + 1]) {
        print FILENAME ": expected " expected[i + 1] " samples of plimsoll_" expected[i]
        bad = 1
      }
    if (value["plimsoll_moves_total"] == 0 || value["plimsoll_decisions_total{answer=\"move\"}"] == 0) {
      print FILENAME ": nothing has moved"
      bad = 1
    }
    exit bad
  }' "$file"
