// SPDX-License-Identifier: Apache-2.0
// The input of xLLM's test (github.com/jd-opensource/xllm, Apache-2.0):
// - tests/core/framework/eplb/eplb_policy_test.cpp (at 87e8d6ed): 16 experts on 4 devices with 5
//   slots each.
// Their test prints the map and asserts nothing. What is checked here follows from the rule in
// their eplb_policy.cpp: the four redundant copies go to the experts 0, 1, 2 and 15, whose load per
// copy is then 50, and every device gets a load of 109. (Their rule may put both copies of an
// expert on one device; here they are apart.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../xllm/eplb_policy.hpp"

namespace plimsoll_outside_xllm {

using ints = std::vector<std::int32_t>;

constexpr int experts = 16, devices = 4, slots = 5;

inline std::vector<std::int64_t> their_loads() {
  std::vector<std::int64_t> loads(experts, 3);
  for (std::size_t const hot : std::vector<std::size_t>{0, 1, 2, 15}) {
    loads[hot] = 100;
  }
  return loads;
}

/// Times 4: halves and quarters of a load are whole numbers.
inline std::vector<std::int64_t> device_loads_times_4(ints const& map) {
  std::vector<std::int64_t> const loads = their_loads();
  std::vector<std::int64_t> of_devices(devices, 0);
  for (std::size_t slot = 0; slot < map.size(); ++slot) {
    auto const copies = std::count(map.begin(), map.end(), map[slot]);
    of_devices[slot / slots] += 4 * loads[static_cast<std::size_t>(map[slot])] / copies;
  }
  return of_devices;
}

inline void check_all_placed(ints const& map) {
  for (std::int32_t expert = 0; expert < experts; ++expert) {
    CAPTURE(expert);
    CHECK(std::count(map.begin(), map.end(), expert) >= 1);
  }
}

TEST_CASE("outside: xLLM: copies and device loads of the engine's rule") {
  std::vector<float> loads;
  for (std::int64_t const load : their_loads()) {
    loads.push_back(static_cast<float>(load));
  }
  ints copies(experts), map(devices * slots);
  expert_planner::layer_sizes const sizes{experts, devices, slots};
  CHECK(expert_planner::replicate(sizes, loads.data(), nullptr, copies.data()));
  CHECK(copies == ints{2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2});
  CHECK(expert_planner::place(sizes, loads.data(), nullptr, copies.data(), nullptr, map.data()));
  check_all_placed(map);
  CHECK(device_loads_times_4(map) == std::vector<std::int64_t>(devices, 4 * 109));
  for (std::size_t device = 0; device < devices; ++device) {
    auto const first = map.begin() + static_cast<std::ptrdiff_t>(device * slots);
    std::sort(first, first + slots);
    CHECK(std::adjacent_find(first, first + slots) == first + slots);
  }
}

/// The first plan of a policy; the options are those of xllm::EPLBConfig.
inline ints planned(double max_moves_share) {
  xllm::EPLBConfig& config = xllm::EPLBConfig::get_instance();
  double const before = config.eplb_max_moves_share;
  config.eplb_max_moves_share = max_moves_share;
  xllm::EplbPolicy policy(slots, devices, 1);
  config.eplb_max_moves_share = before;
  xllm::Tensor<std::int64_t> load({1, experts});
  load.values = their_loads();
  auto const [map, changed] = policy.rebalance_experts(load);
  CHECK(changed == std::vector<bool>{true});
  return map.values;
}

TEST_CASE("outside: xLLM: the policy on the load of their test") {
  // Before, device 0 holds the experts 0, 1, 2, 3 and 3: a load of 303.
  ints const start = xllm::initial_distribution(1, devices, slots).values;
  CHECK(start == ints{0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 11, 12, 13, 14, 15, 15});

  // Two of 20 slots may get another expert. Expert 0 and expert 1 get a copy elsewhere.
  ints const near = planned(0.1);
  check_all_placed(near);
  std::vector<std::int64_t> loads = device_loads_times_4(near);
  CHECK(*std::max_element(loads.begin(), loads.end()) == 4 * 203);

  // Without budget, the loads of all devices are those of the engine's rule.
  ints const free = planned(1);
  check_all_placed(free);
  CHECK(device_loads_times_4(free) == std::vector<std::int64_t>(devices, 4 * 109));
}

TEST_CASE("outside: xLLM: a layer without load keeps its map") {
  // Their rule then puts all redundant copies on device 0.
  xllm::EplbPolicy policy(slots, devices, 2);
  auto const [map, changed] = policy.rebalance_experts(xllm::Tensor<std::int64_t>({2, experts}));
  CHECK(changed == std::vector<bool>(2, false));
  CHECK(map.values == xllm::initial_distribution(2, devices, slots).values);
}

}  // namespace plimsoll_outside_xllm
