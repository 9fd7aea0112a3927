// expect-success
// flags: -ffast-math -DPLIMSOLL_ALLOW_FAST_MATH
#include <plimsoll/config.hpp>
