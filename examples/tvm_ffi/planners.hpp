// SPDX-License-Identifier: Apache-2.0
// Planning calls: they read recorded loads and return maps as new int64 tensors.
#pragma once

#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <plimsoll/array.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include "tensors.hpp"

namespace tvm_ffi_example {

using ffi::Optional;
using ffi::Tuple;

/// `[layers, slots]` and `[layers, experts]`: expert in each slot, and copies of each expert.
using maps = Tuple<Tensor, Tensor>;
using three_maps = Tuple<Tensor, Tensor, Tensor>;
using named_maps = Tuple<Tensor, Tensor, ffi::String>;

template <class Backend>
struct planners {
  using here = call<Backend>;

  /// DeepSeek's function, with its arguments and its three maps.
  static three_maps rebalance_experts(TensorView weight, index_t num_replicas, index_t num_groups,
                                      index_t num_nodes, index_t num_gpus) {
    here const at("rebalance_experts", weight);
    auto const loads = at.template loads<2>("weight", weight, "[layers, experts]");
    auto const [map, counts] =
        empty_maps(at, loads.extent(0), "num_replicas", num_replicas, loads.extent(1));
    auto const slots = at.template out<std::int64_t, 2>(map);
    auto const copies = at.template out<std::int64_t, 2>(counts);
    plimsoll::eplb(at.policy(), loads,
                   {.on = {.ranks = num_gpus, .nodes = num_nodes}, .groups = num_groups}, slots,
                   copies);
    // The reference's third map is as wide as the largest number of copies.
    auto const numbers = plimsoll::read(
        at.policy(), plimsoll::array_ref(copies.data, copies.extent(0) * copies.extent(1)));
    index_t const width = numbers.empty() ? 1 : *std::max_element(numbers.begin(), numbers.end());
    auto const lists = replica_lists(at, slots, loads.extent(1));
    Tensor const inverse = at.template empty<std::int64_t>(loads.extent(0), loads.extent(1), width);
    plimsoll::replicas_to_padded(at.policy(), lists.ref(),
                                 at.template out<std::int64_t, 3>(inverse));
    return three_maps(map, inverse, counts);
  }

  /// Plans for steps to come, whose tokens are split optimally or evenly among copies.
  static maps flow_placement(TensorView loads, index_t slots, index_t ranks, index_t nodes,
                             Optional<TensorView> active, bool split_evenly) {
    here const at("flow_placement", loads);
    auto const load = history(at, loads);
    maps const result = empty_maps(at, load.extent(1), "slots", slots, load.extent(2));
    plimsoll::flow_placement(
        at.policy(), load,
        {.on = ranks_of(at, ranks, nodes, active), .split = split_rule_of(split_evenly)},
        at.template out<std::int64_t, 2>(result.template get<0>()),
        at.template out<std::int64_t, 2>(result.template get<1>()));
    return result;
  }

  /// Plans with the planner that lasts longest on the history; also returns its name.
  static named_maps select_planner(TensorView loads, index_t slots, index_t ranks, index_t nodes,
                                   Optional<TensorView> active, bool split_evenly) {
    here const at("select_planner", loads);
    auto const load = history(at, loads);
    auto const plan = plimsoll::select_planner(
        at.policy(), load, slots,
        {.on = ranks_of(at, ranks, nodes, active), .split = split_rule_of(split_evenly)});
    auto const [map, counts] = empty_maps(at, load.extent(1), "slots", slots, load.extent(2));
    auto const ids = at.template out<std::int64_t, 2>(map);
    // By way of lists, which makes int64 of int32.
    auto const lists = replica_lists(at, plan.physical_to_logical, load.extent(2));
    plimsoll::replicas_to_slots(at.policy(), lists.ref(), ids);
    plimsoll::count_replicas(at.policy(), ids, at.template out<std::int64_t, 2>(counts));
    auto const& chosen = plan.candidates[static_cast<std::size_t>(plan.chosen)];
    return named_maps(map, counts, chosen.name);
  }

