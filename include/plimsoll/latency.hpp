// SPDX-License-Identifier: Apache-2.0
/// @file
/// Latency of ranks: measured latency curves, and the latency of recorded steps under them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/latency.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/latency.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// @brief Latency of every rank as a function of its number of tokens, interpolated from measured
/// samples.
///
/// A kernel works tile by tile, so its latency is a staircase; if a tile is a small part of the
/// work, straight lines are close enough. Up to `dense_until` tokens the curve is a staircase: n
/// tokens take as long as the first sample of at least n tokens. Above, latencies lie on lines
/// between neighbouring samples, and past the last sample on the line through the last two. Without
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

  PLIMSOLL_HD double operator()(index_t rank, double tokens_of_rank) const {
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
};

/// Cost equal to the number of tokens divided by the rank's speed. The objective of a search is
/// then the sum over steps of the largest rank load.
struct token_cost {
  /// `[ranks]`: speeds in any unit, 2^-64 to 2^64; of live ranks at least 2^-16 of the fastest.
  /// Empty: 1 for all.
  vector_ref<double const> speeds = {};

  [[nodiscard]] PLIMSOLL_HD constexpr index_t ranks() const { return speeds.extent(0); }
  PLIMSOLL_HD double operator()(index_t rank, double tokens) const {
    return speeds.data == nullptr ? tokens : detail::divide(tokens, speeds[rank]);
  }
};

/// The cost model of LLEP (arXiv 2601.17111): a launch, plus a cost per token and per expert.
struct moe_cost {
  double launch = 0;
  double per_token = 0;
  double per_expert = 0;

  /// Returns the cost of a rank that computes `tokens` tokens of `experts` experts; 0 without
  /// tokens.
  [[nodiscard]] PLIMSOLL_HD double operator()(double tokens, index_t experts) const {
    double const weights = detail::mul_then_add(per_expert, static_cast<double>(experts), launch);
    return tokens > 0 ? detail::mul_then_add(per_token, tokens, weights) : 0.0;
  }
};

namespace detail {

inline constexpr std::size_t sample_limit = std::size_t{1} << 24;

/// Throws unless the shapes of `curves` agree with each other and with `ranks`.
inline void expect_curves(std::string_view function, std::string_view argument,
                          latency_curves const& curves, index_t ranks) {
  std::string const prefix(argument);
  index_t const samples = curves.tokens.extent(0);
  index_t const rows = curves.latency.extent(0);
  expect_between(function, text(prefix, ".tokens"), 2, sample_limit, samples, "samples");
  expect_extent(function, text(prefix, ".latency"), samples, curves.latency.extent(1), "samples");
  if (rows != 1 && rows != ranks) {
    fail(function, text(prefix, ".latency"), text(ranks, " ranks, or 1 for all"), text(rows));
  }
  if (curves.speeds.data != nullptr) {
    expect_extent(function, text(prefix, ".speeds"), ranks, curves.speeds.extent(0), "ranks");
  }
}

}  // namespace detail

/// Options of `sampling_plan`.
struct latency_sampling_options {
  /// Tokens per tile of the kernel. The latency jumps where a new tile begins.
  std::int64_t tile = 64;
  /// Every multiple of `tile` is measured, up to the first that is at least `dense_until` tokens.
  std::int64_t dense_until = 512;
  /// Tokens between samples above `dense_until`.
  std::int64_t sparse_step = 1024;
  /// Most tokens that a rank can get in a step. The last sample is at least this.
  std::int64_t max_tokens = 0;
};

/// @brief Returns the numbers of tokens at which to measure a rank: every tile up to `dense_until`,
/// then every `sparse_step` tokens.
///
/// @return at least 2 rising numbers, the first of which is `tile`. Set
///   `latency_curves::dense_until` to `options.dense_until` rounded up to a multiple of `tile`
/// @throws invalid_input for `tile`, `sparse_step` or `max_tokens` below 1, a negative
///   `dense_until`, any of them above 2^32, and for more than 2^24 samples
/// @complexity O(samples)
inline std::vector<std::int64_t> sampling_plan(latency_sampling_options const& options) {
  constexpr char const* name = "sampling_plan";
  constexpr std::int64_t limit = std::int64_t{1} << 32;
  detail::expect_between(name, "options.tile", 1, limit, options.tile, "tokens");
  detail::expect_between(name, "options.dense_until", 0, limit, options.dense_until, "tokens");
  detail::expect_between(name, "options.sparse_step", 1, limit, options.sparse_step, "tokens");
  detail::expect_between(name, "options.max_tokens", 1, limit, options.max_tokens, "tokens");
  std::vector<std::int64_t> tokens{options.tile};
  while (tokens.back() < options.max_tokens || tokens.size() < 2) {
    if (tokens.size() == detail::sample_limit) {
      detail::fail(name, "options.max_tokens", "at most 2^24 samples", "more");
    }
    bool const is_dense = tokens.back() < options.dense_until;
    tokens.push_back(tokens.back() + (is_dense ? options.tile : options.sparse_step));
  }
  return tokens;
}

