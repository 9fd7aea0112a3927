// SPDX-License-Identifier: Apache-2.0
// A substitute for a model: tokens and the experts that a router would choose. It uses integers
// only, so that every machine makes the same tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <plimsoll/random.hpp>
#include <vector>

#include "command_line.hpp"

namespace split_step {

inline std::uint64_t seed_of(options const& o) { return static_cast<std::uint64_t>(o.seed); }

/// Returns the number of a rank's tokens in a step, as with data-parallel attention: from half of
/// the maximum up to the maximum.
inline int tokens_of(options const& o, int step, int rank) {
  auto const bits = plimsoll::random::bits(seed_of(o), ~static_cast<std::uint64_t>(step),
                                           static_cast<std::uint64_t>(rank));
  int const least = (o.tokens + 1) / 2;
  return least + static_cast<int>(bits % static_cast<std::uint64_t>(o.tokens - least + 1));
}

/// Returns the popularity of every expert for one rank's tokens in one step. A few experts are
/// popular on all ranks; popularity drifts from step to step and differs from rank to rank. Step 0
/// is the history that the placement is planned from.
inline std::vector<std::int64_t> popularity(options const& o, int step, int rank) {
  std::vector<std::int64_t> result;
  auto const draw = [&](std::uint64_t stream, int expert) {
    return plimsoll::random::bits(seed_of(o), stream, static_cast<std::uint64_t>(expert));
  };
  auto const of_step = static_cast<std::uint64_t>(step) + 1;
  auto const of_rank = (static_cast<std::uint64_t>(rank) + 1) << 32;
  for (int e = 0; e < o.experts; ++e) {
    auto const place = draw(0, e) % static_cast<std::uint64_t>(o.experts);  // Zipf's law
    auto const drift = (1 + draw(of_step, e) % 8) * (3 + draw(of_rank, e) % 4);
    result.push_back(static_cast<std::int64_t>((std::uint64_t{1} << 20) / (place + 4) * drift));
  }
  return result;
}

/// Returns ids `[tokens, top_k]`: different experts for every token, drawn by popularity.
inline std::vector<std::int32_t> route(options const& o, int step, int rank) {
  std::vector<std::int64_t> const weights = popularity(o, step, rank);
  std::int64_t total = 0;
  for (std::int64_t const weight : weights) {
    total += weight;
  }
  std::vector<std::int32_t> ids;
  auto const stream =
      (static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint64_t>(rank)) ^ ~0ull;
  int const tokens = tokens_of(o, step, rank);
  for (int token = 0; token < tokens; ++token) {
    std::vector<std::int64_t> left = weights;
    std::int64_t sum = total;
    for (int i = 0; i < o.top_k; ++i) {
      auto at = static_cast<std::int64_t>(plimsoll::random::bits(seed_of(o), stream, ids.size()) %
                                          static_cast<std::uint64_t>(sum));
      std::size_t e = 0;
      for (; at >= left[e]; ++e) {
        at -= left[e];
      }
      ids.push_back(static_cast<std::int32_t>(e));
      sum -= left[e];
      left[e] = 0;
    }
  }
  return ids;
}

}  // namespace split_step
