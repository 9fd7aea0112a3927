// SPDX-License-Identifier: Apache-2.0
// cuda_graph_step_gpu: captures the step once as a CUDA graph and replays it for every step.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>
#include <stdexcept>
#include <string>

#include "step.hpp"

namespace {

void check(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

bool run_on(cudaStream_t stream) {
  cuda_graph_step_example::layer layer(plimsoll::gpu(stream));

  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  layer.enqueue();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t step = nullptr;
  check(cudaGraphInstantiate(&step, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");

  bool const right = cuda_graph_step_example::run_steps(
      layer, [&] { check(cudaGraphLaunch(step, stream), "cudaGraphLaunch"); });
  check(cudaGraphExecDestroy(step), "cudaGraphExecDestroy");
  return right;
}

}  // namespace

int main() {
  try {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "no GPU");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    bool const right = run_on(stream);
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return right ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "cuda_graph_step_gpu: %s\n", e.what());
    return 1;
  }
}
