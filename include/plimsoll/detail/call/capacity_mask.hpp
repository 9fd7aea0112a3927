// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `capacity_mask`: checks options and shapes, reads the factors of experts, and launches
/// the bodies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/capacity_mask.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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
  expect_enumerator(name, "options.round", rounding_mode::up, o.round);
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
  expect_enumerator(name, "options.order", candidate_order::together, o.order);
  expect_enumerator(name, "options.drop_by", drop_policy::random, o.drop_by);
  expect_enumerator(name, "options.normalize", normalization::to_sum, o.normalize);
  expect_enumerator(name, "options.pad", padding_mode::to_multiple, o.pad);
  if (o.pad == padding_mode::to_capacity && o.ranks > 0) {
    fail(name, "options.pad", "none or to_multiple, as ranks share a capacity", "to_capacity");
  }
  expect_between(name, "options.multiple", 1, 0x7fffffff, o.multiple, "rows");
  expect_between(name, "options.min_rows", 0, 0x7fffffff, o.min_rows, "rows");
}

/// Returns the most rows of all experts of a batch; `rule` gives the largest capacity of an expert.
inline index_t most_rows(capacity_options const& o, capacity_rule const& rule) {
  row_padding const padding{o.pad, o.multiple, o.min_rows};
  if (o.pad == padding_mode::to_capacity) {
    return padding.rows(0, rule.width(0)) * o.experts;
  }
  // Rounding up adds at most multiple - 1 rows to an expert, and none to the least rows and the
  // pairs together, as the least rows are a multiple already.
  index_t const extra = o.min_rows > 0                       ? padding.rows(0, 0)
                        : o.pad == padding_mode::to_multiple ? o.multiple - 1
                                                             : 0;
  return rule.tokens * o.candidates + extra * o.experts;
}

/// Checks the shapes of a batch with the tokens, candidates and experts of `call`; `rule` gives the
/// largest capacity of an expert in it.
template <class KeptId>
void expect_capacity_batch(checked_call& call, capacity_options const& o, capacity_rule const& rule,
                           capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) {
  call.expect_given("batch.priorities", batch.priorities, "[tokens]");
  call.expect_given("batch.weights", batch.weights, "[tokens, candidates]");
  call.expect_given("kept.ids", kept.ids, "[tokens, candidates]");
  call.expect_given("kept.weights", kept.weights, "[tokens, candidates]");
  call.expect_given("kept.positions", kept.positions, "[tokens, candidates]");
  expect_elements(call, "kept.counts", kept.counts);
  static_cast<void>(one_element(call, "kept.report", kept.report));
  call.expect("kept.counts", kept.counts, "[experts]");
  if (is_given(call, "kept.offsets", kept.offsets)) {
    expect_extent(call, "kept.offsets", o.experts + 1, kept.offsets.extent(0), "offsets");
    expect_between(call, "kept.offsets", 0, 0x7fffffff, most_rows(o, rule), "rows with padding");
  }
}

/// Reads and checks `options.factors`; empty without them.
template <class Context>
std::vector<double> read_factors(std::string_view name, Context const& context,
                                 capacity_options const& o) {
  if (!is_given(name, "options.factors", o.factors)) {
    return {};
  }
  expect_extent(name, "options.factors", o.experts, o.factors.extent(0), "experts");
  std::vector<double> factors = on_host(context, o.factors);
  for (std::size_t e = 0; e < factors.size(); ++e) {
    if (!(factors[e] >= 0)) {
      fail(name, "options.factors", "at least 0", text(factors[e], " for expert ", e));
    }
  }
  return factors;
}

/// Experts sorted by rank.
struct expert_order {
  std::vector<std::int32_t> positions;  ///< `[experts]`: position of each expert in the order
  std::vector<std::int32_t> experts;    ///< `[experts]`: the inverse
  std::vector<std::int32_t> begins;     ///< `[ranks + 1]`: first position of each rank
};

