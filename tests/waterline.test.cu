// SPDX-License-Identifier: Apache-2.0
// Tests of waterline under the policies of a CUDA compiler and in CUDA graphs.
#include "waterline.cases.hpp"

#include <memory>

#include "support/captured.cuh"

namespace plimsoll_test {

template <class P>
void check_replays(candidate_ranks candidates, fill_method rule) {
  line_case c = large_line(41, 6, 2, 3, 900, 4);
  constexpr index_t source = 2;
  constexpr index_t tokens = 700;
  index_t const k = c.options.top_k;
  c.options.max_tokens = 900;
  c.options.candidates = candidates;
  c.options.method = rule;
  line_in<P> const in(c);
  auto line = in.make();
  array_in<std::int32_t, P> ids(tokens * k);
  array_in<std::int64_t, P> loads(2 * c.ranks());
  array_in<std::int32_t, P> out_ids(tokens * (k + 1));
  array_in<std::int32_t, P> out_ranks(tokens);

  captured const graph([&] {
    line.count(ids.view2(tokens, k), source, loads.view2(2, c.ranks()));
    line.plan(loads.view2(2, c.ranks()), source);
    line.fill(ids.view2(tokens, k), source, {}, out_ids.view2(tokens, k + 1),
              {.ranks = out_ranks.view1()});
  });

  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    // Only one source has tokens.
    c.ids.assign(at(c.ranks()), {});
    draws draw(turn);
    for (index_t i = 0; i < tokens * k; ++i) {
      c.ids[source].push_back(draw.among(-1, draw.one_in(2) ? 17 : 4));
    }
    ids.assign(ints(c.ids[source].begin(), c.ids[source].end()));
    graph.replay();
    ints const owners = c.owners();
    outcome const expected = pour_all<thrust_host>(c);
    CHECK(loads.values() == counted(c, source, owners));
    CHECK(out_ranks.values() == expected.of[source].ranks);
    ints const written = out_ids.values();
    CHECK(longs(written.begin(), written.end()) == expected.of[source].ids);
    auto const report = plimsoll::read(make_policy<P>(), line.report());
    CHECK(numbers_in(report) == numbers_in(expected.of[source].report));
    CHECK(report.moved > 0);
  }
}

PLIMSOLL_TEST_CASE("waterline: all calls can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  check_replays<P>(candidate_ranks::all, fill_method::surplus);
  check_replays<P>(candidate_ranks::visited, fill_method::surplus);
  check_replays<P>(candidate_ranks::visited, fill_method::sampled);
}

PLIMSOLL_TEST_CASE("waterline: the same rows in one launch and in a launch per phase", P,
                   gpu_resource_kind) {
  // Tiles times columns: 16380, and 16445, which is too many for one launch.
  for (index_t const tokens : {252 * 512, 252 * 512 + 1}) {
    CAPTURE(tokens);
    line_case c = large_line(17, 64, 4, 1, 0, 3);
    constexpr index_t source = 5;
    c.options.max_tokens = tokens;
    draws draw(23);
    for (index_t t = 0; t < tokens; ++t) {
      c.ids[source].push_back(draw.one_in(2) ? draw.among(-1, 191) : 15);
    }
    outcome const expected = pour_all<thrust_host>(c);
    CHECK(expected.of[source].report.moved > 0);
    outcome const got = pour_all<P>(c);
    CHECK(difference(got, expected) == "");
    CHECK(difference(pour_all<P, std::int64_t>(c), expected) == "");
  }
}

PLIMSOLL_TEST_CASE("waterline: a step captured in a CUDA graph before an update uses it", P,
                   gpu_resource_kind) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) {
      return [graph = std::make_shared<captured>(step)] { graph->replay(); };
    });
  }
}

}  // namespace plimsoll_test
