// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `least_loaded::plan`: assigns every expert's tokens to ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/least_loaded_homes.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns a home's even share of an expert's tokens, as in plain expert parallelism.
PLIMSOLL_HD constexpr std::int32_t home_share(std::int32_t tokens, index_t copies,
                                              index_t position) {
  auto const n = static_cast<std::int32_t>(copies);
  return n == 1 ? tokens : tokens / n + static_cast<std::int32_t>(position < tokens % n);
}

struct least_loaded_rules {
  /// Only tokens count: there are no speeds, nodes, limits, prices or experts of several homes.
  /// Then the least loaded rank has the most free capacity, and a full rank stays full, so that a
  /// priority queue finds helpers. This says whether the options allow it; speeds and homes decide.
  bool plain;
  /// Plain, and no rank holds more than `most_listed` experts, so that one thread can go through
  /// the experts of a rank. A parallel team then lists all visits beforehand. Likewise.
  bool listed;
  static constexpr index_t most_listed = 64;
  double alpha;
  double lambda;
  bool by_expert;  ///< lambda limits the imbalance of experts, not of ranks
  bool round_up;
  bool keep_excess;  ///< an excess below a chunk stays at home
  bool limited;      ///< there are limits on imports or exports
  std::int32_t min_chunk;
  std::int32_t max_imports;
  std::int32_t max_exports;
  std::int64_t expert_bytes;
  std::int64_t token_bytes;
};

/// The modeled times of sending an expert and of a rank's work.
template <class Cost>
struct spill_pricing {
  static constexpr bool is_free = false;

  Cost cost;
  double within_node;    ///< time to send an expert
  double between_nodes;  ///< the same to another node

  /// Returns the time in which a rank computes `tokens` tokens of `experts` experts.
  PLIMSOLL_HD double time(rank_levels const& ranks, index_t r, std::int32_t tokens,
                          std::int32_t experts) const {
    auto const n = static_cast<double>(tokens);
    if constexpr (requires { cost.per_expert; }) {
      double const fastest = cost(n, index_t{experts});
      return ranks.speed().equal_speeds
                 ? fastest
                 : divide(multiply(fastest, ranks.fastest()), ranks.speeds[r]);
    } else {
      return cost(r, n);
    }
  }
};

/// Without a price, transfers of weights take no time.
template <>
struct spill_pricing<void> {
  static constexpr bool is_free = true;
};

struct spill_array_sizes {
  index_t experts;
  index_t ranks;
  index_t segments;
};

/// The state of the exchange of a plan. A plan resets it, so that no later call takes the exchange
/// of an older plan for its own.
struct spill_exchange_state {
  std::int32_t is_done = 0;  ///< 1 after the exchange
  fault refused = {};
};

/// Outcome of the last plan, and of its exchange.
struct spill_outcome {
  spill_report report = {};
  spill_exchange_state exchange = {};
};

/// The arrays of a plan: segments and transfers by expert, and the totals of ranks.
struct spill_plan_arrays {
  std::int32_t* offsets;           ///< `[experts + 1]`
  spill_segment* segments;         ///< `[segment_limit]`
  std::int32_t* transfer_offsets;  ///< `[experts + 1]`
  spill_transfer* transfers;       ///< `[segment_limit]`
  std::int32_t* loads;             ///< `[ranks]`
  std::int64_t* bytes_of_rank;     ///< `[ranks]`
  spill_outcome* outcome;          ///< `[1]`

  PLIMSOLL_HD static spill_plan_arrays in(scratch& memory, spill_array_sizes const& n) {
    spill_plan_arrays result{};
    memory.take(result.offsets, n.experts + 1);
    memory.take(result.segments, n.segments);
    memory.take(result.transfer_offsets, n.experts + 1);
    memory.take(result.transfers, n.segments);
    memory.take(result.loads, n.ranks);
    memory.take(result.bytes_of_rank, n.ranks);
    memory.take(result.outcome, 1);
    return result;
  }

  /// Returns a bound on the number of segments. Each piece of an expert is its last one, or fills a
  /// rank, or is on one of its homes. A full rank stays full, unless an expert of several homes is
  /// leveled among them.
  PLIMSOLL_HD static constexpr index_t segment_limit(index_t experts, index_t ranks,
                                                     index_t pairs) {
    return 2 * pairs + experts + ranks;
  }
};

/// The working memory of `least_loaded_body`.
struct least_loaded_state {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  /// Combined with a rank's number: the queue key of a full rank.
  static constexpr std::uint64_t full = std::uint64_t{1} << 63;
  static constexpr index_t word = 32;

  struct cursor {
    std::int32_t pieces;     ///< of all experts so far
    std::int32_t transfers;  ///< of all experts so far
    std::int32_t given;      ///< assigned tokens of the current expert
    std::int32_t forced;     ///< tokens that went to a rank without room for a chunk
    std::int32_t kept;       ///< tokens that stayed at home, above capacity
  };

  std::int32_t* load;      ///< `[ranks]`: assigned tokens, and shares of experts not yet visited
  std::int32_t* capacity;  ///< `[ranks]`
  std::uint64_t* key;      ///< `[ranks]`: load over speed, then rank; `none` if it cannot help
  std::uint64_t* queue;    ///< `[ranks]`: ranks with free capacity come before full ranks
  std::int32_t* imports;   ///< `[ranks]`
  std::int32_t* exports;   ///< `[ranks]`
  std::int32_t* working;   ///< `[ranks]`: the number of experts with tokens on the rank
  std::int32_t* latest;    ///< `[ranks]`: the rank's latest piece, -1 before the first
  double* busy;            ///< `[ranks]`: time of sending and receiving weights
  // Only with a price. Both belong to the index of the team's loop that evaluated the cost.
  std::int32_t* bad_rank;    ///< `[ranks]`: the rank of the first invalid cost, -1 if none
  double* bad_cost;          ///< `[ranks]`: that cost
  std::uint64_t* order;      ///< `[experts]`: the heaviest first
  std::byte* sort_storage;   ///< of `order`
  std::int32_t* first;       ///< `[experts]`: the first piece of a visited expert
  std::int32_t* count;       ///< `[experts]`: the number of segments
  std::int32_t* first_sent;  ///< `[experts]`: the first transfer of a visited expert
  std::int32_t* sent;        ///< `[experts]`: the number of transfers
  // Pieces and transfers of visited experts, in the order of visits.
  std::int32_t* expert;  ///< `[segment_limit]`: the expert of a piece
  std::int32_t* rank;    ///< `[segment_limit]`: the rank of a piece
  std::int32_t* end;     ///< `[segment_limit]`: end of a piece, where the expert's next begins
  std::int32_t* piece;   ///< `[segment_limit]`: the piece that a transfer is for
  std::int32_t* from;    ///< `[segment_limit]`: the source of a transfer
  cursor* now;
  first_overload* overload;  ///< `[1]`: of the first plan that exceeds its capacity
  // Only with listed rules.
  std::int32_t* by_load;   ///< `[experts]`: the experts of every rank, the heaviest first
  std::int32_t* excess;    ///< `[experts]`: tokens that do not fit at home; 0: no visit
  std::int32_t* left;      ///< `[experts]`: the home's load after the visit
  std::int32_t* position;  ///< `[experts]`: position in `order`
  std::uint32_t* visits;   ///< `[ceil(experts / 32)]`: one bit per position in `order`: 1: visit

