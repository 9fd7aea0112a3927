// expect-error: Plimsoll needs C\+\+20
// errors: 2
// flags: -std=c++17
#include <plimsoll/plimsoll.hpp>

int main() {}
