// SPDX-License-Identifier: Apache-2.0
// Eight slots for four experts on four GPUs: the busiest expert gets a copy for every GPU.
#include <cstddef>
#include <cstdio>
#include <plimsoll/replication.hpp>
#include <vector>

int main() {
  std::vector<int> const tokens{900, 200, 60, 40};
  // [example]
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 4);  // [layers, experts]
  auto const made = plimsoll::replicate(plimsoll::seq, loads, 8, {.max_copies = 4});
  std::vector<int> const copies = made.replica_count.to_host();
  plimsoll::certificate const layer = made.certificates[0];
  // [end]
  for (std::size_t e = 0; e < 4; ++e) {
    std::printf("expert %zu: %d tokens, copies: %d\n", e, tokens[e], copies[e]);
  }
  std::printf("largest load per copy %.0f, %s\n", layer.value,
              layer.status == plimsoll::certificate_status::optimal ? "optimal" : "feasible");
}
