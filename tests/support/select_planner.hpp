// SPDX-License-Identifier: Apache-2.0
// Histories, calls of select_planner under every policy, and the choice by its definition: every
// plan by a call of its planner, and the balancedness of every step by a replay of that step alone.
#pragma once

#include <plimsoll/flow_placement.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "owned.hpp"
#include "placement_inputs.hpp"
#include "policies.hpp"

namespace plimsoll_test::select_planner_support {

using plimsoll::planner;
using plimsoll::planner_report;
using plimsoll::select_planner_options;
using plimsoll::split_rule;

using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

struct history_case {
  index_t steps = 1;
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  longs loads = {};  ///< [steps, layers, experts]
  host_options where = {};
  split_rule split = split_rule::optimal;
  std::vector<planner> candidates = {};
  reals exponents = {};
  ints in_use = {};  ///< [layers, slots], or empty
  double move_price = 0;

  [[nodiscard]] longs part(index_t first, index_t count) const {
    auto const begin = loads.begin() + first * layers * experts;
    return {begin, begin + count * layers * experts};
  }
};

struct selection {
  ints map;
  ints counts;
  std::vector<planner_report> candidates;
  index_t chosen = -1;
};

/// Counts the slots of every expert of a map.
inline ints copies_in(ints const& map, index_t layers, index_t experts, index_t slots) {
  ints result(static_cast<std::size_t>(layers * experts), 0);
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] >= 0) {
      ++result[i / static_cast<std::size_t>(slots) * static_cast<std::size_t>(experts) +
               static_cast<std::size_t>(map[i])];
    }
  }
  return result;
}

template <class P, class T = std::int64_t, class... More>
selection select(history_case const& c, plimsoll::planner_candidate<More> const&... more) {
  array_in<T, P> const loads(std::vector<T>(c.loads.begin(), c.loads.end()));
  options_in<P> const where(c.where, c.layers);
  array_in<std::int32_t, P> const in_use(c.in_use);
  index_t const width = c.layers == 0 ? 0 : std::ssize(c.in_use) / c.layers;
  array_in<std::int32_t, P> const copies(copies_in(c.in_use, c.layers, c.experts, width));
  select_planner_options options{.on = where->on,
                                 .rank_offsets = where->rank_offsets,
                                 .split = c.split,
                                 .candidates = c.candidates,
                                 .flow_exponents = c.exponents,
                                 .move_price = c.move_price};
  if (!c.in_use.empty()) {
    options.in_use = {.physical_to_logical = in_use.view2(c.layers, width),
                      .replica_count = copies.view2(c.layers, c.experts),
                      .ranks = c.where.ranks,
                      .rank_offsets = where->rank_offsets};
  }
  auto const got = plimsoll::select_planner(
      make_policy<P>(), loads.view3(c.steps, c.layers, c.experts), c.slots, options, more...);
  return {got.physical_to_logical.to_host(), got.replica_count.to_host(), got.candidates,
          got.chosen};
}

/// Plan of one candidate, by a call of its planner under `seq`.
struct definition_plan {
  ints map;
  ints counts;

  definition_plan(history_case const& c, planner kind, longs const& loads, double exponent = 1) {
    options_in<plimsoll::seq_policy> const where(c.where, c.layers);
    auto const steps = std::ssize(loads) / (c.layers * c.experts);
    auto const keep = [this](auto const& plan) {
      map = plan.physical_to_logical.to_host();
      counts = plan.replica_count.to_host();
    };
    if (kind == planner::flow_even || kind == planner::flow_optimal) {
      keep(plimsoll::place_by_flow(
          plimsoll::seq,
          plimsoll::tensor_ref<std::int64_t const>(loads.data(), steps, c.layers, c.experts),
          c.slots,
          {.on = where->on,
           .rank_offsets = where->rank_offsets,
           .split = kind == planner::flow_even ? split_rule::even : split_rule::optimal,
           .load_exponent = exponent}));
      return;
    }
    longs sums(static_cast<std::size_t>(c.layers * c.experts), 0);
    for (std::size_t i = 0; i < loads.size(); ++i) {
      sums[i % sums.size()] += loads[i];
    }
    plimsoll::eplb_options how{.on = where->on, .rank_offsets = where->rank_offsets};
    if (kind == planner::eplb_shrunk || kind == planner::eplb_joint) {
      how.load_exponent = 0.85;
    }
    if (kind == planner::eplb_joint) {
      how.refine = plimsoll::eplb_refinement::joint;
    }
    if (kind == planner::eplb_spread) {
      how.replica_anti_affinity = plimsoll::anti_affinity::rank;
      how.anti_affinity_strength = plimsoll::strictness::required;
    }
    keep(plimsoll::eplb(plimsoll::seq,
                        plimsoll::matrix_ref<std::int64_t const>(sums.data(), c.layers, c.experts),
                        c.slots, how));
  }
};

