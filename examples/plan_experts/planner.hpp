// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs EPLB, CRAFT or GEM under a policy and measures the planning time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include "loads_ref.hpp"
#include "plan.hpp"

namespace examples {

/// Time of one call: the median of `runs` calls.
struct planning_time {
  double milliseconds = 0;
  int runs = 0;
};

/// Calls `once` up to five times within about a second and returns the median time, which excludes
/// costs of the first call only (pages, caches, loading of kernels).
template <class Once>
[[nodiscard]] planning_time time_of(Once&& once) {
  using clock = std::chrono::steady_clock;
  std::vector<double> times;
  auto const start = clock::now();
  do {
    auto const before = clock::now();
    once();
    times.push_back(std::chrono::duration<double, std::milli>(clock::now() - before).count());
  } while (times.size() < 5 && clock::now() - start < std::chrono::seconds(1));
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], static_cast<int>(times.size())};
}

/// Plans into `result`, whose slots are divided evenly over the ranks.
template <class Policy, class Load>
[[nodiscard]] planning_time plan_on_host(Policy const& policy, loads_ref<Load> loads,
                                         plimsoll::eplb_options const& options, plan& result) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  return time_of([&] {
    plimsoll::eplb(policy, loads, options,
                   matrix(result.physical_to_logical.data(), result.layers, result.slots),
                   matrix(result.replica_count.data(), result.layers, result.experts));
  });
}

/// Plans into `result`, which has at least as many slots as experts plus the largest replica count.
template <class Policy, class Load>
[[nodiscard]] planning_time plan_on_host(Policy const& policy, steps_ref<Load> loads,
                                         plimsoll::craft_options const& options, plan& result,
                                         plimsoll::craft_plan& found) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  return time_of([&] {
    found = plimsoll::craft(policy, loads, options,
                            matrix(result.physical_to_logical.data(), result.layers, result.slots),
                            matrix(result.rank_offsets.data(), result.layers, result.ranks + 1),
                            matrix(result.replica_count.data(), result.layers, result.experts));
  });
}

/// Plans into `result`, whose slots are divided evenly over the ranks.
template <class Policy, class Load>
[[nodiscard]] planning_time plan_on_host(Policy const& policy, steps_ref<Load> loads,
                                         plimsoll::gem_options const& options,
                                         plimsoll::latency_curves const& curves, plan& result,
                                         std::vector<plimsoll::certificate>& found) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  return time_of([&] {
    found = plimsoll::gem(policy, loads, curves, options,
                          matrix(result.physical_to_logical.data(), result.layers, result.slots),
                          matrix(result.replica_count.data(), result.layers, result.experts));
  });
}

/// Plans on the first GPU. Defined in plan_gpu.cu, so only in builds with CUDA. Throws
/// `plimsoll::cuda_error`, also if there is no GPU.
planning_time plan_on_gpu(loads_ref<std::int64_t> loads, plimsoll::eplb_options const& options,
                          plan& result);
planning_time plan_on_gpu(loads_ref<double> loads, plimsoll::eplb_options const& options,
                          plan& result);
planning_time plan_on_gpu(steps_ref<std::int64_t> loads, plimsoll::craft_options const& options,
                          plan& result, plimsoll::craft_plan& found);
planning_time plan_on_gpu(steps_ref<double> loads, plimsoll::craft_options const& options,
                          plan& result, plimsoll::craft_plan& found);
planning_time plan_on_gpu(steps_ref<std::int64_t> loads, plimsoll::gem_options const& options,
                          plimsoll::latency_curves const& curves, plan& result,
                          std::vector<plimsoll::certificate>& found);
planning_time plan_on_gpu(steps_ref<double> loads, plimsoll::gem_options const& options,
                          plimsoll::latency_curves const& curves, plan& result,
                          std::vector<plimsoll::certificate>& found);

}  // namespace examples
