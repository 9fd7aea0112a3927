// SPDX-License-Identifier: Apache-2.0
// Views with elements and a null pointer are refused before anything is read or written.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "support/refusal.hpp"

namespace plimsoll_test { namespace {

using plimsoll::matrix_ref;
using plimsoll::seq;
using plimsoll::tensor_ref;
using plimsoll::vector_ref;
using ints = std::vector<std::int32_t>;

constexpr char const* none = ": expected a pointer to its elements, got a null pointer";

struct plan {
  ints map{0, 1, 0, 1};
  ints copies{2, 2};
  ints loads{3, 5};
  std::vector<double> out = std::vector<double>(4);

  matrix_ref<std::int32_t> map_view{map.data(), 1, 4};
  matrix_ref<std::int32_t> copies_view{copies.data(), 1, 2};
  matrix_ref<std::int32_t> loads_view{loads.data(), 1, 2};
  matrix_ref<std::int32_t> no_loads{nullptr, 1, 2};
  matrix_ref<std::int32_t> no_map{nullptr, 1, 4};
};

TEST_CASE("null_views: inputs") {
  plan p;
  std::vector<plimsoll::balance_stats> balance(1);
  CHECK(refusal_of([&] { plimsoll::measure(seq, p.no_loads, balance); }) ==
        std::string("measure: loads") + none);
  CHECK(refusal_of([&] {
          plimsoll::eplb(seq, p.no_loads, {.on = {.ranks = 2}}, p.map_view, p.copies_view);
        }) == std::string("eplb: loads") + none);
  CHECK(refusal_of([&] { plimsoll::replicate(seq, p.no_loads, 4, {}, p.copies_view); }) ==
        std::string("replicate: loads") + none);
  std::vector<plimsoll::routing_counters> counters(1);
  CHECK(refusal_of([&] {
          plimsoll::count_tokens(seq, matrix_ref<std::int32_t>(nullptr, 3, 2), {}, p.loads,
                                 counters);
        }) == std::string("count_tokens: topk_ids") + none);
  CHECK(refusal_of([&] {
          plimsoll::top_k(seq, matrix_ref<float>(nullptr, 1, 2), {.k = 1},
                          matrix_ref<std::int32_t>(p.map.data(), 1, 1), matrix_ref<float>());
        }) == std::string("top_k: scores") + none);
  CHECK(refusal_of([&] { plimsoll::read(seq, vector_ref<double>(nullptr, 2)); }) ==
        std::string("read: elements") + none);
}

TEST_CASE("null_views: outputs") {
  plan p;
  CHECK(refusal_of([&] {
          plimsoll::eplb(seq, p.loads_view, {.on = {.ranks = 2}}, p.no_map, p.copies_view);
        }) == std::string("eplb: physical_to_logical") + none);
  CHECK(refusal_of([&] {
          plimsoll::measure(seq, p.loads_view, vector_ref<plimsoll::balance_stats>(nullptr, 1));
        }) == std::string("measure: out") + none);
  plimsoll::minmax_lp lp(seq, {p.map_view, p.copies_view, 2});
  CHECK(refusal_of([&] { lp.solve(p.loads_view, matrix_ref<double>(nullptr, 1, 4)); }) ==
        std::string("minmax_lp::solve: split") + none);
}

TEST_CASE("null_views: placements") {
  plan p;
  matrix_ref<double> const out(p.out.data(), 1, 2);
  CHECK(refusal_of([&] {
          plimsoll::rank_loads(seq, p.loads_view, {p.no_map, p.copies_view, 2}, out);
        }) == std::string("rank_loads: placement.physical_to_logical") + none);
  CHECK(refusal_of([&] {
          plimsoll::rank_loads(seq, p.loads_view, {p.map_view, p.no_loads, 2}, out);
        }) == std::string("rank_loads: placement.replica_count") + none);
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, {p.no_map, p.copies_view, 2});
        }) == std::string("validate: placement.physical_to_logical") + none);
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, {p.map_view, p.no_loads, 2});
        }) == std::string("validate: placement.replica_count") + none);
  CHECK(refusal_of([&] {
          plimsoll::minmax_lp const lp(seq, {p.no_map, p.copies_view, 2});
        }) == std::string("minmax_lp: placement.physical_to_logical") + none);
}

