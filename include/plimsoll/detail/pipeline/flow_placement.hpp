// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launch of `flow_placement`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/flow_placement.hpp>
#include <plimsoll/detail/pipeline/ids.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Enqueues the plan of every layer. `reports` has one element per layer.
template <class Context, class Loads>
void enqueue_flow_placement(Context const& context, Loads const& loads,
                            flow_placement_options const& options,
                            matrix_ref<std::int32_t> physical_to_logical,
                            matrix_ref<std::int32_t> replica_count, problem_report* reports) {
  launch(context, loads.extent(1),
         flow_placement_body<Loads>{
             .loads = loads,
             .where = {{options.rank_offsets, physical_to_logical.extent(1), options.on.ranks},
                       options.on.nodes,
                       options.on.active,
                       options.on.speeds},
             .split = options.split,
             .max_partners = options.max_partners,
             .physical_to_logical = physical_to_logical,
             .replica_count = replica_count,
             .reports = reports});
}

/// Plans every layer. The outputs hold int32 or int64.
template <class Context, class Loads, class Map, class Counts>
std::vector<flow_placement_report> run_flow_placement(std::string_view name, Context const& context,
                                                      Loads const& loads,
                                                      flow_placement_options const& options,
                                                      matrix_ref<Map> const& physical_to_logical,
                                                      matrix_ref<Counts> const& replica_count) {
  int32_ids const map(context, physical_to_logical);
  int32_ids const copies(context, replica_count);
  return flow_reports(run_planning(
      name, context, loads.extent(1), 1, throw_replication_fault, [&](problem_report* reports) {
        enqueue_flow_placement(context, loads, options, map.view(), copies.view(), reports);
        map.store();
        copies.store();
      }));
}

}}}  // namespace plimsoll::detail
