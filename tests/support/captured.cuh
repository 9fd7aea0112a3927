// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <plimsoll/detail/device/memory.cuh>

#include "policies.hpp"

namespace plimsoll_test {

/// CUDA graph of the work that `enqueue` enqueues on the tests' stream, whose device is current
/// meanwhile. `enqueue` must not allocate.
class captured {
 public:
  template <class F>
  explicit captured(F const& enqueue) {
    using plimsoll::detail::check_cuda;
    long const prepared = device_memory().allocations();
    plimsoll::detail::current_device const current(
        plimsoll::detail::resolve(plimsoll::gpu(device_stream())));
    current.check();
    check_cuda(cudaStreamBeginCapture(device_stream(), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {  // the next test needs the stream
      static_cast<void>(cudaStreamEndCapture(device_stream(), &graph));
      throw;
    }
    check_cuda(cudaStreamEndCapture(device_stream(), &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    CHECK(device_memory().allocations() == prepared);
  }
  captured(captured const&) = delete;
  captured& operator=(captured const&) = delete;
  ~captured() { static_cast<void>(cudaGraphExecDestroy(graph_)); }

  void replay() const {
    plimsoll::detail::check_cuda(cudaGraphLaunch(graph_, device_stream()), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace plimsoll_test
