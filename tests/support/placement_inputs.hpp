// SPDX-License-Identifier: Apache-2.0
// `placement_options` with arrays in host vectors, for the calls and for the oracle.
#pragma once

#include <plimsoll/placement.hpp>
#include <plimsoll/types.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planning_oracle.hpp"
#include "policies.hpp"

namespace plimsoll_test {

using ints = std::vector<std::int32_t>;

/// As `plimsoll::placement_options`; an empty vector means that the option is not set.
struct host_options {
  index_t ranks = 1;
  ints rank_offsets = {};
  index_t nodes = 1;
  std::vector<std::uint8_t> active = {};
  std::vector<double> speeds = {};
  plimsoll::anti_affinity replica_anti_affinity = plimsoll::anti_affinity::none;
  plimsoll::strictness anti_affinity_strength = plimsoll::strictness::preferred;
  double load_exponent = 1.0;
  ints node_experts = {};
  ints node_offsets = {};
};

/// The options of a call, with their arrays in the memory of a policy.
template <class P>
class options_in {
 public:
  options_in(host_options const& given, index_t layers)
      : rank_offsets_(given.rank_offsets),
        active_(given.active),
        speeds_(given.speeds),
        node_experts_(given.node_experts),
        node_offsets_(given.node_offsets),
        options_{.on = {.ranks = given.ranks, .nodes = given.nodes},
                 .rank_offsets = matrix(rank_offsets_, layers),
                 .replica_anti_affinity = given.replica_anti_affinity,
                 .anti_affinity_strength = given.anti_affinity_strength,
                 .load_exponent = given.load_exponent,
                 .node_experts = matrix(node_experts_, layers),
                 .node_offsets = matrix(node_offsets_, layers)} {
    if (!given.active.empty()) {
      options_.on.active = active_.view1();
    }
    if (!given.speeds.empty()) {
      options_.on.speeds = speeds_.view1();
    }
  }
  plimsoll::placement_options const& operator*() const { return options_; }
  plimsoll::placement_options const* operator->() const { return &options_; }

 private:
  static plimsoll::matrix_ref<std::int32_t const> matrix(array_in<std::int32_t, P> const& values,
                                                         index_t layers) {
    return values.size() == 0 ? plimsoll::matrix_ref<std::int32_t const>{}
                              : values.view2(layers, values.size() / layers);
  }

  array_in<std::int32_t, P> rank_offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
  array_in<std::int32_t, P> node_experts_;
  array_in<std::int32_t, P> node_offsets_;
  plimsoll::placement_options options_;
};

inline ints even_offsets(index_t ranks, index_t slots) {
  ints offsets;
  for (index_t r = 0; r <= ranks; ++r) {
    offsets.push_back(static_cast<std::int32_t>(r * slots / ranks));
  }
  return offsets;
}

/// Returns row `row` of a matrix with `columns` columns.
inline oracle::vector wide_row(ints const& values, index_t row, index_t columns) {
  return {values.begin() + row * columns, values.begin() + (row + 1) * columns};
}

/// Returns the options of one layer for the oracle.
inline oracle::site site_of(host_options const& given, index_t slots, index_t layer,
                            index_t experts) {
  ints const offsets =
      given.rank_offsets.empty() ? even_offsets(given.ranks, slots) : given.rank_offsets;
  oracle::site where{wide_row(offsets, given.rank_offsets.empty() ? 0 : layer, given.ranks + 1),
                     static_cast<std::size_t>(given.nodes), given.active, given.speeds};
  if (given.replica_anti_affinity != plimsoll::anti_affinity::none) {
    where.rule = given.replica_anti_affinity == plimsoll::anti_affinity::rank ? oracle::apart::rank
                                                                              : oracle::apart::node;
    where.required = given.anti_affinity_strength == plimsoll::strictness::required;
  }
  if (!given.node_experts.empty()) {
    auto const all = wide_row(given.node_experts, layer, experts);
    auto const bounds = wide_row(given.node_offsets, layer, given.nodes + 1);
    for (std::size_t n = 0; n < where.nodes; ++n) {
      where.lists.emplace_back(all.begin() + bounds[n], all.begin() + bounds[n + 1]);
    }
  }
  return where;
}

}  // namespace plimsoll_test
