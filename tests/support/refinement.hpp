// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of refinement, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "owned.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"
#include "policies.hpp"
#include "skewed_loads.hpp"

namespace plimsoll_test::refinement_support {

using plimsoll::anti_affinity;
using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::refinement_options;
using plimsoll::strictness;

/// Result of `refine` for a map.
template <class P>
struct refined {
  ints map;
  ints counts;
  std::vector<certificate> certificates;

  template <class T>
  refined(std::vector<T> const& loads, ints const& start, index_t layers, host_options const& where,
          refinement_options const& options = {}) {
    index_t const experts = layers == 0 ? 1 : static_cast<index_t>(loads.size()) / layers;
    index_t const slots = layers == 0 ? 1 : static_cast<index_t>(start.size()) / layers;
    array_in<T, P> const in(loads);
    array_in<std::int32_t, P> map_in(start);
    array_in<std::int32_t, P> counts_in(layers * experts, -7);
    options_in<P> const where_in(where, layers);
    certificates = plimsoll::refine(make_policy<P>(), in.view2(layers, experts), *where_in, options,
                                    map_in.view2(layers, slots), counts_in.view2(layers, experts));
    map = map_in.values();
    counts = counts_in.values();
  }
};

/// Loads, the ranks that hold the experts, and a plan.
struct scene {
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  host_options where = {};
  std::vector<std::int64_t> loads = {};
  ints map = {};

