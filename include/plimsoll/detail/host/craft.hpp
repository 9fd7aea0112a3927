// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of CRAFT: checks, gains from balancedness, classes of the knapsack, and the knee.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/host/eplb.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/slot_assignment.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/systems/craft_types.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_craft_fault(refused_value const& of) {
  throw_slot_assignment_fault(of);
  throw_eplb_fault(of);
}

/// Checks the ranks of the options and returns the number of live ones.
template <class Context>
index_t live_ranks(std::string_view name, Context const& context, craft_options const& options) {
  expect_rank_set(name, options.on);
  expect_no_speeds(name, options.on, "gains count tokens");
  if (options.on.active.data == nullptr) {
    return options.on.ranks;
  }
  auto const active = on_host(context, options.on.active);
  auto const dead = std::count(active.begin(), active.end(), 0);
  expect_between(name, "options.on.active", 1, options.on.ranks, options.on.ranks - dead,
                 "live ranks");
  return options.on.ranks - dead;
}

inline void expect_budget(std::string_view name, craft_options const& options) {
  expect_between(name, "options.budget", automatic_budget, INT64_MAX, options.budget,
                 "replicas (-1: automatic)");
}

inline void expect_replica_counts(std::string_view name, std::string const& argument,
                                  std::vector<std::int32_t> const& counts) {
  std::int32_t least = 1;
  for (std::int32_t const count : counts) {
    expect_between(name, argument, least, rank_limit - 1, count, "replicas, rising from 1");
    least = count + 1;
  }
}

inline std::vector<std::int32_t> usual_replica_counts(index_t ranks) {
  std::vector<std::int32_t> counts;
  for (index_t count = 1; count < ranks; count *= 2) {
    counts.push_back(static_cast<std::int32_t>(count));
  }
  counts.push_back(static_cast<std::int32_t>(std::min(ranks, rank_limit - 1)));
  return counts;
}

/// Checks the options and fills in the default replica counts.
template <class Context>
craft_options checked(std::string_view name, Context const& context, craft_options options) {
  index_t const live = live_ranks(name, context, options);
  if (options.replica_counts.empty()) {
    options.replica_counts = usual_replica_counts(live);
  }
  expect_replica_counts(name, "options.replica_counts", options.replica_counts);
  return options;
}

inline eplb_options eplb_options_of(craft_options const& options,
                                    matrix_ref<std::int32_t const> rank_offsets) {
  return {.on = options.on,
          .rank_offsets = rank_offsets,
          .groups = options.groups,
          .policy = options.policy,
          .refine = options.refine,
          .load_shrink = options.load_shrink,
          .replica_anti_affinity = options.replica_anti_affinity,
          .anti_affinity_strength = options.anti_affinity_strength};
}

/// Returns the slots of every layer of every plan, `[plans, layers]`: plan 0 has one slot for each
/// expert, and plan i has `counts[i - 1]` more.
inline std::vector<std::int32_t> slots_of_plans(std::vector<std::int32_t> const& counts,
                                                index_t layers, index_t experts) {
  auto const n = static_cast<std::size_t>(layers);
  auto const fewest = static_cast<std::int32_t>(experts);
  std::vector<std::int32_t> slots(n, fewest);
  for (std::int32_t const count : counts) {
    slots.insert(slots.end(), n, fewest + count);
  }
  return slots;
}

/// Makes the estimate from the balancedness `[plans, layers]` of the plans of `slots_of_plans`.
inline gain_estimate estimate_of(std::vector<std::int32_t> const& counts,
                                 std::vector<double> const& balancedness) {
  std::size_t const layers = balancedness.size() / (counts.size() + 1);
  gain_estimate result{.replica_counts = counts, .base = balancedness, .gain = {}};
  result.base.resize(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t row = layers + layer; row < balancedness.size(); row += layers) {
      result.gain.push_back(balancedness[row] - balancedness[layer]);
    }
  }
  return result;
}

inline void expect_estimate(std::string_view name, gain_estimate const& estimate) {
  auto const& counts = estimate.replica_counts;
  auto const width = static_cast<index_t>(counts.size());
  expect_between(name, "estimate.replica_counts", 1, rank_limit - 1, width, "counts");
  expect_replica_counts(name, "estimate.replica_counts", counts);
  expect_extent(name, "estimate.gain", static_cast<index_t>(estimate.base.size()) * width,
                static_cast<index_t>(estimate.gain.size()), "elements (layers * counts)");
}

/// Classes of the knapsack, `[layers, counts]`: a class is a layer, an option a replica count.
struct replica_classes {
  std::vector<std::int32_t> weights = {};
  std::vector<double> values = {};
};

inline replica_classes classes_of(std::string_view name, gain_estimate const& estimate,
                                  craft_objective objective) {
  auto const& counts = estimate.replica_counts;
  replica_classes result;
  for (std::size_t i = 0; i < estimate.gain.size(); ++i) {
    double const gain = estimate.gain[i];
    std::int32_t const count = counts[i % counts.size()];
    if (!(gain > -0x1p900 && gain < 0x1p900)) {
      fail(name, "estimate.gain", "numbers below 2^900",
           text(gain, " in layer ", i / counts.size(), " for ", count, " replicas"));
    }
    result.weights.push_back(count);
    result.values.push_back(objective == craft_objective::gain ? gain : count * gain);
  }
  return result;
}

/// Returns the number of replicas per rank at which the curve is furthest above the straight line
/// from its first point to its last.
inline index_t knee(std::vector<double> const& curve) {
  auto const last = static_cast<double>(curve.size() - 1);
  auto const height = [&](std::size_t i) {
    return add(multiply(curve[i], last), -multiply(static_cast<double>(i), curve.back()));
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    best = height(i) > height(best) ? i : best;
  }
  return static_cast<index_t>(best);
}

/// Adds the curve over replicas per rank, the knee and the budget to `result`. `best` is the
/// largest gain for every number of replicas.
inline void choose_budget(std::vector<double> const& best, index_t ranks, index_t budget,
                          replica_allocation& result) {
  for (std::size_t i = 0; i < best.size(); i += static_cast<std::size_t>(ranks)) {
    result.curve.push_back(best[i]);
  }
  result.knee = knee(result.curve);
  result.budget = budget == automatic_budget ? result.knee * ranks : budget;
}

/// Adds the chosen option of every layer to `result`; -1 is no replica.
inline void take_choices(std::vector<std::int32_t> const& choices, gain_estimate const& estimate,
                         replica_allocation& result) {
  auto const& counts = estimate.replica_counts;
  std::size_t first = 0;
  for (std::int32_t const choice : choices) {
    auto const k = static_cast<std::size_t>(choice);
    result.replicas.push_back(choice < 0 ? 0 : counts[k]);
    result.gain.push_back(choice < 0 ? 0 : estimate.gain[first + k]);
    result.used += result.replicas.back();
    first += counts.size();
  }
}

}}}  // namespace plimsoll::detail
