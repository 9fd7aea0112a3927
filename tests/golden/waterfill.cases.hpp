// SPDX-License-Identifier: Apache-2.0
// Levels, slack and probabilities of SGLang's Waterfill, without a preference for home.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/waterline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

/// Several placements of one source's tokens: copies of them in a batch, one batch per subsequence.
struct waterfill_run {
  plimsoll::waterline_options line;
  std::vector<std::int32_t> ids;    ///< [tokens, k]
  std::vector<std::int64_t> loads;  ///< [2, ranks]: sum over all sources
  index_t source = 0;
  index_t copies = 1;
  index_t streams = 1;
};

struct waterfill_outcome {
  std::vector<std::int64_t> counts;  ///< [2, ranks]: this source's counts
  std::vector<std::int64_t> slack;
  plimsoll::waterline_report report;
  std::vector<std::int32_t> ranks;  ///< [streams, copies, tokens]
};

template <class P>
waterfill_outcome outcome_of(waterfill_run const& run) {
  index_t const k = run.line.top_k;
  index_t const tokens = std::ssize(run.ids) / k;
  index_t const rows = run.copies * tokens;
  std::vector<std::int32_t> copied;
  for (index_t i = 0; i < run.copies; ++i) {
    copied.insert(copied.end(), run.ids.begin(), run.ids.end());
  }
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const ids(copied);
  array_in<std::int64_t, P> const loads(run.loads);
  array_in<std::int64_t, P> counts(2 * run.line.on.ranks, -7);
  array_in<std::int32_t, P> ranks(run.streams * rows, -7);
  array_in<std::int32_t, P> out(rows * (k + 1), -7);
  plimsoll::waterline line(policy, run.line);
  line.count(ids.view2(tokens, k), run.source, counts.view2(2, run.line.on.ranks));
  for (index_t i = 0; i < run.streams; ++i) {
    line.plan(loads.view2(2, run.line.on.ranks), run.source);
    plimsoll::filled_rows placed;
    placed.ranks = {ranks.data() + i * rows, rows};
    plimsoll::waterline_batch batch;
    batch.subsequence = static_cast<std::uint64_t>(i);
    line.fill(ids.view2(rows, k), run.source, batch, out.view2(rows, k + 1), placed);
  }
  line.check();
  return {counts.values(), plimsoll::read(policy, line.slack()),
          plimsoll::read(policy, line.report()), ranks.values()};
}
using waterfill_fn = waterfill_outcome (*)(waterfill_run const&);

/// Frequency of an event: the expected one and the one seen.
struct frequency {
  double expected = 0;
  double variance = 0;
  double seen = 0;

  void add(double probability, double draws, double hits) {
    expected += probability * draws;
    variance += probability * (1 - probability) * draws;
    seen += hits;
  }
  /// Tells whether the event is within bounds. Seeds are fixed, so the result is always the same.
  [[nodiscard]] bool within(double deviations, double more = 0) const {
    return variance == 0 ? seen == expected
                         : std::fabs(seen - expected) <= deviations * std::sqrt(variance) + more;
  }
};

/// Draws of rows, by rank.
class drawn_rows {
 public:
  explicit drawn_rows(index_t ranks) : of_rank_(static_cast<std::size_t>(ranks)) {}

  /// @param hits how often a row went to each rank
  void add(std::vector<double> const& probability, std::vector<std::int64_t> const& hits,
           index_t home) {
    auto const draws =
        static_cast<double>(std::accumulate(hits.begin(), hits.end(), std::int64_t{0}));
    for (std::size_t r = 0; r < hits.size(); ++r) {
      auto const seen = static_cast<double>(hits[r]);
      frequency one;
      one.add(probability[r], draws, seen);
      good_ = good_ && (probability[r] > 0 || seen == 0) && one.within(5, 3);
      of_rank_[r].add(probability[r], draws, seen);
      if (static_cast<index_t>(r) == home) {
        at_home_.add(probability[r], draws, seen);
      }
    }
  }
  void check() const {
    CHECK(good_);
    CHECK(at_home_.within(4));
    for (frequency const& one : of_rank_) {
      CHECK(one.within(4));
    }
  }
  [[nodiscard]] double mean(std::size_t rank, index_t draws) const {
    return of_rank_[rank].seen / static_cast<double>(draws);
  }
  [[nodiscard]] double deviation(std::size_t rank, index_t draws) const {
    return std::sqrt(of_rank_[rank].variance) / static_cast<double>(draws);
  }

 private:
  std::vector<frequency> of_rank_;
  frequency at_home_;
  bool good_ = true;
};

inline plimsoll::waterline_options sampled_line(golden_case const& golden) {
  plimsoll::waterline_options line;
  line.on.ranks = golden.integer("params.ranks");
  line.method = plimsoll::fill_method::sampled;
  line.local_preference = 1;
  line.node_preference = 1;
  line.min_tokens = 0;
  line.seed = 1;
  return line;
}

