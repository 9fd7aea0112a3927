// SPDX-License-Identifier: Apache-2.0
/// @file
/// Waterfill: dispatches the shared expert like a routed one, so that its rows even out rank loads.
#pragma once

#include <cstdint>
#include <optional>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/waterline.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `waterfill`.
struct waterfill_options {
  index_t rank = 0;   ///< Rank of this process.
  index_t layer = 0;  ///< Layer of the placement.
  /// Options of `waterline`; ranks, slots and rank_offsets come from the placement.
  waterline_options line = {};
};

/// @brief Returns options with which `waterfill` and `waterline` do what SGLang's kernels do: they
/// sample rows with a weak preference for home, with SGLang's integers and hash, and count a rank's
/// own tokens twice in the level.
///
/// With `counted_ranks::own` this is SGLang's static mode, which counts on one rank alone.
inline waterline_options literal_waterfill(waterline_options line) {
  line.method = fill_method::sampled;
  line.candidates = candidate_ranks::visited;  // `plan` opens all ranks where SGLang does
  line.arithmetic = fill_arithmetic::sglang;
  return line;
}

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Runs one rank's part of SGLang's Waterfill: count, all-reduce, fill.
///
/// The shared expert becomes one more column of top-k and one more slot on every rank. `count`
/// writes `loads`, which the engine sums over all ranks in place unless `counts` is `own`;
/// `fill` then plans and writes the column. After LPLB's `dispatch`, pass the slots that it chose
/// as ids. If that split of routed load has the smallest peak and rows may go to any rank, no other
/// split and no other ranks for the rows give a smaller peak.
///
/// The constructor takes all memory, so that both calls and `update` can be captured in a CUDA
/// graph, together with the all-reduce between them. An object works on one batch at a time.
template <unqualified_policy P>
class waterfill {
 public:
  /// @param placement slots and ranks of every layer; only ranks, rank_offsets and the number of
  ///   slots are read
  /// @param options rank, layer of the placement, and the options of `waterline`
  /// @throws invalid_input where `waterline` does, and for a layer or rank that does not exist
  /// @workspace from the policy: that of `waterline`, and 16 bytes per rank
  /// @stream synchronizes
  waterfill(P const& policy, placement_ref const& placement, waterfill_options const& options)
      : line_(make_line(detail::resolve(policy), line_of(placement, options))),
        rank_(options.rank),
        loads_(line_.context(), 2 * placement.ranks) {
    detail::expect_between(name, "options.rank", 0, placement.ranks - 1, options.rank, "as rank");
    detail::synchronize(line_.context());
  }

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
    line_.update("waterfill::update", rank_offsets, on);
  }

  /// @brief Throws unless the offsets are the ones in use: the last that were not refused.
  /// @throws invalid_input for shapes; naming the first offset that differs
  /// @stream synchronizes
  void expect_current(vector_ref<std::int32_t const> const& rank_offsets) const {
    line_.expect_current("waterfill::expect_current", rank_offsets);
  }

  /// @brief Counts this rank's tokens into `loads`.
  /// @param topk_ids `[tokens, top_k]` int32 or int64: slots, or -1; in the policy's memory
  /// @throws invalid_input for shapes
  /// @complexity that of `waterline::count`
  /// @stream enqueues two kernels; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids>
  void count(Ids const& topk_ids) {
    auto call = detail::waterline_call("waterfill::count", options());
    auto const ids =
        detail::read_only(PLIMSOLL_IDS(call, "waterfill::count", topk_ids, "[tokens, top_k]"));
    detail::expect_waterline_ids(call, options(), ids);
    line_.enqueue_count(ids, rank_, loads());
  }

  /// Routed load and tokens at home of every rank: `[2, ranks]`, in the policy's memory.
  [[nodiscard]] matrix_ref<std::int64_t> loads() {
    return {loads_.data(), 2, line_.options().on.ranks};
  }
  [[nodiscard]] matrix_ref<std::int64_t const> loads() const {
    return {loads_.data(), 2, line_.options().on.ranks};
  }

  /// @brief Places this rank's rows of the shared expert, given the sums of all ranks' `loads`.
  /// @param topk_ids the ids that `count` counted
  /// @param batch their weights and, for sampled rows, the subsequence of random numbers
  /// @param[out] ids `[tokens, top_k + 1]` int32 or int64, as `waterline::fill` writes it
  /// @param[out] rows weights and ranks; both are optional
  /// @throws invalid_input for shapes; `check` throws for values
  /// @complexity that of `waterline::plan` and `waterline::fill`
  /// @stream enqueues the kernels of `waterline::plan` and `waterline::fill`, usually two; neither
  ///   allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids, class OutIds>
  void fill(Ids const& topk_ids, waterline_batch const& batch, OutIds&& ids,
            filled_rows const& rows = {}) {
    auto call = detail::waterline_call("waterfill::fill", options());
    auto const in =
        detail::read_only(PLIMSOLL_IDS(call, "waterfill::fill", topk_ids, "[tokens, top_k]"));
    auto const out = PLIMSOLL_OUTPUT_IDS(unchecked, "waterfill::fill", ids, "[tokens, top_k + 1]");
    detail::expect_waterline_rows(call, options(), in, batch, out, rows);
    line_.enqueue_plan(loads(), rank_);
    line_.enqueue_fill(in, rank_, batch, out, rows);
  }

  /// @brief Throws if the last `update` refused its slots or ranks, or the last `fill` its loads.
  /// @throws invalid_input naming the rank, and the row of loads
  /// @stream synchronizes
  void check() const { line_.check("waterfill::fill", "waterfill::update"); }

  /// Report, slack and options of the `waterline` within.
  [[nodiscard]] scalar_ref<waterline_report const> report() const { return line_.report(); }
  [[nodiscard]] vector_ref<std::int64_t const> slack() const { return line_.slack(); }
  [[nodiscard]] waterline_options const& options() const { return line_.options(); }

 private:
  static constexpr char const* name = "waterfill";
  using context = kept_context<P>;

  static detail::waterline_pipeline<context> make_line(context const& where,
                                                       waterline_options const& line) {
    return detail::on_behalf_of(
        name, "waterline",
        {{"options.rank_offsets", "placement.rank_offsets"}, {"options.", "options.line."}},
        [&] { return detail::waterline_pipeline<context>(where, line); });
  }
  static waterline_options line_of(placement_ref const& placement,
                                   waterfill_options const& options) {
    auto const& map = placement.physical_to_logical;
    waterline_options line = options.line;
    detail::expect_between(name, "options.layer", 0, map.extent(0) - 1, options.layer, "as layer");
    auto const expect_unset = [](char const* argument, bool is_set) {
      if (is_set) {
        detail::fail(name, argument, "none, as the placement's applies", "another");
      }
    };
    expect_unset("options.line.slots", line.slots != 0 && line.slots != map.extent(1));
    expect_unset("options.line.rank_offsets", line.rank_offsets.data != nullptr);
    line.on = detail::with_ranks_of(name, line.on, placement.ranks, "options.line.on");
    line.slots = map.extent(1);
    detail::expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets,
                                map.extent(0), placement.ranks);
    if (placement.rank_offsets.data != nullptr) {
      line.rank_offsets = detail::row_of(placement.rank_offsets, options.layer);
    }
    return line;
  }

  detail::waterline_pipeline<context> line_;
  index_t rank_;
  detail::buffer<std::int64_t, context> loads_;
};

template <execution_policy P>
waterfill(P const&, placement_ref const&, waterfill_options const&) -> waterfill<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
