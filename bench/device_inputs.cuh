// SPDX-License-Identifier: Apache-2.0
// Device arrays, streams and graphs for the benchmarks. Google Benchmark calls the function of a
// goal once for each of its 200 runs, so goals keep their inputs and objects in static variables.
#pragma once

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>
#include <plimsoll/detail/device/memory.cuh>

#include <cstddef>
#include <string>
#include <vector>

namespace plimsoll_bench {

/// Returns true if there is no GPU, after it made the benchmark report an error instead of a time.
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

/// CUDA graph of the work that `enqueue` enqueues, captured once and replayed, as an engine does in
/// every step. Times are measured on the device, without the latency of the host's calls.
class replayed {
 public:
  template <class F>
  replayed(cudaStream_t stream, F const& enqueue) : stream_(stream) {
    using plimsoll::detail::check_cuda;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "begin of capture");
    enqueue();
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "end of capture");
    check_cuda(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
    run(1);  // the first replay uploads the graph
  }
  replayed(replayed const&) = delete;
  replayed& operator=(replayed const&) = delete;
  ~replayed() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaGraphExecDestroy(graph_));
  }

  /// Returns the seconds of one replay: the mean of `replays` consecutive replays between two
  /// events, which themselves take one or two microseconds.
  double run(int replays = 20) {
    using plimsoll::detail::check_cuda;
    check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    for (int i = 0; i < replays; ++i) {
      check_cuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
    }
    check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds) / replays;
  }

  /// Launches one replay on another stream.
  void launch(cudaStream_t other) const {
    plimsoll::detail::check_cuda(cudaGraphLaunch(graph_, other), "cudaGraphLaunch");
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace plimsoll_bench
