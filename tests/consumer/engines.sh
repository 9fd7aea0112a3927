#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engines.sh ENGINES COPIES PREFIX COMPILER PLAN_EXPERTS
# Installs the package plimsoll-eplb by pip from a copy of ENGINES in COPIES, against the installed PREFIX; compares its
# plans with the engines' own; and loads it into stand-ins for the engines.
set -euo pipefail
engines=$1 copies=$2 prefix=$3 compiler=$4 plan_experts=$5
copy=$copies/engines
mkdir -p "$copy"
cp -r "$engines"/{plugin,tvm_ffi,common} "$copy"
made=$("$(dirname "$0")/python_venv.sh" "$copies/../plugin_python" apache-tvm-ffi==0.1.11 numpy scikit-build-core==1.1.2) || {
  echo "$made"
  [[ $made == skipped:* ]]
  exit
}
python=$(realpath "$copies/../plugin_python")/bin/python
# Debug compiles in a quarter of the time, with assertions.
CMAKE_PREFIX_PATH=$prefix CXX=$compiler "$python" -m pip --quiet --disable-pip-version-check install --no-build-isolation \
  --no-deps --force-reinstall --config-settings=cmake.build-type=Debug "$copy/plugin"
export PLAN_EXPERTS=$plan_experts PYTHONDONTWRITEBYTECODE=1
# tvm-ffi would compile an extension for PyTorch in every process, to allocate by it.
export TVM_FFI_DISABLE_TORCH_C_DLPACK=1
unset PLIMSOLL_FFI_LIBRARIES
for test in engines_test plugin_test; do
  "$python" "$copy/plugin/tests/$test.py"
done
