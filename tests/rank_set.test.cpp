// SPDX-License-Identifier: Apache-2.0
// Every call checks the ranks that its options describe, by the same rule and with the same words.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/refusal.hpp"

namespace plimsoll_test { namespace {

using plimsoll::index_t;
using plimsoll::matrix_ref;
using plimsoll::rank_set;
using plimsoll::seq;
using plimsoll::tensor_ref;
using ints = std::vector<std::int32_t>;

/// Two experts in four slots of two ranks; each expert is on both ranks.
struct small_plan {
  ints loads{3, 5};
  ints map{0, 1, 0, 1};
  ints copies{2, 2};
  ints offsets{0, 2, 4};
  std::vector<double> reals = std::vector<double>(4);
  std::vector<std::int64_t> tokens{0, 8};
  std::vector<double> latency{0, 1};

  matrix_ref<std::int32_t> load{loads.data(), 1, 2};
  tensor_ref<std::int32_t> steps{loads.data(), 1, 1, 2};
  matrix_ref<std::int32_t> slots{map.data(), 1, 4};
  matrix_ref<std::int32_t> counts{copies.data(), 1, 2};
  matrix_ref<std::int32_t> begins{offsets.data(), 1, 3};
  plimsoll::placement_ref placement{
      .physical_to_logical = slots, .replica_count = counts, .ranks = 2};
};

/// A call with options that contain a rank set.
struct ranked_call {
  std::string options;  ///< function and member that its messages name
  std::function<void(small_plan&, rank_set const&)> run;
  bool has_placement = false;  ///< the placement gives the number of ranks
  std::string no_speeds = {};  ///< reason for which speeds are refused, or empty
};

std::vector<ranked_call> ranked_calls() {
  std::string const with_cost = "the cost of a rank includes its speed";
  std::string const counts_tokens = "balancedness counts tokens";
  return {
      {"place: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::place(seq, p.load, p.counts, {.on = on}, p.slots);
       }},
      {"place_groups: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::place_groups(seq, p.load, 1, 4, {.on = on}, p.counts,
                                matrix_ref<std::int32_t>(p.offsets.data(), 1, 2));
       }},
      {"refine: where.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::refine(seq, p.load, {.on = on}, {}, p.slots, p.counts);
       }},
      {"slot_assignment: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::slot_assignment(seq, plimsoll::vector_ref<std::int32_t>(p.copies.data(), 1),
                                   {.on = on}, p.begins);
       },
       false, "slots are divided by number"},
      {"eplb: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::eplb(seq, p.load, {.on = on}, p.slots, p.counts);
       }},
      {"estimate_gains: options.on",
       [](small_plan& p, rank_set const& on) {
         static_cast<void>(plimsoll::estimate_gains(seq, p.steps, {.on = on}));
       },
       false, "gains count tokens"},
      {"swap_search: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::swap_search(seq, p.steps, plimsoll::token_cost{}, {.on = on}, p.slots);
       },
       false, with_cost},
      {"flow_placement: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::flow_placement(seq, p.steps, {.on = on}, p.slots, p.counts);
       }},
      {"select_planner: options.on",
       [](small_plan& p, rank_set const& on) {
         static_cast<void>(plimsoll::select_planner(seq, p.steps, p.slots.extent(1), {.on = on}));
       },
       false, "balancedness counts tokens"},
      {"certify: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::certify(seq, p.steps, p.placement, {.on = on});
       },
       true},
      {"align: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::align(seq, p.placement, p.placement, {.on = on}, p.slots);
       },
       true},
      {"plan_within: where.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::plan_within(seq, p.load, p.placement, p.placement, {.on = on}, {}, p.slots,
                               p.counts);
       },
       true},
      {"transfers: options.on",
       [](small_plan& p, rank_set const& on) {
         static_cast<void>(plimsoll::transfers(seq, p.placement, p.placement, {.on = on}));
       },
       true, "a transfer takes as long on every rank"},
      {"validate: options.on",
       [](small_plan& p, rank_set const& on) { plimsoll::validate(seq, p.placement, {.on = on}); },
       true},
      {"replay: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::replay(seq, p.steps, p.placement, {.on = on},
                          matrix_ref<double>(p.reals.data(), 1, 1));
       },
       true, counts_tokens},
      {"minmax_lp: options.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::minmax_lp const split(seq, p.placement, {.on = on});
       },
       true},
      {"waterline: options.on",
       [](small_plan&, rank_set const& on) {
         plimsoll::waterline const line(seq, {.on = on, .slots = 4, .top_k = 1, .max_tokens = 1});
       }},
      {"waterfill: options.line.on",
       [](small_plan& p, rank_set const& on) {
         plimsoll::waterfill const fill(seq, p.placement,
                                        {.line = {.on = on, .top_k = 1, .max_tokens = 1}});
       },
       true},
      {"least_loaded: options.on",
       [](small_plan&, rank_set const& on) {
         plimsoll::least_loaded const planner(seq, {.on = on, .experts = 2});
       }},
  };
}

