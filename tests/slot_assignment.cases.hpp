// SPDX-License-Identifier: Apache-2.0
// Tests of slot_assignment under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/slot_assignment.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/policies.hpp"
#include "support/slot_oracle.hpp"

namespace plimsoll_test {

using plimsoll::remainder_spread;
using ints = std::vector<std::int32_t>;
using flags = std::vector<std::uint8_t>;

/// Offsets that `slot_assignment` writes; `active` may be empty.
template <class P>
ints assigned(ints const& layer_slots, index_t ranks,
              remainder_spread ties = remainder_spread::interleaved, flags const& active = {}) {
  array_in<std::int32_t, P> const in(layer_slots);
  array_in<std::uint8_t, P> const active_in(active);
  array_in<std::int32_t, P> out(in.size() * (ranks + 1), -7);
  plimsoll::slot_assignment_options options{.on = {.ranks = ranks}, .remainder = ties};
  if (!active.empty()) {
    options.on.active = active_in.view1();
  }
  plimsoll::assign_slots(make_policy<P>(), in.view1(), options, out.view2(in.size(), ranks + 1));
  return out.values();
}

PLIMSOLL_TEST_CASE("slot_assignment: figure 7 of CRAFT", P, PLIMSOLL_POLICIES) {
  // 4 GPUs on 2 nodes, and 2 slots more than a multiple of 4 in each layer. They go to GPUs 0 and
  // 2, then to 1 and 3.
  CHECK(assigned<P>({6, 6}, 4) == ints{0, 2, 3, 5, 6, 0, 1, 3, 4, 6});
  CHECK(assigned<P>({2, 2, 2}, 4) == ints{0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 0, 1, 1, 2, 2});
  // By the text of algorithm 3, with endpoints, they go to GPUs 0 and 3, then to 1 and 2.
  CHECK(assigned<P>({6, 6}, 4, remainder_spread::endpoints) == ints{0, 2, 3, 4, 6, 0, 1, 3, 5, 6});
}

PLIMSOLL_TEST_CASE("slot_assignment: equals algorithm 3 as written", P, PLIMSOLL_POLICIES) {
  ints all;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    generator random(seed);
    index_t const layers = random.between(1, 20);
    index_t const ranks = random.between(1, seed % 20 == 0 ? 300 : 40);
    auto const chance_of_death = random.between(0, 1) * random.between(0, 9);
    flags live(static_cast<std::size_t>(ranks), 1);
    for (std::uint8_t& alive : live) {
      alive = random.between(1, 10) > chance_of_death ? std::uint8_t{1} : std::uint8_t{0};
    }
    live[static_cast<std::size_t>(random.between(0, ranks - 1))] = 2;  // not 0: a live rank
    std::int64_t const most = random.between(0, 3 * ranks);
    ints layer_slots;
    for (index_t l = 0; l < layers; ++l) {
      layer_slots.push_back(static_cast<std::int32_t>(random.between(0, most)));
    }
    CAPTURE(seed);
    for (remainder_spread const ties :
         {remainder_spread::interleaved, remainder_spread::endpoints}) {
      ints const got = assigned<P>(layer_slots, ranks, ties, live);
      auto const slots = oracle::from_offsets(got, layer_slots, live.size());
      CHECK(slots == oracle::assign_slots(layer_slots, live, ties == remainder_spread::endpoints));
      oracle::check_even(slots, live);
      all.insert(all.end(), got.begin(), got.end());
    }
  }
  report_hash("slot_assignment.random", all);
}

PLIMSOLL_TEST_CASE("slot_assignment: the largest numbers", P, PLIMSOLL_POLICIES) {
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  CHECK(assigned<P>({huge, huge}, 2) ==
        ints{0, huge / 2 + 1, huge, 0, huge / 2, huge});  // the total exceeds int32
  flags const live(static_cast<std::size_t>(plimsoll::rank_limit), 1);
  ints const layer_slots{32766, 32766, 16384, huge, 1};
  for (remainder_spread const ties : {remainder_spread::interleaved, remainder_spread::endpoints}) {
    ints const got = assigned<P>(layer_slots, plimsoll::rank_limit, ties);
    CHECK(oracle::from_offsets(got, layer_slots, live.size()) ==
          oracle::assign_slots(layer_slots, live, ties == remainder_spread::endpoints));
    report_hash(ties == remainder_spread::endpoints ? "slot_assignment.largest_endpoints"
                                                    : "slot_assignment.largest",
                got);
  }
}

