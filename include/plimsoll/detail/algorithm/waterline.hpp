// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `waterline`: find the level, assign slack to sources, and choose the rank of each row.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A position in the weighted round-robin order of the units of slack of several ranks. Unit j of a
/// rank with n units comes at time (j + 1/2) / n, rounded down to a multiple of 2^-32; of equal
/// times the lower rank's unit comes first. So every interval of the order has all ranks in
/// proportion to their slack. At the position's time, units of ranks below `until` are before it.
struct round_robin_position {
  std::int64_t time;
  index_t until;

  /// Returns how many of the rank's `room` units are before the position.
  [[nodiscard]] PLIMSOLL_HD std::int64_t of(std::int64_t room, index_t rank) const {
    return before(room, rank < until ? time + 1 : time);
  }

  /// Returns the number of j for which (j + 1/2) / n is before the moment.
  [[nodiscard]] PLIMSOLL_HD static std::int64_t before(std::int64_t n, std::int64_t moment) {
    constexpr std::int64_t round_up = (std::int64_t{1} << 31) - 1;
    return (n * moment + round_up) >> 31 >> 1;
  }
};

/// Search for the position that is after exactly `units` units of ranks [first, last).
struct position_search {
  std::int64_t const* room;
  index_t first;
  index_t last;
  std::int64_t units;
  // The time of the position is in [low, high), and `reached` units come before `low`.
  std::int64_t low;
  std::int64_t high;
  std::int64_t reached;

  /// Starts from a narrow interval of times: the units of each rank that come before a time are in
  /// proportion to it, to within half a unit, so the time is known to within a unit per rank.
  PLIMSOLL_HD static position_search of(std::int64_t const* room, index_t first, index_t last,
                                        std::int64_t units) {
    position_search result{room, first, last, units, 0, 0, 0};
    constexpr std::int64_t end = std::int64_t{1} << 32;
    std::int64_t const all = result.units_before(end);
    auto const time_of = [=](std::int64_t given) {
      double const share = divide(static_cast<double>(given), static_cast<double>(all));
      return static_cast<std::int64_t>(multiply(share, static_cast<double>(end)));
    };
    index_t const off = last - first + 1;
    result.low = units > off ? time_of(units - off) : 0;
    result.high = units + off < all ? time_of(units + off) + 1 : end + 1;
    result.reached = result.units_before(result.low);
    return result;
  }

  [[nodiscard]] PLIMSOLL_HD bool is_open() const { return high - low > 1 && reached != units; }
  [[nodiscard]] PLIMSOLL_HD std::int64_t units_before(std::int64_t moment) const {
    std::int64_t sum = 0;
    for (index_t r = first; r < last; ++r) {
      sum += round_robin_position::before(room[r], moment);
    }
    return sum;
  }
  /// Returns the beginning of the i-th of `parts` equal parts of [low, high).
  [[nodiscard]] PLIMSOLL_HD std::int64_t moment(index_t i, index_t parts) const {
    return low + (high - low) * i / parts;
  }
  [[nodiscard]] PLIMSOLL_HD round_robin_position position() const {
    index_t until = first;
    for (std::int64_t sum = reached; sum < units && until < last; ++until) {
      sum += round_robin_position::before(room[until], low + 1) -
             round_robin_position::before(room[until], low);
    }
    return {low, until};
  }
};

/// Arrays of several searches at once, each of which cuts its interval into `parts`.
struct position_search_arrays {
  position_search* search;  ///< `[count]`
  std::int64_t* sum;        ///< `[count, parts]`: units before each part

  template <class Memory>
  PLIMSOLL_HD static position_search_arrays in(Memory& memory, index_t count, index_t parts) {
    position_search_arrays result{};
    memory.take(result.search, count);
    memory.take(result.sum, count * parts);
    return result;
  }
};

/// Runs several such searches at once. A serial team bisects intervals; other teams cut each one
/// into many parts, so that every thread computes about one sum and few rounds are needed.
struct position_searches {
  index_t count;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<position_search_arrays>(count, parts());
  }

  /// Writes the result of search_of(i) to position[i].
  template <class Team, class SearchOf>
  PLIMSOLL_HD void find(Team& team, scratch arrays, SearchOf search_of,
                        round_robin_position* position) const {
    if constexpr (Team::is_serial) {
      team.for_each(count, [=](index_t i) {
        position_search search = search_of(i);
        while (search.is_open()) {
          std::int64_t const middle = search.moment(1, 2);
          std::int64_t const sum = search.units_before(middle);
          if (sum <= search.units) {
            search.low = middle;
            search.reached = sum;
          } else {
            search.high = middle;
          }
        }
        position[i] = search.position();
      });
    } else {
      index_t const n = parts();
      auto const in = position_search_arrays::in(arrays, count, n);
      auto* const searches = in.search;
      auto* const sums = in.sum;
      team.for_each(count, [=](index_t i) { searches[i] = search_of(i); });
      auto const narrow = [=](index_t i) {
        position_search& search = searches[i / n];
        index_t const part = i % n;
        // Sums rise, so exactly one part of each search writes, and no other reads what it writes.
        if (sums[i] > search.units || (part + 1 < n && sums[i + 1] <= search.units)) {
          return false;
        }
        std::int64_t const low = search.moment(part, n);
        search.high = part + 1 < n ? search.moment(part + 1, n) : search.high;
        search.low = low;
        search.reached = sums[i];
        return search.is_open();
      };
      do {
        team.for_each(n * count, [=](index_t i) {
          position_search const& search = searches[i / n];
          sums[i] = search.units_before(search.moment(i % n, n));
        });
      } while (team.any(n * count, narrow));
      team.for_each(count, [=](index_t i) { position[i] = searches[i].position(); });
    }
  }

 private:
  [[nodiscard]] PLIMSOLL_HD index_t parts() const { return maximum{}(128 / count, index_t{4}); }
};

