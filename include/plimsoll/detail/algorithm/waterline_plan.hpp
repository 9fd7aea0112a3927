// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `waterline::plan`: finds the level, and assigns slack to sources.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/waterline.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/round_robin.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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

/// Intervals of slack that the source's rows may take, each in a weighted round-robin order.
enum class source_interval : index_t {
  in_node,   ///< of the room in the source's node
  anywhere,  ///< of the rest of the room on all ranks
  spare,     ///< of the rest that no surplus needs
  exchanged  ///< of the rows that ranks without slack give up
};
inline constexpr index_t source_intervals = 4;

/// Arrays of `waterline_plan_body` for the surplus method.
struct deal_arrays {
  std::int64_t* surplus;            ///< `[ranks]`: rows that must leave
  std::int64_t* room;               ///< `[ranks]`: slack, at most as much as there is surplus
  std::int64_t* rest;               ///< `[ranks]`: room that is left after every node's own rows
  std::int64_t* exchange;           ///< `[ranks]`
  std::int64_t* node_surplus;       ///< `[nodes]`
  std::int64_t* node_given;         ///< `[nodes]`: surplus that finds room in its node
  round_robin_position* in_node;    ///< `[nodes]`: the position after `node_given` units
  stretch* intervals;               ///< `[source_intervals]`, in units of slack
  round_robin_position* positions;  ///< `[source_intervals, 2]`: where each begins and ends

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
    memory.take(result.intervals, source_intervals);
    memory.take(result.positions, 2 * source_intervals);
    return result;
  }

  /// Returns the slack of every rank that an interval is a part of.
  [[nodiscard]] PLIMSOLL_HD std::int64_t const* slack_of(source_interval which) const {
    return which == source_interval::in_node     ? room
           : which == source_interval::exchanged ? exchange
                                                 : rest;
  }
  [[nodiscard]] PLIMSOLL_HD stretch* interval(source_interval which) const {
    return intervals + static_cast<index_t>(which);
  }
  /// Returns how many units of a rank's slack are in an interval.
  [[nodiscard]] PLIMSOLL_HD std::int32_t units_in(source_interval which, index_t rank) const {
    round_robin_position const* const ends = positions + 2 * static_cast<index_t>(which);
    std::int64_t const slack = slack_of(which)[rank];
    return static_cast<std::int32_t>(ends[1].of(slack, rank) - ends[0].of(slack, rank));
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
                     position_searches{2 * source_intervals}.scratch_bytes());
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
    team.single([=, this] { report[0].refused = fault_of(kind, where, got, row); });
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

  /// Finds the source's intervals.
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
    team.store(all.interval(source_interval::in_node), inside);
    team.store(all.interval(source_interval::anywhere), {outside, outside + mine - inside.size()});
    team.store(all.interval(source_interval::spare), {leaving + more.begin, leaving + more.end});
    team.store(all.interval(source_interval::exchanged), relieved);
  }

  /// Writes the units of every rank's slack that the source's intervals contain.
  template <class Team>
  PLIMSOLL_HD void give_intervals(Team& team, scratch arrays, deal_arrays const& all,
                                  index_t own) const {
    index_t const n = ranks.size();
    position_searches{2 * source_intervals}.find(
        team, arrays,
        [=, this](index_t i) {
          auto const which = static_cast<source_interval>(i / 2);
          stretch const units = *all.interval(which);
          std::int64_t const given = i % 2 == 0 ? units.begin : units.end;
          return which == source_interval::in_node
                     ? search_in(own, all.room, given)
                     : position_search::of(all.slack_of(which), 0, n, given);
        },
        all.positions);
    team.for_each(n, [=, this](index_t r) {
      bool const is_near = ranks.where.node_of(r) == own;
      memory.room[r] = (is_near ? all.units_in(source_interval::in_node, r) : 0) +
                       all.units_in(source_interval::anywhere, r);
      // Rows that may go to any rank need not leave their node for spare slack.
      bool const is_offered = is_near || !rules.any_rank;
      memory.more[r] = (is_offered ? all.units_in(source_interval::spare, r) : 0) +
                       all.units_in(source_interval::exchanged, r);
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

}}}  // namespace plimsoll::detail
