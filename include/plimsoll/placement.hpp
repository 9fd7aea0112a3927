// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which expert every slot holds.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// A placement as other primitives read it. All parts lie in the policy's memory.
struct placement_ref {
  /// `[layers, slots]`: the expert in every slot, slots ordered by rank; -1 in an empty one.
  matrix_ref<std::int32_t const> physical_to_logical;
  /// `[layers, experts]`: copies of every expert.
  matrix_ref<std::int32_t const> replica_count;
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: where each rank's slots begin, from 0 to slots. Empty: evenly spread,
  /// rank r begins at floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
};

/// Where the slots are.
struct placement_options {
  /// Ranks of every layer, 1 to 32767.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`, in the policy's memory: where each rank's slots begin, rising from 0 to
  /// slots. Empty: evenly spread, rank r begins at floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
};

namespace detail {

inline void expect_rank_offsets(std::string_view function, std::string_view argument,
                                matrix_ref<std::int32_t const> const& offsets, index_t layers,
                                index_t ranks) {
  if (offsets.data != nullptr) {
    expect_extent(function, argument, layers, offsets.extent(0), "layers");
    expect_extent(function, argument, ranks + 1, offsets.extent(1), "offsets (ranks + 1)");
  }
}

inline void expect_placeable(std::string_view function, index_t layers, index_t experts,
                             index_t slots, placement_options const& options) {
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_between(function, "options.ranks", 1, rank_limit, options.ranks, "ranks");
  expect_between(function, "physical_to_logical", experts, 0x7fffffff, slots,
                 "slots (at least one per expert)");
  expect_rank_offsets(function, "options.rank_offsets", options.rank_offsets, layers,
                      options.ranks);
}

template <class Context, class Loads>
void enqueue_place(Context const& context, Loads const& loads,
                   matrix_ref<std::int32_t const> replica_count, placement_options const& options,
                   matrix_ref<std::int32_t> physical_to_logical, problem_report* reports) {
  launch(context, loads.extent(0),
         placement_body<Loads>{loads,
                               replica_count,
                               {options.rank_offsets, physical_to_logical.extent(1), options.ranks},
                               physical_to_logical,
                               reports});
}

}  // namespace detail

/// @brief Puts every replica into a slot so that the most loaded rank carries as little as greedy
/// placement can make it.
///
/// Each of an expert's replicas weighs load / copies. Replicas in the order of falling weight (then
/// rising expert) go to the least loaded rank that has a free slot (then the lowest rank), as in
/// DeepSeek's EPLB. Where every rank has exactly one slot and all are used, replicas stay in the
/// order of their making, as EPLB leaves them.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param replica_count `[layers, experts]` int32, 1 to 32767 each, at most the slots together
/// @param options ranks, and their slots where these differ
/// @param[out] physical_to_logical `[layers, slots]` int32; -1 in slots left empty
/// @return per layer: the load of the most loaded rank; the bound, for these replica counts, is the
///   largest of the mean over ranks with slots, the heaviest replica, and the lightest pair of
///   replicas that must share a rank; status optimal where they meet, else feasible;
///   work = replicas placed
/// @throws invalid_input for shapes and options; for values, naming layer and expert or rank, in
///   which case `physical_to_logical` is unspecified
/// @complexity O(experts log experts + slots log ranks) per layer
/// @workspace 8 bytes per expert and 16 per rank for each problem in flight, and 56 bytes per
///   layer, from the policy
/// @stream synchronises once
/// @determinism the same bits under every policy; weights are 47-bit fixed point, load / copies
///   rounded down
template <execution_policy P, load_matrix_view Loads, view_of<std::int32_t, 2> Counts,
          output_of<std::int32_t, 2> Placement>
std::vector<certificate> place(P const& policy, Loads const& loads, Counts const& replica_count,
                               placement_options const& options, Placement&& physical_to_logical) {
  constexpr char const* name = "place";
  auto const load = detail::normalize<2>(loads);
  matrix_ref<std::int32_t const> const counts = detail::normalize<2>(replica_count);
  matrix_ref<std::int32_t> const placement = detail::normalize<2>(physical_to_logical);
  index_t const layers = load.extent(0);
  detail::expect_placeable(name, layers, load.extent(1), placement.extent(1), options);
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", load.extent(1), counts.extent(1), "experts");
  detail::expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, layers);
  detail::enqueue_place(context, load, counts, options, placement, reports.data());
  return detail::collect(name, reports);
}

}  // namespace plimsoll
