// SPDX-License-Identifier: Apache-2.0
// Planning calls: they read recorded loads and return maps as new int64 tensors.
#pragma once

#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>

#include "../common/planning.hpp"
#include "tensors.hpp"

namespace tvm_ffi_example {

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
    auto const slots = at.template out<2>(map);
    auto const copies = at.template out<2>(counts);
    plimsoll::eplb(at.policy(), loads,
                   {.on = {.ranks = num_gpus, .nodes = num_nodes}, .groups = num_groups}, slots,
                   copies);
    // The reference's third map is as wide as the largest number of copies.
    auto const numbers = plimsoll::read(
        at.policy(), plimsoll::array_ref(copies.data, copies.extent(0) * copies.extent(1)));
    index_t const width = numbers.empty() ? 1 : *std::max_element(numbers.begin(), numbers.end());
    plimsoll_engines::expert_slots const lists(at.policy(), slots, loads.extent(1));
    Tensor const inverse = at.empty(loads.extent(0), loads.extent(1), width);
    plimsoll::replicas_to_padded(at.policy(), lists.ref(), at.template out<3>(inverse));
    return three_maps(map, inverse, counts);
  }

  /// Plans for steps to come, whose tokens are split optimally or evenly among copies.
  static maps place_by_flow(TensorView loads, index_t slots, index_t ranks, index_t nodes,
                            Optional<TensorView> active, bool split_evenly) {
    here const at("place_by_flow", loads);
    auto const load = plimsoll_engines::history(at, loads);
    auto const [map, counts] = empty_maps(at, load.extent(1), "slots", slots, load.extent(2));
    plimsoll_engines::plan_flow(at.policy(), load, {at, ranks, nodes, active, split_evenly},
                                at.template out<2>(map), at.template out<2>(counts));
    return maps(map, counts);
  }

  /// Plans with the planner that lasts longest on the history; also returns its name.
  static named_maps select_planner(TensorView loads, index_t slots, index_t ranks, index_t nodes,
                                   Optional<TensorView> active, bool split_evenly) {
    here const at("select_planner", loads);
    auto const load = plimsoll_engines::history(at, loads);
    auto const plan = plimsoll_engines::choose_plan(at.policy(), load, slots,
                                                    {at, ranks, nodes, active, split_evenly});
    auto const [map, counts] = empty_maps(at, load.extent(1), "slots", slots, load.extent(2));
    plimsoll_engines::store_plan(at.policy(), plan, at.template out<2>(map),
                                 at.template out<2>(counts));
    auto const& chosen = plan.candidates[static_cast<std::size_t>(plan.chosen)];
    return named_maps(map, counts, chosen.name);
  }

  /// Gives every layer as many slots as its gain is worth; also returns `[layers, ranks + 1]`, the
  /// first slot of each rank. Budget -1 is chosen from the gains.
  static three_maps craft(TensorView loads, index_t ranks, index_t budget, index_t nodes,
                          Optional<TensorView> active, bool split_evenly) {
    here const at("craft", loads);
    auto const load = plimsoll_engines::history(at, loads);
    plimsoll_engines::plan_for const how(at, ranks, nodes, active, split_evenly);
    auto const [map, counts] =
        empty_maps(at, load.extent(1), "ranks", load.extent(2) + ranks, load.extent(2));
    Tensor const offsets = at.empty(load.extent(1), ranks + 1);
    plimsoll_engines::plan_craft(at.policy(), load, budget, how, at.template out<2>(map),
                                 at.template out<2>(offsets), at.template out<2>(counts));
    return three_maps(map, counts, offsets);
  }

  /// Places experts by the ranks' latency curves: `latency[ranks, samples]` at `tokens[samples]`.
  static maps gem(TensorView loads, TensorView tokens, TensorView latency, index_t slots,
                  index_t ranks, index_t dense_until, index_t restarts, index_t seed) {
    here const at("gem", loads);
    auto const load = plimsoll_engines::history(at, loads);
    auto const curves = plimsoll_engines::curves_of(at, tokens, latency, dense_until);
    auto const [map, counts] = empty_maps(at, load.extent(1), "slots", slots, load.extent(2));
    plimsoll_engines::plan_gem(at.policy(), load, curves, ranks, restarts, seed,
                               at.template out<2>(map), at.template out<2>(counts));
    return maps(map, counts);
  }

 private:
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
    return maps(at.empty(layers, slots), at.empty(layers, experts));
  }
};

}  // namespace tvm_ffi_example