namespace detail {

/// Latency curves cut into pieces, with an index from buckets of token counts to pieces.
struct latency_lookup {
  index_t rank_count;
  index_t pieces;              ///< pieces per rank; the first is for 0 tokens
  double const* ends;          ///< `[pieces]`: last token count of each piece, alike for all ranks
  latency_piece const* piece;  ///< `[ranks, pieces]`
  std::int32_t const* first;   ///< `[buckets + 1]`: the first piece with token counts of a bucket
  index_t buckets;
  int shift;  ///< a bucket covers 2^shift token counts

  [[nodiscard]] PLIMSOLL_HD index_t ranks() const { return rank_count; }

  PLIMSOLL_HD double operator()(index_t rank, double tokens) const {
    double const n = whole_tokens(tokens);
    index_t const bucket = minimum{}(static_cast<index_t>(n) >> shift, buckets - 1);
    index_t at = first[bucket];
    for (index_t last = first[bucket + 1]; at < last;) {
      index_t const middle = at + (last - at) / 2;
      bool const is_past = ends[middle] < n;
      at = is_past ? middle + 1 : at;
      last = is_past ? last : middle;
    }
    return piece[rank * pieces + at](n);
  }
};

}  // namespace detail

namespace detail {

/// Latency curves in the memory of a context, checked and cut into pieces. With `active`, only the
/// speeds of live ranks are compared.
template <class Context>
class latency_pieces {
 public:
  latency_pieces(char const* name, Context const& context, latency_curves const& curves,
                 index_t ranks, vector_ref<std::uint8_t const> active = {}) {
    expect_between(name, "ranks", 1, rank_limit, ranks, "ranks");
    if (active.data != nullptr) {
      expect_extent(name, "options.active", ranks, active.extent(0), "ranks");
    }
    host_curves const read(name, context, curves, ranks, active);
    fill(context, read.view, ranks);
  }
  [[nodiscard]] latency_lookup lookup() const { return lookup_; }

 private:
  /// A checked copy of the curves on the host.
  struct host_curves {
    std::vector<std::int64_t> tokens;
    std::vector<double> latency;
    std::vector<double> speeds;
    latency_curves view;

    host_curves(char const* name, Context const& from, latency_curves const& curves, index_t ranks,
                vector_ref<std::uint8_t const> active) {
      index_t const samples = curves.tokens.extent(0);
      index_t const rows = curves.latency.extent(0);
      expect_curves(name, "curves", curves, ranks);
      tokens = on_host(from, curves.tokens);
      latency = rows_on_host(from, curves.latency);
      if (curves.speeds.data != nullptr) {
        speeds = on_host(from, curves.speeds);
      }
      view = {tokens, {latency.data(), rows, samples}, curves.dense_until, {}};
      if (!speeds.empty()) {
        view.speeds = speeds;
      }
      expect_samples(name);
      expect_values(name);
      if (!speeds.empty()) {
        std::vector<std::uint8_t> lives(speeds.size(), 1);
        if (active.data != nullptr) {
          lives = on_host(from, active);
        }
        expect_speeds(name, lives);
      }
    }

    void expect_samples(char const* name) const {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < (i == 0 ? 0 : tokens[i - 1] + 1) || tokens[i] >= load_limit) {
          fail(name, "curves.tokens", "rising numbers of tokens, from 0 to below 2^47",
               text(tokens[i], ", sample ", i));
        }
      }
      std::int64_t const dense = view.dense_until;
      if (dense != 0 && dense < tokens.back() &&
          !std::binary_search(tokens.begin(), tokens.end(), dense)) {
        fail(name, "curves.dense_until", "0, a sample, or at least the last one", text(dense));
      }
    }

    void expect_values(char const* name) const {
      index_t const samples = view.tokens.extent(0);
      for (index_t i = 0; i < view.latency.extent(0) * samples; ++i) {
        index_t const sample = i % samples;
        double const value = view.latency(i / samples, sample);
        double const least = sample == 0 ? 0.0 : view.latency(i / samples, sample - 1);
        if (!(value >= least && value < 0x1p800)) {
          fail(name, "curves.latency", "numbers from 0 that do not fall from sample to sample",
               text(value, ", rank ", i / samples, ", sample ", sample));
        }
      }
    }

