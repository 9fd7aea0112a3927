// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `gem`: checks of shapes and options, and messages about refused values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/latency.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/detail/host/swap_search.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/swap_search_types.hpp>
#include <plimsoll/systems/gem_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline swap_search_options search_options_of(gem_options const& options,
                                             matrix_ref<std::int32_t const> replica_count) {
  return {.on = options.on,
          .rank_offsets = options.rank_offsets,
          .replica_count = replica_count,
          .restarts = options.restarts,
          .noise = options.noise,
          .seed = options.seed,
          .min_gain = options.min_gain,
          .max_perturbations = 0,
          .objective = options.objective,
          .quantile = options.quantile};
}

inline void expect_trace_lengths(std::string_view function, index_t steps, index_t planned_until,
                                 std::vector<index_t> const& lengths) {
  expect_between(function, "planned_until", 1, steps - 1, planned_until,
                 "steps (one must be left)");
  for (index_t const length : lengths) {
    expect_between(function, "lengths", 1, planned_until, length, "steps");
  }
}

inline void throw_gem_fault(refused_value const& of) {
  throw_replication_fault(of);
  throw_latency_fault(of);
}

}}}  // namespace plimsoll::detail
