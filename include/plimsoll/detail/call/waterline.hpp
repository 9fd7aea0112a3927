// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of a prepared `waterline`: checks options and shapes, tables of slots, launches, and
/// messages about refused loads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/waterline.hpp>
#include <plimsoll/detail/algorithm/waterline_fill.hpp>
#include <plimsoll/detail/algorithm/waterline_plan.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/phases.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns whether results are those of SGLang's kernels.
inline bool is_literal(waterline_options const& options) {
  return options.arithmetic == fill_arithmetic::sglang;
}

inline void expect_waterline_options(std::string_view function, waterline_options const& options) {
  expect_rank_set(function, options.on);
  expect_between(function, "options.slots", 1, 0x7fffffff - options.on.ranks, options.slots,
                 "slots");
  expect_between(function, "options.top_k", 1, 512, options.top_k, "ids per token");
  expect_between(function, "options.max_tokens", 0, 0x7fffffff / options.top_k, options.max_tokens,
                 "tokens (below 2^31 ids)");
  expect_between(function, "options.min_tokens", 0, 0x7fffffff, options.min_tokens, "tokens");
  auto const expect_preference = [=](char const* argument, double preference) {
    if (!(preference >= 1 && preference <= 16)) {
      fail(function, argument, "a number from 1 to 16", text(preference));
    }
  };
  expect_preference("options.local_preference", options.local_preference);
  expect_preference("options.node_preference", options.node_preference);
  if (!__builtin_isfinite(options.weight)) {
    fail(function, "options.weight", "a finite number", text(options.weight));
  }
  expect_enumerator(function, "options.method", fill_method::sampled, options.method);
  expect_enumerator(function, "options.candidates", candidate_ranks::all, options.candidates);
  expect_enumerator(function, "options.counts", counted_ranks::own, options.counts);
  expect_enumerator(function, "options.arithmetic", fill_arithmetic::sglang, options.arithmetic);
  if (is_literal(options) && options.method != fill_method::sampled) {
    fail(function, "options.arithmetic", "exact unless fill_method::sampled is set", "sglang");
  }
}

/// Checks the shape of the first slots of ranks and returns the ranges of slots; no offsets spread
/// slots evenly.
inline slot_ranges waterline_ranges(std::string_view function, std::string_view argument,
                                    vector_ref<std::int32_t const> const& rank_offsets,
                                    index_t slots, index_t ranks) {
  if (!is_given(function, argument, rank_offsets)) {
    return {{}, slots, ranks};
  }
  expect_extent(function, argument, ranks + 1, rank_offsets.extent(0), "offsets (ranks + 1)");
  matrix_ref<std::int32_t const> row(rank_offsets.data, 1, ranks + 1);
  row.strides[1] = rank_offsets.stride(0);
  return {row, slots, ranks};
}

/// Returns a call of a member, with the axes of the options.
inline checked_call waterline_call(std::string_view function, waterline_options const& options) {
  return {function,
          {{"top_k", options.top_k, "ids per token"},
           {"2", 2, "rows (routed load, tokens at home)"},
           {"ranks", options.on.ranks}}};
}

template <class Ids>
void expect_waterline_ids(std::string_view function, waterline_options const& options,
                          Ids const& topk_ids) {
  expect_between(function, "topk_ids", 0, options.max_tokens, topk_ids.extent(0),
                 "tokens (options.max_tokens)");
}

inline void expect_waterline_source(std::string_view function, waterline_options const& options,
                                    index_t source) {
  expect_between(function, "source", 0, options.on.ranks - 1, source, "as rank");
}

/// Checks the shapes of the inputs and outputs of `fill`.
template <class Id, class OutId>
void expect_waterline_rows(std::string_view function, waterline_options const& options,
                           matrix_ref<Id const> const& topk_ids, waterline_batch const& batch,
                           matrix_ref<OutId> const& ids, filled_rows const& rows) {
  index_t const tokens = topk_ids.extent(0);
  auto const expect_matrix = [=](char const* argument, auto const& matrix, index_t columns) {
    if (is_given(function, argument, matrix)) {
      expect_extent(function, argument, tokens, matrix.extent(0), "tokens");
      expect_extent(function, argument, columns, matrix.extent(1), "columns");
    }
  };
  expect_waterline_ids(function, options, topk_ids);
  expect_matrix("batch.weights", batch.weights, options.top_k);
  expect_matrix("ids", ids, options.top_k + 1);
  expect_matrix("rows.weights", rows.weights, options.top_k + 1);
  if (rows.weights.data != nullptr && batch.weights.data == nullptr && tokens > 0) {
    fail(function, "batch.weights", "weights, as rows.weights is set", "none");
  }
  if (is_given(function, "rows.ranks", rows.ranks)) {
    expect_extent(function, "rows.ranks", tokens, rows.ranks.extent(0), "tokens");
  }
}

