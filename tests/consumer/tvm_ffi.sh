#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tvm_ffi.sh PROJECT PREFIX COMPILER GOLDEN EXPECTED [NVCC]
# Builds the copy of examples/engines/tvm_ffi in PROJECT against the installed PREFIX, by CMake and by tvm-ffi's own
# loader; compares the output of main.py with EXPECTED; and runs the tests, with the cases of GOLDEN and of
# PLIMSOLL_GOLDEN_DIR. With NVCC, the library for a GPU is compiled, too.
set -euo pipefail
project=$1 prefix=$2 compiler=$3 golden=$4 expected=$5 nvcc=${6-}
python=$project/../../../python
made=$("$(dirname "$0")/python_venv.sh" "$python" apache-tvm-ffi==0.1.15.post2 numpy) || {
  echo "$made"
  [[ $made == skipped:* ]]
  exit
}
python=$(realpath "$python")/bin/python
export PYTHONDONTWRITEBYTECODE=1
export TVM_FFI_DISABLE_TORCH_C_DLPACK=1 # which would compile for older releases of PyTorch

build=$project/../build
cuda=()
# Compiling is the test, so that nothing is optimized.
[[ ! $nvcc ]] || cuda=(-DTVM_FFI_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=90-virtual
  -DCMAKE_CUDA_FLAGS="-Xcicc -O0")
# Debug compiles in a quarter of the time, with assertions; the module itself optimizes below.
cmake -S "$project" -B "$build" "${cuda[@]}" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=Debug -DPython_EXECUTABLE="$python"
cmake --build "$build"
run() { # NAME=VALUE... FILE
  env "${@:1:$#-1}" "$python" "${@: -1}"
}
run PLIMSOLL_FFI_LIBRARIES="$build" "$project/main.py" | diff "$expected" -
run PLIMSOLL_FFI_LIBRARIES="$build" PYTHONPATH="$project" \
  GOLDEN="$golden${PLIMSOLL_GOLDEN_DIR:+:$PLIMSOLL_GOLDEN_DIR}" "$project/tests/test_tvm_ffi.py"

# Compiled by the module itself.
run CXX="$compiler" PLIMSOLL_INCLUDE="$prefix/include" TVM_FFI_CACHE_DIR="$project/../cache" "$project/main.py" |
  diff "$expected" -
echo "tvm_ffi: both builds work"
