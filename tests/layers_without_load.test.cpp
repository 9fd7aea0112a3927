// SPDX-License-Identifier: Apache-2.0
// A layer without load says nothing about its experts: slot i holds expert i mod experts where no
// constraint forbids it, else experts are planned as if they were alike; with a plan in use, that
// plan stays. Every planner plans a layer with load, whose plan must not change, and one without.
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace plimsoll_test { namespace {

using plimsoll::index_t;
using plimsoll::seq;
using ints = std::vector<std::int32_t>;
using plan = plimsoll::placement<plimsoll::seq_policy>;

constexpr index_t steps = 3, experts = 16, ranks = 8, slots = 24;

/// Loads `[steps, 2, experts]`: the first layer has load, the second none.
std::vector<std::int32_t> recorded() {
  std::vector<std::int32_t> loads(steps * 2 * experts);
  for (index_t step = 0; step < steps; ++step) {
    for (index_t e = 0; e < experts; ++e) {
      loads[static_cast<std::size_t>(step * 2 * experts + e)] =
          static_cast<std::int32_t>(100 + e * e * 7 % 31 * 10 + step);
    }
  }
  return loads;
}

ints numbered(index_t count) {
  ints map;
  for (index_t i = 0; i < count; ++i) {
    map.push_back(static_cast<std::int32_t>(i % experts));
  }
  return map;
}

/// Returns the filled slots of a layer.
ints row_of(plan const& made, index_t layer) {
  auto const map = made.physical_to_logical.view();
  ints row;
  for (index_t slot = 0; slot < map.extent(1); ++slot) {
    row.push_back(map(layer, slot));
  }
  while (!row.empty() && row.back() < 0) {
    row.pop_back();
  }
  return row;
}

/// Returns the copies of each expert in a layer, and checks them against the map.
ints copies_in(plan const& made, index_t layer) {
  ints copies(experts);
  for (std::int32_t const e : row_of(made, layer)) {
    if (e >= 0) {
      ++copies[static_cast<std::size_t>(e)];
    }
  }
  ints counted;
  for (index_t e = 0; e < experts; ++e) {
    counted.push_back(made.replica_count.view()(layer, e));
  }
  CHECK(copies == counted);
  return copies;
}

struct planner_case {
  std::string name;
  /// Plans loads `[steps, layers, experts]`.
  std::function<plan(plimsoll::tensor_ref<std::int32_t const>)> make;
};

plimsoll::array<std::int64_t, plimsoll::seq_policy, 2> sum_of(
    plimsoll::tensor_ref<std::int32_t const> const& history) {
  auto sums = plimsoll::zeros<std::int64_t>(seq, history.extent(1), history.extent(2));
  plimsoll::sum_steps(seq, history, sums);
  return sums;
}

planner_case eplb_case(std::string name, plimsoll::eplb_options const& options) {
  return {std::move(name), [options](plimsoll::tensor_ref<std::int32_t const> history) {
            return plimsoll::eplb(seq, sum_of(history), slots, options);
          }};
}

plimsoll::latency_curves curves() {
  static std::int64_t const tokens[] = {0, 10000};
  static double const microseconds[] = {5, 1005};
  return {.tokens = tokens, .latency = {microseconds, 1, 2}};
}

plimsoll::tensor_ref<std::int32_t const> view(std::vector<std::int32_t> const& loads) {
  return {loads.data(), steps, 2, experts};
}

}  // namespace
}  // namespace plimsoll_test

TEST_CASE("layers_without_load: slot i holds expert i mod experts") {
  using namespace plimsoll_test;
  plimsoll::rank_set const on{.ranks = ranks, .nodes = 2};
  using history = plimsoll::tensor_ref<std::int32_t const>;
  planner_case const cases[] = {
      eplb_case("eplb", {.on = on}),
      eplb_case("eplb, refine packing", {.on = on, .refine = plimsoll::eplb_refinement::packing}),
      eplb_case("eplb, refine joint", {.on = on, .refine = plimsoll::eplb_refinement::joint}),
      eplb_case("eplb, load_exponent", {.on = on, .load_exponent = 0.8}),
      eplb_case("eplb, apart by rank", {.on = on,
                                        .replica_anti_affinity = plimsoll::anti_affinity::rank,
                                        .anti_affinity_strength = plimsoll::strictness::required}),
      eplb_case("eplb, apart by node",
                {.on = on, .replica_anti_affinity = plimsoll::anti_affinity::node}),
      {"flow_placement, optimal",
       [&](history h) { return plimsoll::place_by_flow(seq, h, slots, {.on = on}); }},
      {"flow_placement, even",
       [&](history h) {
         return plimsoll::place_by_flow(seq, h, slots,
                                        {.on = on, .split = plimsoll::split_rule::even});
       }},
      {"select_planner",
       [&](history h) { return plimsoll::select_planner(seq, h, slots, {.on = on}); }},
      {"gem, replicas",
       [&](history h) {
         return plimsoll::gem(
             seq, h, curves(), slots,
             {.on = {.ranks = ranks}, .spare_slots = plimsoll::spare_slot_use::hold_replicas});
       }},
  };
  auto const loads = recorded();
  for (planner_case const& c : cases) {
    CAPTURE(c.name);
    plan const made = c.make(view(loads));
    CHECK(row_of(made, 1) == numbered(slots));
    CHECK(copies_in(made, 1)[0] == 2);
    CHECK(row_of(made, 0) != row_of(made, 1));
    CHECK_NOTHROW(plimsoll::validate(seq, made.ref()));
    for (plimsoll::certificate const& one : made.certificates) {
      CHECK(one.value >= one.lower_bound);
    }
    if (made.certificates.size() == 2) {
      CHECK(made.certificates[1].value == (c.name == "gem, replicas" ? 5 * steps : 0));
    }
  }
}

