// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of a prepared `least_loaded`: checks options, prices and plans, lists homes, keeps the
/// memory, launches the bodies, and names refused values.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/least_loaded.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/fixed_load.hpp>
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

inline void throw_least_loaded_fault(refused_value const& of) {
  switch (of.found().kind) {
    case fault_kind::tokens:
      of.fail("loads", "at most 2^31 - 1 tokens", text(of.found().got));
    case fault_kind::cost:
      of.fail("price.cost", "numbers from 0 to below 2^960",
              text(of.found().got, " for rank ", of.found().where));
    case fault_kind::counts:
      of.fail("counts", text("the planned load, ", of.found().also, " tokens"),
              text(of.found().got, of.where("expert")));
    default:
      throw_load_fault(of);
  }
}

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
}

/// Throws unless `speeds`, of a cost, are in range: an infinite speed gives a time of 0, a valid
/// number, so that `plan` would not notice it.
inline void expect_cost_speeds(std::string_view function, std::vector<double> const& speeds) {
  for (std::size_t r = 0; r < speeds.size(); ++r) {
    if (!(speeds[r] >= 0x1p-64 && speeds[r] <= 0x1p64)) {
      fail(function, "price.cost.speeds", "values from 2^-64 to 2^64",
           text(speeds[r], " for rank ", r));
    }
  }
}

