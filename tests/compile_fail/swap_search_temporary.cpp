// expect-error: swap_search: physical_to_logical is an output, so it must not be a temporary
// errors: 1
#include <plimsoll/swap_search.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads{3, 1};
  plimsoll::swap_search(plimsoll::seq,
                        plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, 1, 2),
                        plimsoll::token_cost{}, {.on = {.ranks = 2}},
                        plimsoll::zeros<std::int32_t>(plimsoll::seq, 1, 2));
}
