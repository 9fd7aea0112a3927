// expect-error: error:.*Plimsoll reports bad input by exceptions: compile without -fno-exceptions
// errors: 2
// flags: -fno-exceptions
#include <plimsoll/plimsoll.hpp>
