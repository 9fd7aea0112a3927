#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tvm_ffi_gpu.sh PROJECT FOLDER PREFIX GOLDEN NVCC ARCHITECTURES FLAGS
# Builds examples/engines/tvm_ffi's library for CUDA in FOLDER against the installed PREFIX, and runs its tests with all
# arrays in device memory.
set -euo pipefail
project=$1 folder=$2 prefix=$3 golden=$4 nvcc=$5 architectures=$6 flags=$7
mkdir -p "$folder"
made=$("$(dirname "$0")/python_venv.sh" "$folder/python" apache-tvm-ffi==0.1.15.post2 numpy) || {
  echo "$made"
  [[ $made == skipped:* ]]
  exit
}
python=$(realpath "$folder/python")/bin/python
export PYTHONDONTWRITEBYTECODE=1
export TVM_FFI_DISABLE_TORCH_C_DLPACK=1 # which would compile for older releases of PyTorch
"$python" -c 'import ctypes; cuda = ctypes.CDLL("libcudart.so.13"); exit(cuda.cudaFree(None))' ||
  { echo 'skipped: no GPU'; exit; }
cmake -S "$project" -B "$folder/build" -DTVM_FFI_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" \
  -DCMAKE_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_FLAGS="$flags" -DCMAKE_PREFIX_PATH="$prefix" \
  -DPython_EXECUTABLE="$python"
cmake --build "$folder/build" --target plimsoll_cuda
ON_DEVICE=1 PLIMSOLL_FFI_LIBRARIES="$folder/build" PYTHONPATH="$project:$project/tests" GOLDEN="$golden" \
  "$python" "$project/tests/test_tvm_ffi.py"