TEST_CASE("layers_without_load: planners that give no replicas to such layers") {
  using namespace plimsoll_test;
  auto const loads = recorded();
  auto const spare = plimsoll::craft(seq, view(loads), {.on = {.ranks = ranks}, .budget = 8});
  CHECK(row_of(spare, 1) == numbered(experts));
  auto const single = plimsoll::gem(seq, view(loads), curves(), experts, {.on = {.ranks = ranks}});
  CHECK(row_of(single, 1) == numbered(experts));
  auto const swapped = plimsoll::swap_search(seq, view(loads), plimsoll::token_cost{}, experts,
                                             {.on = {.ranks = ranks}});
  CHECK(row_of(swapped, 1) == numbered(experts));
}

TEST_CASE("layers_without_load: where a constraint forbids it, experts are alike") {
  using namespace plimsoll_test;
  auto const loads = recorded();
  auto const sums = sum_of(view(loads));
  std::vector<std::uint8_t> const active{1, 1, 1, 0, 1, 1, 1, 1};
  std::int32_t const offsets[] = {0, 2, 6, 9, 12, 15, 18, 21, 23,  // a slot belongs to no rank
                                  0, 2, 6, 9, 12, 15, 18, 21, 23};
  plimsoll::matrix_ref<std::int32_t const> const uneven(offsets, 2, ranks + 1);
  plimsoll::rank_set const dead{.ranks = ranks, .active = active};
  plimsoll::rank_set const on{.ranks = ranks, .nodes = 2};
  planner_case const cases[] = {
      eplb_case("eplb, a dead rank", {.on = dead}),
      eplb_case("eplb, groups on nodes", {.on = on, .groups = 4}),
      eplb_case("eplb, uneven ranks", {.on = on, .rank_offsets = uneven}),
      {"flow_placement, a dead rank",
       [&](plimsoll::tensor_ref<std::int32_t const> h) {
         return plimsoll::place_by_flow(seq, h, slots, {.on = dead});
       }},
      {"flow_placement, uneven ranks",
       [&](plimsoll::tensor_ref<std::int32_t const> h) {
         return plimsoll::place_by_flow(seq, h, slots, {.on = on, .rank_offsets = uneven});
       }},
  };
  for (planner_case const& c : cases) {
    CAPTURE(c.name);
    plan const made = c.make(view(loads));
    ints const copies = copies_in(made, 1);
    auto const [least, most] = std::minmax_element(copies.begin(), copies.end());
    CHECK(*least >= 1);
    CHECK(*most <= 2);
  }
}

TEST_CASE("layers_without_load: a plan in use stays") {
  using namespace plimsoll_test;
  auto const loads = recorded();
  auto const sums = sum_of(view(loads));
  plimsoll::rank_set const on{.ranks = ranks};
  // The plan in use of the second layer was made from loads that the first one has now.
  std::vector<std::int32_t> swapped = loads;
  for (std::size_t i = 0; i < swapped.size(); i += 2 * experts) {
    std::rotate(swapped.begin() + static_cast<std::ptrdiff_t>(i),
                swapped.begin() + static_cast<std::ptrdiff_t>(i) + experts,
                swapped.begin() + static_cast<std::ptrdiff_t>(i) + 2 * experts);
  }
  auto const in_use = plimsoll::eplb(seq, sum_of(view(swapped)), slots, {.on = on});
  auto const fresh = plimsoll::eplb(seq, sums, slots, {.on = on});
  auto const refined = plimsoll::refine(seq, sums, in_use.ref(), {.on = on}, {});
  CHECK(row_of(refined, 1) == row_of(in_use, 1));
  for (plimsoll::split_rule const split :
       {plimsoll::split_rule::even, plimsoll::split_rule::optimal}) {
    auto const within =
        plimsoll::plan_within(seq, sums, in_use.ref(), fresh.ref(), {.on = on}, {.split = split});
    CHECK(row_of(within, 1) == row_of(in_use, 1));
    CHECK(within.reports[1].changes == plimsoll::slot_changes{});
    CHECK(row_of(within, 0) != row_of(in_use, 0));
  }
}
