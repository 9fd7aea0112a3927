#!/usr/bin/env bash
# entries.sh ROOT: every public header with functions is in the lists that script/new writes: plimsoll.hpp, a
# page, links to it, the changelog, tests for host and device, mutations, and a sample, tests/samples/<header>.hpp,
# that makes every call which the header names in its messages and varies every enumeration of its options.
# Pages name no page that does not exist, and no commit of this project, which says nothing to their readers.
set -euo pipefail
export LC_ALL=C
cd "$1"
without_calls='plimsoll|version|config|error|types|.*_types'
without_sample='views|execution' # what every sample uses
without_mutations='views|execution|array|memory|random' # tests/mutations/core.txt has them
enumerations=$(grep -rhoE '^enum class [a-z_]+' include/plimsoll --include='*types.hpp' | cut -d' ' -f3 | paste -sd'|')
bad=0
complain() {
  echo "$1"
  bad=1
}

for header in include/plimsoll/*.hpp include/plimsoll/systems/*.hpp; do
  name=$(basename "$header" .hpp)
  [[ ! $name =~ ^($without_calls)$ ]] || continue
  grep -qxF "#include <${header#include/}>" include/plimsoll/plimsoll.hpp || complain "plimsoll.hpp does not include $header"
  [[ -e docs/$name.md ]] || complain "$header has no page docs/$name.md"
  grep -qF "(docs/$name.md)" README.md || complain "README.md does not link to docs/$name.md"
  grep -qw -- "$name" CHANGELOG.md || complain "CHANGELOG.md does not name $name"
  [[ -e tests/$name.test.cpp ]] || complain "$header has no test tests/$name.test.cpp"
  [[ $name =~ ^($without_mutations)$ || -e tests/mutations/$name.txt ]] || complain "$header has no tests/mutations/$name.txt"
  [[ ! $name =~ ^($without_sample)$ ]] || continue

  sample=tests/samples/$name.hpp
  [[ -e $sample ]] || { complain "$header has no sample $sample"; continue; }
  grep -qxF "#include \"samples/$name.hpp\"" tests/samples/all.hpp ||
    complain "tests/samples/all.hpp does not include samples/$name.hpp"
  grep -qxF "PLIMSOLL_SAMPLE($name);" "$sample" || complain "$sample lacks PLIMSOLL_SAMPLE($name);"
  while read -r call; do
    tr -d '\n' <"$sample" | grep -qE "run\.(call|of_step|prepare|work)\( *\"$call\"" ||
      complain "$sample does not call $call"
  done < <({
    # Calls are named where they check their arguments: PLIMSOLL_LOADS(call, "place", ...), name = "place".
    tr '\n' ' ' <"$header" |
      grep -oE '(\bPLIMSOLL_[A-Z_]+\( *("[^"]*", *|[a-z_0-9]+, *)?(call|unchecked), *|\bname = )"[a-z_0-9:]+"' |
      sed -E 's/.*"([^"]+)"$/\1/'
    # Members that change an object.
    awk '/^class [a-z_]+/ { class = $2 } /^ private:/ { class = "" } /^ public:/ { class = class ? class : last }
      class && /^  void [a-z_]+\(/ && !/\) const/ { split($2, part, "("); print class "::" part[1] }' "$header"
  } | sort -u)
done
# Enumerations of options are checked by the samples: .split = run.option("options.split", ...).
for header in include/plimsoll/*.hpp include/plimsoll/systems/*.hpp; do
  name=$(basename "$header" .hpp)
  sample=tests/samples/${name%_types}.hpp
  while read -r member; do
    grep -qE "run\.option\( *\"[a-z_.]+\.$member\"" <(tr -d '\n' <"$sample") ||
      complain "$sample does not vary $member of $header by run.option"
  done < <(awk -v type="^  (std::vector<)?($enumerations)>? [a-z_]+ = " '
    /^struct [a-z_]+_options/ { inside = 1 } /^}/ { inside = 0 } inside && $0 ~ type { print $2 }' "$header")
done
for sample in tests/samples/*.hpp; do
  name=$(basename "$sample" .hpp)
  [[ $name == all || -e include/plimsoll/$name.hpp || -e include/plimsoll/systems/$name.hpp ]] ||
    complain "$sample is the sample of no public header"
done
while IFS=: read -r file page; do
  # developing.md explains how to add a primitive `cover`.
  [[ -e $page || $page == docs/cover.md ]] || complain "$file names $page, which does not exist"
done < <(grep -roE '\bdocs/[a-z_]+\.md\b' README.md docs examples bench tests script .ci --include='*.md' --include='*.sh' \
  --include='*.txt' --include='*.cmake')
while IFS=: read -r file hash; do
  ! git rev-parse --quiet --verify "$hash^{commit}" >/dev/null 2>&1 || complain "$file names the commit $hash: name its version or date"
done < <(grep -roE '\b[0-9a-f]{7,40}\b' README.md docs --include='*.md')
((bad == 0))
