// expect-error: no matching function for call to .*(eplb|my_pool)
// A user's policy needs a specialization of policy_traits.
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <vector>

struct my_pool {};

int main() {
  std::vector<std::int32_t> loads{3, 1}, placement(2), copies(2);
  plimsoll::eplb(my_pool{}, plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, 2),
                 plimsoll::eplb_options{.on = {.ranks = 2}},
                 plimsoll::matrix_ref<std::int32_t>(placement.data(), 1, 2),
                 plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, 2));
}
