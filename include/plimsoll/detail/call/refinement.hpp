// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `refine`: checks options, launches the bodies, and names refused values.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/move_path.hpp>
#include <plimsoll/detail/algorithm/refinement.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/refinement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_refinable(std::string_view function, refinement_options const& options,
                             argument_name const& argument = "options") {
  if (!(options.tolerance >= 0 && options.tolerance <= 1)) {
    fail(function, text(argument, ".tolerance"), "0 to 1", text(options.tolerance));
  }
  if (options.max_trials < 0) {
    fail(function, text(argument, ".max_trials"), "at least 0", text(options.max_trials));
  }
  if (options.max_perturbations < 0) {
    fail(function, text(argument, ".max_perturbations"), "at least 0",
         text(options.max_perturbations));
  }
  if (!(options.move_price >= 0 && options.move_price <= std::numeric_limits<double>::max())) {
    fail(function, text(argument, ".move_price"), "a number of at least 0",
         text(options.move_price));
  }
}

/// Returns `where` with the ranks and offsets of a given placement where it names none.
inline placement_options options_for(std::string_view function, placement_ref const& given,
                                     placement_options where) {
  where.on = with_ranks_of(function, where.on, given.ranks, "where.on");
  if (where.rank_offsets.data == nullptr) {
    where.rank_offsets = given.rank_offsets;
  }
  return where;
}

template <class Context, class Loads>
void enqueue_refine(Context const& context, Loads const& loads, placement_options const& where,
                    refinement_options const& options, matrix_ref<std::int32_t> physical_to_logical,
                    matrix_ref<std::int32_t> replica_count, problem_report* reports) {
  if (options.move_price > 0) {
    launch(context, loads.extent(0),
           priced_refinement_body<Loads>{.loads = loads,
                                         .where = topology_of(where, physical_to_logical.extent(1)),
                                         .rule = rule_of(where),
                                         .load_exponent = where.load_exponent,
                                         .tolerance = options.tolerance,
                                         .price = options.move_price,
                                         .keeps_counts = options.max_trials == 0,
                                         .physical_to_logical = physical_to_logical,
                                         .replica_count = replica_count,
                                         .reports = reports});
    launch(context, loads.extent(0),
           plan_peak_body<Loads>{.loads = loads,
                                 .where = topology_of(where, physical_to_logical.extent(1)),
                                 .rule = rule_of(where),
                                 .load_exponent = where.load_exponent,
                                 .tolerance = options.tolerance,
                                 .map = physical_to_logical,
                                 .made = reports,
                                 .reports = reports});
    return;
  }
  launch(context, loads.extent(0),
         refinement_body<Loads>{.loads = loads,
                                .where = topology_of(where, physical_to_logical.extent(1)),
                                .rule = rule_of(where),
                                .load_exponent = where.load_exponent,
                                .tolerance = options.tolerance,
                                .trials = options.max_trials,
                                .perturbations = options.max_perturbations,
                                .physical_to_logical = physical_to_logical,
                                .replica_count = replica_count,
                                .reports = reports});
}

}}}  // namespace plimsoll::detail
