// SPDX-License-Identifier: Apache-2.0
/// @file
/// Greedy packing of replicas onto ranks, heaviest first, each on the least loaded rank with a free
/// slot.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Terms of a lower bound for every placement: `heaviest` on the fastest rank, `total` over all
/// ranks.
struct load_bound {
  fixed_load heaviest = 0;
  fixed_load total = 0;
  bool any_counts = false;  ///< holds for all replica counts, not only for the given ones
};

/// Packing of one cell. Costs are loads in fixed point, divided by the speed of the rank if speeds
/// are given.
struct packing_result {
  double peak = 0;
  double bound = 0;  ///< lower bound for every packing of the same replicas
  load_bound least = {};
  index_t placed = 0;
  index_t unplaced = -1;  ///< an expert whose copies required anti-affinity leaves without a slot
  bool keeps_order = false;  ///< the memory has the order of the experts, for the next packing
};

/// First and last slot of each rank of a layer, computed once: packings read them often, and rank
/// offsets may be strided or need a division.
struct slot_table {
  std::int32_t const* begin;  ///< `[ranks]`
  std::int32_t const* end;    ///< `[ranks]`
};

/// Replicas of one cell and the ranks that may hold them. All arrays are indexed by expert or slot
/// of the layer.
struct packing_problem {
  fixed_load const* load;
  vector_ref<std::int32_t const> copies;
  topology const& where;
  slot_table slots;
  cell at;
  anti_affinity_rule rule;
  vector_ref<std::int32_t> map;  ///< expert of each slot; only the cell's slots are written
  fixed_load load_error = 0;     ///< every load was rounded down by less; 0: loads are exact

  PLIMSOLL_HD fixed_load weight(index_t expert) const {
    return share(load[expert], copies[expert]);
  }
  /// The exact weight of a replica exceeds `weight` by less than this; 0: `weight` is exact.
  PLIMSOLL_HD fixed_load weight_error(index_t expert, fixed_load weight) const {
    auto const n = static_cast<fixed_load>(copies[expert]);
    return maximum{}(load_error, fixed_load{weight * n != load[expert]});
  }
  // Ranks of the cell count from 0.
  PLIMSOLL_HD index_t begin(index_t rank) const { return slots.begin[at.first_rank + rank]; }
  PLIMSOLL_HD index_t end(index_t rank) const { return slots.end[at.first_rank + rank]; }
  PLIMSOLL_HD double cost(index_t rank, fixed_load carried) const {
    return where.cost(at.first_rank + rank, carried);
  }
  /// Number of domains, which hold at most one replica of an expert: ranks, or nodes with
  /// anti-affinity by node, where a cell is always a whole layer.
  PLIMSOLL_HD index_t domains() const {
    return rule.apart == anti_affinity::node ? where.nodes : at.ranks;
  }
  PLIMSOLL_HD index_t domain_of(index_t rank) const {
    return rule.apart == anti_affinity::node ? where.node_of(rank) : rank;
  }
  PLIMSOLL_HD index_t first_rank_of(index_t domain) const {
    return rule.apart == anti_affinity::node ? where.first_rank(domain) : domain;
  }
};

/// Range of the free slots of a rank.
struct alignas(8) free_range {
  std::int32_t next;
  std::int32_t end;
};

/// The working memory of `packer` for the largest cell of a layer.
struct packing_arrays {
  std::uint64_t* keys;      ///< `[experts]`
  std::uint64_t* carried;   ///< `[ranks]` load of each rank, or the ranks' keys in a queue
  free_range* free;         ///< `[ranks]`
  std::byte* sort_storage;  ///< for `keys`

  // With anti-affinity: the last expert (as its position in `keys`) of which a rank, or a node,
  // took a copy.
  std::int32_t* on_rank;  ///< `[ranks]`
  std::int32_t* on_node;  ///< `[ranks]`

