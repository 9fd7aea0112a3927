// SPDX-License-Identifier: Apache-2.0
/// @file
/// Latency of ranks: measured latency curves, and the latency of recorded steps under them.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/common/latency_cost.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// @brief Returns the numbers of tokens at which to measure a rank: every tile up to `dense_until`,
/// then every `sparse_step` tokens.
///
/// @return at least 2 rising numbers, the first of which is `tile`. Set
///   `latency_curves::dense_until` to `options.dense_until` rounded up to a multiple of `tile`
/// @throws invalid_input for `tile`, `sparse_step` or `max_tokens` below 1, a negative
///   `dense_until`, any of them above 2^32, and for more than 2^24 samples
/// @complexity O(samples)
inline std::vector<std::int64_t> sampling_plan(latency_sampling_options const& options) {
  constexpr char const* name = "sampling_plan";
  constexpr std::int64_t limit = std::int64_t{1} << 32;
  detail::expect_between(name, "options.tile", 1, limit, options.tile, "tokens");
  detail::expect_between(name, "options.dense_until", 0, limit, options.dense_until, "tokens");
  detail::expect_between(name, "options.sparse_step", 1, limit, options.sparse_step, "tokens");
  detail::expect_between(name, "options.max_tokens", 1, limit, options.max_tokens, "tokens");
  return detail::token_counts_of(name, options);
}

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Latency curves that are checked once and prepared for fast lookup.
///
/// `cost()` returns a callable cost(rank, tokens) that gives the same bits as the curves in nearly
/// constant time: it finds a sample by the upper bits of the number of tokens. The callable points
/// into the table, which must outlive it.
template <unqualified_policy P>
class latency_table {
 public:
  /// @brief Reads and checks the curves.
  ///
  /// @param policy the table is in this policy's memory, and `cost()` may be called where the
  ///   policy runs
  /// @param curves in the policy's memory
  /// @param ranks number of ranks, 1 to 32767; must equal the number of rows of `curves.latency`,
  ///   unless that is 1, and the number of `curves.speeds`
  /// @throws invalid_input for wrong shapes; for fewer than two samples; and, naming rank and
  ///   sample, for tokens that do not rise, latencies that are not finite, negative or falling, and
  ///   speeds out of range
  /// @complexity O(ranks samples)
  /// @workspace keeps 32 bytes per rank and sample, and 4 bytes per bucket. A bucket is no wider
  ///   than the smallest gap between samples, unless that would take more than 2^16 buckets
  /// @stream synchronizes
  latency_table(P const& policy, latency_curves const& curves, index_t ranks)
      : pieces_("latency_table", detail::resolve(policy), curves, ranks) {}

  /// Returns the curves as a callable, which points to the policy's memory.
  [[nodiscard]] latency_lookup cost() const { return pieces_.lookup(); }

 private:
  detail::latency_pieces<std::remove_const_t<kept_context<P>>> pieces_;
};

template <execution_policy P>
latency_table(P const&, latency_curves const&, index_t) -> latency_table<P>;

/// @brief Computes the latency of every rank in recorded steps under a placement.
///
/// latencies(t, l, r) = cost(r, tokens of rank r in step t). The replicas of an expert share its
/// load evenly. A rank without slots has 0 tokens.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; int32, uint32, int64, float,
///   double or generated; each at least 0, the total of a step below 2^47
/// @param placement one row per layer
/// @param cost callable as cost(rank, tokens) -> double where the policy runs: `latency_curves`,
///   `latency_table::cost()`, `token_cost` or your own; it must return at least 0
/// @param[out] latencies `[steps, layers, ranks]` double, in units of the cost
/// @throws invalid_input for wrong shapes; for a placement that `validate` refuses; and for wrong
///   loads and costs, naming layer, step and expert or rank, in which case the output is
///   unspecified
/// @complexity O(steps layers (experts + slots + ranks cost))
/// @workspace 64 bytes per layer and 8 steps; the workspace of `validate`; and 8 bytes per expert
///   and 16 bytes per rank for each problem in flight
/// @stream synchronizes once
/// @determinism the same bits under every policy: tokens are added as integers
template <execution_policy P, class Loads, latency_cost Cost, class Out>
void rank_latencies(P const& policy, Loads const& loads, placement_ref const& placement,
                    Cost const& cost, Out&& latencies) {
  detail::checked_call call("rank_latencies", {{"ranks", placement.ranks}});
  auto const load = PLIMSOLL_LOADS(call, "rank_latencies", loads, "[steps, layers, experts]");
  tensor_ref<double> const out =
      PLIMSOLL_OUTPUT(double, call, "rank_latencies", latencies, "[steps, layers, ranks]");
  detail::run_latencies(call, detail::resolve(policy), load, placement, cost, {.of_rank = out});
}

/// @brief Computes the latency of recorded steps under a placement: that of the slowest rank.
///
/// latencies(t, l) is the maximum over ranks of `rank_latencies`. Its sum over the steps is GEM's
/// score of a layer's placement.
///
/// @param loads, placement, cost as `rank_latencies`
/// @param[out] latencies `[steps, layers]` double, in units of the cost
/// @throws invalid_input as `rank_latencies`
/// @complexity as `rank_latencies`
/// @workspace as `rank_latencies`
/// @stream synchronizes once
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, latency_cost Cost, class Out>
void step_latencies(P const& policy, Loads const& loads, placement_ref const& placement,
                    Cost const& cost, Out&& latencies) {
  detail::checked_call call("step_latencies");
  auto const load = PLIMSOLL_LOADS(call, "step_latencies", loads, "[steps, layers, experts]");
  matrix_ref<double> const out =
      PLIMSOLL_OUTPUT(double, call, "step_latencies", latencies, "[steps, layers]");
  detail::run_latencies(call, detail::resolve(policy), load, placement, cost, {.of_step = out});
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
