// SPDX-License-Identifier: Apache-2.0
// Device arrays and streams for the benchmarks.
#pragma once

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>
#include <plimsoll/detail/device/memory.cuh>

#include <cstddef>
#include <string>
#include <vector>

namespace plimsoll_bench {

/// Without a GPU a benchmark reports an error, never a time.
inline bool gpu_missing(benchmark::State& state) {
  int count = 0;
  cudaError_t const code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) {
    return false;
  }
  state.SkipWithError(code != cudaSuccess ? cudaGetErrorString(code) : "no GPU");
  return true;
}

class stream {
 public:
  stream() { plimsoll::detail::check_cuda(cudaStreamCreate(&stream_), "cudaStreamCreate"); }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class T>
class device_array {
 public:
  explicit device_array(std::size_t size) {
    plimsoll::detail::check_cuda(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  explicit device_array(std::vector<T> const& values) : device_array(values.size()) {
    plimsoll::detail::check_cuda(
        cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }
  device_array(device_array const&) = delete;
  device_array& operator=(device_array const&) = delete;
  ~device_array() { static_cast<void>(cudaFree(data_)); }
  [[nodiscard]] T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

}  // namespace plimsoll_bench