  // With required anti-affinity.
  std::int32_t* missing;   ///< `[experts]` copies of each expert that found no slot
  std::int32_t* expanded;  ///< `[experts]`, and three `[ranks]`, of `room_search`
  std::int32_t* queue;
  std::int32_t* slot_in;
  std::int32_t* from;

  PLIMSOLL_HD static packing_arrays in(scratch& memory, index_t experts, index_t ranks,
                                       anti_affinity_rule const& rule) {
    packing_arrays result{};
    memory.take(result.keys, experts);
    memory.take(result.carried, ranks);
    memory.take(result.free, ranks);
    memory.take(result.sort_storage, most_sort_bytes<std::uint64_t>(experts));
    if (rule.apart != anti_affinity::none) {
      memory.take(result.on_rank, ranks);
      memory.take(result.on_node, ranks);
    }
    if (rule.required) {
      memory.take(result.missing, experts);
      memory.take(result.expanded, experts);
      memory.take(result.queue, ranks);
      memory.take(result.slot_in, ranks);
      memory.take(result.from, ranks);
    }
    return result;
  }
};

/// Inserts another copy of an expert by moving replicas along the shortest augmenting path: the
/// copy takes the slot of a replica, which takes the slot of another, and so on up to a free slot,
/// and no replica moves to a domain that holds its expert. Such a path exists whenever any
/// placement of the replicas placed so far and this one satisfies anti-affinity (bipartite matching
/// between experts and domains). Breadth-first search finds the shortest.
struct room_search {
  packing_problem const& problem;
  free_range* free;        ///< [ranks]
  std::int32_t* expanded;  ///< [experts] 1: the domains that the expert can move to are queued
  std::int32_t* queue;     ///< [domains]
  std::int32_t* slot_in;   ///< [domains] slot whose replica moves here; -1: new copy; -2: unseen
  std::int32_t* from;      ///< [domains] domain of that slot

  /// Returns false if there is no path. Called by one thread.
  PLIMSOLL_HD bool insert(index_t expert, index_t experts) const {
    index_t const domains = problem.domains();
    PLIMSOLL_NO_UNROLL
    for (index_t d = 0; d < domains; ++d) {
      slot_in[d] = -2;
    }
    PLIMSOLL_NO_UNROLL
    for (index_t e = 0; e < experts; ++e) {
      expanded[e] = 0;
    }
    index_t tail = 0;
    expand(expert, -1, -1, tail);
    for (index_t head = 0; head < tail; ++head) {
      index_t const d = queue[head];
      for (index_t r = problem.first_rank_of(d); r < problem.first_rank_of(d + 1); ++r) {
        if (free[r].next < free[r].end) {
          shift(expert, d, free[r].next++);
          return true;
        }
      }
      for (index_t r = problem.first_rank_of(d); r < problem.first_rank_of(d + 1); ++r) {
        for (index_t slot = problem.begin(r); slot < free[r].next; ++slot) {
          index_t const e = problem.map[slot];
          if (expanded[e] == 0) {
            expanded[e] = 1;
            expand(e, slot, d, tail);
          }
        }
      }
    }
    return false;
  }

 private:
  PLIMSOLL_HD bool holds(index_t domain, index_t expert) const {
    for (index_t r = problem.first_rank_of(domain); r < problem.first_rank_of(domain + 1); ++r) {
      PLIMSOLL_NO_UNROLL
      for (index_t slot = problem.begin(r); slot < free[r].next; ++slot) {
        if (problem.map[slot] == expert) {
          return true;
        }
      }
    }
    return false;
  }
  /// Queues the unseen domains that the replica in `slot` of domain `d` can move to.
  PLIMSOLL_HD void expand(index_t expert, index_t slot, index_t d, index_t& tail) const {
    for (index_t to = 0; to < problem.domains(); ++to) {
      if (slot_in[to] == -2 && !holds(to, expert)) {
        slot_in[to] = static_cast<std::int32_t>(slot);
        from[to] = static_cast<std::int32_t>(d);
        queue[tail++] = static_cast<std::int32_t>(to);
      }
    }
  }
  /// Fills `slot` of domain `d`, then each slot that this frees, back along the path.
  PLIMSOLL_HD void shift(index_t expert, index_t d, index_t slot) const {
    while (slot_in[d] >= 0) {
      index_t const source = slot_in[d];
      problem.map[slot] = problem.map[source];
      slot = source;
      d = from[d];
    }
    problem.map[slot] = static_cast<std::int32_t>(expert);
  }
};

