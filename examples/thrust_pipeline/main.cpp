// SPDX-License-Identifier: Apache-2.0
// thrust_pipeline: Plimsoll plans and splits loads in Thrust's vectors, on OpenMP threads.
#include <thrust/system/omp/execution_policy.h>

#include <cstdio>
#include <exception>

#include "pipeline.hpp"

int main() {
  try {
    return thrust_pipeline_example::run(thrust::omp::par, thrust::omp::par) ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "thrust_pipeline: %s\n", e.what());
    return 1;
  }
}
