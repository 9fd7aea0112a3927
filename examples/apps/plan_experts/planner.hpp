// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a planner under a policy and measures the planning time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/select_planner.hpp>
#include <plimsoll/types.hpp>

#include "loads_ref.hpp"
#include "outcome.hpp"
#include "plan.hpp"
#include "selection.hpp"

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

/// Copies a placement in the policy's memory to `result`.
template <class Policy>
void assign(plan& result, plimsoll::placement<Policy> const& made) {
  result.slots = made.physical_to_logical.extent(1);
  result.physical_to_logical = made.physical_to_logical.to_host();
  result.replica_count = made.replica_count.to_host();
  if (made.rank_offsets.size() > 0) {
    result.rank_offsets = made.rank_offsets.to_host();
  }
}

/// Plans into `result`, whose slots are divided evenly over the ranks.
/// @param loads in the policy's memory
template <class Policy, class Loads>
[[nodiscard]] planning_time plan_with(Policy const& policy, Loads const& loads,
                                      plimsoll::eplb_options const& options, plan& result) {
  plimsoll::placement<Policy> made;
  planning_time const time =
      time_of([&] { made = plimsoll::eplb(policy, loads, result.slots, options); });
  assign(result, made);
  return time;
}

/// Plans into `result`, whose slots are then those that the largest layer could have.
/// @param loads in the policy's memory
template <class Policy, class Loads>
[[nodiscard]] planning_time plan_with(Policy const& policy, Loads const& loads,
                                      plimsoll::craft_options const& options, plan& result,
                                      plimsoll::craft_plan& found) {
  plimsoll::craft_placement<Policy> made;
  planning_time const time = time_of([&] { made = plimsoll::craft(policy, loads, options); });
  assign(result, made);
  found.estimate = std::move(made.estimate);
  found.allocation = std::move(made.allocation);
  return time;
}

/// Plans into `result`, whose slots are divided evenly over the ranks.
/// @param loads,curves in the policy's memory
template <class Policy, class Loads>
[[nodiscard]] planning_time plan_with(Policy const& policy, Loads const& loads,
                                      plimsoll::gem_options const& options,
                                      plimsoll::latency_curves const& curves, plan& result,
                                      std::vector<plimsoll::certificate>& found) {
  plimsoll::placement<Policy> made;
  planning_time const time =
      time_of([&] { made = plimsoll::gem(policy, loads, curves, result.slots, options); });
  assign(result, made);
  found = std::move(made.certificates);
  return time;
}

/// Plans into `result`, whose slots are divided evenly over the ranks.
/// @param loads in the policy's memory
template <class Policy, class Loads>
[[nodiscard]] planning_time plan_with(Policy const& policy, Loads const& loads,
                                      plimsoll::select_planner_options const& options, plan& result,
                                      selection& found) {
  plimsoll::selected_plan<Policy> made;
  planning_time const time =
      time_of([&] { made = plimsoll::select_planner(policy, loads, result.slots, options); });
  assign(result, made);
  found = {std::move(made.candidates), static_cast<std::size_t>(made.chosen)};
  return time;
}

/// Improvement of a plan that was read.
struct given_plan {
  plimsoll::placement_ref placement = {};
  plimsoll::placement_options where = {};
  plimsoll::refinement_options how = {};
};

/// Improves `given` into `result`.
/// @param loads,given in the policy's memory
template <class Policy, class Loads>
[[nodiscard]] planning_time plan_with(Policy const& policy, Loads const& loads,
                                      given_plan const& given, plan& result) {
  plimsoll::placement<Policy> made;
  planning_time const time = time_of(
      [&] { made = plimsoll::refine(policy, loads, given.placement, given.where, given.how); });
  assign(result, made);
  return time;
}

/// Move from the plan in use to a new one.
struct migration {
  plimsoll::placement_ref from = {};
  plimsoll::placement_ref to = {};
  plimsoll::alignment_options alignment = {};
  bool limited = false;  ///< whether there is a budget; else `to` is only aligned
  plimsoll::placement_options where = {};
  plimsoll::migration_options budget = {};
  plimsoll::transfer_options transfers = {};
};

/// Returns the mean over the layers.
[[nodiscard]] inline balance_gain mean_gain_of(
    std::vector<plimsoll::migration_report> const& layers) {
  balance_gain sum;
  auto const count = static_cast<double>(layers.size());
  for (plimsoll::migration_report const& one : layers) {
    sum.before += one.balancedness_before / count;
    sum.after += one.balancedness / count;
    sum.expected += one.expected_gain / count;
  }
  return sum;
}

/// Replaces `result` by the plan to move to, and lists the transfers.
/// @param loads `[steps, layers, experts]`; like `move`, in the policy's memory
template <class Policy, class Loads>
void plan_with(Policy const& policy, Loads const& loads, migration const& move, plan& result,
               migration_outcome& found) {
  auto const move_to = [&](auto const& made) {
    found.changed_layers = plimsoll::changed_layers(policy, move.from, made.ref());
    found.transfers = plimsoll::plan_transfers(policy, move.from, made.ref(), move.transfers);
    assign(result, made);
  };
  if (move.limited) {
    auto const made =
        plimsoll::plan_within(policy, loads, move.from, move.to, move.where, move.budget);
    found.gain = mean_gain_of(made.reports);
    move_to(made);
  } else {
    move_to(plimsoll::align(policy, move.from, move.to, move.alignment));
  }
}

/// Plan on the first GPU, from loads of `std::int64_t` or `double` on the host. Defined in
/// plan_gpu.cu, so only in builds with CUDA. Throw `plimsoll::cuda_error`, also if there is no GPU.
template <class Load>
planning_time plan_on_gpu(loads_ref<Load> loads, plimsoll::eplb_options const& options,
                          plan& result);
template <class Load>
planning_time plan_on_gpu(steps_ref<Load> loads, plimsoll::craft_options const& options,
                          plan& result, plimsoll::craft_plan& found);
template <class Load>
planning_time plan_on_gpu(steps_ref<Load> loads, plimsoll::select_planner_options const& options,
                          plan& result, selection& found);
template <class Load>
planning_time plan_on_gpu(steps_ref<Load> loads, plimsoll::gem_options const& options,
                          plimsoll::latency_curves const& curves, plan& result,
                          std::vector<plimsoll::certificate>& found);
template <class Load>
planning_time plan_on_gpu(loads_ref<Load> loads, given_plan const& given, plan& result);
template <class Load>
void plan_on_gpu(steps_ref<Load> loads, migration const& move, plan& result,
                 migration_outcome& found);

}  // namespace examples
