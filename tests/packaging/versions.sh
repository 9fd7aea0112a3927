#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# versions.sh [COMPILER]      g++ by default
# Checks that every copy of the version equals that of include/plimsoll/version.hpp.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

number() { sed -nE "s/^#define PLIMSOLL_VERSION_$1 +([0-9]+)\$/\1/p" include/plimsoll/version.hpp; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "include/plimsoll/version.hpp: not three numbers: $version" >&2; exit 1; }

bad=0
expect() { # FILE VERSION-THERE [EXPECTED]
  [[ $2 == "${3-$version}" ]] || { echo "$1: version '$2', expected ${3-$version}" >&2; bad=1; }
}

cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="${1:-g++}" \
  -DPLIMSOLL_BUILD_TESTS=OFF -DPLIMSOLL_BUILD_EXAMPLES=OFF -DPLIMSOLL_BUILD_BENCH=OFF >/dev/null
expect "CMakeLists.txt, project()" "$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$folder/CMakeCache.txt")"
expect "CMakeLists.txt, package" "$(sed -nE 's/^set\(PACKAGE_VERSION "(.*)"\)$/\1/p' "$folder/plimsoll-config-version.cmake")"
expect "CMakeLists.txt, plimsoll.pc" "$(sed -n 's/^Version: //p' "$folder/plimsoll.pc")"

# Calls the recipe's own function, without Conan.
expect conanfile.py "$(
  python3 -B <<'END'
import sys
from unittest.mock import MagicMock

for module in ("", ".errors", ".tools.build", ".tools.files", ".tools.layout", ".tools.scm"):
    sys.modules["conan" + module] = MagicMock()
sys.modules["conan"].ConanFile = object
sys.modules["conan.tools.files"].load = lambda recipe, path: open(path).read()
sys.path.insert(0, ".")
import conanfile

recipe = conanfile.PlimsollConan()
recipe.recipe_folder = "."
recipe.set_version()
print(recipe.version)
END
)"

python=examples/engines/plugin/pyproject.toml
expect $python "$(sed -nE 's/^version = "(.*)"$/\1/p' $python)"
port=tests/packaging/vcpkg/central/plimsoll/vcpkg.json
expect $port "$(sed -nE 's/^ *"version": "(.*)",$/\1/p' $port)"
for file in config.yml all/conandata.yml; do
  file=tests/packaging/conan/central/plimsoll/$file
  expect $file "$(sed -nE 's/^  "(.*)":$/\1/p' $file)"
done
expect CHANGELOG.md "$(sed -nE '/^## /{s/^## ([^ ]+).*/\1/p;q}' CHANGELOG.md)"

# Documentation names the minor version, which decides whether an installed package is compatible.
grep -q 'find_package(plimsoll [0-9]' README.md || { echo "README.md: no find_package(plimsoll <version>" >&2; bad=1; }
while IFS=: read -r file text; do
  expect "$file" "${text##*[ /]}" "${version%.*}"
done < <(grep -roE --include='*.md' --include=CMakeLists.txt 'find_package\(plimsoll [0-9.]+' README.md docs examples)
while IFS=: read -r file text; do
  expect "$file" "${text##*/}"
done < <(grep -roE --include='*.md' '\bplimsoll/[0-9]+\.[0-9.]*[0-9]' README.md docs)
# What an engine pins.
while IFS=: read -r file text; do
  expect "$file" "$text" "v$version"
done < <(grep -roE --include='*.md' '\bv[0-9]+\.[0-9]+\.[0-9]+' README.md docs examples)

((bad == 0))
echo "versions: every copy says $version"
