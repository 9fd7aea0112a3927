// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `place_by_flow` and `certify`: checks shapes and options, launches the bodies, and
/// reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/migration_align.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/call/replication.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the inputs of `place_by_flow`; `holder` is the argument that gives the number of slots.
inline void expect_flow_placement(std::string_view name, index_t steps, index_t layers,
                                  index_t experts, index_t slots,
                                  flow_placement_options const& options, std::string_view holder) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_between(name, holder, experts, expert_limit, slots, "slots (at least one per expert)");
  expect_rank_set(name, options.on);
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.on.ranks);
  expect_enumerator(name, "options.split", split_rule::optimal, options.split);
  expect_between(name, "options.max_partners", 0, rank_limit, options.max_partners, "partners");
  checked_call(name, {{"layers", layers}, {"slots", slots}})
      .expect_given("options.in_use", options.in_use, "[layers, slots]");
  expect_keep_bonus(name, options.keep_bonus);
  expect_load_exponent(name, "options", options.load_exponent);
}

/// Names of arguments in messages of `place_by_flow`: the map that it reads is the one in use.
inline constexpr fault_names flow_names{{{"physical_to_logical", "options.in_use"}}};

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
      expect_no_fault(name, fault_of(fault_kind::missing_expert, missing - held.begin()), layer,
                      {{{"physical_to_logical", "placement.physical_to_logical"}}});
    }
  }
}

/// Returns a + b, rounded towards 0 or, if `up`, away from it. Both are at least 0.
inline double sum_towards(bool up, double a, double b) {
  double const sum = a + b;
  double const part = sum - a;
  double const error = (a - (sum - part)) + (b - part);  // a + b - sum, exactly
  return up && error > 0    ? __builtin_nextafter(sum, __builtin_inf())
         : !up && error < 0 ? __builtin_nextafter(sum, 0.0)
                            : sum;
}

/// Returns sums of the speeds of the fastest live ranks: of none, of one, and so on. They are
/// rounded up, so that a load over a sum, rounded down, is a lower bound.
inline host_list<double> speed_sums(host_list<double> speed) {
  std::sort(speed.rbegin(), speed.rend());  // std::greater costs all of <functional>
  host_list<double> result(1, 0.0, speed.get_allocator());
  for (double const rank_speed : speed) {
    result.push_back(sum_towards(true, result.back(), rank_speed));
  }
  return result;
}

/// Adds up the certificates of the steps of a layer, values rounded up and bounds down.
inline certificate sum_of_steps(std::vector<certificate> const& peaks,
                                host_list<double> const& bounds, index_t layers, index_t layer) {
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

/// Enqueues plans of every layer, one with each bonus instead of that of the options. The outputs
/// are `[bonuses, layers, ...]`, flat, and `outcomes` `[bonuses, layers]`.
template <class Context, class Loads>
void enqueue_flow_placements(Context const& context, Loads const& loads,
                             flow_placement_options const& options, bonus_list const& keep_bonuses,
                             matrix_ref<std::int32_t> physical_to_logical,
                             matrix_ref<std::int32_t> replica_count, flow_outcome* outcomes) {
  launch(context, keep_bonuses.count * loads.extent(1),
         flow_placement_body<Loads>{
             .loads = loads,
             .where = {{options.rank_offsets, physical_to_logical.extent(1), options.on.ranks},
                       options.on.nodes,
                       options.on.active,
                       options.on.speeds},
             .split = options.split,
             .max_partners = options.max_partners,
             .in_use = options.in_use,
             .keep_bonuses = keep_bonuses,
             .load_exponent = options.load_exponent,
             .physical_to_logical = physical_to_logical,
             .replica_count = replica_count,
             .outcomes = outcomes});
}

/// Returns the plan in use and a new one as `align` takes them. Ranks of a node stay together,
/// since copies of an expert are on one node where that costs little.
inline migration_pair pair_in_use(flow_placement_options const& options,
                                  matrix_ref<std::int32_t const> const& map, index_t experts) {
  return {.from = options.in_use,
          .to = map,
          .where = {.ranges = {options.rank_offsets, map.extent(1), options.on.ranks},
                    .nodes = options.on.nodes,
                    .active = options.on.active,
                    .speeds = options.on.speeds},
          .from_offsets = options.rank_offsets,
          .expert_count = experts};
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
  index_t const layers = loads.extent(1);
  index_t const slots = map.view().extent(1);
  bool const is_aligned = options.in_use.data != nullptr;
  // The output may be the array of the plan in use, which `align` compares with the new plan.
  buffer<std::int32_t, Context> const made(context, is_aligned ? layers * slots : 0);
  matrix_ref<std::int32_t> plan = map.view();
  if (is_aligned) {
    plan = {made.data(), layers, slots};
  }
  std::vector<flow_placement_report> reports;
  for (flow_outcome const& layer : planning_reports<flow_outcome>(
           name, context, {}, layers, 1, flow_names, [&](flow_outcome* outcomes) {
             enqueue_flow_placements(context, loads, options, {.bonus = {options.keep_bonus}}, plan,
                                     copies.view(), outcomes);
           })) {
    reports.push_back(layer.report);
  }
  if (is_aligned) {
    run_align(name, context, pair_in_use(options, plan, loads.extent(2)), relabeling::per_layer,
              plan);
    copy_rows<Context, std::int32_t>(context, plan, map.view());
  }
  map.store();
  copies.store();
  return reports;
}

/// Returns lower bounds on the peaks of all plans, `[steps, layers]`. `speeds`: 0 for dead ranks.
template <class Context, class Loads>
host_list<double> peak_bounds(Context const& context, Loads const& loads, topology const& where,
                              host_list<double> const& speeds) {
  index_t const problems = loads.extent(0) * loads.extent(1);
  buffer<double, Context> const reach(context, speed_sums(speeds));
  buffer<double, Context> const bounds(context, problems);
  launch(context, problems, step_bound_body<Loads>{loads, where, reach.data(), bounds.data()});
  return bounds.read(speeds.get_allocator().memory);
}

/// Splits every step optimally under a plan, and bounds its peak under any plan with these slots.
template <class Context, class Loads>
std::vector<certificate> run_certify(std::string_view name, Context const& context,
                                     Loads const& loads, placement_ref const& plan,
                                     rank_set const& on) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const slots = plan.physical_to_logical.extent(1);
  buffer<certificate, Context> const peaks(context, steps * layers);
  buffer<fault, Context> const faults(context, steps * layers);
  enqueue_step_splits(name, context, loads, plan, on, {}, peaks.data(), faults.data());
  rank_set const ranks = with_ranks_of(name, on, plan.ranks);
  rank_speeds const speeds = read_speeds(name, context, ranks);
  expect_every_expert(name, read_slots(name, context, plan, loads.extent(2)), speeds, layers,
                      loads.extent(2));
  expect_sound(name, faults.read(), layers);
  std::vector<certificate> const found = peaks.read();
  host_list<double> const least = peak_bounds(
      context, loads, {{plan.rank_offsets, slots, ranks.ranks}, 1, ranks.active}, speeds.speed);
  std::vector<certificate> result;
  for (index_t layer = 0; layer < layers; ++layer) {
    result.push_back(sum_of_steps(found, least, layers, layer));
  }
  return result;
}

}}}  // namespace plimsoll::detail
