// SPDX-License-Identifier: Apache-2.0
// Planning operators: they read recorded loads and return maps as new tensors of int64. Shapes
// depend on shapes and numbers alone, so that meta tensors have them, too.
#pragma once

#include <plimsoll/systems/eplb.hpp>
#include <tuple>

#include "../common/planning.hpp"
#include "tensors.hpp"

namespace torch_ops_example {

using maps = std::tuple<Tensor, Tensor>;
using three_maps = std::tuple<Tensor, Tensor, Tensor>;

/// Operators on meta tensors, which allocate the results of the others: `[layers, slots]`, the
/// expert in each slot, and `[layers, experts]`, the copies of each expert.
struct shapes {
  static maps of_loads(char const* function, Tensor const& loads, index_t dimensions,
                       char const* argument, index_t slots, index_t extra) {
    auto const refuse_number = [&](char const* what, std::string const& expected, index_t got) {
      refuse(function, what, expected, std::to_string(got));
    };
    if (loads.dim() != dimensions) {
      refuse_number(dimensions == 2 ? "weight" : "loads",
                    std::to_string(dimensions) + " dimensions", loads.dim());
    }
    index_t const layers = loads.size(dimensions - 2);
    index_t const experts = loads.size(dimensions - 1);
    if (slots + extra < experts) {
      refuse_number(argument, "at least " + std::to_string(experts - extra), slots);
    }
    if (slots > experts * plimsoll::rank_limit) {
      refuse_number(argument, "at most " + std::to_string(experts * plimsoll::rank_limit), slots);
    }
    return {ids(loads, {layers, slots + extra}), ids(loads, {layers, experts})};
  }
  static Tensor ids(Tensor const& loads, at::IntArrayRef shape) {
    return at::empty(shape, loads.options().dtype(at::kLong));
  }

  static three_maps rebalance_experts(Tensor const& weight, index_t num_replicas, index_t, index_t,
                                      index_t) {
    auto const [map, counts] =
        of_loads("rebalance_experts", weight, 2, "num_replicas", num_replicas, 0);
    // The largest number of copies of one expert is not known here.
    Tensor const inverse =
        ids(weight, {weight.size(0), weight.size(1), num_replicas - weight.size(1) + 1});
    return {map, inverse, counts};
  }
  static maps place_by_flow(Tensor const& loads, index_t slots, index_t, index_t,
                            optional_tensor const&, bool) {
    return of_loads("place_by_flow", loads, 3, "slots", slots, 0);
  }
  static three_maps select_planner(Tensor const& loads, index_t slots, index_t, index_t,
                                   optional_tensor const&, bool) {
    auto const [map, counts] = of_loads("select_planner", loads, 3, "slots", slots, 0);
    return {map, counts,
            at::empty({}, loads.options().dtype(at::kLong).device(loads.is_meta() ? at::kMeta
                                                                                  : at::kCPU))};
  }
  static three_maps craft(Tensor const& loads, index_t ranks, index_t, index_t,
                          optional_tensor const&, bool) {
    // A layer gets at most one extra slot per rank.
    index_t const experts = loads.dim() == 3 ? loads.size(2) : 0;
    auto const [map, counts] = of_loads("craft", loads, 3, "ranks", ranks, experts);
    return {map, counts, ids(loads, {loads.size(1), ranks + 1})};
  }
  static maps gem(Tensor const& loads, Tensor const&, Tensor const&, index_t slots, index_t,
                  index_t, index_t, index_t) {
    return of_loads("gem", loads, 3, "slots", slots, 0);
  }
};

template <class Backend>
struct planners {
  using here = call<Backend>;

  /// DeepSeek's function, with its arguments and its three maps. The second is as wide as any plan
  /// may need; the reference's is as wide as the largest number of copies.
  static three_maps rebalance_experts(Tensor const& weight, index_t num_replicas,
                                      index_t num_groups, index_t num_nodes, index_t num_gpus) {
    here const at("rebalance_experts", weight);
    auto const loads = at.template loads<2>("weight", weight, "[layers, experts]");
    three_maps result =
        shapes::rebalance_experts(weight, num_replicas, num_groups, num_nodes, num_gpus);
    auto const& [map, inverse, counts] = result;
    plimsoll::rebalance_experts(at.policy(), loads, num_replicas, num_groups, num_nodes, num_gpus,
                                at.template out<2>(map), at.template out<3>(inverse),
                                at.template out<2>(counts));
    return result;
  }

  /// Plans for steps to come, whose tokens are split optimally or evenly among copies.
  static maps place_by_flow(Tensor const& loads, index_t slots, index_t ranks, index_t nodes,
                            optional_tensor const& active, bool split_evenly) {
    here const at("place_by_flow", loads);
    auto const load = plimsoll_engines::history(at, loads);
    maps result = shapes::place_by_flow(loads, slots, ranks, nodes, active, split_evenly);
    plimsoll_engines::plan_flow(at.policy(), load, {at, ranks, nodes, active, split_evenly},
                                at.template out<2>(std::get<0>(result)),
                                at.template out<2>(std::get<1>(result)));
    return result;
  }

  /// Plans with the planner that lasts longest on the history; also returns its number, in host
  /// memory, in the order of `plimsoll::select_planner_options::candidates`.
  static three_maps select_planner(Tensor const& loads, index_t slots, index_t ranks, index_t nodes,
                                   optional_tensor const& active, bool split_evenly) {
    here const at("select_planner", loads);
    auto const load = plimsoll_engines::history(at, loads);
    three_maps result = shapes::select_planner(loads, slots, ranks, nodes, active, split_evenly);
    auto const& [map, counts, chosen] = result;
    auto const plan = plimsoll_engines::choose_plan(at.policy(), load, slots,
                                                    {at, ranks, nodes, active, split_evenly});
    plimsoll_engines::store_plan(at.policy(), plan, at.template out<2>(map),
                                 at.template out<2>(counts));
    *chosen.template data_ptr<std::int64_t>() = plan.chosen;
    return result;
  }

  /// Gives every layer as many slots as its gain is worth; also returns `[layers, ranks + 1]`, the
  /// first slot of each rank. Budget -1 is chosen from the gains.
  static three_maps craft(Tensor const& loads, index_t ranks, index_t budget, index_t nodes,
                          optional_tensor const& active, bool split_evenly) {
    here const at("craft", loads);
    auto const load = plimsoll_engines::history(at, loads);
    three_maps result = shapes::craft(loads, ranks, budget, nodes, active, split_evenly);
    auto const& [map, counts, offsets] = result;
    plimsoll_engines::plan_craft(at.policy(), load, budget,
                                 {at, ranks, nodes, active, split_evenly}, at.template out<2>(map),
                                 at.template out<2>(offsets), at.template out<2>(counts));
    return result;
  }

  /// Places experts by the ranks' latency curves: `latency[ranks, samples]` at `tokens[samples]`.
  static maps gem(Tensor const& loads, Tensor const& tokens, Tensor const& latency, index_t slots,
                  index_t ranks, index_t dense_until, index_t restarts, index_t seed) {
    here const at("gem", loads);
    auto const load = plimsoll_engines::history(at, loads);
    auto const curves = plimsoll_engines::curves_of(at, tokens, latency, dense_until);
    maps result = shapes::gem(loads, tokens, latency, slots, ranks, dense_until, restarts, seed);
    plimsoll_engines::plan_gem(at.policy(), load, curves, ranks, restarts, seed,
                               at.template out<2>(std::get<0>(result)),
                               at.template out<2>(std::get<1>(result)));
    return result;
  }
};

}  // namespace torch_ops_example
