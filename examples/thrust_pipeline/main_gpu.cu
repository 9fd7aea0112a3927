// SPDX-License-Identifier: Apache-2.0
// thrust_pipeline_gpu: like thrust_pipeline, but on a CUDA stream, with temporaries from its memory
// pool. With par_nosync, Thrust returns before the device has finished, as Plimsoll does.
#include <cuda_runtime_api.h>
#include <thrust/system/cuda/execution_policy.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>
#include <stdexcept>
#include <string>

#include "pipeline.hpp"

namespace {

void check(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

/// Allocator for Thrust with stream-ordered memory.
struct stream_allocator {
  using value_type = char;

  char* allocate(std::ptrdiff_t bytes) {
    void* memory = nullptr;
    check(cudaMallocAsync(&memory, static_cast<std::size_t>(bytes), stream), "cudaMallocAsync");
    return static_cast<char*>(memory);
  }
  void deallocate(char* memory, std::size_t) { static_cast<void>(cudaFreeAsync(memory, stream)); }

  cudaStream_t stream;
};

}  // namespace

int main() {
  try {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "no GPU");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_allocator allocator{stream};
    bool const good = thrust_pipeline_example::run(thrust::cuda::par_nosync(allocator).on(stream),
                                                   plimsoll::gpu(stream));
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return good ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "thrust_pipeline_gpu: %s\n", e.what());
    return 1;
  }
}
