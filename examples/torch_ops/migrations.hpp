// SPDX-License-Identifier: Apache-2.0
// From the placement in use to a new one: maps `[layers, slots]` of int32 or int64, -1 in empty
// slots.
#pragma once

#include <ATen/ops/empty.h>

#include <plimsoll/array.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_maps.hpp>
#include <string>
#include <tuple>

#include "planning.hpp"
#include "tensors.hpp"

namespace torch_ops_example {

/// Operators on meta tensors, which allocate the results of the others.
struct migration_shapes {
  static Tensor align(Tensor const&, Tensor const& next, index_t, index_t, index_t) {
    return at::empty(next.sizes(), next.options().dtype(at::kLong));
  }
  static std::tuple<Tensor, Tensor> plan_within(Tensor const& loads, Tensor const& in_use,
                                                Tensor const&, index_t, index_t, index_t, bool,
                                                bool) {
    if (loads.dim() != 2 && loads.dim() != 3) {
      throw plimsoll::invalid_input("plan_within: loads: expected 2 or 3 dimensions, got " +
                                    std::to_string(loads.dim()));
    }
    return {at::empty(in_use.sizes(), in_use.options().dtype(at::kLong)),
            at::empty({loads.size(-2), loads.size(-1)}, loads.options().dtype(at::kLong))};
  }
};

template <class Backend>
struct migrations {
  using here = call<Backend>;
  using placement = plimsoll::placement<typename here::policy_type>;

  /// Returns `next` with the labels of ranks and slots with which the fewest experts move.
  static Tensor align(Tensor const& in_use, Tensor const& next, index_t experts, index_t ranks,
                      index_t nodes) {
    here const at("align", in_use);
    placement const from = placement_of(at, "in_use", in_use, experts, ranks);
    placement const to = placement_of(at, "next", next, experts, ranks);
    Tensor map = migration_shapes::align(in_use, next, experts, ranks, nodes);
    plimsoll::align(at.policy(), from.ref(), to.ref(), {.on = {.nodes = nodes}},
                    at.template out<2>(map));
    return map;
  }

  /// Returns the map and the copies that balance single steps best within `max_moves` moves, from
  /// loads `[steps, layers, experts]`, or `[layers, experts]` for one step.
  static std::tuple<Tensor, Tensor> plan_within(Tensor const& loads, Tensor const& in_use,
                                                Tensor const& next, index_t ranks, index_t nodes,
                                                index_t max_moves, bool split_evenly,
                                                bool validate) {
    here const at("plan_within", loads);
    auto const load = plimsoll_planning::history_or_step(at, loads);
    placement const from = placement_of(at, "in_use", in_use, load.extent(2), ranks);
    placement const to = placement_of(at, "next", next, load.extent(2), ranks);
    auto result = migration_shapes::plan_within(loads, in_use, next, ranks, nodes, max_moves,
                                                split_evenly, validate);
    plimsoll::plan_within(
        at.policy(), load, from.ref(), to.ref(), {.on = {.ranks = ranks, .nodes = nodes}},
        {.split = split_evenly ? plimsoll::split_rule::even : plimsoll::split_rule::optimal,
         .max_moves = max_moves,
         .validate = validate},
        at.template out<2>(std::get<0>(result)), at.template out<2>(std::get<1>(result)));
    return result;
  }

  /// Returns the transfers in rounds, int64 `[transfers, 10]` in host memory: layer, expert, source
  /// rank and slot (-1: from the host), destination rank and slot, round, staging slot or -1,
  /// commit round, kind. Their number depends on values, so that meta tensors have none.
  static Tensor transfers(Tensor const& in_use, Tensor const& next, index_t experts, index_t ranks,
                          index_t nodes, bool one_peer) {
    here const at("transfers", in_use);
    placement const from = placement_of(at, "in_use", in_use, experts, ranks);
    placement const to = placement_of(at, "next", next, experts, ranks);
    auto const plan =
        plimsoll::transfers(at.policy(), from.ref(), to.ref(),
                            {.on = {.nodes = nodes},
                             .rounds = one_peer ? plimsoll::round_rule::one_peer
                                                : plimsoll::round_rule::send_and_receive});
    Tensor rows = at::empty({static_cast<index_t>(plan.list.size()), 10}, at::kLong);
    std::int64_t* row = rows.template data_ptr<std::int64_t>();
    for (plimsoll::transfer const& one : plan.list) {
      for (std::int64_t const value :
           {one.layer, one.expert, one.source_rank, one.source_slot, one.destination_rank,
            one.destination_slot, one.round, one.staging_slot, one.commit_round,
            static_cast<std::int32_t>(one.kind)}) {
        *row++ = value;
      }
    }
    return rows;
  }

 private:
  /// Copies a map and counts its copies.
  static placement placement_of(here const& at, char const* argument, Tensor const& map,
                                index_t experts, index_t ranks) {
    placement result;
    at.with_ids(argument, map, 2, "[layers, slots]", [&](auto id) {
      using Id = decltype(id);
      auto const slots = at.template view<Id const, 2>(argument, map, "[layers, slots]");
      plimsoll::array<Id, typename here::policy_type, 2> copies(at.policy(), slots.extent(0),
                                                                experts);
      plimsoll::count_replicas(at.policy(), slots, copies);
      result = plimsoll::copy_placement(at.policy(), slots, copies, ranks);
    });
    return result;
  }
};

}  // namespace torch_ops_example
