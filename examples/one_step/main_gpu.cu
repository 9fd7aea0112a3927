// SPDX-License-Identifier: Apache-2.0
// one_step_gpu: captures the step once as a CUDA graph and replays it for every step.
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
  cudaGraphExec_t graph = nullptr;
  // [capture]
  auto const record = [&](auto const& step) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    step();
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(captured), "cudaGraphDestroy");
    return [&] { check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch"); };
  };
  bool const right = one_step::run(plimsoll::gpu(stream), record);
  // [end]
  check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
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
    std::fprintf(stderr, "one_step_gpu: %s\n", e.what());
    return 1;
  }
}