/// Packs one cell greedily: replicas in order of falling weight, then in the order of the cell's
/// experts, each on the rank with a free slot that is least loaded with it, ties to the lowest
/// rank. Anti-affinity narrows that choice first. Slots that stay free get -1.
///
/// If every rank has one slot, all are used, and neither speeds nor anti-affinity are given, the
/// replicas keep the order in which they were created, as in EPLB.
template <class Team>
class packer {
 public:
  PLIMSOLL_HD packer(Team& team, scratch memory, packing_problem const& problem, index_t experts)
      : team_(team),
        p_(problem),
        experts_(experts),
        arrays_(packing_arrays::in(memory, experts, problem.where.ranks(), problem.rule)) {}

  /// Requires that the cell has at least as many slots as copies. `is_repeated`: the last packing
  /// in this memory was of the same cell, and `keeps_order`. If few weights have changed since, its
  /// order is nearly sorted.
  PLIMSOLL_HD packing_result pack(bool is_repeated = false) {
    index_t const n = p_.at.experts;
    index_t const ranks = p_.at.ranks;
    team_.for_each(n, [=, this](index_t k) {
      index_t const i = is_repeated ? id_of(arrays_.keys[k]) : k;
      arrays_.keys[k] = heavier_first(p_.weight(p_.where.expert_of(p_.at, i)), i);
    });
    bool const plain = p_.where.speeds.data == nullptr && p_.rule.apart == anti_affinity::none;
    team_.for_each(ranks, [=, this](index_t r) {
      arrays_.free[r] = {static_cast<std::int32_t>(p_.begin(r)),
                         static_cast<std::int32_t>(p_.end(r))};
      // The largest key keeps a rank without slots from being chosen.
      arrays_.carried[r] = plain ? lighter_first(free_slots(r) > 0 ? 0 : load_mask, r) : 0;
    });
    open_ = team_.count(ranks, [this](index_t r) { return free_slots(r) > 0; });
    slots_ = team_.sum(ranks, [this](index_t r) { return free_slots(r); });
    packing_result result;
    result.placed = team_.sum(
        n, [this](index_t i) { return index_t{p_.copies[p_.where.expert_of(p_.at, i)]}; });
    if (plain && result.placed == slots_ && open_ == slots_) {
      fixed_load const heaviest =
          team_.max(n, [this](index_t i) { return heavy_load_of(arrays_.keys[i]); });
      result.least.heaviest = n == 0 ? 0 : heaviest;
      result.peak = result.bound = static_cast<double>(result.least.heaviest);
      place_in_order();
      return result;
    }
    team_.sort(arrays_.keys, n, arrays_.sort_storage);
    result.keeps_order = true;
    look_up_replicas();
    double const bound = lower_bound(result.placed, result.least);
    if (plain) {
      result.peak = static_cast<double>(place_lightest_first());
    } else {
      result.unplaced = place_by_cost();
      result.peak = team_.max(ranks, [this](index_t r) { return p_.cost(r, arrays_.carried[r]); });
    }
    result.bound = minimum{}(bound, result.peak);
    team_.for_each(ranks, [this](index_t r) {
      PLIMSOLL_NO_UNROLL
      for (index_t slot = arrays_.free[r].next; slot < arrays_.free[r].end; ++slot) {
        p_.map[slot] = -1;
      }
    });
    return result;
  }

 private:
  struct alignas(8) replicas {
    std::int32_t copies;  ///< negative if the next expert has the same weight
    std::int32_t expert;
  };