/// Calls `call(views...)` once for each view, with that one's pointer null: each is refused under
/// its name.
template <class Call, class... Views>
void check_each(std::string const& function, std::vector<std::string> const& names, Call call,
                Views... views) {
  REQUIRE(names.size() == sizeof...(views));
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::size_t at = 0;
    auto const without = [&](auto view) {
      view.data = at++ == i ? nullptr : view.data;
      return view;
    };
    std::tuple const changed{without(views)...};
    CHECK(refusal_of([&] { std::apply(call, changed); }) == function + ": " + names[i] + none);
  }
}

/// Views of one layer with two experts in two slots on one rank.
struct views {
  ints values{0, 1, 0, 0, 0, 0, 0, 0};
  ints ones = ints(8, 1);
  ints zeros = ints(8);
  ints ends{0, 2};
  std::vector<std::int64_t> longs = std::vector<std::int64_t>(8);
  std::vector<double> reals = std::vector<double>(8);

  matrix_ref<std::int32_t> map{values.data(), 1, 2};
  matrix_ref<std::int32_t> copies{ones.data(), 1, 2};
  matrix_ref<std::int32_t> loads{ones.data(), 1, 2};
  matrix_ref<std::int32_t> offsets{zeros.data(), 1, 3};
  tensor_ref<std::int32_t> steps{ones.data(), 1, 1, 2};
  tensor_ref<std::int32_t> padded{values.data(), 1, 2, 2};
  tensor_ref<std::int32_t> lists{values.data(), 1, 1, 2};
  tensor_ref<double> cube{reals.data(), 1, 2, 2};
  matrix_ref<double> square{reals.data(), 1, 2};
  matrix_ref<double> one{reals.data(), 1, 1};
  tensor_ref<double> one3{reals.data(), 1, 1, 1};
  plimsoll::placement_ref placement{map, copies, 1};
};

TEST_CASE("null_views: every view of the conversions of placements") {
  views v;
  check_each(
      "count_replicas", {"physical_to_logical", "replica_count"},
      [](auto in, auto out) { plimsoll::count_replicas(seq, in, out); }, v.map, v.copies);
  check_each(
      "slots_to_replicas", {"physical_to_logical", "replica_offsets", "replica_slots"},
      [](auto in, auto a, auto b) { plimsoll::slots_to_replicas(seq, in, a, b); }, v.map, v.offsets,
      v.map);
  check_each(
      "replicas_to_slots",
      {"replicas.replica_offsets", "replicas.replica_slots", "physical_to_logical"},
      [](auto a, auto b, auto out) {
        plimsoll::replicas_to_slots(seq, {a, b}, out);
      },
      v.offsets, v.map, v.map);
  check_each(
      "replicas_to_padded",
      {"replicas.replica_offsets", "replicas.replica_slots", "logical_to_physical"},
      [](auto a, auto b, auto out) {
        plimsoll::replicas_to_padded(seq, {a, b}, out);
      },
      v.offsets, v.map, v.padded);
  check_each(
      "padded_to_replicas", {"logical_to_physical", "replica_offsets", "replica_slots"},
      [](auto in, auto a, auto b) { plimsoll::padded_to_replicas(seq, in, a, b); }, v.padded,
      v.offsets, v.map);
  check_each(
      "slots_to_ranks", {"placement.physical_to_logical", "placement.rank_offsets", "rank_experts"},
      [](auto map, auto offsets, auto out) {
        plimsoll::slots_to_ranks(seq, {map, {}, 1, offsets}, out);
      },
      v.map, matrix_ref<std::int32_t>(v.offsets.data, 1, 2), v.lists);
  check_each(
      "ranks_to_slots", {"rank_experts", "physical_to_logical", "rank_offsets"},
      [](auto in, auto a, auto b) { plimsoll::ranks_to_slots(seq, in, a, b); }, v.lists, v.map,
      matrix_ref<std::int32_t>(v.offsets.data, 1, 2));
  check_each(
      "resize_placement",
      {"from.physical_to_logical", "from.rank_offsets", "source_ranks", "rank_offsets",
       "physical_to_logical", "replica_count"},
      [&](auto map, auto offsets, auto ranks, auto where, auto out, auto counts) {
        plimsoll::resize_placement(seq, {map, v.copies, 1, offsets}, ranks, where, out, counts);
      },
      v.map, matrix_ref<std::int32_t>(v.offsets.data, 1, 2),
      vector_ref<std::int32_t>(v.zeros.data(), 1), matrix_ref<std::int32_t>(v.offsets.data, 1, 2),
      v.map, v.copies);
  check_each(
      "validate", {"replicas.replica_offsets", "replicas.replica_slots"},
      [&](auto a, auto b) {
        plimsoll::validate(seq, v.placement, plimsoll::replica_lists_ref{a, b});
      },
      v.offsets, v.map);
  check_each(
      "validate", {"placement.physical_to_logical", "logical_to_physical"},
      [&](auto map, auto in) {
        plimsoll::validate(seq, {map, v.copies, 1}, in);
      },
      v.map, v.padded);
}

