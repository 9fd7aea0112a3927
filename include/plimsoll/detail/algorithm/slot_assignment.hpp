// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `assign_slots`: CRAFT's algorithm 3. Running totals differ by at most one, so each
/// rank stores only whether its total is the lower or the upper one.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Selects `chosen` of `tied` ranks, evenly spaced: the i-th at floor(i * tied / chosen), or, with
/// `endpoints`, at floor(i * (tied - 1) / (chosen - 1) + 1/2).
struct even_choice {
  std::uint32_t tied;
  std::uint32_t chosen;
  bool endpoints;

  /// Number of selected ranks before position `position`, 0 to tied: the least i whose position is
  /// not before `position`. There are fewer than 2^15 ranks, so 32 bits hold the products.
  PLIMSOLL_HD std::int32_t before(std::int32_t position) const {
    auto const p = static_cast<std::uint32_t>(position);
    std::uint32_t count = minimum{}(p, chosen);
    if (!endpoints) {
      count = (p * chosen + tied - 1) / tied;
    } else if (p > 0 && chosen > 1) {
      std::uint32_t const divisor = 2 * (tied - 1);
      count = ((2 * p - 1) * (chosen - 1) + divisor - 1) / divisor;
    }
    return static_cast<std::int32_t>(count);
  }
  /// Returns whether position `position`, below `tied`, is selected; `count` = before(position).
  /// The number before the next position is larger; to know that needs no second division.
  PLIMSOLL_HD bool selects(std::int32_t position, std::int32_t count) const {
    auto const p = static_cast<std::uint32_t>(position);
    auto const so_far = static_cast<std::uint32_t>(count);
    if (!endpoints) {
      return (p + 1) * chosen > so_far * tied;
    }
    return chosen > 1 ? (2 * p + 1) * (chosen - 1) > so_far * 2 * (tied - 1) : p < chosen;
  }
};

/// Level of a rank's running total; none for a dead rank.
enum class running_total : std::uint8_t { lower, upper, none };

/// The working memory of `slot_assignment_body`. It has one element more than ranks, for the end of
/// the last rank.
struct slot_assignment_arrays {
  scratch_ref memory;
  index_t ranks;

  running_total* totals = memory.take(ranks + 1);
  std::int32_t* live_before = memory.take(ranks + 1);
  std::int32_t* tied_before = memory.take(ranks + 1);
};

/// Problem = `layers` consecutive rows.
///
/// In each layer every live rank gets floor(slots / live), so ranks differ only by the remainder.
/// It goes to the ranks with the lowest running totals. These differ by at most one, so the level
/// of a rank, lower or upper, suffices.
struct slot_assignment_body {
  using device_team = block<128>;  // one round for most numbers of ranks

  vector_ref<std::int32_t const> layer_slots;  ///< `[problems * layers]`
  index_t layers;
  vector_ref<std::uint8_t const> active;  ///< `[ranks]` or empty
  index_t ranks;
  bool endpoints;
  matrix_ref<std::int32_t> rank_offsets;  ///< `[problems * layers, ranks + 1]`
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<slot_assignment_arrays>(ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    slot_assignment_arrays const arrays{memory, ranks};
    auto* const totals = arrays.totals;
    auto* const live_before = arrays.live_before;
    auto* const tied_before = arrays.tied_before;
    std::int32_t const live = team.exclusive_scan(
        ranks + 1, [this](index_t r) { return static_cast<std::int32_t>(lives(r)); }, live_before);
    index_t const first = problem * layers;
    index_t const negative =
        team.min(layers, [=, this](index_t l) { return layer_slots[first + l] < 0 ? l : layers; });
    problem_report outcome;
    if (live == 0) {
      outcome = refusal(fault_kind::no_rank);
    } else if (negative < layers) {
      outcome = refusal(fault_kind::layer_slots, negative, layer_slots[first + negative]);
    }
    team.single([=, this] { reports[problem] = outcome; });
    if (outcome.refused) {
      return;
    }

    team.for_each(ranks + 1, [=, this](index_t r) {
      totals[r] = lives(r) ? running_total::lower : running_total::none;
    });
    std::int32_t low = live;  // number of ranks on the lower level
    for (index_t layer = first; layer < first + layers; ++layer) {
      std::int32_t const base = layer_slots[layer] / live;
      std::int32_t const extra = layer_slots[layer] % live;
      // The remainder goes to a part of the lower level, or to all of it and a part of the upper.
      bool const all_low = extra >= low;
      running_total const rising = all_low ? running_total::upper : running_total::lower;
      std::int32_t const tied = all_low ? live - low : low;
      std::int32_t const chosen = all_low ? extra - low : extra;
      even_choice const choice{static_cast<std::uint32_t>(tied), static_cast<std::uint32_t>(chosen),
                               endpoints};
      team.exclusive_scan(
          ranks + 1, [=](index_t r) { return static_cast<std::int32_t>(totals[r] == rising); },
          tied_before);
      team.for_each(ranks + 1, [=, this](index_t r) {
        std::int32_t const before = tied_before[r];
        std::int32_t const low_before = all_low ? live_before[r] - before : 0;
        std::int32_t const chosen_before = choice.before(before);
        rank_offsets(layer, r) = base * live_before[r] + low_before + chosen_before;
        if (totals[r] == rising) {
          // If the whole lower level rises, it and the unchosen ranks of the upper level become the
          // new lower level.
          bool const is_chosen = choice.selects(before, chosen_before);
          totals[r] = is_chosen ? running_total::upper : running_total::lower;
        }
      });
      low = all_low ? live - chosen : low - chosen;
    }
  }

 private:
  PLIMSOLL_HD bool lives(index_t rank) const {
    return rank < ranks && (active.data == nullptr || active[rank] != 0);
  }
};

}}}  // namespace plimsoll::detail
