// SPDX-License-Identifier: Apache-2.0
/// @file
/// LLEP: least-loaded expert parallelism. Plans for each step the tokens that every rank computes
/// and the experts' weights that it receives for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

struct llep_options {
  /// Rank of this process.
  index_t rank = 0;
  /// Experts, ranks, rules and limits. The defaults are the paper's alpha, chunk and lambda.
  least_loaded_options assignment;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Plans least-loaded expert parallelism (LLEP, arXiv 2601.17111) on one rank.
///
/// `count` fills this rank's row of `counts`, which the engine all-gathers in place; `plan` then
/// makes the same plan on every rank, and `route` chooses the destinations of this rank's token
/// copies. One all-to-all sends the rows, with `send_counts` and `receive_counts`; weights are sent
/// as `plan_transfers` lists; `arrange` gives the order in which a grouped GEMM computes the
/// received rows. In a backward pass the gradients of received weights go back along the transfers,
/// and the home adds them to its own.
///
/// The constructor allocates all memory, so that all calls but `check` can be captured in a CUDA
/// graph, together with the all-gather between them. One object works on one step of a layer
/// at a time.
template <unqualified_policy P, class Cost = void>
class llep {
 public:
  /// @throws invalid_input as `least_loaded`, and for a rank out of range
  /// @workspace from the policy: that of `least_loaded`, and 4 bytes per pair of rank and expert
  /// @stream synchronizes
  llep(P const& policy, llep_options const& options, spill_price<Cost> const& price = {})
      : rank_(options.rank),
        assignment_(
            as_llep([&] { return least_loaded<P, Cost>(policy, options.assignment, price); })),
        counts_(detail::resolve(policy), options.assignment.on.ranks * options.assignment.experts) {
    detail::expect_between("llep", "options.rank", 0, options.assignment.on.ranks - 1, options.rank,
                           "as rank");
    detail::synchronize(detail::resolve(policy));
  }
  PLIMSOLL_EXPECT_BRACES_OF_OBJECT(rank_set, "{.assignment = {.on = {.ranks = ...}}}", llep,
                                   (P const& policy), (policy))

  /// @brief Takes other homes of experts, as after a new placement. The object and its memory
  /// stay, so that a CUDA graph captured before plans with them when it is replayed.
  /// @param homes in the policy's memory: the enqueued kernel copies them, so that they may change
  ///   after that; at most as many slots as the object has room for
  /// @param on liveness and speeds of the ranks; without it they stay. Its nodes are not read
  /// @throws invalid_input for shapes. Values are checked where they are read: refused ones change
  ///   nothing, and `check` throws
  /// @complexity O(slots + experts + ranks), and a sort of the homes
  /// @stream enqueues one kernel; neither allocates nor synchronizes, so that it can be captured
  /// @determinism the same bits under every policy
  void update(expert_homes const& homes, std::optional<rank_set> const& on = {}) {
    as_llep([&] { assignment_.update(homes, on); });
  }

  /// @brief Throws unless these homes are the ones in use: those of the last update that was not
  /// refused.
  /// @throws invalid_input naming the first expert whose homes differ
  /// @stream synchronizes
  void expect_current(expert_homes const& homes) const {
    as_llep([&] { assignment_.expect_current(homes); });
  }

  /// @brief Counts this rank's token copies per expert into its row of `counts`.
  /// @param topk_ids `[tokens, k]` int32 or int64: experts, or -1; in the policy's memory
  /// @throws invalid_input for shapes and more than options.assignment.max_token_copies
  /// @complexity, stream and determinism as `least_loaded::count`
  template <class Ids>
  void count(Ids const& topk_ids) {
    auto const ids =
        detail::read_only(PLIMSOLL_IDS(unchecked, "llep::count", topk_ids, "[tokens, k]"));
    as_llep([&] { assignment_.count(ids, detail::row_of(counts(), rank_)); });
  }

