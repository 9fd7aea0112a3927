// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans with EPLB, where the policy says.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <plimsoll/systems/eplb.hpp>

#include "plan.hpp"

namespace examples {

/// How long one call took: the median of so many.
struct planning_time {
  double milliseconds = 0;
  int runs = 0;
};

/// Calls `once` up to five times, no longer than about a second: what only the first call pays for
/// (pages, caches, loading of kernels) is not planning time.
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

/// Plans into `result`, whose slots the ranks share evenly.
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

/// The same on the first GPU. Defined in plan_gpu.cu, so only in builds with CUDA. Throws
/// `plimsoll::cuda_error`, also where there is no GPU.
planning_time plan_on_gpu(loads_ref<std::int64_t> loads, plimsoll::eplb_options const& options,
                          plan& result);
planning_time plan_on_gpu(loads_ref<double> loads, plimsoll::eplb_options const& options,
                          plan& result);

}  // namespace examples