TEST_CASE("null_views: every view of load tensors") {
  views v;
  std::vector<plimsoll::routing_counters> routing(1);
  std::vector<plimsoll::scatter_counters> scattered(1);
  vector_ref<plimsoll::routing_counters> const counters(routing);
  vector_ref<std::int64_t> const counts(v.longs.data(), 2);
  matrix_ref<std::int64_t> const rows(v.longs.data(), 1, 2);
  std::vector<std::string> const counting{"topk_ids", "counts", "counters"};
  check_each(
      "count_tokens", counting,
      [](auto ids, auto out, auto n) { plimsoll::count_tokens(seq, ids, {}, out, n); }, v.map,
      counts, counters);
  check_each(
      "count_tokens", counting,
      [](auto ids, auto out, auto n) { plimsoll::count_tokens(seq, ids, {}, out, n); }, v.steps,
      rows, counters);
  check_each(
      "count_tokens_by_source", {"topk_ids", "source_offsets", "counts", "counters"},
      [](auto ids, auto from, auto out, auto n) {
        plimsoll::count_tokens_by_source(seq, ids, from, {}, out, n);
      },
      v.map, vector_ref<std::int32_t>(v.values.data(), 2), rows, counters);
  check_each(
      "scatter_to_logical", {"physical_counts", "physical_to_logical", "logical", "counters"},
      [](auto in, auto map, auto out, auto n) {
        plimsoll::scatter_to_logical(seq, in, map, out, n);
      },
      v.loads, v.map, rows, vector_ref<plimsoll::scatter_counters>(scattered));
  check_each(
      "sum_steps", {"loads", "out"}, [](auto in, auto out) { plimsoll::sum_steps(seq, in, out); },
      v.steps, rows);
  auto const of_ranks = [](auto in, auto map, auto copies, auto offsets, auto out) {
    plimsoll::rank_loads(seq, in, {map, copies, 1, offsets}, out);
  };
  std::vector<std::string> const ranks{"loads", "placement.physical_to_logical",
                                       "placement.replica_count", "placement.rank_offsets", "out"};
  matrix_ref<std::int32_t> const offsets(v.offsets.data, 1, 2);
  check_each(
      "rank_loads", {ranks[0], ranks[4], ranks[1], ranks[2], ranks[3]},
      [&](auto in, auto out, auto a, auto b, auto c) { of_ranks(in, a, b, c, out); }, v.steps,
      v.one3, v.map, v.copies, offsets);
  check_each("rank_loads", ranks, of_ranks, v.loads, v.map, v.copies, offsets, v.one);
  check_each(
      "rank_loads", {"loads", "placement.physical_to_logical"},
      [&](auto in, auto map) {
        static_cast<void>(plimsoll::rank_loads(seq, in, {map, v.copies, 1}));
      },
      v.loads, v.map);
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(seq, 1, 2, {.window = 1});
  ints kept(2);
  tensor_ref<std::int32_t> const steps(kept.data(), 1, 1, 2);
  check_each(
      "load_window::push", {"loads"}, [&](auto in) { window.push(in); }, v.loads);
  check_each(
      "load_window::sum", {"out"}, [&](auto out) { window.sum(out); }, rows);
  check_each(
      "load_window::steps", {"out"}, [&](auto out) { window.steps(out); }, steps);
  plimsoll::load_decay decay(seq, 1, 2);
  check_each(
      "load_decay::update", {"loads"}, [&](auto in) { decay.update(in); }, v.loads);
}

