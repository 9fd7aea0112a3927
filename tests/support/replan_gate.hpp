// SPDX-License-Identifier: Apache-2.0
// Steps and plans of replan_gate, its calls under every policy, and its decision by the definition.
#pragma once

#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/replan_gate.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "policies.hpp"

namespace plimsoll_test::replan_support {

using plimsoll::moe_cost;
using plimsoll::replan_answer;
using plimsoll::replan_decision;
using plimsoll::replan_judgment;
using plimsoll::split_rule;

using ints = std::vector<std::int32_t>;
using reals = std::vector<double>;

/// The maps of a candidate; those of the halves may be empty.
struct candidate_maps {
  ints plan;
  ints of_first_half = {};
  ints of_second_half = {};
};

struct gate_case {
  index_t layers = 1;
  index_t experts = 4;
  index_t ranks = 2;
  ints loads = {};   ///< [steps, layers, experts]
  ints in_use = {};  ///< [layers, slots]
  std::vector<candidate_maps> candidates = {};
  std::vector<std::uint8_t> active = {};
  reals speeds = {};
  plimsoll::replan_options<moe_cost> options = {.split = split_rule::even,
                                                .cost = {.per_token = 1},
                                                .horizon = 1,
                                                .bandwidths = {1, 1, 1, 1}};

  [[nodiscard]] index_t steps() const { return std::ssize(loads) / (layers * experts); }
  [[nodiscard]] index_t slots() const { return std::ssize(in_use) / layers; }
  /// The first step of the second half of the steps with load.
  [[nodiscard]] index_t half() const {
    ints filled;
    for (index_t step = 0; step < steps(); ++step) {
      auto const first = loads.begin() + step * layers * experts;
      if (std::any_of(first, first + layers * experts, [](std::int32_t one) { return one > 0; })) {
        filled.push_back(static_cast<std::int32_t>(step));
      }
    }
    return filled.size() < 2 ? 1 : filled[filled.size() / 2];
  }
  [[nodiscard]] ints copies(ints const& map) const {
    ints result(static_cast<std::size_t>(layers * experts), 0);
    std::size_t const width = map.size() / static_cast<std::size_t>(layers);
    for (std::size_t i = 0; i < map.size(); ++i) {
      if (map[i] >= 0 && map[i] < experts) {
        ++result[i / width * static_cast<std::size_t>(experts) + static_cast<std::size_t>(map[i])];
      }
    }
    return result;
  }
};

/// A map in memory of a policy.
template <class P>
class plan_in {
 public:
  plan_in(gate_case const& c, ints const& map)
      : layers_(c.layers), ranks_(c.ranks), map_(map), copies_(c.copies(map)) {}
  [[nodiscard]] plimsoll::placement_ref ref() const {
    return map_.size() == 0
               ? plimsoll::placement_ref{}
               : plimsoll::placement_ref{map_.view2(layers_, map_.size() / layers_),
                                         copies_.view2(layers_, copies_.size() / layers_), ranks_};
  }

 private:
  index_t layers_;
  index_t ranks_;
  array_in<std::int32_t, P> map_;
  array_in<std::int32_t, P> copies_;
};

/// Calls replan_gate under a policy; another cost replaces that of the case.
template <class P, class T = std::int32_t, class Cost = moe_cost>
replan_decision decide(gate_case const& c, Cost const& cost) {
  array_in<T, P> const loads(std::vector<T>(c.loads.begin(), c.loads.end()));
  array_in<std::uint8_t, P> const active(c.active);
  array_in<double, P> const speeds(c.speeds);
  plan_in<P> const in_use(c, c.in_use);
  std::list<plan_in<P>> maps;  // arrays do not move
  for (candidate_maps const& one : c.candidates) {
    for (ints const* const map : {&one.plan, &one.of_first_half, &one.of_second_half}) {
      maps.emplace_back(c, *map);
    }
  }
  std::vector<plimsoll::replan_candidate> candidates;
  for (auto at = maps.begin(); at != maps.end();) {
    plan_in<P> const& plan = *at++;
    plan_in<P> const& of_first_half = *at++;
    candidates.push_back({plan.ref(), of_first_half.ref(), (at++)->ref()});
  }
  plimsoll::replan_options<Cost> options{
      .on = {.ranks = c.ranks},
      .split = c.options.split,
      .cost = cost,
      .horizon = c.options.horizon,
      .expert_bytes = c.options.expert_bytes,
      .bandwidths = c.options.bandwidths,
      .rounds = c.options.rounds,
      .transfer_share = c.options.transfer_share,
      .layer_stall = c.options.layer_stall,
      .least_steps = c.options.least_steps,
      .standard_errors = c.options.standard_errors,
      .enough_balancedness = c.options.enough_balancedness,
  };
  if (!c.active.empty()) {
    options.on.active = active.view1();
  }
  if (!c.speeds.empty()) {
    options.on.speeds = speeds.view1();
  }
  return plimsoll::decide_replan(make_policy<P>(), loads.view3(c.steps(), c.layers, c.experts),
                                 in_use.ref(), candidates, options);
}
template <class P, class T = std::int32_t>
replan_decision decide(gate_case const& c) {
  return decide<P, T>(c, c.options.cost);
}

inline double mean_of(reals const& values) {
  double sum = 0;
  for (double const one : values) {
    sum += one;
  }
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}
inline double error_of(reals const& values) {
  double squares = 0;
  for (double const one : values) {
    squares += (one - mean_of(values)) * (one - mean_of(values));
  }
  auto const n = static_cast<double>(values.size());
  return values.size() < 2 ? 0.0 : std::sqrt(squares / (n * (n - 1)));
}

/// Time and balancedness of one layer of one step by the definition: one step, one solve.
struct layer_step {
  double seconds = 0;
  double balancedness = 1;
  double tokens = 0;

