// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of craft, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/slot_assignment.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "owned.hpp"
#include "policies.hpp"
#include "replay_case.hpp"
#include "slot_oracle.hpp"

namespace plimsoll_test::craft_support {

using plimsoll::craft_objective;
using plimsoll::craft_options;
using plimsoll::gain_estimate;
using plimsoll::knapsack_fill;
using plimsoll::replica_allocation;

/// Recorded steps and options on the host; `options.on.active` stays empty.
struct craft_case {
  index_t steps = 1;
  index_t layers = 1;
  index_t experts = 1;
  longs loads = {};  ///< [steps, layers, experts]
  craft_options options = {};
  flags active = {};  ///< [ranks] or empty

  [[nodiscard]] flags live() const {
    return active.empty() ? flags(static_cast<std::size_t>(options.on.ranks), 1) : active;
  }
  [[nodiscard]] reals summed() const {
    reals sums(static_cast<std::size_t>(layers * experts), 0);
    for (std::size_t i = 0; i < loads.size(); ++i) {
      sums[i % sums.size()] += static_cast<double>(loads[i]);
    }
    return sums;
  }
};

/// Steps in which some experts are heavy in every step and others in a few; layers differ in skew.
inline longs uneven_steps(std::uint64_t seed, index_t steps, index_t layers, index_t experts) {
  generator random(seed);
  longs loads;
  for (index_t step = 0; step < steps; ++step) {
    for (index_t layer = 0; layer < layers; ++layer) {
      for (index_t e = 0; e < experts; ++e) {
        std::int64_t const heavy = mix(seed + static_cast<std::uint64_t>(layer * experts + e)) % 7;
        std::int64_t const often = heavy == 0 ? 60 * (1 + layer % 4) : 0;
        loads.push_back(1 + often + random.between(0, 30) + (random.between(0, 19) == 0 ? 40 : 0));
      }
    }
  }
  return loads;
}

/// Arrays of a case in the memory of a policy, and calls with them.
template <class P, class T = double>
class craft_in {
 public:
  explicit craft_in(craft_case const& c)
      : shape_(c), loads_(std::vector<T>(c.loads.begin(), c.loads.end())), active_(c.active) {
    if (!c.active.empty()) {
      shape_.options.on.active = active_.view1();
    }
  }

  [[nodiscard]] craft_options const& options() const { return shape_.options; }
  [[nodiscard]] gain_estimate estimate() const {
    return plimsoll::estimate_gains(make_policy<P>(), loads(), options());
  }
  [[nodiscard]] plimsoll::tensor_ref<T const> loads() const {
    return loads_.view3(shape_.steps, shape_.layers, shape_.experts);
  }

 private:
  craft_case shape_;
  array_in<T, P> loads_;
  array_in<std::uint8_t, P> active_;
};

/// A plan with its arrays. The constructor checks what holds for every plan.
template <class P, class T = double>
struct crafted {
  plimsoll::craft_plan plan;
  index_t slots;
  ints map;
  ints offsets;
  ints counts;

  explicit crafted(craft_case const& c, index_t spare = 0) {
    craft_in<P, T> const in(c);
    auto const replica_counts = in.estimate().replica_counts;
    slots = c.experts + replica_counts.back() + spare;
    index_t const ends = c.options.on.ranks + 1;
    array_in<std::int32_t, P> map_out(c.layers * slots, -7);
    array_in<std::int32_t, P> offsets_out(c.layers * ends, -7);
    array_in<std::int32_t, P> counts_out(c.layers * c.experts, -7);
    auto const map_view = map_out.view2(c.layers, slots);
    auto const offsets_view = offsets_out.view2(c.layers, ends);
    auto const counts_view = counts_out.view2(c.layers, c.experts);
    plan = plimsoll::craft(make_policy<P>(), in.loads(), in.options(), map_view, offsets_view,
                           counts_view);
    map = map_out.values();
    offsets = offsets_out.values();
    counts = counts_out.values();

    bool const required = c.options.anti_affinity_strength == plimsoll::strictness::required;
    plimsoll::validate(
        make_policy<P>(),
        plimsoll::placement_ref{map_view, counts_view, c.options.on.ranks, offsets_view},
        {.on = {.nodes = c.options.on.nodes, .active = in.options().on.active},
         .replica_anti_affinity =
             required ? c.options.replica_anti_affinity : plimsoll::anti_affinity::none});
    check_allocation(c, plan.estimate, plan.allocation);
    ints layer_slots = plan.allocation.replicas;
    for (std::int32_t& n : layer_slots) {
      n += static_cast<std::int32_t>(c.experts);
    }
    flags const live = c.live();
    oracle::check_even(oracle::from_offsets(offsets, layer_slots, live.size()), live);
    REQUIRE(std::ssize(plan.certificates) == c.layers);
    for (plimsoll::certificate const& proof : plan.certificates) {
      CHECK(proof.lower_bound <= proof.value);
    }
  }

