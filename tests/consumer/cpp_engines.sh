#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cpp_engines.sh COPY INCLUDE EXPECTED COMPILER [FLAG...]
# Builds a copy of examples/engines/cpp as engines do: one file is C++20 and has the include path, all others are
# C++17. Compares what the program prints with EXPECTED.
set -euo pipefail
copy=$1 include=$2 expected=$3
compile=("${@:4}" -pthread)
cd "$copy"
"${compile[@]}" -std=c++20 "-I$include" -c planner.cpp -o ../planner.o
"${compile[@]}" -std=c++17 main.cpp {tensorrt_llm,xllm,rtp_llm}/*.cpp ../planner.o -o ../cpp_engines
../cpp_engines | diff "$expected" -
