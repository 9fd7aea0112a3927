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
  detail::cell cell;
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
  PLIMSOLL_HD index_t begin(index_t rank) const { return slots.begin[cell.first_rank + rank]; }
  PLIMSOLL_HD index_t end(index_t rank) const { return slots.end[cell.first_rank + rank]; }
  PLIMSOLL_HD double cost(index_t rank, fixed_load carried) const {
    return where.cost(cell.first_rank + rank, carried);
  }
  /// Number of domains, which hold at most one replica of an expert: ranks, or nodes with
  /// anti-affinity by node, where a cell is always a whole layer.
  PLIMSOLL_HD index_t domains() const {
    return rule.apart == anti_affinity::node ? where.nodes : cell.ranks;
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
  std::uint64_t* replicas;  ///< `[slots]` weight and expert of each replica, as `lighter_first`
  fixed_load* carried;      ///< `[ranks]` load of each rank
  free_range* free;         ///< `[ranks]`
  std::byte* sort_storage;  ///< for `keys`

  // Without anti-affinity: the ranks by rising load, and memory to sort them. The key after the
  // last is `no_key`.
  std::uint64_t* order;      ///< `[ranks + 1]`
  std::uint64_t* reordered;  ///< `[ranks + 1]`

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
                                       index_t slots, anti_affinity_rule const& rule) {
    packing_arrays result{};
    memory.take(result.keys, experts);
    memory.take(result.replicas, slots);
    memory.take(result.carried, ranks);
    memory.take(result.free, ranks);
    memory.take(result.sort_storage, most_sort_bytes<std::uint64_t>(experts));
    if (rule.apart == anti_affinity::none) {
      memory.take(result.order, ranks + 1);
      memory.take(result.reordered, ranks + 1);
    } else {
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
        arrays_(packing_arrays::in(memory, experts, problem.where.ranks(), problem.map.extent(0),
                                   problem.rule)) {}

  /// Requires that the cell has at least as many slots as copies. `is_repeated`: the last packing
  /// in this memory was of the same cell, and `keeps_order`. If few weights have changed since, its
  /// order is nearly sorted.
  PLIMSOLL_HD packing_result pack(bool is_repeated = false) {
    index_t const n = p_.cell.experts;
    index_t const ranks = p_.cell.ranks;
    team_.for_each(n, [=, this](index_t k) {
      index_t const i = is_repeated ? id_of(arrays_.keys[k]) : k;
      arrays_.keys[k] = heavier_first(p_.weight(p_.where.expert_of(p_.cell, i)), i);
    });
    bool const plain = p_.where.speeds.data == nullptr && p_.rule.apart == anti_affinity::none;
    team_.for_each(ranks, [=, this](index_t r) {
      arrays_.free[r] = {static_cast<std::int32_t>(p_.begin(r)),
                         static_cast<std::int32_t>(p_.end(r))};
      arrays_.carried[r] = 0;
      if (plain) {
        // The largest key keeps a rank without slots from being chosen.
        arrays_.order[r] = lighter_first(free_slots(r) > 0 ? 0 : load_mask, r);
      }
    });
    // Sums of 32 bits take fewer instructions; a layer has fewer than 2^31 slots.
    open_ = team_.sum(ranks, [this](index_t r) { return free_slots(r) > 0 ? 1 : 0; });
    slots_ = team_.sum(ranks, [this](index_t r) { return free_slots(r); });
    packing_result result;
    auto const copies = [this](index_t i) { return p_.copies[p_.where.expert_of(p_.cell, i)]; };
    if (plain && open_ == slots_ && team_.sum(n, copies) == slots_) {
      result.placed = slots_;
      fixed_load const heaviest =
          team_.max(n, [this](index_t i) { return heavy_load_of(arrays_.keys[i]); });
      result.least.heaviest = n == 0 ? 0 : heaviest;
      result.peak = result.bound = static_cast<double>(result.least.heaviest);
      place_in_order();
      return result;
    }
    team_.sort(arrays_.keys, n, arrays_.sort_storage);
    result.keeps_order = true;
    std::int32_t const replicas = list_replicas();
    result.placed = replicas;
    double const bound = lower_bound(replicas, result.least);
    if (plain) {
      place_lightest_first(replicas);
    } else {
      result.unplaced = place_by_cost();
    }
    result.peak = team_.max(ranks, [this](index_t r) { return p_.cost(r, arrays_.carried[r]); });
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
  /// Lists the replicas in the order in which they are placed: by falling weight, and among experts
  /// of equal weight all first copies before all second copies, and so on. Requires sorted keys.
  /// Returns the number of replicas.
  PLIMSOLL_HD std::int32_t list_replicas() {
    index_t const n = p_.cell.experts;
    std::int32_t* const first = first_replica();
    std::int32_t const replicas = team_.exclusive_scan(
        n, [this](index_t i) { return p_.copies[expert_at(i)]; }, first);
    team_.store(first + n, replicas);
    auto const takes_turns = [=, this](index_t i) {
      return copies_at(i) > 1 && ((i > 0 && is_tied(i - 1)) || (i + 1 < n && is_tied(i)));
    };
    bool const any_turns = team_.any(n, [=, this](index_t i) {
      std::uint64_t const replica = replica_at(i);
      PLIMSOLL_NO_UNROLL
      for (std::int32_t k = first[i]; k < first[i + 1]; ++k) {
        arrays_.replicas[k] = replica;
      }
      return takes_turns(i);
    });
    for (index_t i = any_turns ? 0 : n; i < n;) {
      i = team_.find(i, n, takes_turns);
      if (i < n) {
        i = team_.broadcast([=, this] { return list_in_turns(i); });
      }
    }
    return replicas;
  }
  /// Lists the copies of the experts that have the weight of the i-th. Returns the position after
  /// these experts.
  PLIMSOLL_HD index_t list_in_turns(index_t i) const {
    index_t begin = i;
    while (begin > 0 && is_tied(begin - 1)) {
      --begin;
    }
    index_t end = i + 1;
    while (end < p_.cell.experts && is_tied(end - 1)) {
      ++end;
    }
    std::uint64_t* next = arrays_.replicas + first_replica()[begin];
    index_t left = end - begin;  // experts with copies to list
    for (std::int32_t round = 0; left > 0; ++round) {
      bool const is_last = left == 1;
      left = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t k = begin; k < end; ++k) {
        std::int32_t const rest = copies_at(k) - round;
        PLIMSOLL_NO_UNROLL
        for (std::int32_t more = is_last ? rest : minimum{}(rest, 1); more > 0; --more) {
          *next++ = replica_at(k);
        }
        left += !is_last && rest > 1 ? 1 : 0;
      }
    }
    return end;
  }

  PLIMSOLL_HD void place_lightest_first(std::int32_t replicas) {
    // One thread takes longer to sort the keys of more ranks than to keep them in a heap.
    constexpr index_t most = Team::is_serial ? 32 : rank_limit;
    std::int32_t next = p_.cell.ranks <= most ? place_together(replicas) : 0;
    if (next == replicas) {
      return;
    }
    auto lightest = team_.queue(arrays_.order, p_.cell.ranks);
    for (; next < replicas; ++next) {
      std::uint64_t const replica = arrays_.replicas[next];
      lightest.update_top([=, this](std::uint64_t rank) { return put(replica, rank, no_key); });
    }
  }
  /// Places replicas on many ranks at a time, as long as that pays. Returns the number of placed
  /// replicas. Afterwards `order` has the keys of the ranks in any order.
  ///
  /// Replicas go to the ranks in order of load, one to each, until a rank before the next one stays
  /// lighter than that with its new replica. None does if the lightest rank would not, even with
  /// the lightest of these replicas. Loads are soon alike, so that most ranks get one each time.
  PLIMSOLL_HD std::int32_t place_together(std::int32_t replicas) {
    constexpr std::int32_t least = 4;  // replicas at a time, for fewer instructions than a queue
    auto const ranks = static_cast<std::int32_t>(p_.cell.ranks);
    team_.store(arrays_.order + ranks, no_key);
    team_.store(arrays_.reordered + ranks, no_key);
    std::int32_t changed = open_ < ranks ? ranks : 0;
    std::int32_t placed = 0;
    for (std::int32_t times = 0; placed < replicas && placed >= least * times; ++times) {
      if (changed > 0) {
        reorder(changed);
      }
      auto* const order = arrays_.order;
      auto const* const next = arrays_.replicas + placed;
      changed = static_cast<std::int32_t>(
          team_.find(1, minimum{}(ranks, replicas - placed),
                     [=](index_t i) { return order[i] > order[0] + weight_in(next[i - 1]); }));
      team_.for_each(changed, [=, this](index_t i) {
        std::uint64_t const rank = order[i];
        order[i] = put(next[i], rank, rank | lighter_first(load_mask, 0));
      });
      placed += changed;
    }
    return placed;
  }
  /// Orders the ranks, of which only the first `changed` have new keys.
  PLIMSOLL_HD void reorder(std::int32_t changed) {
    struct alignas(16) key_pair {
      std::uint64_t first;
      std::uint64_t second;
    };
    auto const* const keys = arrays_.order;
    auto* const ordered = arrays_.reordered;
    std::int32_t const pairs = (changed + 1) / 2;
    std::int32_t const others = 2 * pairs;  // keys from here on keep their order
    auto const end = static_cast<std::int32_t>(p_.cell.ranks);
    team_.for_each(end, [=](index_t i) {
      std::uint64_t const key = keys[i];
      std::int32_t lower[2] = {};  // two counts, which do not wait for one another
      PLIMSOLL_UNROLL(4)
      for (std::int32_t k = 0; k < pairs; ++k) {
        key_pair const two = reinterpret_cast<key_pair const*>(keys)[k];
        lower[0] += two.first < key ? 1 : 0;
        lower[1] += two.second < key ? 1 : 0;
      }
      std::int32_t first = others;  // the first of the other keys that is not lower
      if (i < others) {
        for (std::int32_t last = end; first < last;) {
          std::int32_t const middle = first + (last - first) / 2;
          bool const is_lower = keys[middle] < key;
          first = is_lower ? middle + 1 : first;
          last = is_lower ? last : middle;
        }
      } else {
        first = static_cast<std::int32_t>(i);
      }
      ordered[lower[0] + lower[1] + first - others] = key;
    });
    arrays_.reordered = arrays_.order;
    arrays_.order = ordered;
  }
  /// Places a replica on the rank with this key. Returns its next key: `full` without free slots.
  PLIMSOLL_HD std::uint64_t put(std::uint64_t replica, std::uint64_t rank,
                                std::uint64_t full) const {
    auto const r = static_cast<std::uint32_t>(id_of(rank));
    free_range const slots = arrays_.free[r];
    std::uint64_t const key = rank + weight_in(replica);
    p_.map[slots.next] = static_cast<std::int32_t>(id_of(replica));
    arrays_.free[r].next = slots.next + 1;
    arrays_.carried[r] = light_load_of(key);
    return slots.next + 1 == slots.end ? full : key;
  }

  /// Returns an expert that required anti-affinity leaves without a slot, or -1.
  PLIMSOLL_HD index_t place_by_cost() {
    bool const apart = p_.rule.apart != anti_affinity::none;
    bool const nodes = p_.rule.apart == anti_affinity::node;
    index_t const n = p_.cell.experts;
    index_t const ranks = p_.cell.ranks;
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
    index_t const n = p_.cell.experts;
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
    team_.for_each(p_.cell.ranks, [this](index_t r) {
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
    index_t const n = p_.cell.experts;
    auto* const slot_at = reinterpret_cast<std::int32_t*>(arrays_.carried);
    auto* const position_of = slot_at + p_.cell.ranks;
    auto* const made = reinterpret_cast<std::int32_t*>(arrays_.free);
    team_.exclusive_scan(
        p_.cell.ranks, [this](index_t r) { return static_cast<std::int32_t>(free_slots(r)); },
        position_of);
    team_.for_each(p_.cell.ranks, [=, this](index_t r) {
      if (free_slots(r) > 0) {
        slot_at[position_of[r]] = arrays_.free[r].next;
      }
    });
    team_.for_each(n, [=, this](index_t i) {
      index_t const e = p_.where.expert_of(p_.cell, i);
      p_.map[slot_at[i]] = static_cast<std::int32_t>(e);
      arrays_.keys[i] = heavier_first(p_.load[e], i);
      made[i] = 1;
    });
    auto heaviest = team_.queue(arrays_.keys, n);
    for (index_t position = n; position < slots_;) {
      index_t const i = id_of(heaviest.top());
      index_t const e = p_.where.expert_of(p_.cell, i);
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

  /// Returns a lower bound for every packing of these replicas, which are listed. Requires free
  /// slots only.
  PLIMSOLL_HD double lower_bound(index_t copies, load_bound& least) {
    index_t const ranks = p_.cell.ranks;
    if (copies == 0) {
      return 0;
    }
    fixed_load const total = team_.sum(copies, [this](index_t i) { return weight_at(i); });
    fixed_load heaviest = weight_at(0);
    if (copies > open_) {  // two of the `open_ + 1` heaviest replicas share a rank
      heaviest = maximum{}(heaviest, weight_at(open_ - 1) + weight_at(open_));
    }
    if (copies == slots_) {
      // No slot stays free: the heaviest replica shares its rank with at least `fewest - 1` others,
      // and the rank with the most slots holds `most` replicas.
      std::int32_t const most = team_.max(ranks, [this](index_t r) { return free_slots(r); });
      std::int32_t const fewest = team_.min(
          ranks, [=, this](index_t r) { return free_slots(r) == 0 ? most : free_slots(r); });
      auto const lightest = [=, this](index_t count) {
        return team_.sum(count, [=, this](index_t i) { return weight_at(copies - 1 - i); });
      };
      heaviest = maximum{}(heaviest, weight_at(0) + lightest(fewest - 1));
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
      return free_slots(r) > 0 ? p_.where.speed(p_.cell.first_rank + r) : 0.0;
    };
    double const fastest = team_.max(ranks, speed);
    double const together = team_.sum_ordered(ranks, speed);
    return maximum{}(divide(static_cast<double>(heaviest), fastest),
                     divide(static_cast<double>(total), together));
  }

  /// Number of slots of a rank that are still free.
  PLIMSOLL_HD std::int32_t free_slots(index_t rank) const {
    return arrays_.free[rank].end - arrays_.free[rank].next;
  }
  /// The expert of the i-th key.
  PLIMSOLL_HD index_t expert_at(index_t i) const {
    return p_.where.expert_of(p_.cell, id_of(arrays_.keys[i]));
  }
  /// The first replica of each key's expert and, after these, the number of replicas.
  [[nodiscard]] PLIMSOLL_HD std::int32_t* first_replica() const {
    return reinterpret_cast<std::int32_t*>(arrays_.sort_storage);
  }
  PLIMSOLL_HD std::int32_t copies_at(index_t i) const {
    return first_replica()[i + 1] - first_replica()[i];
  }
  /// The i-th expert as one of `replicas`.
  PLIMSOLL_HD std::uint64_t replica_at(index_t i) const {
    return lighter_first(heavy_load_of(arrays_.keys[i]), expert_at(i));
  }
  /// True if the experts of the i-th and the next key have the same weight.
  PLIMSOLL_HD bool is_tied(index_t i) const {
    return heavy_load_of(arrays_.keys[i]) == heavy_load_of(arrays_.keys[i + 1]);
  }
  /// The weight of the i-th replica.
  PLIMSOLL_HD fixed_load weight_at(index_t i) const { return light_load_of(arrays_.replicas[i]); }
  /// The weight in a key of `lighter_first`, to be added to another.
  PLIMSOLL_HD static std::uint64_t weight_in(std::uint64_t key) {
    return lighter_first(light_load_of(key), 0);
  }

  Team& team_;
  packing_problem const& p_;
  index_t experts_;
  packing_arrays arrays_;
  index_t open_ = 0;  ///< ranks with slots
  index_t slots_ = 0;
};

}}}  // namespace plimsoll::detail
