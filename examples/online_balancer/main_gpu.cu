// SPDX-License-Identifier: Apache-2.0
// online_balancer_gpu [METRICS]: captures a step once as a CUDA graph, and replays it through all
// migrations, the loss of a rank and its return.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>
#include <stdexcept>
#include <string>

#include "balancer.hpp"

namespace {

void check(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

void run_on(cudaStream_t stream, char const* path) {
  online_balancer::engine engine(plimsoll::gpu(stream));

  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  engine.enqueue();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t step = nullptr;
  check(cudaGraphInstantiate(&step, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");

  online_balancer::run_steps(
      engine, [&] { check(cudaGraphLaunch(step, stream), "cudaGraphLaunch"); }, path);
  check(cudaGraphExecDestroy(step), "cudaGraphExecDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "no GPU");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    run_on(stream, argc > 1 ? argv[1] : nullptr);
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "online_balancer_gpu: %s\n", e.what());
    return 1;
  }
}