  /// `[ranks, experts]`, in the policy's memory: the counts of every rank. The caller fills the
  /// rows of the other ranks.
  [[nodiscard]] matrix_ref<std::int32_t> counts() {
    return {counts_.data(), assignment_.options().on.ranks, experts()};
  }

  /// @brief Plans the step from the `counts` of all ranks, after the all-gather.
  /// @throws nothing; `check` throws for values
  /// @complexity that of `least_loaded::add_up`, `plan` and `exchange`
  /// @stream enqueues four kernels; neither allocates nor synchronizes
  /// @determinism the same bits under every policy, and on every rank
  void plan() {
    assignment_.add_up(counts());
    assignment_.plan();
    assignment_.exchange();
  }

  /// @brief Chooses the destination rank of every token copy, and its row in the send buffer.
  /// @param topk_ids the ids given to `count`; outputs as of `least_loaded::route`
  /// @throws invalid_input for shapes
  /// @complexity, stream and determinism as `least_loaded::route`
  template <class Ids, class Destinations, class Rows>
  void route(Ids const& topk_ids, Destinations&& destinations, Rows&& rows,
             scalar_ref<spill_counters> const& counters) {
    auto const ids =
        detail::read_only(PLIMSOLL_IDS(unchecked, "llep::route", topk_ids, "[tokens, k]"));
    auto const to = PLIMSOLL_OUTPUT_IDS(unchecked, "llep::route", destinations, "[tokens, k]");
    auto const row = PLIMSOLL_OUTPUT_IDS(unchecked, "llep::route", rows, "[tokens, k]");
    as_llep([&] { assignment_.route(rank_, ids, to, row, counters); });
  }

  /// @brief Maps each received row to its row in the order of computation, and lists the rows of
  /// each expert.
  /// @param[out] arranged, groups as of `least_loaded::arrange`
  /// @throws invalid_input for shapes
  /// @complexity, stream and determinism as `least_loaded::arrange`
  template <class Rows, class Groups>
  void arrange(Rows&& arranged, Groups&& groups) {
    auto const rows = PLIMSOLL_OUTPUT_IDS(unchecked, "llep::arrange", arranged, "[received rows]");
    auto const of_experts =
        PLIMSOLL_OUTPUT(spill_segment, unchecked, "llep::arrange", groups, "[experts]");
    as_llep([&] { assignment_.arrange(rank_, rows, of_experts); });
  }

  /// `[ranks]`, in the policy's memory: the tokens that this rank sends to each rank.
  [[nodiscard]] vector_ref<std::int32_t const> send_counts() const {
    return detail::row_of(assignment_.send_counts(), rank_);
  }
  /// `[ranks]`, in the policy's memory: the tokens that this rank receives from each rank.
  [[nodiscard]] vector_ref<std::int32_t const> receive_counts() const {
    return detail::row_of(assignment_.receive_counts(), rank_);
  }
  /// Returns the planner, which holds the segments, transfers and reports.
  [[nodiscard]] least_loaded<P, Cost> const& assignment() const { return assignment_; }

  /// @brief Throws if the last `update` was refused, or the last `plan` refused the counts or a
  /// returned cost.
  /// @throws invalid_input naming the expert, or the rank of the cost
  /// @stream synchronizes
  void check() const {
    as_llep([&] { assignment_.check(); });
  }

 private:
  using context = kept_context<P>;

  template <class F>
  static decltype(auto) as_llep(F const& f) {
    return detail::on_behalf_of("llep", "least_loaded", {{"options.", "options.assignment."}}, f);
  }
  [[nodiscard]] index_t experts() const { return assignment_.options().experts; }

  index_t rank_;
  least_loaded<P, Cost> assignment_;
  detail::buffer<std::int32_t, context> counts_;
};

template <execution_policy P>
llep(P const&, llep_options const&) -> llep<P>;
template <execution_policy P, class Cost>
llep(P const&, llep_options const&, spill_price<Cost> const&) -> llep<P, Cost>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
