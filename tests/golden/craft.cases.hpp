// SPDX-License-Identifier: Apache-2.0
// Slots as CRAFT's algorithm 3 divides them, against ours. Cases are `a_*`; `b_*` hold the rest of
// CRAFT, which is not part of the library yet.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/slot_assignment.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/slot_oracle.hpp"

namespace plimsoll_test {

TEST_SUITE("golden.craft") {
  TEST_CASE_TEMPLATE("golden: craft, slots", P, PLIMSOLL_POLICIES) {
    if (!backend_available<P>()) {
      return;
    }
    int compared = 0;
    for (golden_case const& golden : golden_cases("craft")) {
      std::string const name = golden.name();
      CAPTURE(name);
      if (name.compare(0, 2, "a_") != 0) {
        continue;
      }
      ++compared;
      index_t const layers = golden.integer("params.layers");
      index_t const ranks = golden.integer("params.gpus");
      auto const layer_slots = golden.array<std::int32_t>("R");
      array_in<std::int32_t, P> const in(layer_slots);
      array_in<std::int32_t, P> interleaved(layers * (ranks + 1));
      array_in<std::int32_t, P> endpoints(layers * (ranks + 1));
      plimsoll::slot_assignment(make_policy<P>(), in.view1(), {.ranks = ranks},
                                interleaved.view2(layers, ranks + 1));
      plimsoll::slot_assignment(make_policy<P>(), in.view1(),
                                {.ranks = ranks, .ties = plimsoll::spacing::endpoints},
                                endpoints.view2(layers, ranks + 1));
      auto const n = static_cast<std::size_t>(ranks);
      for (auto const* offsets : {&interleaved, &endpoints}) {
        oracle::check_even(oracle::from_offsets(offsets->values(), layer_slots, n),
                           std::vector<std::uint8_t>(n, 1));
      }
      // The matrix was made by the rule of the endpoints.
      std::vector<std::int32_t> slots;
      for (auto const& row : oracle::from_offsets(endpoints.values(), layer_slots, n)) {
        slots.insert(slots.end(), row.begin(), row.end());
      }
      CHECK(slots == golden.array<std::int32_t>("A"));
      report_hash("golden.craft." + name, interleaved.values(), endpoints.values());
    }
    CHECK(compared >= 2);
  }
}

}  // namespace plimsoll_test
