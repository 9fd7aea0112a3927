// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `least_loaded`: they assign an expert's tokens to ranks, count the tokens that every
/// rank sends to every other, and route each token copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/id_columns.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The numbers of `spill_homes` that follow from the residents.
struct spill_home_numbers {
  std::int32_t pairs;
  std::int32_t most_held;  ///< the most experts that one rank holds
};

/// The pairs of an expert and a live rank that holds it, listed by expert and by rank, in the
/// memory of the object.
struct spill_homes {
  index_t experts;
  index_t slots;        ///< those that hold experts: the most pairs
  double* speed;        ///< `[ranks]`: 0 for dead ranks
  rank_numbers* ranks;  ///< of `speed`
  spill_home_numbers* numbers;
  problem_report* update;      ///< what the last update refused
  std::int32_t* expert_begin;  ///< `[experts + 1]` into `rank`
  std::int32_t* rank;          ///< `[pairs]`: the ranks of every expert, rising
  std::int32_t* rank_begin;    ///< `[ranks + 1]` into `expert`
  std::int32_t* expert;        ///< `[pairs]`: the experts of every rank, rising
  std::int32_t* position;      ///< `[pairs]`: the rank's position in the expert's list

  template <class Memory>
  [[nodiscard]] PLIMSOLL_HD static spill_homes in(Memory& memory, index_t experts, index_t ranks,
                                                  index_t slots) {
    spill_homes result{};
    result.experts = experts;
    result.slots = slots;
    memory.take(result.speed, ranks);
    memory.take(result.ranks, 1);
    memory.take(result.numbers, 1);
    memory.take(result.update, 1);
    memory.take(result.expert_begin, experts + 1);
    memory.take(result.rank, slots);
    memory.take(result.rank_begin, ranks + 1);
    memory.take(result.expert, slots);
    memory.take(result.position, slots);
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD index_t begin(index_t e) const { return expert_begin[e]; }
  [[nodiscard]] PLIMSOLL_HD index_t end(index_t e) const { return expert_begin[e + 1]; }
  [[nodiscard]] PLIMSOLL_HD index_t copies(index_t e) const { return end(e) - begin(e); }
};

/// Body of `least_loaded::update`: lists the homes of all experts. Refused residents or ranks leave
/// the lists as they are. One problem.
struct spill_homes_body {
  using device_team = block<128>;

  spill_homes homes;
  // One of three says which rank holds which expert.
  vector_ref<std::int32_t const> home_rank;  ///< `[experts]`, or
  matrix_ref<std::int32_t const>
      physical_to_logical;  ///< `[1, slots]`, or empty: blocks of experts
  slot_ranges ranges;       ///< of slots, or of the blocks
  rank_input on;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(homes, ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t) const {
    arrays const s = arrays::in(memory, homes, ranges.ranks);
    problem_report const outcome = refuse(team, s);
    team.single([=, this] { *homes.update = outcome; });
    if (outcome.refused) {
      return;
    }
    rank_numbers const numbers = on.write(team, ranges.ranks, homes.speed);
    team.single([=, this] { *homes.ranks = numbers; });
    list_by_expert(team, s);
    list_by_rank(team, s);
  }

 private:
  struct arrays {
    slot_lists lists;
    std::int32_t* expert_of;  ///< `[slots]`
    std::int32_t* rank_of;    ///< `[slots]`: -1 if the rank is dead
    std::int32_t* count;      ///< `[experts]` homes, or `[ranks]` experts
    std::int32_t* owner;      ///< `[pairs]`
    std::uint64_t* keys;      ///< `[slots]`
    std::byte* sort_storage;

    template <class Memory>
    [[nodiscard]] PLIMSOLL_HD static arrays in(Memory& memory, spill_homes const& homes,
                                               index_t ranks) {
      arrays s{};
      s.lists = slot_lists::in(memory, homes.experts, homes.slots);
      memory.take(s.expert_of, homes.slots);
      memory.take(s.rank_of, homes.slots);
      memory.take(s.count, maximum{}(homes.experts, ranks));
      memory.take(s.owner, homes.slots);
      memory.take(s.keys, homes.slots);
      memory.take(s.sort_storage, most_sort_bytes<std::uint64_t>(homes.slots));
      return s;
    }
  };

