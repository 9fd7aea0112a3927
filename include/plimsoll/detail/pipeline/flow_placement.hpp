// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `flow_placement` and `certify`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/flow_placement.hpp>
#include <plimsoll/detail/host/minmax_lp.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/host/slots.hpp>
#include <plimsoll/detail/pipeline/ids.hpp>
#include <plimsoll/detail/pipeline/minmax_lp.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
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

/// Splits every step optimally under a plan, and bounds its peak under any plan with these slots.
template <class Context, class Loads>
std::vector<certificate> run_certify(std::string_view name, Context const& context,
                                     Loads const& loads, placement_ref const& plan,
                                     rank_set const& on) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const slots = plan.physical_to_logical.extent(1);
  minmax_lp_pipeline<Context> lp(context, plan, {.on = on, .tolerance = 0}, name);
  rank_set const ranks = with_ranks_of(name, on, plan.ranks);
  rank_speeds const speeds = read_speeds(name, context, ranks);
  expect_every_expert(name, read_slots(name, context, plan, loads.extent(2)), speeds, layers,
                      loads.extent(2));
  buffer<double, Context> const reach(context, speed_sums(speeds.speed));
  buffer<double, Context> const bounds(context, steps * layers);
  buffer<certificate, Context> const peaks(context, steps * layers);
  launch(context, steps * layers, lp.body_of_steps(loads, peaks.data()));
  launch(context, steps * layers,
         step_bound_body<Loads>{.loads = loads,
                                .where = {{plan.rank_offsets, slots, ranks.ranks}, 1, ranks.active},
                                .reach = reach.data(),
                                .bounds = bounds.data()});
  std::vector<certificate> const found = peaks.read();
  for (std::size_t i = 0; i < found.size(); ++i) {
    expect_solved(name, "loads", found[i], static_cast<index_t>(i) % layers);
  }
  std::vector<double> const least = bounds.read();
  std::vector<certificate> result;
  for (index_t layer = 0; layer < layers; ++layer) {
    result.push_back(sum_of_steps(found, least, layers, layer));
  }
  return result;
}

}}}  // namespace plimsoll::detail