PLIMSOLL_TEST_CASE("slot_assignment: edges", P, PLIMSOLL_POLICIES) {
  SUBCASE("no layers") { CHECK(assigned<P>({}, 4).empty()); }
  SUBCASE("no slots") { CHECK(assigned<P>({0, 0}, 2) == ints(6, 0)); }
  SUBCASE("one rank") {
    CHECK(assigned<P>({3, 0, 5}, 1, remainder_spread::endpoints) == ints{0, 3, 0, 0, 0, 5});
  }
  SUBCASE("one slot per layer goes to the ranks in turn") {
    CHECK(assigned<P>({1, 1, 1, 1}, 3) == ints{0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1});
  }
  SUBCASE("dead ranks") {
    CHECK(assigned<P>({3, 3}, 4, remainder_spread::interleaved, {0, 1, 0, 1}) ==
          ints{0, 0, 2, 2, 3, 0, 0, 1, 1, 3});
  }
  SUBCASE("strided views") {
    array_in<std::int32_t, P> const in(ints{3, -1, 1, -1});
    array_in<std::uint8_t, P> const active(flags{1, 0, 1, 0});
    array_in<std::int32_t, P> out(ints(12, -7));
    plimsoll::vector_ref<std::int32_t const> slots(in.data(), 2);
    slots.strides[0] = 2;
    plimsoll::vector_ref<std::uint8_t const> live(active.data(), 2);
    live.strides[0] = 2;
    plimsoll::matrix_ref<std::int32_t> offsets(out.data(), 2, 3);
    offsets.strides[0] = 1;
    offsets.strides[1] = 4;
    plimsoll::assign_slots(make_policy<P>(), slots, {.on = {.ranks = 2, .active = live}}, offsets);
    CHECK(out.values() == ints{0, 0, -7, -7, 2, 0, -7, -7, 3, 1, -7, -7});
  }
}

PLIMSOLL_TEST_CASE("slot_assignment: place takes the offsets", P, PLIMSOLL_POLICIES) {
  array_in<std::int32_t, P> const slots(ints{6, 6});
  array_in<float, P> const loads(std::vector<float>{5, 4, 3, 2, 1, 6, 1, 2, 3, 4, 5, 7});
  array_in<std::int32_t, P> const counts(ints(12, 1));
  array_in<std::int32_t, P> offsets(10);
  array_in<std::int32_t, P> map(12);
  plimsoll::assign_slots(make_policy<P>(), slots.view1(), {.on = {.ranks = 4}},
                         offsets.view2(2, 5));
  plimsoll::place(make_policy<P>(), loads.view2(2, 6), counts.view2(2, 6),
                  {.on = {.ranks = 4}, .rank_offsets = offsets.view2(2, 5)}, map.view2(2, 6));
  CHECK(map.values() == ints{5, 4, 0, 1, 3, 2, 5, 4, 0, 3, 2, 1});
}

/// Message of the error that `slot_assignment` throws for this input, or "no error".
template <class P>
std::string refusal(ints const& layer_slots, index_t ranks, flags const& active = {}) {
  try {
    assigned<P>(layer_slots, ranks, remainder_spread::interleaved, active);
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

PLIMSOLL_TEST_CASE("slot_assignment: bad values are named", P, PLIMSOLL_POLICIES) {
  CHECK(refusal<P>({4, 4, -3, -5}, 2) ==
        "assign_slots: layer_slots: expected at least 0 in every layer, got -3 in layer 2");
  CHECK(refusal<P>({4, 4}, 3, {0, 0, 0}) ==
        "assign_slots: on.active: expected at least 1 live rank, got 0");
  CHECK(refusal<P>({}, 1, {0}) == "assign_slots: on.active: expected at least 1 live rank, got 0");
  CHECK(refusal<P>({4}, 0) == "assign_slots: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal<P>({4}, 32768) ==
        "assign_slots: options.on.ranks: expected 1 to 32767 ranks, got 32768");
  CHECK(refusal<P>({4}, 3, {1, 1}) == "assign_slots: options.on.active: expected 3 ranks, got 2");
}

PLIMSOLL_TEST_CASE("slot_assignment: int64 slots and offsets", P, PLIMSOLL_POLICIES) {
  ints const slots{6, 6, 9};
  array_in<std::int64_t, P> const in(as_int64(slots));
  array_in<std::int64_t, P> out(3 * 5, -7);
  plimsoll::assign_slots(make_policy<P>(), in.view1(), {.on = {.ranks = 4}}, out.view2(3, 5));
  CHECK(out.values() == as_int64(assigned<P>(slots, 4)));
  // A number beyond int32 is not cut.
  array_in<std::int64_t, P> const large(1, (std::int64_t{1} << 32) + 1);
  CHECK_THROWS_WITH_AS(
      plimsoll::assign_slots(make_policy<P>(), large.view1(), {.on = {.ranks = 4}},
                             out.view2(1, 5)),
      "assign_slots: layer_slots: expected at least 0 in every layer, got -2147483648 in layer "
      "0",
      plimsoll::invalid_input);
}

}  // namespace plimsoll_test
