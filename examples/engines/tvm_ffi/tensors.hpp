// SPDX-License-Identifier: Apache-2.0
// The tensors of a call from Python, and new ones for its results.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/optional.h>

#include <array>
#include <cstdint>
#include <memory>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "../common/call.hpp"

namespace tvm_ffi_example {

namespace ffi = tvm::ffi;
using ffi::Optional;
using ffi::Tensor;
using ffi::TensorView;
using plimsoll::index_t;
using plimsoll_engines::refuse;

/// Type of a tensor's elements in C++.
template <class T>
constexpr DLDataType type_of = {static_cast<std::uint8_t>(std::is_floating_point_v<T> ? kDLFloat
                                                          : std::is_signed_v<T>       ? kDLInt
                                                                                      : kDLUInt),
                                8 * sizeof(T), 1};

/// Tensors of tvm-ffi, for `plimsoll_engines::call`.
struct tensors {
  using tensor = TensorView;
  using optional = Optional<TensorView>;
  using device = DLDevice;

  static int dimensions(TensorView const& tensor) { return tensor.ndim(); }
  static void* data(TensorView const& tensor) {
    return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
  }
  template <class T>
  static bool holds(TensorView const& tensor) {
    return tensor.dtype() == type_of<T>;
  }
  static bool is_on(TensorView const& tensor, DLDevice device) {
    DLDevice const own = tensor.device();
    return own.device_type == device.device_type && own.device_id == device.device_id;
  }

  template <class T>
  static std::string name_of() {
    return ffi::DLDataTypeToString(type_of<T>);
  }
  /// Returns for example "cpu:0".
  static std::string describe(DLDevice device) {
    return (device.device_type == kDLCPU    ? "cpu"
            : device.device_type == kDLCUDA ? "cuda"
                                            : "device type " + std::to_string(device.device_type)) +
           ":" + std::to_string(device.device_id);
  }
  /// Returns for example "int64 [2, 16] on cpu:0".
  static std::string describe(TensorView const& tensor) {
    std::string result = ffi::DLDataTypeToString(tensor.dtype());
    result += " [";
    for (int i = 0; i < tensor.ndim(); ++i) {
      result += (i > 0 ? ", " : "") + std::to_string(tensor.size(i));
    }
    return result + "] on " + describe(tensor.device());
  }
};

/// One call from Python, which can also allocate.
template <class Backend>
class call : public plimsoll_engines::call<Backend, tensors> {
  using base = plimsoll_engines::call<Backend, tensors>;

 public:
  call(char const* function, DLDevice device) : base(function, expect_device(function, device)) {}
  call(char const* function, TensorView const& first) : call(function, first.device()) {}

  /// Allocates a tensor of int64 on the device of the call: from the caller's allocator, which
  /// PyTorch sets, or, without one, by `Backend`.
  template <class... Extents>
  Tensor empty(Extents... extents) const {
    std::array<std::int64_t, sizeof...(Extents)> const shape{extents...};
    ffi::ShapeView const view(shape.data(), shape.size());
    auto const type = type_of<std::int64_t>;
    if (TVMFFIEnvGetDLPackManagedTensorAllocator() != nullptr) {
      return Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, view, type, this->device());
    }
    return Tensor::FromNDAlloc(typename Backend::allocator{}, view, type, this->device());
  }

 private:
  static DLDevice expect_device(char const* function, DLDevice device) {
    if (device.device_type != Backend::device_type) {
      refuse(function, "the first tensor or device", std::string("one on ") + Backend::device_name,
             "device type " + std::to_string(device.device_type));
    }
    return device;
  }
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
