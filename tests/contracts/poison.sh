#!/usr/bin/env bash
# poison.sh INCLUDE_DIR COMPILER: our headers survive the macros that system headers are known to
# define (<complex.h>: I; <termios.h>: B0; <sys/sysmacros.h>: major, minor; <windows.h>: small, near).
# min and max are not among them: config.hpp refuses them.
set -euo pipefail
cd "$1"
source=$(mktemp --suffix=.cpp)
trap 'rm -f "$source"' EXIT
{
  # The standard headers must come before the poison; they are not on trial.
  grep -rhoE --include='*.hpp' '^#include <[a-z_0-9.]+>' . | sort -u
  for macro in I J E B0 S1 small near far interface major minor makedev unix linux; do
    printf '#undef %s\n#define %s POISON(%s)\n' $macro $macro $macro
  done
  find plimsoll -name '*.hpp' | sort | sed 's/.*/#include <&>/'
} >"$source"
"$2" -std=c++20 -fsyntax-only -fopenmp -I. "$source"
