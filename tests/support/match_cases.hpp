// SPDX-License-Identifier: Apache-2.0
// A body that ranks items within their bins, and what a plain loop says about the ranks.
#pragma once

#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "generators.hpp"

namespace plimsoll_test::match_cases {

using plimsoll::index_t;
using plimsoll::detail::scratch;
using plimsoll::detail::scratch_bytes_of;

inline constexpr index_t tile = plimsoll::detail::match_tile;
/// Calls of a problem, which share their storage.
inline constexpr index_t rounds = 2;

/// Most bins of a case that counts the items of bins.
inline constexpr index_t most_counted = plimsoll::detail::most_bins + 1;

struct match_case {
  index_t n;
  index_t bins;
};

/// Problem = case.
template <class DeviceTeam>
struct rank_items {
  using device_team = DeviceTeam;

  match_case const* cases;
  std::int32_t const* bin;  ///< `[cases, tile]`
  std::int32_t* ranks;      ///< `[cases, rounds, tile]`
  std::int64_t* seen;       ///< `[cases]`

  [[nodiscard]] PLIMSOLL_HD static std::size_t storage_bytes(index_t bins) {
    return scratch_bytes_of<std::byte>(plimsoll::detail::match_bytes<DeviceTeam>(bins));
  }
  /// With the most that a number of bins takes.
  [[nodiscard]] PLIMSOLL_HD static std::size_t room() {
    std::size_t result = 0;
    for (index_t const bins : {plimsoll::detail::most_bins, plimsoll::detail::most_bins + 1}) {
      result = plimsoll::detail::maximum{}(result, storage_bytes(bins));
    }
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<index_t>(1) + scratch_bytes_of<std::int32_t>(most_counted) + room();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    match_case const now = cases[problem];
    index_t* const round_now = memory.take<index_t>(1);
    auto* const counts = memory.take<std::int32_t>(most_counted);
    // At the end of the scratch, so that a byte too many is one outside.
    static_cast<void>(
        memory.take<std::byte>(static_cast<index_t>(room() - storage_bytes(now.bins))));
    std::byte* const storage =
        memory.take<std::byte>(plimsoll::detail::match_bytes<DeviceTeam>(now.bins));
    std::int32_t const* const own = bin + problem * tile;
    std::int64_t found = 0;
    for (index_t round = 0; round < rounds; ++round) {
      std::int32_t* const out = ranks + (problem * rounds + round) * tile;
      // The call sees what was stored, and the body sees the ranks.
      team.store(round_now, round);
      team.match_ranks(
          now.n,
          [=](index_t i) {
            return *round_now == round ? own[i] : static_cast<std::int32_t>(i % now.bins);
          },
          now.bins, out, now.bins <= most_counted ? counts : nullptr, storage);
      for (index_t i = 0; i < now.n; ++i) {
        found = found * 3 + out[i];
        found %= 1000003;
      }
      for (index_t b = 0; b < now.bins && now.bins <= most_counted; ++b) {
        found = found * 3 + counts[b];
        found %= 1000003;
      }
    }
    team.single([=, this] { seen[problem] = found; });
  }
};

struct inputs {
  std::vector<match_case> cases;
  std::vector<std::int32_t> bin;
};

struct results {
  std::vector<std::int32_t> ranks;
  std::vector<std::int64_t> seen;
};

/// Bins around the limits of the rankings; all items in one bin, as few as can be in each, at
/// random, and at random in few of the bins.
inline inputs make_inputs() {
  inputs result;
  generator random(7);
  for (index_t const bins : {1, 2, 32, 33, 256, 512, 513, 100000}) {
    for (index_t const n : {0, 1, 31, 32, 33, 511, 512}) {
      for (int kind = n > 32 ? 0 : 3; kind < 4; ++kind) {
        result.cases.push_back({n, bins});
        for (index_t i = 0; i < tile; ++i) {
          index_t const bin = kind == 0   ? bins - 1
                              : kind == 1 ? (bins - 1) - i % bins
                              : kind == 2 ? random.between(0, bins - 1)
                                          : random.between(0, 6) * (bins - 1) / 6;
          result.bin.push_back(i < n ? static_cast<std::int32_t>(bin) : -1);
        }
      }
    }
  }
  return result;
}

inline results blank_results(inputs const& in) {
  return {std::vector<std::int32_t>(in.bin.size() * static_cast<std::size_t>(rounds), -77),
          std::vector<std::int64_t>(in.cases.size(), -77)};
}

inline results expected_results(inputs const& in) {
  results out = blank_results(in);
  for (std::size_t c = 0; c < in.cases.size(); ++c) {
    std::int64_t found = 0;
    for (index_t round = 0; round < rounds; ++round) {
      std::int32_t const* const bin = in.bin.data() + static_cast<index_t>(c) * tile;
      std::int32_t* const ranks =
          out.ranks.data() + (static_cast<index_t>(c) * rounds + round) * tile;
      for (index_t i = 0; i < in.cases[c].n; ++i) {
        ranks[i] = 0;
        for (index_t j = 0; j < i; ++j) {
          ranks[i] += bin[j] == bin[i];
        }
        found = (found * 3 + ranks[i]) % 1000003;
      }
      for (index_t b = 0; b < in.cases[c].bins && in.cases[c].bins <= most_counted; ++b) {
        found = (found * 3 + std::count(bin, bin + in.cases[c].n, b)) % 1000003;
      }
    }
    out.seen[c] = found;
  }
  return out;
}

}  // namespace plimsoll_test::match_cases
