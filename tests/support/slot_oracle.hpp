// SPDX-License-Identifier: Apache-2.0
// CRAFT's algorithm 3 as in the paper: totals of every rank, a cutoff from the sorted list, and
// indices of the chosen ranks. Also a check of the properties of any such division.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll_test::oracle {

using slots_of_layers = std::vector<std::vector<std::int64_t>>;  // [layers][ranks]

/// Returns k of the given ranks, evenly spaced.
inline std::vector<std::size_t> interleave_select(std::vector<std::size_t> const& from,
                                                  std::size_t k, bool endpoints) {
  std::size_t const n = from.size();
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < k; ++i) {
    if (!endpoints) {
      chosen.push_back(from[i * n / k]);
    } else {
      chosen.push_back(from[k == 1 ? 0 : (2 * i * (n - 1) + (k - 1)) / (2 * (k - 1))]);
    }
  }
  return chosen;
}

/// Returns the slots of every layer and rank. `live[r]` is 0 for a rank that gets no slots.
inline slots_of_layers assign_slots(std::vector<std::int32_t> const& layer_slots,
                                    std::vector<std::uint8_t> const& live, bool endpoints) {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < live.size(); ++r) {
    if (live[r] != 0) {
      ranks.push_back(r);
    }
  }
  slots_of_layers slots(layer_slots.size(), std::vector<std::int64_t>(live.size(), 0));
  std::vector<std::int64_t> total(live.size(), 0);
  auto const d = static_cast<std::int64_t>(ranks.size());
  for (std::size_t l = 0; l < layer_slots.size(); ++l) {
    for (std::size_t const r : ranks) {
      slots[l][r] = layer_slots[l] / d;
      total[r] += slots[l][r];
    }
  }
  for (std::size_t l = 0; l < layer_slots.size(); ++l) {
    auto const extra = static_cast<std::size_t>(layer_slots[l] % d);
    if (extra == 0) {
      continue;
    }
    std::vector<std::int64_t> sorted;
    for (std::size_t const r : ranks) {
      sorted.push_back(total[r]);
    }
    std::sort(sorted.begin(), sorted.end());
    std::int64_t const cutoff = sorted[extra - 1];
    std::vector<std::size_t> selected;
    std::vector<std::size_t> tied;
    for (std::size_t const r : ranks) {
      if (total[r] < cutoff) {
        selected.push_back(r);
      } else if (total[r] == cutoff) {
        tied.push_back(r);
      }
    }
    for (std::size_t const r : interleave_select(tied, extra - selected.size(), endpoints)) {
      selected.push_back(r);
    }
    for (std::size_t const r : selected) {
      ++slots[l][r];
      ++total[r];
    }
  }
  return slots;
}

/// Returns the slots of every rank from rows of offsets, which must begin at 0 and rise to the
/// number of slots of the layer.
inline slots_of_layers from_offsets(std::vector<std::int32_t> const& offsets,
                                    std::vector<std::int32_t> const& layer_slots,
                                    std::size_t ranks) {
  slots_of_layers slots(layer_slots.size());
  REQUIRE(offsets.size() == layer_slots.size() * (ranks + 1));
  for (std::size_t l = 0; l < slots.size(); ++l) {
    auto const row = offsets.begin() + static_cast<std::ptrdiff_t>(l * (ranks + 1));
    CHECK(row[0] == 0);
    CHECK(row[static_cast<std::ptrdiff_t>(ranks)] == layer_slots[l]);
    for (std::size_t r = 0; r < ranks; ++r) {
      auto const at = row + static_cast<std::ptrdiff_t>(r);
      slots[l].push_back(std::int64_t{at[1]} - at[0]);
    }
  }
  return slots;
}

/// Checks that slots of live ranks differ by at most one in every layer, and so do their totals
/// after every layer, and that dead ranks have no slots.
inline void check_even(slots_of_layers const& slots, std::vector<std::uint8_t> const& live) {
  auto const spread = [&](std::vector<std::int64_t> const& values) {
    std::vector<std::int64_t> of_live_ranks;
    for (std::size_t r = 0; r < live.size(); ++r) {
      if (live[r] != 0) {
        of_live_ranks.push_back(values[r]);
      } else {
        CHECK(values[r] == 0);
      }
    }
    auto const [least, most] = std::minmax_element(of_live_ranks.begin(), of_live_ranks.end());
    return *most - *least;
  };
  std::vector<std::int64_t> total(live.size(), 0);
  for (std::size_t l = 0; l < slots.size(); ++l) {
    CAPTURE(l);
    for (std::size_t r = 0; r < live.size(); ++r) {
      CHECK(slots[l][r] >= 0);
      total[r] += slots[l][r];
    }
    CHECK(spread(slots[l]) <= 1);
    CHECK(spread(total) <= 1);
  }
}

}  // namespace plimsoll_test::oracle
