// expect-error: gpu policy.*CUDA compiler
// errors: 1
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads{3, 1}, placement(2), copies(2);
  plimsoll::eplb(plimsoll::gpu(nullptr),
                 plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2),
                 plimsoll::eplb_options{.on = {.ranks = 2}},
                 plimsoll::matrix_ref<std::int32_t>(placement.data(), 1, 2),
                 plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, 2));
}
