// SPDX-License-Identifier: Apache-2.0
// Checks the tensors of a call from Python, shows them to Plimsoll, and allocates results.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/optional.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace tvm_ffi_example {

namespace ffi = tvm::ffi;
using ffi::Tensor;
using ffi::TensorView;
using plimsoll::index_t;

/// Type of a tensor's elements in C++.
template <class T>
constexpr DLDataType type_of = {static_cast<std::uint8_t>(std::is_floating_point_v<T> ? kDLFloat
                                                          : std::is_signed_v<T>       ? kDLInt
                                                                                      : kDLUInt),
                                8 * sizeof(T), 1};

/// Returns for example "int64 [2, 16] on cpu:0".
inline std::string describe(TensorView const& tensor) {
  std::string result = ffi::DLDataTypeToString(tensor.dtype());
  result += " [";
  for (int i = 0; i < tensor.ndim(); ++i) {
    result += (i > 0 ? ", " : "") + std::to_string(tensor.size(i));
  }
  DLDevice const device = tensor.device();
  result += "] on ";
  result += device.device_type == kDLCPU    ? "cpu"
            : device.device_type == kDLCUDA ? "cuda"
                                            : "device type " + std::to_string(device.device_type);
  return result + ":" + std::to_string(device.device_id);
}

/// Refuses an argument in the form of Plimsoll's own messages.
[[noreturn]] inline void refuse(std::string const& function, std::string const& argument,
                                std::string const& expected, std::string const& got) {
  throw plimsoll::invalid_input(function + ": " + argument + ": expected " + expected + ", got " +
                                got);
}

/// Reads loads of every type in which engines count them, so that each planner is compiled once.
struct load_reader {
  char const* data = nullptr;
  index_t strides[3] = {};
  DLDataType type = {};

  template <class... Indices>
  PLIMSOLL_HD double operator()(Indices... indices) const {
    index_t offset = 0;
    int dimension = 0;
    ((offset += indices * strides[dimension++]), ...);
    if (type.code == kDLFloat) {
      return type.bits == 32 ? at<float>(offset) : at<double>(offset);
    }
    return static_cast<double>(type.bits == 32 ? at<std::int32_t>(offset)
                                               : at<std::int64_t>(offset));
  }

 private:
  template <class T>
  PLIMSOLL_HD T at(index_t offset) const {
    return reinterpret_cast<T const*>(data)[offset];
  }
};

/// One call from Python, on the device and the current stream of a tensor. All other tensors must
/// be on that device, too.
template <class Backend>
class call {
 public:
  using policy_type = typename Backend::policy_type;

  call(char const* function, DLDevice device)
      : function_(function),
        device_(expect_device(function, device)),
        guard_(device.device_id),
        policy_(Backend::policy_on(device)) {}
  call(char const* function, TensorView const& tensor) : call(function, tensor.device()) {}

  [[nodiscard]] policy_type const& policy() const { return policy_; }
  [[nodiscard]] DLDevice device() const { return device_; }
  [[nodiscard]] char const* function() const { return function_; }

  /// Returns a view of a tensor of `T`; `shape` names its dimensions in messages.
  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> view(char const* argument, TensorView const& tensor,
                                    char const* shape) const {
    constexpr DLDataType type = type_of<std::remove_const_t<T>>;
    expect(argument, tensor, tensor.dtype() == type, ffi::DLDataTypeToString(type), Rank, shape);
    plimsoll::array_ref<T, Rank> result;
    result.data =
        reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
    for (int i = 0; i < Rank; ++i) {
      result.extents[i] = tensor.size(i);
      result.strides[i] = tensor.stride(i);
    }
    return result;
  }

  /// Returns loads of any of their types as a view. If `optional_first`, the tensor may lack the
  /// first dimension, whose extent is then 1.
  template <int Rank>
  auto loads(char const* argument, TensorView const& tensor, char const* shape,
             bool optional_first = false) const {
    DLDataType const type = tensor.dtype();
    bool const is_load = (type.code == kDLFloat || type.code == kDLInt) && type.lanes == 1 &&
                         (type.bits == 32 || type.bits == 64);
    int const absent = optional_first && tensor.ndim() == Rank - 1 ? 1 : 0;
    expect(argument, tensor, is_load, "float32, float64, int32 or int64", Rank - absent, shape);
    load_reader reader{
        static_cast<char const*>(tensor.data_ptr()) + tensor.byte_offset(), {}, type};
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
  void with_ids(char const* argument, TensorView const& tensor, int rank, char const* shape,
                F&& f) const {
    bool const is_narrow = tensor.dtype() == type_of<std::int32_t>;
    expect(argument, tensor, is_narrow || tensor.dtype() == type_of<std::int64_t>, "int32 or int64",
           rank, shape);
    is_narrow ? f(std::int32_t{}) : f(std::int64_t{});
  }

  /// Allocates a tensor on the device of the call: from the caller's allocator, which PyTorch sets,
  /// or, without one, by `Backend`.
  template <class T, class... Extents>
  Tensor empty(Extents... extents) const {
    std::array<std::int64_t, sizeof...(Extents)> const shape{extents...};
    ffi::ShapeView const view(shape.data(), shape.size());
    if (TVMFFIEnvGetDLPackManagedTensorAllocator() != nullptr) {
      return Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, view, type_of<T>, device_);
    }
    return Tensor::FromNDAlloc(typename Backend::allocator{}, view, type_of<T>, device_);
  }
  /// Returns a view of a tensor that `empty` made.
  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> out(Tensor const& tensor) const {
    return view<T, Rank>("result", tensor, "");
  }

 private:
  static DLDevice expect_device(char const* function, DLDevice device) {
    if (device.device_type != Backend::device_type) {
      refuse(function, "the first tensor or device", std::string("one on ") + Backend::device_name,
             "device type " + std::to_string(device.device_type));
    }
    return device;
  }

  void expect(char const* argument, TensorView const& tensor, bool has_type,
              std::string const& types, int rank, char const* shape) const {
    DLDevice const device = tensor.device();
    if (!has_type || tensor.ndim() != rank || device.device_type != device_.device_type ||
        device.device_id != device_.device_id) {
      refuse(function_, argument,
             types + " " + shape + " on " + Backend::device_name + ":" +
                 std::to_string(device_.device_id),
             describe(tensor));
    }
  }

  char const* function_;
  DLDevice device_;
  typename Backend::device_guard guard_;
  policy_type policy_;
};

/// Memory of a kept object, which the tensor keeps alive.
struct borrowed_memory {
  std::shared_ptr<void const> owner;
  void* data;

  void AllocData(DLTensor* tensor) const { tensor->data = data; }
  void FreeData(DLTensor*) const {}
};

/// Returns a tensor that shows an array of a kept object and changes with it.
template <class T, int Rank>
Tensor borrow(std::shared_ptr<void const> owner, DLDevice device,
              plimsoll::array_ref<T const, Rank> const& view) {
  return Tensor::FromNDAllocStrided(borrowed_memory{std::move(owner), const_cast<T*>(view.data)},
                                    ffi::ShapeView(view.extents, Rank),
                                    ffi::ShapeView(view.strides, Rank), type_of<T>, device);
}

}  // namespace tvm_ffi_example
