// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `latency_table`, `rank_latencies` and `step_latencies`: token counts of a sampling
/// plan, checks of curves and costs, pieces of curves with their index, launches, and messages
/// about values that searches and replays refuse.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/latency.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/common/latency_cost.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline constexpr std::size_t sample_limit = std::size_t{1} << 24;

/// Returns the token counts of a sampling plan whose options are in range.
inline std::vector<std::int64_t> token_counts_of(std::string_view function,
                                                 latency_sampling_options const& options) {
  std::vector<std::int64_t> tokens{options.tile};
  while (tokens.back() < options.max_tokens || tokens.size() < 2) {
    if (tokens.size() == sample_limit) {
      fail(function, "options.max_tokens", "at most 2^24 samples", "more");
    }
    bool const is_dense = tokens.back() < options.dense_until;
    tokens.push_back(tokens.back() + (is_dense ? options.tile : options.sparse_step));
  }
  return tokens;
}

/// Throws unless the shapes of `curves` agree with each other and with `ranks`.
inline void expect_curves(std::string_view function, std::string_view argument,
                          latency_curves const& curves, index_t ranks) {
  std::string const prefix(argument);
  index_t const samples = curves.tokens.extent(0);
  index_t const rows = curves.latency.extent(0);
  expect_elements(function, text(prefix, ".tokens"), curves.tokens);
  expect_elements(function, text(prefix, ".latency"), curves.latency);
  expect_elements(function, text(prefix, ".speeds"), curves.speeds);
  expect_between(function, text(prefix, ".tokens"), 2, sample_limit, samples, "samples");
  expect_extent(function, text(prefix, ".latency"), samples, curves.latency.extent(1), "samples");
  if (rows != 1 && rows != ranks) {
    fail(function, text(prefix, ".latency"), text(ranks, " ranks, or 1 for all"), text(rows));
  }
  expect_elements(function, text(prefix, ".tokens"), curves.tokens);
  expect_elements(function, text(prefix, ".latency"), curves.latency);
  if (is_given(function, text(prefix, ".speeds"), curves.speeds)) {
    expect_extent(function, text(prefix, ".speeds"), ranks, curves.speeds.extent(0), "ranks");
  }
}

/// Throws if the cost is for a fixed number of ranks other than `ranks`.
template <class Cost>
void expect_cost(std::string_view function, Cost const& cost, index_t ranks) {
  if constexpr (std::same_as<Cost, latency_curves>) {
    expect_curves(function, "cost", cost, ranks);
  } else if constexpr (requires { cost.ranks(); }) {
    if constexpr (std::same_as<Cost, token_cost>) {
      expect_elements(function, "cost.speeds", cost.speeds);
    }
    if (cost.ranks() != 0) {
      expect_extent(function, "cost", ranks, cost.ranks(), "ranks");
    }
  }
}

/// Throws unless `speeds`, of a cost, are in range: an infinite speed gives a time of 0, a valid
/// number, so that no body would notice it.
inline void expect_cost_speeds(std::string_view function, argument_name const& cost,
                               std::vector<double> const& speeds) {
  for (std::size_t r = 0; r < speeds.size(); ++r) {
    if (!(speeds[r] >= 0x1p-64 && speeds[r] <= 0x1p64)) {
      expect_no_fault(function, fault_of(fault_kind::speed, static_cast<index_t>(r), speeds[r]), -1,
                      {{{"on.speeds", std::string(cost + ".speeds")}}});
    }
  }
}

inline void expect_moe_cost(std::string_view function, argument_name const& argument,
                            moe_cost const& cost) {
  auto const expect_one = [&](char const* member, double value) {
    if (!(value >= 0 && value < 0x1p960)) {
      fail(function, argument + member, "a number from 0 to below 2^960", text(value));
    }
  };
  expect_one(".launch", cost.launch);
  expect_one(".per_token", cost.per_token);
  expect_one(".per_expert", cost.per_expert);
  expect_one(".flat_below", cost.flat_below);
}

/// Checks the arguments that all replays of latencies share.
template <class Loads, class Cost>
void expect_replayable(std::string_view function, Loads const& loads,
                       placement_ref const& placement, Cost const& cost) {
  index_t const layers = loads.extent(1);
  index_t const experts = loads.extent(2);
  auto const& counts = placement.replica_count;
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_extent(function, "placement.physical_to_logical", layers,
                placement.physical_to_logical.extent(0), "layers");
  expect_ranked(function, placement, experts);
  expect_extent(function, "placement.replica_count", layers, counts.extent(0), "layers");
  expect_extent(function, "placement.replica_count", experts, counts.extent(1), "experts");
  expect_elements(function, "placement.replica_count", counts);
  expect_cost(function, cost, placement.ranks);
}

