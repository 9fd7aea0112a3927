// SPDX-License-Identifier: Apache-2.0
// Alternatives to waterline::fill, for comparison: the least work that any such program does, and a
// plain loop of SGLang's sampling.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace plimsoll_bench::peers {

/// A batch of `tokens` rows of `k` slots on ranks with `per_rank` slots each.
struct routed_batch {
  std::size_t tokens;
  std::size_t k;
  std::size_t ranks;
  std::int32_t per_rank;
  std::int32_t const* ids;
  float const* weights;
};

/// Copies every row to the wider table in one pass over the ids; keeps the shared expert of all
/// tokens at home.
inline void stay_at_home(routed_batch const& batch, std::int32_t home, std::int32_t* ids,
                         float* weights) {
  for (std::size_t t = 0; t < batch.tokens; ++t) {
    for (std::size_t j = 0; j < batch.k; ++j) {
      std::int32_t const id = batch.ids[t * batch.k + j];
      *ids++ = id < 0 ? -1 : id + id / batch.per_rank;
      *weights++ = id < 0 ? 0 : batch.weights[t * batch.k + j];
    }
    *ids++ = home * (batch.per_rank + 1) + batch.per_rank;
    *weights++ = 1;
  }
}

/// Waterfill's dynamic mode, given routed load and tokens of all ranks.
class waterfill_loop {
 public:
  void run(routed_batch const& batch, std::int64_t const* routed, std::int64_t const* tokens,
           std::int32_t source, std::int32_t* ids, float* weights) {
    std::size_t const ranks = batch.ranks;
    load_.assign(routed, routed + ranks);
    std::int64_t const shared = std::accumulate(load_.begin(), load_.end(), std::int64_t{0}) /
                                static_cast<std::int64_t>(batch.k);
    std::int64_t total = shared;
    for (std::size_t r = 0; r < ranks; ++r) {
      load_[r] += tokens[r];
      total += load_[r];
    }
    auto const n = static_cast<std::int64_t>(ranks);
    std::int64_t const level = (total + n - 1) / n;
    bool const any = *std::max_element(load_.begin(), load_.end()) <= level;
    weight_.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      std::int64_t const slack = std::max<std::int64_t>(level - load_[r], 0);
      weight_[r] = static_cast<std::int32_t>(r) == source ? slack : slack * 10 / 11;
    }
    for (std::size_t t = 0; t < batch.tokens; ++t) {
      candidate_.assign(ranks, any);
      candidate_[static_cast<std::size_t>(source)] = true;
      for (std::size_t j = 0; j < batch.k; ++j) {
        std::int32_t const id = batch.ids[t * batch.k + j];
        if (id >= 0) {
          candidate_[static_cast<std::size_t>(id / batch.per_rank)] = true;
        }
        *ids++ = id < 0 ? -1 : id + id / batch.per_rank;
        *weights++ = id < 0 ? 0 : batch.weights[t * batch.k + j];
      }
      std::int32_t const best = draw(static_cast<std::uint32_t>(t), source);
      *ids++ = best * (batch.per_rank + 1) + batch.per_rank;
      *weights++ = 1;
    }
  }

 private:
  [[nodiscard]] std::int32_t draw(std::uint32_t token, std::int32_t source) const {
    std::int64_t sum = 0;
    for (std::size_t r = 0; r < weight_.size(); ++r) {
      sum += candidate_[r] ? weight_[r] : 0;
    }
    auto best = static_cast<std::size_t>(source);
    if (sum == 0) {
      for (std::size_t r = 0; r < weight_.size(); ++r) {
        best = candidate_[r] && load_[r] * 11 < load_[best] * 10 ? r : best;
      }
      return static_cast<std::int32_t>(best);
    }
    std::uint32_t const mixed = token ^ static_cast<std::uint32_t>(source) * 0x9E3779B9u;
    std::int64_t left = (mixed * 1664525u + 1013904223u) % sum;
    for (std::size_t r = 0; r < weight_.size(); ++r) {
      left -= candidate_[r] ? weight_[r] : 0;
      if (left < 0) {
        return static_cast<std::int32_t>(r);
      }
    }
    return source;
  }

  std::vector<std::int64_t> load_;
  std::vector<std::int64_t> weight_;
  std::vector<char> candidate_;
};

}  // namespace plimsoll_bench::peers
