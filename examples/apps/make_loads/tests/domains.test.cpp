// SPDX-License-Identifier: Apache-2.0
// Loads that change domains as a recorded trace does.
#include "../domains.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace make_loads;

namespace {

recorded_shares shares_of(recorded_loads const& loads) { return shares_of(loads, "--like: a.npy"); }

/// 48 steps of six domains, eight steps each: a domain has four hot experts, and every step some
/// noise.
recorded_loads six_domains() {
  recorded_loads loads{48, 2, 32, {}};
  for (std::uint64_t step = 0; step < 48; ++step) {
    for (std::uint64_t cell = 0; cell < 64; ++cell) {
      std::uint64_t const noise = plimsoll::random::bits(1, step, cell) % 120;
      bool const hot = plimsoll::random::bits(2, step / 8, cell) % 8 == 0;
      loads.values.push_back(static_cast<std::int64_t>((hot ? 400 : 100) + noise));
    }
  }
  return loads;
}

recorded_loads drawn_like(recorded_shares const& shares, std::int64_t steps, std::uint64_t seed) {
  domain_model const model = fit(correlation(shares, 1), correlation(shares, 2), shares.steps);
  domain_sequence sequence(shares, model, seed);
  recorded_loads result{steps, shares.layers, shares.experts, {}};
  std::vector<std::uint64_t> weights(static_cast<std::size_t>(shares.experts));
  std::vector<std::int32_t> counts(weights.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    sequence.advance();
    for (std::int64_t layer = 0; layer < shares.layers; ++layer) {
      sequence.weights(layer, weights);
      examples::count_tokens(weights, 8192, 4096, counts);
      result.values.insert(result.values.end(), counts.begin(), counts.end());
    }
  }
  return result;
}

/// Mean and standard deviation of an expert's share.
std::array<double, 2> moments(recorded_shares const& shares, std::int64_t layer, std::size_t e) {
  double sum = 0;
  double squares = 0;
  for (std::int64_t step = 0; step < shares.steps; ++step) {
    double const share = shares.of(step, layer)[e] * 0x1p-24;
    sum += share;
    squares += share * share;
  }
  auto const steps = static_cast<double>(shares.steps);
  return {sum / steps, std::sqrt(std::max(squares / steps - sum / steps * sum / steps, 0.0))};
}

/// Mean balancedness of eight ranks that hold the experts in order.
double balancedness(recorded_shares const& shares) {
  double sum = 0;
  for (std::int64_t step = 0; step < shares.steps; ++step) {
    for (std::int64_t layer = 0; layer < shares.layers; ++layer) {
      auto const row = shares.of(step, layer);
      std::array<double, 8> ranks{};
      for (std::size_t e = 0; e < row.size(); ++e) {
        ranks[e * 8 / row.size()] += row[e];
      }
      sum += std::accumulate(ranks.begin(), ranks.end(), 0.0) / 8 /
             *std::max_element(ranks.begin(), ranks.end());
    }
  }
  return sum / static_cast<double>(shares.steps * shares.layers);
}

}  // namespace

TEST_CASE("domains: correlation of the steps") {
  recorded_shares const shares = shares_of({4, 1, 2, {3, 1, 1, 3, 3, 1, 1, 3}});
  CHECK(shares.of(1, 0)[1] == 3u << 22);
  CHECK(shares.most_top_k == 1);
  CHECK(correlation(shares, 1) == -1);
  CHECK(correlation(shares, 2) == 1);
  CHECK(correlation(shares, 4) == 0);  // more than there are steps
  CHECK(correlation(shares_of({3, 1, 2, {1, 3, 1, 3, 1, 3}}), 1) == 0);  // nothing changes
}

TEST_CASE("domains: the model has the correlations that it was fitted to") {
  for (auto const& [one, two] : {std::pair(0.5, 0.25), {0.7, 0.6}, {0.9, 0.85}, {0.3, 0.25}}) {
    domain_model const model = fit(one, two, 100);
    CHECK(model.follow * model.follow * model.stay == doctest::Approx(one));
    CHECK(model.follow * model.follow * model.stay * model.stay == doctest::Approx(two));
  }
  for (double const one : {-0.2, 0.0}) {  // every step is a domain of its own
    CHECK(fit(one, 0.5, 100).stay == 0);
    CHECK(fit(one, 0.5, 100).follow == 1);
  }
  // If no model has both correlations, the one found keeps the first.
  CHECK(fit(0.5, 0.1, 100).stay == 0.5);
  CHECK(fit(0.5, 0.1, 100).follow == 1);
  CHECK(fit(0.5, -0.1, 100).stay == 0.5);
  CHECK(fit(0.5, 0.6, 100).stay == 0.99);  // domains as long as the trace
  CHECK(fit(0.5, 0.6, 100).follow == doctest::Approx(std::sqrt(0.5 / 0.99)));
  CHECK(fit(0.9, 0, 2).stay == 0.5);
  CHECK(fit(0, 0, 1).stay == 0);
}