  [[nodiscard]] oracle::site site(index_t layer) const {
    return site_of(where, slots, layer, experts);
  }
};

/// Places copies greedily; the plan of `s` is the result.
inline std::vector<certificate> place_greedily(scene& s, ints const& counts) {
  s.map.assign(static_cast<std::size_t>(s.layers * s.slots), -7);
  options_in<plimsoll::seq_policy> const where(s.where, s.layers);
  return plimsoll::place(
      plimsoll::seq, plimsoll::matrix_ref<std::int64_t const>(s.loads.data(), s.layers, s.experts),
      plimsoll::matrix_ref<std::int32_t const>(counts.data(), s.layers, s.experts), *where,
      plimsoll::matrix_ref<std::int32_t>(s.map.data(), s.layers, s.slots));
}

/// Replicates and places greedily. Returns false if the input is refused.
inline bool plan_greedily(scene& s) {
  ints counts(s.loads.size());
  options_in<plimsoll::seq_policy> const where(s.where, s.layers);
  try {
    plimsoll::replicate(
        plimsoll::seq,
        plimsoll::matrix_ref<std::int64_t const>(s.loads.data(), s.layers, s.experts), s.slots,
        {.where = *where}, plimsoll::matrix_ref<std::int32_t>(counts.data(), s.layers, s.experts));
    place_greedily(s, counts);
  } catch (plimsoll::invalid_input const&) {
    return false;
  }
  return true;
}

/// Makes the plan worse: removes copies and, without anti-affinity, shuffles the slots of each
/// part, a range of ranks that share experts.
inline void spoil(scene& s, generator& random) {
  for (index_t layer = 0; layer < s.layers; ++layer) {
    auto const where = s.site(layer);
    auto* const map = s.map.data() + layer * s.slots;
    for (index_t slot = 0; slot < s.slots; ++slot) {
      bool const spare = map[slot] >= 0 && std::count(map, map + s.slots, map[slot]) > 1;
      if (spare && random.between(0, 5) == 0) {
        map[slot] = -1;
      }
    }
    for (auto const& part : oracle::parts_of(where, static_cast<std::size_t>(s.experts))) {
      std::vector<std::int64_t> usable;
      for (std::size_t const r : part.ranks) {
        for (std::int64_t i = 0; i < where.room(r); ++i) {
          usable.push_back(where.offsets[r] + i);
        }
      }
      for (std::size_t i = usable.size(); where.rule == oracle::apart::nowhere && i > 1; --i) {
        std::swap(map[usable[i - 1]], map[usable[static_cast<std::size_t>(
                                          random.between(0, static_cast<std::int64_t>(i) - 1))]]);
      }
    }
  }
}

/// Largest shapes that are drawn.
struct shape_limits {
  index_t layers = 3;
  index_t experts = 40;
  index_t ranks = 12;
  index_t extra = 40;  ///< slots more than experts
};

/// Draws a random shape with random options and a random plan. Returns false if it has no plan.
inline bool draw(scene& s, std::uint64_t seed, shape_limits const& limits = {}) {
  generator random(seed);
  auto const often = [&random](int percent) { return random.between(0, 99) < percent; };
  s.layers = random.between(1, limits.layers);
  s.experts = random.between(1, limits.experts);
  s.where.ranks = random.between(1, limits.ranks);
  s.slots = s.experts + random.between(0, limits.extra);
  s.where.nodes = random.between(1, s.where.ranks);
  s.loads = skewed_loads(s.layers, s.experts, seed);
  if (often(10)) {
    s.loads.assign(s.loads.size(), random.between(0, 1) * 700);
  } else if (often(15)) {
    s.loads[0] = 100000;
  }
  auto const ranks = static_cast<std::size_t>(s.where.ranks);
  if (often(30)) {
    for (index_t layer = 0; layer < s.layers; ++layer) {
      ints row{0};
      for (std::size_t r = 0; r < ranks; ++r) {
        row.push_back(static_cast<std::int32_t>(random.between(0, s.slots)));
      }
      std::sort(row.begin(), row.end());
      s.where.rank_offsets.insert(s.where.rank_offsets.end(), row.begin(), row.end());
    }
  }
  if (often(25)) {
    for (std::size_t r = 0; r < ranks; ++r) {
      s.where.active.push_back(often(80) ? 1 : 0);
    }
  }
  if (often(30)) {
    for (std::size_t r = 0; r < ranks; ++r) {
      s.where.speeds.push_back(static_cast<double>(random.between(5, 20)) / 10);
    }
  }
  if (often(50)) {
    s.where.replica_anti_affinity = often(50) ? anti_affinity::rank : anti_affinity::node;
    s.where.anti_affinity_strength = often(50) ? strictness::preferred : strictness::required;
  }
  if (often(30) && s.where.replica_anti_affinity != anti_affinity::node) {
    index_t groups = random.between(1, s.experts);
    while (s.experts % groups != 0) {
      --groups;
    }
    ints lists(static_cast<std::size_t>(s.layers * s.experts));
    ints offsets(static_cast<std::size_t>(s.layers * (s.where.nodes + 1)));
    options_in<plimsoll::seq_policy> const where(s.where, s.layers);
    try {
      plimsoll::place_groups(
          plimsoll::seq,
          plimsoll::matrix_ref<std::int64_t const>(s.loads.data(), s.layers, s.experts), groups,
          s.slots, *where, plimsoll::matrix_ref<std::int32_t>(lists.data(), s.layers, s.experts),
          plimsoll::matrix_ref<std::int32_t>(offsets.data(), s.layers, s.where.nodes + 1));
    } catch (plimsoll::invalid_input const&) {
      return false;
    }
    s.where.node_experts = lists;
    s.where.node_offsets = offsets;
  }
  if (!plan_greedily(s)) {
    return false;
  }
  if (often(60)) {
    spoil(s, random);
  }
  return true;
}

/// Counts, peak, mean and anti-affinity violations of one layer of a map. Fails if the map is not a
/// valid plan for the scene.
struct layer_facts {
  oracle::vector counts;
  double peak = 0;
  double mean = 0;  ///< the largest mean of a part
  std::ptrdiff_t meetings = 0;

