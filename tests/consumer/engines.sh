#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engines.sh EXAMPLES COPIES PLAN_EXPERTS
# Runs the adapters for engines from a copy of their folder, with the module and the libraries that
# tvm_ffi.sh has built in COPIES.
set -euo pipefail
examples=$1 copies=$2 plan_experts=$3
module=$copies/tvm_ffi libraries=$copies/tvm_ffi/build python=$copies/../python/bin/python
if [[ ! -e $libraries/libplimsoll_host.so ]]; then
  echo 'skipped: tvm_ffi.sh has built no library'
  exit
fi
mkdir -p "$copies/engines"
cp "$examples"/engines/*.py "$copies/engines"
env PLIMSOLL_FFI_LIBRARIES="$(realpath "$libraries")" PLAN_EXPERTS="$plan_experts" PYTHONDONTWRITEBYTECODE=1 \
  PYTHONPATH="$(realpath "$module/project"):$(realpath "$copies/engines")" \
  "$python" "$examples/engines/tests/engines_test.py"