/// Balancedness of every layer under a plan from other steps, `seen`: the mean over the steps with
/// load. Layers without load in either are left out.
inline reals balancedness_of(history_case const& c, definition_plan const& plan, longs const& loads,
                             longs const& seen) {
  options_in<plimsoll::seq_policy> const where(c.where, c.layers);
  plimsoll::placement_ref const placed{
      .physical_to_logical =
          plimsoll::matrix_ref<std::int32_t const>(plan.map.data(), c.layers, c.slots),
      .replica_count =
          plimsoll::matrix_ref<std::int32_t const>(plan.counts.data(), c.layers, c.experts),
      .ranks = c.where.ranks,
      .rank_offsets = where->rank_offsets};
  auto const size = static_cast<std::size_t>(c.layers * c.experts);
  auto const layers = static_cast<std::size_t>(c.layers);
  auto const experts = static_cast<std::size_t>(c.experts);
  reals sum(layers, 0);
  reals count(layers, 0);
  auto const has_load = [&](longs const& part, std::size_t layer) {
    bool found = false;
    for (std::size_t i = layer * experts; i < part.size(); i += size) {
      found = found || std::any_of(part.begin() + static_cast<std::ptrdiff_t>(i),
                                   part.begin() + static_cast<std::ptrdiff_t>(i + experts),
                                   [](std::int64_t load) { return load > 0; });
    }
    return found;
  };
  for (std::size_t first = 0; first < loads.size(); first += size) {
    reals one(layers);
    plimsoll::replay(
        plimsoll::seq,
        plimsoll::tensor_ref<std::int64_t const>(loads.data() + first, 1, c.layers, c.experts),
        placed, {.on = {.active = where->on.active}, .split = c.split},
        plimsoll::matrix_ref<double>(one.data(), 1, c.layers));
    for (std::size_t layer = 0; layer < layers; ++layer) {
      auto const begin = loads.begin() + static_cast<std::ptrdiff_t>(first + layer * experts);
      if (std::accumulate(begin, begin + c.experts, std::int64_t{0}) > 0) {
        sum[layer] += one[layer];
        ++count[layer];
      }
    }
  }
  reals result;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (count[layer] > 0 && has_load(seen, layer)) {
      result.push_back(sum[layer] / count[layer]);
    }
  }
  return result;
}

/// Balancedness of a candidate in both halves, of layers that have load in both.
inline reals judged(history_case const& c, planner kind, double exponent = 1) {
  std::vector<index_t> busy;
  for (index_t step = 0; step < c.steps; ++step) {
    longs const loads = c.part(step, 1);
    if (std::any_of(loads.begin(), loads.end(), [](std::int64_t load) { return load > 0; })) {
      busy.push_back(step);
    }
  }
  if (busy.size() < 2) {
    return {};
  }
  index_t const middle = busy[busy.size() / 2];
  longs const first = c.part(0, middle);
  longs const second = c.part(middle, c.steps - middle);
  reals result = balancedness_of(c, definition_plan(c, kind, first, exponent), second, first);
  reals const other = balancedness_of(c, definition_plan(c, kind, second, exponent), first, second);
  result.insert(result.end(), other.begin(), other.end());
  return result;
}

inline double mean_of(reals const& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

/// Standard error of the mean of a[i] - b[i].
inline double error_of(reals const& a, reals const& b) {
  reals off;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off.push_back(a[i] - b[i]);
  }
  double const mean = mean_of(off);
  double squares = 0;
  for (double const one : off) {
    squares += (one - mean) * (one - mean);
  }
  auto const n = static_cast<double>(a.size());
  return n > 1 ? std::sqrt(squares / (n * (n - 1))) : 0;
}

/// A planner that puts experts into slots as a fixed map says.
template <class P>
auto fixed_planner(history_case const& c, std::string name, ints map) {
  return plimsoll::candidate(std::move(name), [c, map](auto const& policy, auto const&) {
    ints counts(static_cast<std::size_t>(c.layers * c.experts), 0);
    auto const slots = map.size() / static_cast<std::size_t>(c.layers);
    for (std::size_t i = 0; i < map.size(); ++i) {
      if (map[i] >= 0) {
        ++counts[i / slots * static_cast<std::size_t>(c.experts) +
                 static_cast<std::size_t>(map[i])];
      }
    }
    array_in<std::int32_t, P> const map_in(map);
    array_in<std::int32_t, P> const counts_in(counts);
    return plimsoll::copy_placement(policy, map_in.view2(c.layers, std::ssize(map) / c.layers),
                                    counts_in.view2(c.layers, c.experts), c.where.ranks);
  });
}

}  // namespace plimsoll_test::select_planner_support