  /// Checks that the members of an allocation are consistent.
  static void check_allocation(craft_case const& c, gain_estimate const& estimate,
                               replica_allocation const& got) {
    auto const width = std::ssize(estimate.replica_counts);
    REQUIRE(std::ssize(got.replicas) == c.layers);
    REQUIRE(std::ssize(got.gain) == c.layers);
    index_t used = 0;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      std::int32_t const n = got.replicas[static_cast<std::size_t>(layer)];
      auto const& all = estimate.replica_counts;
      auto const at = std::find(all.begin(), all.end(), n) - all.begin();
      REQUIRE((n == 0 || at < width));
      CHECK(got.gain[static_cast<std::size_t>(layer)] ==
            (n == 0 ? 0 : estimate.gain[static_cast<std::size_t>(layer * width + at)]));
      used += n;
    }
    CHECK(got.used == used);
    CHECK((c.options.fill == knapsack_fill::exactly ? used == got.budget : used <= got.budget));
    if (c.options.budget != plimsoll::automatic_budget) {
      CHECK(got.budget == c.options.budget);
    }
  }
};

inline double sum_of(reals const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// ----- estimates ---------------------------------------------------------------------------------

/// Balancedness of every layer with `replicas` replicas, by separate calls of `slot_assignment`,
/// `eplb` and `replay`. Checks `replay` against its definition, too.
template <class P>
reals balancedness_with(craft_case const& c, std::int32_t replicas) {
  craft_in<P> const in(c);
  craft_options const& how = in.options();
  index_t const slots = c.experts + replicas;
  array_in<std::int32_t, P> const layer_slots(
      ints(static_cast<std::size_t>(c.layers), static_cast<std::int32_t>(slots)));
  array_in<double, P> const sums(c.summed());
  array_in<std::int32_t, P> offsets(c.layers * (how.on.ranks + 1));
  array_in<std::int32_t, P> map(c.layers * slots);
  array_in<std::int32_t, P> counts(c.layers * c.experts);
  plimsoll::assign_slots(
      make_policy<P>(), layer_slots.view1(),
      {.on = {.ranks = how.on.ranks, .active = how.on.active}, .remainder = how.remainder},
      offsets.view2(c.layers, how.on.ranks + 1));
  plimsoll::eplb_options placing{
      .on = {.ranks = how.on.ranks, .nodes = how.on.nodes, .active = how.on.active},
      .rank_offsets = offsets.view2(c.layers, how.on.ranks + 1),
      .groups = how.groups,
      .policy = how.policy,
      .refine = how.refine,
      .load_exponent = how.load_exponent,
      .replica_anti_affinity = how.replica_anti_affinity,
      .anti_affinity_strength = how.anti_affinity_strength};
  plimsoll::eplb(make_policy<P>(), sums.view2(c.layers, c.experts), placing,
                 map.view2(c.layers, slots), counts.view2(c.layers, c.experts));
  replay_case const recorded{.steps = c.steps,
                             .layers = c.layers,
                             .experts = c.experts,
                             .slots = slots,
                             .ranks = how.on.ranks,
                             .plans = 1,
                             .loads = c.loads,
                             .map = map.values(),
                             .counts = counts.values(),
                             .offsets = offsets.values(),
                             .active = c.active,
                             .split = c.options.split};
  reals const got = replay_in<P>(recorded).replay(in.loads());
  for (index_t layer = 0; layer < c.layers; ++layer) {
    double const expected = c.options.split == plimsoll::split_rule::optimal
                                ? split_balancedness(recorded, 0, layer)
                                : recorded.balancedness(0, layer);
    CHECK(got[static_cast<std::size_t>(layer)] == doctest::Approx(expected).epsilon(1e-12));
  }
  return got;
}

/// Cases that cover every option.
inline std::vector<craft_case> craft_cases() {
  using plimsoll::anti_affinity;
  using plimsoll::eplb_policy;
  using plimsoll::eplb_refinement;
  using plimsoll::remainder_spread;
  using plimsoll::strictness;
  craft_case const plain{.steps = 13,
                         .layers = 5,
                         .experts = 16,
                         .loads = uneven_steps(1, 13, 5, 16),
                         .options = {.on = {.ranks = 6}}};
  std::vector<craft_case> cases{plain};
  auto const with = [&](auto change) {
    cases.push_back(plain);
    change(cases.back());
  };
  with([](craft_case& c) { c.options.replica_counts = {1, 3, 7, 20}; });
  with([](craft_case& c) { c.options.remainder = remainder_spread::endpoints; });
  with([](craft_case& c) { c.active = {1, 1, 0, 1, 1, 1}; });
  with([](craft_case& c) {
    c.options.on.ranks = 8;
    c.options.on.nodes = 2;
    c.options.groups = 4;
  });
  with([](craft_case& c) {
    c.options.on.nodes = 2;
    c.options.groups = 4;
    c.options.policy = eplb_policy::global;
  });
  with([](craft_case& c) {
    c.options.on.ranks = 8;
    c.options.on.nodes = 4;
    c.options.groups = 8;
    c.options.policy = eplb_policy::hierarchical;
  });
  // Refinement takes a thousand times as long as the rest of a case.
  for (auto const refine : {eplb_refinement::packing, eplb_refinement::joint}) {
    with([&](craft_case& c) {
      c.layers = 2;
      c.loads = uneven_steps(1, 13, 2, 16);
      c.options.replica_counts = {5};
      c.options.refine = refine;
    });
  }
  with([](craft_case& c) {
    c.options.replica_counts = {6, 40};
    c.options.replica_anti_affinity = anti_affinity::rank;
    c.options.anti_affinity_strength = strictness::required;
  });
  with([](craft_case& c) {
    c.options.replica_counts = {6, 40};
    c.options.on.nodes = 3;
    c.options.replica_anti_affinity = anti_affinity::node;
    c.options.anti_affinity_strength = strictness::required;
  });
  with([](craft_case& c) {
    c.options.replica_counts = {6, 40};
    c.options.replica_anti_affinity = anti_affinity::rank;
  });
  with([](craft_case& c) {  // one step, and layers without load
    c.steps = 1;
    c.loads.resize(80);
    std::fill_n(c.loads.begin() + 16, 16, 0);
    std::fill_n(c.loads.begin() + 64, 16, 0);
  });
  with([](craft_case& c) { c.options.on.ranks = 1; });
  cases.push_back({.steps = 3,
                   .layers = 2,
                   .experts = 1,
                   .loads = {4, 1, 0, 2, 7, 0},
                   .options = {.on = {.ranks = 4}}});
  with([](craft_case& c) { c.options.split = plimsoll::split_rule::optimal; });
  with([](craft_case& c) {
    c.options.split = plimsoll::split_rule::optimal;
    c.active = {1, 1, 0, 1, 1, 1};
  });
  with([](craft_case& c) { c.options.load_exponent = 0.85; });
  return cases;
}

// ----- allocations -------------------------------------------------------------------------------

/// The best allocation, by exhaustive search.
struct every_allocation {
  double best = -std::numeric_limits<double>::infinity();

  every_allocation(gain_estimate const& estimate, index_t budget, knapsack_fill fill,
                   craft_objective value) {
    auto const width = estimate.replica_counts.size();
    ints choice(estimate.base.size(), -1);
    for (bool more = true; more;) {
      index_t used = 0;
      double sum = 0;
      for (std::size_t layer = 0; layer < choice.size(); ++layer) {
        if (choice[layer] >= 0) {
          auto const k = static_cast<std::size_t>(choice[layer]);
          std::int32_t const n = estimate.replica_counts[k];
          used += n;
          sum += estimate.gain[layer * width + k] * (value == craft_objective::gain ? 1 : n);
        }
      }
      if (fill == knapsack_fill::exactly ? used == budget : used <= budget) {
        best = std::max(best, sum);
      }
      more = false;
      for (std::size_t layer = 0; layer < choice.size() && !more; ++layer) {
        more = ++choice[layer] < static_cast<std::int32_t>(width);
        choice[layer] = more ? choice[layer] : -1;
      }
    }
  }
  [[nodiscard]] bool feasible() const { return best > -1e9; }
};

}  // namespace plimsoll_test::craft_support