/// Returns `price` if its cost is for `ranks` ranks and its numbers are in range.
template <class Context, class Cost>
spill_price<Cost> const& expect_price(std::string_view function, Context const& context,
                                      index_t ranks, spill_price<Cost> const& price) {
  auto const expect_one = [&](char const* argument, double value) {
    if (!(value >= 0 && value < 0x1p960)) {
      fail(function, argument, "a number from 0 to below 2^960", text(value));
    }
  };
  auto const expect_bandwidth = [&](char const* argument, double value) {
    // Within this range no sum of transfer times overflows.
    if (!(value >= 0x1p-900 && value < 0x1p960)) {
      fail(function, argument, "a number of bytes from 2^-900 to below 2^960", text(value));
    }
  };
  if constexpr (std::same_as<Cost, moe_cost>) {
    expect_one("price.cost.launch", price.cost.launch);
    expect_one("price.cost.per_token", price.cost.per_token);
    expect_one("price.cost.per_expert", price.cost.per_expert);
  } else if constexpr (!std::is_void_v<Cost>) {
    detail::expect_cost(function, price.cost, ranks);
  }
  if constexpr (std::same_as<Cost, token_cost> || std::same_as<Cost, latency_curves>) {
    expect_cost_speeds(function, on_host(context, price.cost.speeds));
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

/// The arrays of `spill_homes`, built on the host.
struct spill_home_lists {
  std::vector<std::int32_t> expert_begin = {0};
  std::vector<std::int32_t> rank;
  std::vector<std::int32_t> rank_begin;
  std::vector<std::int32_t> expert;
  std::vector<std::int32_t> position;

  /// `ranks_of`: the live homes of each expert, in rising order.
  spill_home_lists(std::vector<std::vector<std::int32_t>> const& ranks_of, index_t ranks)
      : rank_begin(static_cast<std::size_t>(ranks) + 1, 0) {
    for (auto const& homes : ranks_of) {
      rank.insert(rank.end(), homes.begin(), homes.end());
      expert_begin.push_back(static_cast<std::int32_t>(rank.size()));
    }
    for (std::int32_t const r : rank) {
      ++rank_begin[static_cast<std::size_t>(r) + 1];
    }
    for (std::size_t r = 1; r < rank_begin.size(); ++r) {
      rank_begin[r] += rank_begin[r - 1];
    }
    expert.resize(rank.size());
    position.resize(rank.size());
    std::vector<std::int32_t> next(rank_begin);
    for (std::size_t e = 0; e < ranks_of.size(); ++e) {
      for (std::size_t i = 0; i < ranks_of[e].size(); ++i) {
        auto const at = static_cast<std::size_t>(next[static_cast<std::size_t>(ranks_of[e][i])]++);
        expert[at] = static_cast<std::int32_t>(e);
        position[at] = static_cast<std::int32_t>(i);
      }
    }
  }

  /// Returns the most experts that one rank holds.
  [[nodiscard]] index_t most_held() const {
    index_t most = 0;
    for (std::size_t r = 0; r + 1 < rank_begin.size(); ++r) {
      most = std::max<index_t>(most, rank_begin[r + 1] - rank_begin[r]);
    }
    return most;
  }
};

/// Reads the homes of all experts. Throws for ranks and slots out of range, and for experts without
/// a live home.
template <class Context>
std::vector<std::vector<std::int32_t>> read_homes(std::string_view function, Context const& context,
                                                  least_loaded_options const& options,
                                                  std::vector<double> const& speeds) {
  auto const at = [](index_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::vector<std::int32_t>> homes(at(options.experts));
  auto const add_home = [&](index_t e, index_t r) {
    auto& of = homes[at(e)];
    bool const is_new = of.empty() || of.back() != r;  // slots come rank by rank
    if (is_new && speeds[at(r)] > 0) {
      of.push_back(static_cast<std::int32_t>(r));
    }
  };
  auto const& map = options.residents.physical_to_logical;
  bool const has_slots = is_given(function, "options.residents.physical_to_logical", map);
  char const* argument = has_slots ? "options.residents" : "options.home_rank";
  if (has_slots && options.home_rank.data != nullptr) {
    fail(function, "options.home_rank", "none if options.residents is given", "both");
  }
  if (has_slots) {
    expect_extent(function, "options.residents.physical_to_logical", 1, map.extent(0), "layers");
    expect_between(function, "options.residents.physical_to_logical", 1, 0x7fffffff, map.extent(1),
                   "slots");
    expect_extent(function, "options.residents.ranks", options.on.ranks, options.residents.ranks,
                  "ranks (options.on.ranks)");
    expect_rank_offsets(function, "options.residents.rank_offsets", options.residents.rank_offsets,
                        1, options.on.ranks);
    auto const slots = read_slots(function, context, options.residents, options.experts);
    for (index_t r = 0; r < options.on.ranks; ++r) {
      for (std::int32_t slot = slots.begins[at(r)]; slot < slots.begins[at(r + 1)]; ++slot) {
        if (slots.experts[at(slot)] >= 0) {
          add_home(slots.experts[at(slot)], r);
        }
      }
    }
  } else if (is_given(function, argument, options.home_rank)) {
    expect_extent(function, argument, options.experts, options.home_rank.extent(0), "experts");
    std::vector<std::int32_t> const home_rank = on_host(context, options.home_rank);
    for (std::size_t e = 0; e < home_rank.size(); ++e) {
      if (home_rank[e] < 0 || home_rank[e] >= options.on.ranks) {
        fail(function, argument, text("ranks from 0 to ", options.on.ranks - 1),
             text(home_rank[e], " for expert ", e));
      }
      add_home(static_cast<index_t>(e), home_rank[e]);
    }
  } else {
    slot_ranges const blocks{{}, options.experts, options.on.ranks};
    for (index_t r = 0; r < options.on.ranks; ++r) {
      for (index_t e = blocks.begin(0, r); e < blocks.end(0, r); ++e) {
        add_home(e, r);
      }
    }
  }
  for (std::size_t e = 0; e < homes.size(); ++e) {
    if (homes[e].empty()) {
      fail(function, argument, "a live rank for every expert", text("none for expert ", e));
    }
  }
  return homes;
}

/// Checks a plan, copied to the host, against its loads and options.
struct spill_check {
  static constexpr char const* name = "validate";

  least_loaded_options const& options;
  std::vector<std::vector<std::int32_t>> homes;
  std::vector<std::int64_t> loads;
  std::vector<double> speeds;
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
              .homes = read_homes(name, context, options, speeds.speed),
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

  template <class Memory>
  PLIMSOLL_HD static least_loaded_arrays in(Memory& memory, spill_array_sizes const& n,
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
        pricing_(pricing_of(options, expect_price(name, context, options.on.ranks, price))) {
    expect_least_loaded_options(name, options);
    read_ranks();
    take_arrays();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] least_loaded_options const& options() const { return options_; }
  [[nodiscard]] spill_plan_arrays const& plan() const { return arrays_.plan; }
  [[nodiscard]] spill_routes const& routes() const { return arrays_.routes; }
  [[nodiscard]] index_t segment_limit() const {
    return spill_plan_arrays::segment_limit(options_.experts, options_.on.ranks, homes_.pairs);
  }
  /// `[experts]`: the sums of `enqueue_add_up`.
  [[nodiscard]] vector_ref<std::int64_t const> loads() const {
    return {arrays_.routes.totals, options_.experts};
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
  void expect_no_fault() const {
    for (spill_outcome const& last :
         on_host(context_, vector_ref<spill_outcome const>(arrays_.plan.outcome, 1))) {
      throw_least_loaded_fault({"least_loaded::plan", {certificate{}, last.report.refused}});
      throw_least_loaded_fault({"least_loaded::exchange", {certificate{}, last.exchange.refused}});
    }
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
         {&lists.expert_begin, &lists.rank, &lists.rank_begin, &lists.expert, &lists.position}) {
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
    bool const plain = std::is_void_v<Cost> && !limited && o.on.nodes == 1 &&
                       ranks_.speed.equal_speeds && homes_.pairs == homes_.experts;
    return {.plain = plain,
            .listed = plain && most_held_ <= least_loaded_rules::most_listed,
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
    return least_loaded_body<Loads, Cost>{loads, homes_, ranks_, rules(), pricing_, arrays_.plan};
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
  rank_levels ranks_{};
  spill_homes homes_{};
  index_t most_held_ = 0;  // the most experts that one rank holds
  least_loaded_arrays arrays_{};
  buffer<std::int32_t, Context> numbers_;
  buffer<double, Context> speeds_;
  buffer<std::byte, Context> bytes_;
  buffer<std::byte, Context> scratch_;
};

}}}  // namespace plimsoll::detail
