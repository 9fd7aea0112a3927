// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of load_tensor, calls under every policy, and what the results must be.
#pragma once

#include <plimsoll/detail/rows.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/random.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hash.hpp"
#include "policies.hpp"
#include "resources.hpp"

namespace plimsoll_test::load_tensor_support {

using plimsoll::count_mode;
using plimsoll::routing_counters;
using plimsoll::scatter_counters;

// ----- counting ----------------------------------------------------------------------------------

inline std::vector<std::int64_t> members(std::vector<routing_counters> const& counters) {
  std::vector<std::int64_t> result;
  for (routing_counters const& c : counters) {
    result.insert(result.end(), {c.routed, c.unrouted, c.out_of_range});
  }
  return result;
}

/// Draws ids; one in eight is -1, one in eight out of range in one of several ways.
template <class Id>
std::vector<Id> random_ids(index_t n, index_t experts, std::uint64_t seed) {
  Id const odd[] = {-2, static_cast<Id>(experts), std::numeric_limits<Id>::min(),
                    std::numeric_limits<Id>::max(), static_cast<Id>(-experts)};
  std::vector<Id> ids;
  for (index_t i = 0; i < n; ++i) {
    std::uint64_t const bits = plimsoll::random::bits(seed, 0, static_cast<std::uint64_t>(i)) >> 16;
    std::uint64_t const rest = bits / 8;
    if (bits % 8 == 0) {
      ids.push_back(-1);
    } else if (bits % 8 == 1) {
      Id const id = odd[rest % 5];
      ids.push_back(id == -1 ? -2 : id);  // -experts is -1 for a single expert
    } else {
      ids.push_back(static_cast<Id>(rest % static_cast<std::uint64_t>(experts)));
    }
  }
  return ids;
}

struct count_result {
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> counters;
  bool operator==(count_result const&) const = default;
};

/// Counts by definition, for one layer and one source.
template <class Id>
void count_plainly(Id const* ids, index_t n, index_t experts, std::int64_t* counts,
                   std::int64_t* counters) {
  for (index_t i = 0; i < n; ++i) {
    if (ids[i] >= 0 && ids[i] < experts) {
      ++counts[ids[i]];
      ++counters[0];
    } else {
      ++counters[ids[i] == -1 ? 1 : 2];
    }
  }
}

template <class Id>
count_result count_plainly(std::vector<Id> const& ids, index_t layers, index_t experts) {
  index_t const n = layers == 0 ? 0 : static_cast<index_t>(ids.size()) / layers;
  count_result result{std::vector<std::int64_t>(static_cast<std::size_t>(layers * experts)),
                      std::vector<std::int64_t>(static_cast<std::size_t>(layers * 3))};
  for (index_t layer = 0; layer < layers; ++layer) {
    count_plainly(ids.data() + layer * n, n, experts, result.counts.data() + layer * experts,
                  result.counters.data() + layer * 3);
  }
  return result;
}

template <class T>
std::vector<std::int64_t> wide(std::vector<T> const& values) {
  return {values.begin(), values.end()};
}

template <class P, class Count, class Id>
count_result counted(std::vector<Id> const& ids, index_t k, index_t experts,
                     count_mode mode = count_mode::overwrite) {
  array_in<Id, P> const in(ids);
  array_in<Count, P> counts(experts, Count{5});
  array_in<routing_counters, P> counters(1, routing_counters{7, 8, 9});
  plimsoll::count_tokens(make_policy<P>(), in.view2(in.size() / k, k), {mode}, counts.view1(),
                         counters.view1());
  return {wide(counts.values()), members(counters.values())};
}

}  // namespace plimsoll_test::load_tensor_support