TEST_CASE("null_views: every view of metrics, replay and knapsacks") {
  views v;
  std::vector<plimsoll::balance_stats> stats(1);
  std::vector<plimsoll::expert_use> used(2);
  vector_ref<plimsoll::balance_stats> const balance(stats);
  matrix_ref<plimsoll::expert_use> const use(used, 1, 2);
  check_each(
      "measure", {"loads", "out"}, [](auto in, auto out) { plimsoll::measure(seq, in, out); },
      v.loads, balance);
  check_each(
      "measure", {"loads"}, [](auto in) { static_cast<void>(plimsoll::measure(seq, in)); },
      v.loads);
  check_each(
      "summarize", {"rows"}, [](auto in) { static_cast<void>(plimsoll::summarize(seq, in)); },
      balance);
  check_each(
      "correlate", {"loads", "correlation"},
      [](auto in, auto out) { plimsoll::correlate(seq, in, out); }, v.steps, v.cube);
  check_each(
      "classify_experts", {"loads", "use"},
      [](auto in, auto out) { plimsoll::classify_experts(seq, in, {}, out); }, v.steps, use);
  check_each(
      "correlated_pairs", {"correlation", "use"},
      [](auto a, auto b) { static_cast<void>(plimsoll::correlated_pairs(seq, a, b)); }, v.cube,
      use);
  check_each(
      "replay", {"loads", "balancedness"},
      [&](auto in, auto out) { plimsoll::replay(seq, in, v.placement, {}, out); }, v.steps, v.one);
  check_each(
      "replay",
      {"placement.physical_to_logical", "placement.replica_count", "placement.rank_offsets",
       "options.on.active"},
      [&](auto map, auto copies, auto offsets, auto active) {
        plimsoll::replay(seq, v.steps, {map, copies, 1, offsets}, {.on = {.active = active}},
                         v.one);
      },
      v.map, v.copies, matrix_ref<std::int32_t>(v.offsets.data, 1, 2),
      vector_ref<std::uint8_t const>(reinterpret_cast<std::uint8_t const*>(v.ones.data()), 1));
  tensor_ref<double> const worth(v.reals.data(), 1, 1, 2);
  auto const solve = [&](auto weights, auto worths, auto out, auto capacities, auto counts) {
    static_cast<void>(plimsoll::knapsack(seq, weights, worths,
                                         {.capacities = capacities, .option_count = counts}, out));
  };
  check_each(
      "knapsack", {"weights", "values", "choices", "options.capacities", "options.option_count"},
      solve, v.steps, worth, matrix_ref<std::int32_t>(v.values.data(), 1, 1),
      vector_ref<std::int64_t>(v.longs.data(), 1), matrix_ref<std::int32_t>(v.ones.data(), 1, 1));
  check_each(
      "knapsack_curve", {"weights", "values", "best"},
      [](auto weights, auto worths, auto out) {
        static_cast<void>(plimsoll::knapsack_curve(seq, weights, worths, {}, out));
      },
      v.steps, worth, v.one);
}

