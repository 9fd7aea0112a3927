#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# support_matrix.sh TABLES: tests support_matrix and page, on programs that only list names.
set -euo pipefail
tables=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "support_matrix.sh: $1"; exit 1; }

program() { # NAME LISTED-CASE...
  { echo '#!/bin/sh' && echo "cat <<'END'" && printf '%s\n' "[doctest] listing" ==== "${@:2}" END; } >"$1"
  chmod +x "$1"
}
page() { "$tables/page" "$1" page.md "${@:2}"; }
make=("$tables/support_matrix" page.md "fold metrics" .)
cat >emulation.txt <<'END'
# program, variant, result, cases, launches, commit
fold_cu plain passed 12 300 c0ffee123
fold_cu leaks passed 12 300 c0ffee123
fold_cu unwritten FINDINGS 12 300 c0ffee123
metrics_cu plain FAILED 3 300 c0ffee123
END
cat >2026-01-01-gpu.json <<'END'
{
  "gpu": "Some GPU",
  "commit": "abcdef012345",
  "steps": [
    {"kind": "test", "name": "fold_cu", "status": "failed: exit 1", "seconds": 1, "log": ""},
    {"kind": "test", "name": "metrics_cu", "status": "passed", "seconds": 1, "log": ""}
  ]
}
END

program fold 'fold: a<seq>' 'fold: a<omp>' 'fold: a<custom>' 'fold: b < c<seq>' 'fold: shapes' 'fold: t<float>'
program metrics 'metrics: a<seq>'
program fold_cu 'fold: a<thrust::host>' 'fold: a<gpu(stream)>' 'fold: b<gpu(stream)>' 'fold: a<gpu(stream, resource)>'
program metrics_cu 'metrics: a<thrust::cuda::par_nosync(alloc).on(stream)>'
printf 'text\n\n<!-- table: x -->\n<!-- end of table -->\n\nmore | text\n' >page.md

# Without CUDA the cells of its columns are unknown; with both compilers all are known.
page --update "${make[@]}" ./fold ./metrics
grep -qxF '| `fold` | 2 | 1 | 1 | ? | ? | ? | ? | ? | 12 in 2 variants, c0ffee123 | none |' page.md || fail "$(cat page.md)"
page --update "${make[@]}" ./fold ./metrics ./fold_cu ./metrics_cu
grep -qxF '| `fold` | 2 | 1 | 1 | 1 | - | 2 | 1 | - | 12 in 2 variants, c0ffee123 | none |' page.md || fail "$(cat page.md)"
grep -qxF '| `metrics` | 1 | - | - | - | - | - | - | 1 | none | Some GPU, abcdef012 |' page.md || fail "$(cat page.md)"
[[ $(head -n 1 page.md) == text && $(tail -n 1 page.md) == 'more | text' ]] || fail "$(cat page.md)"
page --check "${make[@]}" ./fold ./metrics
page --check "${make[@]}" ./fold_cu ./metrics_cu

# A lost case is detected, by the compiler that lost it and by no other.
program fold_cu 'fold: a<thrust::host>' 'fold: a<gpu(stream)>' 'fold: a<gpu(stream, resource)>'
page --check "${make[@]}" ./fold ./metrics
! page --check "${make[@]}" ./fold_cu ./metrics_cu >diff 2>&1 || fail "a lost device case was not seen"
program fold 'fold: a<seq>' 'fold: a<custom>' 'fold: b < c<seq>'
! page --check "${make[@]}" ./fold ./metrics >diff 2>&1 || fail "a lost case of omp was not seen"
# A build without OpenMP does not compare the columns that it cannot have.
page --check "$tables/support_matrix" --without-omp "${make[@]:1}" ./fold ./metrics

! page --check "${make[@]}" ./fold ./absent >diff 2>&1 || fail "a program that cannot run was not seen"
sed -i '/end of table/d' page.md
! page --check "${make[@]}" ./fold ./metrics >diff 2>&1 || fail "a page without its comments was not seen"
