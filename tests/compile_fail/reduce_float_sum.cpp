// expect-error: use sum_ordered for floating sums
// errors: 1
#include <plimsoll/detail/host/serial_team.hpp>

int main() {
  plimsoll::detail::serial_team team;
  double const values[] = {1.0, 2.0};
  return team.sum(2, [&](plimsoll::index_t i) { return values[i]; }) > 2.5 ? 0 : 1;
}