TEST_CASE("null_views: every view of planning calls") {
  views v;
  plimsoll::placement_options const one_rank{.on = {.ranks = 1}};
  auto const planned = [](auto&&) {};  // the certificates
  check_each(
      "replicate", {"loads", "replica_count"},
      [&](auto in, auto out) { planned(plimsoll::replicate(seq, in, 2, {}, out)); }, v.loads,
      v.copies);
  check_each(
      "place", {"loads", "replica_count", "physical_to_logical"},
      [&](auto in, auto copies, auto out) {
        planned(plimsoll::place(seq, in, copies, one_rank, out));
      },
      v.loads, v.copies, v.map);
  check_each(
      "place", {"options.rank_offsets", "options.on.active", "options.on.speeds"},
      [&](auto offsets, auto active, auto speeds) {
        planned(plimsoll::place(
            seq, v.loads, v.copies,
            {.on = {.ranks = 1, .active = active, .speeds = speeds}, .rank_offsets = offsets},
            v.map));
      },
      matrix_ref<std::int32_t>(v.offsets.data, 1, 2),
      vector_ref<std::uint8_t const>(reinterpret_cast<std::uint8_t const*>(v.ones.data()), 1),
      vector_ref<double>(v.reals.data(), 1));
  check_each(
      "place", {"options.node_experts", "options.node_offsets"},
      [&](auto a, auto b) {
        planned(plimsoll::place(seq, v.loads, v.copies,
                                {.on = {.ranks = 1}, .node_experts = a, .node_offsets = b}, v.map));
      },
      v.map, matrix_ref<std::int32_t>(v.offsets.data, 1, 2));
  check_each(
      "place_groups", {"loads", "node_experts", "node_offsets"},
      [&](auto in, auto a, auto b) {
        planned(plimsoll::place_groups(seq, in, 1, 2, one_rank, a, b));
      },
      v.loads, v.map, matrix_ref<std::int32_t>(v.offsets.data, 1, 2));
  check_each(
      "slot_assignment", {"layer_slots", "rank_offsets"},
      [](auto in, auto out) { plimsoll::slot_assignment(seq, in, {.on = {.ranks = 1}}, out); },
      vector_ref<std::int32_t>(v.ones.data(), 1), matrix_ref<std::int32_t>(v.offsets.data, 1, 2));
  check_each(
      "refine", {"loads", "physical_to_logical", "replica_count"},
      [&](auto in, auto map, auto copies) {
        planned(plimsoll::refine(seq, in, one_rank, {}, map, copies));
      },
      v.loads, v.map, v.copies);
  check_each(
      "craft", {"loads", "physical_to_logical", "rank_offsets", "replica_count"},
      [&](auto in, auto map, auto offsets, auto copies) {
        planned(plimsoll::craft(seq, in, {.on = {.ranks = 1}, .budget = 0}, map, offsets, copies));
      },
      v.steps, v.map, matrix_ref<std::int32_t>(v.offsets.data, 1, 2), v.copies);
  check_each(
      "flow_placement", {"loads", "physical_to_logical", "replica_count"},
      [](auto in, auto map, auto copies) {
        plimsoll::flow_placement(seq, in, {.on = {.ranks = 1}}, map, copies);
      },
      v.steps, v.map, v.copies);
  check_each(
      "flow_placement", {"options.rank_offsets", "options.on.active"},
      [&](auto offsets, auto active) {
        static_cast<void>(plimsoll::flow_placement(
            seq, v.steps, 2, {.on = {.ranks = 1, .active = active}, .rank_offsets = offsets}));
      },
      matrix_ref<std::int32_t>(v.ends.data(), 1, 2),
      vector_ref<std::uint8_t const>(reinterpret_cast<std::uint8_t const*>(v.ones.data()), 1));
  check_each(
      "select_planner", {"loads", "options.rank_offsets", "options.on.active"},
      [](auto in, auto offsets, auto active) {
        static_cast<void>(plimsoll::select_planner(
            seq, in, 2, {.on = {.ranks = 1, .active = active}, .rank_offsets = offsets}));
      },
      v.steps, matrix_ref<std::int32_t>(v.ends.data(), 1, 2),
      vector_ref<std::uint8_t const>(reinterpret_cast<std::uint8_t const*>(v.ones.data()), 1));
  check_each(
      "certify", {"loads", "placement.physical_to_logical"},
      [&](auto in, auto map) {
        planned(plimsoll::certify(seq, in, {map, v.copies, 1}));
      },
      v.steps, v.map);
  auto const on_one_rank = [&](auto map, auto counts) {
    return plimsoll::placement_ref{map, counts, 1, {}};
  };
  check_each(
      "align", {"from.physical_to_logical", "to.physical_to_logical", "physical_to_logical"},
      [&](auto from, auto to, auto map) {
        plimsoll::align(seq, on_one_rank(from, v.copies), on_one_rank(to, v.copies), {}, map);
      },
      v.map, v.map, v.map);
  check_each(
      "align", {"to.replica_count"},
      [&](auto counts) {
        static_cast<void>(
            plimsoll::align(seq, on_one_rank(v.map, v.copies), on_one_rank(v.map, counts)));
      },
      v.copies);
  check_each(
      "transfers", {"from.physical_to_logical", "to.physical_to_logical"},
      [&](auto from, auto to) {
        static_cast<void>(
            plimsoll::transfers(seq, on_one_rank(from, v.copies), on_one_rank(to, v.copies)));
      },
      v.map, v.map);
  check_each(
      "plan_within",
      {"loads", "from.physical_to_logical", "to.physical_to_logical", "physical_to_logical",
       "replica_count"},
      [&](auto in, auto from, auto to, auto map, auto copies) {
        plimsoll::plan_within(seq, in, on_one_rank(from, v.copies), on_one_rank(to, v.copies), {},
                              {}, map, copies);
      },
      v.loads, v.map, v.map, v.map, v.copies);
  std::vector<double> scores(30);  // of the restarts
  check_each(
      "swap_search", {"loads", "physical_to_logical", "restart_scores"},
      [&](auto in, auto map, auto out) {
        planned(
            plimsoll::swap_search(seq, in, plimsoll::token_cost{}, {.on = {.ranks = 1}}, map, out));
      },
      v.steps, v.map, matrix_ref<double>(scores, 1, 30));
  check_each(
      "swap_search", {"options.rank_offsets", "options.on.active", "options.replica_count"},
      [&](auto offsets, auto active, auto copies) {
        planned(plimsoll::swap_search(seq, v.steps, plimsoll::token_cost{}, 2,
                                      {.on = {.ranks = 1, .active = active},
                                       .rank_offsets = offsets,
                                       .replica_count = copies}));
      },
      matrix_ref<std::int32_t>(v.offsets.data, 1, 2),
      vector_ref<std::uint8_t const>(reinterpret_cast<std::uint8_t const*>(v.ones.data()), 1),
      v.copies);
  std::vector<std::int64_t> const tokens{1, 2};
  plimsoll::latency_curves const curves{.tokens = tokens, .latency = {v.reals.data(), 1, 2}};
  check_each(
      "gem", {"loads", "physical_to_logical", "replica_count"},
      [&](auto in, auto map, auto copies) {
        planned(plimsoll::gem(seq, in, curves, {.on = {.ranks = 1}}, map, copies));
      },
      v.steps, v.map, v.copies);
  check_each(
      "gem", {"options.rank_offsets", "options.on.active"},
      [&](auto offsets, auto active) {
        planned(plimsoll::gem(seq, v.steps, curves, 2,
                              {.on = {.ranks = 1, .active = active}, .rank_offsets = offsets}));
      },
      matrix_ref<std::int32_t>(v.offsets.data, 1, 2),
      vector_ref<std::uint8_t const>(reinterpret_cast<std::uint8_t const*>(v.ones.data()), 1));
  check_each(
      "trace_length_latencies", {"loads", "latencies"},
      [&](auto in, auto out) {
        plimsoll::trace_length_latencies(seq, in, curves, 2, 1, {1}, {.on = {.ranks = 1}}, out);
      },
      tensor_ref<std::int32_t>(v.ones.data(), 2, 1, 2), v.one);
  std::vector<double> const speed{1};
  check_each(
      "latency_table", {"curves.tokens", "curves.latency", "curves.speeds"},
      [&](auto counts, auto latency, auto speeds) {
        plimsoll::latency_table const table(
            seq, {.tokens = counts, .latency = latency, .speeds = speeds}, 1);
      },
      curves.tokens, curves.latency, vector_ref<double const>(speed));
  check_each(
      "rank_latencies", {"loads", "latencies", "cost.speeds"},
      [&](auto in, auto out, auto speeds) {
        plimsoll::rank_latencies(seq, in, v.placement, plimsoll::token_cost{speeds}, out);
      },
      v.steps, v.one3, vector_ref<double const>(speed));
  check_each(
      "step_latencies", {"loads", "latencies"},
      [&](auto in, auto out) {
        plimsoll::step_latencies(seq, in, v.placement, plimsoll::token_cost{}, out);
      },
      v.steps, v.one);
}

