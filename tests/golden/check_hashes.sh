#!/usr/bin/env bash
# check_hashes.sh PROGRAM [ARG...]        every hash PROGRAM prints must stand in hashes.txt beside this file
# check_hashes.sh --update PROGRAM ...    puts them there instead; the build target update_hashes does it for all
set -euo pipefail
export LC_ALL=C
hashes=$(dirname "$0")/hashes.txt
update=
if [[ ${1-} == --update ]]; then
  update=yes
  shift
fi

if ! output=$("$@"); then
  printf '%s\n' "$output" | tail -n 40
  echo "the program failed, so its hashes mean nothing"
  exit 1
fi
printed=$(grep '^hash ' <<<"$output" | sort -u) || { echo "the program printed no hash"; exit 1; }
if grep -vE '^hash [^ ]+ [0-9a-f]{16}$' <<<"$printed"; then
  echo "not of the form: hash <suite>.<case> <16 hex digits>"
  exit 1
fi
if [[ -n $(cut -d' ' -f2 <<<"$printed" | uniq -d) ]]; then
  echo "one case printed two different hashes:"
  cut -d' ' -f2 <<<"$printed" | uniq -d
  exit 1
fi

if [[ $update ]]; then
  touch "$hashes"
  # The last line of a case wins: those printed now come second.
  merged=$(cat "$hashes" - <<<"$printed" | awk '{ last[$2] = $0 } END { for (c in last) print last[c] }' | sort)
  printf '%s\n' "$merged" >"$hashes"
  echo "$(wc -l <"$hashes") hashes in $hashes"
  exit 0
fi

[[ -f $hashes ]] || { echo "no $hashes"; exit 1; }
wrong=$(comm -23 <(printf '%s\n' "$printed") <(sort -u "$hashes"))
if [[ -n $wrong ]]; then
  while read -r _ name value; do
    echo "$name: printed $value, hashes.txt has $(awk -v n="$name" '$2 == n { print $3; found = 1 } END { if (!found) print "no such case" }' "$hashes")"
  done <<<"$wrong"
  exit 1
fi
echo "$(wc -l <<<"$printed") hashes agree"
