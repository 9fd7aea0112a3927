#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# conan.sh [COMPILER]      g++ by default
# Runs `conan create` on the checkout with its test_package, as docs/packages.md describes: with an
# unedited default profile, from an empty cache and without a remote. The package must contain the headers
# and the licence and nothing else, and refuse compilers that are too old.
# Uses the Conan in PATH; without one, installs the version below from PyPI, once, in the user's cache.
set -euo pipefail
conan_version=2.34.0
root=$(cd "$(dirname "$0")/../.." && pwd)
export CXX=${1:-g++}
unset CC # Conan would derive the family of the C++ compiler from it
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

conan=$(command -v conan || true)
if [[ -z $conan ]]; then
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll-conan-$conan_version
  conan=$venv/bin/conan
  mkdir -p "${venv%/*}"
  (
    flock 9 # two build folders may be tested at the same time
    "$conan" --version &>/dev/null ||
      { python3 -m venv --clear "$venv" && "$venv/bin/pip" --quiet --disable-pip-version-check install "conan==$conan_version"; }
  ) 9>"$venv.lock" || {
    missing="no conan in PATH, and none could be installed from PyPI (python3-venv is needed)"
    [[ ! ${CI-} ]] || { echo "conan.sh: $missing" >&2; exit 1; }
    echo "skipped: $missing" # a user's machine may be offline
    exit 0
  }
fi

# Works on a copy, since Conan and Python write next to the recipes. It has only the files that they need.
checkout=$folder/checkout
mkdir -p "$checkout/tests/packaging"
cp -r "$root"/{conanfile.py,include,LICENSE} "$checkout"
cp -r "$root/tests/consumer" "$checkout/tests"
cp -r "$root/tests/packaging/conan" "$checkout/tests/packaging"

export CONAN_HOME=$folder/home
"$conan" profile detect
"$conan" remote remove '*'
create() { # SETTING...
  "$conan" create "$checkout" "${@/#/--settings=}"
}
create

version=$("$conan" inspect "$checkout" --format=json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
plimsoll=plimsoll/$version
files() { find "$@" -type f ! -name '.*' -printf '%P\n' | LC_ALL=C sort; }
check_package() {
  local package
  # This id is the SHA-1 of the empty string: the package depends on no setting.
  package=$("$conan" cache path "$plimsoll:da39a3ee5e6b4b0d3255bfef95601890afd80709")
  diff <(files "$root/include" | sed 's|^|include/|'; echo licenses/LICENSE) \
       <(files "$package" | grep -v '^conan\(info\|manifest\)\.txt$') ||
    { echo "conan.sh: the package (>) is not include/ and LICENSE (<)" >&2; exit 1; }
}
check_package

refused() { # MESSAGE SETTING...
  local output
  if output=$(create "${@:2}" 2>&1) || [[ $output != *"$1"* ]]; then
    printf '%s\nconan.sh: expected to be refused with: %s\n' "$output" "$1" >&2
    exit 1
  fi
}
refused "plimsoll needs gcc 12, not 11" compiler=gcc compiler.version=11
refused "plimsoll needs clang 14, not 13" compiler=clang compiler.version=13

# Runs the recipe for ConanCenter on an archive of the checkout; its placeholders are the release and its
# checksum.
"$conan" remove "$plimsoll" --confirm
central=$folder/central
cp -r "$root/tests/packaging/conan/central/plimsoll" "$central"
grep -q "^  \"$version\":" "$central/config.yml" "$central/all/conandata.yml"
tar -C "$folder" -czf "$folder/release.tar.gz" checkout
url=https://github.com/@OWNER@/plimsoll/archive/refs/tags/v$version.tar.gz
grep -qF "$url" "$central/all/conandata.yml" || { echo "conan.sh: conandata.yml names another release" >&2; exit 1; }
sed -i "s|$url|file://$folder/release.tar.gz|; s|@SHA256@|$(sha256sum "$folder/release.tar.gz" | cut -d' ' -f1)|" "$central/all/conandata.yml"
"$conan" create "$central/all" --version "$version"
check_package
echo "conan: $plimsoll is complete, works with a fresh profile, and refuses older compilers"