TEST_CASE("null_views: every view of splits, quotas and dispatches") {
  views v;
  std::vector<plimsoll::quota_report> rounded(1);
  std::vector<plimsoll::dispatch_counters> dispatched(1);
  std::vector<std::uint8_t> marks(1);
  matrix_ref<std::int32_t> const row(v.zeros, 1, 8);
  matrix_ref<std::int32_t> const quotas(row.data, 1, 2);
  matrix_ref<std::int32_t> const offsets(v.offsets.data, 1, 2);
  vector_ref<std::int32_t> const of_slots(v.zeros.data(), 2);
  check_each(
      "quota", {"loads", "placement.rank_offsets", "split", "quotas", "reports"},
      [&](auto in, auto begins, auto split, auto out, auto reports) {
        plimsoll::quota(seq, in, {v.map, v.copies, 1, begins}, split, out, reports);
      },
      v.loads, offsets, v.square, quotas, vector_ref<plimsoll::quota_report>(rounded));
  check_each(
      "source_quotas", {"quotas", "counts", "source_quotas"},
      [&](auto in, auto counts, auto out) {
        plimsoll::source_quotas(seq, in, counts, v.placement, 1, out);
      },
      of_slots, v.loads, quotas);
  check_each(
      "dispatch", {"topk_ids", "physical_to_logical", "quotas", "slots", "counters"},
      [](auto ids, auto map, auto in, auto out, auto counters) {
        plimsoll::dispatch(seq, ids, map, in, {.experts = 2}, out, counters);
      },
      v.loads, vector_ref<std::int32_t>(v.values.data(), 2), of_slots, quotas,
      vector_ref<plimsoll::dispatch_counters>(dispatched));
  plimsoll::minmax_lp lp(seq, v.placement);
  check_each(
      "minmax_lp::solve", {"loads", "inputs.base_load", "split", "outputs.bottleneck"},
      [&](auto in, auto base, auto split, auto marked) {
        lp.solve(in, {.base_load = base}, split, {.bottleneck = marked});
      },
      v.loads, v.one, v.square, matrix_ref<std::uint8_t>(marks, 1, 1));
  plimsoll::lplb balancer(seq, v.placement, {.max_token_copies = 8});
  check_each(
      "lplb::plan", {"counts"}, [&](auto in) { balancer.plan(in); }, v.loads);
  check_each(
      "lplb::dispatch", {"topk_ids", "slots", "counters"},
      [&](auto ids, auto out, auto counters) { balancer.dispatch(0, ids, out, counters); }, v.loads,
      quotas, vector_ref<plimsoll::dispatch_counters>(dispatched));
}