  layer_facts(scene const& s, ints const& all, index_t layer)
      : counts(static_cast<std::size_t>(s.experts), 0) {
    auto const where = s.site(layer);
    auto const map = wide_row(all, layer, s.slots);
    auto const parts = oracle::parts_of(where, counts.size());
    std::vector<oracle::vector> held(where.ranks());
    std::vector<oracle::vector> apart(where.ranks());
    std::size_t filled = 0;
    for (std::size_t r = 0; r < where.ranks(); ++r) {
      auto const& mine = parts[where.lists.empty() ? 0 : where.node_of(r)].experts;
      for (std::int64_t i = 0; i < where.room(r); ++i) {
        std::int64_t const e = map[static_cast<std::size_t>(where.offsets[r] + i)];
        if (e != -1) {
          REQUIRE(std::count(mine.begin(), mine.end(), e) == 1);
          ++counts[static_cast<std::size_t>(e)];
          held[r].push_back(e);
          apart[where.rule == oracle::apart::node ? where.node_of(r) : r].push_back(e);
          ++filled;
        }
      }
    }
    // All other slots are empty.
    CHECK(map.size() - filled == static_cast<std::size_t>(std::count(map.begin(), map.end(), -1)));
    for (std::size_t r = 0; r < where.ranks(); ++r) {
      double sum = 0;
      for (std::int64_t const e : held[r]) {
        sum += static_cast<double>(s.loads[static_cast<std::size_t>(layer * s.experts + e)]) /
               static_cast<double>(counts[static_cast<std::size_t>(e)]);
      }
      peak = std::max(peak, where.speeds.empty() ? sum : sum / where.speeds[r]);
    }
    for (oracle::part const& part : parts) {
      double load = 0;
      double speed = 0;
      for (std::int64_t const e : part.experts) {
        load += static_cast<double>(s.loads[static_cast<std::size_t>(layer * s.experts + e)]);
      }
      for (std::size_t const r : part.ranks) {
        speed += where.room(r) == 0 ? 0 : where.speeds.empty() ? 1 : where.speeds[r];
      }
      mean = std::max(mean, load == 0 ? 0 : load / speed);
    }
    for (oracle::vector& domain : apart) {
      if (where.rule != oracle::apart::nowhere) {
        std::sort(domain.begin(), domain.end());
        meetings += domain.end() - std::unique(domain.begin(), domain.end());
      }
    }
  }
};

/// Checks a refined plan against the given plan.
template <class P>
void check_refined(scene const& s, ints const& before, refined<P> const& got,
                   refinement_options const& options) {
  options_in<plimsoll::seq_policy> const where(s.where, s.layers);
  bool const required = s.where.anti_affinity_strength == strictness::required;
  plimsoll::placement_ref const placement{
      plimsoll::matrix_ref<std::int32_t const>(got.map.data(), s.layers, s.slots),
      plimsoll::matrix_ref<std::int32_t const>(got.counts.data(), s.layers, s.experts),
      s.where.ranks, (*where).rank_offsets};
  plimsoll::validation_options rules;
  rules.on.nodes = s.where.nodes;
  rules.on.active = (*where).on.active;
  if (required) {
    rules.replica_anti_affinity = s.where.replica_anti_affinity;
  }
  CHECK_NOTHROW(plimsoll::validate(plimsoll::seq, placement, rules));
  for (index_t layer = 0; layer < s.layers; ++layer) {
    CAPTURE(layer);
    layer_facts const old(s, before, layer);
    layer_facts const now(s, got.map, layer);
    certificate const& c = got.certificates[static_cast<std::size_t>(layer)];
    CHECK(now.counts == wide_row(got.counts, layer, s.experts));
    CHECK(*std::min_element(now.counts.begin(), now.counts.end()) > 0);
    CHECK((options.max_trials > 0 || now.counts == old.counts));
    CHECK(std::accumulate(now.counts.begin(), now.counts.end(), std::int64_t{0}) >=
          std::accumulate(old.counts.begin(), old.counts.end(), std::int64_t{0}));
    CHECK(now.meetings <= (required ? 0 : old.meetings));
    CHECK(now.peak <= old.peak * (1 + 1e-12));
    CHECK(c.value == doctest::Approx(now.peak).epsilon(1e-9));
    CHECK(c.lower_bound <= c.value);
    CHECK(c.lower_bound >= now.mean * (1 - 1e-9));
    CHECK(c.work >= 0);
    bool const close = c.value <= c.lower_bound * (1 + options.tolerance);
    if (c.value == c.lower_bound) {
      CHECK(c.status == certificate_status::optimal);
    } else if (close) {
      CHECK(c.status == certificate_status::within_tolerance);
    } else if (options.max_trials == 0 || c.work < options.max_trials) {
      CHECK(c.status == certificate_status::feasible);
    } else {
      CHECK((c.status == certificate_status::feasible ||
             c.status == certificate_status::iteration_limit));
    }
  }
}

}  // namespace plimsoll_test::refinement_support
