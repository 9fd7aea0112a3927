// SPDX-License-Identifier: Apache-2.0
/// @file
/// Error checks of CUDA calls, and selection of the device of a call.
#pragma once

#include <cuda_runtime_api.h>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Throws if a call returned an error. Only the return code counts: the thread's last error may be
/// that of another library, so it is not read, and is cleared only after an error of this call.
inline void check_cuda(cudaError_t code, char const* call, char const* hint = "") {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw cuda_error(static_cast<int>(code), text(call, ": ", cudaGetErrorString(code), hint));
  }
}

/// Returns the device of a stream. A default stream belongs to the current device. So must a stream
/// that is being captured: asking for its device would end the capture with an error.
[[nodiscard]] inline int device_of(stream_t stream) {
  auto capture = cudaStreamCaptureStatusNone;
  bool const is_default =
      stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  if (!is_default) {
    check_cuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  }
  int device = 0;
  if (is_default || capture != cudaStreamCaptureStatusNone) {
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  } else {
    check_cuda(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  }
  return device;
}

/// Returns the context with the device of its stream, and that device's shared memory.
[[nodiscard]] inline device_context with_device(device_context context) {
  context.device = device_of(context.stream);
  check_cuda(cudaDeviceGetAttribute(&context.shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                    context.device),
             "cudaDeviceGetAttribute");
  return context;
}

/// Makes the context's device current, and restores the previous device in the destructor.
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

  /// Throws if the device could not be made current.
  void check() const { check_cuda(code_, "cudaSetDevice"); }

 private:
  cudaError_t code_ = cudaSuccess;
  int previous_ = 0;
  bool switched_ = false;
};

}}}  // namespace plimsoll::detail
