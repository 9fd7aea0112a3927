// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of a prepared `least_loaded`: checks options, prices and plans, lists homes, keeps the
/// memory, launches the bodies, and names refused values.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/least_loaded.hpp>
#include <plimsoll/detail/algorithm/least_loaded_homes.hpp>
#include <plimsoll/detail/algorithm/least_loaded_routes.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_least_loaded_options(std::string_view function,
                                        least_loaded_options const& options) {
  least_loaded_options const& o = options;
  expect_between(function, "options.experts", 1, expert_limit, o.experts, "experts");
  expect_rank_set(function, o.on);
  if (!(o.alpha > 0 && o.alpha <= 32768)) {
    fail(function, "options.alpha", "a number above 0, at most 32768", text(o.alpha));
  }
  expect_between(function, "options.min_chunk", 1, 0x7fffffff, o.min_chunk, "tokens");
  if (!(o.lambda >= 0)) {
    fail(function, "options.lambda", "a number from 0", text(o.lambda));
  }
  expect_between(function, "options.max_imports", 0, expert_limit, o.max_imports, "experts");
  expect_between(function, "options.max_exports", 0, 0x7fffffff, o.max_exports, "transfers");
  expect_between(function, "options.expert_bytes", 0, std::int64_t{1} << 46, o.expert_bytes,
                 "bytes");
  expect_between(function, "options.token_bytes", 0, 0x7fffffff, o.token_bytes, "bytes");
  expect_between(function, "options.max_import_bytes", 0, INT64_MAX, o.max_import_bytes, "bytes");
  if (o.max_import_bytes != INT64_MAX && o.expert_bytes == 0) {
    fail(function, "options.expert_bytes", "a size above 0 if options.max_import_bytes is set",
         "0");
  }
  expect_between(function, "options.max_token_copies", 0, 0x7fffffff, o.max_token_copies, "ids");
  expect_enumerator(function, "options.round", rounding_mode::up, o.round);
  expect_enumerator(function, "options.trigger", spill_trigger::expert_imbalance, o.trigger);
  expect_enumerator(function, "options.small_excess", small_excess_policy::home, o.small_excess);
}

/// Returns `price` if its cost is for `ranks` ranks and its numbers are in range.
template <class Context, class Cost>
spill_price<Cost> const& expect_price(std::string_view function, Context const& context,
                                      index_t ranks, spill_price<Cost> const& price) {
  auto const expect_bandwidth = [&](char const* argument, double value) {
    // Within this range no sum of transfer times overflows.
    if (!(value >= 0x1p-900 && value < 0x1p960)) {
      fail(function, argument, "a number of bytes from 2^-900 to below 2^960", text(value));
    }
  };
  if constexpr (std::same_as<Cost, moe_cost>) {
    expect_moe_cost(function, "price.cost", price.cost);
  } else if constexpr (!std::is_void_v<Cost>) {
    detail::expect_cost(function, price.cost, ranks);
  }
  if constexpr (std::same_as<Cost, token_cost> || std::same_as<Cost, latency_curves>) {
    expect_cost_speeds(function, "price.cost", on_host(context, price.cost.speeds));
  }
  if constexpr (!std::is_void_v<Cost>) {
    expect_bandwidth("price.within_node", price.within_node);
    expect_bandwidth("price.between_nodes", price.between_nodes);
  }
  return price;
}

/// Returns the most experts that a rank may receive, by number and by bytes.
inline index_t import_limit(least_loaded_options const& options) {
  return options.expert_bytes == 0
             ? options.max_imports
             : std::min<index_t>(options.max_imports,
                                 options.max_import_bytes / options.expert_bytes);
}

/// Names of the arguments with the homes of experts: whole names, so that a call that refuses
/// nothing allocates nothing for them.
struct homes_arguments {
  std::string_view home_rank;
  std::string_view residents;
  std::string_view map;
  std::string_view ranks;
  std::string_view rank_offsets;
};
inline constexpr homes_arguments homes_of_options{
    "options.home_rank", "options.residents", "options.residents.physical_to_logical",
    "options.residents.ranks", "options.residents.rank_offsets"};
inline constexpr homes_arguments homes_of_update{
    "homes.home_rank", "homes.residents", "homes.residents.physical_to_logical",
    "homes.residents.ranks", "homes.residents.rank_offsets"};

