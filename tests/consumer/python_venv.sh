#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_venv.sh FOLDER REQUIREMENT...
# Makes a virtual environment in FOLDER, once, with the requirements from PyPI, and PyTorch if a Python of
# this machine has it. Prints "skipped: ..." and fails if that is not possible; in CI the message is an error.
set -euo pipefail
folder=$1
shift
base=python3
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import numpy, torch' &>/dev/null; then
    base=$candidate
    break
  fi
done
{
  flock 9
  [[ -e $folder/made-for ]] && [[ $(<"$folder/made-for") == "$base $*" ]] || {
    "$base" -m venv --clear --system-site-packages "$folder" &&
      "$folder/bin/pip" --quiet --disable-pip-version-check install "$@" >&2 &&
      echo "$base $*" >"$folder/made-for"
  }
} 9>"$folder.lock" || {
  missing="no virtual environment with $* could be made (python3-venv and PyPI are needed)"
  [[ ! ${CI-} ]] || { echo "python_venv.sh: $missing" >&2; exit 1; }
  echo "skipped: $missing" # a user's machine may be offline
  exit 1
}