  layer_step(gate_case const& c, ints const& map, index_t step, index_t layer) {
    ints const copies = c.copies(map);
    auto const row = [&](ints const& of, index_t width, index_t at) {
      return ints(of.begin() + at * width, of.begin() + (at + 1) * width);
    };
    ints const loads = row(c.loads, c.experts, step * c.layers + layer);
    ints const slots = row(map, c.slots(), layer);
    ints const counts = row(copies, c.experts, layer);
    double total_speed = 0;
    for (index_t r = 0; r < c.ranks; ++r) {
      total_speed += speed_of(c, r);
    }
    for (std::int32_t const load : loads) {
      tokens += load;
    }
    bool const is_optimal = c.options.split == split_rule::optimal;
    double peak = 0;
    if (is_optimal) {
      plimsoll::minmax_lp solver(
          plimsoll::seq, {{slots.data(), 1, c.slots()}, {counts.data(), 1, c.experts}, c.ranks},
          {.on = {.active = c.active, .speeds = c.speeds}, .tolerance = 0});
      reals split(slots.size());
      solver.solve(plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, c.experts),
                   plimsoll::matrix_ref<double>(split.data(), 1, c.slots()));
      peak = solver.certificates()[0].value;
    }
    for (index_t r = 0; r < c.ranks; ++r) {
      double sum = 0;
      index_t held = 0;
      for (index_t slot = r * c.slots() / c.ranks; slot < (r + 1) * c.slots() / c.ranks; ++slot) {
        std::int32_t const e = slots[static_cast<std::size_t>(slot)];
        if (e >= 0) {
          ++held;
          sum += static_cast<double>(loads[static_cast<std::size_t>(e)]) /
                 counts[static_cast<std::size_t>(e)];
        }
      }
      double const of_rank =
          is_optimal ? (held > 0 ? std::min(tokens, peak * speed_of(c, r)) : 0.0) : sum;
      peak = is_optimal ? peak : std::max(peak, sum);
      seconds = std::max(seconds, c.options.cost(of_rank, held));
    }
    balancedness = tokens > 0 ? std::min(1.0, tokens / total_speed / peak) : 1.0;
  }

 private:
  static double speed_of(gate_case const& c, index_t rank) {
    auto const r = static_cast<std::size_t>(rank);
    return c.active.empty() || c.active[r] != 0 ? (c.speeds.empty() ? 1.0 : c.speeds[r]) : 0.0;
  }
};

/// Gains of one layer, or of all with `layer` -1, in every step with load.
struct defined_gains {
  reals seconds;
  reals points;

  defined_gains(gate_case const& c, candidate_maps const& to, index_t layer) {
    for (index_t step = 0; step < c.steps(); ++step) {
      bool const is_first = step < c.half();
      ints const& map = to.of_first_half.empty() ? to.plan
                        : is_first               ? to.of_second_half
                                                 : to.of_first_half;
      double sum = 0;
      bool has_load = false;
      for (index_t l = 0; l < c.layers; ++l) {
        layer_step const was(c, c.in_use, step, l);
        if ((layer >= 0 && l != layer) || was.tokens == 0) {
          continue;
        }
        layer_step const is(c, map, step, l);
        has_load = true;
        sum += was.seconds - is.seconds;
        points.push_back(is.balancedness - was.balancedness);
      }
      if (has_load) {
        seconds.push_back(sum);
      }
    }
  }
  /// Means of 16 blocks of steps or fewer.
  [[nodiscard]] reals block_means() const {
    reals means;
    std::size_t const blocks = std::min<std::size_t>(16, seconds.size());
    for (std::size_t b = 0; b < blocks; ++b) {
      auto const at = [&](std::size_t i) {
        return seconds.begin() + static_cast<std::ptrdiff_t>(i * seconds.size() / blocks);
      };
      means.push_back(mean_of({at(b), at(b + 1)}));
    }
    return means;
  }
};

/// Standard error of the gain of one layer, or of all with `layer` -1, from the block means of
/// every layer.
inline double defined_error(gate_case const& c, candidate_maps const& to, index_t layer) {
  reals samples;
  for (index_t l = 0; l < c.layers; ++l) {
    if (layer < 0 || l == layer) {
      reals const means = defined_gains(c, to, l).block_means();
      samples.insert(samples.end(), means.begin(), means.end());
    }
  }
  defined_gains const all(c, to, layer);
  return all.seconds.empty() ? 0.0
                             : error_of(samples) * static_cast<double>(all.points.size()) /
                                   static_cast<double>(all.seconds.size());
}

}  // namespace plimsoll_test::replan_support
