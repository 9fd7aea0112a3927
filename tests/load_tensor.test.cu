// SPDX-License-Identifier: Apache-2.0
// Tests of load_tensor under the policies of a CUDA compiler and in CUDA graphs.
#include "load_tensor.cases.hpp"

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("load_tensor: calls can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  constexpr index_t tokens = 3000;
  constexpr index_t k = 4;
  constexpr index_t experts = 64;
  constexpr index_t window = 3;
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> ids(tokens * k);
  array_in<std::int32_t, P> const offsets(std::vector<std::int32_t>{0, 1000, tokens});
  array_in<std::int32_t, P> counts(experts);
  array_in<std::int64_t, P> by_source(2 * experts);
  array_in<std::int64_t, P> sum(experts);
  array_in<std::int32_t, P> kept(window * experts);
  array_in<routing_counters, P> counters(2);
  plimsoll::load_window<std::int32_t, policy_of<P>> steps(policy, 1, experts, {.window = window});
  plimsoll::load_decay average(policy, 1, experts);

  captured const graph([&] {
    plimsoll::count_tokens(policy, ids.view2(tokens, k), {}, counts.view1(),
                           plimsoll::vector_ref<routing_counters>(counters.data(), 1));
    plimsoll::count_tokens_by_source(
        policy, ids.view2(tokens, k), offsets.view1(), {}, by_source.view2(2, experts),
        plimsoll::vector_ref<routing_counters>(counters.data() + 1, 1));
    steps.push(counts.view2(1, experts));
    steps.sum(sum.view2(1, experts));
    steps.steps(kept.view3(window, 1, experts));
    average.push(counts.view2(1, experts));
  });

  std::vector<std::vector<std::int64_t>> pushed;
  std::vector<double> expected_average(experts);
  for (std::uint64_t step = 0; step < 2 * window + 1; ++step) {
    CAPTURE(step);
    auto const now = random_ids<std::int32_t>(tokens * k, experts, 300 + step);
    ids.assign(now);
    graph.replay();
    count_result const expected = count_plainly(now, 1, experts);
    pushed.push_back(expected.counts);
    CHECK(wide(counts.values()) == expected.counts);
    auto const split = by_source.values();
    std::vector<std::int64_t> window_sum(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      CHECK(split[e] + split[experts + e] == expected.counts[e]);
      double const product = plimsoll::detail::multiply(expected_average[e], 0.9);
      expected_average[e] = product + static_cast<double>(expected.counts[e]);
      for (std::size_t t = pushed.size() > window ? pushed.size() - window : 0; t < pushed.size();
           ++t) {
        window_sum[e] += pushed[t][e];
      }
    }
    CHECK(sum.values() == window_sum);
    auto const rows = wide(kept.values());
    for (std::size_t t = 0; t < window; ++t) {
      std::size_t const first = pushed.size() > window ? pushed.size() - window : 0;
      std::vector<std::int64_t> const row(
          rows.begin() + static_cast<std::ptrdiff_t>(t * experts),
          rows.begin() + static_cast<std::ptrdiff_t>((t + 1) * experts));
      CHECK(row ==
            (first + t < pushed.size() ? pushed[first + t] : std::vector<std::int64_t>(experts)));
    }
    CHECK(plimsoll::read(policy, plimsoll::vector_ref<double const>(average.values().data,
                                                                    experts)) == expected_average);
    auto const routed = members(counters.values());
    CHECK(std::vector<std::int64_t>(routed.begin(), routed.begin() + 3) == expected.counters);
    CHECK(std::vector<std::int64_t>(routed.begin() + 3, routed.end()) == expected.counters);
  }
  CHECK(steps.size() == window);
}

}  // namespace plimsoll_test
