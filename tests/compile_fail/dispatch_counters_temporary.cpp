// expect-error: an output of one element must be an object of its type that is neither const nor
// errors: 1
#include <plimsoll/quota.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> ids(2), map(2), quotas(2), slots(2);
  plimsoll::dispatch(plimsoll::seq, plimsoll::matrix_ref<std::int32_t>(ids.data(), 2, 1), map,
                     quotas, {.experts = 2}, plimsoll::matrix_ref<std::int32_t>(slots.data(), 2, 1),
                     plimsoll::dispatch_counters{});
}
