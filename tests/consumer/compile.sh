#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compile.sh COMPILER [FLAG...]
# Compiles main.cpp with one command, as a user without a build system does, and runs it. With
# PKG_CONFIG in the environment it adds the flags which that program knows for plimsoll.
set -euo pipefail
source=$(dirname "$(realpath "$0")")/main.cpp
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags=()
if [[ ${PKG_CONFIG-} ]]; then
  read -ra flags < <("$PKG_CONFIG" --cflags plimsoll)
fi
"$@" "${flags[@]}" -std=c++20 "$source" -o "$folder/consumer"
"$folder/consumer"
