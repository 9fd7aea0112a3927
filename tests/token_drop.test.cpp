// SPDX-License-Identifier: Apache-2.0
// First, as it says.
#include "support/device_forms.hpp"

#include "support/temporaries.hpp"
#include "token_drop.cases.hpp"

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

/// The launches of a batch as on a device, which must leave the object ready for the next batch.
inline int launches_of(drop_case const& c) {
  drop_in<plimsoll::seq_policy> const in(c);
  plimsoll::token_drop const drop(device_forms{}, in.options());
  drop_result const expected = in.run_parts();
  drop_case half = c;
  half.tokens /= 2;
  half.logits.resize(static_cast<std::size_t>(half.tokens * c.experts()));
  if (!half.homes.empty()) {
    half.homes.resize(static_cast<std::size_t>(half.tokens));
  }
  if (!half.priorities.empty()) {
    half.priorities.resize(static_cast<std::size_t>(half.tokens));
  }
  drop_in<plimsoll::seq_policy> const first(half);
  check_same(first.run(drop, first.logits()), first.run_parts());
  device_forms_context::launches = 0;
  check_same(in.run(drop, in.logits()), expected);
  return device_forms_context::launches;
}

TEST_CASE("token_drop: the launches of a device, at the edges of tiles and of groups") {
  // Four pairs a token: 128 tokens are a tile, 2048 a group.
  for (index_t const tokens : {1, 127, 128, 129, 2047, 2048, 2049, 4500}) {
    CAPTURE(tokens);
    CHECK(launches_of(make_drop_case(41, tokens, 16, 4, 0)) == 4);
  }
  CHECK(launches_of(make_drop_case(42, 0, 16, 4, 0)) == 3);  // no token to route
  // Offered experts, a row that is no multiple of a tile; more experts than are counted by chunk.
  CHECK(launches_of(make_drop_case(43, 1500, 12, 3, 4)) == 4);
  CHECK(launches_of(make_drop_case(44, 200, 700, 8, 0)) == 4);
  CHECK(launches_of(make_drop_case(45, 130, 330, 5, 3)) == 4);
}

TEST_CASE("token_drop: the launches of a device, with options that need more") {
  drop_case c = make_drop_case(46, 700, 24, 3, 4);
  c.options.limit.factor = 0.75;
  c.options.limit.normalize = plimsoll::normalization::to_one;
  for (std::int32_t t = 0; t < 700; ++t) {
    c.priorities.push_back(t % 4 - 1);
  }
  c.options.limit.classes = 3;
  CHECK(launches_of(c) == 4);
  c.options.limit.expert_drop = 0.25;
  CHECK(launches_of(c) == 5);
  c.options.limit.max_selected = 4;
  CHECK(launches_of(c) == 6);
  c.options.limit.ranks = 5;
  c.options.limit.keep = plimsoll::keeping::random;
  CHECK(launches_of(c) == 6);
  c.options.limit.expert_drop = 0;
  c.options.limit.topk_first = false;
  CHECK(launches_of(c) == 5);
}

TEST_CASE("token_drop: the launches of a device, more groups than a tile adds up") {
  // 65536 tokens of eight pairs are 64 groups.
  CHECK(launches_of(make_drop_case(47, 65536, 8, 8, 0)) == 4);
  CHECK(launches_of(make_drop_case(48, 65537, 8, 8, 0)) == 5);
}

}  // namespace plimsoll_test
