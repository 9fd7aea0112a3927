#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# vcpkg.sh FOLDER COMPILER
# Runs the steps of the port for vcpkg's registry in FOLDER, then those of the overlay port. vcpkg itself
# is not run; vcpkg/stand_in.cmake replaces it. Both ports must install the same files. Then builds and
# runs a consumer, and configures one that follows the port's usage text.
set -euo pipefail
tests=$(cd "$(dirname "$0")/.." && pwd)
ports=$tests/packaging/vcpkg
compiler=$2
rm -rf "$1"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
installed=$folder/installed

steps_of() { # PORT
  cmake -DPORT_DIR="$ports/$1/plimsoll" -DROOT="$folder" -DCXX="$compiler" -DCHECKOUT="${tests%/*}" -P "$ports/stand_in.cmake"
}
steps_of central
mv "$installed" "$folder/central"
steps_of ports
diff -r "$folder/central" "$installed" || { echo "vcpkg.sh: the two ports differ" >&2; exit 1; }

diff -r --exclude='.*' "$tests/../include" "$installed/include" ||
  { echo "vcpkg.sh: the port does not install an unchanged copy of include/" >&2; exit 1; }

configure() { # PROJECT [OPTION...]
  cmake -S "$1" -B "$1/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$installed" "${@:2}"
  grep -q "^plimsoll_DIR:PATH=$installed/share/plimsoll\$" "$1/build/CMakeCache.txt" ||
    { echo "vcpkg.sh: CMake found another plimsoll than that of the port" >&2; exit 1; }
}
cp -r "$tests/consumer" "$folder"
version=$(sed -nE 's/^ *"version": "(.*)",$/\1/p' "$ports/central/plimsoll/vcpkg.json")
configure "$folder/consumer/find_package" -DPLIMSOLL_WANTED="$version"
cmake --build "$folder/consumer/find_package/build"
"$folder/consumer/find_package/build/consumer"

mkdir "$folder/usage"
{
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(usage LANGUAGES CXX)' 'add_executable(main ../consumer/main.cpp)'
  grep '^  ' "$installed/share/plimsoll/usage"
} >"$folder/usage/CMakeLists.txt"
configure "$folder/usage"
grep -q "$installed/include" "$folder/usage/build/build.ninja" ||
  { echo "vcpkg.sh: a project that follows the usage text does not find the headers" >&2; exit 1; }

read -r include < <(PKG_CONFIG_PATH=$installed/share/pkgconfig pkg-config --cflags-only-I plimsoll)
[[ -e ${include#-I}/plimsoll/plimsoll.hpp ]] ||
  { echo "vcpkg.sh: pkg-config gives '$include', which has no headers" >&2; exit 1; }
