// SPDX-License-Identifier: Apache-2.0
/// @file
/// Latency curves, other cost models of ranks, and options of sampling plans. The bodies of the
/// callables are in detail/common/latency_cost.hpp.
#pragma once

#include <concepts>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// @brief Latency of every rank as a function of its number of tokens, interpolated from measured
/// samples.
///
/// A kernel works tile by tile, so its latency is a staircase; if a tile is a small part of the
/// work, straight lines are close enough. Up to `dense_until` tokens the curve is a staircase: n
/// tokens take as long as the first sample of at least n tokens. Above, latencies lie on lines
/// between neighboring samples, and past the last sample on the line through the last two. Without
/// a sample at 0 tokens, 0 tokens take no time, and any number up to the first sample takes as long
/// as that sample. A fraction of a token takes as long as a whole token. Latencies may be in any
/// unit of time.
///
/// The curves are callable as cost(rank, tokens), which searches for the sample: O(log samples).
/// `latency_table` gives the same values faster. Source: GEM (arXiv 2605.19945), section 3.3.2; the
/// rules for both ends of the curve are ours.
struct latency_curves {
  /// `[samples]`: strictly rising numbers of tokens, from 0; at least 2 samples.
  vector_ref<std::int64_t const> tokens = {};
  /// `[ranks, samples]`, or `[1, samples]` if ranks differ only in speed: at least 0, not falling
  /// from sample to sample.
  matrix_ref<double const> latency = {};
  /// Last number of tokens of the staircase: one of the samples, or at least the last sample
  /// (staircase only), or 0 (lines only).
  std::int64_t dense_until = 0;
  /// `[ranks]`: divisor of each rank's latency, 2^-64 to 2^64; of live ranks at least 2^-16 of the
  /// fastest. Empty: 1 for all.
  vector_ref<double const> speeds = {};

  PLIMSOLL_HD double operator()(index_t rank, double tokens_of_rank) const;
};

/// Cost equal to the number of tokens divided by the rank's speed. The objective of a search is
/// then the sum over steps of the largest rank load.
struct token_cost {
  /// `[ranks]`: speeds in any unit, 2^-64 to 2^64; of live ranks at least 2^-16 of the fastest.
  /// Empty: 1 for all.
  vector_ref<double const> speeds = {};

  [[nodiscard]] PLIMSOLL_HD constexpr index_t ranks() const { return speeds.extent(0); }
  PLIMSOLL_HD double operator()(index_t rank, double tokens) const;
};

/// The cost model of LLEP (arXiv 2601.17111): a launch, plus a cost per token and per expert. The
/// tokens that cost nothing are ours.
struct moe_cost {
  /// Cost of a rank that has any tokens.
  double launch = 0;
  /// Cost of each token.
  double per_token = 0;
  /// Cost of each expert.
  double per_expert = 0;
  /// Tokens of a rank that cost nothing beyond `launch`: in small batches a rank takes as long as
  /// it takes to read the weights, however many tokens share them.
  double flat_below = 0;

  /// Returns launch + per_token max(tokens - flat_below, 0) + per_expert experts, the cost of a
  /// rank that computes `tokens` tokens of `experts` experts; 0 without tokens.
  [[nodiscard]] PLIMSOLL_HD double operator()(double tokens, index_t experts) const;
  /// Other costs are called as cost(rank, tokens); this one does not know what a rank holds.
  template <std::floating_point Tokens>
  double operator()(index_t rank, Tokens tokens) const = delete;
};

namespace detail {

struct latency_piece;
template <class Context>
class latency_pieces;

}  // namespace detail

/// Latency curves prepared for fast lookup, callable as cost(rank, tokens). `latency_table::cost()`
/// returns it; it refers to the memory of the table.
class latency_lookup {
 public:
  [[nodiscard]] PLIMSOLL_HD constexpr index_t ranks() const { return ranks_; }
  PLIMSOLL_HD double operator()(index_t rank, double tokens) const;

 private:
  template <class Context>
  friend class detail::latency_pieces;

  // Curves are cut into pieces; an index leads from buckets of token counts to pieces.
  index_t ranks_ = 0;
  index_t pieces_ = 0;                            // pieces per rank; the first is for 0 tokens
  double const* ends_ = nullptr;                  // [pieces]: last token count, alike for all ranks
  detail::latency_piece const* piece_ = nullptr;  // [ranks, pieces]
  std::int32_t const* first_ = nullptr;  // [buckets + 1]: the first piece with counts of a bucket
  index_t buckets_ = 0;
  int shift_ = 0;  // a bucket covers 2^shift token counts
};

/// Options of `sampling_plan`.
struct latency_sampling_options {
  /// Number of tokens per tile of the kernel. The latency jumps where a new tile begins.
  std::int64_t tile = 64;
  /// Every multiple of `tile` is measured, up to the first that is at least `dense_until` tokens.
  std::int64_t dense_until = 512;
  /// Number of tokens between samples above `dense_until`.
  std::int64_t sparse_step = 1024;
  /// Most tokens that a rank can get in a step, at least 1. The last sample is at least this.
  std::int64_t max_tokens = 0;
};

/// Callable as cost(rank, tokens), which returns the latency of a rank.
template <class Cost>
concept latency_cost = requires(Cost const& cost, index_t rank, double tokens) {
  { cost(rank, tokens) } -> std::convertible_to<double>;
};

}}  // namespace plimsoll