/// Returns the body that lists the homes of experts, with the shapes of the residents checked.
/// Slots or a rank for each expert are given, at most one of them; with neither, ranks hold blocks
/// of experts.
inline spill_homes_body homes_body(std::string_view function, homes_arguments const& names,
                                   expert_homes const& given, spill_homes const& homes,
                                   index_t ranks, rank_set const* on) {
  auto const& [residents, home_rank] = given;
  spill_homes_body body{homes, {}, {}, {{}, homes.experts, ranks}, input_of(on)};
  auto const& map = residents.physical_to_logical;
  bool const has_slots = is_given(function, names.map, map);
  if (has_slots && home_rank.data != nullptr) {
    fail(function, names.home_rank, text("none if ", names.residents, " is given"), "both");
  }
  if (has_slots) {
    expect_extent(function, names.map, 1, map.extent(0), "layers");
    expect_between(function, names.map, 1, homes.slots, map.extent(1), "slots");
    expect_extent(function, names.ranks, ranks, residents.ranks, "ranks (options.on.ranks)");
    expect_rank_offsets(function, names.rank_offsets, residents.rank_offsets, 1, ranks);
    body.physical_to_logical = map;
    body.ranges = {residents.rank_offsets, map.extent(1), ranks};
  } else if (is_given(function, names.home_rank, home_rank)) {
    expect_extent(function, names.home_rank, homes.experts, home_rank.extent(0), "experts");
    body.home_rank = home_rank;
  }
  return body;
}

/// The homes of experts in the memory of a context.
template <class Context>
struct prepared_homes {
  Context context;
  buffer<std::byte, Context> memory;
  spill_homes homes{};

  /// Reads and checks the ranks and the homes of options, which the caller has checked.
  prepared_homes(std::string_view name, Context const& on, least_loaded_options const& options)
      : context(on) {
    index_t const ranks = options.on.ranks;
    index_t const given = options.residents.physical_to_logical.extent(1);
    expect_between(name, "options.residents.physical_to_logical", 0, 0x7fffffff, given, "slots");
    expect_between(name, "options.max_slots", 0, 0x7fffffff, options.max_slots, "slots");
    index_t const slots = std::max({options.experts, given, options.max_slots});
    memory = {context,
              static_cast<index_t>(bytes_taken_by<spill_homes>(options.experts, ranks, slots))};
    scratch arrays(memory.data());
    homes = spill_homes::in(arrays, options.experts, ranks, slots);
    launch(context, 1,
           homes_body(name, homes_of_options, {options.residents, options.home_rank}, homes, ranks,
                      &options.on));
    bool const has_slots = options.residents.physical_to_logical.data != nullptr;
    expect_no_fault(
        name, last_update(), -1,
        {{{"on.", "options.on."},
          {"physical_to_logical", has_slots ? homes_of_options.map : homes_of_options.home_rank},
          {"home_rank", homes_of_options.home_rank},
          {"rank_offsets", homes_of_options.rank_offsets}}});
  }
  /// Waits for the context's work.
  [[nodiscard]] fault last_update() const {
    return on_host(context, vector_ref<problem_report const>(homes.update, 1)).front().refused;
  }
  /// Waits, and returns the ranks of every expert.
  [[nodiscard]] std::vector<std::vector<std::int32_t>> read() const {
    auto const begin =
        on_host(context, vector_ref<std::int32_t const>(homes.expert_begin, homes.experts + 1));
    auto const rank = on_host(context, vector_ref<std::int32_t const>(homes.rank, begin.back()));
    std::vector<std::vector<std::int32_t>> result;
    for (std::size_t e = 0; e + 1 < begin.size(); ++e) {
      result.emplace_back(rank.begin() + begin[e], rank.begin() + begin[e + 1]);
    }
    return result;
  }
};

/// Checks a plan, copied to the host, against its loads and options.
struct spill_check {
  static constexpr char const* name = "validate";

  least_loaded_options const& options;
  std::vector<std::vector<std::int32_t>> homes;
  std::vector<std::int64_t> loads;
  host_list<double> speeds;
  std::vector<std::int32_t> offsets;
  std::vector<spill_segment> segments;
  std::vector<std::int32_t> transfer_offsets;
  std::vector<spill_transfer> transfers;

