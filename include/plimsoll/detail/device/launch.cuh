// SPDX-License-Identifier: Apache-2.0
/// @file
/// Launches a kernel on a context's stream and device. All kernels of the library start here.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/device/runtime.cuh>
#include <plimsoll/execution.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// Grid and attributes of a launch.
struct launch_config {
  unsigned blocks;
  unsigned threads;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
  /// All blocks are resident at once, so that they may wait for each other. CUDA refuses the launch
  /// if they do not fit.
  bool cooperative = false;
  /// Blocks may start before the previous kernel on the stream has ended. Only for kernels that
  /// call cudaGridDependencySynchronize before they read or write global memory.
  bool programmatic = false;
};

/// Enqueues a kernel, does not synchronise, and returns the code of the launch.
template <class... Parameters>
[[nodiscard]] cudaError_t try_launch_kernel(device_context const& context,
                                            launch_config const& config,
                                            void (*kernel)(Parameters...),
                                            std::type_identity_t<Parameters> const&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(config.blocks);
  launch.blockDim = dim3(config.threads);
  launch.dynamicSmemBytes = config.shared_bytes;
  launch.stream = context.stream;
  launch.attrs = attributes;
  if (config.cooperative) {
    auto& attribute = attributes[launch.numAttrs++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  if (config.programmatic) {
    auto& attribute = attributes[launch.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  void* values[] = {const_cast<void*>(static_cast<void const*>(&arguments))..., nullptr};
  current_device const device(context);
  device.check();
  return cudaLaunchKernelExC(&launch, reinterpret_cast<void const*>(kernel), values);
}

inline void check_launch(cudaError_t code) {
  check_cuda(code, "kernel launch", " (this launch, or earlier work on the device)");
}

/// Enqueues a kernel and does not synchronise. Only the return code of the launch is checked, so
/// that an error of another library is neither reported nor cleared. CUDA may still return an error
/// of earlier work on the device.
template <class... Parameters>
void launch_kernel(device_context const& context, launch_config const& config,
                   void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters> const&... arguments) {
  check_launch(try_launch_kernel(context, config, kernel, arguments...));
}

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail
