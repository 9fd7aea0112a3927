#!/usr/bin/env bash
# architectures.sh NM OBJECT...: every template of the library that is instantiated for a gpu policy in
# these objects is named after the architectures that they were compiled for. CMake joins objects by ;.
set -euo pipefail
nm=$1
IFS=';' read -ra objects <<<"$(IFS=';' && echo "${*:2}")"
found=$("$nm" -C "${objects[@]}" | grep -E ' [WVu] ' | grep -E 'plimsoll::.*(gpu_policy|device_context)' || true)
[[ $found == *::arch_* ]] || { echo "no such template in ${objects[*]}"; exit 1; }
# Members of the policy itself, and templates of the objects' own.
if grep -vE '::arch_[0-9]+::|::gpu_policy::|\(anonymous namespace\)::|plimsoll_test::' <<<"$found"; then
  echo "not named after the architectures: see PLIMSOLL_DEVICE_ABI in config.hpp"
  exit 1
fi
