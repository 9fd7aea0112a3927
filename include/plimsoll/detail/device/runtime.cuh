// SPDX-License-Identifier: Apache-2.0
/// @file
/// The check behind every CUDA call, and the device that a call is for.
#pragma once

#include <cuda_runtime_api.h>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Throws for a call that failed. Its own code decides: the thread's last error may be another
/// library's, so it is not asked, and cleared only where our call has set it.
inline void check_cuda(cudaError_t code, char const* call, char const* hint = "") {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw cuda_error(static_cast<int>(code), text(call, ": ", cudaGetErrorString(code), hint));
  }
}

/// Finds the device of a stream; a default stream belongs to the device that is current.
[[nodiscard]] inline int device_of(stream_t stream) {
  int device = 0;
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  } else {
    check_cuda(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  }
  return device;
}

/// Fills in what a context keeps of its stream's device.
[[nodiscard]] inline device_context with_device(device_context context) {
  context.device = device_of(context.stream);
  check_cuda(cudaDeviceGetAttribute(&context.shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                    context.device),
             "cudaDeviceGetAttribute");
  return context;
}

/// Makes the context's device current where another one is, and that one again at the end.
class current_device {
 public:
  explicit current_device(device_context const& context) noexcept {
    if (context.device < 0) {
      return;
    }
    code_ = cudaGetDevice(&previous_);
    if (code_ == cudaSuccess && previous_ != context.device) {
      code_ = cudaSetDevice(context.device);
      switched_ = code_ == cudaSuccess;
    }
  }
  current_device(current_device const&) = delete;
  current_device& operator=(current_device const&) = delete;
  ~current_device() {
    if (switched_) {
      static_cast<void>(cudaSetDevice(previous_));
    }
  }

  /// Throws where the device could not be made current.
  void check() const { check_cuda(code_, "cudaSetDevice"); }

 private:
  cudaError_t code_ = cudaSuccess;
  int previous_ = 0;
  bool switched_ = false;
};

}}}  // namespace plimsoll::detail
