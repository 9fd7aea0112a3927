// SPDX-License-Identifier: Apache-2.0
// All functions that Python can call.
#pragma once

#include "exports.hpp"
#include "migrations.hpp"
#include "objects.hpp"
#include "planners.hpp"

/// Exports static function `Of::Function` as `Name`.
#define TVM_FFI_EXAMPLE_EXPORT(Name, ...) \
  TVM_FFI_DLL_EXPORT_TYPED_FUNC(Name, (&tvm_ffi_example::exported<&__VA_ARGS__>::run))

#define TVM_FFI_EXAMPLE_EXPORT_ALL(Backend)                                                        \
  TVM_FFI_EXAMPLE_EXPORT(rebalance_experts, tvm_ffi_example::planners<Backend>::rebalance_experts) \
  TVM_FFI_EXAMPLE_EXPORT(place_by_flow, tvm_ffi_example::planners<Backend>::place_by_flow)         \
  TVM_FFI_EXAMPLE_EXPORT(select_planner, tvm_ffi_example::planners<Backend>::select_planner)       \
  TVM_FFI_EXAMPLE_EXPORT(craft, tvm_ffi_example::planners<Backend>::craft)                         \
  TVM_FFI_EXAMPLE_EXPORT(gem, tvm_ffi_example::planners<Backend>::gem)                             \
  TVM_FFI_EXAMPLE_EXPORT(align, tvm_ffi_example::migrations<Backend>::align)                       \
  TVM_FFI_EXAMPLE_EXPORT(plan_within, tvm_ffi_example::migrations<Backend>::plan_within)           \
  TVM_FFI_EXAMPLE_EXPORT(plan_transfers, tvm_ffi_example::migrations<Backend>::plan_transfers)     \
  TVM_FFI_EXAMPLE_EXPORT(                                                                          \
      decide_replan,                                                                               \
      plimsoll_engines::gate<tvm_ffi_example::gate_binding<Backend>>::decide_replan)               \
  TVM_FFI_EXAMPLE_EXPORT(lplb, tvm_ffi_example::objects<Backend>::lplb)                            \
  TVM_FFI_EXAMPLE_EXPORT(waterfill, tvm_ffi_example::objects<Backend>::waterfill)                  \
  TVM_FFI_EXAMPLE_EXPORT(capacity_mask, tvm_ffi_example::objects<Backend>::capacity_mask)          \
  TVM_FFI_EXAMPLE_EXPORT(least_loaded, tvm_ffi_example::objects<Backend>::least_loaded)
