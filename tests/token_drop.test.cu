// SPDX-License-Identifier: Apache-2.0
// Tests of token_drop under the policies of a CUDA compiler and in CUDA graphs.
#include "token_drop.cases.hpp"

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("token_drop: applying can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  drop_case c = make_drop_case(31, 200, 16, 2, 4);
  drop_in<P> const in(c);
  plimsoll::token_drop drop(make_policy<P>(), in.options());
  array_in<float, P> logits(std::ssize(c.logits));
  array_in<std::int32_t, P> homes(c.tokens);
  drop_outputs<P> out(c);

  captured const graph([&] {
    drop.apply(logits.view2(c.tokens, c.experts()), {.homes = homes.view1()}, out.views());
  });

  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    drop_case const now = make_drop_case(32 + turn, c.tokens, c.experts(), 2, 4);
    logits.assign(now.logits);
    homes.assign(now.homes);
    graph.replay();
    drop_result const expected = parts_of<P>(now);
    check_same(out.values(expected.routed), expected);
  }
}

}  // namespace plimsoll_test
