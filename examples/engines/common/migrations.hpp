// SPDX-License-Identifier: Apache-2.0
// From the placement in use to a new one, for every binding: maps `[layers, slots]` of int32 or
// int64, -1 in empty slots.
#pragma once

#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replan_gate.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "call.hpp"
#include "planning.hpp"

namespace plimsoll_engines {

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

/// The placement in use and a new one, from maps of a call.
template <class Call>
struct change {
  Call const& at;
  plimsoll::placement<typename Call::policy_type> from;
  plimsoll::placement<typename Call::policy_type> to;

  change(Call const& at, typename Call::tensor const& in_use, typename Call::tensor const& next,
         index_t experts, index_t ranks)
      : at(at),
        from(placement_of(at, "in_use", in_use, experts, ranks)),
        to(placement_of(at, "next", next, experts, ranks)) {}

  /// Writes `next` with the labels of ranks and slots with which the fewest experts move.
  void align(index_t nodes, id_matrix const& map) const {
    plimsoll::align(at.policy(), from.ref(), to.ref(), {.on = {.nodes = nodes}}, map);
  }

  /// Writes the map and the copies that balance single steps best within `max_moves` moves.
  template <class Loads>
  void plan_within(Loads const& load, index_t ranks, index_t nodes, index_t max_moves,
                   bool split_evenly, bool validate, id_matrix const& map,
                   id_matrix const& counts) const {
    plimsoll::plan_within(
        at.policy(), load, from.ref(), to.ref(), {.on = {.ranks = ranks, .nodes = nodes}},
        {.split = split_evenly ? plimsoll::split_rule::even : plimsoll::split_rule::optimal,
         .max_moves = max_moves,
         .judge_on = validate ? plimsoll::judged_steps::unseen : plimsoll::judged_steps::all},
        map, counts);
  }

  /// Returns the transfers in rounds, rows of 10: layer, expert, source rank and slot (-1: from the
  /// host), destination rank and slot, round, staging slot or -1, commit round, kind.
  [[nodiscard]] std::vector<std::int64_t> transfers(index_t nodes, bool one_peer) const {
    auto const plan =
        plimsoll::plan_transfers(at.policy(), from.ref(), to.ref(),
                                 {.on = {.nodes = nodes},
                                  .rounds = one_peer ? plimsoll::round_rule::one_peer
                                                     : plimsoll::round_rule::send_and_receive});
    std::vector<std::int64_t> rows;
    for (plimsoll::transfer const& one : plan.list) {
      rows.insert(rows.end(),
                  {one.layer, one.expert, one.source_rank, one.source_slot, one.destination_rank,
                   one.destination_slot, one.round, one.staging_slot, one.commit_round,
                   static_cast<std::int64_t>(one.kind)});
    }
    return rows;
  }
};

/// `decide_replan` for one candidate, with the tensors of a binding. All bindings have these
/// arguments in this order. There is no bandwidth from the host: `decide_replan` demands that live
/// ranks hold every expert now, so that nothing comes from there.
template <class Binding>
struct gate {
  using tensor = typename Binding::tensor;
  using optional = typename Binding::optional;

  static auto decide_replan(tensor loads, tensor in_use, tensor next, index_t ranks,
                            index_t horizon, index_t expert_bytes, double per_token, double launch,
                            double per_expert, double flat_below, optional of_first_half,
                            optional of_second_half, index_t nodes, optional active,
                            bool split_evenly, bool one_peer, double local_copy_bandwidth,
                            double same_node_bandwidth, double across_nodes_bandwidth,
                            double transfer_share, double layer_stall, index_t least_steps,
                            double standard_errors, double enough_balancedness) {
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
        return plimsoll::decide_replan(at.policy(), load, from.ref(),
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

}  // namespace plimsoll_engines
