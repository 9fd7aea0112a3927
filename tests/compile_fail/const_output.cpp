// expect-error: eplb: physical_to_logical is an output, so its elements must not be const
// errors: 1
// Outputs are written, so their elements must not be const.
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads{3, 1}, placement(2), copies(2);
  plimsoll::eplb(plimsoll::seq, plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2),
                 plimsoll::eplb_options{.on = {.ranks = 2}},
                 plimsoll::matrix_ref<std::int32_t const>(placement.data(), 1, 2),
                 plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, 2));
}
