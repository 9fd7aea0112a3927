// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement of layers without load: slot i holds expert i mod experts, as engines fill a layer
/// of which they know nothing. Without this rule, ties would give all superfluous slots to expert
/// 0.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the number of slots that hold an expert if slot i holds expert i mod experts.
PLIMSOLL_HD constexpr std::int32_t numbered_copies(index_t slots, index_t experts, index_t expert) {
  return static_cast<std::int32_t>(slots / experts + (expert < slots % experts ? 1 : 0));
}

/// Returns the number of slots of a layer that belong to ranks; these are its first slots.
PLIMSOLL_HD inline index_t ranked_slots(topology const& where, index_t layer) {
  return where.ranges.end(layer, where.ranks() - 1);
}

/// Returns whether slot i may hold expert i mod experts: all ranks are live, any rank may hold any
/// expert, and no rank or node that must not hold an expert twice does.
template <class Team>
PLIMSOLL_HD bool may_number_slots(Team& team, topology const& where, index_t layer, index_t experts,
                                  anti_affinity apart) {
  index_t const ranks = where.ranks();
  auto const slots_of = [&where, layer](index_t r) { return where.slots_of(layer, r); };
  if (where.node_experts.data != nullptr ||
      team.sum(ranks, slots_of) != ranked_slots(where, layer)) {
    return false;
  }
  bool const nodes = apart == anti_affinity::node;
  index_t const most = team.max(nodes ? where.nodes : ranks, [=, &where](index_t d) {
    index_t const first = nodes ? where.first_rank(d) : d;
    index_t const last = nodes ? where.first_rank(d + 1) : d + 1;
    return where.begin(layer, last) - where.begin(layer, first);
  });
  return apart == anti_affinity::none || most <= experts;
}

/// Writes expert i mod experts into slot i for the first `slots` slots, and -1 into the others.
template <class Team>
PLIMSOLL_HD void number_slots(Team& team, index_t experts, index_t slots,
                              vector_ref<std::int32_t> map) {
  team.for_each(map.extent(0), [=](index_t i) {
    map[i] = static_cast<std::int32_t>(i < slots ? i % experts : -1);
  });
}

}}}  // namespace plimsoll::detail
