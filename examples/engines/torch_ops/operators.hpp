// SPDX-License-Identifier: Apache-2.0
// Registers the operators of one backend.
#pragma once

#include <torch/library.h>

#include "migrations.hpp"
#include "objects.hpp"
#include "planners.hpp"

namespace torch_ops_example {

/// Operator that calls a function of the object that is its first argument.
template <auto Method>
struct member;
template <class Object, class... A, void (Object::*Method)(A...)>
struct member<Method> {
  static void run(c10::intrusive_ptr<Object> const& self, A... arguments) {
    ((*self).*Method)(arguments...);
  }
  /// On meta tensors: outputs are the caller's, so that nothing is to do.
  static void skip(c10::intrusive_ptr<Object> const&, A...) {}
};

/// Calls `define(name, operator, operator on meta tensors)` for each operator of objects.
template <class Define>
void for_steps(Define&& define) {
#define TORCH_OPS_EXAMPLE_STEP(Object, Name)                      \
  define(#Object "_" #Name, &member<&Object##_object::Name>::run, \
         &member<&Object##_object::Name>::skip)
  TORCH_OPS_EXAMPLE_STEP(lplb, count);
  TORCH_OPS_EXAMPLE_STEP(lplb, plan);
  TORCH_OPS_EXAMPLE_STEP(lplb, dispatch);
  TORCH_OPS_EXAMPLE_STEP(waterfill, count);
  TORCH_OPS_EXAMPLE_STEP(waterfill, fill);
  TORCH_OPS_EXAMPLE_STEP(capacity_mask, apply);
  TORCH_OPS_EXAMPLE_STEP(least_loaded, count);
  TORCH_OPS_EXAMPLE_STEP(least_loaded, plan);
  TORCH_OPS_EXAMPLE_STEP(least_loaded, route);
#undef TORCH_OPS_EXAMPLE_STEP
}

/// Registers the planners `Of`: of a backend, or `shapes`.
template <class Of>
void implement_planners(torch::Library& library) {
  library.impl("rebalance_experts", &Of::rebalance_experts);
  library.impl("place_by_flow", &Of::place_by_flow);
  library.impl("select_planner", &Of::select_planner);
  library.impl("craft", &Of::craft);
  library.impl("gem", &Of::gem);
}

/// Registers what leads from one placement to another: of a backend, or `migration_shapes`.
template <class Of>
void implement_migrations(torch::Library& library) {
  library.impl("align", &Of::align);
  library.impl("plan_within", &Of::plan_within);
}

/// Registers the judgment of a new placement: of `gate_binding`, or `gate_shapes`.
template <class Binding>
void implement_gate(torch::Library& library) {
  library.impl("decide_replan", &plimsoll_engines::gate<Binding>::decide_replan);
}

/// Registers all operators of a backend with tensors.
template <class Backend>
void implement(torch::Library& library) {
  implement_planners<planners<Backend>>(library);
  implement_migrations<migrations<Backend>>(library);
  implement_gate<gate_binding<Backend>>(library);
  library.impl("plan_transfers", &migrations<Backend>::plan_transfers);
  library.impl("lplb", &objects<Backend>::lplb);
  library.impl("waterfill", &objects<Backend>::waterfill);
  library.impl("capacity_mask", &objects<Backend>::capacity_mask);
  library.impl("least_loaded", &objects<Backend>::least_loaded);
  for_steps([&](char const* name, auto run, auto) { library.impl(name, run); });
}

}  // namespace torch_ops_example
