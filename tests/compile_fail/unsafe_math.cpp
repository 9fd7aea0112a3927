// expect-error: fast-math
// errors: 1
// flags: -funsafe-math-optimizations
// compiler: g++
#include <plimsoll/config.hpp>