  /// The replicas of each key, once the keys are sorted.
  [[nodiscard]] PLIMSOLL_HD replicas* in_order() const {
    return reinterpret_cast<replicas*>(arrays_.sort_storage);
  }
  /// Looks them up for all keys at once, as `pack` then reads them one after another.
  PLIMSOLL_HD void look_up_replicas() {
    static_assert(sizeof(replicas) <= sizeof(arrays_.keys[0]));
    index_t const n = p_.at.experts;
    auto const* const keys = arrays_.keys;
    replicas* const of_key = in_order();
    team_.for_each(n, [=, this](index_t i) {
      auto const e = static_cast<std::int32_t>(expert_at(i));
      bool const is_tied = i + 1 < n && weight_in(keys[i]) == weight_in(keys[i + 1]);
      of_key[i] = {is_tied ? -p_.copies[e] : p_.copies[e], e};
    });
  }

  PLIMSOLL_HD fixed_load place_lightest_first() {
    auto const n = static_cast<std::int32_t>(p_.at.experts);
    auto const* const keys = arrays_.keys;
    replicas const* const of_key = in_order();
    auto lightest = team_.queue(arrays_.carried, p_.at.ranks);
    std::uint64_t peak = 0;  // key of a rank that carries most
    auto const place = [&](std::int32_t e, std::uint64_t weight, std::int32_t copies) {
      for (; copies > 0; --copies) {
        peak = maximum{}(peak, lightest.top() + weight);
        lightest.update_top([=, map = p_.map, free = arrays_.free](std::uint64_t rank) {
          free_range* const of = free + static_cast<std::uint32_t>(id_of(rank));
          free_range const slots = *of;
          map[static_cast<std::uint32_t>(slots.next)] = e;
          of->next = slots.next + 1;
          return slots.next + 1 == slots.end ? no_key : rank + weight;
        });
      }
    };
    for (std::int32_t i = 0; i < n;) {
      replicas const of = of_key[i];
      std::uint64_t const weight = weight_in(keys[i]);
      std::int32_t const first = i++;
      if (of.copies > 0) {
        place(of.expert, weight, of.copies);
        continue;
      }
      while (of_key[i++].copies < 0) {
      }
      // Among experts of equal weight, all first copies precede all second copies, and so on.
      std::int32_t left = i - first;  // experts with copies to place
      for (std::int32_t round = 0; left > 0; ++round) {
        bool const is_last = left == 1;
        left = 0;
        for (std::int32_t k = first; k < i; ++k) {
          replicas const one = of_key[k];
          std::int32_t const rest = (one.copies < 0 ? -one.copies : one.copies) - round;
          place(one.expert, weight, is_last ? rest : minimum{}(rest, 1));
          left += !is_last && rest > 1 ? 1 : 0;
        }
      }
    }
    return light_load_of(peak);
  }

