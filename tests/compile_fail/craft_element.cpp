// expect-error: craft: physical_to_logical must hold int32 or int64, not float
// errors: 1
#include <plimsoll/systems/craft.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads{3, 1}, offsets(3), copies(2);
  std::vector<float> placement(4);
  plimsoll::craft(plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, 1, 2),
                  {.on = {.ranks = 2}}, plimsoll::matrix_ref<float>(placement.data(), 1, 4),
                  plimsoll::matrix_ref<std::int32_t>(offsets.data(), 1, 3),
                  plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, 2));
}
