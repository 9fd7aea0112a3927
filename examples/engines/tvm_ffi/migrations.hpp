// SPDX-License-Identifier: Apache-2.0
// From the placement in use to a new one: maps `[layers, slots]` of int32 or int64, -1 in empty
// slots.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/string.h>

#include <cstddef>
#include <memory>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replan_gate_types.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../common/planning.hpp"
#include "tensors.hpp"

namespace tvm_ffi_example {

template <class Backend>
struct migrations {
  using here = call<Backend>;
  using placement = plimsoll::placement<typename here::policy_type>;

  /// Returns `next` with the labels of ranks and slots with which the fewest experts move.
  static ffi::Tuple<Tensor> align(TensorView in_use, TensorView next, index_t experts,
                                  index_t ranks, index_t nodes) {
    here const at("align", in_use);
    placement const from = plimsoll_engines::placement_of(at, "in_use", in_use, experts, ranks);
    placement const to = plimsoll_engines::placement_of(at, "next", next, experts, ranks);
    Tensor const map = at.template empty<std::int64_t>(next.size(0), next.size(1));
    plimsoll::align(at.policy(), from.ref(), to.ref(), {.on = {.nodes = nodes}},
                    at.template out<std::int64_t, 2>(map));
    return ffi::Tuple<Tensor>(map);
  }

  /// Returns the map and the copies that balance single steps best within `max_moves` moves, from
  /// loads `[steps, layers, experts]`, or `[layers, experts]` for one step.
  static ffi::Tuple<Tensor, Tensor> plan_within(TensorView loads, TensorView in_use,
                                                TensorView next, index_t ranks, index_t nodes,
                                                index_t max_moves, bool split_evenly,
                                                bool validate) {
    here const at("plan_within", loads);
    auto const load = plimsoll_engines::history_or_step(at, loads);
    placement const from =
        plimsoll_engines::placement_of(at, "in_use", in_use, load.extent(2), ranks);
    placement const to = plimsoll_engines::placement_of(at, "next", next, load.extent(2), ranks);
    Tensor const map = at.template empty<std::int64_t>(in_use.size(0), in_use.size(1));
    Tensor const counts = at.template empty<std::int64_t>(load.extent(1), load.extent(2));
    plimsoll::plan_within(
        at.policy(), load, from.ref(), to.ref(), {.on = {.ranks = ranks, .nodes = nodes}},
        {.split = split_evenly ? plimsoll::split_rule::even : plimsoll::split_rule::optimal,
         .max_moves = max_moves,
         .validate = validate},
        at.template out<std::int64_t, 2>(map), at.template out<std::int64_t, 2>(counts));
    return ffi::Tuple<Tensor, Tensor>(map, counts);
  }

  /// Returns the transfers in rounds, int64 `[transfers, 10]` in host memory: layer, expert, source
  /// rank and slot (-1: from the host), destination rank and slot, round, staging slot or -1,
  /// commit round, kind.
  static ffi::Tuple<Tensor> transfers(TensorView in_use, TensorView next, index_t experts,
                                      index_t ranks, index_t nodes, bool one_peer) {
    here const at("transfers", in_use);
    placement const from = plimsoll_engines::placement_of(at, "in_use", in_use, experts, ranks);
    placement const to = plimsoll_engines::placement_of(at, "next", next, experts, ranks);
    auto const plan =
        plimsoll::transfers(at.policy(), from.ref(), to.ref(),
                            {.on = {.nodes = nodes},
                             .rounds = one_peer ? plimsoll::round_rule::one_peer
                                                : plimsoll::round_rule::send_and_receive});
    auto const rows = std::make_shared<std::vector<std::int64_t>>();
    for (plimsoll::transfer const& one : plan.list) {
      rows->insert(rows->end(),
                   {one.layer, one.expert, one.source_rank, one.source_slot, one.destination_rank,
                    one.destination_slot, one.round, one.staging_slot, one.commit_round,
                    static_cast<std::int64_t>(one.kind)});
    }
    plimsoll::array_ref const view(std::as_const(*rows).data(),
                                   static_cast<index_t>(plan.list.size()), 10);
    return ffi::Tuple<Tensor>(borrow<std::int64_t>(rows, {kDLCPU, 0}, view));
  }
};

/// Results of `replan_gate` by name: answers by their names, numbers, and numbers of layers as
/// tensors `[layers]` of float64 in host memory.
struct gate_results {
  ffi::Map<ffi::String, ffi::Any> list;

  void add(std::string const& name, plimsoll::replan_answer answer) {
    list.Set(name, name_of(answer));
  }
  void add(std::string const& name, std::vector<plimsoll::replan_answer> const& answers) {
    ffi::Array<ffi::String> names;
    for (plimsoll::replan_answer const one : answers) {
      names.push_back(name_of(one));
    }
    list.Set(name, names);
  }
  void add(std::string const& name, index_t number) { list.Set(name, number); }
  void add(std::string const& name, double number) { list.Set(name, number); }
  void add(std::string const& name, std::vector<double> numbers) {
    auto const kept = std::make_shared<std::vector<double> const>(std::move(numbers));
    plimsoll::array_ref const view(kept->data(), static_cast<index_t>(kept->size()));
    list.Set(name, borrow<double>(kept, {kDLCPU, 0}, view));
  }

 private:
  static ffi::String name_of(plimsoll::replan_answer answer) {
    constexpr char const* names[] = {"keep", "move", "insufficient_evidence"};
    return names[static_cast<int>(answer)];
  }
};

/// `plimsoll_engines::gate` for arguments from Python.
template <class Backend>
struct gate_binding {
  using tensor = TensorView;
  using optional = ffi::Optional<TensorView>;

  template <class Decide>
  static ffi::Map<ffi::String, ffi::Any> judge(TensorView loads, Decide&& decide) {
    call<Backend> const at("replan_gate", loads);
    gate_results results;
    plimsoll_engines::add_results(decide(at), results);
    return results.list;
  }
};

}  // namespace tvm_ffi_example
