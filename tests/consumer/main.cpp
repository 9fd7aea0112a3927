// SPDX-License-Identifier: Apache-2.0
#include <plimsoll/plimsoll.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads{3, 1}, placement(3), copies(2);
  plimsoll::eplb(plimsoll::seq, plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2),
                 plimsoll::eplb_options{.ranks = 3},
                 plimsoll::matrix_ref<std::int32_t>(placement.data(), 1, 3),
                 plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, 2));
  return copies[0] == 2 && copies[1] == 1 ? 0 : 1;
}
