// SPDX-License-Identifier: Apache-2.0
// The operators for tensors on a CUDA device. Work is enqueued on PyTorch's current stream, and
// Plimsoll's temporaries come from cudaMallocAsync.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <plimsoll/execution.hpp>

#include "operators.hpp"

namespace torch_ops_example {
namespace {

struct cuda {
  using policy_type = plimsoll::gpu_policy;
  static cudaStream_t stream_of(at::Device device) {
    return c10::cuda::getCurrentCUDAStream(device.index()).stream();
  }
  static policy_type policy_on(at::Device device) { return plimsoll::gpu(stream_of(device)); }

  using device_guard = c10::cuda::CUDAGuard;
};

}  // namespace

TORCH_LIBRARY_IMPL(plimsoll, CUDA, library) { implement<cuda>(library); }

}  // namespace torch_ops_example
