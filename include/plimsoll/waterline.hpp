// SPDX-License-Identifier: Apache-2.0
/// @file
/// Assigns the shared expert's work for each token to a rank.
#pragma once

#include <cstdint>
#include <optional>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/waterline.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Assigns the rows of the shared expert, which every token needs, to ranks so that they
/// even out the routed load.
///
/// Rank r, with routed load l_r and n_r rows at home, carries l_r + n_r. Water-filling over the
/// routed loads would raise all ranks to the level H = ceil(sum (l_r + n_r) / ranks).
///
/// `fill_method::surplus` moves only the rows above max(H, max l_r). That is the smallest peak that
/// any assignment can have, and it is always reached if rows may go to all ranks. Every rank
/// computes from the same counts the part of the other ranks' slack that its own rows may take;
/// these parts do not overlap, so no rank rises above the level. With `candidate_ranks::visited`,
/// some rows of a source that must give up nearly all its rows visit no rank with slack: ranks
/// without slack then move a few more of their own rows and take in as many of such rows. A row
/// stays at home and is counted if the ranks that its token visits have no slack left; no rank ever
/// exceeds the peak with all rows at home.
///
/// `fill_method::sampled` is SGLang's Waterfill: each row draws a candidate with probability in
/// proportion to its slack max(H - l_r, 0). Loads are even only on average; most rows leave home.
///
/// Ids are physical slots (after `dispatch` or an engine's map). The shared expert adds one slot to
/// each rank, after that rank's own slots; the ids that `fill` writes count these slots too.
///
/// The constructor takes all memory, so that every call can be captured in a CUDA graph. An object
/// works on one batch at a time.
template <unqualified_policy P>
class waterline {
 public:
  /// @throws invalid_input for options; for offsets and speeds, naming the rank
  /// @workspace from the policy: 4 bytes per slot, 4 per token, 60 per rank, 8 per rank for each
  ///   256 tokens, and scratch where it does not fit shared memory
  /// @stream synchronizes
  waterline(P const& policy, waterline_options const& options)
      : line_(detail::resolve(policy), options) {
    detail::synchronize(line_.context());
  }
  PLIMSOLL_EXPECT_ON_OF_OBJECT(waterline, (P const& policy), (policy))

  [[nodiscard]] waterline_options const& options() const { return line_.options(); }

  /// @brief Takes other numbers of slots of the ranks, as after a new placement. The object and its
  /// memory stay, so that a CUDA graph captured before uses them when it is replayed.
  /// @param rank_offsets `[ranks + 1]`: the first slot of each rank, rising from 0 to at most the
  ///   number of slots; empty: slots are spread evenly. In the policy's memory: the enqueued kernel
  ///   copies it, so that it may change after that
  /// @param on liveness and speeds of the ranks; without it they stay. Its nodes are not read
  /// @throws invalid_input for shapes. Values are checked where they are read: refused ones change
  ///   nothing, and `check` throws
  /// @complexity O(slots + ranks)
  /// @stream enqueues one kernel; neither allocates nor synchronizes, so that it can be captured
  /// @determinism the same bits under every policy
  void update(vector_ref<std::int32_t const> const& rank_offsets,
              std::optional<rank_set> const& on = {}) {
    line_.update("waterline::update", rank_offsets, on);
  }

  /// @brief Throws unless the offsets are the ones in use: the last that were not refused.
  /// @throws invalid_input for shapes; naming the first offset that differs
  /// @stream synchronizes
  void expect_current(vector_ref<std::int32_t const> const& rank_offsets) const {
    line_.expect_current("waterline::expect_current", rank_offsets);
  }

  /// @brief Counts one source's ids per rank and its tokens; `plan` needs the sum over all sources
  /// (an all-reduce).
  /// @param topk_ids `[tokens, top_k]` int32 or int64: slots, or -1; in the policy's memory
  /// @param source the rank whose tokens these are
  /// @param[out] loads `[2, ranks]` int64: row 0 counts the ids in each rank's slots; row 1, at the
  ///   source, the tokens with at least one such id (with SGLang's arithmetic all tokens), 0
  ///   elsewhere. Ids that are not a slot are left out (`fill` reports them)
  /// @throws invalid_input for shapes and the source
  /// @complexity O(tokens top_k + ranks tokens / 512)
  /// @stream enqueues two kernels; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids, class Loads>
  void count(Ids const& topk_ids, index_t source, Loads&& loads) {
    auto call = detail::waterline_call("waterline::count", options());
    auto const ids =
        detail::read_only(PLIMSOLL_IDS(call, "waterline::count", topk_ids, "[tokens, top_k]"));
    matrix_ref<std::int64_t> const counts =
        PLIMSOLL_OUTPUT(int64, call, "waterline::count", loads, "[2, ranks]");
    detail::expect_waterline_ids(call, options(), ids);
    detail::expect_waterline_source(call, options(), source);
    line_.enqueue_count(ids, source, counts);
  }

