// expect-error: error:.*Plimsoll: a macro named min or max is defined
// errors: 2
#include <algorithm>
#include <vector>
#define max(a, b) ((a) > (b) ? (a) : (b))
#include <plimsoll/plimsoll.hpp>
