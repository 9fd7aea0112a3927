// SPDX-License-Identifier: Apache-2.0
// Tests of minmax_lp under the policies of a CUDA compiler and in CUDA graphs.
#include "minmax_lp.cases.hpp"

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("minmax_lp: graphs captured in a CUDA graph before an update use it", P,
                   gpu_resource_kind) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) {
      return [graph = std::make_shared<captured>(step)] { graph->replay(); };
    });
  }
}

}  // namespace plimsoll_test
