// SPDX-License-Identifier: Apache-2.0
// The tensors of an operator's call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Optional.h>

#include <sstream>
#include <string>

#include "../common/call.hpp"

namespace torch_ops_example {

using at::Tensor;
using plimsoll::index_t;
using plimsoll_engines::refuse;
using optional_tensor = c10::optional<Tensor>;

/// Tensors of PyTorch, for `plimsoll_engines::call`.
struct tensors {
  using tensor = Tensor const&;
  using optional = optional_tensor const&;
  using device = at::Device;

  static int dimensions(Tensor const& tensor) { return static_cast<int>(tensor.dim()); }
  static void* data(Tensor const& tensor) { return tensor.data_ptr(); }
  template <class T>
  static bool holds(Tensor const& tensor) {
    return tensor.scalar_type() == c10::CppTypeToScalarType<T>::value;
  }
  static bool is_on(Tensor const& tensor, at::Device device) { return tensor.device() == device; }

  template <class T>
  static char const* name_of() {
    return c10::toString(c10::CppTypeToScalarType<T>::value);
  }
  static std::string describe(at::Device device) { return device.str(); }
  /// Returns for example "Long [2, 16] on cpu".
  static std::string describe(Tensor const& tensor) {
    std::ostringstream result;
    result << tensor.scalar_type() << ' ' << tensor.sizes() << " on " << tensor.device();
    return result.str();
  }
};

/// One call of an operator.
template <class Backend>
using call = plimsoll_engines::call<Backend, tensors>;

}  // namespace torch_ops_example
