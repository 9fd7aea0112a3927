#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compile_times.sh TABLES: tests compile_times with fake headers and compilers.
set -euo pipefail
tables=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "compile_times.sh: $1"; exit 1; }
printed() { grep -qE -- "$1" out || fail "expected '$1' in: $(cat out)"; }

# A tree with three headers, and its budgets.
mkdir -p tables/of include/plimsoll/{systems,execution}
touch include/plimsoll/{a.hpp,systems/b.hpp,execution/c.cuh}
sed "/^budgets='/,/^'/c\\
budgets='\\
header                      g++ clang++ nvcc\\
plimsoll/a.hpp              10  10      10\\
plimsoll/systems/b.hpp      10  10      -\\
plimsoll/execution/c.cuh    -   -       10\\
'" "$tables/compile_times" >tables/of/compile_times
chmod +x tables/of/compile_times
compile_times() { # EXIT-CODE ARGUMENT...
  local code=0
  tables/of/compile_times "${@:2}" >out 2>&1 || code=$?
  ((code == $1)) || fail "expected exit code $1 of '${*:2}', got $code and: $(cat out)"
}

# All three compilers: $SLOW and $BROKEN are patterns of "<name> <first line of the source file>".
mkdir bin
cat >bin/g++ <<'END'
#!/bin/sh
for source; do :; done
case "$*" in
  *-dump*) echo 1.2.3 ;;
  --version) echo 'release 4.5, V4.5.6' ;;
  *-E*)
    echo '# 1 "x/include/plimsoll/a.hpp" 1'
    echo '#include <vector>'
    echo '#include <plimsoll/b.hpp>'
    echo '# 1 "/usr/include/vector" 1 3'
    echo '#include <bits/vector>'
    echo '# 3 "x/include/plimsoll/a.hpp" 2'
    echo '#include <array> /* clang */'
    ;;
  *)
    read -r line <"$source"
    tr '\n' ' ' <"$source" >>texts
    case "${0##*/} $line" in
      $SLOW) i=0; while [ $i -lt 150000 ]; do i=$((i + 1)); done ;;
      $BROKEN) echo 'bin: does not compile' >&2; exit 3 ;;
    esac
    ;;
esac
END
chmod +x bin/g++
cp bin/g++ bin/clang++
cp bin/g++ bin/cuda
export PATH=$folder/bin:$PATH CUDACXX=cuda SLOW='' BROKEN=''

# Within the budgets; without a CUDA compiler only host compilers are checked.
compile_times 0 --check
for compiler in g++ clang++ nvcc; do printed "^compile_times: ${compiler//+/\\+}: at most [0-9]+ % "; done
CUDACXX=absent compile_times 0 --check
printed '^compile_times: nvcc: not run, no CUDA compiler$'
printed '^compile_times: clang\+\+: at most'

# A header above its budget is named, and no other.
SLOW='clang++ *systems/b.hpp*' compile_times 1 --check
printed '^compile_times: plimsoll/systems/b.hpp costs clang\+\+ [0-9]+\.[0-9] times an empty file, its budget is 10$'
(($(grep -c costs out) == 1)) || fail "$(cat out)"
# nvcc checks only headers with a budget for it.
SLOW='cuda *systems/b.hpp*' compile_times 0 --check

# A header that does not compile is an error.
BROKEN='g++ *a.hpp*' compile_times 3 --check
printed '^bin: does not compile$'

# The table, with a row for the headers of other libraries that ours include.
rm texts
compile_times 0
cell='[0-9]+\.[0-9]'
printed "^\| \`plimsoll/a.hpp\` \| $cell \| $cell \| $cell \|$"
printed "^\| \`plimsoll/execution/c.cuh\` \| - \| - \| $cell \|$"
printed "^\| the standard headers in .* \| $cell \| $cell \| $cell \|$"
printed "^\| \`<vector>\` \| $cell \| $cell \| $cell \|$"
printed "^Measured on .* with g\+\+ 1.2.3, clang\+\+ 1.2.3 and nvcc 4.5.6\.$"
grep -qF '#include <array> #include <vector> ' texts || fail "what our headers include was not measured"
! grep -qE 'bits|clang' texts || fail "more than what our headers include was measured"

# The page must have these headers, and so must the budgets.
cp out page.md
compile_times 0 --rows page.md
sed -i /systems/d page.md
compile_times 1 --rows page.md
printed '^-plimsoll/systems/b.hpp$'
printed '^compile_times: page.md .*: expected all public headers, and no others$'
touch include/plimsoll/new.hpp
compile_times 1 --check
printed '^-plimsoll/new.hpp$'
printed '^compile_times: its budgets: expected all public headers, and no others$'
