// SPDX-License-Identifier: Apache-2.0
// The functions for tensors in the memory of a CUDA device. Work is enqueued on the current stream:
// PyTorch's where a tensor comes from PyTorch, else the one set by tvm_ffi.use_raw_stream.
#include <tvm/ffi/extra/cuda/device_guard.h>

#include <plimsoll/execution.hpp>

#include "functions.hpp"

namespace tvm_ffi_example {

struct cuda {
  static constexpr DLDeviceType device_type = kDLCUDA;
  static constexpr char const* device_name = "cuda";

  using policy_type = plimsoll::gpu_policy;
  static policy_type policy_on(DLDevice device) {
    return plimsoll::gpu(static_cast<cudaStream_t>(stream_of(device)));
  }
  static void* stream_of(DLDevice device) {
    return TVMFFIEnvGetStream(device.device_type, device.device_id);
  }

  struct device_guard : ffi::CUDADeviceGuard {
    explicit device_guard(DLDevice device) : ffi::CUDADeviceGuard(device.device_id) {}
  };

  /// For callers that bring no allocator.
  struct allocator {
    void AllocData(DLTensor* tensor) {
      TVM_FFI_CHECK_CUDA_ERROR(cudaMalloc(&tensor->data, ffi::GetDataSize(*tensor)));
    }
    void FreeData(DLTensor* tensor) { static_cast<void>(cudaFree(tensor->data)); }
  };
};

}  // namespace tvm_ffi_example

TVM_FFI_EXAMPLE_EXPORT_ALL(tvm_ffi_example::cuda)