    void expect_speeds(char const* name, std::vector<std::uint8_t> const& lives) const {
      double fastest = 0;
      for (std::size_t r = 0; r < speeds.size(); ++r) {
        if (!(speeds[r] >= topology::least_speed && speeds[r] <= topology::greatest_speed)) {
          fail(name, "curves.speeds", "values from 2^-64 to 2^64", text(speeds[r], ", rank ", r));
        }
        fastest = lives[r] == 0 ? fastest : std::max(fastest, speeds[r]);
      }
      for (std::size_t r = 0; r < speeds.size(); ++r) {
        if (lives[r] != 0 && speeds[r] < fastest * topology::least_relative_speed) {
          fail_relative_speed(name, "curves.speeds", speeds[r], static_cast<index_t>(r), fastest);
        }
      }
    }
  };

  void fill(Context const& context, latency_curves const& curves, index_t ranks) {
    index_t const samples = curves.tokens.extent(0);
    bool const has_idle = curves.tokens[0] == 0;
    std::vector<double> ends;
    if (!has_idle) {
      ends.push_back(0);
    }
    std::int64_t least_gap = load_limit;
    for (index_t i = 0; i < samples; ++i) {
      ends.push_back(static_cast<double>(curves.tokens[i]));
      if (curves.tokens[i] > 0) {
        std::int64_t const before = i == 0 ? 0 : curves.tokens[i - 1];
        least_gap = std::min(least_gap, curves.tokens[i] - before);
      }
    }
    ends.push_back(highest<double>);
    std::vector<latency_piece> pieces;
    for (index_t r = 0; r < ranks; ++r) {
      if (!has_idle) {
        pieces.push_back({0, 0, 0, 0});
      }
      for (index_t i = 0; i <= samples; ++i) {
        pieces.push_back(piece_of(curves, r, i));
      }
    }
    std::int64_t const last = curves.tokens[samples - 1];
    int shift = bit_width(static_cast<std::uint64_t>(least_gap)) - 1;
    while ((last >> shift) >= (1 << 16)) {
      ++shift;
    }
    std::vector<std::int32_t> first;
    std::int32_t at = 0;
    for (std::int64_t bucket = 0; bucket <= (last >> shift) + 1; ++bucket) {
      while (ends[static_cast<std::size_t>(at)] < static_cast<double>(bucket << shift)) {
        ++at;
      }
      first.push_back(at);
    }
    auto const buckets = static_cast<index_t>(first.size());
    first.push_back(static_cast<std::int32_t>(ends.size()) - 1);
    ends_ = {context, ends};
    pieces_ = {context, pieces};
    first_ = {context, first};
    lookup_ = {ranks,         static_cast<index_t>(ends.size()),
               ends_.data(),  pieces_.data(),
               first_.data(), buckets,
               shift};
  }

  buffer<double, Context> ends_;
  buffer<latency_piece, Context> pieces_;
  buffer<std::int32_t, Context> first_;
  latency_lookup lookup_{};
};

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Latency curves that are checked once and prepared for fast lookup.
///
/// `cost()` returns a callable cost(rank, tokens) that gives the same bits as the curves in nearly
/// constant time: it finds a sample by the upper bits of the number of tokens. The callable points
/// into the table, which must outlive it.
template <execution_policy P>
class latency_table {
 public:
  /// @brief Reads and checks the curves.
  ///
  /// @param policy the table is in this policy's memory, and `cost()` may be called where the
  ///   policy runs
  /// @param curves in the policy's memory
  /// @param ranks number of ranks, 1 to 32767; must equal the number of rows of `curves.latency`,
  ///   unless that is 1, and the number of `curves.speeds`
  /// @throws invalid_input for wrong shapes; for fewer than two samples; and, naming rank and
  ///   sample, for tokens that do not rise, latencies that are not finite, negative or falling, and
  ///   speeds out of range
  /// @complexity O(ranks samples)
  /// @workspace keeps 32 bytes per rank and sample, and 4 bytes per bucket. A bucket is no wider
  ///   than the smallest gap between samples, unless that would take more than 2^16 buckets
  /// @stream synchronises
  latency_table(P const& policy, latency_curves const& curves, index_t ranks)
      : pieces_("latency_table", detail::resolve(policy), curves, ranks) {}

  /// Returns the curves as a callable, which points to the policy's memory.
  [[nodiscard]] detail::latency_lookup cost() const { return pieces_.lookup(); }

 private:
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: a policy that dies with the call cannot be kept in a prepared object");

  detail::latency_pieces<std::remove_const_t<detail::context_of<P>>> pieces_;
};

template <execution_policy P>
latency_table(P const&, latency_curves const&, index_t) -> latency_table<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

