// expect-error: waterfill::fill: ids is an output, so its elements must not be const
// errors: 1
// A view of const elements as output.
#include <plimsoll/systems/waterfill.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> const map{0, 1, 0, 2}, slots(8), ids(12);
  plimsoll::placement_ref const placement{.physical_to_logical = {map.data(), 1, 4}, .ranks = 2};
  plimsoll::waterfill fill(plimsoll::seq, placement, {.line = {.top_k = 2, .max_tokens = 4}});
  fill.fill(plimsoll::matrix_ref<std::int32_t const>(slots.data(), 4, 2), {},
            plimsoll::matrix_ref<std::int32_t const>(ids.data(), 4, 3));
}
