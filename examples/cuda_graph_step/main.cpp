// SPDX-License-Identifier: Apache-2.0
// cuda_graph_step: the step on the host, whose output that of cuda_graph_step_gpu equals.
#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>

#include "step.hpp"

int main() {
  try {
    cuda_graph_step_example::layer layer(plimsoll::seq);
    return cuda_graph_step_example::run_steps(layer, [&] { layer.enqueue(); }) ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "cuda_graph_step: %s\n", e.what());
    return 1;
  }
}