/// A checked copy of latency curves on the host. With `active`, only the speeds of live ranks are
/// compared.
struct host_curves {
  std::vector<std::int64_t> tokens;
  std::vector<double> latency;
  std::vector<double> speeds;
  latency_curves view;

  template <class Context>
  host_curves(std::string_view function, Context const& from, latency_curves const& curves,
              index_t ranks, vector_ref<std::uint8_t const> active) {
    index_t const samples = curves.tokens.extent(0);
    index_t const rows = curves.latency.extent(0);
    expect_curves(function, "curves", curves, ranks);
    tokens = on_host(from, curves.tokens);
    latency = rows_on_host(from, curves.latency);
    if (curves.speeds.data != nullptr) {
      speeds = on_host(from, curves.speeds);
    }
    view = {tokens, {latency.data(), rows, samples}, curves.dense_until, {}};
    if (!speeds.empty()) {
      view.speeds = speeds;
    }
    expect_samples(function);
    expect_values(function);
    if (!speeds.empty()) {
      std::vector<std::uint8_t> lives(speeds.size(), 1);
      if (active.data != nullptr) {
        lives = on_host(from, active);
      }
      expect_speeds(function, lives);
    }
  }

 private:
  void expect_samples(std::string_view function) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < (i == 0 ? 0 : tokens[i - 1] + 1) || tokens[i] >= load_limit) {
        fail(function, "curves.tokens", "rising numbers of tokens, from 0 to below 2^47",
             text(tokens[i], ", sample ", i));
      }
    }
    std::int64_t const dense = view.dense_until;
    if (dense != 0 && dense < tokens.back() &&
        !std::binary_search(tokens.begin(), tokens.end(), dense)) {
      fail(function, "curves.dense_until", "0, a sample, or at least the last one", text(dense));
    }
  }

  void expect_values(std::string_view function) const {
    index_t const samples = view.tokens.extent(0);
    for (index_t i = 0; i < view.latency.extent(0) * samples; ++i) {
      index_t const sample = i % samples;
      double const value = view.latency(i / samples, sample);
      double const least = sample == 0 ? 0.0 : view.latency(i / samples, sample - 1);
      if (!(value >= least && value < 0x1p800)) {
        fail(function, "curves.latency", "numbers from 0 that do not fall from sample to sample",
             text(value, ", rank ", i / samples, ", sample ", sample));
      }
    }
  }

  void expect_speeds(std::string_view function, std::vector<std::uint8_t> const& lives) const {
    constexpr fault_names names{{{"on.", "curves."}}};
    auto const speed_fault = [this](fault_kind kind, std::size_t r, index_t also) {
      return fault_of(kind, static_cast<index_t>(r), speeds[r], also);
    };
    std::size_t fastest = speeds.size();  // no live rank yet
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      if (!(speeds[r] >= topology::least_speed && speeds[r] <= topology::greatest_speed)) {
        expect_no_fault(function, speed_fault(fault_kind::speed, r, -1), -1, names);
      }
      if (lives[r] != 0 && (fastest == speeds.size() || speeds[r] > speeds[fastest])) {
        fastest = r;
      }
    }
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      if (lives[r] != 0 && speeds[r] < speeds[fastest] * topology::least_relative_speed) {
        expect_no_fault(function,
                        speed_fault(fault_kind::relative_speed, r, static_cast<index_t>(fastest)),
                        -1, names);
      }
    }
  }
};

/// The arrays of a `latency_lookup` on the host.
struct latency_piece_lists {
  std::vector<double> ends;           ///< `[pieces]`
  std::vector<latency_piece> pieces;  ///< `[ranks, pieces]`
  std::vector<std::int32_t> first;    ///< `[buckets + 1]`
  int shift = 0;

  /// Cuts checked curves, whose arrays are on the host, into pieces.
  latency_piece_lists(latency_curves const& curves, index_t ranks) {
    cut(curves, ranks);
    index_pieces(curves);
  }