  PLIMSOLL_HD static constexpr index_t words_of(index_t bits) { return (bits + word - 1) / word; }

  PLIMSOLL_HD static least_loaded_state in(scratch& memory, index_t experts, index_t ranks,
                                           index_t pieces, bool is_free, bool is_listed) {
    least_loaded_state s{};
    memory.take(s.load, ranks);
    memory.take(s.capacity, ranks);
    memory.take(s.key, ranks);
    memory.take(s.queue, ranks);
    memory.take(s.imports, ranks);
    memory.take(s.exports, ranks);
    memory.take(s.working, ranks);
    memory.take(s.latest, ranks);
    memory.take(s.busy, ranks);
    memory.take(s.bad_rank, is_free ? 0 : ranks);
    memory.take(s.bad_cost, is_free ? 0 : ranks);
    memory.take(s.order, experts);
    memory.take(s.sort_storage, sort_bytes<warp, std::uint64_t>(experts));
    memory.take(s.first, experts);
    memory.take(s.count, experts);
    memory.take(s.first_sent, experts);
    memory.take(s.sent, experts);
    memory.take(s.expert, pieces);
    memory.take(s.rank, pieces);
    memory.take(s.end, pieces);
    memory.take(s.piece, pieces);
    memory.take(s.from, pieces);
    memory.take(s.now, 1);
    memory.take(s.overload, 1);
    index_t const listed = is_listed ? experts : 0;
    memory.take(s.by_load, listed);
    memory.take(s.excess, listed);
    memory.take(s.left, listed);
    memory.take(s.position, listed);
    memory.take(s.visits, words_of(listed));
    return s;
  }
};

/// Body of `least_loaded::plan`. One problem.
///
/// A *visit* divides one expert anew. A rank's load includes its shares of experts that have not
/// been visited yet (LLEP's "pending" load). So an expert whose homes are within their capacities
/// would stay there, and only experts of overloaded ranks are visited.
template <class Loads, class Cost>
struct least_loaded_body {
  using device_team = warp;
  static constexpr bool is_free = spill_pricing<Cost>::is_free;

