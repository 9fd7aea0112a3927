// expect-error: fast-math
// errors: 1
// flags: -ffinite-math-only
#include <plimsoll/config.hpp>
