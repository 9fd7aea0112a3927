// SPDX-License-Identifier: Apache-2.0
/// @file
/// A placement of one cell that a search changes: costs of ranks, and a lower bound.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Ranks and replicas of one cell. Ranks count from the first of the cell.
template <class Team>
class placed_cell {
 public:
  PLIMSOLL_HD placed_cell(Team& team, packing_problem const& problem) : team_(team), p_(problem) {}

  PLIMSOLL_HD index_t usable_slots() const {
    return team_.sum(p_.cell.ranks, [this](index_t r) { return p_.end(r) - p_.begin(r); });
  }
  PLIMSOLL_HD double speed(index_t rank) const { return p_.where.speed(p_.cell.first_rank + rank); }
  /// Cost of a load on a rank. Loads are whole numbers below 2^53, so their sums are exact.
  PLIMSOLL_HD double cost(index_t rank, double carried) const {
    return p_.where.speeds.data == nullptr ? carried : divide(carried, speed(rank));
  }

  /// Returns a lower bound for plans with any counts: the mean, and the smallest possible weight of
  /// the heaviest replica with these slots.
  PLIMSOLL_HD double bound_for_any_counts(load_bound& least) const {
    index_t const n = p_.cell.experts;
    index_t const ranks = p_.cell.ranks;
    auto const open_speed = [this](index_t r) { return p_.end(r) > p_.begin(r) ? speed(r) : 0.0; };
    least = {0, 0, true};
    if (n == 0) {
      return 0;
    }
    fixed_load const total =
        team_.sum(n, [this](index_t i) { return p_.load[p_.where.expert_of(p_.cell, i)]; });
    least.total = total;
    double const fastest = team_.max(ranks, open_speed);
    double const together = team_.sum_ordered(ranks, open_speed);
    double const mean = divide(static_cast<double>(total), together);
    // Bisection for the smallest weight to which all experts can be split within the slots. It
    // matters only if it exceeds the fastest rank's part of the mean.
    index_t const usable = usable_slots();
    auto const fits = [=, this](fixed_load weight) {
      return usable >= team_.sum(n, [=, this](index_t i) {
        auto const load = static_cast<double>(p_.load[p_.where.expert_of(p_.cell, i)]);
        // Smallest number of copies with load / copies, rounded down, at most `weight`.
        double const more = divide(load, static_cast<double>(weight + 1));
        return 1 + (more < static_cast<double>(usable) ? static_cast<index_t>(more) : usable);
      });
    };
    auto const part = static_cast<fixed_load>(multiply(mean, fastest));
    fixed_load low = part;
    fixed_load middle = low;
    for (fixed_load high = total; low < high; middle = low + (high - low) / 2) {
      if (fits(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    if (low == part) {
      return mean;
    }
    least.heaviest = low;
    return maximum{}(mean, divide(static_cast<double>(low), fastest));
  }

 protected:
  Team& team_;
  packing_problem const& p_;
};

}}}  // namespace plimsoll::detail
