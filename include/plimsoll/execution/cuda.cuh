// SPDX-License-Identifier: Apache-2.0
/// @file
/// Adapter that lets a `cuda::stream_ref` be passed as a policy (opt-in header): every call takes
/// it as it takes `plimsoll::gpu(stream)` of the same stream. It needs CCCL >= 3.0, which CUDA
/// Toolkits contain. A host compiler needs the toolkit's headers on its include path; it can then
/// hold and pass the policy, but calls need a CUDA compiler.
#pragma once

#if !__has_include(<cuda/stream_ref>) || !__has_include(<cuda_runtime_api.h>)
#error \
    "Plimsoll: <plimsoll/execution/cuda.cuh> needs CUDA's headers; include it from a .cu file, or add include and include/cccl of the CUDA Toolkit to the include path"
#endif

#include <cuda/stream_ref>

#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Resolves a stream of CCCL as `gpu(stream)`: temporaries come from cudaMallocAsync.
template <>
struct policy_traits<cuda::stream_ref> {
  static device_context resolve(cuda::stream_ref const& stream) { return {stream.get(), {}}; }
};

/// Return `gpu` policies of a stream of CCCL; the second takes temporaries from `resource`.
inline gpu_policy gpu(cuda::stream_ref stream) { return gpu(stream.get()); }
template <device_resource R>
gpu_policy gpu(cuda::stream_ref stream, R& resource) {
  return gpu(stream.get(), resource);
}

}}  // namespace plimsoll
