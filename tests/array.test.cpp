// SPDX-License-Identifier: Apache-2.0
// Tests of array under the host's policies; shapes.
#include "array.cases.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <plimsoll/detail/argument.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replan_gate.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/waterfill.hpp>

namespace plimsoll_test {

using plimsoll::array;
using plimsoll::seq;

/// Memory whose bytes are not zero.
struct dirty_resource {
  std::vector<std::int32_t> memory = ints(64, -1);
  void* allocate(std::size_t bytes, std::size_t) {
    REQUIRE(bytes <= memory.size() * sizeof(memory[0]));
    return memory.data();
  }
  void deallocate(void*, std::size_t, std::size_t) {}
};

template <class Placement>
concept refers = requires(Placement&& placement) { std::forward<Placement>(placement).ref(); };

TEST_CASE("array: every contiguous range of the host") {
  int const plain[] = {1, 2, 3, 4};
  array const matrix(seq, plain, 2, 2);
  static_assert(std::is_same_v<decltype(matrix), array<int, plimsoll::seq_policy, 2> const>);
  CHECK(matrix.to_host() == ints{1, 2, 3, 4});
  std::array<float, 2> const pair{4, 5};
  CHECK(array(seq, std::span(pair)).to_host() == std::vector<float>{4, 5});
  ints source{6, 7};
  array const copy(seq, source);
  source = {0, 0};
  CHECK(copy.to_host() == ints{6, 7});
}

TEST_CASE("array: an argument like a view, with const elements if it is const") {
  using type = array<double, plimsoll::seq_policy, 2>;
  using plimsoll::detail::argument_fault;
  using plimsoll::detail::fault_of_argument;
  using doubles = plimsoll::detail::one_of<double>;
  static_assert(plimsoll::view_of_rank<type const&, 2>);
  static_assert(!plimsoll::view_of_rank<type const&, 1>);
  static_assert(fault_of_argument<type&, 2, doubles, true>() == argument_fault::none);
  static_assert(fault_of_argument<type const&, 2, doubles, true>() == argument_fault::is_const);
  static_assert(fault_of_argument<type, 2, doubles, true>() == argument_fault::temporary);
  static_assert(fault_of_argument<type, 2, doubles, false>() == argument_fault::none);
  CHECK(plimsoll::rank_limit > 0);
}

TEST_CASE("array: memory of the policy's resource") {
  counting_resource memory;
  {
    array<std::int32_t, plimsoll::seq_policy, 2> one(seq(memory), 2, 5);
    array const two(seq(memory), ints{1, 2});
    CHECK(memory.live() == 2);
    CHECK(memory.smallest_alignment() == 64);
    one = array<std::int32_t, plimsoll::seq_policy, 2>(seq(memory), 1, 1);
    CHECK(memory.live() == 2);
    CHECK(one.size() == 1);
  }
  CHECK(memory.live() == 0);
  CHECK(memory.mismatches() == 0);
  dirty_resource dirty;
  CHECK(plimsoll::zeros<std::int32_t>(seq(dirty), 5, 2).to_host() == ints(10, 0));
  throwing_resource none(0);
  CHECK_THROWS_AS(array(seq(none), ints{1, 2}), std::bad_alloc);
}

TEST_CASE("array: refused extents") {
  using matrix = array<double, plimsoll::seq_policy, 2>;
  CHECK_THROWS_WITH_AS(array(seq, ints{1, 2, 3}, 2, 2),
                       "array: elements: expected 4 elements (2 x 2), got 3",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(array(seq, ints{1, 2, 3}, 2),
                       "array: elements: expected 2 elements (2), got 3", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(array(seq, ints{1, 2}, -1, -2),
                       "array: extents: expected at least 0 each, got -1", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(array(seq, ints{}, 0, -2),
                       "array: extents: expected at least 0 each, got -2", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(matrix(seq, 3, -5), "array: extents: expected at least 0 each, got -5",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(matrix(seq, std::int64_t{1} << 32, std::int64_t{1} << 29),
                       "array: extents: expected fewer than 2^63 bytes in all, got more",
                       plimsoll::invalid_input);
  // The product of the first two extents overflows, but there are no elements.
  CHECK(array<double, plimsoll::seq_policy, 3>(seq, std::int64_t{1} << 40, std::int64_t{1} << 40, 0)
            .size() == 0);
}

TEST_CASE("array: copy_placement refuses maps of other shapes") {
  array const map(seq, ints{0, 1, 1, 0}, 2, 2);
  array const counts(seq, ints{1, 1, 1, 1}, 2, 2);
  array const other(seq, ints{1, 1, 1}, 1, 3);
  using plimsoll::copy_placement;
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, other, 2),
                       "copy_placement: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, counts, 0),
                       "copy_placement: ranks: expected 1 to 32767 ranks, got 0",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, counts, 2, other),
                       "copy_placement: rank_offsets: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, counts, 3, map),
                       "copy_placement: rank_offsets: expected 4 offsets (ranks + 1), got 2",
                       plimsoll::invalid_input);
  array const rows(seq, ints{0, 1, 1, 0}, 1, 2, 2);
  CHECK_THROWS_WITH_AS(copy_placement(seq, rows, counts),
                       "copy_placement: replica_count: expected 1 layers, got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, array(seq, ints{}, 1, 0, 2), other),
                       "copy_placement: rank_experts: expected 1 to 32767 ranks, got 0",
                       plimsoll::invalid_input);
}

TEST_CASE("array: views of a temporary placement are refused") {
  using placement = plimsoll::placement<plimsoll::seq_policy>;
  static_assert(refers<placement&>);
  static_assert(refers<placement const&>);
  static_assert(!refers<placement>);
  static_assert(!refers<placement const>);
  static_assert(std::is_convertible_v<placement&, plimsoll::placement_ref>);
  static_assert(std::is_convertible_v<placement const&, plimsoll::placement_ref>);
  static_assert(!std::is_convertible_v<placement, plimsoll::placement_ref>);
  static_assert(!std::is_convertible_v<placement const, plimsoll::placement_ref>);
  placement const none{};
  CHECK(none.ref().ranks == 0);
}

TEST_CASE("array: converts to views of the same rank and elements, unless it is a temporary") {
  using type = array<std::int32_t, plimsoll::seq_policy, 2>;
  using output = plimsoll::matrix_ref<std::int32_t>;
  using input = plimsoll::matrix_ref<std::int32_t const>;
  static_assert(std::is_convertible_v<type&, output>);
  static_assert(std::is_convertible_v<type&, input>);
  static_assert(std::is_convertible_v<type const&, input>);
  static_assert(!std::is_convertible_v<type const&, output>);
  static_assert(!std::is_convertible_v<type, output>);
  static_assert(!std::is_convertible_v<type, input>);
  static_assert(!std::is_convertible_v<type const, input>);
  static_assert(!std::is_convertible_v<type&, plimsoll::tensor_ref<std::int32_t const>>);
  static_assert(!std::is_convertible_v<type&, plimsoll::matrix_ref<std::int64_t const>>);
  CHECK(plimsoll::rank_limit > 0);
}

TEST_CASE("array: members of options and results take arrays and placements as calls do") {
  array const loads(seq, ints{9, 3, 2, 2}, 1, 4);
  array const steps(seq, ints{9, 3, 2, 2, 2, 3, 2, 9}, 2, 1, 4);
  array const offsets(seq, ints{0, 3, 6}, 1, 3);
  array speeds(seq, std::vector<double>{1, 2});
  array const active(seq, std::vector<std::uint8_t>{1, 1});

  auto const plan = plimsoll::eplb(
      seq, loads, 6,
      {.on = {.ranks = 2, .active = active, .speeds = speeds}, .rank_offsets = offsets});
  CHECK(plan.rank_offsets.to_host() == ints{0, 3, 6});
  auto const next = plimsoll::place_by_flow(
      seq, steps, 6, {.on = {.ranks = 2}, .in_use = plan.physical_to_logical});
  auto const by_view = plimsoll::place_by_flow(
      seq, steps, 6, {.on = {.ranks = 2}, .in_use = plan.physical_to_logical.view()});
  CHECK(next.physical_to_logical.to_host() == by_view.physical_to_logical.to_host());

  plimsoll::minmax_lp lp(seq, next, {});
  array const base(seq, std::vector<double>{100, 0}, 1, 2);
  array split(seq, std::vector<double>(6), 1, 6);
  array bottleneck(seq, std::vector<std::uint8_t>(2), 1, 2);
  lp.solve(loads, {.base_load = base}, split, {.bottleneck = bottleneck});
  CHECK(bottleneck.to_host() == std::vector<std::uint8_t>{1, 0});

  plimsoll::least_loaded spiller(
      seq, {.on = {.ranks = 2}, .experts = 4, .residents = next, .max_slots = 6});
  spiller.expect_current({.residents = next});
  array const homes(seq, ints{0, 0, 1, 1});
  spiller.update({.home_rank = homes});
  spiller.expect_current({.home_rank = homes});
  spiller.update({.residents = next}, plimsoll::rank_set{.ranks = 2});
  spiller.expect_current({.residents = next});
}

TEST_CASE("array: a placement is an argument like its views") {
  array const loads(seq, ints{9, 3, 2, 2}, 1, 4);
  array const steps(seq, ints{9, 3, 2, 2, 2, 3, 2, 9}, 2, 1, 4);
  auto old = plimsoll::eplb(seq, loads, 6, {.on = {.ranks = 2}});
  auto const fresh = plimsoll::place_by_flow(seq, steps, 6, {.on = {.ranks = 2}});

  CHECK(plimsoll::rank_loads(seq, loads, old).to_host() ==
        plimsoll::rank_loads(seq, loads, old.ref()).to_host());
  CHECK(plimsoll::rank_loads(seq, steps, fresh).to_host() ==
        plimsoll::rank_loads(seq, steps, fresh.ref()).to_host());
  auto balancedness = plimsoll::zeros<double>(seq, 1, 1);
  plimsoll::replay(seq, steps, fresh, {}, balancedness);
  CHECK(balancedness.to_host()[0] > 0);
  array const speeds(seq, std::vector<double>{1, 2});
  auto latencies = plimsoll::zeros<double>(seq, 2, 1);
  plimsoll::step_latencies(seq, steps, old, plimsoll::token_cost{.speeds = speeds}, latencies);

  plimsoll::validate(seq, old);
  plimsoll::validate(seq, fresh, {});
  auto const aligned = plimsoll::align(seq, old, fresh);
  auto const plan = plimsoll::plan_transfers(seq, old, aligned, {});
  plimsoll::validate(seq, old, aligned, plan, {});
  auto const changes = plimsoll::count_changes(seq, old, aligned);
  CHECK(changes.size() == 1);
  CHECK(plimsoll::changed_layers(seq, old, old).empty());
  auto const within = plimsoll::plan_within(seq, loads, old, aligned, {}, {.max_moves = 1});
  CHECK(within.reports.size() == 1);
  plimsoll::layer_planner planner(seq, old, 2);
  CHECK(plimsoll::refine(seq, loads, within, {}, {}).ranks == 2);
  CHECK(plimsoll::certify(seq, steps, fresh).size() == 1);
  plimsoll::placement_ref const views = aligned;
  CHECK(plimsoll::decide_replan(seq, steps, old, {{.plan = aligned}},
                                plimsoll::replan_options<>{.cost = {.per_token = 1}, .horizon = 8})
            .steps == 2);

  plimsoll::lplb steps_of(seq, old, {.max_token_copies = 16});
  steps_of.update(0, fresh);
  steps_of.plan(loads);
  steps_of.expect_current(fresh);
  plimsoll::waterfill filler(seq, views, {.line = {.top_k = 2, .max_tokens = 4}});
  auto lists = plimsoll::zeros<std::int32_t>(seq, 1, 2, 3);
  plimsoll::slots_to_ranks(seq, fresh, lists);
}

}  // namespace plimsoll_test
