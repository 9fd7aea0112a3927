// SPDX-License-Identifier: Apache-2.0
// Replication and greedy placement the slow and obvious way: argmin loops over plain vectors, in
// the fixed point that the library documents. One layer at a time, integer loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace plimsoll_test::oracle {

using vector = std::vector<std::int64_t>;

/// Loads times the power of two that brings their total just below 2^47.
inline vector fixed(vector const& loads) {
  std::int64_t const total = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  vector result = loads;
  for (std::int64_t scale = 1; total > 0 && total * scale * 2 < (std::int64_t{1} << 47);
       scale *= 2) {
    for (std::int64_t& load : result) {
      load *= 2;
    }
  }
  return result;
}

inline vector replicate(vector const& loads, std::int64_t slots, vector copies,
                        vector const& most) {
  vector const load = fixed(loads);
  std::int64_t left = slots - std::accumulate(copies.begin(), copies.end(), std::int64_t{0});
  for (; left > 0; --left) {
    std::size_t best = load.size();
    for (std::size_t e = 0; e < load.size(); ++e) {
      if (copies[e] < most[e] &&
          (best == load.size() || load[e] / copies[e] > load[best] / copies[best])) {
        best = e;
      }
    }
    ++copies[best];
  }
  return copies;
}

/// Slots of the ranks from `offsets[0]` = 0 to `offsets[ranks]`; returns the expert of every slot.
inline vector place(vector const& loads, vector const& copies, vector const& offsets) {
  vector const load = fixed(loads);
  std::size_t const ranks = offsets.size() - 1;
  vector carried(ranks, 0);
  vector next(offsets.begin(), offsets.end() - 1);
  vector result(static_cast<std::size_t>(offsets.back()), -1);
  std::vector<bool> done(load.size(), false);
  for (std::size_t round = 0; round < load.size(); ++round) {
    std::size_t heaviest = load.size();
    for (std::size_t e = 0; e < load.size(); ++e) {
      if (!done[e] &&
          (heaviest == load.size() || load[e] / copies[e] > load[heaviest] / copies[heaviest])) {
        heaviest = e;
      }
    }
    done[heaviest] = true;
    for (std::int64_t copy = 0; copy < copies[heaviest]; ++copy) {
      std::size_t rank = ranks;
      for (std::size_t r = 0; r < ranks; ++r) {
        if (next[r] < offsets[r + 1] && (rank == ranks || carried[r] < carried[rank])) {
          rank = r;
        }
      }
      result[static_cast<std::size_t>(next[rank]++)] = static_cast<std::int64_t>(heaviest);
      carried[rank] += load[heaviest] / copies[heaviest];
    }
  }
  return result;
}

}  // namespace plimsoll_test::oracle
