#!/usr/bin/env bash
# macros.sh INCLUDE_DIR: no header defines a macro without our prefix.
set -euo pipefail
if grep -rnE '^[[:space:]]*#[[:space:]]*define[[:space:]]+' "$1" | grep -vE 'define[[:space:]]+PLIMSOLL_'; then
  echo "macros without the prefix PLIMSOLL_"
  exit 1
fi