inline waterline_rules rules_of(waterline_options const& options) {
  auto const fixed = [](double x) { return static_cast<std::int64_t>(x * 65536 + 0.5); };
  return {.sampled = options.method == fill_method::sampled,
          .literal = is_literal(options),
          .local_counts_only = options.counts == counted_ranks::own,
          .any_rank = options.candidates == candidate_ranks::all,
          .min_tokens = options.min_tokens,
          .top_k = options.top_k,
          .local_preference = fixed(options.local_preference),
          .node_preference = fixed(options.node_preference),
          .margin = options.local_preference};
}

/// Arrays that a `waterline` keeps between calls, except the counts of proposals.
struct waterline_arrays {
  waterline_memory line;
  waterline_report* report;
  std::int32_t* proposal;  ///< `[max_tokens]`

  PLIMSOLL_HD static waterline_arrays in(scratch& memory, index_t ranks, index_t max_tokens) {
    waterline_arrays result{waterline_memory::in(memory, ranks), nullptr, nullptr};
    memory.take(result.report, 1);
    memory.take(result.proposal, max_tokens);
    return result;
  }
};

/// State of a `waterline`. Its calls take checked arguments, enqueue kernels, and neither allocate
/// nor synchronize.
template <class Context>
class waterline_pipeline {
 public:
  /// Throws for options, offsets and speeds. Does not wait for the context's work.
  waterline_pipeline(Context const& context, waterline_options const& options)
      : context_(context), options_(options) {
    constexpr char const* name = "waterline";
    expect_waterline_options(name, options);
    bool const given = options.rank_offsets.data != nullptr;
    slot_ranges const ranges = waterline_ranges(name, "options.rank_offsets", options.rank_offsets,
                                                options.slots, options.on.ranks);
    index_t const ranks = options.on.ranks;
    tables_memory_ = {context,
                      static_cast<index_t>(bytes_taken_by<waterline_tables>(ranks, options.slots))};
    scratch memory(tables_memory_.data());
    tables_ = waterline_tables::in(memory, ranks, options.slots);
    ranks_ = {{.ranges = {{}, options.slots, ranks}, .nodes = options.on.nodes},
              tables_.speed,
              tables_.numbers};
    take_memory();
    enqueue_update(ranges, &options.on);
    expect_no_fault(name, last_update(), -1,
                    {{{"on.", "options.on."},
                      {"rank_offsets", given ? "options.rank_offsets" : "options.slots"}}});
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] waterline_options const& options() const { return options_; }
  [[nodiscard]] vector_ref<waterline_report> report() const { return {arrays_.report, 1}; }
  /// Waits for the context's work and throws what the last calls refused.
  void check(std::string_view function, std::string_view update) const {
    expect_no_fault(update, last_update());
    fault const found = on_host(context_, report()).front().refused;
    // Any other is a value of the loads, which `function` takes.
    expect_no_fault(found.kind == fault_kind::source ? "waterline::fill" : function, found);
  }
  [[nodiscard]] vector_ref<std::int64_t const> slack() const {
    return {arrays_.line.slack, options_.on.ranks};
  }

  /// Takes other slots of ranks; without `on` liveness and speeds stay.
  void update(std::string_view function, vector_ref<std::int32_t const> const& rank_offsets,
              std::optional<rank_set> const& on) {
    slot_ranges const ranges =
        waterline_ranges(function, "rank_offsets", rank_offsets, options_.slots, options_.on.ranks);
    std::optional<rank_set> const ranks = with_ranks_of(function, on, options_.on.ranks);
    enqueue_update(ranges, ranks ? &*ranks : nullptr);
  }
  /// Waits, and throws for the first rank whose slots are not the ones in use.
  void expect_current(std::string_view function,
                      vector_ref<std::int32_t const> const& rank_offsets) const {
    index_t const ranks = options_.on.ranks;
    slot_ranges const ranges =
        waterline_ranges(function, "rank_offsets", rank_offsets, options_.slots, ranks);
    std::vector<std::int32_t> const begins = ranges.offsets.data != nullptr
                                                 ? on_host(context_, rank_offsets)
                                                 : even_begins(1, options_.slots, ranks);
    std::vector<std::int32_t> const shared =
        on_host(context_, vector_ref<std::int32_t const>(tables_.shared_slot, ranks));
    for (std::int32_t r = -1; r < ranks; ++r) {
      std::int32_t const end = r < 0 ? 0 : shared[static_cast<std::size_t>(r)] - r;
      std::int32_t const got = begins[static_cast<std::size_t>(r) + 1];
      if (got != end) {
        fail(function, "rank_offsets", text(end, ", as in the slots in use"),
             text(got, " at ", r + 1));
      }
    }
  }

