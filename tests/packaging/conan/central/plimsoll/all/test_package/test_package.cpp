// The busier of two experts gets the third slot.
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <vector>

int main() {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  std::vector<std::int32_t> loads{3, 1}, placement(3), copies(2);
  plimsoll::eplb(plimsoll::seq, plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2),
                 {.on = {.ranks = 3}}, matrix(placement.data(), 1, 3), matrix(copies.data(), 1, 2));
  return copies == std::vector<std::int32_t>{2, 1} ? 0 : 1;
}
