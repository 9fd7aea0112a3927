// SPDX-License-Identifier: Apache-2.0
// capacity_mask_gpu: capacity_mask on a CUDA stream. The mask and the kernels around it are
// captured once as a CUDA graph and replayed for every step: Plimsoll neither allocates nor
// synchronizes in between, and the host needs no value of a batch.
#include <cuda_runtime_api.h>

#include <plimsoll/execution.hpp>
#include <plimsoll/systems/token_drop.hpp>
#include <stdexcept>
#include <string>

#include "arrays.hpp"
#include "command_line.hpp"
#include "layer.hpp"
#include "summary.hpp"

namespace {

namespace example = capacity_mask_example;

void check(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

__global__ void permute(example::step_ref step) { example::permute(step, blockIdx.x, threadIdx.x); }
__global__ void run_experts(example::step_ref step) {
  example::run_expert(step, blockIdx.x, threadIdx.x);
}
__global__ void combine(example::step_ref step) { example::combine(step, blockIdx.x, threadIdx.x); }

/// CUDA graph of the work that `work` enqueues, to be replayed later.
class captured {
 public:
  template <class Work>
  captured(cudaStream_t stream, Work work) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    work();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  captured(captured const&) = delete;
  captured& operator=(captured const&) = delete;
  ~captured() { static_cast<void>(cudaGraphExecDestroy(graph_)); }

  void replay(cudaStream_t stream) const {
    check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

bool run_on(cudaStream_t stream, example::options const& o) {
  auto const policy = plimsoll::gpu(stream);
  example::step_arrays arrays(policy, o);
  example::step_ref const step = arrays.view();

  // Once; takes all memory.
  plimsoll::token_drop drop(policy, example::drop_options(o, arrays.local_experts()));
  captured const graph(stream, [&] {
    auto const tokens = static_cast<unsigned>(o.tokens);
    auto const experts = static_cast<unsigned>(o.experts);
    drop.apply(step.logits, step.batch, step.kept);
    permute<<<tokens, example::hidden, 0, stream>>>(step);
    run_experts<<<experts, example::hidden, 0, stream>>>(step);
    combine<<<tokens, example::hidden, 0, stream>>>(step);
    check(cudaGetLastError(), "kernels");
  });
  // Every step.
  return example::run_steps(o, policy, drop, arrays, [&] { graph.replay(stream); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run("capacity_mask_gpu", argc, argv, [](example::options const& o) {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "no GPU");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    bool const good = run_on(stream, o);
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return good;
  });
}
