// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of a `waterline` and the launches of its calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/waterline.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/waterline.hpp>
#include <plimsoll/detail/phases.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline line_rules rules_of(waterline_options const& options) {
  auto const fixed = [](double x) { return static_cast<std::int64_t>(x * 65536 + 0.5); };
  return {.sampled = options.method == fill_method::sampled,
          .literal = options.literal,
          .local_counts_only = options.local_counts_only,
          .any_rank = options.candidates == candidate_ranks::all,
          .min_tokens = options.min_tokens,
          .top_k = options.top_k,
          .local_preference = fixed(options.local_preference),
          .node_preference = fixed(options.node_preference),
          .margin = options.local_preference};
}

/// Arrays that a `waterline` keeps between calls, except the counts of proposals.
struct waterline_arrays {
  line_memory line;
  waterline_report* report;
  std::int32_t* proposal;  ///< `[max_tokens]`

  template <class Memory>
  PLIMSOLL_HD static waterline_arrays in(Memory& memory, index_t ranks, index_t max_tokens) {
    waterline_arrays result{line_memory::in(memory, ranks), nullptr, nullptr};
    memory.take(result.report, 1);
    memory.take(result.proposal, max_tokens);
    return result;
  }
};

/// State of a `waterline`. Its calls take checked arguments, enqueue kernels, and neither allocate
/// nor synchronise.
template <class Context>
class waterline_pipeline {
 public:
  /// Throws for options, offsets and speeds. Does not wait for the context's work.
  waterline_pipeline(Context const& context, waterline_options const& options)
      : context_(context), options_(options) {
    constexpr char const* name = "waterline";
    expect_waterline_options(name, options);
    auto const tables = read_waterline_tables(name, context, options);
    speeds_ = {context, tables.speeds.speed};
    ranks_ = tables.speeds.levels(
        {.ranges = {{}, options.slots, options.on.ranks}, .nodes = options.on.nodes},
        speeds_.data());
    rank_of_ = {context, tables.rank_of};
    shared_slot_ = {context, tables.shared_slot};
    take_memory();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] waterline_options const& options() const { return options_; }
  [[nodiscard]] vector_ref<waterline_report> report() const { return {arrays_.report, 1}; }
  [[nodiscard]] vector_ref<std::int64_t const> slack() const {
    return {arrays_.line.slack, options_.on.ranks};
  }

  template <class Id>
  void enqueue_count(matrix_ref<Id const> const& topk_ids, index_t source,
                     matrix_ref<std::int64_t> const& loads) const {
    auto body = count_body(topk_ids, source, loads);
    body.clearing = true;
    run(body);
    body.clearing = false;
    run(body);
  }
  void enqueue_plan(matrix_ref<std::int64_t const> const& loads, index_t source) const {
    run(plan_body(loads, source));
  }
  template <class Id>
  void enqueue_fill(matrix_ref<Id const> const& topk_ids, waterline_batch const& batch,
                    matrix_ref<Id> const& ids, filled_rows const& rows) const {
    launch_phases(context_, fill_body(topk_ids, batch, ids, rows), scratch_.data(),
                  resident_[sizeof(Id) / sizeof(std::int64_t)]);
  }

 private:
  void take_memory() {
    index_t const ranks = options_.on.ranks;
    index_t const tokens = options_.max_tokens;
    bytes_ = {context_, static_cast<index_t>(bytes_taken_by<waterline_arrays>(ranks, tokens) +
                                             bytes_taken_by<proposal_counts>(tokens, ranks + 1))};
    scratch memory(bytes_.data());
    arrays_ = waterline_arrays::in(memory, ranks, tokens);
    count_memory_ = memory;
    auto const bytes_of = [this](auto const& body) {
      return launch_bytes(context_, body.problems(), body);
    };
    matrix_ref<std::int64_t const> const largest(nullptr, tokens, options_.top_k);
    scratch_ = {
        context_,
        std::max({bytes_of(plan_body({}, 0)),
                  bytes_of(count_body(largest, 0, matrix_ref<std::int64_t>(nullptr, 2, ranks))),
                  phases_bytes(context_, fill_body(largest, {}, {}, {}))})};
  }

  template <class Id>
  [[nodiscard]] line_rows<Id> rows_of(matrix_ref<Id const> const& ids) const {
    return {ids, rank_of_.data(), options_.slots};
  }
  template <class Id>
  [[nodiscard]] count_line<Id> count_body(matrix_ref<Id const> const& ids, index_t source,
                                          matrix_ref<std::int64_t> const& loads) const {
    return {rows_of(ids), loads, source, options_.literal, false};
  }
  [[nodiscard]] plan_line plan_body(matrix_ref<std::int64_t const> const& loads,
                                    index_t source) const {
    return {ranks_, rules_of(options_), loads, source, arrays_.line, report()};
  }
  template <class Id>
  [[nodiscard]] fill_line<Id> fill_body(matrix_ref<Id const> const& topk_ids,
                                        waterline_batch const& batch,
                                        std::type_identity_t<matrix_ref<Id>> const& ids,
                                        filled_rows const& rows) const {
    bool const sampled = options_.method == fill_method::sampled;
    scratch memory = count_memory_;
    auto const counts = proposal_counts::in(memory, topk_ids.extent(0), options_.on.ranks + 1);
    return {.ranks = ranks_,
            .rules = rules_of(options_),
            .memory = arrays_.line,
            .tiles = counts.even,
            .odd_counts = counts.odd,
            .proposal = arrays_.proposal,
            .rows = rows_of(topk_ids),
            .shared_slot = shared_slot_.data(),
            .shared_weight = options_.weight,
            .weights = batch.weights,
            .out_ids = ids,
            .out_weights = rows.weights,
            .out_ranks = rows.ranks,
            .report = report(),
            .seed = options_.seed,
            .subsequence = batch.subsequence,
            .rounds = sampled ? 0 : line_state::most_rounds,
            .one_launch = false};
  }

  template <class Body>
  void run(Body const& body) const {
    launch(context_, body.problems(), body, scratch_.data());
  }

  Context context_;
  waterline_options options_;
  rank_levels ranks_{};
  buffer<double, Context> speeds_;
  buffer<std::int32_t, Context> rank_of_;
  buffer<std::int32_t, Context> shared_slot_;
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
  waterline_arrays arrays_{};
  scratch count_memory_{nullptr};
  // For `fill` with int32 and with int64 ids. Mutable: an object works on one batch at a time.
  mutable resident_blocks resident_[2];
};

}}}  // namespace plimsoll::detail
