// SPDX-License-Identifier: Apache-2.0
// The functions for tensors in host memory: NumPy's arrays and PyTorch's CPU tensors.
#include <cstdlib>
#include <new>

#include "../common/threads.hpp"
#include "functions.hpp"

namespace tvm_ffi_example {

struct host {
  static constexpr DLDeviceType device_type = kDLCPU;
  static constexpr char const* device_name = "cpu";

  using policy_type = plimsoll_engines::host_policy;
  static policy_type policy_on(DLDevice) { return {plimsoll_engines::threads_of_calls}; }
  static void* stream_of(DLDevice) { return nullptr; }

  struct device_guard {
    explicit device_guard(DLDevice) {}
  };

  /// For callers that bring no allocator, such as NumPy.
  struct allocator {
    void AllocData(DLTensor* tensor) {
      tensor->data = ::operator new(ffi::GetDataSize(*tensor), std::align_val_t{64});
    }
    void FreeData(DLTensor* tensor) { ::operator delete(tensor->data, std::align_val_t{64}); }
  };
};

}  // namespace tvm_ffi_example

TVM_FFI_EXAMPLE_EXPORT_ALL(tvm_ffi_example::host)
TVM_FFI_EXAMPLE_EXPORT(set_threads, plimsoll_engines::set_threads)
