// SPDX-License-Identifier: Apache-2.0
#include "token_drop.cases.hpp"

#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("token_drop: applying allocates nothing") {
  drop_case const c = make_drop_case(21, 40, 8, 2, 2);
  drop_in<plimsoll::seq_policy> const in(c);
  drop_result const expected = in.run_parts();
  // Lists and scratch memory of the mask; what was routed, and scratch memory for that.
  check_temporaries(2 + 3, [&](auto& resource) {
    plimsoll::token_drop const drop(plimsoll::seq(resource), in.options());
    auto const before = resource.allocations();
    check_same(in.run(drop, in.logits()), expected);
    CHECK(resource.allocations() == before);
  });
}

}  // namespace plimsoll_test
