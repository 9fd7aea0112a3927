// expect-error: use sum_ordered for floating sums
// errors: 1
#include <plimsoll/detail/host/serial_team.hpp>

int main() {
  plimsoll::detail::serial_team team;
  return team.sum(3, [](plimsoll::index_t) { return 0.5; }) > 1.0;
}