TEST_CASE("null_views: every view of spills and fills") {
  views v;
  std::vector<plimsoll::spill_counters> spilled(1);
  std::vector<plimsoll::spill_segment> segments(2);
  vector_ref<std::int32_t> const of_experts(v.zeros.data(), 2);
  matrix_ref<std::int32_t> const pairs(v.zeros.data(), 1, 2);
  plimsoll::least_loaded spill(seq, {.on = {.ranks = 1}, .experts = 2, .max_token_copies = 8});
  check_each(
      "least_loaded::count", {"topk_ids", "counts"},
      [&](auto ids, auto out) { spill.count(ids, out); }, v.loads, of_experts);
  check_each(
      "least_loaded::plan", {"loads"}, [&](auto in) { spill.plan(in); }, of_experts);
  check_each(
      "least_loaded::add_up", {"counts"}, [&](auto in) { spill.add_up(in); }, v.loads);
  check_each(
      "least_loaded::route", {"topk_ids", "destinations", "rows", "counters"},
      [&](auto ids, auto a, auto b, auto counters) { spill.route(0, ids, a, b, counters); },
      v.loads, pairs, pairs, vector_ref<plimsoll::spill_counters>(spilled));
  check_each(
      "least_loaded::arrange", {"arranged", "groups"},
      [&](auto out, auto groups) { spill.arrange(0, out, groups); },
      vector_ref<std::int32_t>(v.zeros.data(), 8), vector_ref<plimsoll::spill_segment>(segments));
  check_each(
      "least_loaded", {"options.home_rank"},
      [](auto home_rank) {
        plimsoll::least_loaded const other(
            seq, {.on = {.ranks = 1}, .experts = 2, .home_rank = home_rank, .max_token_copies = 8});
      },
      of_experts);

  plimsoll::waterline_options const options{
      .on = {.ranks = 1}, .slots = 2, .top_k = 2, .max_tokens = 4};
  plimsoll::waterline line(seq, options);
  std::vector<float> weights(3);
  matrix_ref<std::int64_t> const loads(v.longs.data(), 2, 1);
  check_each(
      "waterline::count", {"topk_ids", "loads"},
      [&](auto ids, auto out) { line.count(ids, 0, out); }, v.map, loads);
  check_each(
      "waterline::plan", {"loads"}, [&](auto in) { line.plan(in, 0); }, loads);
  check_each(
      "waterline::fill", {"topk_ids", "batch.weights", "ids", "rows.weights", "rows.ranks"},
      [&](auto ids, auto in, auto out, auto weight, auto rank) {
        line.fill(ids, 0, {.weights = in}, out, {.weights = weight, .ranks = rank});
      },
      v.map, matrix_ref<float>(weights.data(), 1, 2),
      matrix_ref<std::int32_t>(v.zeros.data(), 1, 3), matrix_ref<float>(weights.data(), 1, 3),
      vector_ref<std::int32_t>(v.zeros.data(), 1));
  plimsoll::waterfill fill(seq, v.placement, {.line = {.top_k = 2, .max_tokens = 4}});
  check_each(
      "waterfill::count", {"topk_ids"}, [&](auto ids) { fill.count(ids); }, v.map);
  check_each(
      "waterfill::fill", {"topk_ids", "ids"}, [&](auto ids, auto out) { fill.fill(ids, {}, out); },
      v.map, matrix_ref<std::int32_t>(v.zeros.data(), 1, 3));
}