 private:
  void cut(latency_curves const& curves, index_t ranks) {
    index_t const samples = curves.tokens.extent(0);
    bool const has_idle = curves.tokens[0] == 0;
    if (!has_idle) {
      ends.push_back(0);
    }
    for (index_t i = 0; i < samples; ++i) {
      ends.push_back(static_cast<double>(curves.tokens[i]));
    }
    ends.push_back(highest<double>);
    for (index_t r = 0; r < ranks; ++r) {
      if (!has_idle) {
        pieces.push_back({0, 0, 0, 0});
      }
      for (index_t i = 0; i <= samples; ++i) {
        pieces.push_back(piece_of(curves, r, i));
      }
    }
  }

  /// A bucket is no wider than the smallest gap between samples, unless that would take more than
  /// 2^16 buckets.
  void index_pieces(latency_curves const& curves) {
    index_t const samples = curves.tokens.extent(0);
    std::int64_t least_gap = load_limit;
    for (index_t i = 0; i < samples; ++i) {
      if (curves.tokens[i] > 0) {
        std::int64_t const before = i == 0 ? 0 : curves.tokens[i - 1];
        least_gap = std::min(least_gap, curves.tokens[i] - before);
      }
    }
    std::int64_t const last = curves.tokens[samples - 1];
    shift = bit_width(static_cast<std::uint64_t>(least_gap)) - 1;
    while ((last >> shift) >= (1 << 16)) {
      ++shift;
    }
    std::int32_t piece = 0;
    for (std::int64_t bucket = 0; bucket <= (last >> shift) + 1; ++bucket) {
      while (ends[static_cast<std::size_t>(piece)] < static_cast<double>(bucket << shift)) {
        ++piece;
      }
      first.push_back(piece);
    }
    first.push_back(static_cast<std::int32_t>(ends.size()) - 1);
  }
};

/// Names of arguments in messages of calls that refuse the speeds of a cost, not those of ranks.
inline constexpr fault_names latency_names{{{"on.speeds", "cost.speeds"}}};

/// Latency curves in the memory of a context, checked and cut into pieces. With `active`, which
/// the caller has checked, only the speeds of live ranks are compared.
template <class Context>
class latency_pieces {
 public:
  latency_pieces(std::string_view function, Context const& context, latency_curves const& curves,
                 index_t ranks, vector_ref<std::uint8_t const> active = {}) {
    expect_between(function, "ranks", 1, rank_limit, ranks, "ranks");
    host_curves const read(function, context, curves, ranks, active);
    latency_piece_lists const lists(read.view, ranks);
    ends_ = {context, lists.ends};
    pieces_ = {context, lists.pieces};
    first_ = {context, lists.first};
    lookup_.ranks_ = ranks;
    lookup_.pieces_ = ends_.size();
    lookup_.ends_ = ends_.data();
    lookup_.piece_ = pieces_.data();
    lookup_.first_ = first_.data();
    lookup_.buckets_ = first_.size() - 1;
    lookup_.shift_ = lists.shift;
  }
  [[nodiscard]] latency_lookup lookup() const { return lookup_; }

 private:
  buffer<double, Context> ends_;
  buffer<latency_piece, Context> pieces_;
  buffer<std::int32_t, Context> first_;
  latency_lookup lookup_;
};

/// Returns the number of reports of `enqueue_latencies`, per layer.
inline index_t latency_reports(index_t steps) { return 1 + latency_tiles{steps, 1}.count(); }

/// Validates the placement and replays the steps. `reports` has one element per layer for the
/// placement, then one per problem of the replay.
template <class Context, class Loads, class Cost>
void enqueue_latencies(Context const& context, Loads const& loads, placement_ref const& placement,
                       Cost const& cost, latency_outputs const& out, problem_report* reports) {
  auto const& map = placement.physical_to_logical;
  enqueue_validate(context, placement, {}, reports);
  latencies_body<Loads, Cost> const body{
      .loads = loads,
      .physical_to_logical = map,
      .replica_count = placement.replica_count,
      .ranges = {placement.rank_offsets, map.extent(1), placement.ranks},
      .cost = cost,
      .out = out,
      .reports = reports + loads.extent(1)};
  launch(context, body.problems(), body);
}

/// Checks the arguments of a replay apart from its outputs, and runs it.
template <class Context, class Loads, class Cost>
void run_latencies(std::string_view name, Context const& context, Loads const& loads,
                   placement_ref const& placement, Cost const& cost, latency_outputs const& out) {
  expect_replayable(name, loads, placement, cost);
  run_planning(name, context, loads.extent(1), latency_reports(loads.extent(0)), latency_names,
               [&](problem_report* reports) {
                 enqueue_latencies(context, loads, placement, cost, out, reports);
               });
}

}}}  // namespace plimsoll::detail
