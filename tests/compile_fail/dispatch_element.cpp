// expect-error: dispatch: slots must hold int32 or int64, not float
// errors: 1
#include <plimsoll/quota.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> ids(2), map(2), quotas(2);
  std::vector<float> slots(2);
  std::vector<plimsoll::dispatch_counters> counters(1);
  plimsoll::dispatch(plimsoll::seq, plimsoll::matrix_ref<std::int32_t>(ids.data(), 2, 1), map,
                     quotas, {.experts = 2}, plimsoll::matrix_ref<float>(slots.data(), 2, 1),
                     counters);
}
