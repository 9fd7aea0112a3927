// SPDX-License-Identifier: Apache-2.0
// one_step: the step on the host, whose output that of one_step_gpu equals.
#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>

#include "step.hpp"

int main() {
  try {
    return one_step::run(plimsoll::seq, [](auto step) { return step; }) ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "one_step: %s\n", e.what());
    return 1;
  }
}
