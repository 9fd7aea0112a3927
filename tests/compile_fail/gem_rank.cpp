// expect-error: gem: loads must be a view of rank 3, \[steps, layers, experts\]
// errors: 1
#include <plimsoll/systems/gem.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads{3, 1}, placement(2), copies(2);
  plimsoll::gem(plimsoll::seq, plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2), {},
                {.on = {.ranks = 2}}, plimsoll::matrix_ref<std::int32_t>(placement.data(), 1, 2),
                plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, 2));
}
