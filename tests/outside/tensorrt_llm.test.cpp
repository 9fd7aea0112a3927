// SPDX-License-Identifier: Apache-2.0
// Values and properties of TensorRT-LLM's tests (github.com/NVIDIA/TensorRT-LLM, Apache-2.0):
// - cpp/tests/unit_tests/runtime/moeLoadBalancerTest.cpp (at 8cec0a5): replica counts, the spread
//   of rank loads, placements without a dead rank, and the shapes of its models of several layers.
// Only numbers and properties are theirs. Where a case differs here, its comment says why. Their
// iterations, signals and copies of weights have no counterpart here.
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/replication.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensorrt_llm.hpp"

namespace plimsoll_outside_tensorrt_llm {

using plimsoll::index_t;
using plimsoll::seq;
using floats = std::vector<float>;
using ints = std::vector<std::int32_t>;

inline index_t count_of(floats const& loads) { return static_cast<index_t>(loads.size()); }

// --- replica counts ------------------------------------------------------------------------------

inline ints replicated(floats const& loads, index_t slots,
                       plimsoll::replication_options const& options = {}) {
  plimsoll::array const in(seq, loads, 1, count_of(loads));
  return plimsoll::replicate(seq, in, slots, options).replica_count.to_host();
}

TEST_CASE("outside: TensorRT-LLM: replica counts") {
  for (count_case const& c : count_cases()) {
    CAPTURE(c.name);
    CHECK(replicated(c.loads, c.slots) == c.theirs);
  }
}

// --- placements ----------------------------------------------------------------------------------

TEST_CASE("outside: TensorRT-LLM: the spread of rank loads") {
  for (spread_case const& c : spread_cases()) {
    CAPTURE(c.name);
    plimsoll::array const loads(seq, c.loads, 1, count_of(c.loads));
    plimsoll::array const copies(seq, c.copies, 1, count_of(c.loads));
    auto const plan = plimsoll::place(seq, loads, copies, c.slots, {.on = {.ranks = c.ranks}});
    // The map has exactly these copies of every expert, and so no empty slot.
    CHECK_NOTHROW(plimsoll::validate(seq, plan.ref()));
    CHECK(plan.replica_count.to_host() == c.copies);
    ints const map = plan.physical_to_logical.to_host();
    CHECK(std::count(map.begin(), map.end(), -1) == 0);
    auto const of_ranks = plimsoll::rank_loads(seq, loads, plan.ref()).to_host();
    auto const [least, most] = std::minmax_element(of_ranks.begin(), of_ranks.end());
    CHECK(*most - *least <= c.most);
  }
}

TEST_CASE("outside: TensorRT-LLM: the models of several layers") {
  struct model_case {
    index_t layers, experts, ranks, width;
  };
  model_case const cases[] = {{2, 8, 2, 4}, {3, 16, 4, 4}, {5, 32, 8, 4}, {61, 256, 36, 8}};
  for (model_case const& c : cases) {
    CAPTURE(c.experts);
    index_t const slots = c.ranks * c.width;
    // Loads rise with the id in even layers and fall in odd ones. Each rank begins with as many
    // adjacent experts as it has slots; the blocks of ranks may overlap.
    floats loads;
    ints start;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      for (index_t e = 0; e < c.experts; ++e) {
        loads.push_back(static_cast<float>(layer % 2 == 0 ? e + 1 : c.experts - e));
      }
      for (index_t slot = 0; slot < slots; ++slot) {
        index_t const first = slot / c.width * c.experts / c.ranks;
        start.push_back(static_cast<std::int32_t>((first + slot % c.width) % c.experts));
      }
    }
    plimsoll::array const in(seq, loads, c.layers, c.experts);
    plimsoll::array const map(seq, start, c.layers, slots);
    auto copies = plimsoll::zeros<std::int32_t>(seq, c.layers, c.experts);
    plimsoll::count_replicas(seq, map, copies);
    auto const in_use = plimsoll::copy_placement(seq, map, copies, c.ranks);
    CHECK_NOTHROW(plimsoll::validate(seq, in_use.ref()));
    auto const before = plimsoll::rank_loads(seq, in, in_use.ref()).to_host();

    // TensorRT-LLM asserts only which layers get new weights. Here the plan of every layer has a
    // lower peak than the start, and the order of the loads does not change the largest per copy.
    auto const made = plimsoll::replicate(seq, in, slots, {});
    auto const plan =
        plimsoll::place(seq, in, made.replica_count, slots, {.on = {.ranks = c.ranks}});
    CHECK_NOTHROW(plimsoll::validate(seq, plan.ref()));
    for (index_t layer = 0; layer < c.layers; ++layer) {
      CAPTURE(layer);
      auto const row = before.begin() + layer * c.ranks;
      auto const l = static_cast<std::size_t>(layer);
      CHECK(plan.certificates[l].value < *std::max_element(row, row + c.ranks));
      CHECK(made.certificates[l].value == made.certificates[0].value);
    }
  }
}

// --- a dead rank ---------------------------------------------------------------------------------

constexpr std::uint8_t without_rank_2[4] = {1, 1, 0, 1};

inline plimsoll::rank_set live_ranks() {
  return {.ranks = 4, .active = plimsoll::vector_ref<std::uint8_t const>(without_rank_2, 4)};
}

