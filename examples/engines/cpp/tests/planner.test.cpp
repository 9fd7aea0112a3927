// SPDX-License-Identifier: Apache-2.0
// examples/engines/cpp/planner.hpp: budget, liveness, and the answers to wrong arguments.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../planner.hpp"

namespace plimsoll_cpp_engines_planner {

using namespace expert_planner;
using ints = std::vector<int>;
using bytes = std::vector<std::uint8_t>;

constexpr layer_sizes sizes{16, 4, 5};
constexpr int slots = 20;

ints trivial_map() {
  ints map(slots);
  for (int slot = 0; slot < slots; ++slot) {
    map[static_cast<std::size_t>(slot)] = slot % sizes.experts;
  }
  return map;
}

/// Loads of one hot expert.
ints loads_of(int hot) {
  ints loads(static_cast<std::size_t>(sizes.experts), 10);
  loads[static_cast<std::size_t>(hot)] = 200;
  return loads;
}

void check_complete(ints const& map, bytes const& dead) {
  ints copies(static_cast<std::size_t>(sizes.experts));
  for (int slot = 0; slot < slots; ++slot) {
    int const expert = map[static_cast<std::size_t>(slot)];
    bool const is_dead = dead[static_cast<std::size_t>(slot / sizes.slots_per_rank)] != 0;
    CHECK((expert == -1) == is_dead);
    if (expert >= 0) {
      ++copies[static_cast<std::size_t>(expert)];
    }
  }
  CHECK(std::count(copies.begin(), copies.end(), 0) == 0);
}

int changes(ints const& from, ints const& to) {
  int count = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    count += from[i] != to[i] ? 1 : 0;
  }
  return count;
}

TEST_CASE("cpp_engines: a plan is within the budget, and whole") {
  for (bool const is_set : {false, true}) {
    for (double const share : {0.0, 0.1, 1.0}) {
      CAPTURE(share);
      planner of;
      REQUIRE(of.create(sizes, 2, {share, 1, is_set, is_set}));
      ints const in_use = trivial_map();
      ints map(slots);
      ints counts(static_cast<std::size_t>(sizes.experts));
      REQUIRE(of.add_step(1, loads_of(7).data(), sizes.experts));
      REQUIRE(of.plan(1, in_use.data(), nullptr, map.data(), counts.data()));
      check_complete(map, bytes(4));
      int const moved = changes(in_use, map);
      CHECK(moved <= std::lround(share * slots));
      CHECK((moved > 0) == (share > 0));
      CHECK((counts[7] > 1) == (share > 0));
    }
  }
}

TEST_CASE("cpp_engines: two steps move what both confirm, and nothing else") {
  planner of;
  REQUIRE(of.create(sizes, 1, {1.0, 2}));
  ints in_use(slots, -1);
  ints map(slots);
  ints counts(static_cast<std::size_t>(sizes.experts));
  auto const plan_after = [&](ints const& loads) {
    REQUIRE(of.add_step(0, loads.data(), sizes.experts));
    REQUIRE(of.plan(0, in_use.data(), nullptr, map.data(), counts.data()));
  };
  ints noise(static_cast<std::size_t>(sizes.experts), 10);
  plan_after(noise);
  in_use = map;
  for (std::size_t const expert : {7U, 12U, 2U}) {
    noise.assign(noise.size(), 10);
    noise[expert] = 12;
    plan_after(noise);
    CHECK(map == in_use);
  }
  plan_after(loads_of(12));
  plan_after(loads_of(12));
  CHECK(map != in_use);
  CHECK(counts[12] == 4);
}

TEST_CASE("cpp_engines: all layers share one budget") {
  planner of;
  REQUIRE(of.create(sizes, 3, {0.1, 1}));
  ints in_use;
  for (int l = 0; l < 3; ++l) {
    ints const map = trivial_map();
    in_use.insert(in_use.end(), map.begin(), map.end());
    // The second layer is balanced.
    ints const loads = l == 1 ? ints(static_cast<std::size_t>(sizes.experts), 10) : loads_of(7);
    REQUIRE(of.add_step(l, loads.data(), sizes.experts));
  }
  ints map(in_use.size());
  bytes changed(3, 9);
  REQUIRE(of.plan_all(in_use.data(), nullptr, map.data(), changed.data()));
  CHECK(changes(in_use, map) <= 6);
  CHECK(changed[1] == 0);
  for (int l = 0; l < 3; ++l) {
    ints const row(map.begin() + l * slots, map.begin() + (l + 1) * slots);
    check_complete(row, bytes(4));
    CHECK((changes(row, trivial_map()) > 0) == (changed[static_cast<std::size_t>(l)] != 0));
  }
  // A lost rank takes the last copy of some experts of every layer.
  bytes const dead{0, 1, 0, 0};
  planner three;
  REQUIRE(three.create({12, 4, 5}, 1, {0.1, 1}));
  ints loads(12, 10);
  ints one(slots);
  for (int slot = 0; slot < slots; ++slot) {
    one[static_cast<std::size_t>(slot)] = slot % 12;
  }
  ints found(slots);
  REQUIRE(three.add_step(0, loads.data(), 12));
  REQUIRE(three.plan_all(one.data(), dead.data(), found.data(), changed.data()));
  CHECK(changed[0] == 1);
  CHECK(std::count(found.begin(), found.end(), -1) == 5);
}

