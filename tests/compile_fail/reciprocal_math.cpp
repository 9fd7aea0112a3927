// expect-error: fast-math
// errors: 1
// flags: -freciprocal-math
// compiler: g++
#include <plimsoll/config.hpp>
