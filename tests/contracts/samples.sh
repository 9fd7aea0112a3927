#!/usr/bin/env bash
# samples.sh ROOT: every public header with functions has a sample, tests/samples/<header>.hpp, which
# samples/all.hpp includes, and which makes every call that the header gives a name in its messages.
set -euo pipefail
export LC_ALL=C
cd "$1"
without_calls='plimsoll|version|config|error|types|views|execution|.*_types'
bad=0
complain() {
  echo "$1"
  bad=1
}

for header in include/plimsoll/*.hpp include/plimsoll/systems/*.hpp; do
  name=$(basename "$header" .hpp)
  sample=tests/samples/$name.hpp
  [[ ! $name =~ ^($without_calls)$ ]] || continue
  [[ -e $sample ]] || { complain "$header has no sample $sample"; continue; }
  grep -qxF "#include \"samples/$name.hpp\"" tests/samples/all.hpp ||
    complain "tests/samples/all.hpp does not include samples/$name.hpp"
  grep -qxF "PLIMSOLL_SAMPLE($name);" "$sample" || complain "$sample lacks PLIMSOLL_SAMPLE($name);"
  # Calls are named where they check their arguments: PLIMSOLL_LOADS(2, "place", ...), name = "place".
  while read -r call; do
    tr -d '\n' <"$sample" | grep -qE "run\.(call|of_step|prepare|work)\( *\"$call\"" ||
      complain "$sample does not call $call"
  done < <(tr '\n' ' ' <"$header" |
    grep -oE '(\bPLIMSOLL_[A-Z_]+\( *("[^"]*", *|[a-z_0-9]+, *)?[0-9], *|\bname = )"[a-z_0-9:]+"' |
    sed -E 's/.*"([^"]+)"$/\1/' | sort -u)
done
for sample in tests/samples/*.hpp; do
  name=$(basename "$sample" .hpp)
  [[ $name == all || -e include/plimsoll/$name.hpp || -e include/plimsoll/systems/$name.hpp ]] ||
    complain "$sample is the sample of no public header"
done
((bad == 0))