/// Reads and checks `options.rank_of` and sorts experts by rank; empty without it.
template <class Context>
expert_order order_experts(std::string_view name, Context const& context,
                           capacity_options const& o) {
  if (!is_given(name, "options.rank_of", o.rank_of)) {
    return {};
  }
  expect_extent(name, "options.rank_of", o.experts, o.rank_of.extent(0), "experts");
  std::vector<std::int32_t> const ranks = on_host(context, o.rank_of);
  std::vector<std::int32_t> begins(static_cast<std::size_t>(o.ranks) + 1);
  for (std::size_t e = 0; e < ranks.size(); ++e) {
    if (ranks[e] < 0 || ranks[e] >= o.ranks) {
      fail(name, "options.rank_of", text("0 to ", o.ranks - 1, " as rank"),
           text(ranks[e], " for expert ", e));
    }
    ++begins[static_cast<std::size_t>(ranks[e]) + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<std::int32_t> next = begins;
  std::vector<std::int32_t> positions(ranks.size());
  std::vector<std::int32_t> experts(ranks.size());
  for (std::size_t e = 0; e < ranks.size(); ++e) {
    positions[e] = next[static_cast<std::size_t>(ranks[e])]++;
    experts[static_cast<std::size_t>(positions[e])] = static_cast<std::int32_t>(e);
  }
  return {std::move(positions), std::move(experts), std::move(begins)};
}

/// Memory of `capacity_mask`, which the constructor takes, and the launches of a batch, which
/// neither allocate nor synchronize. The caller synchronizes after the constructor.
template <class Context>
class capacity_mask_pipeline {
 public:
  capacity_mask_pipeline(Context const& context, capacity_options const& options)
      : context_(context), options_(options) {
    constexpr char const* name = "capacity_mask";
    expect_capacity_options(name, options);
    options_.candidates = width();
    std::vector<double> const factors = read_factors(name, context_, options);
    largest_factor_ =
        factors.empty() ? options.factor : *std::max_element(factors.begin(), factors.end());
    factors_ = {context_, factors};
    expert_order const order = order_experts(name, context_, options);
    positions_ = {context_, order.positions};
    experts_at_ = {context_, order.experts};
    pool_begins_ = {context_, order.begins};
    bytes_ = {context_,
              static_cast<index_t>(bytes_taken_by<pair_lists>(
                  options.max_tokens * width(), options.experts, pools(), columns(), false))};
    bytes_.zero();
    reserve_scratch();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  /// Options of the constructor, with `candidates` set where it was 0.
  [[nodiscard]] capacity_options const& options() const { return options_; }

  /// Capacity of an expert in a batch of `tokens` tokens; the largest one if experts have factors
  /// of their own.
  [[nodiscard]] index_t capacity(index_t tokens) const { return largest_rule(tokens).capacity(0); }

  /// The most rows of all experts of a batch, padding included.
  [[nodiscard]] index_t max_rows(index_t tokens) const {
    return most_rows(options_, largest_rule(tokens));
  }

  /// Checks the shapes of a batch.
  template <class KeptId>
  void expect_batch(checked_call& call, index_t tokens, capacity_batch const& batch,
                    kept_pairs_of<KeptId> const& kept) const {
    expect_capacity_batch(call, options_, largest_rule(tokens), batch, kept);
  }

  [[nodiscard]] pair_lists lists_for(index_t tokens) const {
    scratch memory(bytes_.data());
    // Arrays have the same addresses for all batches: on a device, counts stay zero between them.
    pair_lists lists = pair_lists::in(memory, options_.max_tokens * width(), options_.experts,
                                      pools(), columns(), runs_on_device<Context>);
    lists.tiles.items = tokens * width();
    lists.experts = options_.experts;
    lists.width = width();
    lists.by_width = divisor(width());
    lists.choices = options_.top_k;
    lists.pools = pools();
    lists.by_rank = options_.ranks > 0;
    lists.positions_of = positions_.data();
    lists.experts_at = experts_at_.data();
    lists.pool_begins = pool_begins_.data();
    return lists;
  }

  /// Enqueues all steps of a batch.
  template <class Id, class Score, class KeptId>
  void enqueue(matrix_ref<Id const> ids, matrix_ref<Score const> scores,
               capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) {
    pair_lists const lists = lists_for(ids.extent(0));
    run(count_pairs_body<Id>{lists, ids});
    enqueue_counted(lists, ids, scores, batch, kept);
  }

  /// Enqueues the steps that follow the counting of pairs.
  template <class Id, class Score, class KeptId>
  void enqueue_counted(pair_lists lists, matrix_ref<Id const> ids, matrix_ref<Score const> scores,
                       capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) {
    index_t const tokens = ids.extent(0);
    index_t const experts_left_out = left_out(tokens);
    if (experts_left_out == 0) {
      lists.left_out = nullptr;
    }
    capacity_rule const rule = rule_for(tokens);
    bool const ranked = batch.priorities.data != nullptr;
    bool const choices_first = options_.order == candidate_order::topk_first && kinds() > 1;
    bool const cuts = options_.max_selected > 0 && options_.max_selected < width();

    if (lists.tiles.scanned()) {
      run(scan_pairs_body{lists.tiles});
    }
    if (experts_left_out > 0) {
      run(rank_experts_body{lists, experts_left_out}, options_.experts);
    }
    gather_pairs_body<Score> const gather{.lists = lists,
                                          .scores = scores,
                                          .drop_by = options_.drop_by,
                                          .choices_first = choices_first,
                                          .classes = options_.classes,
                                          .class_bits = ranked ? class_bits() : 0,
                                          .priorities = batch.priorities,
                                          .seed = options_.seed,
                                          .subsequence = batch.subsequence,
                                          .first_token = batch.first_token};
    run(gather);
    run(select_pairs_body{lists, rule, !cuts, kept.counts, kept.positions}, lists.pools);
    using writing = keep_pairs_body<Id, Score, KeptId>;
    writing const keep{.lists = lists,
                       .ids = ids,
                       .scores = scores,
                       .weights = batch.weights,
                       .max_selected = cuts ? options_.max_selected : 0,
                       .choices_first = choices_first,
                       .normalize = options_.normalize,
                       .sentinel = options_.sentinel,
                       .kept_ids = kept.ids,
                       .kept_weights = kept.weights,
                       .positions = kept.positions,
                       .counts = kept.counts};
    report_pairs_body const report{
        lists,       rule,         {options_.pad, options_.multiple, options_.min_rows},
        kept.counts, kept.offsets, {kept.report.data_handle(), 1}};
    // The report shares the last launch, since it does not need the results of that launch's body.
    if (cuts) {
      run(keep);
      run(with_report<number_pairs_body>{{lists, kept.positions}, report});
    } else {
      run(with_report<writing>{keep, report});
    }
  }

 private:
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
                     almost(options_.expert_drop * static_cast<double>(options_.experts)));
  }
  [[nodiscard]] int class_bits() const {
    return bit_width(static_cast<std::uint64_t>(options_.classes - 1));
  }

  [[nodiscard]] capacity_rule rule_for(index_t tokens) const {
    return {.factor = options_.factor,
            .factors = factors_.data(),
            .round = options_.round,
            .least = options_.min_capacity,
            .most = options_.max_capacity,
            .tokens = tokens,
            .choices = options_.top_k,
            .experts = options_.experts,
            .unlimited = tokens < options_.min_tokens};
  }

  /// Returns the rule with the largest factor of all experts.
  [[nodiscard]] capacity_rule largest_rule(index_t tokens) const {
    capacity_rule rule = rule_for(tokens);
    rule.factors = nullptr;
    rule.factor = largest_factor_;
    return rule;
  }

  /// Takes scratch for the launch of the largest batch that needs the most.
  void reserve_scratch() {
    pair_lists const lists = lists_for(options_.max_tokens);
    index_t bytes = 0;
    auto const reserve = [&](index_t problems, auto const& body) {
      bytes = std::max(bytes, launch_bytes(context_, problems, body));
    };
    scan_pairs_body const scan{lists.tiles};
    reserve(scan.problems(), scan);
    gather_pairs_body<float> gather{};
    gather.lists = lists;
    reserve(gather.problems(), gather);
    reserve(lists.pools, select_pairs_body{});
    scratch_ = {context_, bytes};
  }

  template <class Body>
  void run(Body const& body, index_t problems) const {
    launch(context_, problems, body, scratch_.data());
  }
  template <class Body>
  void run(Body const& body) const {
    run(body, body.problems());
  }

  Context context_;
  capacity_options options_;
  double largest_factor_ = 0;
  buffer<double, Context> factors_;
  buffer<std::int32_t, Context> positions_;
  buffer<std::int32_t, Context> experts_at_;
  buffer<std::int32_t, Context> pool_begins_;
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
};

}}}  // namespace plimsoll::detail
