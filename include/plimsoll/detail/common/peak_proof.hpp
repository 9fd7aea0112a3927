// SPDX-License-Identifier: Apache-2.0
/// @file
/// Proof of the certificate of a packing.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Converts the peak and bound of a packing, computed from rounded loads and costs, to values that
/// hold for the loads as given. `bound` is at most the peak of every placement, and equals `peak`
/// only if that is the proven optimum, rounded. If loads were rounded, `peak` is at least the true
/// peak of this placement; if only load / copies was rounded, it may be lower by one unit of fixed
/// point for each replica of the rank.
template <class Team>
class peak_proof {
 public:
  /// `memory`: that of the packing, which it no longer needs.
  PLIMSOLL_HD peak_proof(Team& team, scratch memory, packing_problem const& problem)
      : team_(team),
        p_(problem),
        has_speeds_(problem.where.speeds.data != nullptr),
        low_(memory.take<fixed_load>(problem.where.ranks())),
        high_(memory.take<fixed_load>(problem.where.ranks())) {}

  PLIMSOLL_HD void settle(packing_result& result) const {
    load_bound const& least = result.least;
    index_t const ranks = p_.cell.ranks;
    auto const open_speed = [this](index_t r) { return slots_of(r) > 0 ? speed(r) : 0.0; };
    double const fastest = team_.max(ranks, open_speed);
    if (!(fastest > 0)) {
      return;
    }
    double together = team_.sum_ordered(ranks, open_speed);
    if (has_speeds_) {
      together = multiply(together, 1 + sum_error);
    }
    result.bound = maximum{}(divide_down(static_cast<double>(least.heaviest), fastest),
                             divide_down(static_cast<double>(least.total), together));
    bool const is_close = multiply(result.peak, 1 - 2 * sum_error) <= result.bound;
    if (!is_close && p_.load_error == 0) {
      return;
    }
    add_up();
    if (is_close && (all_within(least, fastest) || all_equal())) {
      result.bound = result.peak;
      return;
    }
    if (p_.load_error > 0 || result.peak <= result.bound) {
      result.peak = team_.max(ranks, [this](index_t r) {
        return slots_of(r) > 0 ? divide_up(static_cast<double>(high_[r]), speed(r)) : 0.0;
      });
    }
    if (result.peak <= result.bound) {
      result.peak = double_of(bits_of(result.bound) + 1);
    }
  }

 private:
  /// Relative error of an ordered sum of up to 2^15 positive numbers, each of which passes through
  /// fewer than 2^11 additions.
  static constexpr double sum_error = 0x1p-42;