  PLIMSOLL_HD bool has_slots() const { return physical_to_logical.data != nullptr; }
  PLIMSOLL_HD bool lives(index_t r) const { return on.keeps ? homes.speed[r] > 0 : on.lives(r); }

  /// Finds the homes of every expert in scratch. Refuses speeds, ranks, offsets and ids out of
  /// range, and experts without a live home.
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, arrays const& s) const {
    index_t const ranks = ranges.ranks;
    problem_report const of_ranks = on.refuse(team, ranks);
    if (of_ranks.refused) {
      return of_ranks;
    }
    index_t const rank = ranges.first_fault(team, 0);
    if (rank < ranks) {
      return refusal(fault_kind::rank_offsets, rank, ranges.end(0, rank));
    }
    if (home_rank.data != nullptr) {
      index_t const mismatch = team.min(homes.experts, [this, ranks](index_t e) {
        return home_rank[e] >= 0 && home_rank[e] < ranks ? homes.experts : e;
      });
      if (mismatch < homes.experts) {
        return refusal(fault_kind::home_rank, mismatch, home_rank[mismatch], ranks - 1);
      }
    } else if (has_slots()) {
      index_t const used = ranges.end(0, ranks - 1);
      index_t const mismatch = team.min(used, [this, used](index_t slot) {
        std::int32_t const e = physical_to_logical(0, slot);
        return e >= -1 && e < homes.experts ? used : slot;
      });
      if (mismatch < used) {
        index_t const holder = team.min(
            ranks, [=, this](index_t r) { return mismatch < ranges.end(0, r) ? r : ranks; });
        return refusal(fault_kind::expert_id, mismatch, physical_to_logical(0, mismatch), holder);
      }
    }
    find_slots(team, s);
    s.lists.fill(team, vector_ref<std::int32_t const>(s.expert_of, homes.slots), s.keys,
                 s.sort_storage);
    team.for_each(homes.experts, [=](index_t e) {
      std::int32_t count = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t i = s.lists.first[e]; i < s.lists.first[e + 1]; ++i) {
        count += begins_home(s, e, i);
      }
      s.count[e] = count;
    });
    index_t const without = team.min(
        homes.experts, [=, this](index_t e) { return s.count[e] > 0 ? homes.experts : e; });
    return without < homes.experts ? refusal(fault_kind::missing_expert, without)
                                   : problem_report{};
  }

  /// Finds the expert and the live rank of every slot. Without slots, experts take their place.
  template <class Team>
  PLIMSOLL_HD void find_slots(Team& team, arrays const& s) const {
    index_t const given = has_slots() ? physical_to_logical.extent(1) : homes.experts;
    team.for_each(homes.slots, [=, this](index_t slot) {
      s.expert_of[slot] = slot >= given ? -1
                          : has_slots() ? physical_to_logical(0, slot)
                                        : static_cast<std::int32_t>(slot);
      std::int32_t rank = -1;
      if (slot < given && home_rank.data != nullptr && lives(home_rank[slot])) {
        rank = home_rank[slot];
      }
      s.rank_of[slot] = rank;
    });
    if (home_rank.data == nullptr) {
      team.for_each(ranges.ranks, [=, this](index_t r) {
        PLIMSOLL_NO_UNROLL
        for (index_t slot = ranges.begin(0, r); lives(r) && slot < ranges.end(0, r); ++slot) {
          s.rank_of[slot] = static_cast<std::int32_t>(r);
        }
      });
    }
  }
  /// Returns true if a list's slot is the first one of the expert on a live rank.
  PLIMSOLL_HD static bool begins_home(arrays const& s, index_t e, index_t i) {
    std::int32_t const r = s.rank_of[s.lists.slot[i]];
    return r >= 0 && (i == s.lists.first[e] || s.rank_of[s.lists.slot[i - 1]] != r);
  }

  template <class Team>
  PLIMSOLL_HD void list_by_expert(Team& team, arrays const& s) const {
    index_t const pairs = team.exclusive_scan(
        homes.experts, [=](index_t e) { return s.count[e]; }, homes.expert_begin);
    team.for_each(homes.experts, [=, this](index_t e) {
      std::int32_t at = homes.expert_begin[e];
      PLIMSOLL_NO_UNROLL
      for (index_t i = s.lists.first[e]; i < s.lists.first[e + 1]; ++i) {
        if (begins_home(s, e, i)) {
          homes.rank[at] = s.rank_of[s.lists.slot[i]];
          s.owner[at++] = static_cast<std::int32_t>(e);
        }
      }
    });
    team.single([=, this] {
      homes.expert_begin[homes.experts] = static_cast<std::int32_t>(pairs);
      homes.numbers->pairs = static_cast<std::int32_t>(pairs);
    });
  }

  template <class Team>
  PLIMSOLL_HD void list_by_rank(Team& team, arrays const& s) const {
    index_t const pairs = homes.numbers->pairs;
    index_t const ranks = ranges.ranks;
    team.histogram(
        pairs, [this](index_t i) { return homes.rank[i]; }, s.count, ranks);
    team.exclusive_scan(
        ranks, [=](index_t r) { return s.count[r]; }, homes.rank_begin);
    std::int32_t const most = team.max(ranks, [=](index_t r) { return s.count[r]; });
    team.for_each(pairs, [=, this](index_t i) {
      s.keys[i] = static_cast<std::uint64_t>(homes.rank[i]) << 32 | static_cast<std::uint64_t>(i);
    });
    team.sort(s.keys, pairs, s.sort_storage);
    team.for_each(pairs, [=, this](index_t at) {
      auto const pair = static_cast<std::uint32_t>(s.keys[at]);
      std::int32_t const e = s.owner[pair];
      homes.expert[at] = e;
      homes.position[at] = static_cast<std::int32_t>(pair) - homes.expert_begin[e];
    });
    team.single([=, this] {
      homes.rank_begin[ranks] = static_cast<std::int32_t>(pairs);
      homes.numbers->most_held = most;
    });
  }
};

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

  template <class Memory>
  PLIMSOLL_HD static spill_plan_arrays in(Memory& memory, spill_array_sizes const& n) {
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

  template <class Memory>
  PLIMSOLL_HD static least_loaded_state in(Memory& memory, index_t experts, index_t ranks,
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
      refuse(team, {fault_kind::tokens, -1, static_cast<double>(total)});
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
      report.refused = {fault_kind::cost, s.bad_rank[bad], s.bad_cost[bad]};
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
    enum class turn { first, search, found, again, end };
    std::int64_t low = maximum{}(at.capacity, at.confined) - 1;
    std::int64_t high = at.home_peak;
    std::int64_t level = at.capacity;
    std::int64_t first_peak = 0;
    double first_time = 0;
    PLIMSOLL_NO_UNROLL
    for (turn now = turn::first;;) {
      if (now == turn::search || now == turn::found) {
        fill_to(team, s, total, level);
      } else if (now != turn::first) {
        set_capacities(team, s, total);
      }
      if (now == turn::end) {
        return level;
      }
      if (now != turn::first) {
        stay(team, s);
      }
      spill(team, s);
      bool const is_limited = rules.limited && s.now->forced + s.now->kept > 0;
      if (now == turn::again || (now == turn::first && !is_limited)) {
        return at.capacity;
      }
      std::int64_t const peak = peak_level(team, s);
      double const time = now == turn::search ? 0.0 : longest(team, s);
      if (now == turn::found) {
        bool const is_better = time < first_time || (time == first_time && peak < first_peak);
        now = is_better ? turn::end : turn::again;
        continue;
      }
      if (now == turn::search) {
        (peak <= level ? high : low) = level;
      } else {
        first_peak = peak;
        first_time = time;
      }
      bool const is_found = high - low <= maximum{}(high >> 7, std::int64_t{1});
      now = is_found ? turn::found : turn::search;
      level = is_found ? high : low + (high - low) / 2;
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

/// The exchange of a plan's tokens among all ranks.
struct spill_routes {
  index_t experts;
  index_t ranks;
  index_t segment_limit;
  std::int32_t const* offsets;  ///< `[experts + 1]`: of the plan
  spill_segment const* segments;
  spill_exchange_state* state;
  std::int32_t* before;        ///< `[ranks + 1, experts]`: tokens of earlier sources
  std::int64_t* totals;        ///< `[experts]`: tokens of all sources, or a negative count
  std::uint64_t* by_rank;      ///< `[segment_limit]`: rank << 32 | segment, rising
  std::byte* sort_storage;     ///< of `by_rank`
  std::int32_t* rank_begin;    ///< `[ranks + 1]` into `by_rank`
  std::int32_t* sends;         ///< `[ranks, ranks]`: from every source to every rank
  std::int32_t* receives;      ///< `[ranks, ranks]`: its transpose
  std::int32_t* sent_row;      ///< `[ranks, segment_limit]`: first row of a segment in the send
                               ///< buffer of a source
  std::int32_t* computed_row;  ///< `[segment_limit]`, as `by_rank`: first row of a segment among
                               ///< those that its rank computes
  spill_exchange_report* reports;  ///< `[ranks]`

  template <class Memory>
  PLIMSOLL_HD static spill_routes in(Memory& memory, spill_array_sizes const& n) {
    spill_routes result{};
    result.experts = n.experts;
    result.ranks = n.ranks;
    result.segment_limit = n.segments;
    memory.take(result.before, (n.ranks + 1) * n.experts);
    memory.take(result.totals, n.experts);
    memory.take(result.by_rank, n.segments);
    memory.take(result.sort_storage, sort_bytes<block<256>, std::uint64_t>(n.segments));
    memory.take(result.rank_begin, n.ranks + 1);
    memory.take(result.sends, n.ranks * n.ranks);
    memory.take(result.receives, n.ranks * n.ranks);
    memory.take(result.sent_row, n.ranks * n.segments);
    memory.take(result.computed_row, n.segments);
    memory.take(result.reports, n.ranks);
    return result;
  }

  [[nodiscard]] PLIMSOLL_HD index_t segment_at(index_t i) const {
    return static_cast<index_t>(by_rank[i] & 0xffffffff);
  }
  /// Returns the number of an expert's tokens in the plan.
  [[nodiscard]] PLIMSOLL_HD std::int32_t planned(index_t e) const {
    return offsets[e] == offsets[e + 1] ? 0 : segments[offsets[e + 1] - 1].end;
  }
  /// Returns the same, but 0 before the exchange of the plan.
  [[nodiscard]] PLIMSOLL_HD std::int32_t routed(index_t e) const {
    return state->is_done != 0 ? planned(e) : 0;
  }
  /// The part of a segment's tokens that comes from one source.
  struct interval {
    std::int32_t begin;
    std::int32_t end;
    [[nodiscard]] PLIMSOLL_HD std::int32_t size() const { return end > begin ? end - begin : 0; }
  };
  [[nodiscard]] PLIMSOLL_HD interval part_of(index_t source, index_t segment) const {
    spill_segment const& of = segments[segment];
    return {maximum{}(of.begin, before[source * experts + of.expert]),
            minimum{}(of.end, before[(source + 1) * experts + of.expert])};
  }
};

/// Adds up the counts of sources. Problem = tile of experts.
struct count_sources_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;
  static constexpr index_t tile = 128;

  matrix_ref<std::int32_t const> counts;  ///< `[ranks, experts]`
  spill_routes routes;

  [[nodiscard]] index_t problems() const { return (routes.experts + tile - 1) / tile; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const first = problem * tile;
    index_t const size = minimum{}(routes.experts - first, tile);
    team.for_each(size, [=, this](index_t i) {
      index_t const e = first + i;
      std::int64_t sum = 0;
      std::int32_t negative = 0;
      for (index_t source = 0; source < routes.ranks; ++source) {
        routes.before[source * routes.experts + e] = clamped(sum);
        std::int32_t const count = counts(source, e);
        sum += maximum{}(count, 0);
        negative = minimum{}(count, negative);
      }
      routes.before[routes.ranks * routes.experts + e] = clamped(sum);
      routes.totals[e] = negative < 0 ? negative : sum;
    });
  }

 private:
  PLIMSOLL_HD static std::int32_t clamped(std::int64_t sum) {
    return static_cast<std::int32_t>(minimum{}(sum, std::int64_t{highest<std::int32_t>}));
  }
};

/// Lists the segments of every rank, and compares the counts of all sources with the plan. One
/// problem.
struct list_spills_body {
  using device_team = block<256>;

  spill_routes routes;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t) const {
    index_t const segments = routes.offsets[routes.experts];
    team.for_each(segments, [this](index_t i) {
      routes.by_rank[i] =
          static_cast<std::uint64_t>(routes.segments[i].rank) << 32 | static_cast<std::uint64_t>(i);
    });
    team.sort(routes.by_rank, segments, routes.sort_storage);
    team.for_each(routes.ranks + 1, [=, this](index_t r) {
      index_t low = 0;
      for (index_t high = segments; low < high;) {
        index_t const middle = low + (high - low) / 2;
        bool const is_before = static_cast<index_t>(routes.by_rank[middle] >> 32) < r;
        low = is_before ? middle + 1 : low;
        high = is_before ? high : middle;
      }
      routes.rank_begin[r] = static_cast<std::int32_t>(low);
    });
    index_t const mismatch = team.min(routes.experts, [this](index_t e) {
      return routes.totals[e] == routes.planned(e) ? routes.experts : e;
    });
    team.single([=, this] {
      spill_exchange_state result{};
      result.is_done = 1;
      if (mismatch < routes.experts) {
        result.refused = {fault_kind::counts, mismatch,
                          static_cast<double>(routes.totals[mismatch]), routes.planned(mismatch)};
      }
      *routes.state = result;
    });
  }
};

/// Lays out the rows that a rank sends, by destination rank, then by expert, and the rows that it
/// computes, by expert. Problem = rank.
struct exchange_body {
  using device_team = block<128>;

  spill_routes routes;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(routes.segment_limit);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t rank) const {
    auto* const row = memory.take<std::int32_t>(routes.segment_limit);
    index_t const segments = routes.offsets[routes.experts];
    std::int32_t const sent = team.exclusive_scan(
        segments,
        [=, this](index_t i) { return routes.part_of(rank, routes.segment_at(i)).size(); }, row);
    team.for_each(segments, [=, this](index_t i) {
      routes.sent_row[rank * routes.segment_limit + routes.segment_at(i)] = row[i];
    });
    team.for_each(routes.ranks, [=, this](index_t to) {
      auto const row_at = [=](index_t i) { return i < segments ? row[i] : sent; };
      std::int32_t const tokens = row_at(routes.rank_begin[to + 1]) - row_at(routes.rank_begin[to]);
      routes.sends[rank * routes.ranks + to] = tokens;
      routes.receives[to * routes.ranks + rank] = tokens;
    });
    index_t const first = routes.rank_begin[rank];
    index_t const groups = routes.rank_begin[rank + 1] - first;
    std::int32_t const received = team.exclusive_scan(
        groups,
        [=, this](index_t i) {
          spill_segment const of = routes.segments[routes.segment_at(first + i)];
          return of.end - of.begin;
        },
        routes.computed_row + first);
    team.single([=, this] {
      routes.reports[rank] = {sent, received, static_cast<std::int32_t>(groups),
                              routes.state->refused};
    });
  }
};

