// SPDX-License-Identifier: Apache-2.0
// Plans from views of tensors, for every binding. What differs between bindings, the types of
// tensors and how results are allocated, is in their planners.hpp.
#pragma once

#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/select_planner.hpp>
#include <plimsoll/views.hpp>

#include "call.hpp"

namespace plimsoll_engines {

using id_matrix = plimsoll::matrix_ref<std::int64_t>;

/// Ranks and split of a plan for steps to come. `active` is empty or a tensor `[ranks]` of uint8.
struct plan_for {
  plimsoll::rank_set on;
  plimsoll::split_rule split;

  template <class Call, class OptionalTensor>
  plan_for(Call const& at, index_t ranks, index_t nodes, OptionalTensor const& active, bool evenly)
      : on{.ranks = ranks, .nodes = nodes},
        split(evenly ? plimsoll::split_rule::even : plimsoll::split_rule::optimal) {
    if (active.has_value()) {
      on.active = at.template view<std::uint8_t const, 1>("active", *active, "[ranks]");
    }
  }
};

/// Returns recorded loads of any of their types as a view.
template <class Call, class Tensor>
auto history(Call const& at, Tensor const& loads) {
  return at.template loads<3>("loads", loads, "[steps, layers, experts]");
}

/// Returns recorded loads, or those of one step, of any of their types as a view.
template <class Call, class Tensor>
auto history_or_step(Call const& at, Tensor const& loads) {
  return at.template loads<3>("loads", loads, "[steps, layers, experts] or [layers, experts]",
                              true);
}

/// Returns the ranks' latency curves: `latency[ranks, samples]` at `tokens[samples]`.
template <class Call, class Tensor>
plimsoll::latency_curves curves_of(Call const& at, Tensor const& tokens, Tensor const& latency,
                                   index_t dense_until) {
  return {.tokens = at.template view<std::int64_t const, 1>("tokens", tokens, "[samples]"),
          .latency = at.template view<double const, 2>("latency", latency, "[ranks, samples]"),
          .dense_until = dense_until};
}

/// The slots of every expert as lists.
template <class Policy>
struct expert_slots {
  plimsoll::array<std::int32_t, Policy, 2> offsets;
  plimsoll::array<std::int32_t, Policy, 2> slots;

  template <class Map>
  expert_slots(Policy const& policy, Map const& map, index_t experts)
      : offsets(policy, map.extent(0), experts + 1), slots(policy, map.extent(0), map.extent(1)) {
    plimsoll::slots_to_replicas(policy, map, offsets, slots);
  }

  [[nodiscard]] plimsoll::replica_lists_ref ref() const { return {offsets.view(), slots.view()}; }
};

/// Plans for steps to come, whose tokens are split among copies as `how` says.
template <class Policy, class Loads>
void plan_flow(Policy const& policy, Loads const& load, plan_for const& how, id_matrix const& map,
               id_matrix const& counts) {
  plimsoll::place_by_flow(policy, load, {.on = how.on, .split = how.split}, map, counts);
}

/// Plans with the planner that lasts longest on the history.
template <class Policy, class Loads>
auto choose_plan(Policy const& policy, Loads const& load, index_t slots, plan_for const& how) {
  return plimsoll::select_planner(policy, load, slots, {.on = how.on, .split = how.split});
}

/// Writes a plan of int32 to maps of int64, by way of lists.
template <class Policy, class Plan>
void store_plan(Policy const& policy, Plan const& plan, id_matrix const& map,
                id_matrix const& counts) {
  expert_slots const lists(policy, plan.physical_to_logical, counts.extent(1));
  plimsoll::replicas_to_slots(policy, lists.ref(), map);
  plimsoll::count_replicas(policy, map, counts);
}

/// Gives every layer as many slots as its gain is worth. A layer gets at most one extra slot per
/// rank, so `map` has `experts + ranks` columns. Budget -1 is chosen from the gains.
template <class Policy, class Loads>
void plan_craft(Policy const& policy, Loads const& load, index_t budget, plan_for const& how,
                id_matrix const& map, id_matrix const& offsets, id_matrix const& counts) {
  plimsoll::craft(policy, load, {.on = how.on, .budget = budget, .split = how.split}, map, offsets,
                  counts);
}

/// Places experts by the ranks' latency curves.
template <class Policy, class Loads>
void plan_gem(Policy const& policy, Loads const& load, plimsoll::latency_curves const& curves,
              index_t ranks, index_t restarts, index_t seed, id_matrix const& map,
              id_matrix const& counts) {
  plimsoll::gem(
      policy, load, curves,
      {.on = {.ranks = ranks}, .restarts = restarts, .seed = static_cast<std::uint64_t>(seed)}, map,
      counts);
}

}  // namespace plimsoll_engines
