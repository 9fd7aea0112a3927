// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device side of `memory_of`, and the check behind every CUDA call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

inline void check_cuda(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw cuda_error(static_cast<int>(code), text(call, ": ", cudaGetErrorString(code)));
  }
}

template <>
struct memory_of<device_context> {
  static void* allocate(device_context const& where, std::size_t bytes, std::size_t alignment) {
    if (!where.memory.empty()) {
      return where.memory.allocate(where.stream, bytes, alignment);
    }
    void* pointer = nullptr;
    check_cuda(cudaMallocAsync(&pointer, bytes, where.stream), "cudaMallocAsync");
    return pointer;
  }
  // Runs in destructors: a failure here shows at the stream's next checked call.
  static void deallocate(device_context const& where, void* pointer, std::size_t bytes,
                         std::size_t alignment) noexcept {
    if (!where.memory.empty()) {
      where.memory.deallocate(where.stream, pointer, bytes, alignment);
    } else {
      static_cast<void>(cudaFreeAsync(pointer, where.stream));
    }
  }
  // Pageable memory may be reused as soon as this returns.
  static void from_host(device_context const& where, void const* source, void* destination,
                        std::size_t bytes) {
    if (bytes > 0) {
      check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, where.stream),
                 "cudaMemcpyAsync");
    }
  }
  static void to_host(device_context const& where, void const* source, void* destination,
                      std::size_t bytes) {
    if (bytes > 0) {
      check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, where.stream),
                 "cudaMemcpyAsync");
    }
    check_cuda(cudaStreamSynchronize(where.stream), "cudaStreamSynchronize");
  }
  static void rows_to_host(device_context const& where, void const* source, std::size_t pitch,
                           void* destination, std::size_t bytes, std::size_t rows) {
    check_cuda(cudaMemcpy2DAsync(destination, bytes, source, pitch, bytes, rows,
                                 cudaMemcpyDeviceToHost, where.stream),
               "cudaMemcpy2DAsync");
    check_cuda(cudaStreamSynchronize(where.stream), "cudaStreamSynchronize");
  }
  static void zero(device_context const& where, void* destination, std::size_t bytes) {
    if (bytes > 0) {
      check_cuda(cudaMemsetAsync(destination, 0, bytes, where.stream), "cudaMemsetAsync");
    }
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail
