#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torch_ops.sh PROJECT PREFIX COMPILER GOLDEN EXPECTED [NVCC]
# Builds the copy of examples/engines/torch_ops in PROJECT against the installed PREFIX and the PyTorch of this
# machine; compares the output of main.py with EXPECTED; and runs the tests, with the cases of GOLDEN and of
# PLIMSOLL_GOLDEN_DIR. With NVCC, the operators for CUDA are compiled, too.
set -euo pipefail
project=$1 prefix=$2 compiler=$3 golden=$4 expected=$5 nvcc=${6-}
for python in python3 /usr/bin/python3 ''; do
  ! "${python:-false}" -c 'import numpy, torch' &>/dev/null || break
done
if [[ ! $python ]]; then
  [[ ! ${CI-} ]] || { echo "torch_ops.sh: no Python has PyTorch (python3-torch and libtorch-dev are needed)" >&2; exit 1; }
  echo "skipped: no Python has PyTorch (Debian: python3-torch and libtorch-dev)"
  exit
fi
export PYTHONDONTWRITEBYTECODE=1

build=$project/../build
cmake -S "$project" -B "$build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DPython_EXECUTABLE="$(command -v "$python")"
cmake --build "$build"
library=$build/libplimsoll_torch.so
"$python" "$project/main.py" "$library" | diff "$expected" -
GOLDEN=$golden${PLIMSOLL_GOLDEN_DIR:+:$PLIMSOLL_GOLDEN_DIR} "$python" "$project/tests/test_torch_ops.py" "$library"
if [[ $nvcc ]]; then
  # Only an object, without a file of PyTorch's build: Debian's PyTorch has headers for CUDA, but no library.
  includes=$("$python" -c 'from torch.utils import cpp_extension as e; print(*("-I" + f for f in e.include_paths()))')
  # shellcheck disable=SC2086
  "$nvcc" -std=c++20 -arch=compute_90 -O0 -Xcicc -O0 -DC10_CUDA_NO_CMAKE_CONFIGURE_FILE -I"$prefix/include" $includes \
    -c "$project/operators_cuda.cu" -o "$build/operators_cuda.o"
fi
echo "torch_ops: the operators work"
