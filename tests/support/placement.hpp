// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of placement, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "owned.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"
#include "policies.hpp"
#include "skewed_loads.hpp"

namespace plimsoll_test::placement_support {

using plimsoll::anti_affinity;
using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::strictness;

template <class P>
struct placed {
  ints map;
  std::vector<certificate> certificates;

  template <class T>
  placed(std::vector<T> const& loads, ints const& counts, index_t layers, index_t slots,
         host_options const& options) {
    auto const experts = layers == 0 ? 1 : static_cast<index_t>(loads.size()) / layers;
    array_in<T, P> const in(loads);
    array_in<std::int32_t, P> const counts_in(counts);
    array_in<std::int32_t, P> out(layers * slots, -7);
    options_in<P> const where(options, layers);
    certificates =
        plimsoll::place(make_policy<P>(), in.view2(layers, experts),
                        counts_in.view2(layers, experts), *where, out.view2(layers, slots));
    map = out.values();
  }
};

/// Message of the error that `place` throws for this input, or "no error".
template <class P>
std::string place_refusal(ints const& loads, ints const& counts, index_t slots,
                          host_options const& options) {
  try {
    placed<P>(loads, counts, 1, slots, options);
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

/// Load of every rank of one layer, computed in double.
inline std::vector<double> loads_of_ranks(std::vector<std::int64_t> const& loads,
                                          ints const& counts, ints const& map,
                                          ints const& offsets) {
  std::vector<double> result;
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    double sum = 0;
    for (auto slot = static_cast<std::size_t>(offsets[r]);
         slot < static_cast<std::size_t>(offsets[r + 1]); ++slot) {
      if (map[slot] >= 0) {
        auto const e = static_cast<std::size_t>(map[slot]);
        sum += static_cast<double>(loads[e]) / counts[e];
      }
    }
    result.push_back(sum);
  }
  return result;
}

/// Compares with the oracle on skewed loads, whose zeros and ties also test the order of ties.
template <class P>
void check_against_oracle(std::string const& name, index_t layers, index_t experts, index_t copies,
                          index_t slots, host_options const& options) {
  CAPTURE(name);
  auto const loads = as<std::int32_t>(skewed_loads(layers, experts, 31));
  ints counts;
  ints expected;
  auto const n = static_cast<std::size_t>(experts);
  for (index_t l = 0; l < layers; ++l) {
    auto const row = wide_row(loads, l, experts);
    auto const mine = oracle::replicate(row, copies, oracle::vector(n, 1), oracle::vector(n, 2));
    auto const map = oracle::place(row, mine, site_of(options, slots, l, experts),
                                   static_cast<std::size_t>(slots));
    REQUIRE(map.has_value());
    counts.insert(counts.end(), mine.begin(), mine.end());
    expected.insert(expected.end(), map->begin(), map->end());
  }
  placed<P> const got(loads, counts, layers, slots, options);
  CHECK(got.map == expected);
  for (certificate const& c : got.certificates) {
    CHECK(c.lower_bound > 0);
    CHECK(c.lower_bound <= c.value);
    CHECK(c.work == copies);
  }
  report_hash("placement." + name, got.map);
}

template <class P>
struct grouped {
  ints experts;
  ints offsets;
  std::vector<certificate> certificates;

  grouped(ints const& loads, index_t layers, index_t groups, index_t slots,
          host_options const& options) {
    auto const n = static_cast<index_t>(loads.size()) / layers;
    array_in<std::int32_t, P> const in(loads);
    array_in<std::int32_t, P> experts_out(layers * n, -7);
    array_in<std::int32_t, P> offsets_out(layers * (options.nodes + 1), -7);
    options_in<P> const where(options, layers);
    certificates = plimsoll::place_groups(make_policy<P>(), in.view2(layers, n), groups, slots,
                                          *where, experts_out.view2(layers, n),
                                          offsets_out.view2(layers, options.nodes + 1));
    experts = experts_out.values();
    offsets = offsets_out.values();
  }
};

}  // namespace plimsoll_test::placement_support