  Loads loads;  ///< `[experts]`, integers
  spill_homes homes;
  rank_levels ranks;
  least_loaded_rules rules;
  spill_pricing<Cost> pricing;
  spill_plan_arrays out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<least_loaded_state>(homes.experts, ranks.size(), pieces(), bool{is_free},
                                              bool{rules.listed});
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t) const {
    least_loaded_state const s = least_loaded_state::in(memory, homes.experts, ranks.size(),
                                                        pieces(), is_free, rules.listed);
    load_scale const scale =
        scale_loads(team, homes.experts, [this](index_t e) { return loads(e); });
    if (scale.refused) {
      refuse(team, scale.refused);
      return;
    }
    auto const total =
        team.sum(homes.experts, [this](index_t e) { return static_cast<std::int64_t>(loads(e)); });
    if (total > highest<std::int32_t>) {
      refuse(team, fault_of(fault_kind::tokens, -1, total));
      return;
    }
    if constexpr (!is_free) {
      team.for_each(ranks.size(), [&](index_t r) { s.bad_rank[r] = -1; });
    }
    stay(team, s);
    team.store(s.overload, {});
    spill_report report{};
    report.tokens = total;
    std::int64_t const peak = peak_level(team, s);
    report.home_peak = ranks.time_at(peak);
    report.home_time = longest(team, s);
    report.imbalance = imbalance(team, peak, total);
    report.spills = ranks.live() > 1 && total > 0 && report.imbalance >= rules.lambda ? 1 : 0;
    set_capacities(team, s, total);
    levels const at{peak, capacity_level(team, s), confined_level(team)};
    std::int64_t raised = at.capacity;
    report.capacity = ranks.time_at(at.capacity);
    report.time = report.home_time;
    if (report.spills != 0) {
      team.for_each(homes.experts, [&](index_t e) {
        s.order[e] = heavier_first(static_cast<fixed_load>(load_of(e)), e);
      });
      team.sort(s.order, homes.experts, s.sort_storage);
      raised = spill_within_limits(team, s, total, at);
      report.time = longest(team, s);
    }
    report.raised_capacity = ranks.time_at(raised);
    // The homes of an expert are leveled by tokens, which may take longer than their even shares.
    // A plan that used an invalid cost is discarded, too.
    bool const is_bad = refuse_bad_cost(team, s, report);
    if (is_bad || report.time > report.home_time) {
      stay(team, s);
      report.raised_capacity = report.capacity;
      report.spills = 0;
      report.home_time = is_bad ? 0 : report.home_time;
      report.time = report.home_time;
    }
    finish(team, s, at, report);
  }

 private:
  struct levels {
    std::int64_t home_peak;  ///< with all tokens at home
    std::int64_t capacity;   ///< the highest capacity of a rank, by alpha
    std::int64_t confined;   ///< see `confined_level`
  };

  /// Returns a bound on the pieces of visited experts.
  [[nodiscard]] PLIMSOLL_HD index_t pieces() const {
    return spill_plan_arrays::segment_limit(homes.experts, ranks.size(), homes.slots);
  }
  [[nodiscard]] PLIMSOLL_HD bool is_plain() const {
    return rules.plain && ranks.numbers->equal_speeds != 0 && homes.numbers->pairs == homes.experts;
  }
  [[nodiscard]] PLIMSOLL_HD bool is_listed() const {
    return rules.listed && is_plain() &&
           homes.numbers->most_held <= least_loaded_rules::most_listed;
  }
  [[nodiscard]] PLIMSOLL_HD std::int32_t load_of(index_t e) const {
    return static_cast<std::int32_t>(loads(e));
  }
  [[nodiscard]] PLIMSOLL_HD std::int32_t share_of(index_t e, index_t position) const {
    return home_share(load_of(e), homes.copies(e), position);
  }
  [[nodiscard]] PLIMSOLL_HD std::uint64_t key_of(least_loaded_state const& s, index_t r) const {
    auto const height = static_cast<std::uint64_t>(ranks.height_of(s.load[r], r));
    return height << 15 | static_cast<std::uint64_t>(r);
  }
  PLIMSOLL_HD static index_t rank_of(std::uint64_t key) {
    return static_cast<index_t>(key & 0x7fff);
  }

  /// Resets the state to plain expert parallelism: all tokens at home.
  template <class Team>
  PLIMSOLL_HD void stay(Team& team, least_loaded_state const& s) const {
    team.for_each(ranks.size(), [&](index_t r) {
      std::int32_t sum = 0;
      std::int32_t working = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t i = homes.rank_begin[r]; i < homes.rank_begin[r + 1]; ++i) {
        std::int32_t const part = share_of(homes.expert[i], homes.position[i]);
        sum += part;
        working += part > 0;
      }
      s.load[r] = sum;
      s.working[r] = working;
      s.imports[r] = 0;
      s.exports[r] = 0;
      s.latest[r] = -1;
      s.busy[r] = 0;
      s.key[r] = ranks.lives(r) ? key_of(s, r) : least_loaded_state::none;
    });
    team.for_each(homes.experts, [&](index_t e) {
      s.count[e] = minimum{}(load_of(e), static_cast<std::int32_t>(homes.copies(e)));
      s.sent[e] = 0;
    });
    team.store(s.now, {});
  }

  template <class Team>
  PLIMSOLL_HD std::int64_t peak_level(Team& team, least_loaded_state const& s) const {
    return team.max(ranks.size(), [&](index_t r) {
      return ranks.lives(r) ? ranks.level_of(s.load[r], r) : std::int64_t{0};
    });
  }

  /// Returns the modeled time of the slowest rank.
  template <class Team>
  PLIMSOLL_HD double longest(Team& team, least_loaded_state const& s) const {
    if constexpr (is_free) {
      return 0;
    } else {
      return team.max(ranks.size(), [&](index_t r) {
        return ranks.lives(r) ? add(time_of(s, r, r, s.load[r], s.working[r]), s.busy[r]) : 0.0;
      });
    }
  }
  /// Returns the cost, or 0 if it is not a valid time, so that all sums and maxima stay finite. It
  /// then records the fault for `index`, the index of the team's loop.
  [[nodiscard]] PLIMSOLL_HD double time_of(least_loaded_state const& s, index_t index, index_t r,
                                           std::int32_t tokens, std::int32_t experts) const {
    double const time = pricing.time(ranks, r, tokens, experts);
    if (time >= 0 && time < 0x1p960) {
      return time;
    }
    if (s.bad_rank[index] < 0) {
      s.bad_rank[index] = static_cast<std::int32_t>(r);
      s.bad_cost[index] = time;
    }
    return 0;
  }
  /// Reports an invalid cost. Returns true if there is one.
  template <class Team>
  PLIMSOLL_HD bool refuse_bad_cost(Team& team, least_loaded_state const& s,
                                   spill_report& report) const {
    if constexpr (is_free) {
      return false;
    } else {
      index_t const bad = team.find(0, ranks.size(), [&](index_t r) { return s.bad_rank[r] >= 0; });
      if (bad == ranks.size()) {
        return false;
      }
      report.refused = fault_of(fault_kind::cost, s.bad_rank[bad], s.bad_cost[bad]);
      return true;
    }
  }

  /// Returns max / mean; 1 without tokens.
  template <class Team>
  PLIMSOLL_HD double imbalance(Team& team, std::int64_t peak, std::int64_t total) const {
    if (total == 0) {
      return 1;
    }
    if (rules.by_expert) {
      auto const most =
          team.max(homes.experts, [this](index_t e) { return std::int64_t{load_of(e)}; });
      return divide(static_cast<double>(most * homes.experts), static_cast<double>(total));
    }
    return ranks.over_mean(peak, ranks.total_speed(team), total);
  }

  template <class Team>
  PLIMSOLL_HD void set_capacities(Team& team, least_loaded_state const& s,
                                  std::int64_t total) const {
    double const exact = multiply(rules.alpha, static_cast<double>(total));
    auto whole = static_cast<std::int64_t>(rules.round_up ? exact : almost(exact));
    whole += rules.round_up && almost(static_cast<double>(whole)) < exact;
    if (rules.round_up) {
      fill_to(team, s, total, ranks.level_for(team, whole));
      return;
    }
    std::int64_t const speeds = ranks.total_speed(team);
    team.for_each(ranks.size(), [&](index_t r) {
      std::int64_t const least = ranks.lives(r) ? 1 : 0;
      std::int64_t const part = maximum{}(multiply_divide(whole, ranks.speed()[r], speeds), least);
      s.capacity[r] = static_cast<std::int32_t>(minimum{}(part, total));
    });
  }
  template <class Team>
  PLIMSOLL_HD void fill_to(Team& team, least_loaded_state const& s, std::int64_t total,
                           std::int64_t level) const {
    team.for_each(ranks.size(), [&](index_t r) {
      s.capacity[r] = static_cast<std::int32_t>(minimum{}(ranks.room_below(level, r), total));
    });
  }
  template <class Team>
  PLIMSOLL_HD std::int64_t capacity_level(Team& team, least_loaded_state const& s) const {
    return team.max(ranks.size(), [&](index_t r) {
      return ranks.lives(r) ? ranks.level_of(s.capacity[r], r) : std::int64_t{0};
    });
  }

  /// Makes the plan and returns the level of its capacity. If limits prevent a plan within the
  /// capacity, a higher capacity spreads tokens over more ranks than forcing the rest on one does:
  /// bisection finds the lowest capacity that a plan keeps, to 1/128. At the peak of plain expert
  /// parallelism nothing is spilled. That plan is used if it ends earlier, or at the same time (as
  /// all plans without a price) with a lower peak.
  template <class Team>
  PLIMSOLL_HD std::int64_t spill_within_limits(Team& team, least_loaded_state const& s,
                                               std::int64_t total, levels const& at) const {
    // On the host `spill` is 1 to 2.1 times as fast as the list; most with few ranks.
    if constexpr (is_free && !Team::is_serial) {
      if (is_listed()) {
        spill_by_list(team, s);
        return at.capacity;
      }
    }
    // One loop makes all plans, as `spill` is large and compiled for each of its callers: the first
    // plan, those of the search, the one at the level found, and the first again if that is no
    // better.
    enum class turn { first, search, found, again };
    std::int64_t low = maximum{}(at.capacity, at.confined) - 1;
    std::int64_t high = at.home_peak;
    std::int64_t level = at.capacity;
    std::int64_t first_peak = 0;
    double first_time = 0;
    PLIMSOLL_NO_UNROLL
    for (turn now = turn::first;;) {
      spill(team, s);
      bool const is_limited = rules.limited && s.now->forced + s.now->kept > 0;
      if (now == turn::again || (now == turn::first && !is_limited)) {
        return at.capacity;
      }
      std::int64_t const peak = peak_level(team, s);
      double const time = now == turn::search ? 0.0 : longest(team, s);
      if (now == turn::first) {
        first_peak = peak;
        first_time = time;
      } else if (now == turn::search) {
        (peak <= level ? high : low) = level;
      } else {
        set_capacities(team, s, total);
        if (time < first_time || (time == first_time && peak < first_peak)) {
          return level;
        }
      }
      bool const is_found = high - low <= maximum{}(high >> 7, std::int64_t{1});
      now = now == turn::found ? turn::again : is_found ? turn::found : turn::search;
      if (now != turn::again) {
        level = is_found ? high : low + (high - low) / 2;
        fill_to(team, s, total, level);
      }
      stay(team, s);
    }
  }

  [[nodiscard]] PLIMSOLL_HD bool is_overloaded(least_loaded_state const& s, index_t e) const {
    bool result = false;
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); i < homes.end(e); ++i) {
      result |= s.load[homes.rank[i]] > s.capacity[homes.rank[i]];
    }
    return result;
  }

  /// Visits the experts of overloaded ranks, the heaviest first. Forced tokens may overload another
  /// rank on the way.
  template <class Team>
  PLIMSOLL_HD void spill(Team& team, least_loaded_state const& s) const {
    if constexpr (is_free && Team::is_serial) {
      team.for_each(ranks.size(), [&](index_t r) { s.queue[r] = key_of_helper(s, r); });
      auto helpers = team.queue(s.queue, ranks.size());
      visit_overloaded(team, s, [&](index_t e, std::int32_t rest, bool forced) {
        return is_plain() && !forced ? least_loaded(s, helpers)
                                     : best_candidate(team, s, e, rest, forced);
      });
    } else {
      visit_overloaded(team, s, [&](index_t e, std::int32_t rest, bool forced) {
        return best_candidate(team, s, e, rest, forced);
      });
    }
  }
  template <class Team, class Helper>
  PLIMSOLL_HD void visit_overloaded(Team& team, least_loaded_state const& s, Helper helper) const {
    auto const next = [&](index_t from) {
      return team.find(from, homes.experts, [&](index_t i) {
        index_t const e = id_of(s.order[i]);
        return load_of(e) > 0 && is_overloaded(s, e);
      });
    };
    index_t i = next(0);
    PLIMSOLL_NO_UNROLL
    while (i < homes.experts) {
      visit(team, s, helper, id_of(s.order[i]));
      i = next(i + 1);
    }
  }

  /// Divides one expert anew: its homes take the tokens that fit, then other ranks do.
  /// `helper(e, rest, forced)` is the key of the rank for the rest, `none` if no rank is allowed.
  template <class Team, class Helper>
  PLIMSOLL_HD void visit(Team& team, least_loaded_state const& s, Helper& helper, index_t e) const {
    std::int32_t rest = team.broadcast([&] { return close(s, e, open(s, e)); });
    bool const is_kept = stays(rest);
    bool forced = is_kept;
    overload_cause cause = is_kept ? overload_cause::small_excess : overload_cause::none;
    PLIMSOLL_NO_UNROLL
    while (rest > 0) {
      std::uint64_t const to = is_kept ? least_loaded_state::none : helper(e, rest, forced);
      if (!forced && (to == least_loaded_state::none || !is_chunk(room_of(s, rank_of(to)), rest))) {
        forced = true;
        if (s.overload->cause == overload_cause::none) {
          cause = cause_of(team, s, e, rest);
        }
        continue;
      }
      rest = team.broadcast([&] {
        std::int32_t left = 0;
        if (to == least_loaded_state::none) {
          note_overload(s, e, homes.rank[homes.begin(e)], cause);
          s.now->kept += rest;
          left = fill_homes(s, e, rest, false);
        } else {
          index_t const r = rank_of(to);
          std::int32_t const tokens = forced ? rest : minimum{}(rest, room_of(s, r));
          if (forced) {
            note_overload(s, e, r, cause);
            s.now->forced += tokens;
          }
          give(s, e, r, tokens, source_of(s, e, r));
          s.key[r] = key_of(s, r);
          left = rest - tokens;
        }
        return close(s, e, left);
      });
    }
  }

  /// Makes the same plan as `spill` in fewer team calls, for listed rules. Each expert then has one
  /// home, and an overloaded rank gets no tokens except forced ones. So all visits are known
  /// beforehand; if tokens are forced on a rank, its later visits are predicted again. A helper's
  /// load is in its key, so that all threads follow the assignment and one writes it; a chunk takes
  /// one step of the queue.
  template <class Team>
  PLIMSOLL_HD void spill_by_list(Team& team, least_loaded_state const& s) const {
    index_t const experts = homes.experts;
    team.for_each(experts, [&](index_t i) {
      index_t const e = id_of(s.order[i]);
      s.position[e] = static_cast<std::int32_t>(i);
      index_t const begin = homes.rank_begin[home_of(e)];
      index_t heavier = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t other = begin; other < homes.rank_begin[home_of(e) + 1]; ++other) {
        heavier += visit_key(homes.expert[other]) < s.order[i];
      }
      s.by_load[begin + heavier] = static_cast<std::int32_t>(e);
    });
    team.for_each(ranks.size(), [&](index_t r) {
      s.queue[r] = key_of_helper(s, r);
      predict_visits(s, r, s.load[r], -1);
    });
    team.for_each(least_loaded_state::words_of(experts), [&](index_t word) {
      index_t const begin = word * least_loaded_state::word;
      index_t const size = minimum{}(least_loaded_state::word, experts - begin);
      std::uint32_t bits = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t bit = 0; bit < size; ++bit) {
        bits |= std::uint32_t{s.excess[id_of(s.order[begin + bit])] > 0} << bit;
      }
      s.visits[word] = bits;
    });
    auto helpers = team.queue(s.queue, ranks.size());
    least_loaded_state::cursor now{};
    PLIMSOLL_NO_UNROLL
    for (index_t i = next_visit(s, 0); i < experts; i = next_visit(s, i + 1)) {
      std::uint64_t const forced = visit_listed(team, s, helpers, now, id_of(s.order[i]));
      if (forced != least_loaded_state::none) {
        team.single([&] { predict_again(s, rank_of(forced), load_in(forced), i); });
      }
    }
    team.store(s.now, now);
    team.for_each(now.transfers, [&](index_t i) { increment(s.imports + s.rank[s.piece[i]]); });
  }
  [[nodiscard]] PLIMSOLL_HD index_t home_of(index_t e) const { return homes.rank[homes.begin(e)]; }
  [[nodiscard]] PLIMSOLL_HD std::uint64_t visit_key(index_t e) const {
    return heavier_first(static_cast<fixed_load>(load_of(e)), e);
  }
  /// Returns the load in a key of `key_of`, if speeds are equal.
  PLIMSOLL_HD static std::int32_t load_in(std::uint64_t key) {
    return static_cast<std::int32_t>(key >> 15);
  }

  /// Predicts the visits of a rank's experts after position `after` of the order, from the load
  /// that the rank has by then.
  PLIMSOLL_HD void predict_visits(least_loaded_state const& s, index_t r, std::int32_t load,
                                  index_t after) const {
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.rank_begin[r]; i < homes.rank_begin[r + 1]; ++i) {
      index_t const e = s.by_load[i];
      if (s.position[e] > after) {
        std::int32_t const rest = minimum{}(load_of(e), load - s.capacity[r]);
        s.excess[e] = maximum{}(rest, std::int32_t{0});
        load -= rest > 0 && !stays(rest) ? rest : 0;
        s.left[e] = load;
      }
    }
  }
  /// Predicts as `predict_visits` does, and updates the list of visits.
  PLIMSOLL_HD void predict_again(least_loaded_state const& s, index_t r, std::int32_t load,
                                 index_t after) const {
    predict_visits(s, r, load, after);
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.rank_begin[r]; i < homes.rank_begin[r + 1]; ++i) {
      index_t const position = s.position[homes.expert[i]];
      if (position > after) {
        std::uint32_t& bits = s.visits[position / least_loaded_state::word];
        std::uint32_t const bit = std::uint32_t{1} << position % least_loaded_state::word;
        bits = s.excess[homes.expert[i]] > 0 ? bits | bit : bits & ~bit;
      }
    }
  }
  /// Returns the first position at or after `i` whose expert is visited.
  [[nodiscard]] PLIMSOLL_HD index_t next_visit(least_loaded_state const& s, index_t i) const {
    PLIMSOLL_NO_UNROLL
    while (i < homes.experts) {
      std::uint32_t const bits =
          s.visits[i / least_loaded_state::word] >> i % least_loaded_state::word;
      if (bits != 0) {
        return i + lowest_bit(bits);
      }
      i += least_loaded_state::word - i % least_loaded_state::word;
    }
    return homes.experts;
  }

  /// Divides one expert anew. Returns the new key of the rank that the rest was forced on, `none`
  /// if nothing was forced.
  template <class Team, class Queue>
  PLIMSOLL_HD std::uint64_t visit_listed(Team& team, least_loaded_state const& s, Queue& helpers,
                                         least_loaded_state::cursor& now, index_t e) const {
    index_t const home = home_of(e);
    std::int32_t const load = load_of(e);
    std::int32_t const first = now.pieces;
    std::int32_t const first_sent = now.transfers;
    std::int32_t rest = s.excess[e];
    std::uint64_t result = least_loaded_state::none;
    if (stays(rest)) {
      if (now.forced + now.kept == 0 && rest > 0) {
        team.single([=] { note_overload(s, e, home, overload_cause::small_excess); });
      }
      now.kept += rest;
      rest = 0;
    }
    std::int32_t const at_home = load - rest;
    now.pieces += at_home > 0;
    std::int32_t const first_spilled = now.pieces;
    PLIMSOLL_NO_UNROLL
    while (rest > 0) {
      std::uint64_t key = helpers.top();
      bool const has_room = key < least_loaded_state::full;
      if (!has_room) {
        key = lowest_except(team, s, home);
      }
      index_t const r = rank_of(key);
      std::int32_t const room = s.capacity[r] - load_in(key);
      bool const is_forced = !is_chunk(room, rest);
      std::int32_t const tokens = is_forced ? rest : minimum{}(rest, room);
      rest -= tokens;
      key += static_cast<std::uint64_t>(tokens) << 15;
      // One thread adds a piece of the expert on the rank, and the transfer for it.
      auto const add = [=, at = now, end = load - rest] {
        s.piece[at.transfers] = at.pieces;
        s.from[at.transfers] = static_cast<std::int32_t>(home);
        s.expert[at.pieces] = static_cast<std::int32_t>(e);
        s.rank[at.pieces] = static_cast<std::int32_t>(r);
        s.end[at.pieces] = end;
        s.load[r] = load_in(key);
      };
      index_t piece = now.pieces;
      if (has_room) {
        bool const is_full = tokens >= room;
        helpers.update_top([=](std::uint64_t) {
          add();
          return is_full ? least_loaded_state::full | static_cast<std::uint64_t>(r) : key;
        });
      } else {
        // Only a full rank may have a piece of this expert already.
        piece = team.find(first_spilled, now.pieces, [&](index_t i) { return s.rank[i] == r; });
        if (piece < now.pieces) {
          team.for_each(now.pieces - piece, [&](index_t i) { s.end[piece + i] += tokens; });
          team.store(s.load + r, load_in(key));
        } else {
          team.single(add);
        }
      }
      now.transfers += piece == now.pieces;
      now.pieces += piece == now.pieces;
      if (is_forced) {
        if (now.forced + now.kept == 0) {
          auto const cause = room > 0 ? overload_cause::min_chunk : overload_cause::capacity;
          team.single([=] { note_overload(s, e, r, cause); });
        }
        now.forced += tokens;
        result = key;
      }
    }
    team.single([=, now_pieces = now.pieces, now_transfers = now.transfers] {
      if (at_home > 0) {
        s.expert[first] = static_cast<std::int32_t>(e);
        s.rank[first] = static_cast<std::int32_t>(home);
        s.end[first] = at_home;
      }
      s.load[home] = s.left[e];
      s.first[e] = first;
      s.count[e] = now_pieces - first;
      s.first_sent[e] = first_sent;
      s.sent[e] = now_transfers - first_sent;
    });
    return result;
  }
  /// Returns the key of the least loaded live rank other than `home`.
  template <class Team>
  PLIMSOLL_HD std::uint64_t lowest_except(Team& team, least_loaded_state const& s,
                                          index_t home) const {
    return team.min(ranks.size(), [&](index_t r) {
      return ranks.lives(r) && r != home ? key_of(s, r) : least_loaded_state::none;
    });
  }

  [[nodiscard]] PLIMSOLL_HD std::int32_t room_of(least_loaded_state const& s, index_t r) const {
    return s.capacity[r] - s.load[r];
  }
  [[nodiscard]] PLIMSOLL_HD bool is_chunk(std::int32_t room, std::int32_t rest) const {
    return room >= minimum{}(rest, rules.min_chunk);
  }
  [[nodiscard]] PLIMSOLL_HD bool stays(std::int32_t rest) const {
    return rules.keep_excess && rest < rules.min_chunk;
  }

  /// Starts a visit: removes the expert's tokens from its homes and returns to them the tokens that
  /// fit. Returns the number of tokens left. Homes are no helpers until the visit ends.
  PLIMSOLL_HD std::int32_t open(least_loaded_state const& s, index_t e) const {
    s.first[e] = s.now->pieces;
    s.first_sent[e] = s.now->transfers;
    s.count[e] = 0;
    s.now->given = 0;
    index_t const begin = homes.begin(e);
    PLIMSOLL_NO_UNROLL
    for (index_t i = begin; i < homes.end(e); ++i) {
      std::int32_t const part = share_of(e, i - begin);
      s.load[homes.rank[i]] -= part;
      s.working[homes.rank[i]] -= part > 0;
      s.key[homes.rank[i]] = least_loaded_state::none;
    }
    return fill_homes(s, e, load_of(e), true);
  }
  /// Ends a visit if no tokens are left: the homes may help others again. Returns `rest`.
  PLIMSOLL_HD std::int32_t close(least_loaded_state const& s, index_t e, std::int32_t rest) const {
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); rest == 0 && i < homes.end(e); ++i) {
      s.key[homes.rank[i]] = key_of(s, homes.rank[i]);
    }
    return rest;
  }
  /// Fills the expert's homes to a common level with up to `tokens` tokens, `within` their
  /// capacities or beyond. Returns the number of tokens left.
  PLIMSOLL_HD std::int32_t fill_homes(least_loaded_state const& s, index_t e, std::int32_t tokens,
                                      bool within) const {
    std::int64_t const level = level_at_home(s, e, tokens, within);
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); i < homes.end(e); ++i) {
      std::int32_t const part = part_at_home(s, homes.rank[i], level, tokens, within);
      if (part > 0) {
        give(s, e, homes.rank[i], part, -1);
        tokens -= part;
      }
    }
    return tokens;
  }
  [[nodiscard]] PLIMSOLL_HD std::int32_t part_at_home(least_loaded_state const& s, index_t r,
                                                      std::int64_t level, std::int32_t tokens,
                                                      bool within) const {
    std::int64_t const below = ranks.room_below(level, r);
    std::int64_t const room =
        (within ? minimum{}(below, std::int64_t{s.capacity[r]}) : below) - s.load[r];
    return static_cast<std::int32_t>(
        minimum{}(maximum{}(room, std::int64_t{0}), std::int64_t{tokens}));
  }
  /// Returns the lowest level at which the homes can take all tokens; within capacities, at most
  /// the level of the highest capacity.
  [[nodiscard]] PLIMSOLL_HD std::int64_t level_at_home(least_loaded_state const& s, index_t e,
                                                       std::int32_t tokens, bool within) const {
    std::int64_t high = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); i < homes.end(e); ++i) {
      index_t const r = homes.rank[i];
      high = maximum{}(high, ranks.level_of(within ? s.capacity[r] : s.load[r] + tokens, r));
    }
    std::int64_t low = homes.copies(e) == 1 ? high : 0;
    PLIMSOLL_NO_UNROLL
    while (low < high) {
      std::int64_t const middle = low + (high - low) / 2;
      std::int64_t room = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t i = homes.begin(e); i < homes.end(e); ++i) {
        room += part_at_home(s, homes.rank[i], middle, tokens, within);
      }
      if (room >= tokens) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  /// Returns the rank's piece of the current expert, -1 without one. The pieces of the current
  /// expert are the last ones.
  [[nodiscard]] PLIMSOLL_HD index_t piece_of(least_loaded_state const& s, index_t e,
                                             index_t r) const {
    return s.latest[r] >= s.first[e] ? s.latest[r] : -1;
  }

  PLIMSOLL_HD void give(least_loaded_state const& s, index_t e, index_t r, std::int32_t tokens,
                        index_t from) const {
    s.load[r] += tokens;
    s.now->given += tokens;
    if (index_t const piece = piece_of(s, e, r); piece >= 0) {
      PLIMSOLL_NO_UNROLL
      for (index_t i = piece; i < s.now->pieces; ++i) {
        s.end[i] += tokens;
      }
      return;
    }
    std::int32_t const piece = s.now->pieces++;
    s.expert[piece] = static_cast<std::int32_t>(e);
    s.rank[piece] = static_cast<std::int32_t>(r);
    s.end[piece] = s.now->given;
    s.latest[r] = piece;
    ++s.count[e];
    ++s.working[r];
    if (from >= 0) {
      std::int32_t const transfer = s.now->transfers++;
      s.piece[transfer] = piece;
      s.from[transfer] = static_cast<std::int32_t>(from);
      ++s.sent[e];
      ++s.imports[r];
      ++s.exports[from];
      if constexpr (!is_free) {
        double const sending = sending_time(from, r);
        s.busy[r] = add(s.busy[r], sending);
        s.busy[from] = add(s.busy[from], sending);
      }
    }
  }

  [[nodiscard]] PLIMSOLL_HD bool share_node(index_t a, index_t b) const {
    return ranks.where.nodes == 1 || ranks.where.node_of(a) == ranks.where.node_of(b);
  }
  [[nodiscard]] PLIMSOLL_HD double sending_time(index_t from, index_t to) const {
    return share_node(from, to) ? pricing.within_node : pricing.between_nodes;
  }

  /// Returns the home that sends the expert's weights to a rank: one on its node if there is one,
  /// then the one with the fewest transfers; -1 if all homes have reached their limit.
  [[nodiscard]] PLIMSOLL_HD index_t source_of(least_loaded_state const& s, index_t e,
                                              index_t r) const {
    std::uint64_t best = least_loaded_state::none;
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); i < homes.end(e); ++i) {
      index_t const from = homes.rank[i];
      if (s.exports[from] < rules.max_exports) {
        std::uint64_t const is_far = share_node(from, r) ? 0 : 1;
        best = minimum{}(best, is_far << 62 | static_cast<std::uint64_t>(s.exports[from]) << 15 |
                                   static_cast<std::uint64_t>(from));
      }
    }
    return best == least_loaded_state::none ? -1 : rank_of(best);
  }

  /// Uses masks, as branches on free capacity would be mispredicted.
  [[nodiscard]] PLIMSOLL_HD std::uint64_t key_of_helper(least_loaded_state const& s,
                                                        index_t r) const {
    std::uint64_t const if_room = 0 - static_cast<std::uint64_t>(room_of(s, r) > 0);
    return (s.key[r] & if_room) | (least_loaded_state::full & ~if_room) |
           static_cast<std::uint64_t>(r);
  }
  /// Returns the top of the queue, after moving ranks with outdated keys to their places.
  template <class Queue>
  PLIMSOLL_HD std::uint64_t least_loaded(least_loaded_state const& s, Queue& helpers) const {
    PLIMSOLL_NO_UNROLL
    while (helpers.top() < least_loaded_state::full) {
      std::uint64_t const key = key_of_helper(s, rank_of(helpers.top()));
      if (key == helpers.top()) {
        return key;
      }
      helpers.replace_top(key);
    }
    return least_loaded_state::none;
  }

  template <class Team>
  PLIMSOLL_HD std::uint64_t best_candidate(Team& team, least_loaded_state const& s, index_t e,
                                           std::int32_t rest, bool forced) const {
    return team.min(ranks.size(), [&](index_t r) { return candidate(s, e, r, rest, forced); });
  }
  /// Returns the key of a rank as a receiver of the expert's rest: the lowest key is the best,
  /// `none` is not allowed.
  [[nodiscard]] PLIMSOLL_HD std::uint64_t candidate(least_loaded_state const& s, index_t e,
                                                    index_t r, std::int32_t rest,
                                                    bool forced) const {
    std::uint64_t const key = s.key[r];
    if (is_plain() || key == least_loaded_state::none) {
      return key;
    }
    index_t from = -1;
    if (obstacle(s, e, r, rest, forced, from) != overload_cause::none) {
      return least_loaded_state::none;
    }
    std::uint64_t const is_far = !forced && from >= 0 && !share_node(from, r) ? 1 : 0;
    return is_far << 62 | key;
  }
  /// Returns what keeps a rank from receiving a chunk of the expert's rest, or, if `forced`, all of
  /// it. The causes are in the order in which a rank must overcome them. Without an obstacle, sets
  /// `from` to the home that sends the weights, or to -1 if the rank has them.
  [[nodiscard]] PLIMSOLL_HD overload_cause obstacle(least_loaded_state const& s, index_t e,
                                                    index_t r, std::int32_t rest, bool forced,
                                                    index_t& from) const {
    std::int32_t const room = room_of(s, r);
    if (!forced && !is_chunk(room, rest)) {
      return room > 0 ? overload_cause::min_chunk : overload_cause::capacity;
    }
    bool const is_new = piece_of(s, e, r) < 0;
    from = is_new ? source_of(s, e, r) : -1;
    if (is_new && from < 0) {
      return overload_cause::max_exports;
    }
    if (is_new && s.imports[r] >= rules.max_imports) {
      return overload_cause::max_imports;
    }
    if constexpr (!is_free) {
      if (!pays(s, e, r, rest, forced ? rest : minimum{}(rest, room), from)) {
        return overload_cause::price;
      }
    }
    return overload_cause::none;
  }
  /// Returns why no rank can receive a chunk: the last obstacle that a rank meets.
  template <class Team>
  PLIMSOLL_HD overload_cause cause_of(Team& team, least_loaded_state const& s, index_t e,
                                      std::int32_t rest) const {
    return static_cast<overload_cause>(team.max(ranks.size(), [&](index_t r) {
      bool const may_help = s.key[r] != least_loaded_state::none;
      index_t from = -1;
      return static_cast<std::int32_t>(may_help ? obstacle(s, e, r, rest, false, from)
                                                : overload_cause::capacity);
    }));
  }
  PLIMSOLL_HD static void note_overload(least_loaded_state const& s, index_t e, index_t r,
                                        overload_cause cause) {
    if (s.overload->cause == overload_cause::none) {
      *s.overload = {static_cast<std::int32_t>(e), static_cast<std::int32_t>(r), cause};
    }
  }

  /// Returns the time of a rank with `tokens` more tokens of expert e; `index` as for `time_of`.
  [[nodiscard]] PLIMSOLL_HD double time_with(least_loaded_state const& s, index_t index, index_t e,
                                             index_t r, std::int32_t tokens) const {
    bool const is_another = tokens > 0 && piece_of(s, e, r) < 0;
    return add(time_of(s, index, r, s.load[r] + tokens, s.working[r] + is_another), s.busy[r]);
  }
  /// Returns the tokens of one home if `tokens` tokens stayed on the expert's homes.
  [[nodiscard]] PLIMSOLL_HD std::int32_t kept_by(least_loaded_state const& s, index_t e,
                                                 index_t home, std::int32_t tokens) const {
    std::int64_t const level = level_at_home(s, e, tokens, false);
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); homes.rank[i] != home; ++i) {
      tokens -= part_at_home(s, homes.rank[i], level, tokens, false);
    }
    return part_at_home(s, home, level, tokens, false);
  }
  /// Returns true if the receiver with the tokens and the sender without them both end earlier than
  /// the homes with the whole rest. Weights are sent before anything is computed.
  [[nodiscard]] PLIMSOLL_HD bool pays(least_loaded_state const& s, index_t e, index_t r,
                                      std::int32_t rest, std::int32_t tokens, index_t from) const {
    double without = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t i = homes.begin(e); i < homes.end(e); ++i) {
      index_t const home = homes.rank[i];
      without = maximum{}(without, time_with(s, r, e, home, kept_by(s, e, home, rest)));
    }
    double const sending = from < 0 ? 0.0 : sending_time(from, r);
    bool const sends_in_time =
        from < 0 ||
        add(time_with(s, r, e, from, kept_by(s, e, from, rest - tokens)), sending) < without;
    return sends_in_time && add(time_with(s, r, e, r, tokens), sending) < without;
  }

  /// Writes the plan, expert by expert.
  template <class Team>
  PLIMSOLL_HD void finish(Team& team, least_loaded_state const& s, levels const& at,
                          spill_report& report) const {
    index_t const experts = homes.experts;
    auto const segments = team.exclusive_scan(
        experts, [&](index_t e) { return s.count[e]; }, out.offsets);
    auto const transfers = team.exclusive_scan(
        experts, [&](index_t e) { return s.sent[e]; }, out.transfer_offsets);
    // Writes all experts as if they stayed at home, then overwrites the visited ones: a branch that
    // tells them apart would be mispredicted and take longer.
    team.for_each(experts, [&](index_t e) { write_at_home(s, e); });
    team.for_each(s.now->pieces, [&](index_t i) {
      std::int32_t const e = s.expert[i];
      std::int32_t const end_before = s.end[i - (i > 0)];
      out.segments[out.offsets[e] + i - s.first[e]] =
          spill_segment{e, s.rank[i], i == s.first[e] ? 0 : end_before, s.end[i]};
    });
    team.for_each(s.now->transfers, [&](index_t i) {
      std::int32_t const e = s.expert[s.piece[i]];
      out.transfers[out.transfer_offsets[e] + i - s.first_sent[e]] =
          spill_transfer{e, s.from[i], s.rank[s.piece[i]], rules.expert_bytes};
    });
    team.for_each(ranks.size(), [&](index_t r) {
      out.loads[r] = s.load[r];
      index_t const held = homes.rank_begin[r + 1] - homes.rank_begin[r] + s.imports[r];
      out.bytes_of_rank[r] = rules.token_bytes * s.load[r] + rules.expert_bytes * held;
    });
    report.segments = segments;
    report.transfers = transfers;
    report.forced = s.now->forced;
    report.kept = s.now->kept;
    report.first_forced = report.spills != 0 ? *s.overload : first_overload{};
    report.overload = team.sum(ranks.size(), [&](index_t r) {
      return std::int64_t{maximum{}(-room_of(s, r), std::int32_t{0})};
    });
    certify(team, s, at, report);
    team.store(out.offsets + experts, segments);
    team.store(out.transfer_offsets + experts, transfers);
    team.store(out.outcome, spill_outcome{report, {}});
  }

  /// Writes the expert's segments at home, but no more segments than it has in the plan.
  PLIMSOLL_HD void write_at_home(least_loaded_state const& s, index_t e) const {
    index_t const segments = minimum{}(homes.copies(e), index_t{s.count[e]});
    std::int32_t begin = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t i = 0; i < segments; ++i) {
      std::int32_t const end = begin + share_of(e, i);
      out.segments[out.offsets[e] + i] =
          spill_segment{static_cast<std::int32_t>(e), homes.rank[homes.begin(e) + i], begin, end};
      begin = end;
    }
  }

  template <class Team>
  PLIMSOLL_HD void certify(Team& team, least_loaded_state const& s, levels const& at,
                           spill_report& report) const {
    std::int64_t const peak = peak_level(team, s);
    std::int64_t const mean = ranks.level_for(team, report.tokens);
    std::int64_t const bound = maximum{}(mean, at.confined);
    report.result.value = ranks.time_at(peak);
    if (!ranks.speed().equal_speeds) {
      // Levels use speeds rounded up, so compare with the times by the given speeds: no rank ends
      // later than the certificate says.
      auto const last = team.max(
          ranks.size(), [&](index_t r) { return ranks.time_of(std::int64_t{s.load[r]}, r); });
      report.result.value = maximum{}(report.result.value, last);
    }
    report.result.lower_bound = ranks.time_at(bound);
    report.result.work = s.now->pieces;
    report.result.status = at.confined > at.capacity ? certificate_status::infeasible
                           : peak == bound           ? certificate_status::optimal
                           : report.overload == 0    ? certificate_status::within_tolerance
                                                     : certificate_status::feasible;
  }

  /// Returns a lower bound for the peak from the limits on transfers: each transfer of a rank moves
  /// at most one of the experts that only it holds, to one more rank.
  template <class Team>
  PLIMSOLL_HD std::int64_t confined_level(Team& team) const {
    if (!rules.limited) {
      return 0;
    }
    std::int64_t const sent = rules.max_imports == 0 ? 0 : rules.max_exports;
    auto const fastest = team.max(ranks.size(), [this](index_t r) { return ranks.speed()[r]; });
    return team.max(ranks.size(), [&](index_t r) {
      if (!ranks.lives(r)) {
        return std::int64_t{0};
      }
      std::int64_t const own = heaviest_of(r, homes.experts);
      std::int64_t const speed =
          ranks.speed()[r] + minimum{}(sent, std::int64_t{ranks.live() - 1}) * fastest;
      return maximum{}(ranks.mean_level(own, speed), ranks.level_of(own - heaviest_of(r, sent), r));
    });
  }
  /// Returns the tokens of the n heaviest among a rank's experts without another home.
  [[nodiscard]] PLIMSOLL_HD std::int64_t heaviest_of(index_t r, std::int64_t n) const {
    auto const sum_above = [&](std::int64_t least, std::int64_t& count) {
      std::int64_t sum = 0;
      count = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t i = homes.rank_begin[r]; i < homes.rank_begin[r + 1]; ++i) {
        std::int32_t const load = homes.copies(homes.expert[i]) == 1 ? load_of(homes.expert[i]) : 0;
        sum += load > least ? load : 0;
        count += load > least;
      }
      return sum;
    };
    // Bisects for the lowest load that at most n experts exceed.
    std::int64_t count = 0;
    std::int64_t low = 0;
    bool const is_all = n >= homes.rank_begin[r + 1] - homes.rank_begin[r];
    PLIMSOLL_NO_UNROLL
    for (std::int64_t high = is_all ? 0 : highest<std::int32_t>; low < high;) {
      std::int64_t const middle = low + (high - low) / 2;
      sum_above(middle, count);
      high = count <= n ? middle : high;
      low = count <= n ? low : middle + 1;
    }
    std::int64_t const sum = sum_above(low, count);
    return sum + (n - count) * low;
  }

  template <class Team>
  PLIMSOLL_HD void refuse(Team& team, fault const& found) const {
    team.for_each(homes.experts + 1, [this](index_t e) {
      out.offsets[e] = 0;
      out.transfer_offsets[e] = 0;
    });
    team.for_each(ranks.size(), [this](index_t r) {
      out.loads[r] = 0;
      out.bytes_of_rank[r] = 0;
    });
    team.single([=, this] {
      spill_outcome outcome{};
      outcome.report.refused = found;
      *out.outcome = outcome;
    });
  }
};

}}}  // namespace plimsoll::detail
