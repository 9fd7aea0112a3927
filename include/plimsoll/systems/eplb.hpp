// SPDX-License-Identifier: Apache-2.0
/// @file
/// EPLB: replicate the heavy experts, then spread all replicas over the ranks.
/// Source: DeepSeek's EPLB (github.com/deepseek-ai/EPLB), global policy.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// What EPLB is told besides the loads.
struct eplb_options {
  /// Ranks, 1 to 32767. They share the slots evenly: rank r begins at floor(r * slots / ranks).
  index_t ranks = 0;
};

/// @brief Plans every layer as DeepSeek's EPLB does: `replicate`, then `place`.
///
/// Where loads are distinct the result equals the reference's (global policy) slot by slot; the
/// reference leaves ties to its sort, here the lowest id comes first. Slots need not divide by
/// ranks.
///
/// @param loads `[layers, experts]`, token copies, in the policy's memory; int32, uint32, int64,
///   float, double or generated; each at least 0, the total of a layer below 2^47
/// @param[out] physical_to_logical `[layers, slots]` int32, the expert in every slot
/// @param[out] replica_count `[layers, experts]` int32
/// @return per layer, the certificate of `place`: the load of the most loaded rank, and what no
///   other placement of the same replicas can go below
/// @throws invalid_input for shapes and options; for values, naming layer and expert
/// @complexity O(experts log experts + slots log ranks) per layer
/// @workspace as `replicate` and `place`
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, load_matrix_view Loads, output_of<std::int32_t, 2> Placement,
          output_of<std::int32_t, 2> Counts>
std::vector<certificate> eplb(P const& policy, Loads const& loads, eplb_options const& options,
                              Placement&& physical_to_logical, Counts&& replica_count) {
  constexpr char const* name = "eplb";
  auto const load = detail::normalize<2>(loads);
  matrix_ref<std::int32_t> const placement = detail::normalize<2>(physical_to_logical);
  matrix_ref<std::int32_t> const counts = detail::normalize<2>(replica_count);
  index_t const layers = load.extent(0);
  placement_options const where{options.ranks, {}};
  detail::expect_replicable(name, "physical_to_logical", load.extent(1), placement.extent(1));
  detail::expect_placeable(name, layers, load.extent(1), placement.extent(1), where);
  detail::expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", load.extent(1), counts.extent(1), "experts");

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, layers);
  // Both report on the same loads, so the second report stands for both.
  detail::enqueue_replicate(context, load, placement.extent(1), {}, counts, reports.data());
  detail::enqueue_place(context, load, counts, where, placement, reports.data());
  return detail::collect(name, reports);
}

}  // namespace plimsoll
