#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# page.sh TABLES: tests what page writes into a page, and what it refuses.
set -euo pipefail
page=$1/page
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "page.sh: $1: $(cat page.md)"; exit 1; }
refuses() { ! "$page" "$@" >out 2>&1 || fail "expected a refusal of $*"; }

printf 'text\n\n<!-- table: x -->\n<!-- end of table -->\n\nmore | text\n' >page.md
refuses --check page.md echo row
"$page" --update page.md echo row
"$page" --check page.md echo row
[[ $(cat page.md) == $'text\n\n<!-- table: x -->\nrow\n<!-- end of table -->\n\nmore | text' ]] || fail 'another text'
refuses --check page.md echo other
refuses --update page.md false
"$page" --check page.md echo row

# Of several tables, that of the program.
printf '<!-- table: docs/tables/printf -->\n<!-- end of table -->\n' >>page.md
refuses --check page.md echo row
sed -i 's|table: x|table: docs/tables/echo|' page.md
"$page" --update page.md printf 'other\n'
"$page" --check page.md echo row
sed -i '/end of table/d' page.md
refuses --check page.md echo row
