#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engines.sh ADAPTERS COPIES PLAN_EXPERTS
# Runs the adapters for engines from a copy of their folder, ADAPTERS, with the module and the libraries that
# tvm_ffi.sh has built in COPIES.
set -euo pipefail
adapters=$1 copies=$2 plan_experts=$3
module=$copies/tvm_ffi libraries=$copies/tvm_ffi/build python=$copies/../python/bin/python
if [[ ! -e $libraries/libplimsoll_host.so ]]; then
  echo 'skipped: tvm_ffi.sh has built no library'
  exit
fi
mkdir -p "$copies/engines"
cp "$adapters"/*.py "$copies/engines"
export PLAN_EXPERTS=$plan_experts PYTHONDONTWRITEBYTECODE=1
PLIMSOLL_FFI_LIBRARIES=$(realpath "$libraries")
PYTHONPATH=$(realpath "$module/project"):$(realpath "$copies/engines")
export PLIMSOLL_FFI_LIBRARIES PYTHONPATH
# tvm-ffi would compile an extension for PyTorch in every process, to allocate by it.
export TVM_FFI_DISABLE_TORCH_C_DLPACK=1
"$python" "$adapters/tests/engines_test.py"
