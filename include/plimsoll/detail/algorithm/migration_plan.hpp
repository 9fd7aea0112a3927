// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `plan_within`: checks of both placements, loads of a history, the path of every layer,
/// and the plans that are compared.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/move_path.hpp>
#include <plimsoll/detail/algorithm/refinement.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks both placements against the constraints, and copies them without what dead ranks hold.
/// Problem = layer.
struct migration_check_body {
  using device_team = block<128>;

  migration_pair pair;
  anti_affinity_rule rule;
  matrix_ref<std::int32_t> base;    ///< `[layers, slots]`: of `from`
  matrix_ref<std::int32_t> target;  ///< `[layers, slots]`: of `to`
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<refinement_arrays>(pair.experts(), pair.ranks(), pair.slots()) +
           plan_reader{pair.where, rule, pair.experts()}.scratch_bytes();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = pair.experts();
    auto const plan_arrays = refinement_arrays::in(memory, experts, pair.ranks(), pair.slots());
    auto const in_use = row_of(base, layer);
    auto const next = row_of(target, layer);
    // The memory of loads serves as the second array of counts.
    problem_report outcome = pair.refuse(team, layer, plan_arrays.rank_of, plan_arrays.counts,
                                         reinterpret_cast<std::int32_t*>(plan_arrays.load));
    if (!outcome.refused) {
      outcome = pair.where.refuse(team, layer, experts, plan_arrays.counts);
    }
    if (!outcome.refused) {
      team.for_each(pair.slots(), [=, this, rank_of = plan_arrays.rank_of](index_t slot) {
        bool const lives = rank_of[slot] >= 0 && pair.where.is_active(rank_of[slot]);
        in_use[slot] = lives ? pair.from(layer, slot) : -1;
        next[slot] = lives ? pair.to(layer, slot) : -1;
      });
    }
    plan_reader const reader{pair.where, rule, experts};
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 2 && !outcome.refused; ++k) {
      vector_ref<std::int32_t const> const given = k == 0 ? in_use : next;
      outcome = reader.read(team, memory, layer, given, plan_arrays);
      outcome.refused.side = fault_side{k};
    }
    team.single([=, this] { reports[layer] = outcome; });
  }
};

/// Follows the path of a layer. Problem = layer.
template <class Loads>
struct migration_path_body {
  using device_team = block<128>;

  Loads loads;
  topology where;
  anti_affinity_rule rule;
  double load_exponent;
  split_rule split;
  std::int64_t most_moves;
  matrix_ref<std::int32_t> base;  ///< `[layers, slots]`: the placement in use
  path_change* changes;           ///< `[layers, 2 * slots]`
  path_point* points;             ///< `[layers, slots + 1]`: peaks in units of load
  std::int32_t* point_count;      ///< `[layers]`
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const experts = loads.extent(1);
    index_t const ranks = where.ranks();
    index_t const slots = where.ranges.slots;
    return bytes_taken_by<refinement_arrays>(experts, ranks, slots) +
           maximum{}(plan_reader{where, rule, experts}.scratch_bytes(),
                     bytes_taken_by<move_path_arrays>(experts, ranks, slots));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    index_t const slots = where.ranges.slots;
    auto const plan_arrays = refinement_arrays::in(memory, experts, where.ranks(), slots);
    auto const map = row_of(base, layer);
    load_scale const scale = read_loads(
        team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent,
        plan_arrays.load);
    problem_report outcome = scale.report();
    if (!outcome.refused) {
      outcome = plan_reader{where, rule, experts}.read(team, memory, layer, map, plan_arrays);
    }
    if (!outcome.refused) {
      packing_problem const problem = plan_arrays.problem(where, rule, layer, experts, map, scale);
      auto* const reached = points + layer * (slots + 1);
      index_t const count =
          move_path<Team>(team, memory, problem, plan_arrays.rank_of, plan_arrays.counts,
                          {.split = split,
                           .keeps_counts = false,
                           .price = 0,
                           .target = 0,
                           .most_moves = most_moves})
              .follow(changes + layer * 2 * slots, reached);
      team.for_each(count, [=](index_t i) {
        reached[i].peak = scale_by_power_of_two(reached[i].peak, -scale.shift);
      });
      team.store(point_count + layer, static_cast<std::int32_t>(count));
    }
    team.single([=, this] { reports[layer] = outcome; });
  }
};

/// A plan that is compared with others of its layer: `row` of the complete plans, or, if that is
/// -1, the placement in use with the first `changes` of the layer's path.
struct compared_plan {
  std::int32_t layer;
  std::int32_t row;
  std::int32_t changes;
};

/// Writes the maps and counts of plans. Problem = plan.
struct migration_map_body {
  using device_team = block<128>;

  compared_plan const* plans;
  matrix_ref<std::int32_t const> kept;      ///< `[layers, slots]`: rows of plans without changes
  matrix_ref<std::int32_t const> base;      ///< `[layers, slots]`: `kept`, dead ranks empty
  matrix_ref<std::int32_t const> complete;  ///< `[rows, slots]`
  path_change const* changes;               ///< `[layers, 2 * slots]`
  matrix_ref<std::int32_t> map;             ///< `[plans, slots]`
  matrix_ref<std::int32_t> counts;          ///< `[plans, experts]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(counts.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t plan) const {
    compared_plan const compared = plans[plan];
    index_t const slots = map.extent(1);
    index_t const experts = counts.extent(1);
    bool const is_unchanged = compared.row < 0 && compared.changes == 0;
    auto const given =
        compared.row >= 0 ? row_of(complete, compared.row) : row_of(base, compared.layer);
    auto const first = is_unchanged ? row_of(kept, compared.layer) : given;
    auto* const copies = memory.take<std::int32_t>(experts);
    auto const row = row_of(map, plan);  // may be that of `kept`
    team.for_each(slots, [=](index_t slot) { row[slot] = first[slot]; });
    // A slot that is emptied may get an expert later, so that changes keep their order.
    team.single([=, this] {
      for (index_t i = 0; i < compared.changes; ++i) {
        path_change const made = changes[2 * slots * compared.layer + i];
        row[made.slot] = made.expert;
      }
    });
    team.histogram(
        experts == 0 ? 0 : slots,
        [=](index_t slot) { return is_unchanged ? given[slot] : row[slot]; }, copies, experts);
    team.for_each(experts, [=, this](index_t e) { counts(plan, e) = copies[e]; });
  }
};

/// Converts loads to double and raises them to a power. Problem = step * layers + layer.
template <class Loads>
struct read_history_body {
  using device_team = block<128>;

  Loads loads;  ///< `[steps, layers, experts]`
  double load_exponent;
  tensor_ref<double> out;  ///< `[steps, layers, experts]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const step = problem / loads.extent(1);
    index_t const layer = problem % loads.extent(1);
    team.for_each(loads.extent(2), [=, this](index_t e) {
      auto const load = static_cast<double>(loads(step, layer, e));
      out(step, layer, e) = load_exponent == 1.0 ? load : power(load, load_exponent);
    });
  }
};

/// Loads `[steps, plans, experts]` of plans of layers.
struct loads_of_plans {
  tensor_ref<double const> loads;  ///< `[steps, layers, experts]`
  compared_plan const* plans;

  PLIMSOLL_HD double operator()(index_t step, index_t plan, index_t expert) const {
    return loads(step, plans[plan].layer, expert);
  }
};

}}}  // namespace plimsoll::detail
