// SPDX-License-Identifier: Apache-2.0
/// @file
/// Launches a kernel on a context's stream and device. All kernels of the library start here.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/device/runtime.cuh>
#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Grid and attributes of a launch.
struct launch_config {
  unsigned blocks;
  unsigned threads;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
  /// All blocks are resident at once, so that they may wait for each other. CUDA refuses the launch
  /// if they do not fit.
  bool cooperative = false;
};

/// Most bytes of static shared memory of a kernel (`block_exchange`). One limit holds for all
/// kernels, so that the placement of scratch does not depend on the kernel: a prepared object
/// chooses for kernels that its caller instantiates later.
inline constexpr std::size_t static_shared_memory = 1024;

/// Bytes of scratch in shared memory that a block can have on every device.
inline constexpr std::size_t shared_memory_for_scratch = 48 * 1024 - static_shared_memory;

/// Returns the most bytes of scratch in shared memory that a block can have on the context's
/// device.
[[nodiscard]] inline std::size_t most_shared_memory(device_context const& context) {
  auto const offered = static_cast<std::size_t>(std::max(context.shared_memory, 0));
  return std::max(shared_memory_for_scratch + static_shared_memory, offered) - static_shared_memory;
}

/// Allows blocks of a kernel to have `bytes` of dynamic shared memory; CUDA refuses launches above
/// 48 KiB otherwise. The limit is always set to the same value, since another thread may launch the
/// kernel with more scratch at the same time. The context's device must be current.
inline void allow_shared_memory(device_context const& context, void const* kernel,
                                std::size_t bytes) {
  if (bytes > shared_memory_for_scratch) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(most_shared_memory(context))),
               "cudaFuncSetAttribute");
  }
}

/// Enqueues a kernel, does not synchronize, and returns the code of the launch.
template <class... Parameters>
[[nodiscard]] cudaError_t try_launch_kernel(device_context const& context,
                                            launch_config const& config,
                                            void (*kernel)(Parameters...),
                                            std::type_identity_t<Parameters> const&... arguments) {
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(config.blocks);
  launch.blockDim = dim3(config.threads);
  launch.dynamicSmemBytes = config.shared_bytes;
  launch.stream = context.stream;
  launch.attrs = &attribute;
  if (config.cooperative) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    launch.numAttrs = 1;
  }
  void* values[] = {const_cast<void*>(static_cast<void const*>(&arguments))..., nullptr};
  current_device const device(context);
  device.check();
  auto const* const entry = reinterpret_cast<void const*>(kernel);
  allow_shared_memory(context, entry, config.shared_bytes);
  return cudaLaunchKernelExC(&launch, entry, values);
}

inline void check_launch(cudaError_t code) {
  check_cuda(code, "kernel launch", " (this launch, or earlier work on the device)");
}

/// Enqueues a kernel and does not synchronize. Only the return code of the launch is checked, so
/// that an error of another library is neither reported nor cleared. CUDA may still return an error
/// of earlier work on the device.
template <class... Parameters>
void launch_kernel(device_context const& context, launch_config const& config,
                   void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters> const&... arguments) {
  check_launch(try_launch_kernel(context, config, kernel, arguments...));
}

}}}  // namespace plimsoll::detail
