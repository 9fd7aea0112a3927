// expect-error: fast-math
// errors: 1
// flags: -ffast-math
#include <plimsoll/config.hpp>
