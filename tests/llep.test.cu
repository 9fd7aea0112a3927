// SPDX-License-Identifier: Apache-2.0
// Tests of llep under the policies of a CUDA compiler and in CUDA graphs.
#include "llep.cases.hpp"

#include <memory>

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("llep: a step can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  llep_case c = make_even_case(30);
  llep_group<P> group(c, {});
  auto ranks = group.make_ranks();

  captured const graph([&] { group.step(ranks); });

  // With loads that spill tokens, and with loads that do not.
  for (index_t const hot : {30, 1, 60, 9}) {
    CAPTURE(hot);
    c.ids = make_even_case(hot).ids;
    group.assign(c);
    graph.replay();
    auto const got = group.results(ranks);
    auto const expected = step_of<P>(c);
    CHECK((got[0].report.spills != 0) == (hot > 1));
    for (std::size_t r = 0; r < got.size(); ++r) {
      CHECK(difference(got[r], expected[r]) == "");
    }
  }
}

PLIMSOLL_TEST_CASE("llep: a step captured in a CUDA graph before an update uses it", P,
                   gpu_resource_kind) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) {
      return [graph = std::make_shared<captured>(step)] { graph->replay(); };
    });
  }
}

}  // namespace plimsoll_test
