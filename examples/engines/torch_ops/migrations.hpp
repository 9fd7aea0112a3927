// SPDX-License-Identifier: Apache-2.0
// From the placement in use to a new one: maps `[layers, slots]` of int32 or int64, -1 in empty
// slots.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <plimsoll/replan_gate_types.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "../common/migrations.hpp"
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
      refuse("plan_within", "loads", "2 or 3 dimensions", std::to_string(loads.dim()));
    }
    return {at::empty(in_use.sizes(), in_use.options().dtype(at::kLong)),
            at::empty({loads.size(-2), loads.size(-1)}, loads.options().dtype(at::kLong))};
  }
};

template <class Backend>
struct migrations {
  using here = call<Backend>;
  using change = plimsoll_engines::change<here>;

  /// Returns `next` with the labels of ranks and slots with which the fewest experts move.
  static Tensor align(Tensor const& in_use, Tensor const& next, index_t experts, index_t ranks,
                      index_t nodes) {
    here const at("align", in_use);
    change const plans(at, in_use, next, experts, ranks);
    Tensor map = migration_shapes::align(in_use, next, experts, ranks, nodes);
    plans.align(nodes, at.template out<2>(map));
    return map;
  }

  /// Returns the map and the copies that balance single steps best within `max_moves` moves, from
  /// loads `[steps, layers, experts]`, or `[layers, experts]` for one step.
  static std::tuple<Tensor, Tensor> plan_within(Tensor const& loads, Tensor const& in_use,
                                                Tensor const& next, index_t ranks, index_t nodes,
                                                index_t max_moves, bool split_evenly,
                                                bool validate) {
    here const at("plan_within", loads);
    auto const load = plimsoll_engines::history_or_step(at, loads);
    change const plans(at, in_use, next, load.extent(2), ranks);
    auto result = migration_shapes::plan_within(loads, in_use, next, ranks, nodes, max_moves,
                                                split_evenly, validate);
    plans.plan_within(load, ranks, nodes, max_moves, split_evenly, validate,
                      at.template out<2>(std::get<0>(result)),
                      at.template out<2>(std::get<1>(result)));
    return result;
  }

  /// Returns the transfers in rounds, int64 `[transfers, 10]` in host memory. Their number depends
  /// on values, so that meta tensors have none.
  static Tensor plan_transfers(Tensor const& in_use, Tensor const& next, index_t experts,
                               index_t ranks, index_t nodes, bool one_peer) {
    here const at("plan_transfers", in_use);
    change const plans(at, in_use, next, experts, ranks);
    std::vector<std::int64_t> const rows = plans.transfers(nodes, one_peer);
    Tensor result = at::empty({static_cast<index_t>(rows.size()) / 10, 10}, at::kLong);
    std::copy(rows.begin(), rows.end(), result.template data_ptr<std::int64_t>());
    return result;
  }
};

/// Results of `decide_replan` by name, in host memory or without values: answers by their numbers
/// in `plimsoll::replan_answer`, as int64, and the other numbers as float64; those of layers are
/// `[layers]`.
class gate_results {
 public:
  explicit gate_results(at::Device device) : device_(device) {}

  [[nodiscard]] c10::Dict<std::string, Tensor> const& list() const { return list_; }

  void add(std::string const& name, plimsoll::replan_answer answer) {
    add(name, static_cast<index_t>(answer));
  }
  void add(std::string const& name, std::vector<plimsoll::replan_answer> const& answers) {
    std::vector<index_t> numbers;
    for (plimsoll::replan_answer const one : answers) {
      numbers.push_back(static_cast<index_t>(one));
    }
    add(name, numbers);
  }
  template <class T>
  void add(std::string const& name, T number) {
    store(name, {}, &number, &number + 1);
  }
  template <class T>
  void add(std::string const& name, std::vector<T> const& numbers) {
    store(name, {static_cast<index_t>(numbers.size())}, numbers.data(),
          numbers.data() + numbers.size());
  }

 private:
  template <class T>
  void store(std::string const& name, at::IntArrayRef shape, T const* first, T const* last) {
    auto const type = c10::CppTypeToScalarType<T>::value;
    Tensor const values = at::empty(shape, at::TensorOptions(device_).dtype(type));
    if (!values.is_meta()) {
      std::copy(first, last, values.template data_ptr<T>());
    }
    list_.insert(name, values);
  }

  at::Device device_;
  c10::Dict<std::string, Tensor> list_;
};

/// `plimsoll_engines::gate` on meta tensors.
struct gate_shapes {
  using tensor = Tensor const&;
  using optional = optional_tensor const&;

  template <class Decide>
  static c10::Dict<std::string, Tensor> judge(Tensor const& loads, Decide&&) {
    if (loads.dim() != 3) {
      refuse("decide_replan", "loads", "3 dimensions", std::to_string(loads.dim()));
    }
    plimsoll::replan_decision decision;
    decision.candidates.resize(1);
    decision.candidates[0].layers.resize(static_cast<std::size_t>(loads.size(1)));
    gate_results results(at::kMeta);
    plimsoll_engines::add_results(decision, results);
    return results.list();
  }
};

/// `plimsoll_engines::gate` on tensors with values.
template <class Backend>
struct gate_binding : gate_shapes {
  template <class Decide>
  static c10::Dict<std::string, Tensor> judge(Tensor const& loads, Decide&& decide) {
    call<Backend> const at("decide_replan", loads);
    gate_results results(at::kCPU);
    plimsoll_engines::add_results(decide(at), results);
    return results.list();
  }
};

}  // namespace torch_ops_example
