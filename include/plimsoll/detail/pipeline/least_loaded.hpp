// SPDX-License-Identifier: Apache-2.0
/// @file
/// A prepared `least_loaded`: its memory, and the launches of its calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/least_loaded.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/least_loaded.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Cost>
spill_pricing<Cost> pricing_of(least_loaded_options const& options,
                               spill_price<Cost> const& price) {
  if constexpr (std::is_void_v<Cost>) {
    return {};
  } else {
    auto const bytes = static_cast<double>(options.expert_bytes);
    return {price.cost, bytes / price.within_node, bytes / price.between_nodes};
  }
}

/// The arrays of a prepared object.
struct spill_arrays {
  spill_plan_arrays plan;
  spill_routes routes;
  spill_exchange_report* exchange_report;  ///< `[1]`
  std::byte* tile_counts_memory;           ///< of `tile_counts` of any batch

  template <class Memory>
  PLIMSOLL_HD static spill_arrays in(Memory& memory, spill_array_sizes const& n, index_t max_ids) {
    spill_arrays result{};
    result.plan = spill_plan_arrays::in(memory, n);
    result.routes = spill_routes::in(memory, n);
    result.routes.offsets = result.plan.offsets;
    result.routes.segments = result.plan.segments;
    memory.take(result.exchange_report, 1);
    memory.take(result.tile_counts_memory,
                static_cast<index_t>(bytes_taken_by<tile_counts>(max_ids, n.experts + 2)));
    return result;
  }
};

/// Plans of one set of options, in the memory of a context.
///
/// @tparam Cost the cost model of the price, or `void`
template <class Context, class Cost>
class least_loaded_pipeline {
 public:
  /// Checks the options and the price, and reads the ranks. Does not wait for the context's work.
  least_loaded_pipeline(Context const& context, least_loaded_options const& options,
                        spill_price<Cost> const& price)
      : context_(context),
        options_(options),
        pricing_(pricing_of(options, expect_price(name, context, options.on.ranks, price))) {
    expect_spill_options(name, options);
    read_ranks();
    take_arrays();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] least_loaded_options const& options() const { return options_; }
  [[nodiscard]] spill_plan_arrays const& plan() const { return arrays_.plan; }
  /// Returns the routes of the rank given to `enqueue_exchange`; the rank is -1 before.
  [[nodiscard]] spill_routes const& routes() const { return arrays_.routes; }
  [[nodiscard]] spill_exchange_report* exchange_report() const { return arrays_.exchange_report; }
  [[nodiscard]] index_t segment_limit() const {
    return spill_plan_arrays::segment_limit(options_.experts, options_.on.ranks, homes_.pairs);
  }
  /// `[experts]`: the sums of `enqueue_add_up`.
  [[nodiscard]] vector_ref<std::int64_t const> loads() const {
    return {arrays_.routes.totals, options_.experts};
  }

  template <class Id>
  void enqueue_count(matrix_ref<Id const> const& topk_ids, vector_ref<std::int32_t> counts) const {
    auto body = tokens_body(topk_ids);
    body.counts = counts;
    body.now = decltype(body)::phase::count;
    run(body.problems(), body);
    body.now = decltype(body)::phase::scan;
    run(body.problems(), body);
  }

  void enqueue_add_up(matrix_ref<std::int32_t const> counts) const {
    count_sources_body const body{counts, arrays_.routes};
    run(body.problems(), body);
  }

  template <class Loads>
  void enqueue_plan(Loads const& loads) const {
    run(1, plan_body(loads));
  }

  void enqueue_exchange(index_t rank) {
    arrays_.routes.rank = rank;
    run(1, list_spills_body{arrays_.routes});
    run(options_.on.ranks, exchange_body{arrays_.routes, arrays_.exchange_report});
  }

  template <class Id>
  void enqueue_route(matrix_ref<Id const> const& topk_ids, matrix_ref<std::int32_t> destinations,
                     matrix_ref<std::int32_t> rows, spill_counters* counters) const {
    auto body = tokens_body(topk_ids);
    body.destinations = destinations;
    body.rows = rows;
    body.counters = counters;
    body.now = decltype(body)::phase::assign;
    run(body.problems(), body);
  }

  void enqueue_arrange(vector_ref<std::int32_t> arranged) const {
    run(options_.on.ranks, arrange_rows_body{arrays_.routes, arranged});
  }