TEST_CASE("null_views: every view of routers and capacities") {
  views v;
  std::vector<float> floats(8, 1.0f);
  std::vector<plimsoll::capacity_report> reports(1);
  matrix_ref<float> const scores(floats.data(), 2, 2);
  matrix_ref<std::int32_t> const ids(v.zeros.data(), 2, 1);
  matrix_ref<float> const one(floats.data(), 2, 1);
  vector_ref<std::int32_t> const of_tokens(v.zeros.data(), 2);
  check_each(
      "top_k", {"scores", "topk_ids", "topk_weights", "options.bias"},
      [](auto in, auto out, auto weights, auto bias) {
        plimsoll::top_k(seq, in, {.k = 1, .bias = bias}, out, weights);
      },
      scores, ids, one, vector_ref<float>(floats.data(), 2));
  plimsoll::capacity_mask mask(seq, {.experts = 2, .top_k = 1, .candidates = 1, .max_tokens = 2});
  check_each(
      "capacity_mask::apply",
      {"topk_ids", "topk_scores", "batch.priorities", "batch.weights", "kept.ids", "kept.weights",
       "kept.positions", "kept.counts", "kept.report", "kept.offsets"},
      [&](auto in, auto score, auto priorities, auto weights, auto kept, auto kept_weights,
          auto positions, auto counts, auto report, auto offsets) {
        mask.apply(in, score, {.priorities = priorities, .weights = weights},
                   plimsoll::kept_pairs_of<std::int32_t>{.ids = kept,
                                                         .weights = kept_weights,
                                                         .positions = positions,
                                                         .counts = counts,
                                                         .offsets = offsets,
                                                         .report = report});
      },
      ids, one, of_tokens, one, ids, one, ids, vector_ref<std::int32_t>(v.zeros.data(), 2),
      vector_ref<plimsoll::capacity_report>(reports), vector_ref<std::int32_t>(v.zeros.data(), 3));
  plimsoll::token_drop drop(seq, {.route = {.k = 1}, .limit = {.experts = 2, .max_tokens = 2}});
  check_each(
      "token_drop::apply", {"logits", "batch.homes", "kept.counts"},
      [&](auto logits, auto homes, auto counts) {
        drop.apply(logits, {.homes = homes},
                   plimsoll::kept_pairs_of<std::int32_t>{
                       .counts = counts, .report = vector_ref<plimsoll::capacity_report>(reports)});
      },
      scores, of_tokens, vector_ref<std::int32_t>(v.zeros.data(), 2));
}

TEST_CASE("null_views: views without elements may have a null pointer") {
  std::vector<plimsoll::balance_stats> balance;
  CHECK_NOTHROW(plimsoll::measure(seq, matrix_ref<std::int32_t>(nullptr, 0, 2), balance));
  CHECK(plimsoll::read(seq, vector_ref<double>()).empty());
}

}  // namespace
}  // namespace plimsoll_test
