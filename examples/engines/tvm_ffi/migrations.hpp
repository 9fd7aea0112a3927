// SPDX-License-Identifier: Apache-2.0
// From the placement in use to a new one: maps `[layers, slots]` of int32 or int64, -1 in empty
// slots.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <memory>
#include <plimsoll/replan_gate_types.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../common/migrations.hpp"
#include "tensors.hpp"

namespace tvm_ffi_example {

template <class Backend>
struct migrations {
  using here = call<Backend>;
  using change = plimsoll_engines::change<here>;

  /// Returns `next` with the labels of ranks and slots with which the fewest experts move.
  static ffi::Tuple<Tensor> align(TensorView in_use, TensorView next, index_t experts,
                                  index_t ranks, index_t nodes) {
    here const at("align", in_use);
    change const plans(at, in_use, next, experts, ranks);
    Tensor const map = at.empty(next.size(0), next.size(1));
    plans.align(nodes, at.template out<2>(map));
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
    change const plans(at, in_use, next, load.extent(2), ranks);
    Tensor const map = at.empty(in_use.size(0), in_use.size(1));
    Tensor const counts = at.empty(load.extent(1), load.extent(2));
    plans.plan_within(load, ranks, nodes, max_moves, split_evenly, validate,
                      at.template out<2>(map), at.template out<2>(counts));
    return ffi::Tuple<Tensor, Tensor>(map, counts);
  }

  /// Returns the transfers in rounds, int64 `[transfers, 10]` in host memory.
  static ffi::Tuple<Tensor> plan_transfers(TensorView in_use, TensorView next, index_t experts,
                                           index_t ranks, index_t nodes, bool one_peer) {
    here const at("plan_transfers", in_use);
    change const plans(at, in_use, next, experts, ranks);
    auto const rows =
        std::make_shared<std::vector<std::int64_t> const>(plans.transfers(nodes, one_peer));
    plimsoll::array_ref const view(rows->data(), static_cast<index_t>(rows->size()) / 10, 10);
    return ffi::Tuple<Tensor>(borrow<std::int64_t>(rows, {kDLCPU, 0}, view));
  }
};

/// Results of `decide_replan` by name: answers by their names, numbers, and numbers of layers as
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
  using optional = Optional<TensorView>;

  template <class Decide>
  static ffi::Map<ffi::String, ffi::Any> judge(TensorView loads, Decide&& decide) {
    call<Backend> const at("decide_replan", loads);
    gate_results results;
    plimsoll_engines::add_results(decide(at), results);
    return results.list;
  }
};

}  // namespace tvm_ffi_example
