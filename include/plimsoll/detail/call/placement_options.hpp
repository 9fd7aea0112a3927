// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the options that all calls that place experts share, prepares them for bodies, and names
/// the values that bodies refuse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_rank_offsets(std::string_view function, argument_name const& argument,
                                matrix_ref<std::int32_t const> const& offsets, index_t layers,
                                index_t ranks) {
  checked_call(function, {{"layers", layers}, {"ranks", ranks}})
      .expect_given(argument, offsets, "[layers, ranks + 1]");
}

/// Refuses anti-affinity by node together with node lists, which keep an expert on one node.
inline void expect_anti_affinity_on_a_node(std::string_view function, argument_name const& argument,
                                           anti_affinity replica_anti_affinity) {
  if (replica_anti_affinity == anti_affinity::node) {
    fail(function, argument + ".replica_anti_affinity",
         "none or rank, since every expert stays on one node", "node");
  }
}

inline bool requires_anti_affinity(placement_options const& options) {
  return options.replica_anti_affinity != anti_affinity::none &&
         options.anti_affinity_strength == strictness::required;
}

inline void expect_keep_bonus(std::string_view function, double bonus) {
  if (!(bonus >= 0 && bonus <= 0x1p60)) {
    fail(function, "options.keep_bonus", "0 to 2^60", text(bonus));
  }
}

inline void expect_load_exponent(std::string_view function, argument_name const& argument,
                                 double load_exponent) {
  if (!(load_exponent > 0 && load_exponent <= 1)) {
    fail(function, argument + ".load_exponent", "above 0 and at most 1", text(load_exponent));
  }
}

/// Checks the members of the options that no shape constrains.
inline void expect_placement_values(std::string_view function, argument_name const& argument,
                                    placement_options const& options) {
  expect_load_exponent(function, argument, options.load_exponent);
  expect_enumerator(function, argument + ".replica_anti_affinity", anti_affinity::node,
                    options.replica_anti_affinity);
  expect_enumerator(function, argument + ".anti_affinity_strength", strictness::required,
                    options.anti_affinity_strength);
}

/// Checks the inputs common to all functions that place experts; `argument` names the options, and
/// `holder` the argument that gives the number of slots.
inline void expect_placeable(std::string_view function, index_t layers, index_t experts,
                             index_t slots, placement_options const& options,
                             argument_name const& argument = "options",
                             std::string_view holder = "physical_to_logical") {
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_rank_set(function, options.on, argument + ".on");
  expect_placement_values(function, argument, options);
  expect_between(function, holder, experts, 0x7fffffff, slots, "slots (at least one per expert)");
  expect_rank_offsets(function, argument + ".rank_offsets", options.rank_offsets, layers,
                      options.on.ranks);
  bool const lists = is_given(function, argument + ".node_experts", options.node_experts);
  if (lists != is_given(function, argument + ".node_offsets", options.node_offsets)) {
    fail(function, argument + ".node_experts", "node_experts and node_offsets, or neither",
         lists ? "no node_offsets" : "no node_experts");
  }
  if (lists) {
    checked_call call(function,
                      {{"layers", layers}, {"experts", experts}, {"nodes", options.on.nodes}});
    call.expect(argument + ".node_experts", options.node_experts, "[layers, experts]");
    call.expect(argument + ".node_offsets", options.node_offsets, "[layers, nodes + 1]");
    expect_anti_affinity_on_a_node(function, argument, options.replica_anti_affinity);
  }
}

inline void expect_groups(std::string_view function, index_t experts, index_t groups) {
  expect_between(function, "groups", 1, experts, groups, "groups");
  if (experts % groups != 0) {
    fail(function, "groups", text("a number that divides ", experts, " experts"), text(groups));
  }
}

inline topology topology_of(placement_options const& options, index_t slots) {
  return topology{{options.rank_offsets, slots, options.on.ranks},
                  options.on.nodes,
                  options.on.active,
                  options.on.speeds,
                  options.node_experts,
                  options.node_offsets};
}

inline anti_affinity_rule rule_of(placement_options const& options) {
  return anti_affinity_rule{options.replica_anti_affinity, requires_anti_affinity(options)};
}

}}}  // namespace plimsoll::detail