/// Counts and routes a rank's token copies, in three launches: problem = tile of copies; problem =
/// column of the counts; and, after the plan, problem = tile again.
template <class Id, class Destination = std::int32_t, class Row = std::int32_t>
struct spill_tokens_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;
  enum class phase { count, scan, assign };

  matrix_ref<Id const> ids;  ///< `[tokens, k]`
  spill_routes routes;
  tile_counts tiles;                     ///< columns: experts, -1, other numbers
  vector_ref<std::int32_t> counts;       ///< `[experts]`
  index_t rank;                          ///< the rank whose copies are routed
  matrix_ref<Destination> destinations;  ///< `[tokens, k]`
  matrix_ref<Row> rows;                  ///< `[tokens, k]`
  spill_counters* counters;
  phase now;

  [[nodiscard]] index_t problems() const {
    return now == phase::scan ? tiles.columns : tiles.problems();
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return now == phase::scan ? 0 : tiles.scratch_bytes<device_team>();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    auto const column_of = [this](index_t copy) {
      return column_of_id(element(ids, copy), routes.experts);
    };
    if (now == phase::count) {
      tiles.count(team, memory, problem, column_of);
    } else if (now == phase::scan) {
      tiles.scan(team, problem);
      if (problem < routes.experts) {
        team.single([=, this] { counts[problem] = tiles.totals[problem]; });
      }
    } else {
      if (problem == 0) {
        report(team);
      }
      tiles.visit<device_team>(
          team, memory, problem, column_of,
          [this](index_t copy, std::int32_t e, std::int32_t earlier) { send(copy, e, earlier); });
    }
  }

 private:
  PLIMSOLL_HD void send(index_t copy, std::int32_t e, std::int32_t earlier) const {
    Destination& destination = element(destinations, copy);
    Row& row = element(rows, copy);
    destination = -1;
    row = -1;
    if (e >= routes.experts) {
      return;
    }
    std::int32_t const before = routes.before[rank * routes.experts + e];
    std::int64_t const position = std::int64_t{before} + earlier;
    if (position >= routes.routed(e)) {
      return;
    }
    index_t low = routes.offsets[e];
    for (index_t size = routes.offsets[e + 1] - low; size > 1;) {
      index_t const half = size / 2;
      low += routes.segments[low + half].begin <= position ? half : 0;
      size -= half;
    }
    destination = routes.segments[low].rank;
    row = routes.sent_row[rank * routes.segment_limit + low] +
          static_cast<std::int32_t>(position - maximum{}(routes.segments[low].begin, before));
  }

  template <class Team>
  PLIMSOLL_HD void report(Team& team) const {
    auto const room = [this](index_t e) {
      std::int32_t const before = routes.before[rank * routes.experts + e];
      return minimum{}(std::int64_t{tiles.totals[e]},
                       maximum{}(std::int64_t{routes.routed(e)} - before, std::int64_t{0}));
    };
    auto const routed = team.sum(routes.experts, room);
    auto const all =
        team.sum(routes.experts, [this](index_t e) { return std::int64_t{tiles.totals[e]}; });
    team.single([=, this] {
      spill_counters result{};
      result.routed = routed;
      result.unplanned = all - routed;
      result.unrouted = tiles.totals[routes.experts];
      result.out_of_range = tiles.totals[routes.experts + 1];
      *counters = result;
    });
  }
};