/// Returns the probabilities of candidates by the slack of `waterline`, or those of a fallback.
inline std::vector<double> odds(std::vector<std::int64_t> const& slack,
                                std::vector<bool> const& is_candidate, std::int32_t fallback) {
  std::vector<double> result(slack.size(), 0.0);
  std::int64_t all = 0;
  for (std::size_t r = 0; r < slack.size(); ++r) {
    all += is_candidate[r] ? slack[r] : 0;
  }
  CHECK((all == 0) == (fallback >= 0));
  for (std::size_t r = 0; r < slack.size(); ++r) {
    if (is_candidate[r] && all > 0) {
      result[r] = static_cast<double>(slack[r]) / static_cast<double>(all);
    }
  }
  if (all == 0) {
    result[static_cast<std::size_t>(fallback)] = 1;
  }
  return result;
}

inline double distance(std::vector<double> const& a, double const* b) {
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    result = std::max(result, std::fabs(a[i] - b[i]));
  }
  return result;
}

inline void check_waterfill_tokens(golden_case const& golden, waterfill_fn outcome_of,
                                   fnv1a& hash) {
  auto const ids = golden.array<std::int32_t>("topk_ids");
  auto const home = golden.array<std::int32_t>("local_rank");
  auto const load = golden.array<std::int64_t>("load");
  auto const slack = golden.array<std::int64_t>("slack");
  auto const candidates = golden.array<std::int32_t>("candidates");
  auto const probability = golden.array<double>("probability");
  auto const fallback = golden.array<std::int32_t>("fallback_target");
  auto const of_all_ranks = golden.array<double>("probability_all_ranks");
  auto const local_load = golden.array<std::int64_t>("local_load");
  auto const waterline = golden.integer("expected.waterline");
  plimsoll::waterline_options line = sampled_line(golden);
  auto const ranks = static_cast<std::size_t>(line.on.ranks);
  auto const k = static_cast<std::size_t>(golden.integer("params.top_k"));
  line.slots = golden.integer("params.experts");
  line.top_k = static_cast<index_t>(k);
  line.max_tokens = 10 * golden.integer("params.tokens");

  // Numbers of the tokens of every source.
  std::vector<std::vector<std::size_t>> tokens(ranks);
  for (std::size_t t = 0; t < home.size(); ++t) {
    tokens[static_cast<std::size_t>(home[t])].push_back(t);
  }
  std::vector<waterfill_run> runs(ranks);
  std::vector<std::int64_t> loads = load;
  for (std::size_t source = 0; source < ranks; ++source) {
    loads.push_back(std::ssize(tokens[source]));
    runs[source].source = static_cast<index_t>(source);
    for (std::size_t const t : tokens[source]) {
      auto const first = ids.begin() + static_cast<std::ptrdiff_t>(t * k);
      runs[source].ids.insert(runs[source].ids.end(), first,
                              first + static_cast<std::ptrdiff_t>(k));
    }
  }

  for (plimsoll::candidate_ranks const reach :
       {plimsoll::candidate_ranks::visited, plimsoll::candidate_ranks::all}) {
    CAPTURE(static_cast<int>(reach));
    bool const all = reach == plimsoll::candidate_ranks::all;
    auto const expected_load =
        golden.array<double>(all ? "expected_load_all_ranks" : "expected_load");
    drawn_rows drawn(line.on.ranks);
    std::vector<std::int64_t> counts(2 * ranks, 0);
    std::vector<double> mean(load.begin(), load.end());
    for (waterfill_run& run : runs) {
      CAPTURE(run.source);
      run.line = line;
      run.line.candidates = reach;
      run.loads = loads;
      run.copies = 10;
      run.streams = 40;
      waterfill_outcome const got = outcome_of(run);
      std::transform(counts.begin(), counts.end(), got.counts.begin(), counts.begin(),
                     std::plus<>{});
      CHECK(got.report.level == static_cast<double>(waterline));
      CHECK(got.report.home_peak == golden.real("expected.local_max"));
      CHECK(got.slack == slack);
      auto const& own = tokens[static_cast<std::size_t>(run.source)];
      CHECK(got.report.rows == run.copies * std::ssize(own));
      for (std::size_t i = 0; i < own.size(); ++i) {
        std::size_t const t = own[i];
        std::vector<bool> is_candidate(ranks, all);
        is_candidate[static_cast<std::size_t>(run.source)] = true;
        for (std::size_t j = 0; j < k; ++j) {
          is_candidate[static_cast<std::size_t>(ids[t * k + j] * line.on.ranks / line.slots)] =
              true;
        }
        auto const p = odds(got.slack, is_candidate, all ? -1 : fallback[t]);
        CHECK(distance(p, all ? of_all_ranks.data() : &probability[t * ranks]) <= 1e-12);
        for (std::size_t r = 0; r < ranks && !all; ++r) {
          CHECK(is_candidate[r] == (candidates[t * ranks + r] != 0));
        }
        std::vector<std::int64_t> hits(ranks, 0);
        for (std::size_t at = i; at < got.ranks.size(); at += own.size()) {
          ++hits.at(static_cast<std::size_t>(got.ranks[at]));
        }
        drawn.add(p, hits, run.source);
        for (std::size_t r = 0; r < ranks; ++r) {
          mean[r] += p[r];
        }
      }
      hash.add(got.ranks);
    }
    CHECK(counts == loads);
    drawn.check();
    for (std::size_t r = 0; r < ranks; ++r) {
      CHECK(std::fabs(mean[r] - expected_load[r]) <= 1e-9 * expected_load[r]);
      double const sampled = static_cast<double>(load[r]) + drawn.mean(r, 400);
      CHECK(std::fabs(sampled - expected_load[r]) <= 4 * drawn.deviation(r, 400) + 1e-9);
    }

    // The surplus method has a deterministic peak.
    std::vector<std::int64_t> final_load = load;
    std::int64_t const lowest =
        std::max<std::int64_t>(waterline, *std::max_element(load.begin(), load.end()));
    for (waterfill_run& run : runs) {
      run.line.method = plimsoll::fill_method::surplus;
      run.copies = 1;
      run.streams = 1;
      waterfill_outcome const got = outcome_of(run);
      CHECK(got.report.level == static_cast<double>(lowest));
      for (std::int32_t const r : got.ranks) {
        ++final_load.at(static_cast<std::size_t>(r));
      }
      hash.add(got.ranks);
    }
    std::int64_t const peak = *std::max_element(final_load.begin(), final_load.end());
    CHECK(peak >= lowest);
    CHECK(peak <= (all ? lowest : *std::max_element(local_load.begin(), local_load.end())));
  }
}