 private:
  static constexpr char const* name = "least_loaded";

  void read_ranks() {
    index_t const experts = options_.experts;
    index_t const ranks = options_.on.ranks;
    auto const speeds = read_speeds(name, context_, options_.on);
    spill_home_lists const lists(read_homes(name, context_, options_, speeds.speed), ranks);
    std::vector<std::int32_t> numbers;
    for (auto const* list :
         {&lists.expert_begin, &lists.rank, &lists.rank_begin, &lists.expert, &lists.place}) {
      numbers.insert(numbers.end(), list->begin(), list->end());
    }
    numbers_ = {context_, numbers};
    speeds_ = {context_, speeds.speed};
    auto const pairs = static_cast<index_t>(lists.rank.size());
    std::int32_t const* end = numbers_.data();
    auto const next = [&end](index_t size) { return std::exchange(end, end + size); };
    ranks_ =
        speeds.levels({.ranges = {{}, experts, ranks}, .nodes = options_.on.nodes}, speeds_.data());
    homes_ = {experts,         pairs,       next(experts + 1), next(pairs),
              next(ranks + 1), next(pairs), next(pairs)};
    most_held_ = lists.most_held();
  }

  void take_arrays() {
    spill_array_sizes const sizes{options_.experts, options_.on.ranks, segment_limit()};
    bytes_ = {context_,
              static_cast<index_t>(bytes_taken_by<spill_arrays>(sizes, options_.max_ids))};
    scratch memory(bytes_.data());
    arrays_ = spill_arrays::in(memory, sizes, options_.max_ids);
    index_t bytes = 0;
    auto const reserve = [&](index_t problems, auto const& body) {
      bytes = std::max(bytes, launch_bytes(context_, problems, body));
    };
    reserve(1, plan_body(loads()));
    reserve(options_.on.ranks, arrange_rows_body{arrays_.routes, {}});
    auto const tokens = tokens_body(matrix_ref<std::int64_t const>(nullptr, options_.max_ids, 1));
    reserve(tokens.problems(), tokens);
    scratch_ = {context_, bytes};
  }

  [[nodiscard]] spill_rules rules() const {
    least_loaded_options const& o = options_;
    auto const imports = static_cast<std::int32_t>(import_limit(o));
    // A limit of `experts` imports or of `experts * ranks` exports cannot be exceeded.
    bool const limited = imports < o.experts || o.max_exports < o.experts * o.on.ranks;
    bool const plain = std::is_void_v<Cost> && !limited && o.on.nodes == 1 && ranks_.speed.even &&
                       homes_.pairs == homes_.experts;
    return {.plain = plain,
            .listed = plain && most_held_ <= spill_rules::most_listed,
            .alpha = o.alpha,
            .lambda = o.lambda,
            .by_expert = o.trigger == spill_trigger::expert_imbalance,
            .round_up = o.round == rounding_mode::up,
            .keep_excess = o.small_excess == small_excess_policy::native,
            .limited = limited,
            .min_chunk = static_cast<std::int32_t>(o.min_chunk),
            .max_imports = imports,
            .max_exports = static_cast<std::int32_t>(o.max_exports),
            .expert_bytes = o.expert_bytes,
            .token_bytes = o.token_bytes};
  }
  template <class Loads>
  [[nodiscard]] auto plan_body(Loads const& loads) const {
    return spill_body<Loads, Cost>{loads, homes_, ranks_, rules(), pricing_, arrays_.plan};
  }
  template <class Id>
  [[nodiscard]] spill_tokens_body<Id> tokens_body(matrix_ref<Id const> const& ids) const {
    scratch memory(arrays_.tile_counts_memory);
    spill_tokens_body<Id> body{};
    body.ids = ids;
    body.routes = arrays_.routes;
    body.tiles = tile_counts::in(memory, ids.extent(0) * ids.extent(1), options_.experts + 2);
    return body;
  }

  template <class Body>
  void run(index_t problems, Body const& body) const {
    launch(context_, problems, body, scratch_.data());
  }

  Context context_;
  least_loaded_options options_;
  spill_pricing<Cost> pricing_;
  rank_levels ranks_{};
  spill_homes homes_{};
  index_t most_held_ = 0;  // the most experts that one rank holds
  spill_arrays arrays_{};
  buffer<std::int32_t, Context> numbers_;
  buffer<double, Context> speeds_;
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
};

}}}  // namespace plimsoll::detail
