// expect-error: least_loaded::route: destinations must be a view of rank 2, \[tokens, k\]
// errors: 1
#include <plimsoll/least_loaded.hpp>

#include <cstdint>
#include <vector>

void wrong(plimsoll::least_loaded<plimsoll::seq_policy>& planner) {
  std::vector<std::int64_t> const ids{0, 1};
  std::vector<std::int64_t> destinations(2);
  std::vector<std::int64_t> rows(2);
  std::vector<plimsoll::spill_counters> counters(1);
  planner.route(0, plimsoll::matrix_ref<std::int64_t const>(ids.data(), 2, 1), destinations,
                plimsoll::matrix_ref<std::int64_t>(rows.data(), 2, 1), counters);
}
