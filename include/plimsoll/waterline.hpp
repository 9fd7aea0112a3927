// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rank computes the shared expert of which token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/topology.hpp>
#include <plimsoll/detail/algorithm/waterline.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/rank_speeds.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// How rows of the shared expert find their ranks.
enum class pouring : std::int32_t {
  /// Rows stay where their tokens are, but for those that stand above the level.
  surplus,
  /// Every row draws a rank in proportion to slack (SGLang's Waterfill).
  sampled
};

/// Where a row may go besides its home.
enum class reach : std::int32_t {
  visited,  ///< to ranks that its token visits anyway: no copy of the token is sent more
  all       ///< to any rank
};

/// Ranks, rows, and the rule. Arrays lie in the policy's memory.
struct waterline_options {
  index_t ranks = 0;  ///< 1 to 32767
  /// Slots of routed experts, all ranks together; top-k ids name them.
  index_t slots = 0;
  /// `[ranks + 1]`: where each rank's slots begin, as in `placement_ref`. Empty: spread evenly.
  vector_ref<std::int32_t const> rank_offsets = {};
  /// 1 to ranks; ranks are numbered node by node. Surplus stays in its node as far as there is
  /// slack and, with reach::visited, as its tokens visit that.
  index_t nodes = 1;
  /// `[ranks]`: 0 for a rank that is dead, which gets no rows. Empty: all live.
  vector_ref<std::uint8_t const> active = {};
  /// `[ranks]`: how fast each rank works, as in `minmax_lp_options`. Empty: all alike, speed 1.
  vector_ref<double const> speeds = {};

  index_t top_k = 0;       ///< ids of a token, 1 to 512
  index_t max_tokens = 0;  ///< the most tokens of a batch, below 2^31 / top_k

  pouring rule = pouring::surplus;
  reach candidates = reach::visited;
  /// Only the counts of the source are known, and stand for those of every rank: no exchange.
  bool from_one = false;
  /// Of a source with fewer rows than this all stay at home.
  index_t min_tokens = 64;
  /// What the shared expert's output is weighed with: 1 over the factor by which an engine scales
  /// what comes out of all experts.
  float weight = 1;

  /// Of sampled rows: how much more slack counts at home, and on other ranks of the home's node; 1
  /// to 16. Where no candidate has slack, a row leaves home for one whose load, times
  /// local_preference, is less.
  double local_preference = 1.1;
  double node_preference = 1;
  /// SGLang's counts, integers and hash; only for sampled rows and ranks that are alike.
  bool literal = false;
  std::uint64_t seed = 0;
};

/// What became of one source's rows. Levels are in tokens of a rank of speed 1.
struct waterline_report {
  /// By the surplus rule the peak that remains where every surplus row finds a place; for sampled
  /// rows the mean.
  double level = 0;
  double home_peak = 0;  ///< the peak if all rows stayed at home
  /// Rows of all sources that are to leave their home; with reach::visited also those that make
  /// room for others.
  std::int64_t surplus = 0;
  std::int64_t rows = 0;      ///< tokens of the batch with a valid expert; each has a row
  std::int64_t moved = 0;     ///< of these, rows that leave home
  std::int64_t unplaced = 0;  ///< surplus rows that stay, since no candidate had room
  /// Of the moved, rows that go where nothing else of their token goes.
  std::int64_t new_destinations = 0;
  std::int64_t without_expert = 0;  ///< tokens without a valid expert: no row
  std::int64_t unrouted = 0;        ///< ids of -1
  std::int64_t out_of_range = 0;    ///< other ids that are no rank's slot
  /// None, or why all rows stay at home; `expect_filled` turns that into an error.
  detail::fault what = detail::fault::none;
  std::int64_t where = -1;  ///< rank
  std::int64_t row = -1;    ///< of the loads
  double got = 0;
};

/// What a batch has besides ids. Views that are null are not looked at.
struct waterline_batch {
  matrix_ref<float const> weights = {};  ///< `[tokens, top_k]`
  /// Of sampled rows: a number for the step and the layer. A CUDA graph keeps that of its capture.
  std::uint64_t stream = 0;
};

/// Where rows go, besides ids: what is wanted of it.
struct filled_rows {
  /// `[tokens, top_k + 1]`: those of the batch and that of the shared expert; 0 for an id of -1.
  matrix_ref<float> weights = {};
  vector_ref<std::int32_t> ranks = {};  ///< `[tokens]`: the rank of every row; -1 without one
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Uses the shared expert, which every token needs, as ballast: its rows fill the valleys
/// that routed load leaves.
///
/// With routed load l_r and n_r tokens at home on rank r, a rank stands at l_r + n_r. Water poured
/// over the routed loads would stand at H = ceil(sum (l_r + n_r) / ranks).
///
/// `pouring::surplus` moves what stands above max(H, max l_r), and no more: the smallest peak that
/// any choice of ranks has, reached exactly where rows may go to all ranks. Every rank computes
/// from the same counts which part of whose slack its own rows may take; no two get the same part,
/// so no rank rises above the level. With `reach::visited` ranks without slack move a few rows more
/// and take in as many, for sources whose rows must nearly all leave: some of those visit no rank
/// with slack. Rows for which their token's ranks have no room stay at home and are counted; no
/// rank ever stands above the peak that there was with all rows at home.
///
/// `pouring::sampled` is SGLang's Waterfill: each row draws a candidate in proportion to slack
/// max(H - l_r, 0). Loads come out right on average; most rows leave their home.
///
/// Ids are physical slots (after `dispatch`, or an engine's map). The shared expert takes one more
/// slot on each rank, behind that rank's own: ids that come out count these, too.
///
/// All memory is taken in the constructor, so that all calls can be captured in a CUDA graph. One
/// object works on one batch at a time.
template <execution_policy P>
class waterline {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: waterline keeps its policy's memory; this policy's ends with the call");