/// A placement of four experts on four ranks; `slots` is the map.
inline plimsoll::placement<plimsoll::seq_policy> placed(ints const& slots) {
  plimsoll::array const map(seq, slots, 1, static_cast<index_t>(slots.size()));
  auto copies = plimsoll::zeros<std::int32_t>(seq, 1, 4);
  plimsoll::count_replicas(seq, map, copies);
  return plimsoll::copy_placement(seq, map, copies, 4);
}

/// The slots of `map` with those of rank 2 emptied, as an engine does if it keeps all others.
inline ints masked(ints map) {
  auto const width = static_cast<std::ptrdiff_t>(map.size() / 4);
  std::fill_n(map.begin() + 2 * width, width, -1);
  return map;
}

TEST_CASE("outside: TensorRT-LLM: masking a dead rank keeps all other slots") {
  ints const map{0, 1, 0, 2, 1, 3, 2, 3};
  auto const before = placed(map);
  CHECK_THROWS_WITH_AS(plimsoll::validate(seq, before.ref(), {.on = live_ranks()}),
                       "validate: physical_to_logical: expected -1 in the slots of a rank that is "
                       "not active, got 1 in layer 0, rank 2, slot 4",
                       plimsoll::invalid_input);
  auto const after = placed(masked(map));
  CHECK_NOTHROW(plimsoll::validate(seq, after.ref(), {.on = live_ranks()}));
  CHECK(after.replica_count.to_host() == ints{2, 1, 2, 1});
  // The lists leave out slots 4 and 5, of rank 2. TensorRT-LLM pads with 8, the number of slots.
  auto offsets = plimsoll::zeros<std::int32_t>(seq, 1, 5);
  auto lists = plimsoll::zeros<std::int32_t>(seq, 1, 8);
  plimsoll::slots_to_replicas(seq, after.physical_to_logical, offsets, lists);
  CHECK(offsets.to_host() == ints{0, 2, 3, 5, 6});
  CHECK(lists.to_host() == ints{0, 2, 1, 3, 6, 7, -1, -1});

  // A split needs no new map: it gives a dead rank no load.
  plimsoll::minmax_lp solver(seq, before.ref(), {.on = live_ranks(), .tolerance = 0});
  auto split = plimsoll::zeros<double>(seq, 1, 8);
  solver.solve(plimsoll::array(seq, ints{6, 6, 6, 6}, 1, 4), split);
  CHECK_NOTHROW(solver.check());
  std::vector<double> const got = split.to_host();
  CHECK(got[4] == 0);
  CHECK(got[5] == 0);
  CHECK(got[1] == 6);  // of expert 1, whose other copy is lost
  CHECK(got[7] == 6);  // of expert 3
  CHECK(got[0] + got[2] == 6);
  CHECK(got[3] + got[6] == 6);
  CHECK(solver.certificates()[0].value == 8);  // six tokens of four experts on three ranks
}

TEST_CASE("outside: TensorRT-LLM: a dead rank gets nothing from a new plan") {
  plimsoll::array const loads(seq, floats(4, 1), 1, 4);
  plimsoll::placement_options const where{.on = live_ranks()};
  auto const made = plimsoll::replicate(seq, loads, 8, {.where = where});
  CHECK(made.replica_count.to_host() == ints{2, 2, 1, 1});
  auto const plan = plimsoll::place(seq, loads, made.replica_count, 8, where);
  CHECK_NOTHROW(plimsoll::validate(seq, plan.ref(), {.on = live_ranks()}));
  ints const map = plan.physical_to_logical.to_host();
  CHECK(map[4] == -1);
  CHECK(map[5] == -1);
  CHECK(std::count(map.begin(), map.end(), -1) == 2);
}

TEST_CASE("outside: TensorRT-LLM: the last copy of an expert on a dead rank is refused") {
  ints const map{0, 1, 2, 3};
  auto const before = placed(map);
  auto const after = placed(masked(map));
  CHECK_THROWS_WITH_AS(plimsoll::validate(seq, after.ref(), {.on = live_ranks()}),
                       "validate: physical_to_logical: expected every expert on a live rank, got "
                       "none in layer 0, expert 2",
                       plimsoll::invalid_input);
  plimsoll::array const loads(seq, floats(4, 1), 1, 4);
  plimsoll::minmax_lp solver(seq, before.ref(), {.on = live_ranks()});
  auto split = plimsoll::zeros<double>(seq, 1, 4);
  solver.solve(loads, split);
  CHECK_THROWS_AS(solver.check(), plimsoll::invalid_input);
  CHECK(split.to_host() == std::vector<double>(4, 0));
  CHECK(before.physical_to_logical.to_host() == map);  // as before, also in theirs
  // Three live slots do not hold four experts in any plan.
  CHECK_THROWS_AS(plimsoll::replicate(seq, loads, 4, {.where = {.on = live_ranks()}}),
                  plimsoll::invalid_input);
  CHECK_THROWS_AS(plimsoll::place(seq, loads, before.replica_count, 4, {.on = live_ranks()}),
                  plimsoll::invalid_input);
}

}  // namespace plimsoll_outside_tensorrt_llm
