// SPDX-License-Identifier: Apache-2.0
// Plans, judgments of plans, and updates of objects, from views of tensors, for every binding. What
// differs between bindings, the types of tensors and how results are allocated, is in their
// planners.hpp and migrations.hpp.
#pragma once

#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/replan_gate.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/select_planner.hpp>
#include <plimsoll/views.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace plimsoll_engines {

using plimsoll::index_t;
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
  plimsoll::flow_placement(policy, load, {.on = how.on, .split = how.split}, map, counts);
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

/// Calls `f`, and replaces the first text of every pair by the second in the message of what it
/// throws, so that messages name the function and the arguments of the binding.
template <class F>
auto with_names(std::vector<std::pair<std::string, std::string>> const& names, F&& f) {
  try {
    return f();
  } catch (plimsoll::invalid_input const& refused) {
    std::string message = refused.what();
    for (auto const& [text, shown] : names) {
      if (auto const found = message.find(text); found != std::string::npos) {
        message.replace(found, text.size(), shown);
      }
    }
    throw plimsoll::invalid_input(message);
  }
}

/// Copies a map `[layers, slots]` of int32 or int64 and counts its copies.
template <class Call, class Tensor>
auto placement_of(Call const& at, char const* argument, Tensor const& map, index_t experts,
                  index_t ranks) {
  using policy_type = typename Call::policy_type;
  plimsoll::placement<policy_type> result;
  std::string const function = at.function() + std::string(": ");
  with_names({{"count_replicas: physical_to_logical", function + argument},
              {"copy_placement: physical_to_logical", function + argument},
              {"copy_placement: ", function}},
             [&] {
               at.with_ids(argument, map, 2, "[layers, slots]", [&](auto id) {
                 using Id = decltype(id);
                 auto const slots = at.template view<Id const, 2>(argument, map, "[layers, slots]");
                 plimsoll::array<Id, policy_type, 2> copies(at.policy(), slots.extent(0), experts);
                 plimsoll::count_replicas(at.policy(), slots, copies);
                 result = plimsoll::copy_placement(at.policy(), slots, copies, ranks);
               });
             });
  return result;
}

/// `replan_gate` for one candidate, with the tensors of a binding. Both bindings have these
/// arguments in this order. There is no bandwidth from the host: `replan_gate` demands that live
/// ranks hold every expert now, so that nothing comes from there.
template <class Binding>
struct gate {
  using tensor = typename Binding::tensor;
  using optional = typename Binding::optional;

  static auto replan_gate(tensor loads, tensor in_use, tensor next, index_t ranks, index_t horizon,
                          index_t expert_bytes, double per_token, double launch, double per_expert,
                          double flat_below, optional of_first_half, optional of_second_half,
                          index_t nodes, optional active, bool split_evenly, bool one_peer,
                          double local_copy_bandwidth, double same_node_bandwidth,
                          double across_nodes_bandwidth, double transfer_share, double layer_stall,
                          index_t least_steps, double standard_errors, double enough_balancedness) {
    return Binding::judge(loads, [&](auto const& at) {
      auto const load = history(at, loads);
      plan_for const how(at, ranks, nodes, active, split_evenly);
      auto const copy_of = [&](char const* argument, auto const& map) {
        return placement_of(at, argument, map, load.extent(2), ranks);
      };
      auto const from = copy_of("in_use", in_use);
      auto const to = copy_of("next", next);
      std::remove_const_t<decltype(to)> of_first;
      std::remove_const_t<decltype(to)> of_second;
      if (of_first_half.has_value()) {
        of_first = copy_of("of_first_half", *of_first_half);
      }
      if (of_second_half.has_value()) {
        of_second = copy_of("of_second_half", *of_second_half);
      }
      plimsoll::replan_options<> const options{
          .on = how.on,
          .split = how.split,
          .cost = {.launch = launch,
                   .per_token = per_token,
                   .per_expert = per_expert,
                   .flat_below = flat_below},
          .horizon = horizon,
          .expert_bytes = expert_bytes,
          .bandwidths = {.local_copy = local_copy_bandwidth,
                         .same_node = same_node_bandwidth,
                         .across_nodes = across_nodes_bandwidth},
          .rounds =
              one_peer ? plimsoll::round_rule::one_peer : plimsoll::round_rule::send_and_receive,
          .transfer_share = transfer_share,
          .layer_stall = layer_stall,
          .least_steps = least_steps,
          .standard_errors = standard_errors,
          .enough_balancedness = enough_balancedness};
      return with_names({{"candidates[0].plan", "next"}, {"candidates[0].", ""}}, [&] {
        return plimsoll::replan_gate(at.policy(), load, from.ref(),
                                     {{to.ref(), of_first.ref(), of_second.ref()}}, options);
      });
    });
  }
};