  /// Gives every layer as many slots as its gain is worth; also returns `[layers, ranks + 1]`, the
  /// first slot of each rank. Budget -1 is chosen from the gains.
  static three_maps craft(TensorView loads, index_t ranks, index_t budget, index_t nodes,
                          Optional<TensorView> active, bool split_evenly) {
    here const at("craft", loads);
    auto const load = history(at, loads);
    plimsoll::craft_options const options{.on = ranks_of(at, ranks, nodes, active),
                                          .budget = budget,
                                          .split = split_rule_of(split_evenly)};
    // A layer gets at most one extra slot per rank.
    auto const [map, counts] =
        empty_maps(at, load.extent(1), "ranks", load.extent(2) + ranks, load.extent(2));
    Tensor const offsets = at.template empty<std::int64_t>(load.extent(1), ranks + 1);
    plimsoll::craft(at.policy(), load, options, at.template out<std::int64_t, 2>(map),
                    at.template out<std::int64_t, 2>(offsets),
                    at.template out<std::int64_t, 2>(counts));
    return three_maps(map, counts, offsets);
  }

  /// Places experts by the ranks' latency curves: `latency[ranks, samples]` at `tokens[samples]`.
  static maps gem(TensorView loads, TensorView tokens, TensorView latency, index_t slots,
                  index_t ranks, index_t dense_until, index_t restarts, index_t seed) {
    here const at("gem", loads);
    auto const load = history(at, loads);
    plimsoll::latency_curves const curves{
        .tokens = at.template view<std::int64_t const, 1>("tokens", tokens, "[samples]"),
        .latency = at.template view<double const, 2>("latency", latency, "[ranks, samples]"),
        .dense_until = dense_until};
    maps const result = empty_maps(at, load.extent(1), "slots", slots, load.extent(2));
    plimsoll::gem(
        at.policy(), load, curves,
        {.on = {.ranks = ranks}, .restarts = restarts, .seed = static_cast<std::uint64_t>(seed)},
        at.template out<std::int64_t, 2>(result.template get<0>()),
        at.template out<std::int64_t, 2>(result.template get<1>()));
    return result;
  }

 private:
  static auto history(here const& at, TensorView const& loads) {
    return at.template loads<3>("loads", loads, "[steps, layers, experts]");
  }

  /// Allocates the maps; `argument` is the one from which the number of slots comes.
  static maps empty_maps(here const& at, index_t layers, char const* argument, index_t slots,
                         index_t experts) {
    if (slots < experts) {
      refuse(at.function(), argument,
             "at least one slot for each of " + std::to_string(experts) + " experts",
             std::to_string(slots) + " slots");
    }
    if (slots > experts * plimsoll::rank_limit) {
      refuse(at.function(), argument,
             "at most " + std::to_string(plimsoll::rank_limit) + " slots for each of " +
                 std::to_string(experts) + " experts",
             std::to_string(slots) + " slots");
    }
    return maps(at.template empty<std::int64_t>(layers, slots),
                at.template empty<std::int64_t>(layers, experts));
  }

  static plimsoll::rank_set ranks_of(here const& at, index_t ranks, index_t nodes,
                                     Optional<TensorView> const& active) {
    plimsoll::rank_set on{.ranks = ranks, .nodes = nodes};
    if (active.has_value()) {
      on.active = at.template view<std::uint8_t const, 1>("active", *active, "[ranks]");
    }
    return on;
  }

  static plimsoll::split_rule split_rule_of(bool evenly) {
    return evenly ? plimsoll::split_rule::even : plimsoll::split_rule::optimal;
  }

  /// Slots of every expert as lists.
  struct lists_of_experts {
    plimsoll::array<std::int32_t, typename here::policy_type, 2> offsets;
    plimsoll::array<std::int32_t, typename here::policy_type, 2> slots;

    [[nodiscard]] plimsoll::replica_lists_ref ref() const { return {offsets.view(), slots.view()}; }
  };
  template <class Map>
  static lists_of_experts replica_lists(here const& at, Map const& map, index_t experts) {
    lists_of_experts lists{{at.policy(), map.extent(0), experts + 1},
                           {at.policy(), map.extent(0), map.extent(1)}};
    plimsoll::slots_to_replicas(at.policy(), map, lists.offsets, lists.slots);
    return lists;
  }
};

}  // namespace tvm_ffi_example
