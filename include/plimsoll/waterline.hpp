// SPDX-License-Identifier: Apache-2.0
/// @file
/// Assigns the shared expert's work for each token to a rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/waterline.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Method that assigns rows to ranks. A *row* is the shared expert's work for one token; its *home*
/// is the rank that holds the token.
enum class fill_method : std::int32_t {
  /// Moves only the rows above the level; all others stay at home.
  surplus,
  /// Draws a rank for every row, with probability in proportion to slack (SGLang's Waterfill).
  sampled
};

/// Ranks, other than its home, to which a row may go.
enum class candidate_ranks : std::int32_t {
  visited,  ///< ranks that the token visits for its routed experts: the token is not sent again
  all       ///< any rank
};

/// Options of `waterline`. Arrays are in the policy's memory.
struct waterline_options {
  index_t ranks = 0;  ///< 1 to 32767
  /// Slots of routed experts, summed over ranks; top-k ids are slot numbers.
  index_t slots = 0;
  /// `[ranks + 1]`: first slot of each rank, as in `placement_ref`. Empty: slots are spread evenly.
  vector_ref<std::int32_t const> rank_offsets = {};
  /// 1 to ranks; ranks are numbered node by node. Surplus rows stay in their node while it has
  /// slack and, with candidate_ranks::visited, while their tokens visit ranks with that slack.
  index_t nodes = 1;
  /// `[ranks]`: 0 marks a dead rank, which gets no rows. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
  /// `[ranks]`: speed of each rank, as in `minmax_lp_options`. Empty: all ranks have speed 1.
  vector_ref<double const> speeds = {};

  index_t top_k = 0;       ///< ids per token, 1 to 512
  index_t max_tokens = 0;  ///< tokens of the largest batch, below 2^31 / top_k

  fill_method method = fill_method::surplus;
  candidate_ranks candidates = candidate_ranks::visited;
  /// Plans from the source's own counts and assumes that every rank has the same: ranks need not
  /// exchange counts.
  bool local_counts_only = false;
  /// A source with fewer rows than this keeps them all at home.
  index_t min_tokens = 64;
  /// Weight of the shared expert's output: 1 over the factor by which an engine scales the output
  /// of all experts.
  float weight = 1;

  /// For sampled rows: factors on the slack of the home rank and of other ranks on its node; 1 to
  /// 16. If no candidate has slack, a row leaves home only for a rank whose load, times
  /// local_preference, is below that of its home.
  double local_preference = 1.1;
  double node_preference = 1;
  /// Reproduces SGLang's counts, integer arithmetic and hash; only for sampled rows, and only if
  /// all ranks are live and equally fast.
  bool literal = false;
  std::uint64_t seed = 0;
};

/// Result for one source's rows. Levels are in tokens of a rank of speed 1.
struct waterline_report {
  /// For the surplus method, the peak if every surplus row is placed; for sampled rows, the mean.
  double level = 0;
  double home_peak = 0;  ///< the peak if all rows stayed at home
  /// Rows of all sources that are to leave home; with candidate_ranks::visited also the rows that
  /// leave so that their rank can take in others.
  std::int64_t surplus = 0;
  std::int64_t rows = 0;      ///< tokens of the batch with a valid expert; each has one row
  std::int64_t moved = 0;     ///< rows that leave home
  std::int64_t unplaced = 0;  ///< surplus rows that stay, as no candidate had slack left
  /// Moved rows that go to a rank which their token does not visit otherwise.
  std::int64_t new_destinations = 0;
  std::int64_t without_expert = 0;  ///< tokens without a valid expert, which have no row
  std::int64_t unrouted = 0;        ///< ids of -1
  std::int64_t out_of_range = 0;    ///< other ids that are not a slot of any rank
  /// None, or the load for which all rows stay at home: `where` is its rank, `also` its row.
  /// `expect_filled` turns that into an error.
  fault refused = {};
};

/// Optional inputs of one batch. A null view leaves an input out.
struct waterline_batch {
  matrix_ref<float const> weights = {};  ///< `[tokens, top_k]`
  /// Subsequence of the random numbers for sampled rows: one per step and layer. A CUDA graph
  /// replays the value of its capture.
  std::uint64_t subsequence = 0;
};

