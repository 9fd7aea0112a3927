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
  [[nodiscard]] PLIMSOLL_HD stretch scale(std::int64_t whole, std::int64_t all) const {
    return all == 0 ? stretch{} : stretch{scaled(begin, whole, all), scaled(end, whole, all)};
  }
  /// Returns x * whole / all rounded down, for x in [0, all] and all in [1, 2^31).
  [[nodiscard]] PLIMSOLL_HD static std::int64_t scaled(std::int64_t x, std::int64_t whole,
                                                       std::int64_t all) {
    if (whole == all) {
      return x;
    }
    if (whole > std::int64_t{1} << 31) {
      return whole / all * x + whole % all * x / all;
    }
    // A quotient of doubles is off by at most one; a GPU divides them much faster than integers.
    std::int64_t const product = whole * x;
    auto const quotient =
        static_cast<std::int64_t>(divide(static_cast<double>(product), static_cast<double>(all)));
    std::int64_t const rest = product - quotient * all;
    return quotient + (rest >= all) - (rest < 0);
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

/// Surplus and room of a node's ranks.
struct node_totals {
  std::int64_t room;
  std::int32_t surplus;
  std::int32_t given;  ///< surplus that finds room in the node
};

/// Arrays of `waterline_plan_body` for the surplus method. Surplus and room are below 2^31.
struct deal_arrays {
  std::int32_t* surplus;   ///< `[ranks]`: rows that must leave
  std::int32_t* room;      ///< `[ranks]`: slack, at most as much as there is surplus
  std::int32_t* rest;      ///< `[ranks]`: room that is left after every node's own rows
  std::int32_t* exchange;  ///< `[ranks]`
  node_totals* in_node;    ///< `[nodes]`
  stretch* intervals;      ///< `[source_intervals]`, in units of slack
  /// `[nodes + 2 * source_intervals]`: in each node the position after the units that are given,
  /// then where each interval begins and ends
  round_robin_position* positions;

  PLIMSOLL_HD static deal_arrays in(scratch& memory, index_t ranks, index_t nodes) {
    deal_arrays result{};
    memory.take(result.surplus, ranks);
    memory.take(result.room, ranks);
    memory.take(result.rest, ranks);
    memory.take(result.exchange, ranks);
    memory.take(result.in_node, nodes);
    memory.take(result.intervals, source_intervals);
    memory.take(result.positions, nodes + 2 * source_intervals);
    return result;
  }

  /// Returns the slack of every rank that an interval is a part of.
  [[nodiscard]] PLIMSOLL_HD std::int32_t const* slack_of(source_interval which) const {
    return which == source_interval::in_node     ? room
           : which == source_interval::exchanged ? exchange
                                                 : rest;
  }
  [[nodiscard]] PLIMSOLL_HD stretch* interval(source_interval which) const {
    return intervals + static_cast<index_t>(which);
  }
};

/// Two numbers below 2^31, which sums and scans add up as one.
struct number_pair {
  std::int64_t low;
  std::int64_t high;

  [[nodiscard]] PLIMSOLL_HD static number_pair unpack(std::uint64_t packed) {
    return {static_cast<std::int64_t>(packed & 0xffffffffu),
            static_cast<std::int64_t>(packed >> 32)};
  }
  [[nodiscard]] PLIMSOLL_HD std::uint64_t packed() const {
    return static_cast<std::uint64_t>(high) << 32 | static_cast<std::uint64_t>(low);
  }
};

/// Arrays of `waterline_plan_body::relieve`, pairs of the rows of a rank that must leave but find
/// no slack, and the rows of others that it can take in.
struct exchange_arrays {
  std::uint64_t* rows;    ///< `[ranks]`
  std::uint64_t* before;  ///< `[ranks]`: sum over lower ranks

  PLIMSOLL_HD static exchange_arrays in(scratch& memory, index_t ranks) {
    exchange_arrays result{};
    memory.take(result.rows, ranks);
    memory.take(result.before, ranks);
    return result;
  }
};

/// Rows that ranks without slack exchange.
struct exchanged_rows {
  exchange_arrays pairs;
  number_pair all;         ///< sums over all ranks
  std::int64_t total = 0;  ///< rows that must leave and are taken in

  /// Returns the interval of a rank in the rows that leave.
  [[nodiscard]] PLIMSOLL_HD stretch leaving(index_t r) const {
    std::int64_t const begin = number_pair::unpack(pairs.before[r]).low;
    return stretch{begin, begin + number_pair::unpack(pairs.rows[r]).low}.scale(total, all.low);
  }
  /// Returns the interval of a rank in the rows that are taken in.
  [[nodiscard]] PLIMSOLL_HD stretch taken_in(index_t r) const {
    std::int64_t const begin = number_pair::unpack(pairs.before[r]).high;
    return stretch{begin, begin + number_pair::unpack(pairs.rows[r]).high}.scale(total, all.high);
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
    return scratch_bytes_of<std::int32_t>(ranks.size()) +
           bytes_taken_by<deal_arrays>(ranks.size(), nodes) +
           bytes_taken_by<exchange_arrays>(ranks.size()) +
           maximum{}(first_searches().scratch_bytes(), last_searches().scratch_bytes());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t) const {
    index_t const n = ranks.size();
    auto* const load = arrays.take<std::int32_t>(n);
    std::int64_t const peak = team.max(n, [=, this](index_t r) {
      std::uint32_t const checked = checked_load(r);
      load[r] = static_cast<std::int32_t>(checked);
      return checked;
    });
    if (!is_count(peak)) {
      refuse(team);
      return;
    }
    auto const tokens = team.sum(n, [=](index_t r) { return std::int64_t{load[r]}; });
    if (!is_count(tokens)) {
      refuse(team);
      return;
    }
    outcome const found =
        rules.sampled ? weigh(team, load, tokens) : deal(team, arrays, load, tokens, peak);
    double const home_peak =
        ranks.numbers->equal_speeds != 0
            ? divide(static_cast<double>(peak), ranks.fastest())
            : team.max(n, [=, this](index_t r) { return ranks.time_of(load[r], r); });
    team.single([=, this] {
      report[0] = waterline_report{
          .level = ranks.time_at(found.level), .home_peak = home_peak, .surplus = found.surplus};
      *memory.state = waterline_state{{found.unmet},  found.drawn_from,
                                      source,         1,
                                      found.any_rank, rows_of(source) < rules.min_tokens};
    });
  }

 private:
  /// Result of `weigh` or `deal`, for the report and the state.
  struct outcome {
    std::int64_t level;
    std::int64_t surplus;
    std::int64_t unmet;
    std::int64_t drawn_from;
    bool any_rank;
  };

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
  /// Returns the load of a rank if all rows stay at home, or 2^31 if the rank's loads are refused
  /// or their sum is that high.
  PLIMSOLL_HD std::uint32_t checked_load(index_t r) const {
    constexpr std::int64_t refused = std::int64_t{1} << 31;
    std::int64_t const routed = loads(0, r);
    std::int64_t const rows = loads(1, r);
    bool const is_valid = is_count(routed) && is_count(rows) && is_count(rows_of(r)) &&
                          ((routed | rows) == 0 || ranks.lives(r));
    return static_cast<std::uint32_t>(is_valid ? minimum{}(routed_to(r) + rows_of(r), refused)
                                               : refused);
  }

  /// Rows at home on a rank that may leave it.
  PLIMSOLL_HD std::int64_t movable(index_t r) const {
    return rows_of(r) < rules.min_tokens ? 0 : rows_of(r);
  }

  /// Reports the first refused load, or the sum of all.
  template <class Team>
  PLIMSOLL_HD void refuse(Team& team) const {
    index_t const n = ranks.size();
    index_t const bad = team.min(2 * n, [=, this](index_t i) {
      std::int64_t const load = loads(i / n, i % n);
      bool const is_live = load == 0 || ranks.lives(i % n);
      return is_count(load) && is_live ? 2 * n : i;
    });
    fault refused{};
    if (bad < 2 * n) {
      std::int64_t const load = loads(bad / n, bad % n);
      refused = fault_of(is_count(load) ? fault_kind::dead_routed_load : fault_kind::routed_load,
                         bad % n, load, bad / n);
    } else {
      auto const tokens = team.sum(n, [this](index_t r) { return routed_to(r) + rows_of(r); });
      refused = fault_of(fault_kind::tokens, -1, tokens);
    }
    team.for_each(n, [this](index_t r) { memory.slack[r] = 0; });
    team.single([=, this] {
      report[0] = waterline_report{.refused = refused};
      *memory.state = waterline_state{{}, 0, source, 1, rules.any_rank, 1};
    });
  }

  /// For sampled rows: computes the slack and the weight of every rank.
  template <class Team>
  PLIMSOLL_HD outcome weigh(Team& team, std::int32_t const* home_load, std::int64_t tokens) const {
    index_t const n = ranks.size();
    auto const routed = team.sum(n, [this](index_t r) { return routed_to(r); });
    bool const counts_home = rules.literal && !rules.local_counts_only;
    std::int64_t const total =
        rules.literal ? (counts_home ? tokens : routed) + routed / rules.top_k : tokens;
    std::int64_t const level = ranks.level_for(team, total);
    auto const drawn_from = team.exclusive_scan(
        n,
        [=, this](index_t r) {
          std::int64_t const load = counts_home ? home_load[r] : routed_to(r);
          std::int64_t const slack = maximum{}(ranks.room_below(level, r) - load, std::int64_t{0});
          memory.load[r] = load;
          memory.slack[r] = slack;
          memory.weight[r] = weight_of(r, slack);
          return memory.weight[r];
        },
        memory.before);
    bool any_rank = rules.any_rank;
    if (rules.literal) {
      auto const highest_load = team.max(n, [this](index_t r) { return memory.load[r]; });
      any_rank = rules.local_counts_only || highest_load <= level;
    }
    return {level, 0, 0, drawn_from, any_rank};
  }
  PLIMSOLL_HD std::int64_t weight_of(index_t r, std::int64_t slack) const {
    if (rules.literal) {
      return r == source ? slack : slack * 10 / 11;
    }
    bool const is_near = ranks.where.node_of(r) == ranks.where.node_of(source);
    return slack * (r == source ? rules.local_preference
                    : is_near   ? rules.node_preference
                                : std::int64_t{1} << 16);
  }

  /// For the surplus method: computes how much of every rank's slack the source's rows may take.
  ///
  /// Slack is assigned to surplus first within each node, as far as both go; then to the surplus
  /// that is left, over all ranks. The remaining slack is assigned in proportion to surplus, since
  /// rows that cannot go everywhere need a choice of ranks. In each step, the sources take
  /// consecutive intervals of the same weighted round-robin order, so no unit is assigned twice.
  template <class Team>
  PLIMSOLL_HD outcome deal(Team& team, scratch arrays, std::int32_t const* load,
                           std::int64_t tokens, std::int64_t peak) const {
    index_t const n = ranks.size();
    auto const all = deal_arrays::in(arrays, n, ranks.where.nodes);
    // No rank can end below its routed load, so a lower level would move rows for nothing.
    std::int64_t const mean = ranks.level_for(team, tokens);
    std::int64_t const level = maximum{}(mean, highest_level(team, [this](index_t r) {
                                           return routed_to(r) + rows_of(r) - movable(r);
                                         }));
    auto const sums = number_pair::unpack(team.sum(n, [=, this](index_t r) {
      std::int64_t const below = ranks.room_below(level, r) - load[r];
      std::int64_t const slack = maximum{}(below, std::int64_t{0});
      std::int64_t const surplus = maximum{}(-below, std::int64_t{0});
      memory.slack[r] = slack;
      all.room[r] =
          static_cast<std::int32_t>(minimum{}(slack, std::int64_t{highest<std::int32_t>}));
      all.surplus[r] = static_cast<std::int32_t>(surplus);
      return number_pair{surplus, slack == 0 ? routed_to(r) : 0}.packed();
    }));
    // As much surplus as exchanged rows take off, they add to other ranks.
    std::int64_t const moving = sums.low;
    exchanged_rows const exchanged = relieve(team, arrays, all, load, peak, sums.high);
    auto const room = team.sum(n, [=](index_t r) {
      std::int64_t given_up = 0;
      if (exchanged.total > 0) {
        given_up = exchanged.taken_in(r).size();
        all.surplus[r] += static_cast<std::int32_t>(given_up - exchanged.leaving(r).size());
      }
      all.exchange[r] = static_cast<std::int32_t>(given_up);
      std::int64_t const of_rank = minimum{}(std::int64_t{all.room[r]}, moving);
      all.room[r] = static_cast<std::int32_t>(of_rank);
      return of_rank;
    });
    stretch const relieved = exchanged.total > 0 ? exchanged.leaving(source) : stretch{};
    std::int64_t const mine = all.surplus[source];
    std::int64_t const given = total_nodes(team, all, moving, room);
    bound_intervals(team, all, moving, room - moving, moving - given, relieved);
    find_positions(team, arrays, all, room - given, exchanged.total);
    give_intervals(team, all);
    return {level, moving + exchanged.total, mine + relieved.size(), 0, rules.any_rank};
  }

  /// Returns the lowest level by which every rank computes its tokens, fewer than 2^31.
  template <class Team, class TokensOf>
  PLIMSOLL_HD std::int64_t highest_level(Team& team, TokensOf tokens_of) const {
    if (ranks.numbers->equal_speeds != 0) {
      return team.max(ranks.size(),
                      [=](index_t r) { return static_cast<std::int32_t>(tokens_of(r)); });
    }
    return team.max(ranks.size(), [=, this](index_t r) {
      return ranks.lives(r) ? ranks.level_of(tokens_of(r), r) : std::int64_t{0};
    });
  }

  /// Sums surplus and room of every node. Returns how much surplus finds room in its node.
  template <class Team>
  PLIMSOLL_HD std::int64_t total_nodes(Team& team, deal_arrays const& all, std::int64_t moving,
                                       std::int64_t room) const {
    index_t const nodes = ranks.where.nodes;
    if (nodes == 1) {
      std::int64_t const given = minimum{}(moving, room);
      team.store(all.in_node,
                 {room, static_cast<std::int32_t>(moving), static_cast<std::int32_t>(given)});
      return given;
    }
    return team.sum(nodes, [=, this](index_t node) {
      std::int64_t surplus = 0;
      std::int64_t room_sum = 0;
      for (index_t r = ranks.where.first_rank(node); r < ranks.where.first_rank(node + 1); ++r) {
        surplus += all.surplus[r];
        room_sum += all.room[r];
      }
      std::int64_t const given = minimum{}(surplus, room_sum);
      all.in_node[node] = {room_sum, static_cast<std::int32_t>(surplus),
                           static_cast<std::int32_t>(given)};
      return given;
    });
  }

  /// Finds the source's intervals. `spare` is the room that no surplus needs, `leaving` the surplus
  /// that finds no room in its node.
  template <class Team>
  PLIMSOLL_HD void bound_intervals(Team& team, deal_arrays const& all, std::int64_t moving,
                                   std::int64_t spare, std::int64_t leaving,
                                   stretch const& relieved) const {
    index_t const own = ranks.where.node_of(source);
    std::int64_t const mine = all.surplus[source];
    std::int64_t const earlier = team.sum(source, [=](index_t r) { return all.surplus[r]; });
    std::int64_t earlier_nodes = 0;
    std::int64_t left_behind = 0;
    if (own > 0) {
      earlier_nodes = team.sum(own, [=](index_t node) { return all.in_node[node].surplus; });
      left_behind =
          earlier_nodes - team.sum(own, [=](index_t node) { return all.in_node[node].given; });
    }
    stretch const before{earlier - earlier_nodes, earlier - earlier_nodes + mine};
    stretch const inside = before.scale(all.in_node[own].given, all.in_node[own].surplus);
    std::int64_t const outside = left_behind + before.begin - inside.begin;
    stretch const more = stretch{earlier, earlier + mine}.scale(spare, moving);
    team.store(all.interval(source_interval::in_node), inside);
    team.store(all.interval(source_interval::anywhere), {outside, outside + mine - inside.size()});
    team.store(all.interval(source_interval::spare), {leaving + more.begin, leaving + more.end});
    team.store(all.interval(source_interval::exchanged), relieved);
  }

  /// Searches in the room of nodes: after what each gives, and for the source's interval there.
  [[nodiscard]] PLIMSOLL_HD position_searches first_searches() const {
    return {ranks.where.nodes + 2};
  }
  /// Searches for the other intervals.
  [[nodiscard]] PLIMSOLL_HD static position_searches last_searches() {
    return {2 * (source_intervals - 1)};
  }

  /// Finds where the source's intervals begin and end, and the rest of every rank's room, whose
  /// sum is `rest`.
  template <class Team>
  PLIMSOLL_HD void find_positions(Team& team, scratch arrays, deal_arrays const& all,
                                  std::int64_t rest, std::int64_t exchanged) const {
    index_t const n = ranks.size();
    index_t const nodes = ranks.where.nodes;
    auto const end_of = [=](index_t i) {
      stretch const units = all.intervals[i / 2];
      return i % 2 == 0 ? units.begin : units.end;
    };
    first_searches().find(
        team, arrays,
        [=, this](index_t i) {
          index_t const node = i < nodes ? i : ranks.where.node_of(source);
          std::int64_t const units = i < nodes ? all.in_node[i].given : end_of(i - nodes);
          return position_search::start(all.room, ranks.where.first_rank(node),
                                        ranks.where.first_rank(node + 1), units,
                                        all.in_node[node].room);
        },
        all.positions);
    team.for_each(n, [=, this](index_t r) {
      index_t const node = ranks.where.node_of(r);
      all.rest[r] = all.room[r] - all.positions[node].units_before(all.room[r], r);
    });
    last_searches().find(
        team, arrays,
        [=](index_t i) {
          auto const which = static_cast<source_interval>(i / 2 + 1);
          return position_search::start(all.slack_of(which), 0, n, end_of(i + 2),
                                        which == source_interval::exchanged ? exchanged : rest);
        },
        all.positions + nodes + 2);
  }

  /// Writes the units of every rank's slack that the source's intervals contain.
  template <class Team>
  PLIMSOLL_HD void give_intervals(Team& team, deal_arrays const& all) const {
    index_t const own = ranks.where.node_of(source);
    round_robin_position const* const ends = all.positions + ranks.where.nodes;
    auto const units_in = [=](source_interval which, index_t r) {
      auto const i = 2 * static_cast<index_t>(which);
      std::int32_t const slack = all.slack_of(which)[r];
      return ends[i + 1].units_before(slack, r) - ends[i].units_before(slack, r);
    };
    team.for_each(ranks.size(), [=, this](index_t r) {
      bool const is_near = ranks.where.node_of(r) == own;
      memory.room[r] = (is_near ? units_in(source_interval::in_node, r) : 0) +
                       units_in(source_interval::anywhere, r);
      // Rows that may go to any rank need not leave their node for spare slack.
      bool const is_offered = is_near || !rules.any_rank;
      memory.more[r] = (is_offered ? units_in(source_interval::spare, r) : 0) +
                       units_in(source_interval::exchanged, r);
    });
  }

  /// Relieves sources of rows that must leave but visit no rank with slack: such rows can only go
  /// to ranks that move rows of their own instead. If almost all rows of a source must leave, the
  /// estimated number of such rows is taken off its surplus and added to the surplus of ranks
  /// without slack, which give up as many. The estimate supposes that tokens draw their ids
  /// independently, and adds a sixteenth of the rows, since not all rows that could find slack do.
  /// `all.room` is the slack, `high` the load that is routed to ranks without.
  template <class Team>
  PLIMSOLL_HD exchanged_rows relieve(Team& team, scratch& arrays, deal_arrays const& all,
                                     std::int32_t const* load, std::int64_t peak,
                                     std::int64_t high) const {
    if (rules.any_rank) {
      return {};
    }
    index_t const n = ranks.size();
    std::int64_t const routed =
        team.sum(n, [this](index_t r) { return static_cast<std::int32_t>(routed_to(r)); });
    if (routed == 0) {
      return {};
    }
    constexpr std::int64_t one = std::int64_t{1} << 31;
    std::int64_t const high_share = stretch::scaled(high, one, routed);
    std::int64_t without_slack_share = one;
    for (index_t j = 0; j < rules.top_k; ++j) {
      without_slack_share = without_slack_share * high_share / one;
    }
    without_slack_share = minimum{}(without_slack_share + one / 16, one);
    std::int64_t const peak_level =
        ranks.numbers->equal_speeds != 0
            ? peak
            : highest_level(team, [=](index_t r) { return std::int64_t{load[r]}; });
    auto const pairs = exchange_arrays::in(arrays, n);
    auto const rows_at = [=, this](index_t r) {
      std::int64_t const with_slack = movable(r) - movable(r) * without_slack_share / one;
      std::int64_t const below_peak = ranks.room_below(peak_level, r) - load[r];
      std::int64_t const stay = with_slack - all.surplus[r];
      pairs.rows[r] =
          number_pair{maximum{}(-stay, std::int64_t{0}),
                      all.room[r] > 0 ? 0 : maximum{}(minimum{}(stay, below_peak), std::int64_t{0})}
              .packed();
      return pairs.rows[r];
    };
    auto const sums = number_pair::unpack(team.exclusive_scan(n, rows_at, pairs.before));
    return {pairs, sums, minimum{}(sums.low, sums.high)};
  }
};

}}}  // namespace plimsoll::detail
