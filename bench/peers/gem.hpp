// SPDX-License-Identifier: Apache-2.0
/// @file
/// GEM's algorithms 2 to 4 as the paper writes them: every placement that is tried is scored from
/// the trace.
#pragma once

#include <plimsoll/latency.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace plimsoll_bench::peers {

/// One layer; `trace` is `[steps, experts]` with rows so far apart.
class gem_loops {
 public:
  using index_t = plimsoll::index_t;

  gem_loops(std::int32_t const* trace, index_t steps, index_t pitch, index_t experts, index_t ranks,
            plimsoll::latency_curves const& curves)
      : trace_(trace),
        steps_(steps),
        pitch_(pitch),
        experts_(experts),
        ranks_(ranks),
        curves_(curves) {}

  /// The best score.
  double search(index_t restarts) const {
    double best = std::numeric_limits<double>::infinity();
    for (index_t restart = 0; restart < restarts; ++restart) {
      std::vector<index_t> map = start(restart);
      best = std::min(best, refine(map));
    }
    return best;
  }

 private:
  double score(std::vector<index_t> const& map) const {
    double sum = 0;
    std::vector<double> tokens(static_cast<std::size_t>(ranks_));
    for (index_t t = 0; t < steps_; ++t) {
      std::fill(tokens.begin(), tokens.end(), 0.0);
      for (std::size_t e = 0; e < map.size(); ++e) {
        if (map[e] >= 0) {
          tokens[static_cast<std::size_t>(map[e])] += trace_[t * pitch_ + static_cast<index_t>(e)];
        }
      }
      double longest = 0;
      for (index_t r = 0; r < ranks_; ++r) {
        longest = std::max(longest, curves_(r, tokens[static_cast<std::size_t>(r)]));
      }
      sum += longest;
    }
    return sum;
  }

  std::vector<index_t> start(index_t restart) const {
    std::vector<double> use(static_cast<std::size_t>(experts_));
    for (index_t e = 0; e < experts_; ++e) {
      for (index_t t = 0; t < steps_; ++t) {
        use[static_cast<std::size_t>(e)] += trace_[t * pitch_ + e];
      }
      double const z = 2 * plimsoll::random::uniform(6, static_cast<std::uint64_t>(restart),
                                                     static_cast<std::uint64_t>(e)) -
                       1;
      use[static_cast<std::size_t>(e)] *= restart == 0 ? 1.0 : 1 + 0.2 * z;
    }
    std::vector<std::size_t> order(use.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&use](std::size_t a, std::size_t b) { return use[a] > use[b]; });
    std::vector<index_t> map(use.size(), -1);
    std::vector<index_t> open(static_cast<std::size_t>(ranks_), experts_ / ranks_);
    for (std::size_t const e : order) {
      index_t best = -1;
      double least = 0;
      for (index_t r = 0; r < ranks_; ++r) {
        if (open[static_cast<std::size_t>(r)] > 0) {
          map[e] = r;
          double const s = score(map);
          if (best < 0 || s < least) {
            best = r;
            least = s;
          }
        }
      }
      map[e] = best;
      --open[static_cast<std::size_t>(best)];
    }
    return map;
  }

  double refine(std::vector<index_t>& map) const {
    for (double now = score(map);;) {
      double best = now;
      std::size_t first = 0;
      std::size_t second = 0;
      for (std::size_t a = 0; a < map.size(); ++a) {
        for (std::size_t b = a + 1; b < map.size(); ++b) {
          if (map[a] != map[b]) {
            std::swap(map[a], map[b]);
            double const s = score(map);
            if (s < best) {
              best = s;
              first = a;
              second = b;
            }
            std::swap(map[a], map[b]);
          }
        }
      }
      if (first == second) {
        return now;
      }
      std::swap(map[first], map[second]);
      double const gain = (now - best) / now;
      now = best;
      if (gain < 0.001) {
        return now;
      }
    }
  }

  std::int32_t const* trace_;
  index_t steps_;
  index_t pitch_;
  index_t experts_;
  index_t ranks_;
  plimsoll::latency_curves curves_;
};

}  // namespace plimsoll_bench::peers