  template <class Id>
  void enqueue_count(matrix_ref<Id const> const& topk_ids, index_t source,
                     matrix_ref<std::int64_t> const& loads) {
    auto body = count_body(topk_ids, source, loads);
    body.clearing = true;
    run(body);
    body.clearing = false;
    run(body);
  }
  void enqueue_plan(matrix_ref<std::int64_t const> const& loads, index_t source) {
    run(plan_body(loads, source));
  }
  template <class Id, class OutId>
  void enqueue_fill(matrix_ref<Id const> const& topk_ids, index_t source,
                    waterline_batch const& batch, matrix_ref<OutId> const& ids,
                    filled_rows const& rows) {
    launch_phases(
        context_, fill_body(topk_ids, source, batch, ids, rows), scratch_.data(),
        resident_[sizeof(Id) / sizeof(std::int64_t)][sizeof(OutId) / sizeof(std::int64_t)]);
  }

 private:
  void take_memory() {
    index_t const ranks = options_.on.ranks;
    index_t const tokens = options_.max_tokens;
    bytes_ = {context_, static_cast<index_t>(bytes_taken_by<waterline_arrays>(ranks, tokens) +
                                             bytes_taken_by<proposal_counts>(tokens, ranks + 1))};
    bytes_.zero();  // nothing is planned or reported yet
    scratch memory(bytes_.data());
    arrays_ = waterline_arrays::in(memory, ranks, tokens);
    count_memory_ = memory;
    auto const bytes_of = [this](auto const& body) {
      return launch_bytes(context_, body.problems(), body);
    };
    matrix_ref<std::int64_t const> const largest(nullptr, tokens, options_.top_k);
    matrix_ref<std::int64_t> const unused;
    scratch_ = {
        context_,
        std::max({bytes_of(plan_body({}, 0)),
                  bytes_of(count_body(largest, 0, matrix_ref<std::int64_t>(nullptr, 2, ranks))),
                  phases_bytes(context_, fill_body(largest, 0, {}, unused, {}))})};
  }

  template <class Id>
  [[nodiscard]] waterline_rows<Id> rows_of(matrix_ref<Id const> const& ids) const {
    return {ids, tables_.rank_of, options_.slots};
  }
  template <class Id>
  [[nodiscard]] waterline_count_body<Id> count_body(matrix_ref<Id const> const& ids, index_t source,
                                                    matrix_ref<std::int64_t> const& loads) const {
    return {rows_of(ids), loads, source, is_literal(options_), false};
  }
  [[nodiscard]] waterline_plan_body plan_body(matrix_ref<std::int64_t const> const& loads,
                                              index_t source) const {
    return {ranks_, rules_of(options_), loads, source, arrays_.line, report()};
  }
  template <class Id, class OutId>
  [[nodiscard]] waterline_fill_body<Id, OutId> fill_body(matrix_ref<Id const> const& topk_ids,
                                                         index_t source,
                                                         waterline_batch const& batch,
                                                         matrix_ref<OutId> const& ids,
                                                         filled_rows const& rows) const {
    bool const sampled = options_.method == fill_method::sampled;
    scratch memory = count_memory_;
    auto const counts = proposal_counts::in(memory, topk_ids.extent(0), options_.on.ranks + 1);
    return {.ranks = ranks_,
            .rules = rules_of(options_),
            .memory = arrays_.line,
            .source = source,
            .tiles = counts.even_rounds,
            .odd_counts = counts.odd_rounds,
            .proposal = arrays_.proposal,
            .rows = rows_of(topk_ids),
            .shared_slot = tables_.shared_slot,
            .shared_weight = options_.weight,
            .weights = batch.weights,
            .out_ids = ids,
            .out_weights = rows.weights,
            .out_ranks = rows.ranks,
            .report = report(),
            .seed = options_.seed,
            .subsequence = batch.subsequence,
            .rounds = sampled ? 0 : waterline_state::most_rounds,
            .one_launch = false,
            .keeps_scratch = false};
  }

  void enqueue_update(slot_ranges const& ranges, rank_set const* on) {
    launch(context_, 1,
           waterline_tables_body{tables_, ranges, input_of(on), is_literal(options_),
                                 arrays_.line.state},
           scratch_.data());
  }
  /// Waits for the context's work.
  [[nodiscard]] fault last_update() const {
    return on_host(context_, vector_ref<problem_report const>(tables_.update, 1)).front().refused;
  }

  template <class Body>
  void run(Body const& body) const {
    launch(context_, body.problems(), body, scratch_.data());
  }

  Context context_;
  waterline_options options_;
  rank_levels ranks_{};
  waterline_tables tables_{};
  buffer<std::byte, Context> tables_memory_;
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
  waterline_arrays arrays_{};
  scratch count_memory_{nullptr};
  resident_blocks resident_[2][2];  // of `fill`, by the types of its ids, int32 and int64
};

}}}  // namespace plimsoll::detail
