// SPDX-License-Identifier: Apache-2.0
// Tests of waterfill under the policies of a CUDA compiler and in CUDA graphs.
#include "waterfill.cases.hpp"

#include <memory>
#include <set>

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("waterfill: a step can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  for (bool const literal : {false, true}) {
    CAPTURE(literal);
    fill_case c = make_placed_case();
    c.options.rank = 1;
    c.options.line.candidates = candidate_ranks::all;
    if (literal) {
      c.options.line = plimsoll::literal_waterfill(c.options.line);
    }
    auto const next = [&](std::uint64_t turn) {
      generator random(turn);
      c.ids = make_ids(random, 600, c.k(), c.slots);
      c.others.clear();
      for (index_t i = 0; i < 2 * c.ranks; ++i) {
        c.others.push_back(random.between(0, 900));
      }
    };
    next(0);
    fill_in<P> in(c);
    plimsoll::waterfill fill(make_policy<P>(), in.placement(), c.options);

    captured const graph([&] { in.step(fill); });

    for (std::uint64_t turn = 1; turn < 4; ++turn) {
      CAPTURE(turn);
      next(turn);
      in.assign(c);
      graph.replay();
      CHECK(difference(in.result(fill), fill_of<P>(c)) == "");
    }
  }
}

PLIMSOLL_TEST_CASE("waterfill: the same rows in one launch of many blocks", P, gpu_resource_kind) {
  for (bool const literal : {false, true}) {
    CAPTURE(literal);
    fill_case c = make_placed_case();
    c.options.rank = 1;
    c.options.line.candidates = candidate_ranks::all;
    if (literal) {
      c.options.line = plimsoll::literal_waterfill(c.options.line);
    }
    constexpr index_t tokens = 40 * 512;  // 40 tiles
    c.options.line.max_tokens = tokens;
    generator random(5);
    c.ids = make_ids(random, tokens, c.k(), c.slots);
    c.others.assign(static_cast<std::size_t>(2 * c.ranks), tokens);
    fill_result const expected = fill_of<thrust_host>(c);
    std::set<std::int32_t> const ranks(expected.ranks.begin(), expected.ranks.end());
    CHECK(ranks.size() > 1);
    CHECK(difference(fill_of<P>(c), expected) == "");
  }
}

PLIMSOLL_TEST_CASE("waterfill: a step captured in a CUDA graph before an update uses it", P,
                   gpu_resource_kind) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) {
      return [graph = std::make_shared<captured>(step)] { graph->replay(); };
    });
  }
}

}  // namespace plimsoll_test
