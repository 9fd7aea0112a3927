#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# policies.sh [--without-omp] PROGRAM...
# Prints how many typed test cases each primitive has for each policy, from the names that the test programs list
# (which needs no GPU), and fails if one has none. Program <primitive> comes from the host compiler, <primitive>_cu
# from the CUDA compiler. Prepared objects have no cases of Thrust's device policy, which ends with the call.
set -euo pipefail
omp=1
if [[ ${1-} == --without-omp ]]; then
  omp=0
  shift
fi

for program in "$@"; do
  listed=$("$program" --list-test-cases --no-version) ||
    { echo "policies.sh: $program does not list its test cases" >&2; exit 1; }
  echo "program|${program##*/}"
  # A listed case: "<primitive>: <property><<policy>>".
  sed -n "s/^[^=[].*[^<]<\(.*\)>\$/case|${program##*/}|\1/p" <<<"$listed"
done | awk -F'|' -v omp="$omp" '
  BEGIN {
    # The names that tests/support/policies.hpp gives the policies.
    columns = split("seq|omp|custom|thrust::host|thrust::omp::par|gpu(stream)|" \
                    "gpu(stream, resource)|thrust::cuda::par_nosync(alloc).on(stream)", column, "|")
    host_columns = 3
  }
  $1 == "program" { name = $2; cuda = sub(/_cu$/, "", name); built[cuda] = 1; if (!(name in row)) order[rows++] = name; row[name] }
  $1 == "case" { name = $2; sub(/_cu$/, "", name); ++cases[name, $3] }
  END {
    header = "| primitive |"
    rule = "|---|"
    for (c = 1; c <= columns; ++c) {
      made[c] = (c > host_columns) in built && (omp || column[c] !~ /omp/)
      if (!made[c]) continue
      header = header " `" column[c] "` |"
      rule = rule "---:|"
    }
    print header "\n" rule
    for (r = 0; r < rows; ++r) {
      line = "| `" order[r] "` |"
      for (c = 1; c <= columns; ++c) {
        n = cases[order[r], column[c]] + 0
        if (made[c]) line = line " " n " |"
        if (made[c] && !n && c < columns) {
          print "policies.sh: " order[r] " has no test case for " column[c] > "/dev/stderr"
          bad = 1
        }
      }
      print line
    }
    exit bad
  }'
