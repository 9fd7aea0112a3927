#!/usr/bin/env bash
# no_cmath.sh FOLDER...: bodies use exact arithmetic and detail/exact_math.hpp only, since <cmath> differs
# between libraries, compilers and devices in the last bit.
set -euo pipefail
for folder; do
  [[ -n $(find "$folder" -type f) ]] || { echo "no bodies in $folder"; exit 1; }
done
functions='exp|exp2|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|hypot|fma|fmod|floor|ceil|round|trunc|rint|nearbyint|lround|llround|sin|cos|tan|tanh|erf|tgamma|lgamma|isnan|isinf|isfinite'
if grep -rnE '#[[:space:]]*include[[:space:]]*<(cmath|math\.h|complex|random|valarray)>|\bstd::(f?abs|'"$functions"')[[:space:]]*\(|__builtin_('"$functions"')f?[[:space:]]*\(' "$@"; then
  echo "<cmath> in a body"
  exit 1
fi
