// expect-error: plimsoll::array: the rank must be 0, 1, 2 or 3
// errors: 1
// Calls take views of at most three dimensions.
#include <plimsoll/array.hpp>

#include <vector>

int main() { plimsoll::array const loads(plimsoll::seq, std::vector<int>(16), 2, 2, 2, 2); }
