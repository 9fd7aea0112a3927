// SPDX-License-Identifier: Apache-2.0
// Tests of lplb under the policies of a CUDA compiler and in CUDA graphs.
#include "lplb.cases.hpp"

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("lplb: planning and dispatching can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  using c = lplb_case<P>;
  c const in;
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> counts(in.counts);
  array_in<std::int32_t, P> ids(in.ids[0]);
  array_in<std::int32_t, P> slots(c::tokens * c::k, -7);
  array_in<dispatch_counters, P> counters(1);
  plimsoll::lplb planner(policy, in.placement, c::options());
  auto const step = [&] {
    planner.plan(counts.view2(c::layers, c::experts));
    planner.dispatch(0, ids.view2(c::tokens, c::k), slots.view2(c::tokens, c::k), counters.view1());
  };

  captured const graph(step);

  // Replays with the tokens and counts of each layer in turn as those of layer 0.
  for (std::size_t turn = 0; turn < in.ids.size(); ++turn) {
    CAPTURE(turn);
    ints now = in.counts;
    std::copy_n(in.counts.begin() + static_cast<std::ptrdiff_t>(turn) * c::experts, c::experts,
                now.begin());
    counts.assign(now);
    ids.assign(in.ids[turn]);
    slots.assign(ints(static_cast<std::size_t>(slots.size()), -7));
    graph.replay();
    ints const replayed = slots.values();
    auto const counted = numbers_in(counters.values());
    planner.check();
    step();
    CHECK(replayed == slots.values());
    CHECK(counted == numbers_in(counters.values()));
    CHECK(counted[1] == 0);
    CHECK(std::count(replayed.begin(), replayed.end(), -7) == 0);
  }
}

PLIMSOLL_TEST_CASE("lplb: a step captured in a CUDA graph before an update uses it", P,
                   gpu_resource_kind) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) {
      return [graph = std::make_shared<captured>(step)] { graph->replay(); };
    });
  }
}

PLIMSOLL_TEST_CASE("lplb: an update captured in a CUDA graph reads its arrays at every replay", P,
                   gpu_resource_kind) {
  using c = lplb_case<P>;
  c const in;
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const counts(in.counts);
  array_in<std::int32_t, P> map(in.map_values);
  plimsoll::placement_ref placement = in.placement;
  placement.physical_to_logical = map.view2(c::layers, c::slots);
  plimsoll::lplb planner(policy, in.placement, c::options());
  captured const graph([&] {
    planner.update(0, placement);
    planner.plan(counts.view2(c::layers, c::experts));
  });
  ints rotated = in.map_values;
  for (int turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    std::rotate(rotated.begin(), rotated.begin() + 9, rotated.begin() + c::slots);
    map.assign(rotated);
    graph.replay();
    planner.check();
    planner.expect_current(placement);
    plimsoll::lplb fresh(policy, placement, c::options());
    fresh.plan(counts.view2(c::layers, c::experts));
    auto const quotas = [&](auto const& from) {
      return plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(from.quotas().data,
                                                                             c::layers * c::slots));
    };
    CHECK(quotas(planner) == quotas(fresh));
  }
}

}  // namespace plimsoll_test
