// SPDX-License-Identifier: Apache-2.0
// The workloads of Megatron-LM's imbalance benchmark.
#include "../workload.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <vector>

using namespace make_loads;

namespace {

using counts = std::vector<std::int32_t>;

/// Returns the counts of one rank.
counts counts_of(workload kind, workload_shape const& shape, std::int64_t step,
                 std::uint64_t seed = 5, std::int64_t layer = 0) {
  counts result(static_cast<std::size_t>(shape.experts));
  count_workload(kind, shape, seed, layer, step, source_offsets(kind, shape.tokens, 1), result);
  return result;
}

/// Expects `hot` of all tokens to visit each listed expert, and `cold` each other one, within five
/// standard deviations.
void expect_shares(workload kind, std::int64_t step, std::initializer_list<std::size_t> listed,
                   double hot, double cold, workload_shape shape = {16, 40000, 2}) {
  CAPTURE(step);
  counts const drawn = counts_of(kind, shape, step);
  for (std::size_t e = 0; e < drawn.size(); ++e) {
    CAPTURE(e);
    bool const is_hot = std::find(listed.begin(), listed.end(), e) != listed.end();
    double const share = static_cast<double>(drawn[e]) / static_cast<double>(shape.tokens);
    double const expected = is_hot ? hot : cold;
    CHECK(share >= expected - 0.0125 * (expected > 0));
    CHECK(share <= expected + 0.0125 * (expected > 0));
  }
}

}  // namespace

TEST_CASE("workload: shares of the experts") {
  // 16 experts, two for a token: four are hot. Three of four tokens visit two of the four.
  double const hot = 0.75 * 2 / 4 + 0.25 * 2 / 16;
  double const cold = 0.25 * 2 / 16;
  for (std::int64_t const step : {0, 1, 7}) {
    CHECK(counts_of(workload::balanced, {16, 40000, 2}, step) == counts(16, 5000));
    expect_shares(workload::hot_experts, step, {0, 1, 2, 3}, hot, cold);
    expect_shares(workload::hot_rank, step, {0, 1, 2, 3}, hot, cold);
    expect_shares(workload::spread, step, {0, 2, 4, 6, 8, 10, 12, 14}, 0.75 * 2 / 8 + cold, cold);
    expect_shares(workload::ragged_sources, step, {}, 0, 0.125);
    expect_shares(workload::empty_ranks, step, {8, 9, 10, 11, 12, 13, 14, 15}, 0.25, 0);
  }
}

TEST_CASE("workload: the hot spot moves every three steps, around the last expert") {
  double const hot = 0.75 * 2 / 4 + 0.25 * 2 / 16;
  double const cold = 0.25 * 2 / 16;
  for (std::int64_t const first : {0, 12}) {
    expect_shares(workload::moving_hot_spot, first + 2, {0, 1, 2, 3}, hot, cold);
    expect_shares(workload::moving_hot_spot, first + 3, {4, 5, 6, 7}, hot, cold);
    expect_shares(workload::moving_hot_spot, first + 11, {12, 13, 14, 15}, hot, cold);
  }
  workload_shape const ten{10, 40000, 3};  // three are hot, chosen by three of four tokens
  expect_shares(workload::moving_hot_spot, 9, {9, 0, 1}, 0.75 + 0.25 * 0.3, 0.25 * 0.3, ten);
}

TEST_CASE("workload: every fourth step is a burst of half the tokens") {
  for (std::int64_t const step : {3, 7, 403}) {
    expect_shares(workload::burst, step, {0, 1, 2, 3}, 0.5 * 0.5 + 0.5 * 0.125, 0.5 * 0.125);
  }
  for (std::int64_t const step : {0, 1, 2, 4}) {
    expect_shares(workload::burst, step, {}, 0, 0.125);
  }
}

TEST_CASE("workload: a token visits distinct experts, of a set that is large enough") {
  for (std::size_t kind = 0; kind < workload_names.size(); ++kind) {
    for (workload_shape const& shape : {workload_shape{8, 1, 5}, {9, 1, 4}, {2, 1, 1}, {1, 1, 1}}) {
      if (shape.top_k > used_experts_of(shape.experts)) {
        continue;  // refused for empty_ranks
      }
      for (std::int64_t step = 0; step < 50; ++step) {
        counts const drawn = counts_of(static_cast<workload>(kind), shape, step);
        CHECK(*std::max_element(drawn.begin(), drawn.end()) == 1);
        CHECK(std::accumulate(drawn.begin(), drawn.end(), std::int64_t{0}) == shape.top_k);
      }
    }
  }
  CHECK(candidates_of(workload::hot_experts, {8, 1, 5}, 0).experts.size() == 5);
  CHECK(candidates_of(workload::spread, {8, 1, 4}, 0).experts.size() == 4);
  CHECK(candidates_of(workload::spread, {8, 1, 5}, 0).experts.size() == 8);
}

TEST_CASE("workload: ranks of the sources do not change the loads") {
  for (std::size_t kind = 0; kind < workload_names.size(); ++kind) {
    auto const w = static_cast<workload>(kind);
    workload_shape const shape{12, 101, 3};
    std::vector<std::int64_t> const offsets = source_offsets(w, shape.tokens, 4);
    counts by_source(4 * 12);
    count_workload(w, shape, 5, 0, 3, offsets, by_source);
    counts sums(12);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      auto const begin = by_source.begin() + static_cast<std::ptrdiff_t>(12 * rank);
      CHECK(std::accumulate(begin, begin + 12, std::int64_t{0}) ==
            3 * (offsets[rank + 1] - offsets[rank]));
      std::transform(sums.begin(), sums.end(), begin, sums.begin(), std::plus<>());
    }
    CHECK(sums == counts_of(w, shape, 3));
  }
}

TEST_CASE("workload: only ragged sources hold different numbers of tokens") {
  using offsets = std::vector<std::int64_t>;
  CHECK(source_offsets(workload::burst, 10, 4) == offsets{0, 2, 5, 7, 10});
  CHECK(source_offsets(workload::ragged_sources, 100, 4) == offsets{0, 10, 30, 60, 100});
  CHECK(source_offsets(workload::ragged_sources, 2, 3) == offsets{0, 0, 1, 2});
  std::int64_t const most = 2147483647;
  CHECK(source_offsets(workload::ragged_sources, most, 65535).back() == most);
}

TEST_CASE("workload: draws depend on the seed, the layer, the step and the workload") {
  workload_shape const shape{16, 400, 2};
  counts const drawn = counts_of(workload::hot_experts, shape, 1, 5, 1);
  CHECK(drawn == counts_of(workload::hot_experts, shape, 1, 5, 1));
  CHECK(drawn != counts_of(workload::hot_experts, shape, 1, 6, 1));
  CHECK(drawn != counts_of(workload::hot_experts, shape, 1, 5, 2));
  CHECK(drawn != counts_of(workload::hot_experts, shape, 2, 5, 1));
  CHECK(drawn != counts_of(workload::hot_rank, shape, 1, 5, 1));
}
