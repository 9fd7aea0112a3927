// expect-error: fast-math
// errors: 1
// flags: -fassociative-math -fno-signed-zeros -fno-trapping-math
// compiler: g++
#include <plimsoll/config.hpp>