  [[nodiscard]] PLIMSOLL_HD index_t slots_of(index_t rank) const {
    return p_.end(rank) - p_.begin(rank);
  }
  [[nodiscard]] PLIMSOLL_HD double speed(index_t rank) const {
    return p_.where.speed(p_.cell.first_rank + rank);
  }
  /// Sums the load of each rank: rounded down in `low_`, an upper bound in `high_`.
  PLIMSOLL_HD void add_up() const {
    team_.for_each(p_.cell.ranks, [this](index_t r) {
      fixed_load low = 0;
      fixed_load error = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t slot = p_.begin(r); slot < p_.end(r); ++slot) {
        std::int32_t const e = p_.map[slot];
        if (e >= 0) {
          fixed_load const weight = p_.weight(e);
          low += weight;
          error += p_.weight_error(e, weight);
        }
      }
      low_[r] = low;
      high_[r] = low + error;
    });
  }
  /// The only expert on a rank, or -1 if the rank holds no replica or several.
  [[nodiscard]] PLIMSOLL_HD std::int32_t only_expert(index_t rank) const {
    std::int32_t only = -1;
    PLIMSOLL_NO_UNROLL
    for (index_t slot = p_.begin(rank); slot < p_.end(rank); ++slot) {
      if (p_.map[slot] >= 0) {
        if (only >= 0) {
          return -1;
        }
        only = p_.map[slot];
      }
    }
    return only;
  }

  /// True if no rank can cost more than the peak of any placement. That holds for a rank whose
  /// load, rounded up, is within the bound, and for one of the fastest ranks that has a single
  /// replica, since some rank must hold that replica.
  [[nodiscard]] PLIMSOLL_HD bool all_within(load_bound const& least, double fastest) const {
    index_t const open = team_.count(p_.cell.ranks, [this](index_t r) { return slots_of(r) > 0; });
    if (open == 1) {
      return true;  // this rank holds everything
    }
    fixed_load const total = team_.sum(
        p_.cell.experts, [this](index_t i) { return p_.load[p_.where.expert_of(p_.cell, i)]; });
    auto const is_within = [=, this](index_t r) {
      fixed_load const load = high_[r];
      return product_at_most(static_cast<double>(load), fastest,
                             static_cast<double>(least.heaviest), speed(r)) ||
             (!has_speeds_ && load * static_cast<fixed_load>(open) <= total);
    };
    auto const is_single = [=, this](index_t r) {
      return speed(r) == fastest && only_expert(r) >= 0;
    };
    if (team_.any(p_.cell.ranks, [=](index_t r) { return !is_within(r) && !is_single(r); })) {
      return false;
    }
    if (!least.any_counts) {
      return true;
    }
    // It remains to show that no other counts make the heaviest of these single replicas lighter;
    // load / copies is compared as a fraction.
    auto const single_weight = [=, this](index_t r) {
      return is_within(r) ? fixed_load{0} : p_.weight(only_expert(r)) + 1;
    };
    fixed_load const most = team_.max(p_.cell.ranks, single_weight);
    if (most == 0) {
      return true;
    }
    auto const rest = team_.argmax(p_.cell.ranks, [=, this](index_t r) {
      return single_weight(r) == most ? rest_of(only_expert(r)) : std::int64_t{-1};
    });
    std::int32_t const e = only_expert(rest.index);
    auto const copies = static_cast<fixed_load>(p_.copies[e]);
    fixed_load const load = p_.load[e] + p_.load_error;
    index_t const slots = team_.sum(p_.cell.ranks, [this](index_t r) { return slots_of(r); });
    // To make all replicas lighter than that one takes more slots than there are.
    return team_.sum(p_.cell.experts, [=, this](index_t i) {
      fixed_load const n = p_.load[p_.where.expert_of(p_.cell, i)] * copies / load;
      return minimum{}(static_cast<index_t>(n), slots) + 1;
    }) > slots;
  }
  /// Fraction of load / copies that the weight rounds off, in units of 2^-31, rounded down: precise
  /// enough to order fractions with denominators below 2^15.
  [[nodiscard]] PLIMSOLL_HD std::int64_t rest_of(std::int32_t e) const {
    auto const copies = static_cast<fixed_load>(p_.copies[e]);
    fixed_load const rest = p_.load[e] + p_.load_error - p_.weight(e) * copies;
    return static_cast<std::int64_t>((rest << 31) / copies);
  }

  /// True if all ranks cost exactly the same, so that the peak equals the mean: no load was
  /// rounded, or all ranks hold the same replicas.
  [[nodiscard]] PLIMSOLL_HD bool all_equal() const {
    auto const first = team_.argmax(p_.cell.ranks, [this](index_t r) { return slots_of(r); });
    auto const load = static_cast<double>(low_[first.index]);
    bool const differ = team_.any(p_.cell.ranks, [=, this](index_t r) {
      auto const mine = static_cast<double>(low_[r]);
      return slots_of(r) > 0 && !(product_at_most(mine, speed(first.index), load, speed(r)) &&
                                  product_at_most(load, speed(r), mine, speed(first.index)));
    });
    if (differ) {
      return false;
    }
    bool const exact = !team_.any(p_.cell.ranks, [this](index_t r) { return low_[r] != high_[r]; });
    return exact || (!has_speeds_ && slots_of(first.index) <= most_compared && all_alike());
  }
  /// True if every rank holds the same number of copies of every expert.
  [[nodiscard]] PLIMSOLL_HD bool all_alike() const {
    index_t const open = team_.count(p_.cell.ranks, [this](index_t r) { return slots_of(r) > 0; });
    return !team_.any(p_.cell.ranks, [=, this](index_t r) {
      for (index_t slot = p_.begin(r); slot < p_.end(r); ++slot) {
        index_t copies = 0;
        PLIMSOLL_NO_UNROLL
        for (index_t other = p_.begin(r); other < p_.end(r); ++other) {
          copies += static_cast<index_t>(p_.map[other] == p_.map[slot]);
        }
        if (p_.map[slot] >= 0 && copies * open != p_.copies[p_.map[slot]]) {
          return true;
        }
      }
      return false;
    });
  }
  /// Largest number of slots of a rank for `all_alike`, whose work is its square.
  static constexpr index_t most_compared = 1 << 10;

  Team& team_;
  packing_problem const& p_;
  bool has_speeds_;
  fixed_load* low_;   ///< load of every rank, rounded down
  fixed_load* high_;  ///< at least as large as its own
};

}}}  // namespace plimsoll::detail
