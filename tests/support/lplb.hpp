// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of lplb, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/lplb.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test::lplb_support {

using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::dispatch_counters;
using plimsoll::dispatch_method;
using plimsoll::lplb_options;
using plimsoll::quota_report;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;

/// A placement that assigns every layer's experts to the ranks in turn; then each rank gets copies
/// of other experts.
template <class P>
struct lplb_case {
  static constexpr index_t layers = 3;
  static constexpr index_t experts = 40;
  static constexpr index_t ranks = 8;
  static constexpr index_t slots = 64;
  static constexpr index_t tokens = 700;
  static constexpr index_t k = 3;

  ints map_values = made_map();
  array_in<std::int32_t, P> map{map_values};
  plimsoll::placement_ref placement{
      map.view2(layers, slots), {nullptr, layers, experts}, ranks, {}};
  /// [layers][tokens * k]: two experts are frequent.
  std::vector<ints> ids = made_ids();
  ints counts = counted();

  [[nodiscard]] static lplb_options options() {
    lplb_options made;
    made.max_token_copies = tokens * k;
    return made;
  }

  /// Returns the number of copies in every slot, and checks that slots hold the copies' experts.
  [[nodiscard]] ints tally(index_t layer, ints const& chosen) const {
    ints result(static_cast<std::size_t>(slots), 0);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      std::int32_t const id = ids[static_cast<std::size_t>(layer)][i];
      bool const is_expert = id >= 0 && id < experts;
      CHECK((chosen[i] >= 0) == is_expert);
      if (chosen[i] >= 0) {
        CHECK(map_values[static_cast<std::size_t>(layer * slots + chosen[i])] == id);
        ++result[static_cast<std::size_t>(chosen[i])];
      }
    }
    return result;
  }

 private:
  static ints made_map() {
    ints result;
    for (index_t layer = 0; layer < layers; ++layer) {
      for (index_t r = 0; r < ranks; ++r) {
        for (index_t i = 0; i < experts / ranks; ++i) {
          result.push_back(static_cast<std::int32_t>(i * ranks + r));
        }
        for (index_t i = 0; i < slots / ranks - experts / ranks; ++i) {
          index_t const e = (r * 11 + i * 5 + layer + 1) % experts;
          result.push_back(i == 2 && r % 3 == 0 ? -1 : static_cast<std::int32_t>(e));
        }
      }
    }
    return result;
  }
  static std::vector<ints> made_ids() {
    std::vector<ints> result(static_cast<std::size_t>(layers));
    generator draw(1);
    for (ints& row : result) {
      for (index_t i = 0; i < tokens * k; ++i) {
        auto const hot = draw.between(0, 5);
        row.push_back(static_cast<std::int32_t>(
            hot < 2 ? hot : draw.between(-1, i % 50 == 0 ? experts : experts - 1)));
      }
    }
    return result;
  }
  [[nodiscard]] ints counted() const {
    ints result(static_cast<std::size_t>(layers * experts), 0);
    for (std::size_t layer = 0; layer < ids.size(); ++layer) {
      for (std::int32_t const id : ids[layer]) {
        if (id >= 0 && id < experts) {
          ++result[layer * static_cast<std::size_t>(experts) + static_cast<std::size_t>(id)];
        }
      }
    }
    return result;
  }
};

inline std::vector<std::int64_t> numbers_in(std::vector<dispatch_counters> const& all) {
  dispatch_counters const& c = all.at(0);
  return {c.routed, c.beyond_quota, c.without_slot, c.unrouted, c.out_of_range};
}

}  // namespace plimsoll_test::lplb_support
