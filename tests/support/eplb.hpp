// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of eplb, calls under every policy, and what the results must be.
#pragma once

#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hash.hpp"
#include "planning_oracle.hpp"
#include "policies.hpp"
#include "skewed_loads.hpp"

namespace plimsoll_test::eplb_support {

using ints = std::vector<std::int32_t>;

template <class P>
struct planned {
  ints map;
  ints counts;
  std::vector<plimsoll::certificate> certificates;

  /// `active`, `speeds` and `rank_offsets` may be empty. Every plan is validated.
  template <class T>
  planned(std::vector<T> const& loads, index_t layers, index_t experts,
          plimsoll::eplb_options options, index_t slots,
          std::vector<std::uint8_t> const& active = {}, std::vector<double> const& speeds = {},
          ints const& rank_offsets = {}) {
    array_in<T, P> const in(loads);
    array_in<std::uint8_t, P> const active_in(active);
    array_in<double, P> const speeds_in(speeds);
    array_in<std::int32_t, P> const offsets_in(rank_offsets);
    array_in<std::int32_t, P> map_out(layers * slots, -7);
    array_in<std::int32_t, P> counts_out(layers * experts, -7);
    if (!active.empty()) {
      options.on.active = active_in.view1();
    }
    if (!speeds.empty()) {
      options.on.speeds = speeds_in.view1();
    }
    if (!rank_offsets.empty()) {
      options.rank_offsets =
          offsets_in.view2(offsets_in.size() / (options.on.ranks + 1), options.on.ranks + 1);
    }
    certificates = plimsoll::eplb(make_policy<P>(), in.view2(layers, experts), options,
                                  map_out.view2(layers, slots), counts_out.view2(layers, experts));
    bool const required = options.anti_affinity_strength == plimsoll::strictness::required;
    plimsoll::validate(
        make_policy<P>(),
        plimsoll::placement_ref{map_out.view2(layers, slots), counts_out.view2(layers, experts),
                                options.on.ranks, options.rank_offsets},
        {.on = {.nodes = options.on.nodes, .active = options.on.active},
         .replica_anti_affinity =
             required ? options.replica_anti_affinity : plimsoll::anti_affinity::none});
    map = map_out.values();
    counts = counts_out.values();
  }
};

/// Loads of the example in DeepSeek's README: two layers of 12 experts in 4 groups, 16 replicas, 2
/// nodes, 8 ranks.
inline ints readme_loads() {
  return {90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,
          20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27};
}

/// Node of every expert of a layer; -1: on no node, -2: on several nodes.
inline ints nodes_of(ints const& map, index_t layer, index_t experts, index_t slots, index_t ranks,
                     index_t nodes) {
  ints result(static_cast<std::size_t>(experts), -1);
  for (index_t node = 0; node < nodes; ++node) {
    for (index_t rank = node * ranks / nodes; rank < (node + 1) * ranks / nodes; ++rank) {
      for (index_t slot = rank * slots / ranks; slot < (rank + 1) * slots / ranks; ++slot) {
        std::int32_t const e = map[static_cast<std::size_t>(layer * slots + slot)];
        if (e >= 0) {
          std::int32_t& known = result[static_cast<std::size_t>(e)];
          known = known == -1 || known == node ? static_cast<std::int32_t>(node) : -2;
        }
      }
    }
  }
  return result;
}

/// Returns whether the experts of every group are on one node.
inline bool groups_stay_together(ints const& node_of, index_t groups) {
  std::size_t const size = node_of.size() / static_cast<std::size_t>(groups);
  for (std::size_t e = 0; e < node_of.size(); ++e) {
    if (node_of[e] < 0 || node_of[e] != node_of[e / size * size]) {
      return false;
    }
  }
  return true;
}

}  // namespace plimsoll_test::eplb_support
