// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of EPLB: checks shapes and options, launches the bodies, and names refused values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/placement.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/refinement.hpp>
#include <plimsoll/detail/call/replication.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/refinement_types.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline placement_options placement_options_of(eplb_options const& options) {
  return {.on = options.on,
          .rank_offsets = options.rank_offsets,
          .replica_anti_affinity = options.replica_anti_affinity,
          .anti_affinity_strength = options.anti_affinity_strength,
          .load_exponent = options.load_exponent};
}

/// Checks the enumerations of the options that are not those of `placement_options_of`.
inline void expect_eplb_values(std::string_view name, eplb_options const& options) {
  expect_enumerator(name, "options.policy", eplb_policy::global, options.policy);
  expect_enumerator(name, "options.refine", eplb_refinement::joint, options.refine);
}

/// Checks the inputs common to `eplb` and the systems built on it; `holder` is the argument that
/// gives the number of slots.
inline void expect_plannable(std::string_view name, index_t layers, index_t experts, index_t slots,
                             eplb_options const& options,
                             std::string_view holder = "physical_to_logical") {
  expect_replicable(name, holder, experts, slots);
  expect_eplb_values(name, options);
  expect_placeable(name, layers, experts, slots, placement_options_of(options), "options", holder);
  if (options.policy != eplb_policy::global) {
    expect_groups(name, experts, options.groups);
  }
  if (options.is_hierarchical()) {
    expect_anti_affinity_on_a_node(name, "options", options.replica_anti_affinity);
  }
}

/// Returns the number of steps of EPLB, each of which writes one report per layer.
inline index_t eplb_steps(eplb_options const& options) {
  return 2 + options.is_hierarchical() + (options.refine != eplb_refinement::none);
}

/// Enqueues all steps without waiting for their reports. After a step has refused a layer, the
/// later steps read that layer's unspecified arrays; they check what they read, so this is
/// harmless.
template <class Context, class Loads>
void enqueue_eplb(Context const& context, Loads const& load, eplb_options const& options,
                  matrix_ref<std::int32_t> placement, matrix_ref<std::int32_t> counts,
                  problem_report* reports) {
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  index_t const slots = placement.extent(1);
  placement_options where = placement_options_of(options);
  index_t step = 0;
  auto const next = [&] { return reports + layers * step++; };
  buffer<std::int32_t, Context> lists;
  if (options.is_hierarchical()) {
    lists = buffer<std::int32_t, Context>(context, layers * (experts + options.on.nodes + 1));
    matrix_ref<std::int32_t> const node_experts(lists.data(), layers, experts);
    matrix_ref<std::int32_t> const node_offsets(lists.data() + layers * experts, layers,
                                                options.on.nodes + 1);
    enqueue_place_groups(context, load, options.groups, slots, where, node_experts, node_offsets,
                         next());
    where.node_experts = node_experts;
    where.node_offsets = node_offsets;
  }
  enqueue_replicate(context, load, slots, {.where = where}, counts, next());
  enqueue_place(context, load, counts, where, placement, next());
  if (options.refine != eplb_refinement::none) {
    refinement_options how;
    how.max_trials = options.refine == eplb_refinement::joint ? how.max_trials : 0;
    enqueue_refine(context, load, where, how, placement, counts, next());
  }
}

/// Plans every layer and returns the certificates of the last step.
template <class Context, class Loads, class Map, class Counts>
std::vector<certificate> run_eplb(std::string_view name, Context const& context, Loads const& load,
                                  eplb_options const& options, matrix_ref<Map> const& placement,
                                  matrix_ref<Counts> const& counts) {
  index_t const steps = eplb_steps(options);
  int32_ids const map(context, placement);
  int32_ids const copies(context, counts);
  return certificates_of_step(run_planning(name, context, load.extent(0), steps,
                                           [&](problem_report* reports) {
                                             enqueue_eplb(context, load, options, map.view(),
                                                          copies.view(), reports);
                                             map.store();
                                             copies.store();
                                           }),
                              load.extent(0), steps - 1);
}

/// As `run_eplb`, and writes the padded inverse of the placement.
template <class Context, class Loads, class Map, class Inverse, class Counts>
std::vector<certificate> run_rebalance(std::string_view name, Context const& context,
                                       Loads const& load, eplb_options const& options,
                                       matrix_ref<Map> const& placement,
                                       tensor_ref<Inverse> const& inverse,
                                       matrix_ref<Counts> const& counts) {
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  index_t const steps = eplb_steps(options);
  int32_ids const map(context, placement);
  int32_ids const slots(context, inverse);
  int32_ids const copies(context, counts);
  auto const enqueue = [&](problem_report* reports) {
    enqueue_eplb(context, load, options, map.view(), copies.view(), reports);
    map_body<slot_source> body{
        {map.view(), experts}, experts, {.logical_to_physical = slots.view()}};
    body.reports = reports + layers * steps;
    launch(context, layers, body);
    map.store();
    slots.store();
    copies.store();
  };
  return certificates_of_step(run_planning(name, context, layers, steps + 1, enqueue), layers,
                              steps - 1);
}

}}}  // namespace plimsoll::detail
