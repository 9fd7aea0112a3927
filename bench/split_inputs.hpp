// SPDX-License-Identifier: Apache-2.0
// Named inputs of minmax_lp, quota and lplb: DeepSeek-V3's 256 experts on 64 ranks.
#pragma once

#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench {

/// EPLB's placement of one layer, planned for other loads than the step's.
struct planned_layer {
  static constexpr index_t experts = 256;
  static constexpr index_t ranks = 64;

  index_t slots;
  std::vector<std::int32_t> planned;  ///< [experts]: the loads that the placement is planned for
  std::vector<std::int32_t> map;      ///< [slots]
  std::vector<std::int32_t> counts = std::vector<std::int32_t>(experts);

  planned_layer(index_t extra_slots, std::uint64_t seed)
      : slots(experts + extra_slots),
        planned(lognormal_loads(1, experts, seed)),
        map(static_cast<std::size_t>(slots)) {
    plimsoll::eplb(plimsoll::seq, matrix(planned, 1, experts), {.on = {.ranks = ranks}},
                   matrix(map, 1, slots), matrix(counts, 1, experts));
  }
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {map.data(), 1, slots},
            .replica_count = {counts.data(), 1, experts},
            .ranks = ranks};
  }
};

/// Two steps after the placement was planned: the popularity of each expert has drifted by a random
/// factor, and from step to step by a smaller one.
struct drifted_layer : planned_layer {
  std::vector<std::int32_t> before;  ///< [experts]
  std::vector<std::int32_t> now;     ///< [experts]

  drifted_layer(index_t extra_slots, std::uint64_t seed) : planned_layer(extra_slots, 100 + seed) {
    auto const drift = [&](std::uint64_t stream, std::size_t e, double width) {
      return plimsoll::detail::exp(width * (plimsoll::random::uniform(seed, stream, e) - 0.5));
    };
    for (std::size_t e = 0; e < planned.size(); ++e) {
      double const today = planned[e] * drift(10, e, 2.0);
      before.push_back(static_cast<std::int32_t>(today));
      now.push_back(static_cast<std::int32_t>(today * drift(11, e, 0.4)));
    }
  }
};

/// EPLB's placements of 58 layers, two of each, and a step's tokens.
struct placed_layers {
  static constexpr index_t layers = 58;
  static constexpr index_t experts = planned_layer::experts;

  index_t slots;
  std::vector<std::int32_t> maps[2];
  std::vector<std::int32_t> counts;  ///< [layers, experts]

  explicit placed_layers(index_t extra_slots) : slots(experts + extra_slots) {
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      for (std::uint64_t which : {0u, 1u}) {
        drifted_layer const one(extra_slots, 2 * layer + which);
        maps[which].insert(maps[which].end(), one.map.begin(), one.map.end());
        if (which == 0) {
          counts.insert(counts.end(), one.now.begin(), one.now.end());
        }
      }
    }
  }
  [[nodiscard]] plimsoll::placement_ref placement(std::size_t which) const {
    return {.physical_to_logical = {maps[which].data(), layers, slots},
            .replica_count = {nullptr, layers, experts},
            .ranks = planned_layer::ranks};
  }
};

/// A step of 4096 tokens with 8 experts each; the planned popularity of each expert is multiplied
/// by 0.5 to 1.5.
struct routed_layer : planned_layer {
  static constexpr index_t tokens = 4096;
  static constexpr index_t k = 8;

  std::vector<std::int32_t> ids;  ///< [tokens, k]
  std::vector<std::int32_t> loads = std::vector<std::int32_t>(experts);

  explicit routed_layer(index_t extra_slots) : planned_layer(extra_slots, 7) {
    std::vector<double> until;
    for (std::size_t e = 0; e < planned.size(); ++e) {
      until.push_back(planned[e] * (0.5 + plimsoll::random::uniform(1, 0, e)) +
                      (e == 0 ? 0 : until.back()));
    }
    for (std::uint64_t i = 0; i < tokens * k; ++i) {
      double const drawn = plimsoll::random::uniform(1, 1, i) * until.back();
      auto const e = std::upper_bound(until.begin(), until.end() - 1, drawn) - until.begin();
      ids.push_back(static_cast<std::int32_t>(e));
      ++loads[static_cast<std::size_t>(e)];
    }
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> loads_view() const {
    return {loads.data(), 1, experts};
  }
};

}  // namespace plimsoll_bench
