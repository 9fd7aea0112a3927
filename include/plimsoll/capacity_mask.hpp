// SPDX-License-Identifier: Apache-2.0
/// @file
/// Limits the token copies that each expert gets to its capacity and drops the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/capacity_mask.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/top_k.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `capacity_mask`: the capacity, and the policy by which pairs are dropped. A *pair* is
/// a token and one of its experts.
struct capacity_options {
  /// Experts of the layer, 1 to 65535.
  index_t experts = 0;
  /// Experts that each token chooses: the first columns of a batch.
  index_t top_k = 0;
  /// Columns of a batch; 0: top_k. Columns after the first top_k hold *expanded candidates*, which
  /// are offered to a token in addition to its choices (Expanded Drop).
  index_t candidates = 0;
  /// Tokens of the largest batch.
  index_t max_tokens = 0;

  /// Capacity factor, at least 0. The capacity of an expert is factor * tokens * top_k / experts,
  /// rounded, then at least min_capacity, at most max_capacity, and at most the batch's tokens.
  double factor = 1;
  /// `[experts]`: one factor per expert instead; in the policy's memory, read by the constructor.
  vector_ref<double const> factors = {};
  rounding_mode round = rounding_mode::up;
  index_t min_capacity = 1;
  index_t max_capacity = 0x7fffffff;
  /// Batches with fewer tokens are not limited, and Expert Drop skips no expert in them: in a batch
  /// of a few tokens, all of them easily choose the same expert.
  index_t min_tokens = 0;

  /// 0: every expert has its own capacity. Else the experts of a rank share theirs: together they
  /// keep as many pairs as the sum of their capacities.
  index_t ranks = 0;
  /// `[experts]`: rank of each expert, in the policy's memory, read by the constructor; null:
  /// experts are spread over ranks evenly and in order.
  vector_ref<std::int32_t const> rank_of = {};

  drop_policy drop_by = drop_policy::score;
  /// Key of the random number generator, for drop_policy::random.
  std::uint64_t seed = 0;
  /// Number of token priorities, 1 to 32768. Pairs of a higher priority outrank all pairs of a
  /// lower one.
  index_t classes = 1;
  /// Top-k pairs outrank expanded candidates. False: both compete on equal terms, as in the paper's
  /// algorithm 2.
  bool topk_first = true;
  /// Pairs that a token keeps at most, the best by score; 0: no limit.
  index_t max_selected = 0;
  /// Share of the experts that get no token at all (Expert Drop), 0 to 1; their number is rounded
  /// down. Experts that the fewest tokens chose are skipped, of equal ones the higher id.
  double expert_drop = 0;

  /// Sum to which the kept weights of a token are scaled.
  normalization normalize = normalization::none;
  /// Id written for a dropped pair; must not be an expert's id.
  std::int32_t sentinel = -1;
  /// Padding of the rows per expert that `offsets` counts.
  padding_mode pad = padding_mode::none;
  /// Multiple to which padding_mode::to_multiple rounds up.
  index_t multiple = 1;
};

/// Optional inputs of one batch.
struct capacity_batch {
  /// `[tokens]`: 0 to classes - 1; null: 0 for all. To drop image tokens first, give text tokens 1.
  vector_ref<std::int32_t const> priorities = {};
  /// `[tokens, candidates]`: weights to write for the kept pairs; null: their scores.
  matrix_ref<float const> weights = {};
  /// For drop_policy::random: the subsequence of random numbers, one per step and layer, and the
  /// number of the batch's first token.
  std::uint64_t subsequence = 0;
  std::uint64_t first_token = 0;
};

/// Counts of one batch: routed - kept pairs were dropped; routed, unrouted, out_of_range and
/// duplicates add up to the number of ids.
struct capacity_report {
  std::int64_t routed = 0;         ///< pairs of a token and an expert
  std::int64_t kept = 0;           ///< routed pairs that are kept
  std::int64_t choices = 0;        ///< routed top-k pairs, without expanded candidates
  std::int64_t kept_choices = 0;   ///< top-k pairs that are kept
  std::int64_t unrouted = 0;       ///< ids of -1
  std::int64_t out_of_range = 0;   ///< other ids that are not an expert's
  std::int64_t duplicates = 0;     ///< repeated ids in a token's row; the first one counts
  std::int64_t not_numbers = 0;    ///< routed pairs whose score is NaN, which rank last (by score)
  std::int64_t unknown_class = 0;  ///< routed pairs of an invalid priority, which counts as 0
  std::int64_t rows = 0;           ///< of all experts, padding included; 0 without `offsets`
  /// (choices - kept_choices) / choices.
  double dropped_fraction = 0;
  /// The paper's equation 11: top-k pairs of each expert (or rank) above its capacity before
  /// rounding and other limits, summed, over `choices`.
  double overflow_fraction = 0;
};

