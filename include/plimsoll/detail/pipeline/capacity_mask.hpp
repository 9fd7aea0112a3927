// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `capacity_mask`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/capacity_mask.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/host/capacity_mask.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Memory of `capacity_mask`, which the constructor takes, and the launches of a batch, which
/// neither allocate nor synchronise. The caller synchronises after the constructor.
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
    places_ = {context_, order.places};
    experts_at_ = {context_, order.experts};
    pool_begins_ = {context_, order.begins};
    bytes_ = {context_, static_cast<index_t>(bytes_taken_by<pair_lists>(
                            options.max_tokens * width(), options.experts, columns(), false))};
    bytes_.zero();
    reserve_scratch();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  /// Options of the constructor, with `candidates` set where it was 0.
  [[nodiscard]] capacity_options const& options() const { return options_; }

  /// Capacity of an expert in a batch of `tokens` tokens; the largest one if experts have factors
  /// of their own.
  [[nodiscard]] index_t capacity(index_t tokens) const { return largest_rule(tokens).of(0); }

  /// The most rows of all experts of a batch, padding included.
  [[nodiscard]] index_t max_rows(index_t tokens) const {
    return most_rows(options_, largest_rule(tokens));
  }

  /// Checks the shapes of a batch.
  template <class Ids, class Scores, class KeptId>
  void expect_batch(std::string_view name, Ids const& ids, Scores const& scores,
                    capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) const {
    expect_capacity_batch(name, options_, largest_rule(ids.extent(0)), ids, scores, batch, kept);
  }

  [[nodiscard]] pair_lists lists_for(index_t tokens) const {
    scratch memory(bytes_.data());
    // Arrays have the same addresses for all batches: on a device, counts stay zero between them.
    pair_lists lists = pair_lists::in(memory, options_.max_tokens * width(), options_.experts,
                                      columns(), runs_on_device<Context>);
    lists.tiles.items = tokens * width();
    lists.experts = options_.experts;
    lists.width = width();
    lists.by_width = divisor(width());
    lists.choices = options_.top_k;
    lists.pools = pools();
    lists.by_rank = options_.ranks > 0;
    lists.places = places_.data();
    lists.experts_at = experts_at_.data();
    lists.pool_begins = pool_begins_.data();
    return lists;
  }

  /// Enqueues all steps of a batch.
  template <class Id, class Score, class KeptId>
  void enqueue(matrix_ref<Id const> ids, matrix_ref<Score const> scores,
               capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) {
    pair_lists const lists = lists_for(ids.extent(0));
    run(count_pairs<Id>{lists, ids});
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
    bool const choices_first = options_.topk_first && kinds() > 1;
    bool const cuts = options_.max_selected > 0 && options_.max_selected < width();

    if (lists.tiles.scanned()) {
      run(scan_pairs{lists.tiles});
    }
    if (experts_left_out > 0) {
      run(rank_experts{lists, experts_left_out}, options_.experts);
    }
    gather_pairs<Score> const gather{.lists = lists,
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
    run(select_pairs{lists, rule, gather.key_bits(), !cuts, kept.counts, kept.positions},
        lists.pools);
    using writing = keep_pairs<Id, Score, KeptId>;
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
    report_pairs const report{
        lists,       rule,         {options_.pad, options_.multiple, options_.min_rows},
        kept.counts, kept.offsets, kept.report};
    // The report shares the last launch, since it does not need the results of that launch's body.
    if (cuts) {
      run(keep);
      run(with_report<number_pairs>{{lists, kept.positions}, report});
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
    scan_pairs const scan{lists.tiles};
    reserve(scan.problems(), scan);
    gather_pairs<float> gather{};
    gather.lists = lists;
    reserve(gather.problems(), gather);
    reserve(lists.pools, select_pairs{});
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
  buffer<std::int32_t, Context> places_;
  buffer<std::int32_t, Context> experts_at_;
  buffer<std::int32_t, Context> pool_begins_;
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
};

}}}  // namespace plimsoll::detail
