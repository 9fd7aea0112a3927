#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# every_header_counts.sh PREFIX CXX [NVCC]
# Checks that every installed header is needed, and that a missing one is noticed: removes the headers of a
# copy of the install one at a time, and each time a consumer that includes the whole library must fail to
# preprocess. With NVCC, the headers that need it, else the others.
set -euo pipefail
prefix=$1 cxx=$2 nvcc=${3-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$prefix/include" "$folder"
cd "$folder"
(cd include && find plimsoll -name '*.hpp' | grep -v -e '/execution/' -e '/detail/' | sort |
  sed 's|.*|#include <&>|') >host.cpp
sed 's|$|\n#include <plimsoll/execution/thrust.cuh>\n#include <plimsoll/execution/cuda.cuh>|;q' host.cpp >device.cu
cat host.cpp >>device.cu

preprocesses() { # FILE
  case $1 in
    *.cpp) "$cxx" -std=c++20 -fopenmp -include plimsoll/execution/omp.hpp -Iinclude -E "$1" ;;
    *.cu) "$nvcc" -std=c++20 -arch=sm_90 -Xcompiler=-fopenmp -include plimsoll/execution/omp.hpp -Iinclude -E "$1" ;;
  esac >output 2>messages
}
check() { # FILE HEADER...
  local file=$1 header
  preprocesses "$file" || { cat messages; echo "expected $file to preprocess with all headers"; exit 1; }
  for header in "${@:2}"; do
    mv "include/$header" away
    if preprocesses "$file"; then
      echo "expected a consumer to fail without $header"
      exit 1
    fi
    grep -q "$header" messages || { cat messages; echo "expected a message that names $header"; exit 1; }
    mv away "include/$header"
    echo "$header"
  done
}

file=host.cpp names='*.hpp'
[[ ! $nvcc ]] || file=device.cu names='*.cuh'
mapfile -t headers < <(cd include && find plimsoll -name "$names" | sort)
check $file "${headers[@]}"