 public:
  /// @throws invalid_input for options; for offsets and speeds, naming the rank
  /// @workspace from the policy: 4 bytes per slot and token, 64 per rank, 8 per rank for each 512
  ///   tokens, and scratch where it does not fit shared memory
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

  /// @brief Counts one source's tokens: what an all-reduce of all ranks makes `plan`'s loads of.
  /// @param topk_ids `[tokens, top_k]` int32 or int64: slots, or -1; in the policy's memory
  /// @param source the rank whose tokens these are
  /// @param[out] loads `[2, ranks]` int64: ids for every rank's slots, and in row 1 the tokens that
  ///   have any, at the source; what is no slot is left out (`fill` reports it)
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

  /// @brief Finds the level, and what the source's rows may take of other ranks' slack.
  /// @param loads `[2, ranks]` int64, at least 0, in the policy's memory: routed load, and tokens
  ///   at home, of every rank; together at most 2^31 - 1. With `from_one` the source's own
  /// @param source the rank whose rows `fill` is to place
  /// @throws invalid_input for shapes and the source; for values `expect_filled`
  /// @complexity O(ranks log(tokens)), times the digits of a level where ranks differ in speed
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

  /// @brief Places the rows of the batch for which `plan` was called last; once after each plan.
  ///
  /// Of a source with surplus, each row proposes to a rank that its token visits, the more often
  /// the more room the plan gave the source there, and the first in the order of tokens find place,
  /// as many as have to leave; others propose again, three times in all. With `reach::all` the
  /// third time those that are still to leave go to any rank with room.
  ///
  /// @param topk_ids `[tokens, top_k]` int32 or int64, as for `count`
  /// @param batch weights, and what sampled rows draw with
  /// @param[out] ids `[tokens, top_k + 1]`, of the same type: id + r for a slot of rank r, then the
  ///   shared expert's; -1 for what is no slot, and for the shared expert of a token without any
  /// @param[out] rows weights and ranks, where they are wanted
  /// @throws invalid_input for shapes
  /// @complexity O(tokens top_k + ranks tokens / 512); sampled from visited ranks O(tokens top_k^2)
  /// @stream enqueues one kernel, a cooperative one for the surplus rule; seven where tiles of 512
  ///   tokens are too many for that (docs/waterline.md). Neither allocates nor synchronises
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

  /// What `plan` and `fill` made, in the policy's memory: `[1]`, and `[ranks]`: how far each rank
  /// stands below the level before rows move, by the surplus rule with all rows at home.
  [[nodiscard]] vector_ref<waterline_report> report() const { return {report_, 1}; }
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
    if (o.literal && o.rule != pouring::sampled) {
      detail::fail(class_name, "options.literal", "pouring::sampled beside it", "surplus");
    }
  }

  /// Whose every slot is, and where the shared expert's are.
  void read_ranks() {
    index_t const ranks = options_.ranks;
    auto const speeds =
        detail::read_speeds(class_name, context_, ranks, options_.active, options_.speeds);
    index_t const living = speeds.living();
    if (options_.literal && !(speeds.even && living == ranks)) {
      detail::fail(class_name, "options.literal", "ranks that are alike beside it",
                   living < ranks ? "dead ones" : "other speeds");
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
            "at least 1 slot for every living rank", detail::text("0", of_rank));
      }
      std::fill(rank_of.begin() + begin, rank_of.begin() + end, static_cast<std::int32_t>(r));
      shared.push_back(end + static_cast<std::int32_t>(r));
    }
    speeds_ = {context_, speeds.speed};
    ranks_ = {{.ranges = {{}, options_.slots, options_.ranks}, .nodes = options_.nodes},
              living,
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
      detail::fail(name, "batch.weights", "weights, beside rows.weights", "none");
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
    return {options_.rule == pouring::sampled,
            options_.literal,
            options_.from_one,
            options_.candidates == reach::all,
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
    int const rounds = options_.rule == pouring::sampled ? 0 : body::most_rounds;
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
                batch.stream,
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
  // Of `fill` with int32 and with int64 ids. One object works on one batch at a time.
  mutable detail::resident_blocks resident_[2];
};

template <execution_policy P>
waterline(P const&, waterline_options const&) -> waterline<P>;

/// @brief Throws where `waterline::plan` refused its loads.
///
/// @param report of a waterline, in the policy's memory
/// @throws invalid_input naming the row and the rank
/// @stream synchronises once
template <execution_policy P, view_of<waterline_report, 1> Report>
void expect_filled(P const& policy, Report&& report) {
  for (waterline_report const& one : read(policy, report)) {
    if (one.what == detail::fault::none) {
      continue;
    }
    std::string const got = detail::text(one.got);
    if (one.what == detail::fault::tokens) {
      detail::fail("waterline::plan", "loads", "at most 2^31 - 1 tokens in all", got);
    }
    detail::fail("waterline::plan", "loads",
                 one.what == detail::fault::load ? "values from 0 to 2^31 - 1"
                                                 : "0 of a rank that is not active",
                 detail::text(got, " in row ", one.row, ", rank ", one.where));
  }
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace plimsoll
