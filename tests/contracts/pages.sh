#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pages.sh ROOT: docs/README.md leads to every page, the four pages of the way in are short, no page is longer than
# 400 lines, and none names a file of detail/ in its first paragraph.
set -euo pipefail
export LC_ALL=C
cd "$1"
most_lines=400 most_words=3000
way_in=(docs/quick_start.md docs/plan_a_model.md docs/one_step.md docs/loop.md)
bad=0
complain() {
  echo "$1"
  bad=1
}

for page in docs/*.md docs/measured/*.md; do
  lines=$(wc -l <"$page")
  ((lines <= most_lines)) || complain "$page: expected at most $most_lines lines, got $lines"
  [[ $page == docs/README.md ]] || grep -qE "\]\(${page#docs/}[)#]" docs/README.md || complain "docs/README.md does not link to $page"
  ! awk 'NR == 1 { next } /[^ ]/ { inside = 1 } inside && !/[^ ]/ { exit } inside' "$page" | grep -q 'detail/' ||
    complain "$page: the first paragraph names a file of detail/, which no caller includes"
  ! grep -nF ']()' "$page" || complain "$page: a link to nowhere"
done

words=$(cat "${way_in[@]}" | wc -w)
((words <= most_words)) || complain "the way in (${way_in[*]}): expected at most $most_words words, got $words"
# A newcomer reads them first and in this order.
links=$(sed -n '/^## Read this$/,/^## /s/^[0-9]\. \[[^]]*\](\([a-z_]*\.md\)).*/docs\/\1/p' docs/README.md | paste -sd' ')
[[ $links == "${way_in[*]}" ]] || complain "docs/README.md, Read this: expected ${way_in[*]}, got $links"
((bad == 0))