  void run() const {
    expect_offsets("plan.offsets", offsets, segments.size());
    expect_offsets("plan.transfer_offsets", transfer_offsets, transfers.size());
    std::vector<std::int64_t> imports(speeds.size(), 0);
    std::vector<std::int64_t> exports(speeds.size(), 0);
    for (std::size_t e = 0; e < homes.size(); ++e) {
      std::vector<std::int32_t> const away = expect_segments(e);
      expect_transfers(e, away, imports, exports);
    }
    index_t const most = import_limit(options);
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      std::string const of_rank = text(" for rank ", r);
      if (imports[r] > most) {
        fail(name, "plan.transfers", text("at most ", most, " experts received"),
             text(imports[r], of_rank));
      }
      if (exports[r] > options.max_exports) {
        fail(name, "plan.transfers", text("at most ", options.max_exports, " transfers sent"),
             text(exports[r], of_rank));
      }
    }
  }

 private:
  /// Checks of one segment or transfer.
  struct element_check {
    char const* argument;
    std::string where;

    void operator()(bool holds, std::string const& expected, std::string const& got) const {
      if (!holds) {
        fail(name, argument, expected, got + where);
      }
    }
  };

  void expect_offsets(char const* argument, std::vector<std::int32_t> const& list,
                      std::size_t limit) const {
    for (std::size_t e = 0; e + 1 < list.size(); ++e) {
      bool const begins = e > 0 || list[0] == 0;
      if (!begins || list[e] > list[e + 1] || static_cast<std::size_t>(list[e + 1]) > limit) {
        fail(name, argument, text("offsets that rise from 0 to at most ", limit),
             text(begins ? list[e + 1] : list[0], " for expert ", e));
      }
    }
  }

  /// Returns the ranks that need the expert's weights.
  [[nodiscard]] std::vector<std::int32_t> expect_segments(std::size_t e) const {
    std::vector<std::int32_t> seen;
    std::vector<std::int32_t> away;
    std::int64_t end = 0;
    for (auto i = static_cast<std::size_t>(offsets[e]);
         i < static_cast<std::size_t>(offsets[e + 1]); ++i) {
      spill_segment const& s = segments[i];
      element_check const expect{"plan.segments", text(" in segment ", i)};
      expect(s.expert == static_cast<std::int32_t>(e), text("expert ", e),
             text("expert ", s.expert));
      expect(
          s.rank >= 0 && s.rank < options.on.ranks && speeds[static_cast<std::size_t>(s.rank)] > 0,
          "a live rank", text("rank ", s.rank));
      expect(std::find(seen.begin(), seen.end(), s.rank) == seen.end(),
             "at most 1 segment of an expert on a rank", text("rank ", s.rank, " again"));
      expect(s.begin == end && s.end > s.begin, text("tokens from ", end, " on"),
             text("[", s.begin, ", ", s.end, ")"));
      end = s.end;
      seen.push_back(s.rank);
      if (std::find(homes[e].begin(), homes[e].end(), s.rank) == homes[e].end()) {
        away.push_back(s.rank);
      }
    }
    if (end != loads[e]) {
      fail(name, "plan.segments", text("all ", loads[e], " tokens once"),
           text(end, " of expert ", e));
    }
    return away;
  }

  void expect_transfers(std::size_t e, std::vector<std::int32_t> away,
                        std::vector<std::int64_t>& imports,
                        std::vector<std::int64_t>& exports) const {
    for (auto i = static_cast<std::size_t>(transfer_offsets[e]);
         i < static_cast<std::size_t>(transfer_offsets[e + 1]); ++i) {
      spill_transfer const& t = transfers[i];
      element_check const expect{"plan.transfers", text(" in transfer ", i)};
      expect(t.expert == static_cast<std::int32_t>(e), text("expert ", e),
             text("expert ", t.expert));
      expect(std::find(homes[e].begin(), homes[e].end(), t.from) != homes[e].end(),
             "a rank that holds the expert", text("rank ", t.from));
      auto const to = std::find(away.begin(), away.end(), t.to);
      expect(to != away.end(), "each rank that needs the weights, once", text("rank ", t.to));
      expect(t.bytes == options.expert_bytes, text(options.expert_bytes, " bytes"), text(t.bytes));
      away.erase(to);
      ++imports[static_cast<std::size_t>(t.to)];
      ++exports[static_cast<std::size_t>(t.from)];
    }
    if (!away.empty()) {
      fail(name, "plan.transfers", "each rank that needs the weights, once",
           text("none of expert ", e, " to rank ", away.front()));
    }
  }
};