  /// Returns an expert that required anti-affinity leaves without a slot, or -1.
  PLIMSOLL_HD index_t place_by_cost() {
    bool const apart = p_.rule.apart != anti_affinity::none;
    bool const nodes = p_.rule.apart == anti_affinity::node;
    index_t const n = p_.at.experts;
    index_t const ranks = p_.at.ranks;
    auto* const on_rank = arrays_.on_rank;
    auto* const on_node = arrays_.on_node;
    auto* const missing = arrays_.missing;
    if (apart) {
      team_.for_each(ranks, [=](index_t r) { on_rank[r] = on_node[r] = -1; });
    }
    for (index_t i = 0; i < n; ++i) {
      index_t const e = expert_at(i);
      fixed_load const weight = heavy_load_of(arrays_.keys[i]);
      auto const round = static_cast<std::int32_t>(i);
      std::int32_t left = p_.copies[e];
      for (; left > 0; --left) {
        // Apart by nodes, else by ranks, else wherever there is room.
        bool own_node = nodes;
        bool own_rank = apart;
        extreme<double> best{highest<double>, -1};
        for (bool again = true; again; own_rank = own_node, own_node = false) {
          best = team_.argmin(ranks, [=, this](index_t r) {
            bool const taken = free_slots(r) == 0 || (own_rank && on_rank[r] == round) ||
                               (own_node && on_node[p_.where.node_of(r)] == round);
            return taken ? highest<double> : p_.cost(r, arrays_.carried[r] + weight);
          });
          again = best.key == highest<double> && own_rank && !p_.rule.required;
        }
        if (best.key == highest<double> && p_.rule.required) {
          break;
        }
        index_t const r = best.index;
        team_.single([=, this] {
          p_.map[arrays_.free[r].next++] = static_cast<std::int32_t>(e);
          arrays_.carried[r] += weight;
          if (apart) {
            on_rank[r] = round;
          }
          if (nodes) {
            on_node[p_.where.node_of(r)] = round;
          }
        });
      }
      if (p_.rule.required) {
        team_.single([=] { missing[i] = left; });
      }
    }
    return p_.rule.required ? place_missing() : -1;
  }

