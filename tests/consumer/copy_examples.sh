#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# copy_examples.sh EXAMPLES FOLDER
# Copies every example to FOLDER/<name>/project, as a user does who starts from it (docs/packages.md). Each
# copy has a parent of its own, so that none finds another beside it. A single file gets the CMakeLists.txt
# of single_file with its name. Of engines, each part is copied alone, with common where it needs that.
set -euo pipefail
examples=$1 folder=$2 template=$(dirname "$(realpath "$0")")/single_file/CMakeLists.txt
rm -rf "$folder"
copy() { # PROJECT [NAME]
  local copy=$folder/${2-${1##*/}}
  mkdir -p "$copy"
  cp -r "$1" "$copy/project"
}
for list in "$examples"/{,apps/}*/CMakeLists.txt; do
  copy "${list%/*}"
done
copy "$examples/engines/cpp" cpp_engines
for name in tvm_ffi torch_ops; do
  copy "$examples/engines/$name"
  cp -r "$examples/engines/common" "$folder/$name"
done
for source in "$examples"/*.cpp; do
  name=$(basename "$source" .cpp)
  mkdir -p "$folder/$name/project"
  cp "$source" "$folder/$name/project"
  sed "s/project(hello_balance /project($name /" "$template" >"$folder/$name/project/CMakeLists.txt"
done
