// SPDX-License-Identifier: Apache-2.0
/// @file
/// `replicate` chooses the number of copies of each expert.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replication.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/detail/pipeline/placement.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Limits on the number of copies of each expert, and the ranks that will hold them.
struct replication_options {
  /// Least number of copies of every expert, at least 1.
  std::int32_t min_copies = 1;
  /// Largest number of copies of any expert; the number of ranks allows at most one per rank.
  std::int32_t max_copies = static_cast<std::int32_t>(rank_limit);
  /// `[experts]`, in the policy's memory: minimum of each expert, instead of `min_copies`.
  vector_ref<std::int32_t const> min_copies_each = {};
  /// `[experts]`, in the policy's memory: maximum of each expert, instead of `max_copies`.
  vector_ref<std::int32_t const> max_copies_each = {};
  /// Ranks that will hold the copies, as for `place`. With `where.ranks` given, only slots of live
  /// ranks count, and with node lists the slots of each node go to the experts of that node. With
  /// required anti-affinity the counts are such that `place` can satisfy it, and slots may stay
  /// free.
  placement_options where = {};
};

namespace detail {

/// Checks the inputs common to `replicate` and the systems built on it; `argument` is the argument
/// that gives the number of slots.
inline void expect_replicable(std::string_view function, std::string_view argument, index_t experts,
                              index_t slots) {
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_between(function, argument, experts, experts + rank_limit - 1, slots,
                 "slots (at least one per expert)");
}

template <class Context, class Loads>
void enqueue_replicate(Context const& context, Loads const& loads, index_t slots,
                       replication_options const& options, matrix_ref<std::int32_t> replica_count,
                       problem_report* reports) {
  launch(context, loads.extent(0),
         replication_body<Loads>{loads,
                                 slots,
                                 topology_of(options.where, slots),
                                 rule_of(options.where),
                                 {options.min_copies, options.min_copies_each},
                                 {options.max_copies, options.max_copies_each},
                                 replica_count,
                                 reports});
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Distributes each layer's slots among its experts to minimise the largest load per copy.
///
/// Every expert starts with its minimum. Each further slot goes to the expert with the largest
/// load / copies among those below their maximum; ties go to the lowest id (with node lists: to the
/// first in the list). This is the rule of DeepSeek's EPLB and d'Hondt's apportionment. With
/// required anti-affinity an expert is skipped once no further copy of it can be placed. The counts
/// are optimal among those allowed, except that loads per copy which round to the same fixed-point
/// number count as equal.
///
/// @param loads `[layers, experts]`, token copies, in the policy's memory; int32, uint32, int64,
///   float, double or generated; each at least 0, the total of a layer below 2^47
/// @param slots slots per layer, at least one per expert
/// @param options minima and maxima, and the ranks that will hold the copies
/// @param[out] replica_count `[layers, experts]` int32; the sum of a layer is `slots`, or the
///   number of slots that `options.where` makes usable
/// @return per layer: value = the largest load per copy; status optimal, with lower_bound equal to
///   value, if that is proven, else feasible, with value one unit of fixed point above lower_bound;
///   work = copies beyond the minima
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node,
///   in which case `replica_count` is unspecified
/// @complexity O(experts + (slots - experts) log experts) per layer; with required anti-affinity
///   O(experts (ranks + slots))
/// @workspace 20 bytes per expert and problem in flight (with required anti-affinity 24), and 64
///   bytes per layer, from the policy
/// @stream synchronises once
/// @determinism the same bits under every policy; a load per copy is compared in 47-bit fixed
///   point (units of at most 2^-46 of the layer's total)
template <execution_policy P, load_matrix_view Loads, output_of<std::int32_t, 2> Counts>
std::vector<certificate> replicate(P const& policy, Loads const& loads, index_t slots,
                                   replication_options const& options, Counts&& replica_count) {
  constexpr char const* name = "replicate";
  auto const load = detail::argument<2>(name, "loads", loads);
  matrix_ref<std::int32_t> const counts = detail::argument<2>(name, "replica_count", replica_count);
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  detail::expect_replicable(name, "slots", experts, slots);
  // Required anti-affinity limits the copies by the ranks, so that it needs them.
  if (options.where.ranks != 0 || detail::rule_of(options.where).required) {
    detail::expect_placeable(name, layers, experts, slots, options.where, "options.where");
  }
  detail::expect_between(name, "options.min_copies", 1, rank_limit, options.min_copies, "copies");
  detail::expect_between(name, "options.max_copies", 1, rank_limit, options.max_copies, "copies");
  if (options.min_copies_each.data != nullptr) {
    detail::expect_extent(name, "options.min_copies_each", experts,
                          options.min_copies_each.extent(0), "experts");
  }
  if (options.max_copies_each.data != nullptr) {
    detail::expect_extent(name, "options.max_copies_each", experts,
                          options.max_copies_each.extent(0), "experts");
  }
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", experts, counts.extent(1), "experts");

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, layers);
  detail::enqueue_replicate(context, load, slots, options, counts, reports.data());
  return detail::collect(name, reports, layers, detail::throw_replication_fault);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