  PLIMSOLL_HD index_t place_missing() {
    index_t const n = p_.at.experts;
    auto const* const missing = arrays_.missing;
    if (!team_.any(n, [=](index_t i) { return missing[i] > 0; })) {
      return -1;
    }
    index_t const unplaced = team_.broadcast([=, this] {
      room_search const search{
          p_, arrays_.free, arrays_.expanded, arrays_.queue, arrays_.slot_in, arrays_.from};
      for (index_t i = 0; i < n; ++i) {
        for (std::int32_t left = missing[i]; left > 0; --left) {
          if (!search.insert(expert_at(i), experts_)) {
            return expert_at(i);
          }
        }
      }
      return index_t{-1};
    });
    team_.for_each(p_.at.ranks, [this](index_t r) {
      fixed_load sum = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t slot = p_.begin(r); slot < arrays_.free[r].next; ++slot) {
        sum += p_.weight(p_.map[slot]);
      }
      arrays_.carried[r] = sum;
    });
    return unplaced;
  }

  /// With one replica per rank there is nothing to balance: places first copies in the order of the
  /// cell's experts, then further copies in the order in which `replicate` adds them.
  PLIMSOLL_HD void place_in_order() {
    index_t const n = p_.at.experts;
    auto* const slot_at = reinterpret_cast<std::int32_t*>(arrays_.carried);
    auto* const position_of = slot_at + p_.at.ranks;
    auto* const made = reinterpret_cast<std::int32_t*>(arrays_.free);
    team_.exclusive_scan(
        p_.at.ranks, [this](index_t r) { return static_cast<std::int32_t>(free_slots(r)); },
        position_of);
    team_.for_each(p_.at.ranks, [=, this](index_t r) {
      if (free_slots(r) > 0) {
        slot_at[position_of[r]] = arrays_.free[r].next;
      }
    });
    team_.for_each(n, [=, this](index_t i) {
      index_t const e = p_.where.expert_of(p_.at, i);
      p_.map[slot_at[i]] = static_cast<std::int32_t>(e);
      arrays_.keys[i] = heavier_first(p_.load[e], i);
      made[i] = 1;
    });
    auto heaviest = team_.queue(arrays_.keys, n);
    for (index_t position = n; position < slots_;) {
      index_t const i = id_of(heaviest.top());
      index_t const e = p_.where.expert_of(p_.at, i);
      if (made[i] == p_.copies[e]) {
        heaviest.pop();
        continue;
      }
      std::int32_t const copies = made[i] + 1;
      team_.single([=, this] {
        p_.map[slot_at[position]] = static_cast<std::int32_t>(e);
        made[i] = copies;
      });
      heaviest.replace_top(
          heavier_first(divide_floor(p_.load[e], static_cast<std::uint32_t>(copies)), i));
      ++position;
    }
  }

  /// Returns a lower bound for every packing of these replicas. Requires sorted keys and free slots
  /// only.
  PLIMSOLL_HD double lower_bound(index_t copies, load_bound& least) {
    index_t const n = p_.at.experts;
    index_t const ranks = p_.at.ranks;
    if (n == 0) {
      return 0;
    }
    fixed_load const total =
        team_.sum(n, [this](index_t i) { return heavy_load_of(arrays_.keys[i]) * copies_of(i); });
    // Pigeonhole: two of the `open_ + 1` heaviest replicas share a rank.
    fixed_load heaviest = heavy_load_of(arrays_.keys[0]);
    PLIMSOLL_NO_UNROLL
    for (index_t i = 0, before = 0; i < n && before <= open_; ++i) {
      auto const after = before + static_cast<index_t>(copies_of(i));
      if (open_ < after) {
        fixed_load const weight = heavy_load_of(arrays_.keys[i]);
        heaviest = maximum{}(
            heaviest, weight + (before < open_ ? weight : heavy_load_of(arrays_.keys[i - 1])));
      }
      before = after;
    }
    if (copies == slots_) {
      // No slot stays free: the heaviest replica shares its rank with at least `fewest - 1` others,
      // and the rank with the most slots holds `most` replicas.
      index_t const most = team_.max(ranks, [this](index_t r) { return free_slots(r); });
      index_t const fewest = team_.min(
          ranks, [=, this](index_t r) { return free_slots(r) == 0 ? most : free_slots(r); });
      heaviest = maximum{}(heaviest, heavy_load_of(arrays_.keys[0]) + lightest(fewest - 1));
      heaviest = maximum{}(heaviest, lightest(most));
    }
    if (p_.where.speeds.data == nullptr) {
      auto const open = static_cast<fixed_load>(open_);
      heaviest = maximum{}(heaviest, (total + open - 1) / open);
      least = {heaviest, total};
      return static_cast<double>(heaviest);
    }
    least = {heaviest, total};
    auto const speed = [this](index_t r) {
      return free_slots(r) > 0 ? p_.where.speed(p_.at.first_rank + r) : 0.0;
    };
    double const fastest = team_.max(ranks, speed);
    double const together = team_.sum_ordered(ranks, speed);
    return maximum{}(divide(static_cast<double>(heaviest), fastest),
                     divide(static_cast<double>(total), together));
  }

  /// Number of slots of a rank that are still free.
  PLIMSOLL_HD index_t free_slots(index_t rank) const {
    return arrays_.free[rank].end - arrays_.free[rank].next;
  }
  /// The weight in a key of `heavier_first`, to be added to a key of `lighter_first`.
  PLIMSOLL_HD static std::uint64_t weight_in(std::uint64_t key) {
    return lighter_first(heavy_load_of(key), 0);
  }
  /// The expert of the i-th key.
  PLIMSOLL_HD index_t expert_at(index_t i) const {
    return p_.where.expert_of(p_.at, id_of(arrays_.keys[i]));
  }
  PLIMSOLL_HD fixed_load copies_of(index_t i) const {
    std::int32_t const copies = in_order()[i].copies;
    return static_cast<fixed_load>(copies < 0 ? -copies : copies);
  }
  /// Sum of the `count` lightest replicas.
  PLIMSOLL_HD fixed_load lightest(index_t count) const {
    fixed_load sum = 0;
    auto left = static_cast<fixed_load>(count);
    PLIMSOLL_NO_UNROLL
    for (index_t i = p_.at.experts; i-- > 0 && left > 0;) {
      fixed_load const copies = minimum{}(copies_of(i), left);
      sum += copies * heavy_load_of(arrays_.keys[i]);
      left -= copies;
    }
    return sum;
  }

  Team& team_;
  packing_problem const& p_;
  index_t experts_;
  packing_arrays arrays_;
  index_t open_ = 0;  ///< ranks with slots
  index_t slots_ = 0;
};

}}}  // namespace plimsoll::detail
