// expect-error: eplb: physical_to_logical must hold int32 or int64, not float
// errors: 1
// A map holds ids, so its elements are whole numbers.
#include <plimsoll/systems/eplb.hpp>

#include <vector>

int main() {
  plimsoll::array const loads(plimsoll::seq, std::vector<int>{3, 1}, 1, 2);
  auto placement = plimsoll::zeros<float>(plimsoll::seq, 1, 2);
  auto copies = plimsoll::zeros<int>(plimsoll::seq, 1, 2);
  plimsoll::eplb(plimsoll::seq, loads, plimsoll::eplb_options{.on = {.ranks = 2}}, placement,
                 copies);
}