/// Calls to.add(name, value) for each result of `gate`: an answer, a number, or a vector with those
/// of every layer.
template <class To>
void add_results(plimsoll::replan_decision const& decision, To& to) {
  plimsoll::candidate_judgment const& all = decision.candidates.front();
  auto const add = [&](std::string const& name, auto member) {
    to.add(name, all.*member);
    std::vector<std::decay_t<decltype(all.*member)>> of_layers;
    for (plimsoll::replan_judgment const& layer : all.layers) {
      of_layers.push_back(layer.*member);
    }
    to.add("layer_" + name, of_layers);
  };
  using judgment = plimsoll::replan_judgment;
  add("answer", &judgment::answer);
  add("gain", &judgment::gain);
  add("gain_seconds", &judgment::gain_seconds);
  add("standard_error", &judgment::standard_error);
  add("move_seconds", &judgment::move_seconds);
  add("break_even_steps", &judgment::break_even_steps);
  to.add("steps", decision.steps);
  to.add("balancedness", decision.balancedness);
  to.add("step_seconds", decision.step_seconds);
  to.add("possible_seconds", decision.possible_seconds);
}

/// Gives an object for one layer other slots of ranks. `rank_offsets` is empty (slots are spread
/// evenly) or a tensor `[ranks + 1]` of int32; `active` is empty (the same ranks live) or a tensor
/// `[ranks]` of uint8.
template <class Call, class Line, class OptionalTensor>
void update_slots(Call const& at, Line& line, OptionalTensor const& rank_offsets,
                  OptionalTensor const& active) {
  plimsoll::vector_ref<std::int32_t const> offsets;
  if (rank_offsets.has_value()) {
    offsets = at.template view<std::int32_t const, 1>("rank_offsets", *rank_offsets, "[ranks + 1]");
  }
  if (active.has_value()) {
    line.update(offsets,
                {.active = at.template view<std::uint8_t const, 1>("active", *active, "[ranks]")});
  } else {
    line.update(offsets);
  }
}

/// Returns a view of a tensor of one row.
template <class Call, class Tensor>
plimsoll::matrix_ref<std::int32_t const> row_of(Call const& at, char const* argument,
                                                Tensor const& tensor, char const* shape) {
  auto const row = at.template view<std::int32_t const, 1>(argument, tensor, shape);
  plimsoll::matrix_ref<std::int32_t const> result(row.data, 1, row.extent(0));
  result.strides[1] = row.strides[0];
  return result;
}

/// Gives a planner for one layer other homes of experts: `physical_to_logical` is a tensor
/// `[slots]` of int32, the others are those of `update_slots`.
template <class Call, class Planner, class Tensor, class OptionalTensor>
void update_homes(Call const& at, Planner& planner, Tensor const& physical_to_logical,
                  OptionalTensor const& rank_offsets, OptionalTensor const& active) {
  plimsoll::placement_ref residents{
      .physical_to_logical = row_of(at, "physical_to_logical", physical_to_logical, "[slots]"),
      .ranks = planner.options().on.ranks};
  if (rank_offsets.has_value()) {
    residents.rank_offsets = row_of(at, "rank_offsets", *rank_offsets, "[ranks + 1]");
  }
  if (active.has_value()) {
    planner.update(residents, {.active = at.template view<std::uint8_t const, 1>("active", *active,
                                                                                 "[ranks]")});
  } else {
    planner.update(residents);
  }
}

}  // namespace plimsoll_engines
