// expect-error: round_split: reports is an output, so it must not be a temporary
// errors: 1
#include <plimsoll/quota.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> loads(2), quotas(2);
  std::vector<double> split(2);
  plimsoll::round_split(plimsoll::seq, plimsoll::matrix_ref<std::int32_t>(loads.data(), 1, 2), {},
                        plimsoll::matrix_ref<double>(split.data(), 1, 2),
                        plimsoll::matrix_ref<std::int32_t>(quotas.data(), 1, 2),
                        std::vector<plimsoll::quota_report>(1));
}
