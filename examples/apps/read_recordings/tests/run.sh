#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh TEST.py [ARGUMENT...]
# Runs a test of Python under an interpreter that has NumPy and, where there is one, PyTorch: the first
# python3 of the path may not be the one that Debian's packages belong to.
set -euo pipefail
for modules in numpy,torch numpy; do
  for python in python3 /usr/bin/python3; do
    if "$python" -c "import $modules" 2>/dev/null; then
      [[ $modules == *torch* ]] || echo 'without PyTorch: no .pt files are read'
      exec "$python" -B "$@"
    fi
  done
done
echo 'skipped: no python3 with NumPy'