TEST_CASE("rank_set: every call refuses the same values in the same words") {
  std::vector<std::uint8_t> const flags(3, 1);
  std::vector<double> const speeds(3, 1);
  for (ranked_call const& call : ranked_calls()) {
    auto const refusal = [&](rank_set const& on) {
      small_plan p;
      std::string const message = refusal_of([&] { call.run(p, on); });
      return message.compare(0, call.options.size(), call.options) == 0
                 ? message.substr(call.options.size())
                 : message;
    };
    CAPTURE(call.options);
    CHECK(refusal({.ranks = 2}) == "no error");
    if (call.has_placement) {
      CHECK(refusal({}) == "no error");
      CHECK(refusal({.ranks = 3}) == ".ranks: expected 2 ranks, as in the placement, got 3");
    } else {
      CHECK(refusal({}) == ".ranks: expected 1 to 32767 ranks, got 0");
      CHECK(refusal({.ranks = 32768}) == ".ranks: expected 1 to 32767 ranks, got 32768");
    }
    for (index_t const nodes : {0, 3}) {
      CHECK(refusal({.ranks = 2, .nodes = nodes}) ==
            ".nodes: expected 1 to 2 nodes (at most one per rank), got " + std::to_string(nodes));
    }
    CHECK(refusal({.ranks = 2, .active = flags}) == ".active: expected 2 ranks, got 3");
    CHECK(refusal({.ranks = 2, .speeds = speeds}) == ".speeds: expected 2 ranks, got 3");
    plimsoll::vector_ref<double const> const two(speeds.data(), 2);
    CHECK(refusal({.ranks = 2, .speeds = two}) ==
          (call.no_speeds.empty()
               ? "no error"
               : ".speeds: expected none, since " + call.no_speeds + ", got speeds"));
  }
}

TEST_CASE("rank_set: composed calls name their own function") {
  small_plan p;
  std::vector<double> const speeds(2, 1);
  rank_set const fast{.ranks = 2, .speeds = speeds};
  plimsoll::latency_curves const curves{.tokens = p.tokens, .latency = {p.latency.data(), 1, 2}};
  CHECK(refusal_of([&] { plimsoll::gem(seq, p.steps, curves, {.on = fast}, p.slots, p.counts); }) ==
        "gem: options.on.speeds: expected none, since the cost of a rank includes its speed, got "
        "speeds");
  CHECK(refusal_of([&] {
          plimsoll::craft(seq, p.steps, {.on = fast}, p.slots, p.begins, p.counts);
        }) == "craft: options.on.speeds: expected none, since gains count tokens, got speeds");
  CHECK(refusal_of([&] {
          plimsoll::replicate(seq, p.load, 4, {.where = {.on = {.ranks = 2, .nodes = 3}}},
                              p.counts);
        }) ==
        "replicate: options.where.on.nodes: expected 1 to 2 nodes (at most one per rank), "
        "got 3");
}

}}  // namespace plimsoll_test
