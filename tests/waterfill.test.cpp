// SPDX-License-Identifier: Apache-2.0
// Tests of waterfill under the host's policies; temporaries.
#include "waterfill.cases.hpp"

#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("waterfill: ids of 64 bits") {
  using P = plimsoll::seq_policy;
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    CAPTURE(seed);
    fill_case const c = make_literal_case(seed, 2, 9);
    CHECK(difference(fill_of<P, std::int64_t>(c), fill_of<P>(c)) == "");
  }
}

TEST_CASE("waterfill: literal_waterfill keeps the other options") {
  waterline_options given;
  given.top_k = 3;
  given.counts = plimsoll::counted_ranks::own;
  given.min_tokens = 9;
  given.weight = 2;
  given.candidates = candidate_ranks::all;
  waterline_options const line = plimsoll::literal_waterfill(given);
  CHECK(line.arithmetic == plimsoll::fill_arithmetic::sglang);
  CHECK(line.method == fill_method::sampled);
  CHECK(line.candidates == candidate_ranks::visited);
  CHECK(line.counts == plimsoll::counted_ranks::own);
  CHECK(line.top_k == 3);
  CHECK(line.min_tokens == 9);
  CHECK(line.weight == 2);
}

TEST_CASE("waterfill: counting and filling allocate nothing") {
  using P = plimsoll::seq_policy;
  fill_case c = make_small_case();
  c.options.line.candidates = candidate_ranks::all;
  fill_result const expected = by_hand_of<P>(c);
  // Tables of slots and ranks, plans, scratch memory, loads.
  check_temporaries(4, [&](auto& resource) {
    fill_in<P> in(c);
    plimsoll::waterfill fill(plimsoll::seq(resource), in.placement(), c.options);
    auto const before = resource.allocations();
    in.step(fill);
    CHECK(resource.allocations() == before);
    CHECK(difference(in.result(fill), expected) == "");
  });
}

}  // namespace plimsoll_test
