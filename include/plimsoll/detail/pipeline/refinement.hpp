// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `refine`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/move_path.hpp>
#include <plimsoll/detail/algorithm/refinement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/pipeline/placement.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/refinement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context, class Loads>
void enqueue_refine(Context const& context, Loads const& loads, placement_options const& where,
                    refinement_options const& options, matrix_ref<std::int32_t> physical_to_logical,
                    matrix_ref<std::int32_t> replica_count, problem_report* reports) {
  if (options.move_price > 0) {
    launch(context, loads.extent(0),
           priced_refinement_body<Loads>{.loads = loads,
                                         .where = topology_of(where, physical_to_logical.extent(1)),
                                         .rule = rule_of(where),
                                         .load_shrink = where.load_shrink,
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
                                 .load_shrink = where.load_shrink,
                                 .tolerance = options.tolerance,
                                 .map = physical_to_logical,
                                 .peaks = nullptr,
                                 .made = reports,
                                 .reports = reports});
    return;
  }
  launch(context, loads.extent(0),
         refinement_body<Loads>{.loads = loads,
                                .where = topology_of(where, physical_to_logical.extent(1)),
                                .rule = rule_of(where),
                                .load_shrink = where.load_shrink,
                                .tolerance = options.tolerance,
                                .trials = options.max_trials,
                                .perturbations = options.max_perturbations,
                                .physical_to_logical = physical_to_logical,
                                .replica_count = replica_count,
                                .reports = reports});
}

}}}  // namespace plimsoll::detail
