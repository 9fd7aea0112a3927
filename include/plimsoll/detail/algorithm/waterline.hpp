// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options, state and tables that the bodies of `waterline` share, and the body that makes the
/// tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// State that `waterline_plan_body` writes for `waterline_fill_body`, in the memory of the object.
struct waterline_state {
  static constexpr int most_rounds = 3;

  /// Surplus rows that are still at home before each round, and after the last one.
  std::int64_t unmet[most_rounds + 1];
  std::int64_t drawn_from;  ///< sum of the weights of all ranks
  index_t source;           ///< source for which the plan was made
  index_t is_planned;       ///< 0 before the first plan, then 1
  std::int32_t any_rank;    ///< every rank is a candidate
  std::int32_t at_home;     ///< all rows stay at home
};

struct waterline_memory {
  waterline_state* state;
  std::int64_t* slack;   ///< `[ranks]`
  std::int64_t* load;    ///< `[ranks]`: load that slack is measured from
  std::int64_t* weight;  ///< `[ranks]`: weights by which sampled rows draw
  std::int64_t* before;  ///< `[ranks]`: sum of the weights of lower ranks
  std::int32_t* room;    ///< `[rounds, ranks]`: slack that the source's rows may take
  std::int32_t* more;    ///< `[ranks]`: slack that they may take as well, from the second round on

  [[nodiscard]] PLIMSOLL_HD std::int32_t* room_in(int round, index_t ranks) const {
    return room + round * ranks;
  }
  PLIMSOLL_HD static waterline_memory in(scratch& memory, index_t ranks) {
    waterline_memory result{};
    memory.take(result.state, 1);
    memory.take(result.slack, ranks);
    memory.take(result.load, ranks);
    memory.take(result.weight, ranks);
    memory.take(result.before, ranks);
    memory.take(result.room, waterline_state::most_rounds * ranks);
    memory.take(result.more, ranks);
    return result;
  }
};

/// The ranks of a `waterline` and their slots, in the memory of the object.
struct waterline_tables {
  double* speed;  ///< `[ranks]`
  rank_numbers* numbers;
  problem_report* update;     ///< what the last update refused
  std::int32_t* rank_of;      ///< `[slots]`: -1 for a slot of no rank
  std::int32_t* shared_slot;  ///< `[ranks]`: the shared expert's slot on each rank

  PLIMSOLL_HD static waterline_tables in(scratch& memory, index_t ranks, index_t slots) {
    waterline_tables result{};
    memory.take(result.speed, ranks);
    memory.take(result.numbers, 1);
    memory.take(result.update, 1);
    memory.take(result.rank_of, slots);
    memory.take(result.shared_slot, ranks);
    return result;
  }
};

/// Body of `waterline::update`: makes the tables from the first slots of ranks. Refused ones leave
/// the tables as they are. One problem.
struct waterline_tables_body {
  using device_team = block<128>;

  waterline_tables tables;
  slot_ranges ranges;  ///< of one layer
  rank_input on;
  bool equal;              ///< all ranks must be live and equally fast
  waterline_state* state;  ///< without a plan after an update

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t) const {
    index_t const ranks = ranges.ranks;
    problem_report const outcome = refuse(team);
    team.single([=, this] { *tables.update = outcome; });
    if (outcome.refused) {
      return;
    }
    rank_numbers const numbers = on.write(team, ranks, tables.speed);
    team.for_each(ranges.slots, [this](index_t slot) { tables.rank_of[slot] = -1; });
    team.for_each(ranks, [this](index_t r) {
      PLIMSOLL_NO_UNROLL
      for (index_t slot = ranges.begin(0, r); slot < ranges.end(0, r); ++slot) {
        tables.rank_of[slot] = static_cast<std::int32_t>(r);
      }
      tables.shared_slot[r] = static_cast<std::int32_t>(ranges.end(0, r) + r);
    });
    team.single([=, this] {
      *tables.numbers = numbers;
      state->is_planned = 0;
    });
  }

 private:
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team) const {
    index_t const ranks = ranges.ranks;
    problem_report const of_ranks = on.refuse(team, ranks);
    if (of_ranks.refused) {
      return of_ranks;
    }
    if (equal && !on.keeps) {
      auto const live = team.count(ranks, [this](index_t r) { return on.lives(r); });
      bool const slow = on.speeds.data != nullptr &&
                        team.any(ranks, [this](index_t r) { return on.speeds[r] != on.speeds[0]; });
      if (live < ranks || slow) {
        return refusal(fault_kind::unequal_ranks, -1, live, ranks);
      }
    }
    index_t const odd = team.min(ranks, [this, ranks](index_t r) {
      bool const lives = on.keeps ? tables.speed[r] > 0 : on.lives(r);
      return is_range(r) && !(lives && ranges.begin(0, r) == ranges.end(0, r)) ? ranks : r;
    });
    if (odd == ranks) {
      return problem_report{};
    }
    return is_range(odd)
               ? refusal(fault_kind::empty_rank, odd)
               : refusal(fault_kind::rank_offsets, odd, ranges.end(0, odd), ranges.begin(0, odd));
  }
  PLIMSOLL_HD bool is_range(index_t r) const {
    return ranges.begin(0, 0) == 0 && ranges.begin(0, r) <= ranges.end(0, r) &&
           ranges.end(0, r) <= ranges.slots;
  }
};

/// Options of both bodies.
struct waterline_rules {
  bool sampled;
  bool literal;
  bool local_counts_only;  ///< loads are the source's own counts
  bool any_rank;
  index_t min_tokens;
  index_t top_k;
  std::int64_t local_preference;  ///< in 1/65536
  std::int64_t node_preference;
  double margin;  ///< local_preference as given
};

}}}  // namespace plimsoll::detail
