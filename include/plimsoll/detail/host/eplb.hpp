// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of EPLB: checks of shapes and options, and messages about refused values.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/host/refinement.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline placement_options placement_options_of(eplb_options const& options) {
  return {.on = options.on,
          .rank_offsets = options.rank_offsets,
          .replica_anti_affinity = options.replica_anti_affinity,
          .anti_affinity_strength = options.anti_affinity_strength,
          .load_shrink = options.load_shrink};
}

/// Checks the inputs common to `eplb` and the systems built on it; `holder` is the argument that
/// gives the number of slots.
inline void expect_plannable(std::string_view name, index_t layers, index_t experts, index_t slots,
                             eplb_options const& options,
                             std::string_view holder = "physical_to_logical") {
  expect_replicable(name, holder, experts, slots);
  expect_placeable(name, layers, experts, slots, placement_options_of(options), "options", holder);
  if (options.policy != eplb_policy::global) {
    expect_groups(name, experts, options.groups);
  }
  if (options.is_hierarchical()) {
    expect_anti_affinity_on_a_node(name, "options", options.replica_anti_affinity);
  }
}

/// Checks the inputs of `eplb`.
template <class Map, class Counts>
void expect_eplb(std::string_view name, index_t layers, index_t experts,
                 eplb_options const& options, matrix_ref<Map> const& placement,
                 matrix_ref<Counts> const& counts) {
  expect_plannable(name, layers, experts, placement.extent(1), options);
  expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  expect_extent(name, "replica_count", experts, counts.extent(1), "experts");
}

inline void throw_eplb_fault(refused_value const& of) {
  throw_map_fault(of, "logical_to_physical");
  throw_replication_fault(of);
  throw_refinement_fault(of);
}

}}}  // namespace plimsoll::detail
