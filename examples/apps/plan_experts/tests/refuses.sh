#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# refuses.sh REGEX PROGRAM [ARGUMENT...]
# Passes if the program refuses its input correctly: exit code 2, one line on stderr that matches the
# extended REGEX, nothing on stdout, and no file left in its folder.
set -uo pipefail
regex=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/run"
cd "$folder/run" || exit 1
"$@" >../stdout 2>../stderr
code=$?
cat ../stderr
fail() { echo "refuses.sh: $1"; exit 1; }
((code == 2)) || fail "expected exit code 2, got $code"
grep -Eq -- "$regex" ../stderr || fail "expected a message like: $regex"
(($(wc -l <../stderr) == 1)) || fail "expected one line on stderr"
[[ ! -s ../stdout ]] || fail "expected nothing on stdout, got: $(cat ../stdout)"
left=$(ls -A)
[[ -z $left ]] || fail "expected no file, got: $left"
