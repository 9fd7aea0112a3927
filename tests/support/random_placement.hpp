// SPDX-License-Identifier: Apache-2.0
// Random small planning problems, for comparison with exhaustive search.
#pragma once

#include <plimsoll/placement.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "generators.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"

namespace plimsoll_test {

/// A problem with a few experts; speeds and other options are set in some of the problems.
struct random_case {
  ints loads;
  ints counts;
  index_t slots = 0;
  host_options options;

  explicit random_case(std::uint64_t seed, index_t most_copies = 8) {
    generator random(seed);
    auto const among = [&](std::int64_t low, std::int64_t high) {
      return static_cast<std::int32_t>(random.between(low, high));
    };
    options.ranks = among(1, 5);
    options.nodes = among(1, options.ranks);
    slots = among(1, 10);
    if (random.between(0, 3) > 0) {
      options.rank_offsets = {0};
      for (index_t r = 0; r < options.ranks; ++r) {
        options.rank_offsets.push_back(options.rank_offsets.back() + among(0, 4));
      }
      slots = std::max<index_t>(1, options.rank_offsets.back() + among(0, 1));
    }
    for (index_t r = 0; r < options.ranks && random.between(0, 3) == 0; ++r) {
      options.active.assign(static_cast<std::size_t>(options.ranks), 1);
      options.active[static_cast<std::size_t>(among(0, options.ranks - 1))] = 0;
    }
    if (random.between(0, 2) == 0) {
      for (index_t r = 0; r < options.ranks; ++r) {
        options.speeds.push_back(0.5 * among(1, 6));
      }
    }
    options.replica_anti_affinity = static_cast<plimsoll::anti_affinity>(among(0, 2));
    options.anti_affinity_strength = static_cast<plimsoll::strictness>(among(0, 1));
    // Often as many replicas as slots of live ranks, sometimes more.
    oracle::vector const rooms = oracle::slots_of_nodes(site_of(options, slots, 0, 1));
    auto const room = std::accumulate(rooms.begin(), rooms.end(), std::int64_t{0});
    auto const experts =
        among(1, std::clamp<std::int64_t>(room, 1, std::min<std::int64_t>(slots, 6)));
    for (std::int32_t e = 0; e < experts; ++e) {
      loads.push_back(among(0, 12));
      counts.push_back(1);
    }
    auto const most =
        std::clamp<std::int64_t>(room + (random.between(0, 9) == 0 ? 1 : 0), experts, most_copies);
    for (auto extra = random.between(0, 2 * (most - experts)); extra > 0; --extra) {
      std::int32_t& copies = counts[static_cast<std::size_t>(among(0, experts - 1))];
      copies += std::accumulate(counts.begin(), counts.end(), 0) < most ? 1 : 0;
    }
    if (options.replica_anti_affinity != plimsoll::anti_affinity::node &&
        random.between(0, 2) == 0) {
      options.node_offsets = {0};
      for (index_t n = 1; n < options.nodes; ++n) {
        options.node_offsets.push_back(among(options.node_offsets.back(), experts));
      }
      options.node_offsets.push_back(experts);
      for (std::int32_t e = 0; e < experts; ++e) {
        options.node_experts.insert(options.node_experts.begin() + among(0, e), e);
      }
    }
  }

  [[nodiscard]] oracle::site site() const {
    return site_of(options, slots, 0, static_cast<index_t>(loads.size()));
  }
};

inline oracle::vector wide(ints const& values) { return {values.begin(), values.end()}; }

/// Returns the fixed-point value of a load of 1.
inline double fixed_unit(oracle::vector const& loads) {
  oracle::vector const load = oracle::fixed(loads);
  for (std::size_t e = 0; e < load.size(); ++e) {
    if (loads[e] > 0) {
      return static_cast<double>(load[e] / loads[e]);
    }
  }
  return 1;
}

}  // namespace plimsoll_test
