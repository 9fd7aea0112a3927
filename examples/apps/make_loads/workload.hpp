// SPDX-License-Identifier: Apache-2.0
/// @file
/// The imbalance workloads W0 to W7 of Megatron-LM's benchmark (pull request 7488,
/// benchmarks/moe/token_imbalance): every token of a step chooses its experts by itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/random.hpp>

namespace make_loads {

/// The position of an enumerator is Megatron-LM's number of the workload.
enum class workload {
  balanced,
  hot_experts,
  hot_rank,
  spread,
  ragged_sources,
  empty_ranks,
  moving_hot_spot,
  burst
};

struct workload_name {
  std::string_view number;
  std::string_view text;
};

inline constexpr std::array<workload_name, 8> workload_names{{{"w0", "balanced"},
                                                              {"w1", "hot-experts"},
                                                              {"w2", "hot-rank"},
                                                              {"w3", "spread"},
                                                              {"w4", "ragged-sources"},
                                                              {"w5", "empty-ranks"},
                                                              {"w6", "moving-hot-spot"},
                                                              {"w7", "burst"}}};

struct workload_shape {
  std::int64_t experts;
  std::int64_t tokens;  ///< of a step, over all ranks
  std::int64_t top_k;
};

/// Experts that some tokens of a step choose from, and which tokens: all other tokens choose from
/// all experts.
struct candidates {
  std::vector<std::int64_t> experts;
  std::int64_t period = 1;
  bool first_of_period =
      false;  ///< the first token of each period chooses from them, or all others
  /// Tells whether token number `t` of the step chooses from `experts`.
  [[nodiscard]] bool chosen_by(std::int64_t t) const {
    return (t % period == 0) == first_of_period;
  }
};

/// Returns the number of experts that workloads with a hot set heat: a quarter, but enough for a
/// token.
[[nodiscard]] inline std::int64_t hot_experts_of(workload_shape const& shape) {
  return std::max(shape.top_k, shape.experts / 4);
}

/// Returns the number of experts that `empty_ranks` uses: the upper half.
[[nodiscard]] inline std::int64_t used_experts_of(std::int64_t experts) {
  return experts - experts / 2;
}

[[nodiscard]] inline candidates candidates_of(workload kind, workload_shape const& shape,
                                              std::int64_t step) {
  // `count` experts from `first` on, `distance` apart, around the end.
  auto const experts = [&](std::int64_t first, std::int64_t count, std::int64_t distance = 1) {
    std::vector<std::int64_t> result(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      result[static_cast<std::size_t>(i)] = (first + i * distance) % shape.experts;
    }
    return result;
  };
  std::int64_t const hot = hot_experts_of(shape);
  constexpr std::int64_t three_of_four = 4;
  switch (kind) {
    case workload::hot_experts:
    case workload::hot_rank:
      return {experts(0, hot), three_of_four, false};
    case workload::spread: {
      std::int64_t const half = shape.experts / 2;
      return {shape.top_k <= half ? experts(0, half, 2) : experts(0, shape.experts), three_of_four,
              false};
    }
    case workload::empty_ranks:
      return {experts(shape.experts / 2, used_experts_of(shape.experts)), 1, true};
    case workload::moving_hot_spot:
      return {experts(step / 3 * hot % shape.experts, hot), three_of_four, false};
    case workload::burst:
      return step % 4 == 3 ? candidates{experts(0, hot), 2, true}
                           : candidates{experts(0, shape.experts), 1, true};
    case workload::balanced:
    case workload::ragged_sources:
      break;
  }
  return {experts(0, shape.experts), 1, true};
}

/// Returns the first token of every rank, and the number of tokens. Ranks hold equally many tokens;
/// of ragged sources, rank r holds r + 1 parts.
[[nodiscard]] inline std::vector<std::int64_t> source_offsets(workload kind, std::int64_t tokens,
                                                              std::int64_t ranks) {
  auto const parts_before = [&](std::int64_t rank) {
    return kind == workload::ragged_sources ? rank * (rank + 1) / 2 : rank;
  };
  std::vector<std::int64_t> offsets;
  for (std::int64_t rank = 0; rank <= ranks; ++rank) {
    offsets.push_back(tokens * parts_before(rank) / parts_before(ranks));
  }
  return offsets;
}

namespace detail {

/// Draws sets of distinct experts: the first steps of a Fisher-Yates shuffle, which is as good from
/// any order as from the first one.
class expert_urn {
 public:
  explicit expert_urn(std::vector<std::int64_t> experts) : experts_(std::move(experts)) {}

  /// Returns `count` experts, chosen by random numbers of `subsequence` from `index` on.
  std::span<std::int64_t const> draw(std::int64_t count, std::uint64_t seed,
                                     std::uint64_t subsequence, std::uint64_t index) {
    auto const wanted = static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < wanted; ++i) {
      std::uint64_t const high = plimsoll::random::bits(seed, subsequence, index + i) >> 32;
      std::size_t const other = i + static_cast<std::size_t>((high * (experts_.size() - i)) >> 32);
      std::swap(experts_[i], experts_[other]);
    }
    return std::span(experts_).first(wanted);
  }

 private:
  std::vector<std::int64_t> experts_;
};

}  // namespace detail

/// Counts the token copies of one layer in one step, for each source rank and expert. The
/// choices depend on the workload, the seed, the layer and the step, but not on the ranks.
/// @param offsets  from `source_offsets`
/// @param counts   [ranks, experts]
inline void count_workload(workload kind, workload_shape const& shape, std::uint64_t seed,
                           std::int64_t layer, std::int64_t step,
                           std::span<std::int64_t const> offsets, std::span<std::int32_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  std::vector<std::int64_t> everyone(static_cast<std::size_t>(shape.experts));
  std::iota(everyone.begin(), everyone.end(), std::int64_t{0});
  candidates const some = candidates_of(kind, shape, step);
  detail::expert_urn of_some(some.experts);
  detail::expert_urn of_all(everyone);
  auto const subsequence =
      workload_names.size() * static_cast<std::uint64_t>(layer) + static_cast<std::uint64_t>(kind);
  auto const experts = static_cast<std::size_t>(shape.experts);
  for (std::size_t rank = 0; rank + 1 < offsets.size(); ++rank) {
    std::span<std::int32_t> const of_rank = counts.subspan(rank * experts, experts);
    for (std::int64_t t = offsets[rank]; t < offsets[rank + 1]; ++t) {
      if (kind == workload::balanced) {
        for (std::int64_t j = 0; j < shape.top_k; ++j) {
          ++of_rank[static_cast<std::size_t>((t * shape.top_k + j) % shape.experts)];
        }
        continue;
      }
      std::uint64_t const index =
          (static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(shape.tokens) +
           static_cast<std::uint64_t>(t)) *
          static_cast<std::uint64_t>(shape.top_k);
      detail::expert_urn& urn = some.chosen_by(t) ? of_some : of_all;
      for (std::int64_t const e : urn.draw(shape.top_k, seed, subsequence, index)) {
        ++of_rank[static_cast<std::size_t>(e)];
      }
    }
  }
}

}  // namespace make_loads
