#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# readme.sh CHECKOUT OUTPUT-OF-DEMO PREFIX
# Every block of README.md and of the quick start holds, as a reader of CHECKOUT would try it:
#   $ COMMAND ...          is in the output of script/demo, with what it prints; a line "..." stands for any
#   script/NAME  # ...     such a script exists; .ci/run runs demo and test
#   g++ ...                compiles beside a checkout in the folder plimsoll
#   cmake                  builds a program, once with each line that finds the library: find_package finds
#                          it in PREFIX, add_subdirectory in the checkout
#   cpp, and outputs       quote files: docs/tables/code checks them
# A block of any other kind is an error.
set -euo pipefail
checkout=$(realpath "$1") output=$(realpath "$2") prefix=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/blocks" "$folder/user"
ln -s "$checkout" "$folder/user/plimsoll"
fail() { echo "readme.sh: $*" >&2; exit 1; }

# blocks PAGE: writes the blocks that quote no file to blocks/<line>.<language>.
blocks() {
  rm -f "$folder"/blocks/*
  awk -v to="$folder/blocks/" '
    inside && /^```$/ { inside = 0; close(file); next }
    inside { if (!quoted) print >file; next }
    /^<!-- (code|output): / { marked = 1; next }
    /^```/ { inside = 1; quoted = marked; marked = 0; file = to NR "." substr($0, 4) }' "$1"
}

console() { # BLOCK
  awk -v shown="$1" '
    BEGIN { while ((getline line < shown) > 0) wanted[++count] = line; at = 1 }
    at > count { exit }
    wanted[at] == "..." { any = 1; ++at }
    at > count { exit }
    $0 == wanted[at] { any = 0; ++at; begun = 1; next }
    begun && !any { exit }
    END {
      if (at <= count && wanted[at] == "...") ++at
      if (at <= count) { print "not in the output of script/demo: " wanted[at]; exit 1 }
    }' "$output"
}

cmake_block() { # BLOCK
  local found ways
  ways=$(grep -oE '^(find_package|add_subdirectory)' "$1") || fail "$page, line $line: no line that finds the library"
  cp "$checkout/examples/hello_balance.cpp" "$folder/user/app.cpp"
  for found in $ways; do
    {
      printf 'cmake_minimum_required(VERSION 3.25)\nproject(app LANGUAGES CXX)\nadd_executable(app app.cpp)\n'
      grep -E "^($found|target_link_libraries)\(" "$1"
    } >"$folder/user/CMakeLists.txt"
    cmake -S "$folder/user" -B "$folder/$found" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log" 2>&1 &&
      cmake --build "$folder/$found" >>"$folder/log" 2>&1 && "$folder/$found/app" >/dev/null ||
      { cat "$folder/log"; fail "$page: $found does not build a program"; }
  done
}

for page in README.md docs/quick_start.md; do
  blocks "$checkout/$page"
  for block in "$folder"/blocks/*; do
    [[ -e $block ]] || continue
    line=$(basename "$block") line=${line%%.*}
    case ${block##*.}/$(head -n 1 "$block") in
      /'$ '*) console "$block" || fail "$page, block in line $line differs from what a user sees" ;;
      /script/*) while read -r script _; do
        [[ -x $checkout/$script ]] || fail "$page, line $line: no $script"
      done <"$block" ;;
      /'g++ '*) (cd "$folder/user" && bash -euc "$(cat "$block")") || fail "$page, line $line does not compile" ;;
      cmake/*) cmake_block "$block" ;;
      *) fail "$page, line $line: a block of a kind that nothing checks: $(head -n 1 "$block")" ;;
    esac
    echo "readme.sh: $page: the block in line $line holds"
  done
done
