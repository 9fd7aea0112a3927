// SPDX-License-Identifier: Apache-2.0
#include "lplb.cases.hpp"

#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("lplb: planning and dispatching allocate nothing") {
  using c = lplb_case<plimsoll::seq_policy>;
  c const in;
  ints slots(static_cast<std::size_t>(c::tokens * c::k));
  std::vector<dispatch_counters> counters(1);
  auto const run = [&](auto& resource) {
    plimsoll::lplb const planner(plimsoll::seq(resource), in.placement, c::options());
    auto const before = resource.allocations();
    planner.plan(plimsoll::matrix_ref<std::int32_t const>(in.counts.data(), c::layers, c::experts));
    planner.dispatch(1, plimsoll::matrix_ref<std::int32_t const>(in.ids[1].data(), c::tokens, c::k),
                     plimsoll::matrix_ref<std::int32_t>(slots.data(), c::tokens, c::k), counters);
    CHECK(resource.allocations() == before);
  };
  // Four of minmax_lp; what is planned, scratch, and what dispatching keeps.
  check_temporaries(4 + 4 + 2, run);
}

}  // namespace plimsoll_test
