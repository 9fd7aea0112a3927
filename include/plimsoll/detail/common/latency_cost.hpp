// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cost models of ranks as bodies call them: latency curves, which consist of pieces, the lookup of
/// a piece, and costs per token.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

namespace detail {

/// Straight piece of a latency curve.
struct latency_piece {
  double begin;
  double latency;
  double slope;
  double limit;  ///< latency at the end of the piece, which a rounded latency must not exceed

  PLIMSOLL_HD double operator()(double tokens) const {
    return minimum{}(mul_then_add(slope, add(tokens, -begin), latency), limit);
  }
};

/// Rounds tokens up: a fraction of a token takes as long as a whole token. For 0 to below 2^53.
PLIMSOLL_HD inline double whole_tokens(double tokens) {
  auto const below = static_cast<double>(static_cast<std::int64_t>(tokens));
  return below < tokens ? below + 1 : below;
}

/// Returns piece i of the `samples + 1` pieces of a rank's curve: up to the first sample (i = 0),
/// from sample i - 1 to sample i, or past the last sample (i = samples). A piece includes its right
/// end.
PLIMSOLL_HD inline latency_piece piece_of(latency_curves const& curves, index_t rank, index_t i) {
  index_t const samples = curves.tokens.extent(0);
  index_t const row = curves.latency.extent(0) == 1 ? 0 : rank;
  auto const latency_at = [&](index_t sample) {
    double const latency = curves.latency(row, sample);
    return curves.speeds.data == nullptr ? latency : divide(latency, curves.speeds[rank]);
  };
  bool const is_past = i == samples;
  if (i == 0 || (!is_past && curves.tokens[i] <= curves.dense_until)) {
    return {0.0, latency_at(i), 0.0, latency_at(i)};
  }
  index_t const to = is_past ? i - 1 : i;
  double const slope = divide(add(latency_at(to), -latency_at(to - 1)),
                              static_cast<double>(curves.tokens[to] - curves.tokens[to - 1]));
  return {static_cast<double>(curves.tokens[i - 1]), latency_at(i - 1), slope,
          is_past ? highest<double> : latency_at(i)};
}

}  // namespace detail

PLIMSOLL_HD inline double latency_curves::operator()(index_t rank, double tokens_of_rank) const {
  double const n = detail::whole_tokens(tokens_of_rank);
  index_t first = 0;  // the first sample of at least n tokens
  for (index_t size = tokens.extent(0); size > 0;) {
    index_t const half = size / 2;
    bool const is_below = static_cast<double>(tokens[first + half]) < n;
    first += is_below ? half + 1 : 0;
    size = is_below ? size - half - 1 : half;
  }
  return n == 0 && tokens[0] > 0 ? 0.0 : detail::piece_of(*this, rank, first)(n);
}

PLIMSOLL_HD inline double latency_lookup::operator()(index_t rank, double tokens) const {
  double const n = detail::whole_tokens(tokens);
  index_t const bucket = detail::minimum{}(static_cast<index_t>(n) >> shift_, buckets_ - 1);
  index_t piece = first_[bucket];
  for (index_t last = first_[bucket + 1]; piece < last;) {
    index_t const middle = piece + (last - piece) / 2;
    bool const is_past = ends_[middle] < n;
    piece = is_past ? middle + 1 : piece;
    last = is_past ? last : middle;
  }
  return piece_[rank * pieces_ + piece](n);
}

PLIMSOLL_HD inline double token_cost::operator()(index_t rank, double tokens) const {
  return speeds.data == nullptr ? tokens : detail::divide(tokens, speeds[rank]);
}

PLIMSOLL_HD inline double moe_cost::operator()(double tokens, index_t experts) const {
  double const weights = detail::mul_then_add(per_expert, static_cast<double>(experts), launch);
  double const counted = detail::maximum{}(detail::add(tokens, -flat_below), 0.0);
  return tokens > 0 ? detail::mul_then_add(per_token, counted, weights) : 0.0;
}

}}  // namespace plimsoll
