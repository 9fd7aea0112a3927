// SPDX-License-Identifier: Apache-2.0
// Must come first; the header says why.
#include "support/device_forms.hpp"

#include "support/temporaries.hpp"
#include "token_drop.cases.hpp"

namespace plimsoll_test {

TEST_CASE("token_drop: applying allocates nothing") {
  drop_case const c = make_drop_case(21, 40, 8, 2, 2);
  drop_in<plimsoll::seq_policy> const in(c);
  drop_result const expected = in.run_parts();
  // Lists and scratch memory of the mask; ids, weights and scratch memory of routing.
  check_temporaries(2 + 3, [&](auto& resource) {
    plimsoll::token_drop drop(plimsoll::seq(resource), in.options());
    auto const before = resource.allocations();
    check_same(in.run(drop, in.logits()), expected);
    CHECK(resource.allocations() == before);
  });
}

TEST_CASE("token_drop: pairs are counted while top_k selects them, the same bits in every team") {
  // Three tiles of 512 pairs; local experts, some of them chosen already, and a -1.
  constexpr index_t tokens = 350;
  constexpr index_t experts = 12;
  constexpr index_t k = 2;
  constexpr index_t width = 4;
  drop_case const c = make_drop_case(51, tokens, experts, k, 0);
  ints const local{3, -1};
  ints ids(static_cast<std::size_t>(tokens * width), -7);
  floats weights(ids.size(), -7);
  ints columns(ids.size(), -7);
  std::vector<std::uint8_t> kept(ids.size(), 7);
  index_t const all = plimsoll::detail::pair_lists::columns_of(experts, 2);
  ints counts(static_cast<std::size_t>(3 * all), 0);
  ints groups(static_cast<std::size_t>(all), 0);

  plimsoll::detail::pair_lists lists{};
  lists.experts = experts;
  lists.width = width;
  lists.choices = k;
  lists.tiles = {tokens * width, all, true, groups.data(), counts.data()};
  lists.columns = columns.data();
  lists.kept = kept.data();
  using body_type = plimsoll::detail::top_k_body<float, plimsoll::detail::count_chosen_body>;
  body_type const body{{c.logits.data(), tokens, experts},
                       {.k = k, .local_experts = {local.data(), 1, 2}},
                       {ids.data(), tokens, width},
                       {weights.data(), tokens, width},
                       {lists}};
  check_all_teams(body, body.problems(), ids, weights, columns, kept, counts, groups);

  ints expected_counts(counts.size(), 0);
  ints expected_groups(groups.size(), 0);
  for (std::size_t pair = 0; pair < ids.size(); ++pair) {
    bool const is_choice = pair % width < k;
    auto const column =
        static_cast<std::size_t>(ids[pair] < 0 ? 2 * experts : 2 * ids[pair] + (is_choice ? 0 : 1));
    ++expected_counts[pair / 512 * static_cast<std::size_t>(all) + column];
    ++expected_groups[column];
  }
  CHECK(counts == expected_counts);
  CHECK(groups == expected_groups);
  CHECK(groups[2 * experts] > tokens);  // some tokens choose expert 3
  CHECK(groups[7] > 0);                 // it is offered to the others
}

/// Counts the launches of a batch as on a device, which must leave the object ready for the next.
inline int launches_of(drop_case const& c) {
  drop_in<plimsoll::seq_policy> const in(c);
  plimsoll::token_drop drop(device_forms{}, in.options());
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
  // With four pairs per token, 128 tokens are a tile and 2048 a group.
  for (index_t const tokens : {1, 127, 128, 129, 2047, 2048, 2049, 4500}) {
    CAPTURE(tokens);
    CHECK(launches_of(make_drop_case(41, tokens, 16, 4, 0)) == 4);
  }
  CHECK(launches_of(make_drop_case(42, 0, 16, 4, 0)) == 3);  // no tokens
  // Local experts, and rows that do not divide a tile; more experts than are counted by chunk.
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
  c.options.limit.drop_by = plimsoll::drop_policy::random;
  CHECK(launches_of(c) == 6);
  c.options.limit.expert_drop = 0;
  c.options.limit.order = plimsoll::candidate_order::together;
  CHECK(launches_of(c) == 5);
}

TEST_CASE("token_drop: the launches of a device, with more groups than a tile sums") {
  // 65536 tokens of eight pairs are 64 groups.
  CHECK(launches_of(make_drop_case(47, 65536, 8, 8, 0)) == 4);
  CHECK(launches_of(make_drop_case(48, 65537, 8, 8, 0)) == 5);
}

}  // namespace plimsoll_test
