// SPDX-License-Identifier: Apache-2.0
// Checks the tensors of an operator's call and shows them to Plimsoll.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Optional.h>

#include <cstddef>
#include <cstdint>
#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace torch_ops_example {

using at::Tensor;
using plimsoll::index_t;
using optional_tensor = c10::optional<Tensor>;

/// Reads loads of every type in which engines count them, so that each planner is compiled once.
struct load_reader {
  void const* data;
  index_t strides[3];
  at::ScalarType type;

  template <class... Indices>
  PLIMSOLL_HD double operator()(Indices... indices) const {
    index_t offset = 0;
    int dimension = 0;
    ((offset += indices * strides[dimension++]), ...);
    switch (type) {
      case at::ScalarType::Float:
        return static_cast<float const*>(data)[offset];
      case at::ScalarType::Double:
        return static_cast<double const*>(data)[offset];
      case at::ScalarType::Int:
        return static_cast<std::int32_t const*>(data)[offset];
      default:
        return static_cast<double>(static_cast<std::int64_t const*>(data)[offset]);
    }
  }
};

/// One call of an operator, on the device of a tensor and its current stream. All other tensors
/// must be on that device, too.
template <class Backend>
class call {
 public:
  using policy_type = typename Backend::policy_type;

  call(char const* function, at::Device device)
      : function_(function), device_(device), guard_(device), policy_(Backend::policy_on(device)) {}
  call(char const* function, Tensor const& tensor) : call(function, tensor.device()) {}

  [[nodiscard]] policy_type const& policy() const { return policy_; }
  [[nodiscard]] at::Device device() const { return device_; }
  [[nodiscard]] char const* function() const { return function_; }

  /// Returns a view of a tensor of `T`; `shape` names its dimensions in messages.
  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> view(char const* argument, Tensor const& tensor,
                                    char const* shape) const {
    constexpr at::ScalarType type = c10::CppTypeToScalarType<std::remove_const_t<T>>::value;
    expect(argument, tensor, tensor.scalar_type() == type, c10::toString(type), Rank, shape);
    plimsoll::array_ref<T, Rank> result;
    result.data = static_cast<T*>(tensor.data_ptr());
    for (int i = 0; i < Rank; ++i) {
      result.extents[i] = tensor.size(i);
      result.strides[i] = tensor.stride(i);
    }
    return result;
  }
  /// Returns a view of a new tensor of int64.
  template <int Rank>
  plimsoll::array_ref<std::int64_t, Rank> out(Tensor const& tensor) const {
    return view<std::int64_t, Rank>("result", tensor, "");
  }

  /// Returns loads of any of their types as a view. If `optional_first`, the tensor may lack the
  /// first dimension, whose extent is then 1.
  template <int Rank>
  auto loads(char const* argument, Tensor const& tensor, char const* shape,
             bool optional_first = false) const {
    at::ScalarType const type = tensor.scalar_type();
    bool const is_load =
        type == at::kFloat || type == at::kDouble || type == at::kInt || type == at::kLong;
    int const absent = optional_first && tensor.dim() == Rank - 1 ? 1 : 0;
    expect(argument, tensor, is_load, "Float, Double, Int or Long", Rank - absent, shape);
    load_reader reader{tensor.data_ptr(), {}, type};
    index_t extents[Rank] = {1};
    for (int i = absent; i < Rank; ++i) {
      extents[i] = tensor.size(i - absent);
      reader.strides[i] = tensor.stride(i - absent);
    }
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return plimsoll::generate(reader, extents[I]...);
    }(std::make_index_sequence<Rank>{});
  }

  /// Calls `f` with an int32 or an int64 of the type of the tensor's elements.
  template <class F>
  void with_ids(char const* argument, Tensor const& tensor, int rank, char const* shape,
                F&& f) const {
    bool const is_narrow = tensor.scalar_type() == at::kInt;
    expect(argument, tensor, is_narrow || tensor.scalar_type() == at::kLong, "Int or Long", rank,
           shape);
    is_narrow ? f(std::int32_t{}) : f(std::int64_t{});
  }

 private:
  void expect(char const* argument, Tensor const& tensor, bool has_type, char const* types,
              int rank, char const* shape) const {
    if (!has_type || tensor.dim() != rank || tensor.device() != device_) {
      std::ostringstream message;
      message << function_ << ": " << argument << ": expected " << types << ' ' << shape << " on "
              << device_ << ", got " << tensor.scalar_type() << ' ' << tensor.sizes() << " on "
              << tensor.device();
      throw plimsoll::invalid_input(message.str());
    }
  }

  char const* function_;
  at::Device device_;
  typename Backend::device_guard guard_;
  policy_type policy_;
};

}  // namespace torch_ops_example
