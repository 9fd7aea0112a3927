// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `least_loaded::plan`: assigns every expert's tokens to ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

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
  /// the experts of a rank. Then all visits are listed beforehand. Likewise.
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
  /// Number of experts whose values a thread reads at a time: reads that do not wait for each other
  /// take as long together as one, which takes as long as ten instructions.
  static constexpr int together = 8;

  struct cursor {
    std::int32_t pieces;  ///< of all experts so far
    std::int32_t given;   ///< assigned tokens of the current expert
    std::int32_t forced;  ///< tokens that went to a rank without room for a chunk
    std::int32_t kept;    ///< tokens that stayed at home, above capacity
    std::int32_t visits;  ///< listed visits
  };
  struct alignas(16) given_expert {
    std::int32_t tokens;
    std::int32_t home;    ///< the first of its homes
    std::int32_t copies;  ///< the number of its homes
  };
  struct alignas(16) split_expert {
    std::int32_t segments;
    std::int32_t transfers;
    // After the visit, indices into `pieces`. While the plan is written, the distances from these
    // to the first segment and the first transfer of the expert.
    std::int32_t first;
    std::int32_t first_sent;  ///< the first piece that needs a transfer; others follow it
  };
  /// A part of a visited expert's tokens, from the end of its previous piece.
  struct alignas(16) piece {
    std::int32_t expert;
    std::int32_t rank;
    std::int32_t end;
    std::int32_t from;  ///< the rank that sends the weights, -1 if the rank holds them
  };
  struct alignas(16) listed_visit {
    std::int32_t expert;
    std::int32_t home;
    std::int32_t tokens;
    std::int32_t rest;  ///< tokens above the home's capacity; below 0: they stay there; 0: no visit
  };
  static constexpr std::int32_t unlisted = lowest<std::int32_t>;
  /// The parts of a listed plan whose outcome is in the arrays of ranks and experts.
  struct settled_parts {
    std::int32_t visits;
    std::int32_t pieces;
  };

  std::int32_t* load;      ///< `[ranks]`: assigned tokens, and shares of experts not yet visited
  std::int32_t* capacity;  ///< `[ranks]`
  std::uint64_t* key;      ///< `[ranks]`: load over speed, then rank; `none` if it cannot help
  std::uint64_t* queue;    ///< `[ranks]`: ranks with free capacity come before full ranks
  std::int32_t* imports;   ///< `[ranks]`
  std::int32_t* exports;   ///< `[ranks]`
  std::int32_t* latest;    ///< `[ranks]`: the rank's latest piece, -1 before the first
  // Only with a price. The last two belong to the index of the team's loop that evaluated the cost.
  std::int32_t* working;    ///< `[ranks]`: the number of experts with tokens on the rank
  double* busy;             ///< `[ranks]`: time of sending and receiving weights
  std::int32_t* bad_rank;   ///< `[ranks]`: the rank of the first invalid cost, -1 if none
  double* bad_cost;         ///< `[ranks]`: that cost
  std::uint64_t* order;     ///< `[experts]`: the heaviest first, or the listed visits in this order
  std::byte* sort_storage;  ///< of `order`
  given_expert* given;      ///< `[experts]`
  std::int32_t* part;       ///< `[pairs]`: tokens of a rank's expert, as in `homes.expert`
  split_expert* split;      ///< `[experts]`
  std::uint64_t* before;  ///< `[ceil(experts / together)]`: segments and transfers of lower experts
  piece* pieces;          ///< `[segment_limit]`: of visited experts, in the order of visits
  cursor* now;
  first_overload* overload;  ///< `[1]`: of the first plan that exceeds its capacity
  // Only with listed rules.
  std::int32_t* rest;      ///< `[experts]`: as in a listed visit, or `unlisted`
  listed_visit* visits;    ///< `[experts]`: as `order`
  std::int32_t* first;     ///< `[experts]`: the first piece of a visit
  std::uint32_t* helpers;  ///< `[ranks]`: load, then rank; the load of a full rank is its capacity

  PLIMSOLL_HD static constexpr index_t groups_of(index_t n) {
    return (n + together - 1) / together;
  }

  PLIMSOLL_HD static least_loaded_state in(scratch& memory, index_t experts, index_t ranks,
                                           index_t pairs, bool is_free, bool is_listed) {
    least_loaded_state s{};
    memory.take(s.load, ranks);
    memory.take(s.capacity, ranks);
    memory.take(s.key, ranks);
    memory.take(s.queue, ranks);
    memory.take(s.imports, ranks);
    memory.take(s.exports, ranks);
    memory.take(s.working, is_free ? 0 : ranks);
    memory.take(s.latest, ranks);
    memory.take(s.busy, is_free ? 0 : ranks);
    memory.take(s.bad_rank, is_free ? 0 : ranks);
    memory.take(s.bad_cost, is_free ? 0 : ranks);
    memory.take(s.order, experts);
    memory.take(s.sort_storage, sort_bytes<warp, std::uint64_t>(experts));
    memory.take(s.given, experts);
    memory.take(s.split, experts);
    memory.take(s.before, groups_of(experts));
    memory.take(s.part, pairs);
    memory.take(s.pieces, spill_plan_arrays::segment_limit(experts, ranks, pairs));
    memory.take(s.now, 1);
    memory.take(s.overload, 1);
    memory.take(s.rest, is_listed ? experts : 0);
    memory.take(s.visits, is_listed ? experts : 0);
    memory.take(s.first, is_listed ? experts : 0);
    memory.take(s.helpers, is_listed ? ranks : 0);
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
    return bytes_taken_by<least_loaded_state>(homes.experts, ranks.size(), homes.slots,
                                              bool{is_free}, bool{rules.listed});
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t) const {
    least_loaded_state const s = least_loaded_state::in(memory, homes.experts, ranks.size(),
                                                        homes.slots, is_free, rules.listed);
    std::int64_t const total = read_loads(team, s);
    if (total > highest<std::int32_t>) {
      load_scale const scale =
          scale_loads(team, homes.experts, [this](index_t e) { return loads(e); });
      refuse(team, scale.refused ? scale.refused : fault_of(fault_kind::tokens, -1, total));
      return;
    }
    if constexpr (!is_free) {
      team.for_each(ranks.size(), [&](index_t r) { s.bad_rank[r] = -1; });
    }
    std::int64_t const peak = stay(team, s);
    team.store(s.overload, {});
    spill_report report{};
    report.tokens = total;
    report.home_peak = ranks.time_at(peak);
    report.home_time = longest(team, s);
    report.imbalance = imbalance(team, peak, total);
    report.spills = ranks.live() > 1 && total > 0 && report.imbalance >= rules.lambda ? 1 : 0;
    levels const given_levels{peak, set_capacities(team, s, total), confined_level(team)};
    std::int64_t raised = given_levels.capacity;
    report.capacity = ranks.time_at(given_levels.capacity);
    report.time = report.home_time;
    if (report.spills != 0) {
      raised = spill_within_limits(team, s, total, given_levels);
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
    finish(team, s, given_levels, report);
  }

 private:
  struct levels {
    std::int64_t home_peak;  ///< with all tokens at home
    std::int64_t capacity;   ///< the highest capacity of a rank, by alpha
    std::int64_t confined;   ///< see `confined_level`
  };

  [[nodiscard]] PLIMSOLL_HD bool is_plain() const {
    return rules.plain && ranks.numbers->equal_speeds != 0 && homes.numbers->pairs == homes.experts;
  }
  /// Returns true if a list of visits makes the plan: the keys of its queue are words.
  [[nodiscard]] PLIMSOLL_HD bool is_listed(std::int64_t capacity) const {
    return rules.listed && is_plain() &&
           homes.numbers->most_held <= least_loaded_rules::most_listed &&
           capacity < highest<std::int32_t> >> rank_bits();
  }
  /// Returns the number of bits of a rank's number in the keys of helpers.
  [[nodiscard]] PLIMSOLL_HD int rank_bits() const {
    return bit_width(static_cast<std::uint64_t>(ranks.size() - 1));
  }
  [[nodiscard]] PLIMSOLL_HD std::int32_t load_of(index_t e) const {
    return static_cast<std::int32_t>(loads(e));
  }
  [[nodiscard]] PLIMSOLL_HD std::int32_t share_of(least_loaded_state const& s, index_t e,
                                                  index_t position) const {
    least_loaded_state::given_expert const given = s.given[e];
    return home_share(given.tokens, given.copies, position);
  }
  [[nodiscard]] PLIMSOLL_HD std::uint64_t key_of(least_loaded_state const& s, index_t r) const {
    auto const height = static_cast<std::uint64_t>(ranks.height_of(s.load[r], r));
    return height << 15 | static_cast<std::uint64_t>(r);
  }
  PLIMSOLL_HD static index_t rank_of(std::uint64_t key) {
    return static_cast<index_t>(key & 0x7fff);
  }

  /// Copies the loads to scratch. Returns their sum, at least 2^47 if one is refused or if the sum
  /// is.
  template <class Team>
  PLIMSOLL_HD std::int64_t read_loads(Team& team, least_loaded_state const& s) const {
    struct loaded {
      std::remove_cvref_t<decltype(loads(index_t{}))> tokens;
      std::int32_t home;
      std::int32_t copies;
    };
    auto const read = [&](index_t e) {
      index_t const begin = homes.begin(e);
      return loaded{loads(e), homes.rank[begin], static_cast<std::int32_t>(homes.end(e) - begin)};
    };
    auto const use = [&](index_t e, loaded const& expert) {
      s.given[e] = {static_cast<std::int32_t>(expert.tokens), expert.home, expert.copies};
      return is_load(expert.tokens) ? static_cast<std::int64_t>(expert.tokens) : load_limit;
    };
    if constexpr (Team::is_serial) {
      return team.sum(homes.experts, [&](index_t e) { return use(e, read(e)); });
    } else {
      return team.sum(least_loaded_state::groups_of(homes.experts), [&](index_t first) {
        std::int64_t sum = 0;
        read_together(first, homes.experts, read,
                      [&](index_t e, loaded const& expert) { sum += use(e, expert); });
        return sum;
      });
    }
  }
  /// Calls use(i, read(i)) for one of `groups_of(n)` groups of indices: i = first, first + groups,
  /// ... below n, after it has read all values.
  template <class Read, class Use>
  PLIMSOLL_HD static void read_together(index_t first, index_t n, Read read, Use use) {
    constexpr int together = least_loaded_state::together;
    // A GPU takes several instructions for each operation on indices of 64 bits.
    auto const end = static_cast<std::uint32_t>(n);
    std::uint32_t const step = (end + together - 1) / together;
    decltype(read(first)) values[together];
    auto i = static_cast<std::uint32_t>(first);
    for (auto& value : values) {
      value = read(index_t{minimum{}(i, end - 1)});
      i += step;
    }
    i = static_cast<std::uint32_t>(first);
    for (auto const& value : values) {
      if (i < end) {
        use(index_t{i}, value);
      }
      i += step;
    }
  }

  /// Resets the state to plain expert parallelism: all tokens at home. Returns the peak's level.
  template <class Team>
  PLIMSOLL_HD std::int64_t stay(Team& team, least_loaded_state const& s) const {
    auto const part_of = [&](index_t pair) {
      return share_of(s, homes.expert[pair], homes.position[pair]);
    };
    if constexpr (!Team::is_serial) {
      index_t const pairs = homes.numbers->pairs;
      if (pairs == homes.experts) {  // each has one home
        team.for_each(least_loaded_state::groups_of(pairs), [&](index_t first) {
          read_together(
              first, pairs, [&](index_t pair) { return s.given[homes.expert[pair]].tokens; },
              [&](index_t pair, std::int32_t tokens) { s.part[pair] = tokens; });
        });
      } else {
        team.for_each(pairs, [&](index_t pair) { s.part[pair] = part_of(pair); });
      }
    }
    team.for_each(homes.experts, [&](index_t e) {
      s.split[e] = {minimum{}(s.given[e].tokens, s.given[e].copies), 0, 0, 0};
      if (rules.listed) {
        s.rest[e] = least_loaded_state::unlisted;
      }
    });
    team.store(s.now, {});
    return team.max(ranks.size(), [&](index_t r) {
      std::int32_t sum = 0;
      std::int32_t working = 0;
      PLIMSOLL_NO_UNROLL
      for (std::int32_t i = homes.rank_begin[r]; i < homes.rank_begin[r + 1]; ++i) {
        if constexpr (Team::is_serial) {
          s.part[i] = part_of(i);
        }
        std::int32_t const part = s.part[i];
        sum += part;
        working += part > 0;
      }
      s.load[r] = sum;
      s.imports[r] = 0;
      s.exports[r] = 0;
      s.latest[r] = -1;
      if constexpr (!is_free) {
        s.working[r] = working;
        s.busy[r] = 0;
      }
      s.key[r] = ranks.lives(r) ? key_of(s, r) : least_loaded_state::none;
      return ranks.lives(r) ? ranks.level_of(sum, r) : std::int64_t{0};
    });
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

  /// Returns the level of the highest capacity.
  template <class Team>
  PLIMSOLL_HD std::int64_t set_capacities(Team& team, least_loaded_state const& s,
                                          std::int64_t total) const {
    double const exact = multiply(rules.alpha, static_cast<double>(total));
    auto whole = static_cast<std::int64_t>(rules.round_up ? exact : almost(exact));
    whole += rules.round_up && almost(static_cast<double>(whole)) < exact;
    if (rules.round_up) {
      return fill_to(team, s, total, ranks.level_for(team, whole));
    }
    std::int64_t const speeds = ranks.total_speed(team);
    return set_each_capacity(team, s, [&](index_t r) {
      std::int64_t const least = ranks.lives(r) ? 1 : 0;
      std::int64_t const part = maximum{}(multiply_divide(whole, ranks.speed()[r], speeds), least);
      return minimum{}(part, total);
    });
  }
  template <class Team>
  PLIMSOLL_HD std::int64_t fill_to(Team& team, least_loaded_state const& s, std::int64_t total,
                                   std::int64_t level) const {
    return set_each_capacity(
        team, s, [&](index_t r) { return minimum{}(ranks.room_below(level, r), total); });
  }
  template <class Team, class Capacity>
  PLIMSOLL_HD std::int64_t set_each_capacity(Team& team, least_loaded_state const& s,
                                             Capacity capacity_of) const {
    return team.max(ranks.size(), [&](index_t r) {
      std::int64_t const capacity = capacity_of(r);
      s.capacity[r] = static_cast<std::int32_t>(capacity);
      return ranks.lives(r) ? ranks.level_of(capacity, r) : std::int64_t{0};
    });
  }

  /// Makes the plan and returns the level of its capacity. If limits prevent a plan within the
  /// capacity, a higher capacity spreads tokens over more ranks than forcing the rest on one does:
  /// bisection finds the lowest capacity that a plan keeps, to 1/128. At the peak of plain expert
  /// parallelism nothing is spilled. That plan is used if it ends earlier, or at the same time (as
  /// all plans without a price) with a lower peak.
  template <class Team>
  PLIMSOLL_HD std::int64_t spill_within_limits(Team& team, least_loaded_state const& s,
                                               std::int64_t total,
                                               levels const& given_levels) const {
    if constexpr (is_free) {
      if (is_listed(given_levels.capacity)) {
        spill_by_list(team, s, static_cast<std::int32_t>(given_levels.capacity));
        return given_levels.capacity;
      }
    }
    team.for_each(homes.experts, [&](index_t e) {
      s.order[e] = heavier_first(static_cast<fixed_load>(load_of(e)), e);
    });
    team.sort(s.order, homes.experts, s.sort_storage);
    // One loop makes all plans, as `spill` is large and compiled for each of its callers: the first
    // plan, those of the search, the one at the level found, and the first again if that is no
    // better.
    enum class turn { first, search, found, again };
    std::int64_t low = maximum{}(given_levels.capacity, given_levels.confined) - 1;
    std::int64_t high = given_levels.home_peak;
    std::int64_t level = given_levels.capacity;
    std::int64_t first_peak = 0;
    double first_time = 0;
    PLIMSOLL_NO_UNROLL
    for (turn now = turn::first;;) {
      spill(team, s);
      bool const is_limited = rules.limited && s.now->forced + s.now->kept > 0;
      if (now == turn::again || (now == turn::first && !is_limited)) {
        return given_levels.capacity;
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
  /// home, all live ranks have the same capacity, and an overloaded rank gets no tokens except
  /// forced ones. So all visits are known beforehand; if tokens are forced on a rank, its later
  /// visits are predicted again. A helper's load is in its key, so that all threads follow the
  /// assignment and one writes it; a chunk takes one step of the queue. What does not decide about
  /// later visits is written for all visits at the same time, at the end or before tokens are
  /// forced.
  template <class Team>
  PLIMSOLL_HD void spill_by_list(Team& team, least_loaded_state const& s,
                                 std::int32_t capacity) const {
    int const bits = rank_bits();
    team.for_each(ranks.size(), [&](index_t r) {
      std::int32_t const load = s.load[r];
      std::int32_t const filled = load < s.capacity[r] ? load : capacity;  // a dead rank has none
      s.helpers[r] = static_cast<std::uint32_t>(filled) << bits | static_cast<std::uint32_t>(r);
      list_visits(s, r, load, highest<std::int32_t>, -1);
    });
    std::int32_t visits = sort_visits(team, s, 0);
    auto helpers = team.queue(s.helpers, ranks.size());
    least_loaded_state::cursor now{};
    least_loaded_state::settled_parts settled{};
    least_loaded_state::listed_visit next = s.visits[0];
    PLIMSOLL_NO_UNROLL
    for (std::int32_t i = 0; i < visits; ++i) {
      // Reads ahead, so that the visit does not wait for its memory.
      least_loaded_state::listed_visit const visit = next;
      next = s.visits[minimum{}(i + 1, visits - 1)];
      team.store(s.first + i, now.pieces);
      std::int32_t const rest = visit_listed(team, s, helpers, now, visit, capacity, bits);
      if (rest > 0) {
        settle(team, s, settled, i + 1, now.pieces);
        force(team, s, helpers, now, i, rest, capacity, bits);
        settled.pieces = now.pieces;
        visits = sort_visits(team, s, i + 1);
        next = s.visits[minimum{}(i + 1, visits - 1)];
      }
    }
    settle(team, s, settled, visits, now.pieces);
    team.store(s.now, now);
  }
  /// Sorts the visits from position `from` of the list. Returns the number of all visits.
  template <class Team>
  PLIMSOLL_HD std::int32_t sort_visits(Team& team, least_loaded_state const& s,
                                       std::int32_t from) const {
    std::int32_t const visits = s.now->visits;
    team.sort(s.order + from, visits - from, s.sort_storage);
    team.for_each(visits - from, [&](index_t i) {
      std::uint64_t const key = s.order[from + i];
      index_t const e = id_of(key);
      s.visits[from + i] = {static_cast<std::int32_t>(e), s.given[e].home,
                            static_cast<std::int32_t>(heavy_load_of(key)), s.rest[e]};
    });
    return visits;
  }
  /// Writes the outcome of the visits and pieces that are not settled.
  template <class Team>
  PLIMSOLL_HD void settle(Team& team, least_loaded_state const& s,
                          least_loaded_state::settled_parts& settled, std::int32_t visits,
                          std::int32_t pieces) const {
    team.for_each(visits - settled.visits, [&, from = settled.visits](index_t i) {
      least_loaded_state::listed_visit const visit = s.visits[from + i];
      std::int32_t const moved = maximum{}(visit.rest, 0);
      std::int32_t const first = s.first[from + i];
      std::int32_t const end = from + i + 1 < visits ? s.first[from + i + 1] : pieces;
      std::int32_t const first_sent = first + static_cast<std::int32_t>(visit.tokens > moved);
      if (visit.rest == 0) {
        return;
      }
      if (first_sent > first) {
        s.pieces[first] = {visit.expert, visit.home, visit.tokens - moved, -1};
      }
      s.split[visit.expert] = {end - first, end - first_sent, first, first_sent};
      add_to(s.load + visit.home, -moved);
    });
    team.for_each(pieces - settled.pieces, [&, from = settled.pieces](index_t i) {
      least_loaded_state::piece const piece = s.pieces[from + i];
      if (piece.from >= 0) {
        add_to(s.load + piece.rank, piece.end - begin_of(s, from + i));
        increment(s.imports + piece.rank);
      }
    });
    settled = {visits, pieces};
  }
  /// Returns the first token of a piece.
  PLIMSOLL_HD static std::int32_t begin_of(least_loaded_state const& s, index_t piece) {
    least_loaded_state::piece const previous = s.pieces[piece - (piece > 0)];
    return piece > 0 && previous.expert == s.pieces[piece].expert ? previous.end : 0;
  }

  /// Predicts the visits of a rank's experts from the load that the rank has by then, and lists
  /// those that are not in the list. Begins after the expert at index `after` of `homes.expert`,
  /// which has `tokens` tokens, in the order of visits: the heaviest first, then by rising index.
  PLIMSOLL_HD void list_visits(least_loaded_state const& s, index_t r, std::int32_t load,
                               std::int32_t tokens, std::int32_t after) const {
    std::int32_t const capacity = s.capacity[r];
    std::int32_t const begin = homes.rank_begin[r];
    std::int32_t const end = homes.rank_begin[r + 1];
    PLIMSOLL_NO_UNROLL
    while (load > capacity) {
      std::int32_t most = 0;
      std::int32_t next = begin;
      for (std::int32_t i = begin; i < end; ++i) {
        std::int32_t const part = s.part[i];
        bool const is_later = part < tokens || (part == tokens && i > after);
        next = is_later && part > most ? i : next;
        most = is_later && part > most ? part : most;
      }
      if (most == 0) {
        break;
      }
      tokens = most;
      after = next;
      std::int32_t const rest = minimum{}(tokens, load - capacity);
      load -= stays(rest) ? 0 : rest;
      std::int32_t const e = homes.expert[after];
      if (s.rest[e] == least_loaded_state::unlisted) {
        s.order[next_place(&s.now->visits)] =
            heavier_first(static_cast<fixed_load>(tokens), index_t{e});
      }
      s.rest[e] = stays(rest) ? -rest : rest;
    }
  }
  /// Predicts the visits of a rank that got more tokens than its capacity in a visit.
  PLIMSOLL_HD void list_again(least_loaded_state const& s, index_t r,
                              least_loaded_state::listed_visit const& visit) const {
    std::int32_t after = homes.rank_begin[r] - 1;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t i = after + 1; i < homes.rank_begin[r + 1]; ++i) {
      std::int32_t const e = homes.expert[i];
      after = e < visit.expert ? i : after;
      bool const is_later =
          s.part[i] < visit.tokens || (s.part[i] == visit.tokens && e > visit.expert);
      if (is_later && s.rest[e] != least_loaded_state::unlisted) {
        s.rest[e] = 0;
      }
    }
    list_visits(s, r, s.load[r], visit.tokens, after);
  }

  /// Divides one expert anew. Returns the tokens that find no rank with room for a chunk.
  template <class Team, class Queue>
  PLIMSOLL_HD std::int32_t visit_listed(Team& team, least_loaded_state const& s, Queue& helpers,
                                        least_loaded_state::cursor& now,
                                        least_loaded_state::listed_visit const& visit,
                                        std::int32_t capacity, int bits) const {
    std::int32_t rest = visit.rest;
    if (rest <= 0) {
      if (rest < 0) {
        team.single(
            [=] { note_overload(s, visit.expert, visit.home, overload_cause::small_excess); });
        now.kept -= rest;
        ++now.pieces;
      }
      return 0;
    }
    now.pieces += static_cast<std::int32_t>(visit.tokens > rest);
    PLIMSOLL_NO_UNROLL
    while (rest > 0) {
      std::uint32_t const top = helpers.top();
      std::int32_t const room = capacity - static_cast<std::int32_t>(top >> bits);
      if (!is_chunk(room, rest)) {
        break;
      }
      std::int32_t const tokens = minimum{}(rest, room);
      rest -= tokens;
      helpers.update_top([=, number = now.pieces, end = visit.tokens - rest](std::uint32_t key) {
        s.pieces[number] = {visit.expert, rank_in(key, bits), end, visit.home};
        return key + (static_cast<std::uint32_t>(tokens) << bits);
      });
      ++now.pieces;
    }
    return rest;
  }
  /// Returns the rank in a helper's key.
  PLIMSOLL_HD static std::int32_t rank_in(std::uint32_t helper, int bits) {
    return static_cast<std::int32_t>(helper & ((1u << bits) - 1));
  }
  /// Assigns the rest of the visit at position i of the list to a rank without room for it, and
  /// predicts the later visits of that rank.
  template <class Team, class Queue>
  PLIMSOLL_HD void force(Team& team, least_loaded_state const& s, Queue& helpers,
                         least_loaded_state::cursor& now, std::int32_t i, std::int32_t rest,
                         std::int32_t capacity, int bits) const {
    least_loaded_state::listed_visit const visit = s.visits[i];
    std::uint32_t const top = helpers.top();
    std::int32_t r = rank_in(top, bits);
    bool const has_room = top >> bits < static_cast<std::uint32_t>(capacity);
    std::int32_t piece = now.pieces;
    if (has_room) {
      helpers.replace_top(static_cast<std::uint32_t>(capacity) << bits |
                          static_cast<std::uint32_t>(r));
    } else {
      // Only a full rank may have a piece of this expert already.
      r = lowest_except(team, s, visit.home);
      piece = static_cast<std::int32_t>(team.find(
          s.first[i], now.pieces, [&](index_t number) { return s.pieces[number].rank == r; }));
    }
    if (piece < now.pieces) {
      team.for_each(now.pieces - piece,
                    [&](index_t number) { s.pieces[piece + number].end += rest; });
    }
    team.single([&, is_new = piece == now.pieces] {
      if (is_new) {
        s.pieces[piece] = {visit.expert, r, visit.tokens, visit.home};
        ++s.split[visit.expert].segments;
        ++s.split[visit.expert].transfers;
        ++s.imports[r];
      }
      s.load[r] += rest;
      note_overload(s, visit.expert, r,
                    has_room ? overload_cause::min_chunk : overload_cause::capacity);
      list_again(s, r, visit);
    });
    now.pieces += static_cast<std::int32_t>(piece == now.pieces);
    now.forced += rest;
  }
  /// Returns the least loaded live rank other than `home`.
  template <class Team>
  PLIMSOLL_HD std::int32_t lowest_except(Team& team, least_loaded_state const& s,
                                         index_t home) const {
    std::uint64_t const key = team.min(ranks.size(), [&](index_t r) {
      return ranks.lives(r) && r != home ? key_of(s, r) : least_loaded_state::none;
    });
    return static_cast<std::int32_t>(rank_of(key));
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
    s.split[e] = {0, 0, s.now->pieces, 0};
    s.now->given = 0;
    index_t const begin = homes.begin(e);
    PLIMSOLL_NO_UNROLL
    for (index_t i = begin; i < homes.end(e); ++i) {
      std::int32_t const part = share_of(s, e, i - begin);
      s.load[homes.rank[i]] -= part;
      if constexpr (!is_free) {
        s.working[homes.rank[i]] -= part > 0;
      }
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
    return s.latest[r] >= s.split[e].first ? s.latest[r] : -1;
  }

  PLIMSOLL_HD void give(least_loaded_state const& s, index_t e, index_t r, std::int32_t tokens,
                        index_t from) const {
    s.load[r] += tokens;
    s.now->given += tokens;
    if (index_t const piece = piece_of(s, e, r); piece >= 0) {
      PLIMSOLL_NO_UNROLL
      for (index_t i = piece; i < s.now->pieces; ++i) {
        s.pieces[i].end += tokens;
      }
      return;
    }
    std::int32_t const piece = s.now->pieces++;
    s.pieces[piece] = {static_cast<std::int32_t>(e), static_cast<std::int32_t>(r), s.now->given,
                       static_cast<std::int32_t>(from)};
    s.latest[r] = piece;
    least_loaded_state::split_expert& split = s.split[e];
    ++split.segments;
    if constexpr (!is_free) {
      ++s.working[r];
    }
    if (from >= 0) {
      split.first_sent = split.transfers++ == 0 ? piece : split.first_sent;
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
  PLIMSOLL_HD void finish(Team& team, least_loaded_state const& s, levels const& given_levels,
                          spill_report& report) const {
    index_t const experts = homes.experts;
    index_t const groups = least_loaded_state::groups_of(experts);
    auto const counts_of = [&](index_t e) {
      return static_cast<std::uint64_t>(s.split[e].transfers) << 32 |
             static_cast<std::uint64_t>(s.split[e].segments);
    };
    auto const in_group = [=](index_t group, auto use) {
      index_t const first = group * least_loaded_state::together;
      index_t const end = minimum{}(first + least_loaded_state::together, experts);
      PLIMSOLL_NO_UNROLL
      for (index_t e = first; e < end; ++e) {
        use(e);
      }
    };
    std::uint64_t const all = team.exclusive_scan(
        groups,
        [&](index_t group) {
          std::uint64_t sum = 0;
          in_group(group, [&](index_t e) { sum += counts_of(e); });
          return sum;
        },
        s.before);
    auto const segments = static_cast<std::int32_t>(all & 0xffffffff);
    auto const transfers = static_cast<std::int32_t>(all >> 32);
    // Writes all experts as if they stayed at home, then overwrites the visited ones: a branch that
    // tells them apart would be mispredicted and take longer.
    team.for_each(groups, [&](index_t group) {
      std::uint64_t before = s.before[group];
      in_group(group, [&](index_t e) {
        least_loaded_state::split_expert& split = s.split[e];
        auto const segment = static_cast<std::int32_t>(before & 0xffffffff);
        auto const transfer = static_cast<std::int32_t>(before >> 32);
        before += counts_of(e);
        out.offsets[e] = segment;
        out.transfer_offsets[e] = transfer;
        write_at_home(s, e, segment);
        split.first = segment - split.first;
        split.first_sent = transfer - split.first_sent;
      });
    });
    team.for_each(s.now->pieces, [&](index_t i) {
      least_loaded_state::piece const piece = s.pieces[i];
      least_loaded_state::split_expert const split = s.split[piece.expert];
      out.segments[i + split.first] =
          spill_segment{piece.expert, piece.rank, begin_of(s, i), piece.end};
      if (piece.from >= 0) {
        out.transfers[i + split.first_sent] =
            spill_transfer{piece.expert, piece.from, piece.rank, rules.expert_bytes};
      }
    });
    report.segments = segments;
    report.transfers = transfers;
    report.forced = s.now->forced;
    report.kept = s.now->kept;
    report.first_forced = report.spills != 0 ? *s.overload : first_overload{};
    report.overload = team.sum(ranks.size(), [&](index_t r) {
      out.loads[r] = s.load[r];
      index_t const held = homes.rank_begin[r + 1] - homes.rank_begin[r] + s.imports[r];
      out.bytes_of_rank[r] = rules.token_bytes * s.load[r] + rules.expert_bytes * held;
      return maximum{}(-room_of(s, r), std::int32_t{0});  // the sum is at most that of all tokens
    });
    certify(team, s, given_levels, report);
    team.store(out.offsets + experts, segments);
    team.store(out.transfer_offsets + experts, transfers);
    team.store(out.outcome, spill_outcome{report, {}});
  }

  /// Writes the expert's segments at home from index `first`, but no more segments than it has in
  /// the plan.
  PLIMSOLL_HD void write_at_home(least_loaded_state const& s, index_t e, index_t first) const {
    least_loaded_state::given_expert const given = s.given[e];
    std::int32_t const segments = minimum{}(given.copies, s.split[e].segments);
    std::int32_t begin = 0;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t i = 0; i < segments; ++i) {
      std::int32_t const end = begin + home_share(given.tokens, given.copies, i);
      std::int32_t const home = i == 0 ? given.home : homes.rank[homes.begin(e) + i];
      out.segments[first + i] = spill_segment{static_cast<std::int32_t>(e), home, begin, end};
      begin = end;
    }
  }

  template <class Team>
  PLIMSOLL_HD void certify(Team& team, least_loaded_state const& s, levels const& given_levels,
                           spill_report& report) const {
    std::int64_t const peak = peak_level(team, s);
    std::int64_t const mean = ranks.level_for(team, report.tokens);
    std::int64_t const bound = maximum{}(mean, given_levels.confined);
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
    report.result.status = given_levels.confined > given_levels.capacity
                               ? certificate_status::infeasible
                           : peak == bound        ? certificate_status::optimal
                           : report.overload == 0 ? certificate_status::within_tolerance
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
