#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compile_times.sh TABLES: tests which changes of a page are refused, with fake headers and compilers.
set -euo pipefail
tables=$(realpath "$1")
folder=$(realpath "$(mktemp -d)")
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p tables/of include/plimsoll/{systems,execution}
cp "$tables/compile_times" tables/of
touch include/plimsoll/{a,systems/b}.hpp include/plimsoll/execution/c.cuh
# Every file includes 10000 lines of Plimsoll and 20000 others.
{ echo "# 1 \"$folder/include/plimsoll/a.hpp\" 1"; seq 10000; echo '# 1 "/usr/include/vector" 1 3'; seq 20000; } >lines
printf '%s\n' '#!/bin/sh' 'case $* in *-E*) cat >/dev/null; cat lines ;; *) echo ", V$VERSION" ;; esac' | tee g++ >nvcc
chmod +x g++ nvcc
export PATH=$folder:$PATH CUDACXX=nvcc VERSION=1

{ echo '<!-- table: -->'; bash tables/of/compile_times /dev/null; echo '<!-- end of table -->'; } >made.md
expect() { # EXIT-CODE SED-COMMAND: checks the changed page
  local code=0
  sed "$2" made.md >page.md
  "$tables/page" --check page.md bash tables/of/compile_times page.md >out 2>&1 || code=$?
  ((code == $1)) || { echo "compile_times.sh: expected $1 after '$2', got $code: $(cat out)"; exit 1; }
}
for change in 's/20.0/18.7/' 's/10.0/10.4/'; do expect 0 "/a.hpp/$change"; done
for change in 's/20.0/17.6/' 's/20.0/23.0/' 's/10.0/8.5/' d '{p; s/a.hpp/old.hpp/}'; do expect 1 "/a.hpp/$change"; done
VERSION=2
for change in d '{p; s/a.hpp/old.hpp/}'; do expect 1 "/a.hpp/$change"; done
expect 0 '/a.hpp/s/20.0/99.0/'
