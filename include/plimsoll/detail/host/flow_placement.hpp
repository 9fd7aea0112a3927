// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `flow_placement`: checks of shapes and options, and its reports.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/detail/host/slots.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the inputs of `flow_placement`; `holder` is the argument that gives the number of slots.
inline void expect_flow_placement(std::string_view name, index_t steps, index_t layers,
                                  index_t experts, index_t slots,
                                  flow_placement_options const& options, std::string_view holder) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_between(name, holder, experts, expert_limit, slots, "slots (at least one per expert)");
  expect_rank_set(name, options.on);
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.on.ranks);
  expect_between(name, "options.max_partners", 0, rank_limit, options.max_partners, "partners");
}

/// Returns the reports, which the body writes as certificates.
inline std::vector<flow_placement_report> flow_reports(std::vector<certificate> const& written) {
  std::vector<flow_placement_report> result;
  for (certificate const& one : written) {
    result.push_back({one.work, static_cast<index_t>(one.value)});
  }
  return result;
}

/// Refuses a plan in which an expert has no slot of a live rank: the bounds are those of plans that
/// leave none out.
inline void expect_every_expert(std::string_view name, host_slots const& slots,
                                rank_speeds const& ranks, index_t layers, index_t experts) {
  for (index_t layer = 0; layer < layers; ++layer) {
    std::vector<bool> held(static_cast<std::size_t>(experts));
    for (index_t r = 0; r < slots.ranks; ++r) {
      bool const lives = ranks.speed[static_cast<std::size_t>(r)] > 0;
      for (index_t slot = slots.begins_of(layer)[r]; lives && slot < slots.begins_of(layer)[r + 1];
           ++slot) {
        if (std::int32_t const expert = slots.experts_of(layer)[slot]; expert >= 0) {
          held[static_cast<std::size_t>(expert)] = true;
        }
      }
    }
    auto const missing = std::find(held.begin(), held.end(), false);
    if (missing != held.end()) {
      fail(name, "placement.physical_to_logical", "every expert in a slot of a live rank",
           text("none for expert ", missing - held.begin(), " in layer ", layer));
    }
  }
}

/// Returns a + b, rounded towards 0 or, if `up`, away from it. Both are at least 0.
inline double sum_towards(bool up, double a, double b) {
  double const sum = a + b;
  double const part = sum - a;
  double const error = (a - (sum - part)) + (b - part);  // a + b - sum, exactly
  return up && error > 0    ? std::nextafter(sum, INFINITY)
         : !up && error < 0 ? std::nextafter(sum, 0.0)
                            : sum;
}

/// Returns sums of the speeds of the fastest live ranks: of none, of one, and so on. They are rounded
/// up, so that a load over a sum, rounded down, is a lower bound.
inline std::vector<double> speed_sums(std::vector<double> speed) {
  std::sort(speed.rbegin(), speed.rend());  // std::greater costs all of <functional>
  std::vector<double> result(1, 0.0);
  for (double const one : speed) {
    result.push_back(sum_towards(true, result.back(), one));
  }
  return result;
}

/// Adds up the certificates of the steps of a layer, values rounded up and bounds down.
inline certificate sum_of_steps(std::vector<certificate> const& peaks,
                                std::vector<double> const& bounds, index_t layers, index_t layer) {
  certificate sum{0, 0, 0, certificate_status::optimal};
  for (std::size_t i = static_cast<std::size_t>(layer); i < peaks.size();
       i += static_cast<std::size_t>(layers)) {
    double const bound = std::min(bounds[i], peaks[i].value);
    sum.value = sum_towards(true, sum.value, peaks[i].value);
    sum.lower_bound = sum_towards(false, sum.lower_bound, bound);
    sum.work += peaks[i].work;
    if (bound != peaks[i].value) {
      sum.status = certificate_status::feasible;
    }
  }
  if (sum.status == certificate_status::optimal) {
    sum.lower_bound = sum.value;
  }
  return sum;
}

}}}  // namespace plimsoll::detail