namespace detail {

/// Callable as cost(rank, tokens), which returns the latency of a rank.
template <class Cost>
concept latency_cost = requires(Cost const& cost, index_t rank, double tokens) {
  { cost(rank, tokens) } -> std::convertible_to<double>;
};

/// Throws if the cost is for a fixed number of ranks other than `ranks`.
template <class Cost>
void expect_cost(std::string_view function, Cost const& cost, index_t ranks) {
  if constexpr (std::same_as<Cost, latency_curves>) {
    expect_curves(function, "cost", cost, ranks);
  } else if constexpr (requires { cost.ranks(); }) {
    if (cost.ranks() != 0) {
      expect_extent(function, "cost", ranks, cost.ranks(), "ranks");
    }
  }
}

template <class Context, class Loads, class Cost>
void latencies(char const* name, Context const& context, Loads const& load,
               placement_ref const& placement, Cost const& cost, matrix_ref<double> of_step,
               tensor_ref<double> of_rank) {
  auto const& map = placement.physical_to_logical;
  auto const& counts = placement.replica_count;
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_extent(name, "placement.physical_to_logical", layers, map.extent(0), "layers");
  ranked_source const source = expect_ranked(name, placement, experts);
  expect_extent(name, "placement.replica_count", layers, counts.extent(0), "layers");
  expect_extent(name, "placement.replica_count", experts, counts.extent(1), "experts");
  expect_elements(name, "placement.replica_count", counts);
  expect_cost(name, cost, placement.ranks);

  latencies_body<Loads, Cost> body{
      load, map,     counts,  {placement.rank_offsets, map.extent(1), placement.ranks},
      cost, of_step, of_rank, nullptr};
  buffer<problem_report, Context> const reports(context, layers + body.problems());
  body.reports = reports.data() + layers;
  launch(context, layers, validation_body{source, counts, {}, 0, {}, reports.data()});
  launch(context, body.problems(), body);
  collect(name, reports, layers, throw_latency_fault);
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Computes the latency of every rank in recorded steps under a placement.
///
/// latencies(t, l, r) = cost(r, tokens of rank r in step t). The replicas of an expert share its
/// load evenly. A rank without slots has 0 tokens.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; int32, uint32, int64, float,
///   double or generated; each at least 0, the total of a step below 2^47
/// @param placement one row per layer
/// @param cost callable as cost(rank, tokens) -> double where the policy runs: `latency_curves`,
///   `latency_table::cost()`, `token_cost` or your own; it must return at least 0
/// @param[out] latencies `[steps, layers, ranks]` double, in units of the cost
/// @throws invalid_input for wrong shapes; for a placement that `validate` refuses; and for wrong
///   loads and costs, naming layer, step and expert or rank, in which case the output is
///   unspecified
/// @complexity O(steps layers (experts + slots + ranks cost))
/// @workspace 64 bytes per layer and 8 steps; the workspace of `validate`; and 8 bytes per expert
///   and 16 bytes per rank for each problem in flight
/// @stream synchronises once
/// @determinism the same bits under every policy: tokens are added as integers
template <execution_policy P, load_tensor_view Loads, detail::latency_cost Cost,
          output_of<double, 3> Out>
void rank_latencies(P const& policy, Loads const& loads, placement_ref const& placement,
                    Cost const& cost, Out&& latencies) {
  constexpr char const* name = "rank_latencies";
  auto const load = detail::argument<3>(name, "loads", loads);
  tensor_ref<double> const out = detail::argument<3>(name, "latencies", latencies);
  detail::expect_extent(name, "latencies", load.extent(0), out.extent(0), "steps");
  detail::expect_extent(name, "latencies", load.extent(1), out.extent(1), "layers");
  detail::expect_extent(name, "latencies", placement.ranks, out.extent(2), "ranks");
  detail::latencies(name, detail::resolve(policy), load, placement, cost, {}, out);
}

/// @brief Computes the latency of recorded steps under a placement: that of the slowest rank.
///
/// latencies(t, l) is the maximum over ranks of `rank_latencies`. Its sum over the steps is GEM's
/// score of a layer's placement.
///
/// @param loads, placement, cost as `rank_latencies`
/// @param[out] latencies `[steps, layers]` double, in units of the cost
/// @throws invalid_input as `rank_latencies`
/// @complexity as `rank_latencies`
/// @workspace as `rank_latencies`
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads, detail::latency_cost Cost,
          output_of<double, 2> Out>
void step_latencies(P const& policy, Loads const& loads, placement_ref const& placement,
                    Cost const& cost, Out&& latencies) {
  constexpr char const* name = "step_latencies";
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<double> const out = detail::argument<2>(name, "latencies", latencies);
  detail::expect_extent(name, "latencies", load.extent(0), out.extent(0), "steps");
  detail::expect_extent(name, "latencies", load.extent(1), out.extent(1), "layers");
  detail::latencies(name, detail::resolve(policy), load, placement, cost, out, {});
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
