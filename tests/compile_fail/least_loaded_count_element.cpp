// expect-error: least_loaded::count: counts must hold int32, not int64
// errors: 1
#include <plimsoll/least_loaded.hpp>

#include <cstdint>
#include <vector>

void wrong(plimsoll::least_loaded<plimsoll::seq_policy>& planner) {
  std::vector<std::int32_t> const ids{0, 1};
  std::vector<std::int64_t> counts(2);
  planner.count(plimsoll::matrix_ref<std::int32_t const>(ids.data(), 2, 1), counts);
}
