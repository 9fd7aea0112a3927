// SPDX-License-Identifier: Apache-2.0
// What every consumer project builds: plans a layer of two experts on three ranks, and looks at the
// result.
#include <plimsoll/plimsoll.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

bool plans_well() {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  std::vector<std::int32_t> loads{3, 1}, placement(3), copies(2);
  plimsoll::eplb(plimsoll::seq, plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2),
                 {.on = {.ranks = 3}}, matrix(placement.data(), 1, 3), matrix(copies.data(), 1, 2));
  return copies == std::vector<std::int32_t>{2, 1} &&
         placement == std::vector<std::int32_t>{0, 1, 0};
}

}  // namespace

int main() {
  bool const good = plans_well();
  std::puts(good ? "the plan is as expected" : "expected another plan");
  return good ? 0 : 1;
}