/// Checks a plan, whose shapes and options the caller has checked, against `loads`.
template <class Context, class Loads>
void validate_spills(Context const& context, spill_plan_ref const& plan, Loads const& loads,
                     least_loaded_options const& options) {
  char const* const name = spill_check::name;
  auto const speeds = read_speeds(name, context, options.on);
  auto const whole = on_host(context, loads);
  spill_check{.options = options,
              .homes = prepared_homes<Context>(name, context, options).read(),
              .loads = {whole.begin(), whole.end()},
              .speeds = speeds.speed,
              .offsets = on_host(context, plan.offsets),
              .segments = on_host(context, plan.segments),
              .transfer_offsets = on_host(context, plan.transfer_offsets),
              .transfers = on_host(context, plan.transfers)}
      .run();
}

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
struct least_loaded_arrays {
  spill_plan_arrays plan;
  spill_routes routes;
  std::byte* tile_counts_memory;  ///< of `tile_counts` of any batch

  PLIMSOLL_HD static least_loaded_arrays in(scratch& memory, spill_array_sizes const& n,
                                            index_t max_token_copies) {
    least_loaded_arrays result{};
    result.plan = spill_plan_arrays::in(memory, n);
    result.routes = spill_routes::in(memory, n);
    result.routes.offsets = result.plan.offsets;
    result.routes.segments = result.plan.segments;
    memory.take(result.tile_counts_memory,
                static_cast<index_t>(bytes_taken_by<tile_counts>(max_token_copies, n.experts + 2)));
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
        pricing_(pricing_of(options, expect_price(name, context, options.on.ranks, price))),
        homes_(name, context, checked(options)),
        ranks_{{.ranges = {{}, options.experts, options.on.ranks}, .nodes = options.on.nodes},
               homes_.homes.speed,
               homes_.homes.ranks} {
    take_arrays();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] least_loaded_options const& options() const { return options_; }
  [[nodiscard]] spill_plan_arrays const& plan() const { return arrays_.plan; }
  [[nodiscard]] spill_routes const& routes() const { return arrays_.routes; }
  [[nodiscard]] index_t segment_limit() const {
    return spill_plan_arrays::segment_limit(options_.experts, options_.on.ranks,
                                            homes_.homes.slots);
  }
  /// `[experts]`: the sums of `enqueue_add_up`.
  [[nodiscard]] vector_ref<std::int64_t const> loads() const {
    return {arrays_.routes.totals, options_.experts};
  }

  /// Takes other homes, of which one is given; a null `on` leaves liveness and speeds as they are.
  void update(expert_homes const& homes, std::optional<rank_set> const& on) {
    constexpr char const* function = "least_loaded::update";
    std::optional<rank_set> const ranks = with_ranks_of(function, on, options_.on.ranks);
    run(1, homes_body(function, homes_of_update, homes, homes_.homes, options_.on.ranks,
                      ranks ? &*ranks : nullptr));
  }
  /// Waits, and throws for the first expert whose homes are not the ones in use.
  void expect_current(expert_homes const& homes) const {
    constexpr char const* function = "least_loaded::expect_current";
    least_loaded_options other = options_;
    other.residents = homes.residents;
    other.home_rank = homes.home_rank;
    std::vector<double> const speeds =
        on_host(context_, vector_ref<double const>(homes_.homes.speed, options_.on.ranks));
    std::vector<std::uint8_t> lives(speeds.size());
    std::transform(speeds.begin(), speeds.end(), lives.begin(),
                   [](double speed) { return static_cast<std::uint8_t>(speed > 0); });
    buffer<std::uint8_t, Context> const active(context_, lives);
    other.on = rank_set{.ranks = options_.on.ranks};
    other.on.active = {active.data(), options_.on.ranks};
    auto const given = prepared_homes<Context>(function, context_, other).read();
    auto const own = homes_.read();
    for (std::size_t e = 0; e < own.size(); ++e) {
      if (given[e] != own[e]) {
        fail(function, "homes", "the homes in use", text("others of expert ", e));
      }
    }
  }

  template <class Id>
  void enqueue_count(matrix_ref<Id const> const& topk_ids, vector_ref<std::int32_t> counts) const {
    auto body = tokens_body<std::int32_t, std::int32_t>(topk_ids);
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

  void enqueue_exchange() const {
    run(1, list_spills_body{arrays_.routes});
    run(options_.on.ranks, exchange_body{arrays_.routes});
  }

  template <class Id, class Destination, class Row>
  void enqueue_route(index_t rank, matrix_ref<Id const> const& topk_ids,
                     matrix_ref<Destination> const& destinations, matrix_ref<Row> const& rows,
                     spill_counters* counters) const {
    auto body = tokens_body<Destination, Row>(topk_ids);
    body.rank = rank;
    body.destinations = destinations;
    body.rows = rows;
    body.counters = counters;
    body.now = decltype(body)::phase::assign;
    run(body.problems(), body);
  }

  template <class Row>
  void enqueue_arrange(index_t rank, vector_ref<Row> const& arranged,
                       vector_ref<spill_segment> const& groups) const {
    run(options_.on.ranks, arrange_rows_body<Row>{arrays_.routes, rank, arranged, groups});
  }

  /// Waits for the context's work, and throws what the last plan or its exchange refused.
  void check() const {
    expect_no_fault("least_loaded::update", homes_.last_update(), -1,
                    {{{"physical_to_logical", "homes"}, {"home_rank", "homes.home_rank"}}});
    for (spill_outcome const& last :
         on_host(context_, vector_ref<spill_outcome const>(arrays_.plan.outcome, 1))) {
      expect_no_fault("least_loaded::plan", last.report, -1, {{{"cost", "price.cost"}}});
      expect_no_fault("least_loaded::exchange", last.exchange);
    }
  }

 private:
  static constexpr char const* name = "least_loaded";

  static least_loaded_options const& checked(least_loaded_options const& options) {
    expect_least_loaded_options(name, options);
    return options;
  }

  void take_arrays() {
    spill_array_sizes const sizes{options_.experts, options_.on.ranks, segment_limit()};
    bytes_ = {context_, static_cast<index_t>(
                            bytes_taken_by<least_loaded_arrays>(sizes, options_.max_token_copies))};
    bytes_.zero();  // no plan, no exchange and no fault yet
    scratch memory(bytes_.data());
    arrays_ = least_loaded_arrays::in(memory, sizes, options_.max_token_copies);
    arrays_.routes.state = &arrays_.plan.outcome->exchange;
    index_t bytes = 0;
    auto const reserve = [&](index_t problems, auto const& body) {
      bytes = std::max(bytes, launch_bytes(context_, problems, body));
    };
    reserve(1, plan_body(loads()));
    reserve(1, homes_body(name, homes_of_options, {}, homes_.homes, options_.on.ranks, nullptr));
    reserve(options_.on.ranks, exchange_body{arrays_.routes});
    reserve(options_.on.ranks, arrange_rows_body<std::int64_t>{arrays_.routes, 0, {}, {}});
    auto const tokens = tokens_body<std::int64_t, std::int64_t>(
        matrix_ref<std::int64_t const>(nullptr, options_.max_token_copies, 1));
    reserve(tokens.problems(), tokens);
    scratch_ = {context_, bytes};
  }

  [[nodiscard]] least_loaded_rules rules() const {
    least_loaded_options const& o = options_;
    auto const imports = static_cast<std::int32_t>(import_limit(o));
    // A limit of `experts` imports or of `experts * ranks` exports cannot be exceeded.
    bool const limited = imports < o.experts || o.max_exports < o.experts * o.on.ranks;
    bool const plain = std::is_void_v<Cost> && !limited && o.on.nodes == 1;
    return {.plain = plain,
            .listed = plain,
            .alpha = o.alpha,
            .lambda = o.lambda,
            .by_expert = o.trigger == spill_trigger::expert_imbalance,
            .round_up = o.round == rounding_mode::up,
            .keep_excess = o.small_excess == small_excess_policy::home,
            .limited = limited,
            .min_chunk = static_cast<std::int32_t>(o.min_chunk),
            .max_imports = imports,
            .max_exports = static_cast<std::int32_t>(o.max_exports),
            .expert_bytes = o.expert_bytes,
            .token_bytes = o.token_bytes};
  }
  template <class Loads>
  [[nodiscard]] auto plan_body(Loads const& loads) const {
    return least_loaded_body<Loads, Cost>{loads,   homes_.homes, ranks_,
                                          rules(), pricing_,     arrays_.plan};
  }
  template <class Destination, class Row, class Id>
  [[nodiscard]] auto tokens_body(matrix_ref<Id const> const& ids) const {
    scratch memory(arrays_.tile_counts_memory);
    spill_tokens_body<Id, Destination, Row> body{};
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
  prepared_homes<Context> homes_;
  rank_levels ranks_;
  least_loaded_arrays arrays_{};
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
};

}}}  // namespace plimsoll::detail
