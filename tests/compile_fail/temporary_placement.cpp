// expect-error: deleted
// errors: 1
// A view of a temporary would outlive its arrays.
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <vector>

namespace p = plimsoll;

int main() {
  p::array const loads(p::seq, std::vector{3, 1}, 1, 2);
  p::minmax_lp lp(p::seq, p::eplb(p::seq, loads, 2, {.on = {.ranks = 2}}));
}