  /// @brief Finds the level and the slack of other ranks that the source's rows may take.
  /// @param loads `[2, ranks]` int64, at least 0, in the policy's memory: routed load and tokens at
  ///   home of every rank; at most 2^31 - 1 in total. With `counted_ranks::own`, the counts of the
  ///   source
  /// @param source the rank whose rows `fill` will place
  /// @throws invalid_input for shapes and the source; `check` throws for values
  /// @complexity O(ranks log(tokens)), times the bits of a level where ranks differ in speed
  /// @stream enqueues one kernel; neither allocates nor synchronizes
  /// @determinism the same bits under every policy, and on every rank that has the same loads
  template <class Loads>
  void plan(Loads const& loads, index_t source) {
    auto call = detail::waterline_call("waterline::plan", options());
    matrix_ref<std::int64_t const> const counts =
        PLIMSOLL_INPUT(int64, call, "waterline::plan", loads, "[2, ranks]");
    detail::expect_waterline_source(call, options(), source);
    line_.enqueue_plan(counts, source);
  }

  /// @brief Places the rows of one source, for which `plan` was last called; once after each plan.
  ///
  /// The slack that rows may take depends on their source. If `plan` was last called for another
  /// source, or never, all rows stay at home, the report says so, and `check` throws.
  ///
  /// With the surplus method, each row of a source with surplus proposes to a rank that its token
  /// visits, chosen in proportion to the slack that the plan gave the source there. Each rank
  /// accepts rows in token order, up to that slack, until the surplus is gone; the others propose
  /// again, in three rounds in all. With `candidate_ranks::all`, surplus rows that are left in the
  /// third round go to any rank with slack.
  ///
  /// @param topk_ids `[tokens, top_k]` int32 or int64, as for `count`
  /// @param source the rank whose tokens these are
  /// @param batch weights and, for sampled rows, the subsequence of random numbers
  /// @param[out] ids `[tokens, top_k + 1]` int32 or int64: id + r for a slot of rank r, then the
  ///   shared expert's slot; -1 for an id that is not a slot, and last for a token without a row.
  ///   A null view is not written
  /// @param[out] rows weights and ranks; both are optional
  /// @throws invalid_input for shapes and a source that does not exist
  /// @complexity O(tokens top_k + ranks tokens / 256); sampled from visited ranks O(tokens top_k^2)
  /// @stream enqueues one kernel, cooperative for the surplus method, or seven where there are too
  ///   many tiles of 256 tokens (docs/waterline.md). Neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids, class OutIds>
  void fill(Ids const& topk_ids, index_t source, waterline_batch const& batch, OutIds&& ids,
            filled_rows const& rows) {
    auto call = detail::waterline_call("waterline::fill", options());
    auto const in =
        detail::read_only(PLIMSOLL_IDS(call, "waterline::fill", topk_ids, "[tokens, top_k]"));
    auto const out = PLIMSOLL_OUTPUT_IDS(unchecked, "waterline::fill", ids, "[tokens, top_k + 1]");
    detail::expect_waterline_rows(call, options(), in, batch, out, rows);
    detail::expect_waterline_source(call, options(), source);
    line_.enqueue_fill(in, source, batch, out, rows);
  }

  /// @brief Throws what the last `update`, `plan` and `fill` refused.
  /// @throws invalid_input naming the rank of a slot or a speed, the row and the rank of a load, or
  ///   the source of `fill`
  /// @stream synchronizes
  void check() const { line_.check("waterline::plan", "waterline::update"); }

  /// Report of the last `plan` and `fill`: `[1]`, in the policy's memory.
  [[nodiscard]] scalar_ref<waterline_report const> report() const { return line_.report(); }
  /// Tokens by which each rank is below the level before rows move: `[ranks]`, in the policy's
  /// memory. The surplus method counts a rank's rows at home as its load, sampling does not (with
  /// SGLang's arithmetic as SGLang does).
  [[nodiscard]] vector_ref<std::int64_t const> slack() const { return line_.slack(); }

 private:
  detail::waterline_pipeline<kept_context<P>> line_;
};

template <execution_policy P>
waterline(P const&, waterline_options const&) -> waterline<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