TEST_CASE("cpp_engines: a rank is lost, and comes back") {
  layer_sizes const few{12, 4, 5};
  planner of;
  REQUIRE(of.create(few, 1, {0.1, 1}));
  ints in_use(slots);
  for (int slot = 0; slot < slots; ++slot) {
    in_use[static_cast<std::size_t>(slot)] = slot % few.experts;
  }
  ints const loads(12, 10);
  ints map(slots);
  ints counts(12);
  for (bytes const& dead : {bytes{0, 0, 0, 0}, {0, 0, 1, 0}, {0, 0, 1, 0}, {0, 0, 0, 0}}) {
    REQUIRE(of.add_step(0, loads.data(), few.experts));
    REQUIRE(of.plan(0, in_use.data(), dead.data(), map.data(), counts.data()));
    ints held(12);
    for (int slot = 0; slot < slots; ++slot) {
      int const expert = map[static_cast<std::size_t>(slot)];
      REQUIRE((expert == -1) == (dead[static_cast<std::size_t>(slot / 5)] != 0));
      if (expert >= 0) {
        ++held[static_cast<std::size_t>(expert)];
      }
    }
    CHECK(held == counts);
    CHECK(std::count(held.begin(), held.end(), 0) == 0);
    in_use = map;
  }
}

TEST_CASE("cpp_engines: the first plan needs no map in use") {
  planner of;
  REQUIRE(of.create(sizes, 1));
  ints const unknown(slots, -1);
  ints map(slots);
  ints counts(static_cast<std::size_t>(sizes.experts));
  REQUIRE(of.add_step(0, loads_of(3).data(), sizes.experts));
  REQUIRE(of.plan(0, unknown.data(), nullptr, map.data(), counts.data()));
  check_complete(map, bytes(4));
  CHECK(counts[3] == 4);
}

TEST_CASE("cpp_engines: slots of every expert") {
  int const map[] = {0, 1, 2, 0, -1, 1};
  ints counts(3), first(3), lists(6), rows(9);
  REQUIRE(list_slots({3, 3, 2}, map, counts.data(), first.data(), lists.data()));
  CHECK(counts == ints{2, 2, 1});
  CHECK(first == ints{0, 2, 4});
  CHECK(lists == ints{0, 3, 1, 5, 2, -1});
  REQUIRE(pad_slots({3, 3, 2}, map, 3, counts.data(), rows.data()));
  CHECK(counts == ints{2, 2, 1});
  CHECK(rows == ints{0, 3, -1, 1, 5, -1, 2, -1, -1});
  answer const narrow = pad_slots({3, 3, 2}, map, 1, counts.data(), rows.data());
  CHECK(narrow.code == status::refused);
  CHECK(narrow.text == "width: expected at least 2, the copies of one of the experts, got 1");
}

TEST_CASE("cpp_engines: what is wrong is told by a status and a text") {
  planner of;
  ints in_use = trivial_map();
  ints map(slots, 77);
  ints counts(static_cast<std::size_t>(sizes.experts));
  ints const loads = loads_of(1);
  auto const plan = [&](bytes const& dead = bytes(4)) {
    return of.plan(0, in_use.data(), dead.data(), map.data(), counts.data());
  };
  auto const is_refused = [](answer const& got, std::string const& text) {
    CHECK(got.code == status::refused);
    CHECK(got.text == text);
  };
  is_refused(of.add_step(0, loads.data(), sizes.experts),
             "planner: expected create() before this call");
  is_refused(plan(), "planner: expected create() before this call");
  is_refused(of.create({16, 4, 17}, 1),
             "sizes.slots_per_rank: expected 1 to the number of experts, got 17");
  is_refused(of.create({0, 4, 1}, 1), "sizes.experts: expected at least 1, got 0");
  is_refused(of.create({16, 0, 4}, 1), "sizes.ranks: expected at least 1, got 0");
  is_refused(of.create(sizes, 0), "layers: expected at least 1, got 0");
  is_refused(of.create(sizes, 1, {1.5}), "options.max_moves_share: expected 0 to 1, got 1.500000");
  is_refused(of.create(sizes, 1, {0.1, 0}), "options.steps: expected at least 1, got 0");
  is_refused(of.create({16, 4, 3}, 1), "sizes: expected at least 16 slots, one per expert, got 12");
  int const stray[] = {0, 1, 2, 3};
  is_refused(list_slots({3, 2, 2}, stray, counts.data(), counts.data(), map.data()),
             "rank_experts: expected -1 or an expert in slot 3, got 3");
  REQUIRE(of.create(sizes, 1));
  is_refused(plan(), "steps of layer 0: expected at least 1, got 0");
  is_refused(of.add_step(1, loads.data(), sizes.experts),
             "layer: expected a layer of the planner, from 0, got 1");
  is_refused(of.add_step(0, loads.data(), 15),
             "loads: expected as many as the planner has experts, got 15");
  std::vector<double> bad(16, 1.0);
  bad[4] = -1;
  is_refused(of.add_step(0, bad.data(), sizes.experts),
             "loads: expected numbers from 0 to below 2^47, got -1.000000");
  bad[4] = std::nan("");
  CHECK(of.add_step(0, bad.data(), sizes.experts).code == status::refused);
  REQUIRE(of.add_step(0, loads.data(), sizes.experts));
  is_refused(plan({0, 1, 1, 1}),
             "dead_ranks: expected at least 16 slots of live ranks, one per expert, got 5");
  in_use[3] = 16;
  is_refused(plan(), "in_use: expected -1 or an expert in the slots of layer 0, got 16");
  in_use[3] = 3;
  CHECK(plan());  // what was refused left nothing behind
}

}  // namespace plimsoll_cpp_engines_planner
