// SPDX-License-Identifier: Apache-2.0
// Tests of least_loaded under the policies of a CUDA compiler and in CUDA graphs.
#include "least_loaded.cases.hpp"

#include <memory>

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("least_loaded: all calls can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  constexpr index_t ranks = 6;
  constexpr index_t experts = 40;
  constexpr index_t tokens = 300;
  constexpr index_t k = 4;
  constexpr index_t rank = 2;
  spill_case c = spill_of(longs(experts, 0), ranks, 16);
  c.options.on.nodes = 2;
  c.k = k;
  c.ids.assign(ranks, longs(tokens * k));
  spill_in<P> const in(c);
  auto planner = in.make();
  array_in<std::int32_t, P> ids(tokens * k);
  array_in<std::int32_t, P> counts(ranks * experts);
  array_in<std::int32_t, P> destinations(tokens * k);
  array_in<std::int32_t, P> rows(tokens * k);
  array_in<std::int32_t, P> arranged(ranks * tokens * k);
  array_in<spill_segment, P> groups(experts);
  array_in<spill_counters, P> counters(1);

  // `counts` already has the rows of the other ranks, as after an all-gather.
  captured const graph([&] {
    plimsoll::vector_ref<std::int32_t> const row(counts.data() + rank * experts, experts);
    planner.count(ids.view2(tokens, k), row);
    planner.add_up(counts.view2(ranks, experts));
    planner.plan();
    planner.exchange();
    planner.route(rank, ids.view2(tokens, k), destinations.view2(tokens, k), rows.view2(tokens, k),
                  counters.view1());
    planner.arrange(rank, arranged.view1(), groups.view1());
  });

  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    draws draw(turn);
    ints gathered_counts;
    c.loads.assign(experts, 0);
    for (longs& of_rank : c.ids) {
      ints counted(experts, 0);
      for (std::int64_t& id : of_rank) {
        id = draw.among(-1, draw.one_in(2) ? experts - 1 : 3);
        if (id >= 0) {
          ++counted[at(id)];
          ++c.loads[at(id)];
        }
      }
      gathered_counts.insert(gathered_counts.end(), counted.begin(), counted.end());
    }
    std::fill_n(gathered_counts.begin() + rank * experts, experts, gap_value);
    counts.assign(gathered_counts);
    ids.assign(ints(c.ids[rank].begin(), c.ids[rank].end()));
    graph.replay();
    traveled const expected = travel_with<thrust_host>(c);
    CHECK(difference(in.read_plan(planner), expected.plan) == "");
    CHECK(expected.plan.report.transfers > 0);
    CHECK(destinations.values() == expected.destinations[rank]);
    CHECK(rows.values() == expected.rows[rank]);
    CHECK(numbers_in(counters.values()[0]) == numbers_in(expected.counters[rank]));
    ints const received = arranged.values();
    ints const& wanted = expected.arranged[rank];
    CHECK(ints(received.begin(), received.begin() + std::ssize(wanted)) == wanted);
    CHECK(std::all_of(received.begin() + std::ssize(wanted), received.end(),
                      [](std::int32_t row) { return row == -1; }));
    auto const all_groups = groups.values();
    auto const& expected_groups = expected.groups[rank];
    CHECK(numbers_in(
              std::vector(all_groups.begin(), all_groups.begin() + std::ssize(expected_groups))) ==
          numbers_in(expected_groups));
    planner.check();
  }
}

PLIMSOLL_TEST_CASE("least_loaded: a step captured in a CUDA graph before an update uses it", P,
                   gpu_resource_kind) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) {
      return [graph = std::make_shared<captured>(step)] { graph->replay(); };
    });
  }
}

}  // namespace plimsoll_test