/// Interval [begin, end) of integers.
struct stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] PLIMSOLL_HD std::int64_t size() const { return end - begin; }
  /// Scales this part of [0, all) to [0, whole); all is below 2^31.
  [[nodiscard]] PLIMSOLL_HD stretch of(std::int64_t whole, std::int64_t all) const {
    return all == 0 ? stretch{} : stretch{scaled(begin, whole, all), scaled(end, whole, all)};
  }

 private:
  [[nodiscard]] PLIMSOLL_HD static std::int64_t scaled(std::int64_t x, std::int64_t whole,
                                                       std::int64_t all) {
    return whole / all * x + whole % all * x / all;
  }
};

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
  template <class Memory>
  PLIMSOLL_HD static waterline_memory in(Memory& memory, index_t ranks) {
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

  template <class Memory>
  PLIMSOLL_HD static waterline_tables in(Memory& memory, index_t ranks, index_t slots) {
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

/// Arrays of `waterline_plan_body` for the surplus method.
struct deal_arrays {
  /// Boundaries of the source's intervals: two in its node, over all ranks, of spare slack and of
  /// exchanged rows each.
  static constexpr index_t boundaries = 8;

  std::int64_t* surplus;            ///< `[ranks]`: rows that must leave
  std::int64_t* room;               ///< `[ranks]`: slack, at most as much as there is surplus
  std::int64_t* rest;               ///< `[ranks]`: room that is left after every node's own rows
  std::int64_t* exchange;           ///< `[ranks]`
  std::int64_t* node_surplus;       ///< `[nodes]`
  std::int64_t* node_given;         ///< `[nodes]`: surplus that finds room in its node
  round_robin_position* in_node;    ///< `[nodes]`: the position after `node_given` units
  std::int64_t* units;              ///< `[boundaries]`
  round_robin_position* positions;  ///< `[boundaries]`

  template <class Memory>
  PLIMSOLL_HD static deal_arrays in(Memory& memory, index_t ranks, index_t nodes) {
    deal_arrays result{};
    memory.take(result.surplus, ranks);
    memory.take(result.room, ranks);
    memory.take(result.rest, ranks);
    memory.take(result.exchange, ranks);
    memory.take(result.node_surplus, nodes);
    memory.take(result.node_given, nodes);
    memory.take(result.in_node, nodes);
    memory.take(result.units, boundaries);
    memory.take(result.positions, boundaries);
    return result;
  }
};

/// Arrays of `waterline_plan_body::relieve`.
struct exchange_arrays {
  std::int64_t* must_leave;         ///< `[ranks]`: rows that must leave but find no slack
  std::int64_t* can_accept;         ///< `[ranks]`: rows of others that the rank can take in
  std::int64_t* must_leave_before;  ///< `[ranks]`: sum over lower ranks
  std::int64_t* can_accept_before;  ///< `[ranks]`: the same

  template <class Memory>
  PLIMSOLL_HD static exchange_arrays in(Memory& memory, index_t ranks) {
    exchange_arrays result{};
    memory.take(result.must_leave, ranks);
    memory.take(result.can_accept, ranks);
    memory.take(result.must_leave_before, ranks);
    memory.take(result.can_accept_before, ranks);
    return result;
  }
};

/// Body of `waterline::plan`.
struct waterline_plan_body {
  using device_team = block<128>;

  rank_levels ranks;
  waterline_rules rules;
  matrix_ref<std::int64_t const> loads;  ///< `[2, ranks]`: routed load, rows at home
  index_t source;
  waterline_memory memory;
  vector_ref<waterline_report> report;

  [[nodiscard]] static index_t problems() { return 1; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const nodes = ranks.where.nodes;
    return bytes_taken_by<deal_arrays>(ranks.size(), nodes) +
           bytes_taken_by<exchange_arrays>(ranks.size()) +
           maximum{}(position_searches{nodes}.scratch_bytes(),
                     position_searches{deal_arrays::boundaries}.scratch_bytes());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t) const {
    index_t const n = ranks.size();
    team.single([=, this] {
      report[0] = waterline_report{};
      *memory.state = waterline_state{{}, 0, source, 1, rules.any_rank, 1};
    });
    index_t const bad = team.min(2 * n, [=, this](index_t i) {
      std::int64_t const load = loads(i / n, i % n);
      bool const is_live = load == 0 || ranks.lives(i % n);
      return is_count(load) && is_live ? 2 * n : i;
    });
    if (bad < 2 * n) {
      std::int64_t const load = loads(bad / n, bad % n);
      refuse(team, is_count(load) ? fault_kind::dead_rank : fault_kind::load, bad % n, load,
             bad / n);
      return;
    }
    auto const routed = team.sum(n, [this](index_t r) { return routed_to(r); });
    auto const rows = team.sum(n, [this](index_t r) { return rows_of(r); });
    if (!is_count(routed + rows)) {
      refuse(team, fault_kind::tokens, -1, routed + rows);
      return;
    }
    if (rules.sampled) {
      weigh(team, routed, rows);
    } else {
      deal(team, arrays, routed, rows);
    }
    auto const home_peak =
        team.max(n, [this](index_t r) { return ranks.time_of(routed_to(r) + rows_of(r), r); });
    team.single([=, this] {
      report[0].home_peak = home_peak;
      memory.state->at_home = rows_of(source) < rules.min_tokens;
    });
  }

 private:
  PLIMSOLL_HD static bool is_count(std::int64_t load) {
    return load >= 0 && load <= highest<std::int32_t>;
  }
  /// If only the source's counts are known, assumes that all live ranks have the same.
  PLIMSOLL_HD std::int64_t routed_to(index_t r) const {
    return loads(0, r) * (rules.local_counts_only && !rules.literal ? ranks.live() : 1);
  }
  PLIMSOLL_HD std::int64_t rows_of(index_t r) const {
    return rules.local_counts_only ? (ranks.lives(r) ? loads(1, source) : 0) : loads(1, r);
  }

  /// Rows at home on a rank that may leave it.
  PLIMSOLL_HD std::int64_t movable(index_t r) const {
    return rows_of(r) < rules.min_tokens ? 0 : rows_of(r);
  }

  template <class Team>
  PLIMSOLL_HD void refuse(Team& team, fault_kind kind, index_t where, std::int64_t got,
                          index_t row = -1) const {
    team.for_each(ranks.size(), [this](index_t r) { memory.slack[r] = 0; });
    team.single([=, this] { report[0].refused = {kind, where, static_cast<double>(got), row}; });
  }

  /// For sampled rows: computes the slack and the weight of every rank.
  template <class Team>
  PLIMSOLL_HD void weigh(Team& team, std::int64_t routed, std::int64_t rows) const {
    index_t const n = ranks.size();
    bool const counts_home = rules.literal && !rules.local_counts_only;
    std::int64_t const total =
        rules.literal ? routed + (counts_home ? rows : 0) + routed / rules.top_k : routed + rows;
    std::int64_t const level = ranks.level_for(team, total);
    team.for_each(n, [=, this](index_t r) {
      std::int64_t const load = routed_to(r) + (counts_home ? rows_of(r) : 0);
      std::int64_t const slack = maximum{}(ranks.room_below(level, r) - load, std::int64_t{0});
      memory.load[r] = load;
      memory.slack[r] = slack;
      if (rules.literal) {
        memory.weight[r] = r == source ? slack : slack * 10 / 11;
      } else {
        bool const is_near = ranks.where.node_of(r) == ranks.where.node_of(source);
        memory.weight[r] = slack * (r == source ? rules.local_preference
                                    : is_near   ? rules.node_preference
                                                : std::int64_t{1} << 16);
      }
    });
    auto const drawn_from = team.exclusive_scan(
        n, [this](index_t r) { return memory.weight[r]; }, memory.before);
    auto const highest_load = team.max(n, [this](index_t r) { return memory.load[r]; });
    team.single([=, this] {
      report[0].level = ranks.time_at(level);
      memory.state->drawn_from = drawn_from;
      if (rules.literal) {
        memory.state->any_rank = rules.local_counts_only || highest_load <= level;
      }
    });
  }

  /// For the surplus method: computes how much of every rank's slack the source's rows may take.
  ///
  /// Slack is assigned to surplus first within each node, as far as both go; then to the surplus
  /// that is left, over all ranks. The remaining slack is assigned in proportion to surplus, since
  /// rows that cannot go everywhere need a choice of ranks. In each step, the sources take
  /// consecutive intervals of the same weighted round-robin order, so no unit is assigned twice.
  template <class Team>
  PLIMSOLL_HD void deal(Team& team, scratch arrays, std::int64_t routed, std::int64_t rows) const {
    index_t const n = ranks.size();
    index_t const nodes = ranks.where.nodes;
    auto const all = deal_arrays::in(arrays, n, nodes);
    std::int64_t const level = measure(team, all, routed + rows);
    stretch const relieved = relieve(team, arrays, all, routed);
    auto const moving = team.sum(n, [=](index_t r) { return all.surplus[r]; });
    team.for_each(n, [=, this](index_t r) { all.room[r] = minimum{}(memory.slack[r], moving); });
    team.for_each(nodes, [=, this](index_t node) {
      std::int64_t sum = 0;
      std::int64_t room_sum = 0;
      for (index_t r = ranks.where.first_rank(node); r < ranks.where.first_rank(node + 1); ++r) {
        sum += all.surplus[r];
        room_sum += all.room[r];
      }
      all.node_surplus[node] = sum;
      all.node_given[node] = minimum{}(sum, room_sum);
    });
    position_searches{nodes}.find(
        team, arrays,
        [=, this](index_t node) { return search_in(node, all.room, all.node_given[node]); },
        all.in_node);
    team.for_each(n, [=, this](index_t r) {
      all.rest[r] = all.room[r] - all.in_node[ranks.where.node_of(r)].of(all.room[r], r);
    });
    index_t const own = ranks.where.node_of(source);
    std::int64_t const mine = all.surplus[source];
    bound_intervals(team, all, moving, relieved, own, mine);
    give_intervals(team, arrays, all, own);
    auto const relieving = team.sum(n, [=](index_t r) { return all.exchange[r]; });
    team.single([=, this] {
      report[0].level = ranks.time_at(level);
      report[0].surplus = moving + relieving;
      memory.state->unmet[0] = mine + relieved.size();
    });
  }

  /// Computes the load, slack and surplus of every rank, and returns the level that they are
  /// measured from.
  template <class Team>
  PLIMSOLL_HD std::int64_t measure(Team& team, deal_arrays const& all, std::int64_t total) const {
    index_t const n = ranks.size();
    // No rank can end below its routed load, so a lower level would move rows for nothing.
    std::int64_t const mean = ranks.level_for(team, total);
    std::int64_t const level = maximum{}(mean, team.max(n, [this](index_t r) {
      std::int64_t const stays = rows_of(r) - movable(r);
      return ranks.lives(r) ? ranks.level_of(routed_to(r) + stays, r) : 0;
    }));
    team.for_each(n, [=, this](index_t r) {
      std::int64_t const load = routed_to(r) + rows_of(r);
      std::int64_t const below = ranks.room_below(level, r) - load;
      memory.load[r] = load;
      memory.slack[r] = maximum{}(below, std::int64_t{0});
      all.surplus[r] = maximum{}(-below, std::int64_t{0});
      all.exchange[r] = 0;
    });
    return level;
  }

  /// Returns the search for the position after `given` units of room of a node's ranks.
  PLIMSOLL_HD position_search search_in(index_t node, std::int64_t const* room,
                                        std::int64_t given) const {
    return position_search::of(room, ranks.where.first_rank(node), ranks.where.first_rank(node + 1),
                               given);
  }

  /// Finds the source's intervals: in its node, over all ranks, of spare slack, of exchanged rows.
  template <class Team>
  PLIMSOLL_HD void bound_intervals(Team& team, deal_arrays const& all, std::int64_t moving,
                                   stretch const& relieved, index_t own, std::int64_t mine) const {
    auto const leaving = team.sum(ranks.where.nodes, [=](index_t node) {
      return all.node_surplus[node] - all.node_given[node];
    });
    auto const spare = team.sum(ranks.size(), [=](index_t r) { return all.rest[r]; }) - leaving;
    auto const earlier = team.sum(source, [=](index_t r) { return all.surplus[r]; });
    auto const earlier_nodes = team.sum(own, [=](index_t node) { return all.node_surplus[node]; });
    auto const left_behind =
        team.sum(own, [=](index_t node) { return all.node_surplus[node] - all.node_given[node]; });
    stretch const before{earlier - earlier_nodes, earlier - earlier_nodes + mine};
    stretch const inside = before.of(all.node_given[own], all.node_surplus[own]);
    std::int64_t const outside = left_behind + before.begin - inside.begin;
    stretch const more = stretch{earlier, earlier + mine}.of(spare, moving);
    team.store(all.units + 0, inside.begin);
    team.store(all.units + 1, inside.end);
    team.store(all.units + 2, outside);
    team.store(all.units + 3, outside + mine - inside.size());
    team.store(all.units + 4, leaving + more.begin);
    team.store(all.units + 5, leaving + more.end);
    team.store(all.units + 6, relieved.begin);
    team.store(all.units + 7, relieved.end);
  }

  /// Writes the units of every rank's slack that the source's intervals contain.
  template <class Team>
  PLIMSOLL_HD void give_intervals(Team& team, scratch arrays, deal_arrays const& all,
                                  index_t own) const {
    index_t const n = ranks.size();
    position_searches{deal_arrays::boundaries}.find(
        team, arrays,
        [=, this](index_t i) {
          return i < 2 ? search_in(own, all.room, all.units[i])
                       : position_search::of(i < 6 ? all.rest : all.exchange, 0, n, all.units[i]);
        },
        all.positions);
    team.for_each(n, [=, this](index_t r) {
      auto const between = [=](index_t i, std::int64_t const* of) {
        return static_cast<std::int32_t>(all.positions[i + 1].of(of[r], r) -
                                         all.positions[i].of(of[r], r));
      };
      bool const is_near = ranks.where.node_of(r) == own;
      memory.room[r] = (is_near ? between(0, all.room) : 0) + between(2, all.rest);
      // Rows that may go to any rank need not leave their node for spare slack.
      bool const is_offered = is_near || !rules.any_rank;
      memory.more[r] = (is_offered ? between(4, all.rest) : 0) + between(6, all.exchange);
    });
  }

  /// Relieves sources of rows that must leave but visit no rank with slack: such rows can only go
  /// to ranks that move rows of their own instead. If almost all rows of a source must leave, the
  /// estimated number of such rows is taken off its `surplus` and added to the surplus of ranks
  /// without slack, which give up as many (`exchange`). Returns the source's interval of these. The
  /// estimate supposes that tokens draw their ids independently, and adds a sixteenth of the rows,
  /// since not all rows that could find slack do.
  template <class Team>
  PLIMSOLL_HD stretch relieve(Team& team, scratch arrays, deal_arrays const& all,
                              std::int64_t routed) const {
    if (rules.any_rank || routed == 0) {
      return {};
    }
    index_t const n = ranks.size();
    auto const in = exchange_arrays::in(arrays, n);
    auto const high = team.sum(
        n, [this](index_t r) { return memory.slack[r] == 0 ? routed_to(r) : std::int64_t{0}; });
    constexpr std::int64_t one = std::int64_t{1} << 31;
    std::int64_t without_slack_share = one;
    for (index_t j = 0; j < rules.top_k; ++j) {
      without_slack_share = without_slack_share * (high * one / routed) / one;
    }
    without_slack_share = minimum{}(without_slack_share + one / 16, one);
    auto const peak = team.max(n, [this](index_t r) {
      return ranks.lives(r) ? ranks.level_of(memory.load[r], r) : std::int64_t{0};
    });
    team.for_each(n, [=, this](index_t r) {
      std::int64_t const with_slack = movable(r) - movable(r) * without_slack_share / one;
      in.must_leave[r] = maximum{}(all.surplus[r] - with_slack, std::int64_t{0});
      std::int64_t const below_peak = ranks.room_below(peak, r) - memory.load[r];
      in.can_accept[r] =
          memory.slack[r] == 0
              ? maximum{}(minimum{}(with_slack - all.surplus[r], below_peak), std::int64_t{0})
              : std::int64_t{0};
    });
    std::int64_t const all_must_leave = team.exclusive_scan(
        n, [=](index_t r) { return in.must_leave[r]; }, in.must_leave_before);
    std::int64_t const all_can_accept = team.exclusive_scan(
        n, [=](index_t r) { return in.can_accept[r]; }, in.can_accept_before);
    std::int64_t const total = minimum{}(all_must_leave, all_can_accept);
    if (total == 0) {
      return {};
    }
    auto const off = [=](index_t r) {
      return stretch{in.must_leave_before[r], in.must_leave_before[r] + in.must_leave[r]}.of(
          total, all_must_leave);
    };
    auto const on = [=](index_t r) {
      return stretch{in.can_accept_before[r], in.can_accept_before[r] + in.can_accept[r]}.of(
          total, all_can_accept);
    };
    team.for_each(n, [=](index_t r) {
      all.exchange[r] = on(r).size();
      all.surplus[r] += all.exchange[r] - off(r).size();
    });
    return off(source);
  }
};

/// Ids of a batch and the ranks of their slots.
template <class Id>
struct waterline_rows {
  matrix_ref<Id const> ids;     ///< `[tokens, k]`
  std::int32_t const* rank_of;  ///< `[slots]`: -1 for a slot of no rank
  index_t slots;

  /// Returns the rank of an id, -1 if it is not a slot of any rank.
  PLIMSOLL_HD std::int32_t rank(Id id) const {
    auto const slot = static_cast<std::uint64_t>(id);
    return slot < static_cast<std::uint64_t>(slots) ? rank_of[slot] : -1;
  }
  PLIMSOLL_HD std::int32_t rank(index_t token, index_t j) const { return rank(ids(token, j)); }
  PLIMSOLL_HD bool visits(index_t token, index_t r) const {
    index_t j = 0;
    while (j < ids.extent(1) && rank(token, j) != r) {
      ++j;
    }
    return j < ids.extent(1);
  }
  PLIMSOLL_HD bool visits_any(index_t token) const {
    index_t j = 0;
    while (j < ids.extent(1) && rank(token, j) < 0) {
      ++j;
    }
    return j < ids.extent(1);
  }
};

/// Body of `waterline::count`. One launch clears the counts as a single problem; in the next,
/// problem = tile of tokens.
template <class Id>
struct waterline_count_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  waterline_rows<Id> rows;
  matrix_ref<std::int64_t> loads;  ///< `[2, ranks]`
  index_t source;
  bool every_token;  ///< also counts tokens without a valid expert
  bool clearing;

  [[nodiscard]] index_t problems() const {
    return clearing ? 1 : tile_counts::tiles_of(rows.ids.extent(0));
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(loads.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t tile) const {
    index_t const n = loads.extent(1);
    if (clearing) {
      team.for_each(2 * n, [=, this](index_t i) { loads(i / n, i % n) = 0; });
      return;
    }
    auto* const seen = arrays.take<std::int32_t>(n);
    index_t const k = rows.ids.extent(1);
    index_t const begin = tile * tile_counts::tile;
    index_t const tokens = minimum{}(rows.ids.extent(0) - begin, tile_counts::tile);
    team.histogram(
        tokens * k, [=, this](index_t i) { return rows.rank(element(rows.ids, begin * k + i)); },
        seen, n);
    index_t const own = team.count(
        tokens, [=, this](index_t i) { return every_token || rows.visits_any(begin + i); });
    team.for_each(n, [=, this](index_t r) {
      if (seen[r] > 0) {
        add_to(&loads(0, r), seen[r]);
      }
    });
    team.single([=, this] { add_to(&loads(1, source), own); });
  }
};

/// Counts of the proposals of even and of odd rounds, which are written while others read those of
/// the round before. Columns: ranks, then one for rows that do not propose.
struct proposal_counts {
  tile_counts even_rounds;
  std::int32_t* odd_rounds;

  template <class Memory>
  PLIMSOLL_HD static proposal_counts in(Memory& memory, index_t tokens, index_t columns) {
    tile_counts const even_rounds = tile_counts::in(memory, tokens, columns);
    return {even_rounds, tile_counts::in(memory, tokens, columns).counts};
  }
};

/// Arrays of `waterline_fill_body::settle`.
struct settle_arrays {
  std::int32_t* limit;   ///< `[ranks]`: rows that the rank accepts
  std::int64_t* before;  ///< `[ranks]`: sum over lower ranks of the rows that they could accept

  template <class Memory>
  PLIMSOLL_HD static settle_arrays in(Memory& memory, index_t ranks) {
    settle_arrays result{};
    memory.take(result.limit, ranks);
    memory.take(result.before, ranks);
    return result;
  }
};

/// Body of `waterline::fill`, problem = tile of tokens. The opening round writes rows and draws the
/// ranks of sampled ones. With the surplus method, rows of the source also propose to ranks. Once
/// the proposals of all tiles are summed, each rank accepts the first of its rows, as many as it
/// has slack for, and the other rows propose in the next round. In the third and last round, rows
/// that may go to any rank go to any slack that is left.
///
/// Rounds are phases (detail/phases.hpp). In one launch, every tile sums all proposals by itself,
/// which saves a barrier per round; else the sum is a phase between two rounds, problem = column.
///
/// Rows of a source other than the planned one stay at home, since its share of the slack is not
/// known; the report says so.
template <class Id, class OutId = Id>
struct waterline_fill_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;
  static constexpr int most_rounds = waterline_state::most_rounds;

  rank_levels ranks;
  waterline_rules rules;
  waterline_memory memory;
  index_t source;
  tile_counts tiles;  ///< tiles of tokens; columns: ranks, then one for rows that do not propose
  std::int32_t* odd_counts;  ///< counts of odd rounds, written while others read even ones
  std::int32_t* proposal;    ///< `[tokens]`
  waterline_rows<Id> rows;
  std::int32_t const* shared_slot;  ///< `[ranks]`
  float shared_weight;
  matrix_ref<float const> weights;     ///< `[tokens, k]` or empty
  matrix_ref<OutId> out_ids;           ///< `[tokens, k + 1]` or empty
  matrix_ref<float> out_weights;       ///< the same
  vector_ref<std::int32_t> out_ranks;  ///< `[tokens]` or empty
  vector_ref<waterline_report> report;
  std::uint64_t seed;
  std::uint64_t subsequence;
  int rounds;  ///< after the opening one
  bool one_launch;

  [[nodiscard]] bool fits_one_launch() const { return tiles.are_few(); }
  [[nodiscard]] int phases() const { return one_launch ? rounds + 1 : 2 * rounds + 1; }
  [[nodiscard]] PLIMSOLL_HD index_t problems(int phase) const {
    return adds_up(phase) ? tiles.columns : tiles.problems();
  }
  [[nodiscard]] std::size_t scratch_bytes(int phase) const {
    if (adds_up(phase)) {
      return 0;
    }
    tile_counts const counted = counted_in(0);
    return scratch_bytes_of<std::int32_t>(ranks.size()) +
           bytes_taken_by<settle_arrays>(ranks.size()) + counted.scratch_bytes<device_team>();
  }
  /// If no surplus row is left before a round, none is left after it.
  [[nodiscard]] PLIMSOLL_HD bool is_over(int round) const { return unmet_before(round) == 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t problem, int phase) const {
    int const round = one_launch ? phase : phase / 2;
    if (!adds_up(phase)) {
      fill(team, arrays, problem, round);
    } else if (is_planned() && memory.state->unmet[round] > 0) {
      counted_in(round).scan(team, problem);
    }
  }

 private:
  [[nodiscard]] PLIMSOLL_HD bool adds_up(int phase) const { return !one_launch && phase % 2 == 1; }
  /// Counts of the proposals of a round.
  [[nodiscard]] PLIMSOLL_HD tile_counts counted_in(int round) const {
    tile_counts result = tiles;
    result.counts = round % 2 == 0 ? tiles.counts : odd_counts;
    result.by_tile = one_launch;
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD bool is_planned() const {
    return memory.state->is_planned != 0 && memory.state->source == source;
  }
  [[nodiscard]] PLIMSOLL_HD std::int64_t unmet_before(int round) const {
    return is_planned() ? memory.state->unmet[round == 0 ? 0 : round - 1] : 0;
  }

  template <class Team>
  PLIMSOLL_HD void fill(Team& team, scratch arrays, index_t tile, int round) const {
    std::int64_t unmet = unmet_before(round);
    if (round == 0) {
      open(team, tile, unmet > 0 ? memory.room : nullptr);
    } else if (unmet == 0) {
      return;
    } else {
      auto* const left = arrays.take<std::int32_t>(ranks.size());
      std::int64_t const moved = settle(team, arrays, tile, round, unmet, left);
      unmet -= moved;
      if (tile == 0) {
        team.single([=, this] {
          memory.state->unmet[round] = unmet;
          report[0].moved += moved;
        });
      }
      if (round < rounds && unmet > 0) {
        propose(team, tile, round, left);
      }
    }
    if (round < rounds && unmet > 0) {
      counted_in(round).count(team, arrays, tile,
                              [=, this](index_t token) { return column(token, round); });
    } else if (round == rounds && tile == 0) {
      team.single([=, this] { report[0].unplaced = unmet; });
    }
  }

  // Values of `proposal` that are not the rank a row proposes to.
  static constexpr std::int32_t at_home = -1;
  static constexpr std::int32_t no_row = -2;
  static constexpr std::int32_t moved_along = -3;  ///< to a rank that its token visits
  static constexpr std::int32_t moved_alone = -4;  ///< to another rank

  // Counts of a tile, packed into one number: ids of -1, other ids without a rank, and rows.
  static constexpr int width = 20;
  static constexpr std::int64_t unrouted = 1;
  static constexpr std::int64_t stray = std::int64_t{1} << width;
  static constexpr std::int64_t row = stray << width;

  /// First round of a tile: writes the rows that stay and lets the others propose to a rank.
  /// `room`: slack by which rows propose, or null if they do not.
  template <class Team>
  PLIMSOLL_HD void open(Team& team, index_t tile, std::int32_t const* room) const {
    index_t const begin = tiles.first(tile);
    index_t const tokens = tiles.size(tile);
    std::int64_t const seen =
        room == nullptr
            ? team.sum(tokens, [=, this](index_t i) { return open_row<false>(begin + i, room); })
            : team.sum(tokens, [=, this](index_t i) { return open_row<true>(begin + i, room); });
    team.single([=, this] {
      add_to(&report[0].rows, seen / row);
      add_to(&report[0].without_expert, tokens - seen / row);
      add_to(&report[0].unrouted, seen % stray);
      add_to(&report[0].out_of_range, seen % row / stray);
      if (tile == 0 && !is_planned() && !report[0].refused) {
        index_t const planned = memory.state->is_planned != 0 ? memory.state->source : -1;
        fault& refused = report[0].refused;
        refused.kind = fault_kind::source;
        refused.where = planned;
        refused.got = static_cast<double>(source);
      }
    });
    if (rules.sampled) {
      index_t const along = count(team, tile, moved_along);
      index_t const alone = count_alone(team, tile);
      team.single([=, this] { add_to(&report[0].moved, along + alone); });
    }
  }
  template <class Team>
  PLIMSOLL_HD index_t count(Team& team, index_t tile, std::int32_t what) const {
    std::int32_t const* const first = proposal + tiles.first(tile);
    return team.count(tiles.size(tile), [=](index_t i) { return first[i] == what; });
  }
  template <class Team>
  PLIMSOLL_HD index_t count_alone(Team& team, index_t tile) const {
    index_t const alone = count(team, tile, moved_alone);
    team.single([=, this] { add_to(&report[0].new_destinations, alone); });
    return alone;
  }

  /// Writes the ids and weights of a token, and sends its row home or to the rank that it draws.
  template <bool Proposes>
  PLIMSOLL_HD std::int64_t open_row(index_t token, std::int32_t const* room) const {
    auto const begin = [token](auto const& matrix) {
      return matrix.data == nullptr ? nullptr : matrix.data + token * matrix.stride(0);
    };
    auto const step = [](auto const& matrix) { return matrix.stride(1); };
    Id const* const id = begin(rows.ids);
    OutId* const out_id = begin(out_ids);
    float const* const weight = begin(weights);
    float* const out_weight = begin(out_weights);
    index_t const k = rows.ids.extent(1);
    std::int64_t seen = 0;
    std::int64_t room_sum = 0;
    for (index_t j = 0; j < k; ++j) {
      Id const slot = id[j * step(rows.ids)];
      std::int32_t const r = rows.rank(slot);
      if (r >= 0) {
        seen |= row;
        room_sum += Proposes ? room[r] : 0;
      } else {
        seen += slot == -1 ? unrouted : stray;
      }
      if (out_id != nullptr) {
        out_id[j * step(out_ids)] = r < 0 ? OutId{-1} : static_cast<OutId>(slot + r);
      }
    }
    for (index_t j = 0; j < k && out_weight != nullptr; ++j) {
      out_weight[j * step(out_weights)] = weight[j * step(weights)];
    }
    for (index_t j = 0; j < k && out_weight != nullptr && seen != row; ++j) {
      if (rows.rank(token, j) < 0) {
        out_weight[j * step(out_weights)] = 0;
      }
    }
    waterline_state const& state = *memory.state;
    auto const home = static_cast<std::int32_t>(source);
    if (seen < row) {
      proposal[token] = no_row;
      send(token, -1);
    } else if (rules.sampled && is_planned() && state.at_home == 0) {
      std::int32_t const r = draw(token, state);
      proposal[token] = r == home                                      ? at_home
                        : state.any_rank == 0 || rows.visits(token, r) ? moved_along
                                                                       : moved_alone;
      send(token, r);
    } else {
      proposal[token] = choose(token, 0, room_sum, room);
      send(token, home);
    }
    return seen;
  }
  PLIMSOLL_HD void send(index_t token, std::int32_t r) const {
    index_t const k = rows.ids.extent(1);
    if (out_ids.data != nullptr) {
      out_ids(token, k) = r < 0 ? OutId{-1} : static_cast<OutId>(shared_slot[r]);
    }
    if (out_weights.data != nullptr) {
      out_weights(token, k) = r < 0 ? 0.0f : shared_weight;
    }
    if (out_ranks.data != nullptr) {
      out_ranks[token] = r;
    }
  }

  /// Returns the next rank after `after` to which a sampled row may go, or the number of ranks.
  PLIMSOLL_HD index_t candidate(index_t token, index_t after, waterline_state const& state) const {
    if (state.any_rank != 0) {
      return after + 1;
    }
    index_t next = source > after ? source : ranks.size();
    for (index_t j = 0; j < rows.ids.extent(1); ++j) {
      index_t const r = rows.rank(token, j);
      next = r > after && r < next ? r : next;
    }
    return next;
  }

  PLIMSOLL_HD std::int32_t draw(index_t token, waterline_state const& state) const {
    index_t const n = ranks.size();
    std::int64_t total = state.any_rank != 0 ? state.drawn_from : 0;
    if (state.any_rank == 0) {
      for (index_t r = candidate(token, -1, state); r < n; r = candidate(token, r, state)) {
        total += memory.weight[r];
      }
    }
    if (total == 0) {
      return lightest(token, state);
    }
    std::int64_t const at = position(token, total);
    if (state.any_rank != 0) {
      // Ranks without weight have empty intervals, so they are never found.
      return static_cast<std::int32_t>(last_not_above(memory.before, n, at));
    }
    index_t r = candidate(token, -1, state);
    for (std::int64_t left = at - memory.weight[r]; left >= 0; left -= memory.weight[r]) {
      r = candidate(token, r, state);
    }
    return static_cast<std::int32_t>(r);
  }

  /// Returns a pseudo-random number in [0, total).
  PLIMSOLL_HD std::int64_t position(index_t token, std::int64_t total) const {
    auto const low = static_cast<std::uint32_t>(token);
    auto const from = static_cast<std::uint32_t>(source);
    if (rules.literal) {
      std::uint32_t const hash = (low ^ from * 0x9E3779B9u) * 1664525u + 1013904223u;
      return hash % total;
    }
    std::uint64_t const bits = random::bits(seed, subsequence, std::uint64_t{from} << 32 | low);
    return static_cast<std::int64_t>(multiply_high(bits, static_cast<std::uint64_t>(total)));
  }

  /// Chooses a rank if no candidate has slack: the source, unless another is clearly lighter.
  PLIMSOLL_HD std::int32_t lightest(index_t token, waterline_state const& state) const {
    auto const height = [this](index_t r) {
      auto const load = static_cast<double>(memory.load[r]);
      return ranks.speed().equal_speeds ? load : divide(load, ranks.speeds[r]);
    };
    double const mine = rules.literal ? 11.0 : rules.margin;
    double const best_so_far = rules.literal ? 10.0 : 1.0;
    index_t best = source;
    for (index_t r = candidate(token, -1, state); r < ranks.size();
         r = candidate(token, r, state)) {
      if (ranks.lives(r) && multiply(height(r), mine) < multiply(height(best), best_so_far)) {
        best = r;
      }
    }
    return static_cast<std::int32_t>(best);
  }

  [[nodiscard]] PLIMSOLL_HD bool goes_anywhere(int in_round) const {
    return rules.any_rank && in_round == most_rounds - 1;
  }
  /// Returns the column in which a row's proposal counts.
  PLIMSOLL_HD std::int32_t column(index_t token, int in_round) const {
    auto const none = static_cast<std::int32_t>(ranks.size());
    std::int32_t const r = proposal[token];
    return goes_anywhere(in_round) ? (r == at_home ? 0 : none) : (r >= 0 ? r : none);
  }

  /// Lets rows that are still at home propose to a rank that their token visits.
  template <class Team>
  PLIMSOLL_HD void propose(Team& team, index_t tile, int round, std::int32_t const* room) const {
    if (goes_anywhere(round)) {
      return;
    }
    index_t const begin = tiles.first(tile);
    team.for_each(tiles.size(tile), [=, this](index_t i) {
      if (proposal[begin + i] == at_home) {
        std::int64_t room_sum = 0;
        for (index_t j = 0; j < rows.ids.extent(1); ++j) {
          room_sum += room_for(begin + i, j, room);
        }
        proposal[begin + i] = choose(begin + i, round, room_sum, room);
      }
    });
  }
  /// Chooses one of the ranks that the token visits, in proportion to `room`; `room_sum` is the sum
  /// of `room` over the token's ids.
  PLIMSOLL_HD std::int32_t choose(index_t token, int round, std::int64_t room_sum,
                                  std::int32_t const* room) const {
    if (room_sum == 0) {
      return at_home;
    }
    // Multiples of the golden ratio are spread evenly over any run of consecutive tokens.
    auto const turn = static_cast<std::uint32_t>(token * most_rounds + round) * 0x9E3779B9u;
    std::int64_t left = static_cast<std::int64_t>(turn >> 8) * room_sum >> 24;
    // No early exit: its branch would not be predictable.
    index_t chosen = 0;
    for (index_t j = 0; j < rows.ids.extent(1); ++j) {
      left -= room_for(token, j, room);
      chosen += left >= 0;
    }
    return rows.rank(token, chosen);
  }
  PLIMSOLL_HD std::int64_t room_for(index_t token, index_t j, std::int32_t const* room) const {
    std::int32_t const r = rows.rank(token, j);
    return r < 0 ? 0 : room[r];
  }

  /// Decides on the proposals of the previous round. Returns how many rows of all tiles move, and
  /// writes the slack that is `left`.
  template <class Team>
  PLIMSOLL_HD std::int64_t settle(Team& team, scratch arrays, index_t tile, int round,
                                  std::int64_t unmet, std::int32_t* left) const {
    index_t const n = ranks.size();
    tile_counts const proposed = counted_in(round - 1);
    tile_counts::sums const counts = proposed.add_up(team, arrays, tile);
    bool const anywhere = goes_anywhere(round - 1);
    std::int32_t const* const room = memory.room_in(round - 1, n);
    auto const in = settle_arrays::in(arrays, n);
    auto const wanted = [=](index_t r) {
      return std::int64_t{anywhere ? room[r] : minimum{}(room[r], counts.totals[r])};
    };
    std::int64_t const room_sum = team.exclusive_scan(n, wanted, in.before);
    std::int64_t const can_accept = anywhere ? counts.totals[0] : room_sum;
    std::int64_t const moved = minimum{}(minimum{}(room_sum, can_accept), unmet);
    team.for_each(n, [=, this](index_t r) {
      std::int64_t const taken =
          minimum{}(maximum{}(moved - in.before[r], std::int64_t{0}), wanted(r));
      in.limit[r] = static_cast<std::int32_t>(taken);
      left[r] = room[r] - in.limit[r] + (round == 1 ? memory.more[r] : 0);
      if (tile == 0 && round < rounds) {
        memory.room_in(round, n)[r] = left[r];
      }
    });
    proposed.visit<device_team>(
        team, arrays, tile, counts, [=, this](index_t token) { return column(token, round - 1); },
        [=, this](index_t token, std::int32_t column, std::int32_t earlier) {
          if (column == n) {
            return;
          }
          if (earlier >= (anywhere ? moved : in.limit[column])) {
            proposal[token] = at_home;
            return;
          }
          index_t const r = anywhere ? last_not_above(in.before, n, earlier) : column;
          proposal[token] = anywhere && !rows.visits(token, r) ? moved_alone : moved_along;
          send(token, static_cast<std::int32_t>(r));
        });
    if (anywhere) {
      count_alone(team, tile);
    }
    return moved;
  }
};

}}}  // namespace plimsoll::detail
