// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory operations of device contexts (`memory_of`).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/device/runtime.cuh>
#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <>
struct memory_of<device_context> {
  static void* allocate(device_context const& where, std::size_t bytes, std::size_t alignment) {
    current_device const device(where);
    device.check();
    if (!where.memory.empty()) {
      return where.memory.allocate(where.stream, bytes, alignment);
    }
    void* pointer = nullptr;
    check_cuda(cudaMallocAsync(&pointer, bytes, where.stream), "cudaMallocAsync");
    return pointer;
  }
  // Runs in destructors: the next checked call on the stream reports a failure.
  static void deallocate(device_context const& where, void* pointer, std::size_t bytes,
                         std::size_t alignment) noexcept {
    current_device const device(where);
    if (!where.memory.empty()) {
      where.memory.deallocate(where.stream, pointer, bytes, alignment);
    } else {
      static_cast<void>(cudaFreeAsync(pointer, where.stream));
    }
  }
  // CUDA does not guarantee that pageable memory has been read when cudaMemcpyAsync returns.
  static void from_host(device_context const& where, void const* source, void* destination,
                        std::size_t bytes) {
    if (bytes > 0) {
      current_device const device(where);
      device.check();
      check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, where.stream),
                 "cudaMemcpyAsync");
      synchronize(where);
    }
  }
  static void to_host(device_context const& where, void const* source, void* destination,
                      std::size_t bytes) {
    current_device const device(where);
    device.check();
    if (bytes > 0) {
      check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, where.stream),
                 "cudaMemcpyAsync");
    }
    synchronize(where);
  }
  static void rows_to_host(device_context const& where, void const* source, std::size_t pitch,
                           void* destination, std::size_t bytes, std::size_t rows) {
    current_device const device(where);
    device.check();
    check_cuda(cudaMemcpy2DAsync(destination, bytes, source, pitch, bytes, rows,
                                 cudaMemcpyDeviceToHost, where.stream),
               "cudaMemcpy2DAsync");
    synchronize(where);
  }
  /// Copies rows between any two memories (cudaMemcpyDefault infers them from the addresses), since
  /// outputs may be in managed or page-locked memory.
  static void copy_rows(device_context const& where, void const* source, std::size_t source_pitch,
                        void* destination, std::size_t destination_pitch, std::size_t bytes,
                        std::size_t rows) {
    check_cuda(cudaMemcpy2DAsync(destination, destination_pitch, source, source_pitch, bytes, rows,
                                 cudaMemcpyDefault, where.stream),
               "cudaMemcpy2DAsync");
  }
  static void zero(device_context const& where, void* destination, std::size_t bytes) {
    if (bytes > 0) {
      current_device const device(where);
      device.check();
      check_cuda(cudaMemsetAsync(destination, 0, bytes, where.stream), "cudaMemsetAsync");
    }
  }
  static void synchronize(device_context const& where) {
    current_device const device(where);
    device.check();
    check_cuda(cudaStreamSynchronize(where.stream), "cudaStreamSynchronize");
  }
};

}}}  // namespace plimsoll::detail
