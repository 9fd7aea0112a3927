// expect-error: more bits than its types have
// errors: 1
// flags: -mfpmath=387
// compiler: g++
#include <plimsoll/config.hpp>