inline void check_waterfill_loads(golden_case const& golden, waterfill_fn outcome_of, fnv1a& hash) {
  auto const loads = golden.array<std::int64_t>("loads");
  auto const rows = golden.array<std::int64_t>("slots");
  auto const waterlines = golden.array<std::int64_t>("waterlines");
  auto const slacks = golden.array<std::int64_t>("slacks");
  auto const candidates = golden.array<std::int32_t>("candidates");
  auto const home = golden.array<std::int32_t>("local_rank");
  auto const fallback = golden.array<std::int32_t>("fallback_target");
  auto const probability = golden.array<double>("probability");
  // One slot on every rank, and copies of the same token.
  waterfill_run run;
  run.line = sampled_line(golden);
  run.line.slots = run.line.on.ranks;
  run.line.top_k = run.line.on.ranks;
  run.line.max_tokens = 200;
  run.copies = 200;
  run.streams = 2;
  auto const ranks = static_cast<std::size_t>(run.line.on.ranks);
  drawn_rows drawn(run.line.on.ranks);
  for (std::size_t q = 0; q < rows.size(); ++q) {
    CAPTURE(q);
    auto const source = static_cast<std::size_t>(home[q]);
    run.source = home[q];
    run.loads.assign(loads.begin() + static_cast<std::ptrdiff_t>(q * ranks),
                     loads.begin() + static_cast<std::ptrdiff_t>((q + 1) * ranks));
    run.loads.resize(2 * ranks, 0);
    run.loads[ranks + source] = rows[q];
    std::vector<bool> is_candidate(ranks);
    run.ids.assign(ranks, -1);
    for (std::size_t r = 0; r < ranks; ++r) {
      is_candidate[r] = candidates[q * ranks + r] != 0;
      if (is_candidate[r] && r != source) {
        run.ids[r] = static_cast<std::int32_t>(r);
      }
    }
    CHECK(is_candidate[source]);
    if (*std::max_element(run.ids.begin(), run.ids.end()) < 0) {
      run.ids[0] = home[q];  // without a valid expert there would be no row
    }
    waterfill_outcome const got = outcome_of(run);
    CHECK(got.report.level == static_cast<double>(waterlines[q]));
    CHECK(std::equal(got.slack.begin(), got.slack.end(), &slacks[q * ranks]));
    auto const p = odds(got.slack, is_candidate, fallback[q]);
    if (fallback[q] < 0) {
      CHECK(distance(p, &probability[q * ranks]) <= 1e-12);
    }
    std::vector<std::int64_t> hits(ranks, 0);
    for (std::int32_t const r : got.ranks) {
      ++hits.at(static_cast<std::size_t>(r));
    }
    drawn.add(p, hits, run.source);
    hash.add(got.ranks);
  }
  drawn.check();
}

// The checks of a case are compiled once for all policies.
inline void check_waterfill(waterfill_fn outcome_of) {
  for (golden_case const& golden : golden_cases("waterfill")) {
    std::string const name = golden.name();
    CAPTURE(name);
    fnv1a hash;
    (golden.text("params.kind") == "tokens" ? check_waterfill_tokens : check_waterfill_loads)(
        golden, outcome_of, hash);
    report_hash_value("golden.waterfill." + name, hash.value());
  }
}

TEST_SUITE("golden.waterfill") {
  PLIMSOLL_TEST_CASE("golden: waterfill", P, PLIMSOLL_PREPARED_POLICIES) {
    check_waterfill(outcome_of<P>);
  }
}

}  // namespace plimsoll_test
