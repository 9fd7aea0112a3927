// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `knapsack`: dynamic programming over the classes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Option of a class. Every capacity reads it with one instruction.
struct alignas(16) knapsack_option {
  double value;
  std::int32_t weight;  ///< at most one above the capacity
  std::int32_t pick;    ///< 1 + the number of the option
};

/// Options that a thread of a device considers at once, so that their reads overlap.
inline constexpr index_t options_at_once = 4;

/// Scratch of a knapsack.
struct knapsack_arrays {
  scratch_ref memory;
  index_t capacities;
  index_t picked;  ///< size of `picks`
  index_t options;
  index_t classes;

  /// `[options]`, padded: those of a class.
  knapsack_option* option = memory.take(options + options_at_once - 1);
  double* best = memory.take(capacities);  ///< best values with the classes so far
  double* next = memory.take(capacities);  ///< and with one class more
  /// `[classes, capacities]` or empty: 1 + the option picked, or 0.
  std::uint16_t* picks = memory.take(picked);
  /// `[classes + 1]`: total weight of the heaviest options of the classes before each.
  index_t* heaviest = memory.take(classes + 1);
};

/// Body of `knapsack` and `knapsack_curve`. Invariant: after class l, `best[c]` is the best value
/// of classes 0 to l with total weight c (or at most c), for c up to the reach, the weight of their
/// heaviest options: beyond, no choice has weight c, and more capacity adds nothing. Each class
/// computes a new `best` from the previous one. Values are added in the order of the classes, so
/// every team gets the same bits.
template <class Weights, class Values>
struct knapsack_body {
  using device_team = block<512>;

  Weights weights;                          ///< `[problems, classes, options]`
  Values values;                            ///< `[problems, classes, options]`
  matrix_ref<std::int32_t const> counts;    ///< `[problems, classes]` or empty: all options
  vector_ref<std::int64_t const> capacity;  ///< `[problems]` or empty: largest_capacity for all
  index_t largest_capacity;
  bool exact;
  bool may_skip;
  matrix_ref<std::int32_t> choices;  ///< `[problems, classes]` or empty: not written
  matrix_ref<double> curve;          ///< `[problems, largest_capacity + 1]` or empty: not written
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<knapsack_arrays>(largest_capacity + 1, picks_size(), weights.extent(2),
                                           weights.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    knapsack_arrays const arrays{memory, largest_capacity + 1, picks_size(), weights.extent(2),
                                 weights.extent(1)};
    index_t const classes = weights.extent(1);
    problem_report outcome = refuse(team, problem);
    if (outcome.refused) {
      team.single([=, this] { reports[problem] = outcome; });
      return;
    }

    index_t const room = capacity_of(problem);
    double* best = arrays.best;
    double* next = arrays.next;
    auto* const heaviest = arrays.heaviest;
    team.exclusive_scan(
        classes + 1,
        [=, this](index_t l) { return l < classes ? heaviest_of(problem, l, room) : 0; }, heaviest);
    team.single([=] { best[0] = 0.0; });
    for (index_t l = 0; l < classes; ++l) {
      add_class(team, arrays, problem, l, room, best, next);
      auto* const made = next;
      next = best;
      best = made;
    }

    index_t const reach = minimum{}(heaviest[classes], room);
    auto const* const found = best;
    auto const best_at = [=, this](index_t c) {
      return c <= reach ? found[c] : beyond(found[reach]);
    };
    double const value = best_at(room);
    bool const feasible = value != nothing;
    outcome.result = {feasible ? value : 0, feasible ? value : 0, classes * (room + 1),
                      feasible ? certificate_status::optimal : certificate_status::infeasible};
    if (curve.data != nullptr) {
      team.for_each(largest_capacity + 1, [=, this](index_t c) {
        double const most = c <= room ? best_at(c) : nothing;
        curve(problem, c) = most != nothing ? most : double_of(0xfff0000000000000u);
      });
    }
    team.single([=, this] {
      if (choices.data != nullptr) {
        write_choices(problem, room, feasible, arrays);
      }
      reports[problem] = outcome;
    });
  }

 private:
  /// Marks a weight that no choice has. Sums of values are far above it.
  static constexpr double nothing = lowest<double>;

  [[nodiscard]] PLIMSOLL_HD index_t picks_size() const {
    return choices.data == nullptr ? 0 : weights.extent(1) * (largest_capacity + 1);
  }
  [[nodiscard]] PLIMSOLL_HD index_t capacity_of(index_t problem) const {
    return capacity.data == nullptr ? largest_capacity : static_cast<index_t>(capacity[problem]);
  }
  [[nodiscard]] PLIMSOLL_HD index_t options_of(index_t problem, index_t l) const {
    return counts.data == nullptr ? weights.extent(2) : counts(problem, l);
  }

