// SPDX-License-Identifier: Apache-2.0
// online_balancer [METRICS]: the loop on the host; writes metrics to the file METRICS.
#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>

#include "balancer.hpp"

int main(int argc, char** argv) {
  try {
    online_balancer::engine engine(plimsoll::seq);
    online_balancer::run_steps(
        engine, [&] { engine.enqueue(); }, argc > 1 ? argv[1] : nullptr);
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "online_balancer: %s\n", e.what());
    return 1;
  }
}
