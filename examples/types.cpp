// SPDX-License-Identifier: Apache-2.0
// Describes ranks that differ, and reads the certificate of the plan for them.
#include <cstdint>
#include <cstdio>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/types.hpp>
#include <vector>

// [float16]
static_assert(plimsoll::float16{0x3e00} == 1.5f);
static_assert(plimsoll::bfloat16{0x3fc0} == 1.5f);
// [end]

int main() {
  // [ranks]
  // Eight ranks on two nodes. Rank 5 is dead; those of the second node are half as fast.
  std::vector<std::uint8_t> const active{1, 1, 1, 1, 1, 0, 1, 1};
  std::vector<double> const speeds{2, 2, 2, 2, 1, 1, 1, 1};
  plimsoll::rank_set const on{.ranks = 8, .nodes = 2, .active = active, .speeds = speeds};

  std::vector<std::int32_t> const tokens{900, 300, 250, 200, 140, 110, 60, 40};
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 8);  // [layers, experts]
  auto const plan = plimsoll::eplb(plimsoll::seq, loads, 16, {.on = on});
  // [end]

  auto const slots = plan.physical_to_logical.to_host();
  for (std::size_t rank = 0; rank < 8; ++rank) {
    std::printf("rank %zu: experts %d %d\n", rank, slots[2 * rank], slots[2 * rank + 1]);
  }
  // [certificate]
  for (plimsoll::certificate const& layer : plan.certificates) {
    bool const proven = layer.status == plimsoll::certificate_status::optimal;
    std::printf("peak %.1f, no plan is below %.1f (%s)\n", layer.value, layer.lower_bound,
                proven ? "optimal" : "a better one may exist");
  }
  // [end]
}