/// Maps each row that a rank receives to its row in the order of computation, and lists the rows of
/// each expert. Problem = source.
template <class Row>
struct arrange_rows_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  spill_routes routes;
  index_t rank;
  vector_ref<Row> rows;              ///< any number
  vector_ref<spill_segment> groups;  ///< `[experts]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int64_t>(routes.experts);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t source) const {
    auto* const first = memory.take<std::int64_t>(routes.experts);
    bool const is_done = routes.state->is_done != 0;
    index_t const begin = routes.rank_begin[rank];
    index_t const count = is_done ? routes.rank_begin[rank + 1] - begin : 0;
    if (source == 0) {
      list_groups(team, begin, count);
    }
    auto const earlier = team.sum(is_done ? source : 0, [this](index_t s) {
      return std::int64_t{routes.receives[rank * routes.ranks + s]};
    });
    auto const size = team.exclusive_scan(
        count,
        [=, this](index_t i) {
          return std::int64_t{routes.part_of(source, routes.segment_at(begin + i)).size()};
        },
        first);
    index_t const wanted = minimum{}(size, maximum{}(rows.extent(0) - earlier, std::int64_t{0}));
    team.for_each(wanted, [=, this](index_t i) {
      index_t const group = last_not_above(first, count, i);
      index_t const segment = routes.segment_at(begin + group);
      rows[earlier + i] = static_cast<Row>(routes.computed_row[begin + group] +
                                           routes.part_of(source, segment).begin -
                                           routes.segments[segment].begin + i - first[group]);
    });
    if (source == routes.ranks - 1) {
      index_t const used = minimum{}(rows.extent(0), earlier + size);
      team.for_each(rows.extent(0) - used, [=, this](index_t i) { rows[used + i] = -1; });
    }
  }

 private:
  template <class Team>
  PLIMSOLL_HD void list_groups(Team& team, index_t begin, index_t count) const {
    team.for_each(routes.experts, [=, this](index_t i) {
      spill_segment group{-1, -1, 0, 0};
      if (i < count) {
        group = routes.segments[routes.segment_at(begin + i)];
        group.end -= group.begin;
        group.begin = routes.computed_row[begin + i];
        group.end += group.begin;
      }
      groups[i] = group;
    });
  }
};

}}}  // namespace plimsoll::detail
