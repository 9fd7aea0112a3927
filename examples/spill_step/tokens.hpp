// SPDX-License-Identifier: Apache-2.0
// A substitute for a model: tokens, the experts that a router would choose, and experts' weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <plimsoll/random.hpp>
#include <vector>

#include "command_line.hpp"

namespace spill_step {

using ints = std::vector<std::int32_t>;
using floats = std::vector<float>;

/// One rank's part of a step.
struct batch {
  ints ids;          ///< [tokens, top_k]: experts; -1: padding
  floats shares;     ///< [tokens, top_k]: the router's weights
  floats inputs;     ///< [tokens, hidden]
  floats gradients;  ///< [tokens, hidden]: of the outputs
};

/// The purpose of random numbers; each purpose has its own subsequences.
enum class purpose : std::uint64_t { sizes, popularity, ids, shares, inputs, gradients, weights };

/// Random numbers for one purpose, and for one rank's step or for one expert.
class source {
 public:
  source(options const& o, purpose what, int step, int rank)
      : seed_(static_cast<std::uint64_t>(o.seed)),
        stream_(static_cast<std::uint64_t>(what) << 56 | static_cast<std::uint64_t>(step) << 32 |
                static_cast<std::uint64_t>(rank)),
        exact_(o.exact()) {}

  [[nodiscard]] std::uint64_t below(std::uint64_t limit, std::size_t i) const {
    return plimsoll::random::bits(seed_, stream_, i) % limit;
  }
  /// Returns a number from -1 to 1: an integer or a real.
  [[nodiscard]] float signed_number(std::size_t i) const {
    return exact_ ? static_cast<float>(below(3, i)) - 1
                  : static_cast<float>(below(1 << 24, i)) * 0x1p-23f - 1;
  }
  /// Returns a number above 0: 1 or 2, or a real up to 1.
  [[nodiscard]] float positive_number(std::size_t i) const {
    return exact_ ? static_cast<float>(below(2, i)) + 1
                  : static_cast<float>(below(1 << 24, i) + 1) * 0x1p-24f;
  }
  [[nodiscard]] floats signed_numbers(std::size_t size) const {
    floats result(size);
    for (std::size_t i = 0; i < size; ++i) {
      result[i] = signed_number(i);
    }
    return result;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  bool exact_;
};

/// Returns the number of a rank's tokens in a step, in eighths of the maximum, from 0 to 8 of them.
inline int tokens_of(options const& o, int step, int rank) {
  auto const eighths = source(o, purpose::sizes, step, rank).below(9, 0);
  return static_cast<int>(static_cast<std::uint64_t>(o.tokens) * eighths / 8);
}

/// Returns the prefix sums of the experts' popularity for one rank's tokens in one step. A few
/// neighbors, which are at home on the same rank, are hot; each step has other hot experts.
inline std::vector<std::uint64_t> popularity(options const& o, int step, int rank) {
  auto const experts = static_cast<std::uint64_t>(o.experts);
  auto const hottest = source(o, purpose::popularity, step, 0).below(experts, experts);
  source const taste(o, purpose::popularity, step, rank + 1);
  std::vector<std::uint64_t> result;
  std::uint64_t sum = 0;
  for (std::uint64_t e = 0; e < experts; ++e) {
    std::uint64_t const away = (e + experts - hottest) % experts;
    sum += (std::uint64_t{1} << 32) / (away * away + 4) / (3 + taste.below(4, e)) + 1;
    result.push_back(sum);
  }
  return result;
}

/// Returns ids `[tokens, top_k]`: different experts for every token, drawn by popularity. Every
/// 16th token is padding.
inline ints route(options const& o, int step, int rank) {
  auto const up_to = popularity(o, step, rank);
  source const draw(o, purpose::ids, step, rank);
  ints ids;
  int const tokens = tokens_of(o, step, rank);
  for (int token = 0; token < tokens; ++token) {
    auto const first = static_cast<std::ptrdiff_t>(ids.size());
    for (int i = 0; i < o.top_k; ++i) {
      auto const at =
          std::upper_bound(up_to.begin(), up_to.end(), draw.below(up_to.back(), ids.size())) -
          up_to.begin();
      auto e = static_cast<std::int32_t>(at);
      while (std::find(ids.begin() + first, ids.end(), e) != ids.end()) {
        e = (e + 1) % o.experts;
      }
      ids.push_back(e);
    }
    if (token % 16 == 15) {
      std::fill(ids.begin() + first, ids.end(), -1);
    }
  }
  return ids;
}

inline batch make_batch(options const& o, int step, int rank) {
  batch result{.ids = route(o, step, rank), .shares = {}, .inputs = {}, .gradients = {}};
  source const shares(o, purpose::shares, step, rank);
  for (std::size_t i = 0; i < result.ids.size(); ++i) {
    result.shares.push_back(shares.positive_number(i));
  }
  auto const size =
      static_cast<std::size_t>(tokens_of(o, step, rank)) * static_cast<std::size_t>(o.hidden);
  result.inputs = source(o, purpose::inputs, step, rank).signed_numbers(size);
  result.gradients = source(o, purpose::gradients, step, rank).signed_numbers(size);
  return result;
}

/// Returns the initial weights of an expert.
inline floats weights_of(options const& o, int expert) {
  return source(o, purpose::weights, 0, expert)
      .signed_numbers(static_cast<std::size_t>(o.expert_size()));
}

}  // namespace spill_step