/// Outputs of `capacity_mask`, in the policy's memory. Only counts and report are required.
struct kept_pairs {
  /// `[tokens, candidates]`: ids of kept pairs in their columns, else the sentinel. May be the
  /// batch's own array.
  matrix_ref<std::int32_t> ids = {};
  /// `[tokens, candidates]`: weights of kept pairs, else 0. May be the batch's own array.
  matrix_ref<float> weights = {};
  /// `[tokens, candidates]`: number of each kept pair within its expert, from 0: top-k pairs in
  /// token order, then expanded candidates in token order; -1 elsewhere.
  matrix_ref<std::int32_t> positions = {};
  /// `[experts]`: kept pairs.
  vector_ref<std::int32_t> counts = {};
  /// `[experts + 1]`: first row of each expert in a buffer of all kept pairs, padded as options.pad
  /// says; the row of a pair is its expert's offset plus its position.
  vector_ref<std::int32_t> offsets = {};
  /// `[1]`.
  vector_ref<capacity_report> report = {};
};

namespace detail {

inline void expect_capacity_options(std::string_view name, capacity_options const& o) {
  expect_between(name, "options.experts", 1, expert_limit, o.experts, "experts");
  expect_between(name, "options.top_k", 1, o.experts, o.top_k, "choices");
  if (o.candidates != 0) {
    expect_between(name, "options.candidates", o.top_k, 0x7fffffff, o.candidates, "columns");
  }
  index_t const width = std::max(o.candidates, o.top_k);
  expect_between(name, "options.max_tokens", 0, 0x7fffffff / width, o.max_tokens,
                 "tokens (below 2^31 pairs)");
  if (!(o.factor >= 0)) {
    fail(name, "options.factor", "at least 0", text(o.factor));
  }
  expect_between(name, "options.min_capacity", 0, 0x7fffffff, o.min_capacity, "tokens");
  expect_between(name, "options.max_capacity", o.min_capacity, 0x7fffffff, o.max_capacity,
                 "tokens");
  expect_between(name, "options.min_tokens", 0, std::numeric_limits<index_t>::max(), o.min_tokens,
                 "tokens");
  expect_between(name, "options.ranks", 0, rank_limit, o.ranks, "ranks");
  if (o.rank_of.data != nullptr && o.ranks == 0) {
    fail(name, "options.ranks", "the number of ranks in options.rank_of", "0");
  }
  expect_between(name, "options.classes", 1, 32768, o.classes, "classes");
  expect_between(name, "options.max_selected", 0, width, o.max_selected, "pairs");
  if (!(o.expert_drop >= 0 && o.expert_drop <= 1)) {
    fail(name, "options.expert_drop", "a share from 0 to 1", text(o.expert_drop));
  }
  if (o.sentinel >= 0 && o.sentinel < o.experts) {
    fail(name, "options.sentinel", "no expert's id", text(o.sentinel));
  }
  if (o.pad == padding_mode::to_capacity && o.ranks > 0) {
    fail(name, "options.pad", "none or to_multiple, as ranks share a capacity", "to_capacity");
  }
  expect_between(name, "options.multiple", 1, 0x7fffffff, o.multiple, "rows");
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Limits the tokens of every expert to its capacity: keeps the best pairs, drops the others
/// and counts them.
///
/// In capacity-aware inference (He et al. 2025), an expert takes at most factor * tokens * top_k /
/// experts tokens of a batch, so that no rank waits for a straggler. The capacity holds per expert,
/// or for all experts of a rank together. Pairs are kept by score, by token order, by reverse order
/// or at random; tokens may have priorities, and expanded candidates in addition to their choices.
/// Other options give the capacities of Megatron-LM, DeepSpeed and Tutel (docs/capacity_mask.md).
///
/// The constructor takes all memory, so that `apply` can be captured in a CUDA graph. An object
/// works on one batch at a time.
template <execution_policy P>
class capacity_mask {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: capacity_mask keeps its policy's memory; this policy's ends with the "
                "call");

 public:
  /// @throws invalid_input for options; for a factor or rank out of range, naming its expert
  /// @workspace from the policy: 21 bytes per pair, up to 41 per expert, 4.25 per expert for each
  ///   512 pairs (8.5 with more candidates than top_k), and scratch where it does not fit shared
  ///   memory
  /// @stream synchronises
  capacity_mask(P const& policy, capacity_options const& options)
      : context_(detail::resolve(policy)), options_(options) {
    detail::expect_capacity_options("capacity_mask", options);
    options_.candidates = width();
    read_factors(policy);
    order_experts(policy);
    bytes_ = {context_, static_cast<index_t>(detail::bytes_taken_by<pair_lists>(
                            options.max_tokens * width(), options.experts, columns(), false))};
    bytes_.zero();
    pair_lists const lists = lists_for(options.max_tokens);
    index_t scratch = 0;
    auto const reserve = [&](index_t problems, auto const& body) {
      scratch = std::max(scratch, detail::launch_bytes(context_, problems, body));
    };
    detail::scan_pairs const scan{lists.tiles};
    reserve(scan.problems(), scan);
    detail::gather_pairs<float> gather{};
    gather.lists = lists;
    reserve(gather.problems(), gather);
    reserve(lists.pools, detail::select_pairs{});
    scratch_ = {context_, scratch};
    detail::synchronize(context_);
  }

  /// Options of the constructor, with `candidates` set where it was 0.
  [[nodiscard]] capacity_options const& options() const { return options_; }

  /// @brief Capacity of an expert in a batch of `tokens` tokens; the largest one if experts have
  /// factors of their own.
  [[nodiscard]] index_t capacity(index_t tokens) const {
    detail::capacity_rule rule = rule_for(tokens);
    rule.factors = nullptr;
    rule.factor = largest_factor_;
    return rule.of(0);
  }

  /// @brief Masks one batch.
  /// @param topk_ids `[tokens, candidates]` int32 or int64: experts, or -1; in the policy's memory
  /// @param topk_scores `[tokens, candidates]` float, float16 or bfloat16, of any sign:
  ///   `drop_policy::score` and max_selected rank pairs by them; NaN ranks last
  /// @param batch optional inputs
  /// @param[out] kept pairs that stay. Of equal keys the lower token ranks first, in one row the
  ///   earlier column
  /// @throws invalid_input for shapes; the report counts invalid values
  /// @complexity O(pairs (candidates + digits)), for up to six 8-bit digits of a key, which are
  ///   read only where a capacity is exceeded; with expert_drop also O(experts^2)
  /// @stream enqueues four kernels, one more each for expert_drop, for max_selected and for batches
  ///   of more than 524288 pairs; neither allocates nor synchronises. After a `cuda_error` the
  ///   object cannot be used again
  /// @determinism the same bits under every policy
  template <detail::stored<2> Ids, score_matrix_view Scores>
  void apply(Ids const& topk_ids, Scores const& topk_scores, capacity_batch const& batch,
             kept_pairs const& kept) const {
    using id = detail::normalized_value_t<Ids const, 2>;
    static_assert(std::is_same_v<id, std::int32_t> || std::is_same_v<id, std::int64_t>,
                  "Plimsoll: topk_ids must be int32 or int64");
    matrix_ref<id const> const ids =
        detail::argument<2>("capacity_mask::apply", "topk_ids", topk_ids);
    auto const scores = detail::normalize_scores(topk_scores);
    expect_shapes("capacity_mask::apply", ids.extent(0), ids.extent(1), scores.extent(0),
                  scores.extent(1), batch, kept);
    enqueue(ids, scores, batch, kept);
  }
  template <detail::stored<2> Ids, score_matrix_view Scores>
  void apply(Ids const& topk_ids, Scores const& topk_scores, kept_pairs const& kept) const {
    apply(topk_ids, topk_scores, capacity_batch{}, kept);
  }

 private:
  template <execution_policy>
  friend class token_drop;

  using context = detail::context_of<P>;
  using pair_lists = detail::pair_lists;

  [[nodiscard]] index_t width() const { return std::max(options_.candidates, options_.top_k); }
  [[nodiscard]] index_t kinds() const { return width() > options_.top_k ? 2 : 1; }
  [[nodiscard]] index_t columns() const {
    return pair_lists::columns_of(options_.experts, kinds());
  }
  [[nodiscard]] index_t pools() const {
    return options_.ranks > 0 ? options_.ranks : options_.experts;
  }
  [[nodiscard]] index_t left_out(index_t tokens) const {
    return tokens < options_.min_tokens
               ? 0
               : static_cast<index_t>(
                     detail::almost(options_.expert_drop * static_cast<double>(options_.experts)));
  }

  void read_factors(P const& policy) {
    largest_factor_ = options_.factor;
    if (options_.factors.data == nullptr) {
      return;
    }
    detail::expect_extent("capacity_mask", "options.factors", options_.experts,
                          options_.factors.extent(0), "experts");
    std::vector<double> const factors = read(policy, options_.factors);
    for (std::size_t e = 0; e < factors.size(); ++e) {
      if (!(factors[e] >= 0)) {
        detail::fail("capacity_mask", "options.factors", "at least 0",
                     detail::text(factors[e], " for expert ", e));
      }
    }
    largest_factor_ = *std::max_element(factors.begin(), factors.end());
    factors_ = {context_, factors};
  }

  /// Sorts experts by rank if options.rank_of is given.
  void order_experts(P const& policy) {
    if (options_.rank_of.data == nullptr) {
      return;
    }
    detail::expect_extent("capacity_mask", "options.rank_of", options_.experts,
                          options_.rank_of.extent(0), "experts");
    std::vector<std::int32_t> const ranks = read(policy, options_.rank_of);
    std::vector<std::int32_t> begins(static_cast<std::size_t>(options_.ranks) + 1);
    for (std::size_t e = 0; e < ranks.size(); ++e) {
      if (ranks[e] < 0 || ranks[e] >= options_.ranks) {
        detail::fail("capacity_mask", "options.rank_of",
                     detail::text("0 to ", options_.ranks - 1, " as rank"),
                     detail::text(ranks[e], " for expert ", e));
      }
      ++begins[static_cast<std::size_t>(ranks[e]) + 1];
    }
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<std::int32_t> next = begins;
    std::vector<std::int32_t> places(ranks.size());
    std::vector<std::int32_t> experts(ranks.size());
    for (std::size_t e = 0; e < ranks.size(); ++e) {
      places[e] = next[static_cast<std::size_t>(ranks[e])]++;
      experts[static_cast<std::size_t>(places[e])] = static_cast<std::int32_t>(e);
    }
    places_ = {context_, places};
    experts_at_ = {context_, experts};
    pool_begins_ = {context_, begins};
  }

  [[nodiscard]] pair_lists lists_for(index_t tokens) const {
    detail::scratch memory(bytes_.data());
    // Arrays have the same addresses for all batches: on a device, counts stay zero between them.
    pair_lists lists = pair_lists::in(memory, options_.max_tokens * width(), options_.experts,
                                      columns(), detail::runs_on_device<context>);
    lists.tiles.items = tokens * width();
    lists.experts = options_.experts;
    lists.width = width();
    lists.by_width = detail::divisor(width());
    lists.choices = options_.top_k;
    lists.pools = pools();
    lists.by_rank = options_.ranks > 0;
    lists.places = places_.data();
    lists.experts_at = experts_at_.data();
    lists.pool_begins = pool_begins_.data();
    return lists;
  }

  [[nodiscard]] detail::capacity_rule rule_for(index_t tokens) const {
    return {options_.factor,       factors_.data(),       options_.round,
            options_.min_capacity, options_.max_capacity, tokens,
            options_.top_k,        options_.experts,      tokens < options_.min_tokens};
  }

  void expect_shapes(char const* name, index_t tokens, index_t id_columns, index_t score_rows,
                     index_t score_columns, capacity_batch const& batch,
                     kept_pairs const& kept) const {
    auto const expect_matrix = [&](char const* argument, auto const& matrix) {
      if (matrix.data != nullptr) {
        detail::expect_extent(name, argument, tokens, matrix.extent(0), "tokens");
        detail::expect_extent(name, argument, width(), matrix.extent(1), "candidates");
      }
    };
    detail::expect_between(name, "topk_ids", 0, options_.max_tokens, tokens,
                           "tokens (options.max_tokens)");
    detail::expect_extent(name, "topk_ids", width(), id_columns, "candidates");
    detail::expect_extent(name, "topk_scores", tokens, score_rows, "tokens");
    detail::expect_extent(name, "topk_scores", width(), score_columns, "candidates");
    if (batch.priorities.data != nullptr) {
      detail::expect_extent(name, "batch.priorities", tokens, batch.priorities.extent(0), "tokens");
    }
    expect_matrix("batch.weights", batch.weights);
    expect_matrix("kept.ids", kept.ids);
    expect_matrix("kept.weights", kept.weights);
    expect_matrix("kept.positions", kept.positions);
    detail::expect_extent(name, "kept.counts", options_.experts, kept.counts.extent(0), "experts");
    detail::expect_extent(name, "kept.report", 1, kept.report.extent(0), "reports");
    if (kept.offsets.data != nullptr) {
      detail::expect_extent(name, "kept.offsets", options_.experts + 1, kept.offsets.extent(0),
                            "offsets");
      index_t rows = tokens * width();
      if (options_.pad == padding_mode::to_capacity) {
        rows = capacity(tokens) * options_.experts;
      } else if (options_.pad == padding_mode::to_multiple) {
        rows += (options_.multiple - 1) * options_.experts;
      }
      detail::expect_between(name, "kept.offsets", 0, 0x7fffffff, rows, "rows with padding");
    }
  }

  template <class Id, class Score>
  void enqueue(matrix_ref<Id const> ids, matrix_ref<Score const> scores,
               capacity_batch const& batch, kept_pairs const& kept) const {
    pair_lists const lists = lists_for(ids.extent(0));
    run(detail::count_pairs<Id>{lists, ids});
    enqueue_counted(lists, ids, scores, batch, kept);
  }

  /// Enqueues the steps that follow the counting of pairs.
  template <class Id, class Score>
  void enqueue_counted(pair_lists lists, matrix_ref<Id const> ids, matrix_ref<Score const> scores,
                       capacity_batch const& batch, kept_pairs const& kept) const {
    index_t const tokens = ids.extent(0);
    index_t const experts_left_out = left_out(tokens);
    if (experts_left_out == 0) {
      lists.left_out = nullptr;
    }
    detail::capacity_rule const rule = rule_for(tokens);
    bool const ranked = batch.priorities.data != nullptr;
    bool const choices_first = options_.topk_first && kinds() > 1;
    bool const cuts = options_.max_selected > 0 && options_.max_selected < width();

    if (lists.tiles.scanned()) {
      run(detail::scan_pairs{lists.tiles});
    }
    if (experts_left_out > 0) {
      run(detail::rank_experts{lists, experts_left_out}, options_.experts);
    }
    detail::gather_pairs<Score> const gather{lists,
                                             scores,
                                             options_.drop_by,
                                             choices_first,
                                             options_.classes,
                                             ranked ? class_bits() : 0,
                                             batch.priorities,
                                             options_.seed,
                                             batch.subsequence,
                                             batch.first_token};
    run(gather);
    run(detail::select_pairs{lists, rule, gather.key_bits(), !cuts, kept.counts, kept.positions},
        lists.pools);
    using writing = detail::keep_pairs<Id, Score>;
    writing const keep{lists,
                       ids,
                       scores,
                       batch.weights,
                       cuts ? options_.max_selected : 0,
                       choices_first,
                       options_.normalize,
                       options_.sentinel,
                       kept.ids,
                       kept.weights,
                       kept.positions,
                       kept.counts};
    using reporting = detail::report_pairs<capacity_report>;
    reporting const report{lists,       rule,         options_.pad, options_.multiple,
                           kept.counts, kept.offsets, kept.report};
    // The report shares the last launch, since it does not need the results of that launch's body.
    if (cuts) {
      run(keep);
      run(detail::with_report<detail::number_pairs, reporting>{{lists, kept.positions}, report});
    } else {
      run(detail::with_report<writing, reporting>{keep, report});
    }
  }

  [[nodiscard]] int class_bits() const {
    return detail::bit_width(static_cast<std::uint64_t>(options_.classes - 1));
  }

  template <class Body>
  void run(Body const& body, index_t problems) const {
    detail::launch(context_, problems, body, scratch_.data());
  }
  template <class Body>
  void run(Body const& body) const {
    run(body, body.problems());
  }

  context context_;
  capacity_options options_;
  double largest_factor_ = 0;
  detail::buffer<double, context> factors_;
  detail::buffer<std::int32_t, context> places_;
  detail::buffer<std::int32_t, context> experts_at_;
  detail::buffer<std::int32_t, context> pool_begins_;
  detail::buffer<std::byte, context> bytes_;
  detail::buffer<std::byte, context> scratch_;
};

template <execution_policy P>
capacity_mask(P const&, capacity_options const&) -> capacity_mask<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
