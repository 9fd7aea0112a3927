#!/usr/bin/env bash
# run.sh SOURCE COMPILER [FLAG...]
# Compiles SOURCE and compares with what its first lines say:
#   // expect-error: <extended regex>   compilation fails with a message that matches
#   // expect-success                   it compiles: the control that the others fail for their own reason
#   // errors: <n>                      optional: exactly n lines with "error:", so the message is readable
#   // without: <extended regex>        optional: no line matches, as of the lists of candidates
#   // flags: <flag>...                 optional: more compiler flags
#   // compiler: <name>                 optional, for compile_fail.cmake: only with this one
set -uo pipefail
source=$1
shift

says() { sed -n "1,4s|^// $1: *||p" "$source" | sed 's/[[:space:]]*$//'; }
expected=$(says expect-error)
count=$(says errors)
without=$(says without)
read -ra flags <<<"$(says flags)"

output=$("$@" "${flags[@]}" "$source" 2>&1)
status=$?
fail() { printf '%s\n--- compiler output ---\n%s\n' "$1" "$output"; exit 1; }

if [[ $(head -n 1 "$source") == '// expect-success' ]]; then
  ((status == 0)) || fail "expected to compile"
  exit 0
fi
[[ -n $expected ]] || fail "$source has no '// expect-error: <regex>' line"
((status != 0)) || fail "expected a compile error, but it compiled"
grep -Eq -- "$expected" <<<"$output" || fail "expected an error that matches: $expected"
if [[ -n $without ]] && grep -Eq -- "$without" <<<"$output"; then
  fail "expected no line that matches: $without"
fi
if [[ -n $count ]]; then
  found=$(grep -Ec '(^|[ :])(fatal )?error:' <<<"$output")
  ((found == count)) || fail "expected $count error(s), got $found"
fi
echo "refused as expected: $(grep -Em1 -- "$expected" <<<"$output")"
