// SPDX-License-Identifier: Apache-2.0
// Tests of llep under the host's policies; temporaries.
#include "llep.cases.hpp"

#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("llep: ids of 64 bits") {
  using P = plimsoll::seq_policy;
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    CAPTURE(seed);
    llep_case const c = make_llep_case(seed);
    auto const got = step_of<P, std::int64_t>(c);
    auto const expected = step_of<P>(c);
    for (std::size_t r = 0; r < got.size(); ++r) {
      CHECK(difference(got[r], expected[r]) == "");
    }
  }
}

TEST_CASE("llep: a step allocates nothing") {
  using P = plimsoll::seq_policy;
  llep_case c = make_even_case(30);
  c.options.on.ranks = 1;
  c.ids.resize(1);
  llep_group<P> group(c, {});
  ints destinations(60);
  ints rows(60);
  ints arranged(60);
  std::vector<plimsoll::spill_counters> counters(1);
  std::vector<plimsoll::spill_segment> groups(8);
  // The four allocations of least_loaded, and the counts.
  check_temporaries(4 + 1, [&](auto& resource) {
    plimsoll::llep rank(plimsoll::seq(resource), {0, group.options()});
    auto const before = resource.allocations();
    rank.count(group.ids(0));
    rank.plan();
    rank.route(group.ids(0), plimsoll::matrix_ref<std::int32_t>(destinations.data(), 60, 1),
               plimsoll::matrix_ref<std::int32_t>(rows.data(), 60, 1), counters);
    rank.arrange(arranged, groups);
    CHECK(resource.allocations() == before);
  });
  CHECK(counters[0].routed == 60);
}

}  // namespace plimsoll_test
