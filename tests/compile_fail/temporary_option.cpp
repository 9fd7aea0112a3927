// expect-error: deleted
// errors: 1
// A view of a temporary would outlive its elements.
#include <plimsoll/systems/eplb.hpp>

#include <vector>

namespace p = plimsoll;

int main() {
  p::array const loads(p::seq, std::vector{3, 1}, 1, 2);
  p::eplb_options const options{
      .on = {.ranks = 2},
      .rank_offsets = p::eplb(p::seq, loads, 2, {.on = {.ranks = 2}}).rank_offsets};
}