  /// Returns the largest weight of a class, at most `room`.
  [[nodiscard]] PLIMSOLL_HD index_t heaviest_of(index_t problem, index_t l, index_t room) const {
    index_t result = 0;
    for (index_t k = 0; k < options_of(problem, l); ++k) {
      result = maximum{}(result, static_cast<index_t>(weights(problem, l, k)));
    }
    return minimum{}(result, room);
  }

  /// Returns the best value of a capacity above the reach, given that of the reach.
  [[nodiscard]] PLIMSOLL_HD double beyond(double at_reach) const {
    return exact ? nothing : at_reach;
  }

  /// Computes `next`, the best values with class l too, from `best`, those of the classes before
  /// it. Writes the picks of the class.
  template <class Team>
  PLIMSOLL_HD void add_class(Team& team, knapsack_arrays const& arrays, index_t problem, index_t l,
                             index_t room, double* best, double* next) const {
    constexpr index_t at_once = Team::is_serial ? 1 : options_at_once;
    index_t const options = options_of(problem, l);
    index_t const before = minimum{}(arrays.heaviest[l], room);
    index_t const reach = minimum{}(arrays.heaviest[l + 1], room);
    auto const padded = static_cast<std::int32_t>((options + at_once - 1) / at_once * at_once);
    knapsack_option* const option = arrays.option;
    team.for_each(padded, [=, this](index_t k) {
      // No capacity has room for the options that are missing.
      auto const weight = k < options ? static_cast<index_t>(weights(problem, l, k)) : room + 1;
      option[k] = {k < options ? static_cast<double>(values(problem, l, k)) : 0.0,
                   static_cast<std::int32_t>(minimum{}(weight, room + 1)),
                   static_cast<std::int32_t>(k + 1)};
    });
    double const above = beyond(best[before]);
    team.for_each(reach - before, [=](index_t i) { best[before + 1 + i] = above; });
    std::uint16_t* const picked =
        choices.data == nullptr ? nullptr : arrays.picks + l * (largest_capacity + 1);
    team.for_each(reach + 1, [=, this](index_t c) {
      double value = may_skip ? best[c] : nothing;
      std::int32_t pick = 0;  // none
      for (std::int32_t first = 0; first < padded; first += at_once) {
        for (std::int32_t k = first; k < first + at_once; ++k) {
          knapsack_option const added = option[k];
          std::int32_t const rest = static_cast<std::int32_t>(c) - added.weight;
          if constexpr (Team::is_serial) {  // a device computes too much instead of branching
            if (rest < 0) {
              continue;
            }
          }
          // `nothing` plus any value is rounded to `nothing`.
          double const candidate = add(best[maximum{}(rest, 0)], added.value);
          if (rest >= 0 && candidate > value) {
            value = candidate;
            pick = added.pick;
          }
        }
      }
      next[c] = value;
      if (picked != nullptr) {
        picked[c] = static_cast<std::uint16_t>(pick);
      }
    });
  }

  /// Follows the picks from the last class to the first.
  PLIMSOLL_HD void write_choices(index_t problem, index_t room, bool feasible,
                                 knapsack_arrays const& arrays) const {
    index_t c = room;
    for (index_t l = weights.extent(1); l-- > 0;) {
      index_t const weight = minimum{}(c, arrays.heaviest[l + 1]);
      index_t const pick = feasible ? arrays.picks[l * (largest_capacity + 1) + weight] : 0;
      choices(problem, l) = static_cast<std::int32_t>(pick - 1);
      c -= pick > 0 ? static_cast<index_t>(weights(problem, l, pick - 1)) : 0;
    }
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, index_t problem) const {
    index_t const room = capacity_of(problem);
    if (room < 0 || room > largest_capacity) {
      return refusal(fault_kind::capacity, largest_capacity, room);
    }
    index_t const classes = weights.extent(1);
    index_t const width = weights.extent(2);
    index_t const empty = team.min(classes, [=, this](index_t l) {
      index_t const options = options_of(problem, l);
      return options < 1 || options > width ? l : classes;
    });
    if (empty < classes) {
      return refusal(fault_kind::option_count, empty, options_of(problem, empty), width);
    }
    index_t const cells = classes * width;
    index_t const bad = team.min(cells, [=, this](index_t i) {
      index_t const l = i / width;
      index_t const k = i % width;
      bool const good = k >= options_of(problem, l) ||
                        (weights(problem, l, k) >= 0 && is_value(values(problem, l, k)));
      return good ? cells : i;
    });
    if (bad < cells) {
      index_t const l = bad / width;
      index_t const k = bad % width;
      return weights(problem, l, k) < 0 ? refusal(fault_kind::weight, l, weights(problem, l, k), k)
                                        : refusal(fault_kind::value, l, values(problem, l, k), k);
    }
    return problem_report{};
  }

  /// Returns whether a value is in range, so that sums of fewer than 2^40 such values are far from
  /// overflow. False for NaN.
  template <class T>
  [[nodiscard]] PLIMSOLL_HD static bool is_value(T value) {
    auto const v = static_cast<double>(value);
    return v > -0x1p960 && v < 0x1p960;
  }
};

}}}  // namespace plimsoll::detail