TEST_CASE("domains: drawn loads have the shares, the spread and the correlations of the trace") {
  recorded_shares const recorded = shares_of(six_domains());
  double const after_one = correlation(recorded, 1);
  CHECK(after_one > 0.5);
  for (std::uint64_t const seed : {std::uint64_t{0}, std::uint64_t{1}}) {
    recorded_shares const drawn = shares_of(drawn_like(recorded, 20000, seed));
    for (std::int64_t const lag : {1, 2}) {
      CHECK(std::abs(correlation(drawn, lag) - correlation(recorded, lag)) < 0.02);
    }
    CHECK(std::abs(balancedness(drawn) - balancedness(recorded)) < 0.01);
    double spread_drawn = 0;
    double spread_recorded = 0;
    for (std::int64_t layer = 0; layer < recorded.layers; ++layer) {
      double difference = 0;
      for (std::size_t e = 0; e < 32; ++e) {
        auto const [mean, deviation] = moments(drawn, layer, e);
        auto const [recorded_mean, recorded_deviation] = moments(recorded, layer, e);
        difference += std::abs(mean - recorded_mean) / 2;
        spread_drawn += deviation;
        spread_recorded += recorded_deviation;
      }
      CHECK(difference < 0.02);  // of all tokens
    }
    CHECK(std::abs(spread_drawn / spread_recorded - 1) < 0.05);
  }
}

TEST_CASE("domains: steps without correlation are recorded steps in random order") {
  recorded_shares const shares = shares_of({3, 1, 2, {6, 2, 1, 7, 4, 4}});
  domain_sequence sequence(shares, fit(correlation(shares, 1), correlation(shares, 2), 3), 4);
  std::array<int, 3> seen{};
  std::vector<std::uint64_t> weights(2);
  for (int step = 0; step < 900; ++step) {
    sequence.advance();
    sequence.weights(0, weights);
    for (std::int64_t recorded = 0; recorded < 3; ++recorded) {
      auto const row = shares.of(recorded, 0);
      seen.at(static_cast<std::size_t>(recorded)) +=
          std::equal(row.begin(), row.end(), weights.begin());
    }
  }
  CHECK(seen[0] + seen[1] + seen[2] == 900);
  CHECK(*std::min_element(seen.begin(), seen.end()) > 250);
}

TEST_CASE("domains: another seed draws other loads") {
  recorded_shares const recorded = shares_of(six_domains());
  CHECK(drawn_like(recorded, 20, 1).values == drawn_like(recorded, 20, 1).values);
  CHECK(drawn_like(recorded, 20, 1).values != drawn_like(recorded, 20, 2).values);
}

TEST_CASE("domains: layers and steps without load") {
  recorded_shares const shares = shares_of({3, 2, 2, {0, 0, 5, 1, 0, 0, 0, 0, 0, 0, 2, 2}});
  CHECK(!shares.has_load(0));
  CHECK(shares.has_load(1));
  CHECK(shares.steps == 2);
  CHECK(shares.of(1, 1)[0] == 1u << 23);
  CHECK_THROWS_WITH(shares_of({2, 2, 1, {1, 2, 3, 0}}),
                    "--like: a.npy: expected load in step 1, layer 1, as in earlier steps, got 0");
  CHECK_THROWS_WITH(
      shares_of({2, 2, 1, {1, 0, 3, 4}}),
      "--like: a.npy: expected no load in step 1, layer 1, as in earlier steps, got 4");
  CHECK_THROWS_WITH(shares_of({1, 1, 2, {0, 0}}),
                    "--like: a.npy: expected some load, got only loads of 0");
  std::int64_t const huge = std::int64_t{1} << 62;
  CHECK_THROWS_WITH(shares_of({1, 1, 3, {huge, huge, huge}}),
                    "--like: a.npy: expected a load in step 0, layer 0 below 2^40, got more");
}
