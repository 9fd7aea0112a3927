#!/usr/bin/env bash
# listed.sh INCLUDE_DIR LIST: CMake finds every file under INCLUDE_DIR, else the installed package would miss it.
set -euo pipefail
export LC_ALL=C
unlisted=$(comm -23 <(find "$1" -type f | sort) <(sort "$2"))
[[ -z $unlisted ]] || { printf 'No header by its name, so not installed:\n%s\n' "$unlisted"; exit 1; }
