#!/usr/bin/env bash
# new_primitive.sh ROOT COMPILER: in a copy of the tree, what script/new writes for a primitive has its entry in
# every list, is formatted, compiles, and passes its tests with the hash that it lists.
set -euo pipefail
root=$1 compiler=$2
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$root"
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done |
  tar -c --null -T - | tar -x -C "$copy"
cd "$copy"
git init --quiet
git add -A

# The first and the last name of every list, before and after a release. Files of others stay as they are.
echo 'int  unformatted ;' >unformatted.cpp
for name in a_first_test zz_last_test; do
  script/new $name >/dev/null
  awk -v entry="- \`$name\` " '
    /^## / { unreleased = /\(unreleased\)$/ }
    unreleased && index($0, entry) == 1 { found = 1 }
    END { exit !found }' CHANGELOG.md || { echo "CHANGELOG.md has no entry of $name under an unreleased version"; exit 1; }
  sed -i 's/^\(## .*\) (unreleased)$/\1/' CHANGELOG.md
done
[[ $(cat unformatted.cpp) == 'int  unformatted ;' ]] || { echo 'script/new formats files of others'; exit 1; }
rm unformatted.cpp
! script/new zz_last_test 2>/dev/null || { echo 'script/new writes over a primitive'; exit 1; }
! script/new Wrong 2>/dev/null || { echo 'script/new accepts the name Wrong'; exit 1; }
script/format --check
script/mutate --check
tests/contracts/entries.sh .
tests/contracts/layout.sh include
# A row that lacks a cell goes unnoticed by those who read the page.
awk -F'|' '
  !/^\|/ { cells = 0; next }
  cells && NF != cells { print FILENAME ": a row of " NF - 2 " cells in a table of " cells - 2 ": " $0; bad = 1; next }
  { cells = NF }
  END { exit bad }' README.md docs/README.md
docs/tables/code --check README.md docs/*.md
tests/costs/kernels --rows
tests/costs/headers --rows

name=zz_last_test
flags=(-std=c++20 -O0 -Wall -Wextra -Werror -Iinclude -Itests -Ibench '-DPLIMSOLL_TESTS_DIR="tests"')
cat >samples.cpp <<END
#include <plimsoll/plimsoll.hpp>
#include "samples/$name.hpp"
using run = plimsoll_test::sample_run<plimsoll::seq_policy>;
template void plimsoll_test::sample_$name(run&);
END
"$compiler" "${flags[@]}" -fsyntax-only samples.cpp
"$compiler" "${flags[@]}" -fsyntax-only "bench/$name.bench.cpp"
"$compiler" "${flags[@]}" "examples/$name.cpp" -o example
./example | diff "examples/$name.expected" -
"$compiler" "${flags[@]}" -DPLIMSOLL_TEST_POLICY=::plimsoll::seq_policy "tests/$name.test.cpp" tests/main.cpp -o tests_of_$name
tests/golden/check_hashes.sh "./tests_of_$name"
