// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loads that change domains as a recorded trace does: a model with two parameters, fitted to the
/// correlation of the recorded shares after one step and after two.
///
/// A domain is one recorded step and lasts for some steps. An expert's share is that of the domain
/// with probability `follow`, or else that of another recorded step, drawn anew in every step. A
/// domain goes on with probability `stay`. Each share thus has exactly the recorded distribution,
/// and after n steps the correlation follow^2 * stay^n.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <plimsoll/random.hpp>

#include "npy_reader.hpp"
#include "popularity.hpp"

namespace make_loads {

/// Shares of a layer's token copies, `[steps, layers, experts]`, in units of 2^-24.
struct recorded_shares {
  std::int64_t steps = 0;
  std::int64_t layers = 0;
  std::int64_t experts = 0;
  std::vector<std::uint32_t> values;
  std::int64_t most_top_k = 0;  ///< a token that visits more experts would contradict a share

  [[nodiscard]] bool has_load(std::int64_t layer) const {
    std::span<std::uint32_t const> const first = of(0, layer);
    return std::any_of(first.begin(), first.end(), [](std::uint32_t share) { return share > 0; });
  }

  [[nodiscard]] std::span<std::uint32_t const> of(std::int64_t step, std::int64_t layer) const {
    auto const count = static_cast<std::size_t>(experts);
    return std::span(values).subspan(static_cast<std::size_t>(step * layers + layer) * count,
                                     count);
  }
};

/// Returns the sum of a layer's loads, but at most `examples::total_limit`.
[[nodiscard]] inline std::int64_t limited_sum(std::span<std::int64_t const> loads) {
  std::int64_t sum = 0;
  for (std::int64_t const load : loads) {
    sum = std::min(sum + std::min(load, examples::total_limit), examples::total_limit);
  }
  return sum;
}

/// Converts loads to shares, and leaves out steps without load. A layer must have load in all other
/// steps or in none; in the latter case its shares are 0.
[[nodiscard]] inline recorded_shares shares_of(recorded_loads const& loads,
                                               std::string const& subject) {
  auto const refuse = [&](std::string const& expected, std::string const& got) {
    throw std::runtime_error(subject + ": expected " + expected + ", got " + got);
  };
  auto const experts = static_cast<std::size_t>(loads.experts);
  auto const layers = static_cast<std::size_t>(loads.layers);
  recorded_shares result{0, loads.layers, loads.experts, {}, loads.experts};
  std::vector<std::int64_t> first;  // sums of the layers in the first step with load
  std::vector<std::int64_t> sums(layers);
  for (std::int64_t step = 0; step < loads.steps; ++step) {
    auto const row = [&](std::size_t layer) {
      std::size_t const number = static_cast<std::size_t>(step) * layers + layer;
      return std::span(loads.values).subspan(number * experts, experts);
    };
    for (std::size_t layer = 0; layer < layers; ++layer) {
      sums[layer] = limited_sum(row(layer));
    }
    if (std::all_of(sums.begin(), sums.end(), [](std::int64_t sum) { return sum == 0; })) {
      continue;
    }
    first = first.empty() ? sums : first;
    ++result.steps;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::int64_t const sum = sums[layer];
      std::string const where =
          "load in step " + std::to_string(step) + ", layer " + std::to_string(layer);
      if (sum == examples::total_limit) {
        refuse("a " + where + " below 2^40", "more");
      }
      if ((sum > 0) != (first[layer] > 0)) {
        refuse((sum > 0 ? "no " : "") + where + ", as in earlier steps", std::to_string(sum));
      }
      for (std::int64_t const load : row(layer)) {
        std::uint64_t const scaled = static_cast<std::uint64_t>(load) << examples::weight_bits;
        result.values.push_back(
            sum == 0 ? 0 : static_cast<std::uint32_t>(scaled / static_cast<std::uint64_t>(sum)));
        result.most_top_k = load > 0 ? std::min(result.most_top_k, sum / load) : result.most_top_k;
      }
    }
  }
  if (result.steps == 0) {
    refuse("some load", "only loads of 0");
  }
  return result;
}