/// Optional outputs of `waterline::fill`; null views are not written.
struct filled_rows {
  /// `[tokens, top_k + 1]`: the batch's weights, then the shared expert's; 0 where the id is -1.
  matrix_ref<float> weights = {};
  vector_ref<std::int32_t> ranks = {};  ///< `[tokens]`: rank of each row; -1 without a row
};

inline namespace PLIMSOLL_DEVICE_ABI {

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
template <execution_policy P>
class waterline {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: waterline keeps its policy's memory; this policy's ends with the call");

 public:
  /// @throws invalid_input for options; for offsets and speeds, naming the rank
  /// @workspace from the policy: 4 bytes per slot, 4 per token, 60 per rank, 8 per rank for each
  ///   512 tokens, and scratch where it does not fit shared memory
  /// @stream synchronises
  waterline(P const& policy, waterline_options const& options)
      : context_(detail::resolve(policy)), options_(options) {
    expect_options();
    read_ranks();
    index_t const columns = options.ranks + 1;
    bytes_ = {context_,
              static_cast<index_t>(
                  detail::bytes_taken_by<detail::line_memory>(options.ranks) +
                  detail::scratch_bytes_of<waterline_report>(1) +
                  detail::scratch_bytes_of<std::int32_t>(options.max_tokens) +
                  2 * detail::bytes_taken_by<detail::tile_counts>(options.max_tokens, columns))};
    detail::scratch memory(bytes_.data());
    line_ = detail::line_memory::in(memory, options.ranks);
    report_ = memory.take<waterline_report>(1);
    proposals_ = memory.take<std::int32_t>(options.max_tokens);
    tile_memory_ = memory;
    index_t scratch = 0;
    auto const reserve = [&](auto const& body) {
      scratch = std::max(scratch, detail::launch_bytes(context_, body.problems(), body));
    };
    reserve(plan_body({}, 0));
    matrix_ref<std::int64_t const> const largest(nullptr, options.max_tokens, options.top_k);
    reserve(count_body(largest, 0, {}));
    scratch = std::max(scratch, detail::phases_bytes(context_, fill_body(largest, {}, {}, {})));
    scratch_ = {context_, scratch};
    detail::synchronize(context_);
  }

  [[nodiscard]] waterline_options const& options() const { return options_; }

  /// @brief Counts one source's ids per rank and its tokens; `plan` needs the sum over all sources
  /// (an all-reduce).
  /// @param topk_ids `[tokens, top_k]` int32 or int64: slots, or -1; in the policy's memory
  /// @param source the rank whose tokens these are
  /// @param[out] loads `[2, ranks]` int64: row 0 counts the ids in each rank's slots; row 1, at the
  ///   source, the tokens with at least one such id (with `literal` all tokens), 0 elsewhere. Ids
  ///   that are not a slot are left out (`fill` reports them)
  /// @throws invalid_input for shapes and the source
  /// @complexity O(tokens top_k + ranks tokens / 512)
  /// @stream enqueues two kernels; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <detail::stored<2> Ids, output_of<std::int64_t, 2> Loads>
  void count(Ids const& topk_ids, index_t source, Loads&& loads) const {
    constexpr char const* name = "waterline::count";
    auto const ids = detail::argument<2>(name, "topk_ids", topk_ids);
    matrix_ref<std::int64_t> const counts = detail::argument<2>(name, "loads", loads);
    expect_batch(name, ids.extent(0), ids.extent(1));
    expect_loads(name, counts.extent(0), counts.extent(1));
    expect_source(name, source);
    auto body = count_body<id_of<Ids>>(ids, source, counts);
    body.clearing = true;
    run(body);
    body.clearing = false;
    run(body);
  }

  /// @brief Finds the level and the slack of other ranks that the source's rows may take.
  /// @param loads `[2, ranks]` int64, at least 0, in the policy's memory: routed load and tokens at
  ///   home of every rank; at most 2^31 - 1 in total. With `local_counts_only`, the source's counts
  /// @param source the rank whose rows `fill` will place
  /// @throws invalid_input for shapes and the source; `expect_filled` throws for values
  /// @complexity O(ranks log(tokens)), times the bits of a level where ranks differ in speed
  /// @stream enqueues one kernel; neither allocates nor synchronises
  /// @determinism the same bits under every policy, and on every rank that has the same loads
  template <view_of<std::int64_t, 2> Loads>
  void plan(Loads const& loads, index_t source) const {
    constexpr char const* name = "waterline::plan";
    matrix_ref<std::int64_t const> const counts = detail::argument<2>(name, "loads", loads);
    expect_loads(name, counts.extent(0), counts.extent(1));
    expect_source(name, source);
    run(plan_body(counts, source));
  }

  /// @brief Places the rows of the source for which `plan` was last called; once after each plan.
  ///
  /// With the surplus method, each row of a source with surplus proposes to a rank that its token
  /// visits, chosen in proportion to the slack that the plan gave the source there. Each rank
  /// accepts rows in token order, up to that slack, until the surplus is gone; the others propose
  /// again, in three rounds in all. With `candidate_ranks::all`, surplus rows that are left in the
  /// third round go to any rank with slack.
  ///
  /// @param topk_ids `[tokens, top_k]` int32 or int64, as for `count`
  /// @param batch weights and, for sampled rows, the subsequence of random numbers
  /// @param[out] ids `[tokens, top_k + 1]`, of the same type: id + r for a slot of rank r, then the
  ///   shared expert's slot; -1 for an id that is not a slot, and last for a token without a row
  /// @param[out] rows weights and ranks; both are optional
  /// @throws invalid_input for shapes
  /// @complexity O(tokens top_k + ranks tokens / 512); sampled from visited ranks O(tokens top_k^2)
  /// @stream enqueues one kernel, cooperative for the surplus method, or seven where there are too
  ///   many tiles of 512 tokens (docs/waterline.md). Neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <detail::stored<2> Ids, class OutIds>
    requires output_of<OutIds, detail::normalized_value_t<Ids const, 2>, 2>
  void fill(Ids const& topk_ids, waterline_batch const& batch, OutIds&& ids,
            filled_rows const& rows) const {
    matrix_ref<id_of<Ids> const> const in =
        detail::argument<2>("waterline::fill", "topk_ids", topk_ids);
    matrix_ref<id_of<Ids>> const out = detail::argument<2>("waterline::fill", "ids", ids);
    expect_fill("waterline::fill", in, batch, out, rows);
    detail::launch_phases(context_, fill_body<id_of<Ids>>(in, batch, out, rows), scratch_.data(),
                          resident_[sizeof(id_of<Ids>) / sizeof(std::int64_t)]);
  }

  /// Report of the last `plan` and `fill`: `[1]`, in the policy's memory.
  [[nodiscard]] vector_ref<waterline_report> report() const { return {report_, 1}; }
  /// Tokens by which each rank is below the level before rows move: `[ranks]`, in the policy's
  /// memory. The surplus method counts a rank's rows at home as its load, sampling does not (with
  /// `literal` as SGLang does).
  [[nodiscard]] vector_ref<std::int64_t const> slack() const {
    return {line_.slack, options_.ranks};
  }

 private:
  template <execution_policy>
  friend class waterfill;

  static constexpr char const* class_name = "waterline";
  using context = detail::context_of<P>;
  template <class Ids>
  using id_of = detail::normalized_value_t<Ids const, 2>;

  void expect_options() const {
    waterline_options const& o = options_;
    detail::expect_between(class_name, "options.ranks", 1, rank_limit, o.ranks, "ranks");
    detail::expect_between(class_name, "options.slots", 1, 0x7fffffff - o.ranks, o.slots, "slots");
    detail::expect_between(class_name, "options.nodes", 1, o.ranks, o.nodes,
                           "nodes (at most one per rank)");
    detail::expect_between(class_name, "options.top_k", 1, 512, o.top_k, "ids per token");
    detail::expect_between(class_name, "options.max_tokens", 0, 0x7fffffff / o.top_k, o.max_tokens,
                           "tokens (below 2^31 ids)");
    detail::expect_between(class_name, "options.min_tokens", 0, 0x7fffffff, o.min_tokens, "tokens");
    auto const expect_preference = [](char const* argument, double preference) {
      if (!(preference >= 1 && preference <= 16)) {
        detail::fail(class_name, argument, "a number from 1 to 16", detail::text(preference));
      }
    };
    expect_preference("options.local_preference", o.local_preference);
    expect_preference("options.node_preference", o.node_preference);
    if (!std::isfinite(o.weight)) {
      detail::fail(class_name, "options.weight", "a finite number", detail::text(o.weight));
    }
    if (o.literal && o.method != fill_method::sampled) {
      detail::fail(class_name, "options.literal", "false unless fill_method::sampled is set",
                   "true");
    }
  }

  /// Reads speeds and offsets and builds the tables of each slot's rank and of the shared expert's
  /// slot on each rank.
  void read_ranks() {
    index_t const ranks = options_.ranks;
    auto const speeds =
        detail::read_speeds(class_name, context_, ranks, options_.active, options_.speeds);
    index_t const live = speeds.live();
    if (options_.literal && !(speeds.even && live == ranks)) {
      detail::fail(class_name, "options.literal", "false unless all ranks are live and equal",
                   live < ranks ? "true with a dead rank" : "true with unequal speeds");
    }
    std::vector<std::int32_t> begins;
    if (options_.rank_offsets.data != nullptr) {
      detail::expect_extent(class_name, "options.rank_offsets", ranks + 1,
                            options_.rank_offsets.extent(0), "offsets (ranks + 1)");
      begins = detail::on_host(context_, options_.rank_offsets);
    } else {
      detail::slot_ranges const even{{}, options_.slots, ranks};
      for (index_t r = 0; r <= ranks; ++r) {
        begins.push_back(static_cast<std::int32_t>(even.begin(0, r)));
      }
    }
    std::vector<std::int32_t> rank_of(static_cast<std::size_t>(options_.slots), -1);
    std::vector<std::int32_t> shared;
    for (index_t r = 0; r < ranks; ++r) {
      auto const at = static_cast<std::size_t>(r);
      std::int32_t const begin = begins[at];
      std::int32_t const end = begins[at + 1];
      std::string const of_rank = detail::text(" for rank ", r);
      if ((r == 0 && begin != 0) || begin > end || end > options_.slots) {
        detail::fail(class_name, "options.rank_offsets",
                     "offsets that rise from 0 to at most the number of slots",
                     detail::text(begin, " and ", end, of_rank));
      }
      if (begin == end && speeds.speed[at] > 0) {
        detail::fail(
            class_name,
            options_.rank_offsets.data != nullptr ? "options.rank_offsets" : "options.slots",
            "at least 1 slot for every live rank", detail::text("0", of_rank));
      }
      std::fill(rank_of.begin() + begin, rank_of.begin() + end, static_cast<std::int32_t>(r));
      shared.push_back(end + static_cast<std::int32_t>(r));
    }
    speeds_ = {context_, speeds.speed};
    ranks_ = {{.ranges = {{}, options_.slots, options_.ranks}, .nodes = options_.nodes},
              live,
              speeds.units(speeds_.data()),
              speeds.fastest};
    rank_of_ = {context_, rank_of};
    shared_slot_ = {context_, shared};
  }

  void expect_batch(char const* name, index_t tokens, index_t columns) const {
    detail::expect_between(name, "topk_ids", 0, options_.max_tokens, tokens,
                           "tokens (options.max_tokens)");
    detail::expect_extent(name, "topk_ids", options_.top_k, columns, "ids per token");
  }
  void expect_loads(char const* name, index_t rows, index_t columns) const {
    detail::expect_extent(name, "loads", 2, rows, "rows (routed load, tokens at home)");
    detail::expect_extent(name, "loads", options_.ranks, columns, "ranks");
  }
  void expect_source(char const* name, index_t source) const {
    detail::expect_between(name, "source", 0, options_.ranks - 1, source, "as rank");
  }
  template <class Id>
  void expect_fill(char const* name, matrix_ref<Id const> const& topk_ids,
                   waterline_batch const& batch, matrix_ref<Id> const& ids,
                   filled_rows const& rows) const {
    index_t const tokens = topk_ids.extent(0);
    expect_batch(name, tokens, topk_ids.extent(1));
    expect_matrix(name, "batch.weights", batch.weights, tokens, options_.top_k);
    expect_matrix(name, "ids", ids, tokens, options_.top_k + 1);
    expect_matrix(name, "rows.weights", rows.weights, tokens, options_.top_k + 1);
    if (rows.weights.data != nullptr && batch.weights.data == nullptr && tokens > 0) {
      detail::fail(name, "batch.weights", "weights, as rows.weights is set", "none");
    }
    if (rows.ranks.data != nullptr) {
      detail::expect_extent(name, "rows.ranks", tokens, rows.ranks.extent(0), "tokens");
    }
  }
  template <class Matrix>
  static void expect_matrix(char const* name, char const* argument, Matrix const& matrix,
                            index_t rows, index_t columns) {
    if (matrix.data != nullptr) {
      detail::expect_extent(name, argument, rows, matrix.extent(0), "tokens");
      detail::expect_extent(name, argument, columns, matrix.extent(1), "columns");
    }
  }

  [[nodiscard]] detail::line_rules rules() const {
    auto const fixed = [](double x) { return static_cast<std::int64_t>(x * 65536 + 0.5); };
    return {options_.method == fill_method::sampled,
            options_.literal,
            options_.local_counts_only,
            options_.candidates == candidate_ranks::all,
            options_.min_tokens,
            options_.top_k,
            fixed(options_.local_preference),
            fixed(options_.node_preference),
            options_.local_preference};
  }
  [[nodiscard]] auto plan_body(matrix_ref<std::int64_t const> loads, index_t source) const {
    return detail::plan_line<waterline_report>{ranks_, rules(), loads, source, line_, report()};
  }
  template <class Id>
  [[nodiscard]] detail::line_rows<Id> rows_of(matrix_ref<Id const> ids) const {
    return {ids, rank_of_.data(), options_.slots};
  }
  template <class Id>
  [[nodiscard]] auto count_body(matrix_ref<Id const> ids, index_t source,
                                matrix_ref<std::int64_t> loads) const {
    loads.extents[1] = options_.ranks;
    return detail::count_line<Id>{rows_of(ids), loads, source, options_.literal, false};
  }
  template <class Id>
  [[nodiscard]] auto fill_body(matrix_ref<Id const> ids, waterline_batch const& batch,
                               matrix_ref<Id> out, filled_rows const& rows) const {
    using body = detail::fill_line<Id, waterline_report>;
    int const rounds = options_.method == fill_method::sampled ? 0 : body::most_rounds;
    index_t const tokens = ids.extent(0);
    index_t const columns = options_.ranks + 1;
    detail::scratch memory = tile_memory_;
    auto const tiles = detail::tile_counts::in(memory, tokens, columns);
    return body{ranks_,
                rules(),
                line_,
                tiles,
                detail::tile_counts::in(memory, tokens, columns).counts,
                proposals_,
                rows_of(ids),
                shared_slot_.data(),
                options_.weight,
                batch.weights,
                out,
                rows.weights,
                rows.ranks,
                report(),
                options_.seed,
                batch.subsequence,
                rounds,
                false};
  }

  template <class Body>
  void run(Body const& body) const {
    detail::launch(context_, body.problems(), body, scratch_.data());
  }

  context context_;
  waterline_options options_;
  detail::rank_levels ranks_{};
  detail::buffer<double, context> speeds_;
  detail::buffer<std::int32_t, context> rank_of_;
  detail::buffer<std::int32_t, context> shared_slot_;
  detail::buffer<std::byte, context> bytes_;
  detail::buffer<std::byte, context> scratch_;
  detail::line_memory line_{};
  waterline_report* report_ = nullptr;
  std::int32_t* proposals_ = nullptr;
  detail::scratch tile_memory_{nullptr};
  // For `fill` with int32 and with int64 ids. Mutable: an object works on one batch at a time.
  mutable detail::resident_blocks resident_[2];
};

template <execution_policy P>
waterline(P const&, waterline_options const&) -> waterline<P>;

/// @brief Throws if `waterline::plan` refused its loads.
///
/// @param report reports of `waterline` objects, in the policy's memory
/// @throws invalid_input naming the row and the rank
/// @stream synchronises once
template <execution_policy P, view_of<waterline_report, 1> Report>
void expect_filled(P const& policy, Report&& report) {
  for (waterline_report const& one : read(policy, report)) {
    if (!one.refused) {
      continue;
    }
    fault const& found = one.refused;
    if (found.kind == fault_kind::tokens) {
      detail::fail("waterline::plan", "loads", "at most 2^31 - 1 tokens in all",
                   detail::text(found.got));
    }
    detail::fail("waterline::plan", "loads",
                 found.kind == fault_kind::load ? "values from 0 to 2^31 - 1"
                                                : "0 of a rank that is not active",
                 detail::text(found.got, " in row ", found.also, ", rank ", found.where));
  }
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