/// Returns the correlation of an expert's shares after `lag` steps, over all experts and layers:
/// the mean product of deviations from the expert's mean, divided by the mean square.
///
/// A deviation is an integer below 2^24, so that products are exact and the result is the same
/// whether or not a compiler fuses multiplications and additions.
[[nodiscard]] inline double correlation(recorded_shares const& shares, std::int64_t lag) {
  if (shares.steps <= lag) {
    return 0;
  }
  double square = 0;
  double product = 0;
  std::vector<double> deviations(static_cast<std::size_t>(shares.steps));
  for (std::int64_t layer = 0; layer < shares.layers; ++layer) {
    for (std::size_t e = 0; e < static_cast<std::size_t>(shares.experts); ++e) {
      std::int64_t sum = 0;
      for (std::int64_t step = 0; step < shares.steps; ++step) {
        sum += shares.of(step, layer)[e];
      }
      std::int64_t const mean = sum / shares.steps;
      for (std::int64_t step = 0; step < shares.steps; ++step) {
        deviations[static_cast<std::size_t>(step)] =
            static_cast<double>(std::int64_t{shares.of(step, layer)[e]} - mean);
      }
      for (std::size_t i = 0; i < deviations.size(); ++i) {
        square += deviations[i] * deviations[i];
        if (i + static_cast<std::size_t>(lag) < deviations.size()) {
          product += deviations[i] * deviations[i + static_cast<std::size_t>(lag)];
        }
      }
    }
  }
  if (square == 0) {
    return 0;
  }
  auto const steps = static_cast<double>(shares.steps);
  return product / square * (steps / (steps - static_cast<double>(lag)));
}

struct domain_model {
  double stay = 0;    ///< probability that a domain goes on
  double follow = 1;  ///< probability that an expert's share is that of the domain
};

/// Fits the model to the correlations after one step and after two: stay is their ratio, and
/// follow^2 the first divided by it. Steps that are not correlated are domains of their own. A
/// domain lasts no longer than the trace on average.
[[nodiscard]] inline domain_model fit(double after_one, double after_two, std::int64_t steps) {
  if (after_one <= 0) {
    return {};
  }
  double const ratio = after_two > 0 ? after_two / after_one : after_one;
  double const longest = 1 - 1 / static_cast<double>(steps);
  double const stay = std::min(std::max(ratio, std::min(after_one, 1.0)), longest);
  return {stay, std::sqrt(std::min(after_one / stay, 1.0))};
}

/// Draws shares step by step.
class domain_sequence {
 public:
  domain_sequence(recorded_shares const& shares, domain_model const& model, std::uint64_t seed)
      : shares_(&shares), model_(model), seed_(seed) {}

  /// Begins the next step: with a domain and the recorded step that deviating experts take.
  void advance() {
    if (step_ < 0 || draw(0, 3 * next()) >= model_.stay) {
      domain_ = recorded_step(3 * next() + 1);
    }
    other_ = recorded_step(3 * next() + 2);
    ++step_;
  }

  /// Writes the weights of a layer in the step; each is at least 1, so that tokens above the limit
  /// of an expert find another one.
  void weights(std::int64_t layer, std::span<std::uint64_t> result) const {
    auto const first = static_cast<std::uint64_t>(step_) * result.size();
    for (std::size_t e = 0; e < result.size(); ++e) {
      bool const follows = draw(1 + static_cast<std::uint64_t>(layer), first + e) < model_.follow;
      result[e] = std::max<std::uint64_t>(shares_->of(follows ? domain_ : other_, layer)[e], 1);
    }
  }

 private:
  [[nodiscard]] std::uint64_t next() const { return static_cast<std::uint64_t>(step_ + 1); }

  [[nodiscard]] double draw(std::uint64_t subsequence, std::uint64_t index) const {
    return plimsoll::random::uniform(seed_, subsequence, index);
  }

  [[nodiscard]] std::int64_t recorded_step(std::uint64_t index) const {
    auto const steps = static_cast<double>(shares_->steps);
    return std::min(static_cast<std::int64_t>(draw(0, index) * steps), shares_->steps - 1);
  }

  recorded_shares const* shares_;
  domain_model model_;
  std::uint64_t seed_;
  std::int64_t step_ = -1;
  std::int64_t domain_ = 0;
  std::int64_t other_ = 0;
};

}  // namespace make_loads
