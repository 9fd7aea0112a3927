// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `place_by_flow` and `certify`.
///
/// Loads become profiles: integer loads of at most 16 blocks of steps, in units in which the sum of
/// a block is at most 2^29. All sums are exact; a score is one correctly rounded quotient plus
/// correctly rounded penalties.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replication.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/numbered_slots.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Most blocks of steps that a profile has.
inline constexpr index_t profile_blocks = 16;

/// The working memory of `flow_placement_body`.
struct flow_arrays {
  scratch_ref memory;
  index_t experts;
  index_t ranks;
  bool is_uneven;
  bool has_graph;
  bool is_raised;

  std::int32_t* profile = memory.take(experts * profile_blocks);  ///< `[experts, profile_blocks]`
  std::int64_t* weight = memory.take(experts);                    ///< sum of the profile
  std::int32_t* copies = memory.take(experts);
  std::uint64_t* keys = memory.take(experts);
  std::byte* sorting = memory.take(sort_bytes<block<128>, std::uint64_t>(experts));  ///< of `keys`
  /// Of `sharing_limit`.
  std::int32_t* slack = memory.take_if(is_uneven, experts + 1);
  std::int32_t* load = memory.take(ranks * profile_blocks);  ///< `[ranks, profile_blocks]`
  double* score = memory.take(ranks);                        ///< of the expert that is being placed
  std::int32_t* taken = memory.take(ranks);                  ///< slots in use
  std::int32_t* movable = memory.take(ranks);                ///< copies of experts with several
  std::int32_t* component = memory.take(ranks);  ///< lowest rank that partners connect it with
  std::int32_t* partners = memory.take(ranks);   ///< number of partners
  std::int32_t* holders = memory.take(ranks);    ///< ranks that hold the expert
  std::int32_t* linked = memory.take(ranks);     ///< holders that are partners; -1: one itself
  std::int32_t* alongside = memory.take(ranks);  ///< holders on the rank's node
  /// `[ranks, words]`: one bit per partner.
  std::uint32_t* graph = memory.take_if(has_graph, words(ranks) * ranks);
  /// Loads of a step to the power of the exponent.
  double* raised = memory.take_if(is_raised, experts);
  PLIMSOLL_HD static index_t words(index_t ranks) { return (ranks + 31) / 32; }
};

/// The ranks that hold each expert in the plan in use.
struct kept_ranks {
  slot_lists lists;       ///< slots of every expert in the plan in use
  std::int32_t* rank_of;  ///< `[slots]` rank of each usable slot, else -1
  std::int32_t* rank;     ///< `[slots]` rank of each element of `lists.slot`, -1: dead or repeated
  std::int32_t* copies;   ///< `[experts]` live ranks that hold the expert
  std::uint64_t* keys;    ///< of `lists.fill`
  std::byte* sorting;     ///< of `keys`

  PLIMSOLL_HD static kept_ranks in(scratch& memory, index_t experts, index_t slots) {
    kept_ranks result{};
    result.lists = slot_lists::in(memory, experts, slots);
    memory.take(result.rank_of, slots);
    memory.take(result.rank, slots);
    memory.take(result.copies, experts);
    memory.take(result.keys, slots);
    memory.take(result.sorting, sort_bytes<block<128>, std::uint64_t>(slots));
    return result;
  }

  /// Fills the lists from the map of the plan in use, whose ids have been checked.
  template <class Team>
  PLIMSOLL_HD void fill(Team& team, topology const& where, index_t layer,
                        vector_ref<std::int32_t const> const& map) const {
    kept_ranks const a = *this;
    topology const layout = where;
    team.for_each(lists.slots, [=](index_t slot) { a.rank_of[slot] = -1; });
    team.for_each(layout.ranks(), [=](index_t r) {
      for (index_t slot = layout.begin(layer, r); slot < layout.end(layer, r); ++slot) {
        a.rank_of[slot] = static_cast<std::int32_t>(r);
      }
    });
    lists.fill(team, map, keys, sorting);
    team.for_each(lists.experts, [=](index_t e) {
      std::int32_t previous = -1;
      std::int32_t count = 0;
      for (std::int32_t i = a.lists.first[e]; i < a.lists.first[e + 1]; ++i) {
        std::int32_t const r = a.rank_of[a.lists.slot[i]];
        a.rank[i] = r == previous ? -1 : r;  // slots rise, and so do ranks
        count += r >= 0 && r != previous ? 1 : 0;
        previous = r;
      }
      a.copies[e] = count;
    });
  }
};

/// Bonuses of the plans that are made of every layer.
struct bonus_list {
  static constexpr index_t limit = 8;

  index_t count = 1;
  double bonus[limit] = {};  ///< in loads of an average rank; 0: the plan in use is only checked
};

/// The report of a plan, or its fault.
struct flow_outcome {
  flow_placement_report report = {};
  fault refused = {};
};

/// Body of `place_by_flow`. Problem = bonus * layers + layer.
template <class Loads>
struct flow_placement_body {
  using device_team = block<128>;

  Loads loads;  ///< `[steps, layers, experts]`
  topology where;
  split_rule split;
  index_t max_partners;
  matrix_ref<std::int32_t const> in_use;  ///< `[layers, slots]`: the plan in use; may be empty
  bonus_list keep_bonuses;
  double load_exponent;
  matrix_ref<std::int32_t> physical_to_logical;  ///< `[bonuses, layers, slots]`, flat
  matrix_ref<std::int32_t> replica_count;        ///< `[bonuses, layers, experts]`, likewise
  flow_outcome* outcomes;                        ///< `[bonuses, layers]`
  double keep_bonus = 0;                         ///< of the plan that is being made

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    bool has_bonus = false;
    for (index_t i = 0; i < keep_bonuses.count; ++i) {
      has_bonus = has_bonus || keep_bonuses.bonus[i] > 0;
    }
    return bytes_taken_by<flow_arrays>(experts(), where.ranks(), may_be_uneven(), has_graph(),
                                       is_raised()) +
           (in_use.data != nullptr && has_bonus
                ? bytes_taken_by<kept_ranks>(experts(), where.ranges.slots)
                : 0);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layers = loads.extent(1);
    index_t const first = problem / layers * layers;
    flow_placement_body planner = *this;
    planner.keep_bonus = keep_bonuses.bonus[problem / layers];
    planner.physical_to_logical = rows_from(physical_to_logical, first);
    planner.replica_count = rows_from(replica_count, first);
    planner.outcomes = outcomes + first;
    planner.plan(team, memory, problem - first);
  }

 private:
  template <class Team>
  PLIMSOLL_HD void plan(Team& team, scratch memory, index_t layer) const {
    flow_arrays const a{memory,          experts(),   where.ranks(),
                        may_be_uneven(), has_graph(), is_raised()};
    flow_outcome outcome{{}, where.refuse(team, layer, experts(), a.copies).refused};
    index_t const slots = outcome.refused ? 0 : team.sum(where.ranks(), [this, layer](index_t r) {
      return where.slots_of(layer, r);
    });
    if (!outcome.refused && slots < experts()) {
      outcome.refused = fault_of(fault_kind::floors, -1, experts(), slots);
    }
    if (!outcome.refused && in_use.data != nullptr) {
      outcome.refused = refuse_in_use(team, layer);
    }
    history seen;
    if (!outcome.refused) {
      outcome.refused = make_profiles(team, layer, a, seen);
    }
    if (!outcome.refused) {
      outcome.report.idle_steps = seen.idle;
      if (is_sticky()) {
        seen.kept = kept_ranks::in(memory, experts(), where.ranges.slots);
        seen.kept.fill(team, where, layer, row_of(in_use, layer));
      }
      if (seen.idle == loads.extent(0) && !is_sticky() &&
          may_number_slots(team, where, layer, experts(), anti_affinity::rank)) {
        number_slots(team, experts(), slots, row_of(physical_to_logical, layer));
        team.for_each(experts(), [this, layer, slots](index_t e) {
          replica_count(layer, e) = numbered_copies(slots, experts(), e);
        });
      } else {
        seen.fastest = team.max(where.ranks(), [this, layer](index_t r) {
          return where.slots_of(layer, r) > 0 ? where.speed(r) : 0.0;
        });
        count_copies(team, layer, a, seen, slots);
        index_t made = place_copies(team, layer, a, seen);
        if (made < slots && max_partners >= where.ranks() - 1) {
          made += fill_slots(team, layer, a);
        }
        outcome.report.empty_slots = slots - made;
      }
    }
    team.single([=, this] { outcomes[layer] = outcome; });
  }

  /// Properties of a layer's history and ranks.
  struct history {
    index_t idle = 0;    ///< steps without load
    index_t blocks = 0;  ///< of the steps with load
    double fastest = 1;  ///< speed of a rank that has slots
    kept_ranks kept{};   ///< of the plan in use, with `keep_bonus`
  };
  /// The candidate ranks of the copies of one expert.
  struct candidates {
    index_t expert;
    index_t copies;
    index_t quota;  ///< of movable copies on each rank
    index_t holders = 0;
    index_t component = -1;  ///< that of the holders
  };
  static constexpr double penalty = 0.3;        ///< of a rank without a new way out
  static constexpr double node_penalty = 0.03;  ///< of a partner on another node

  PLIMSOLL_HD index_t experts() const { return loads.extent(2); }
  PLIMSOLL_HD bool may_be_uneven() const {
    return where.ranges.offsets.data != nullptr || where.active.data != nullptr;
  }
  PLIMSOLL_HD bool is_connecting() const { return split == split_rule::optimal; }
  PLIMSOLL_HD bool has_graph() const { return is_connecting() || max_partners < where.ranks() - 1; }
  PLIMSOLL_HD bool is_raised() const { return load_exponent != 1.0; }
  PLIMSOLL_HD bool is_sticky() const { return in_use.data != nullptr && keep_bonus > 0; }

  /// Refuses ids of the plan in use that are no expert's, and filled slots of no rank.
  template <class Team>
  PLIMSOLL_HD fault refuse_in_use(Team& team, index_t layer) const {
    index_t const slots = where.ranges.slots;
    index_t const last = where.ranges.end(layer, where.ranks() - 1);
    index_t const bad = team.min(slots, [=, this](index_t slot) {
      std::int32_t const e = in_use(layer, slot);
      return e >= -1 && e < (slot < last ? experts() : 0) ? slots : slot;
    });
    return bad == slots  ? fault{}
           : bad >= last ? fault_of(fault_kind::stray_slot, bad, in_use(layer, bad))
                         : fault_of(fault_kind::expert_id, bad, in_use(layer, bad));
  }

  /// Load of an average rank in a block.
  PLIMSOLL_HD int unit_bits() const {
    return minimum{}(20, 29 - bit_width(static_cast<std::uint64_t>(where.ranks())));
  }
  PLIMSOLL_HD double unit() const { return static_cast<double>(std::int64_t{1} << unit_bits()); }

  /// Calls use(shift, total) if the step has load; returns its fault.
  template <class Team, class Load, class Use>
  PLIMSOLL_HD fault use_step(Team& team, Load load, index_t step, Use use) const {
    load_scale const scale = scale_loads(team, experts(), load);
    if (scale.refused) {
      fault refused = scale.refused;
      refused.also = step;
      return refused;
    }
    auto const total = team.sum(experts(), [=, shift = scale.shift](index_t e) {
      return static_cast<std::int64_t>(to_fixed(load(e), shift));
    });
    if (total > 0) {
      use(scale.shift, total);
    }
    return fault{};
  }

  /// Averages the steps with load in blocks, each step scaled to the same total.
  template <class Team>
  PLIMSOLL_HD fault make_profiles(Team& team, index_t layer, flow_arrays const& a,
                                  history& seen) const {
    index_t busy = 0;
    index_t const steps = loads.extent(0);
    auto* const profile = a.profile;
    auto const load_in = [this, layer](index_t step) {
      return [this, step, layer](index_t e) { return loads(step, layer, e); };
    };
    fault refused;
    for (index_t step = 0; step < steps && !refused; ++step) {
      refused = use_step(team, load_in(step), step, [&busy](int, std::int64_t) { ++busy; });
    }
    if (refused) {
      return refused;
    }
    seen.idle = steps - busy;
    seen.blocks = minimum{}(busy, profile_blocks);
    team.for_each(experts() * profile_blocks, [profile](index_t i) { profile[i] = 0; });
    double const sum = multiply(unit(), static_cast<double>(where.ranks()));
    if (busy == 0) {  // one block in which all experts are alike
      seen.blocks = 1;
      auto const part = static_cast<std::int32_t>(divide(sum, static_cast<double>(experts())));
      team.for_each(experts(), [=, weight = a.weight](index_t e) {
        profile[e * profile_blocks] = part;
        weight[e] = part;
      });
      return refused;
    }
    index_t const blocks = seen.blocks;
    index_t number = 0;  // of the step among those with load
    auto const add_to_block = [&](auto load, int shift, std::int64_t total) {
      index_t const block = (number * blocks) / busy;
      index_t const first = (block * busy + blocks - 1) / blocks;
      index_t const size = ((block + 1) * busy + blocks - 1) / blocks - first;
      double const scale =
          divide(divide(sum, static_cast<double>(total)), static_cast<double>(size));
      team.for_each(experts(), [=](index_t e) {
        double const part = multiply(static_cast<double>(to_fixed(load(e), shift)), scale);
        profile[e * profile_blocks + block] += static_cast<std::int32_t>(part);
      });
      ++number;
    };
    for (index_t step = 0; step < steps; ++step) {
      auto const load = load_in(step);
      if (!is_raised()) {
        use_step(team, load, step,
                 [&](int shift, std::int64_t total) { add_to_block(load, shift, total); });
        continue;
      }
      team.for_each(experts(), [=, raised = a.raised, by = load_exponent](index_t e) {
        raised[e] = power(static_cast<double>(load(e)), by);
      });
      auto const raised = [raised = a.raised](index_t e) { return raised[e]; };
      use_step(team, raised, step,
               [&](int shift, std::int64_t total) { add_to_block(raised, shift, total); });
    }
    team.for_each(experts(), [=, weight = a.weight](index_t e) {
      std::int64_t all = 0;
      for (index_t b = 0; b < blocks; ++b) {
        all += profile[e * profile_blocks + b];
      }
      weight[e] = all;
    });
    return refused;
  }

  /// Gives copies to experts: first to those whose share exceeds half the load of an average rank,
  /// the largest share first; then a second copy to as many as possible, the heaviest first.
  template <class Team>
  PLIMSOLL_HD void count_copies(Team& team, index_t layer, flow_arrays const& a,
                                history const& seen, index_t slots) const {
    auto* const copies = a.copies;
    auto const* const weight = a.weight;
    cell const all = where.cell_at(layer, 0, experts());
    index_t const hosts = team.count(
        where.ranks(), [this, layer](index_t r) { return where.slots_of(layer, r) > 0; });
    bool const by_slots = is_uneven(team, layer);
    sharing_limit apart{a.slack, copies};
    team.for_each(experts(), [copies](index_t e) { copies[e] = 1; });
    if (by_slots) {
      apart.start(team, where, all, {anti_affinity::rank, true});
    }
    std::int64_t const hot = seen.blocks << (unit_bits() - 1);
    // Raises the weight of an expert that would lose a copy of the plan in use.
    auto const* const kept = is_sticky() ? seen.kept.copies : nullptr;
    auto const more = static_cast<std::uint64_t>(
        4 * (1 + minimum{}(4.0, maximum{}(1.0, keep_bonus))));  // in quarters
    auto const key_of = [=](index_t e, std::int32_t count) {
      std::uint64_t share = divide_floor(static_cast<std::uint64_t>(weight[e]) << 6,
                                         static_cast<std::uint32_t>(count));
      if (kept != nullptr && count < kept[e]) {
        share = share * more / 4;
      }
      bool const is_hot = share > static_cast<std::uint64_t>(hot) << 6;
      // Another copy of a movable load is worth a tenth of a first one.
      return heavier_first(is_hot       ? (std::uint64_t{1} << 44) + share
                           : count == 1 ? 10 * share
                                        : share,
                           e);
    };
    team.for_each(experts(), [=, keys = a.keys](index_t e) { keys[e] = key_of(e, 1); });
    auto queue = team.queue(a.keys, experts());
    for (index_t spare = slots - experts(); spare > 0 && !queue.empty();) {
      index_t const e = id_of(queue.top());
      std::int32_t const now = copies[e];
      bool const may_grow =
          now < hosts && now < rank_limit && (!by_slots || apart.grant(team, where, all, e));
      if (!may_grow) {
        queue.pop();
        continue;
      }
      team.single([=] { copies[e] = now + 1; });
      queue.replace_top(key_of(e, now + 1));
      --spare;
    }
  }

  /// Returns whether the slots of ranks that have any differ by more than one. Else any counts up
  /// to the number of these ranks can be placed with each copy on a rank of its own.
  template <class Team>
  PLIMSOLL_HD bool is_uneven(Team& team, index_t layer) const {
    auto const slots = [this, layer](index_t r) { return where.slots_of(layer, r); };
    index_t const most = team.max(where.ranks(), slots);
    return team.any(where.ranks(), [=](index_t r) { return slots(r) > 0 && slots(r) < most - 1; });
  }

  /// Places all copies, those of the largest share first; returns their number.
  template <class Team>
  PLIMSOLL_HD index_t place_copies(Team& team, index_t layer, flow_arrays const& a,
                                   history const& seen) const {
    index_t const ranks = where.ranks();
    auto const* const weight = a.weight;
    auto const* const copies = a.copies;
    auto const map = row_of(physical_to_logical, layer);
    team.for_each(ranks * profile_blocks, [load = a.load](index_t i) { load[i] = 0; });
    team.for_each(ranks, [=](index_t r) {
      a.taken[r] = 0;
      a.movable[r] = 0;
      a.partners[r] = 0;
      a.component[r] = static_cast<std::int32_t>(r);
    });
    if (has_graph()) {
      team.for_each(ranks * flow_arrays::words(ranks), [=](index_t i) { a.graph[i] = 0; });
    }
    team.for_each(where.ranges.slots, [map](index_t slot) { map[slot] = -1; });
    team.for_each(experts(), [=](index_t e) {
      a.keys[e] = heavier_first(divide_floor(static_cast<std::uint64_t>(weight[e]) << 6,
                                             static_cast<std::uint32_t>(copies[e])),
                                e);
    });
    team.sort(a.keys, experts(), a.sorting);
    index_t const hosts =
        team.count(ranks, [this, layer](index_t r) { return where.slots_of(layer, r) > 0; });
    index_t const movable =
        team.sum(experts(), [=](index_t e) { return index_t{copies[e] > 1 ? copies[e] : 0}; });
    index_t made = 0;
    for (index_t i = 0; i < experts(); ++i) {
      index_t const e = id_of(a.keys[i]);
      made +=
          place_expert(team, layer, a, seen,
                       {.expert = e, .copies = copies[e], .quota = (movable + hosts - 1) / hosts});
    }
    return made;
  }

  /// Fills the slots that are left, each with the expert of the largest load per copy that the rank
  /// does not hold; returns their number.
  template <class Team>
  PLIMSOLL_HD index_t fill_slots(Team& team, index_t layer, flow_arrays const& a) const {
    auto const map = row_of(physical_to_logical, layer);
    auto const counts = row_of(replica_count, layer);
    index_t filled = 0;
    for (index_t r = 0; r < where.ranks(); ++r) {
      index_t const first = where.begin(layer, r);
      for (index_t slot = first + a.taken[r]; slot < where.end(layer, r); ++slot) {
        auto const best = team.argmin(experts(), [=](index_t e) {
          bool held = counts[e] >= rank_limit;
          for (index_t s = first; s < slot && !held; ++s) {
            held = map[s] == e;
          }
          return held ? never
                      : -divide(static_cast<double>(a.weight[e]), static_cast<double>(counts[e]));
        });
        if (best.key >= never) {
          break;
        }
        team.single([=] {
          map[slot] = static_cast<std::int32_t>(best.index);
          ++counts[best.index];
        });
        ++filled;
      }
    }
    return filled;
  }

  /// Places the copies of one expert; returns their number, less than wanted if no rank may take
  /// another.
  template <class Team>
  PLIMSOLL_HD index_t place_expert(Team& team, index_t layer, flow_arrays const& a,
                                   history const& seen, candidates current) const {
    auto const map = row_of(physical_to_logical, layer);
    score_ranks(team, layer, a, seen, current);
    if (is_sticky()) {
      favor_kept_ranks(team, a, seen.kept, current.expert);
    }
    while (current.holders < current.copies) {
      index_t rank = choose_rank(team, a, current);
      if (rank < 0) {
        rank = make_room(team, layer, a, current);
      }
      if (rank < 0) {
        break;
      }
      index_t const slot = where.begin(layer, rank) + a.taken[rank];
      std::int32_t const e = static_cast<std::int32_t>(current.expert);
      team.single([=] {
        map[slot] = e;
        ++a.taken[rank];
        a.movable[rank] += current.copies > 1 ? 1 : 0;
      });
      if (current.copies > 1) {
        join(team, a, current, rank);
      }
      team.single([=] {
        a.holders[current.holders] = static_cast<std::int32_t>(rank);
        a.score[rank] = never;
      });
      ++current.holders;
    }
    index_t const held = current.holders;
    auto const* const profile = a.profile + current.expert * profile_blocks;
    team.for_each(held * profile_blocks, [=](index_t i) {
      std::int32_t const whole = profile[i % profile_blocks];
      a.load[a.holders[i / profile_blocks] * profile_blocks + i % profile_blocks] +=
          held == 1 ? whole : whole / static_cast<std::int32_t>(held);
    });
    team.single(
        [=, this] { replica_count(layer, current.expert) = static_cast<std::int32_t>(held); });
    return held;
  }

  /// Computes the load of every rank, with a copy of the expert, averaged over the blocks with the
  /// weight of the expert in each; in units of an average rank, over the rank's speed
  /// as a fraction of the fastest. A rank without a free slot gets `never`.
  template <class Team>
  PLIMSOLL_HD void score_ranks(Team& team, index_t layer, flow_arrays const& a, history const& seen,
                               candidates const& current) const {
    auto const* const profile = a.profile + current.expert * profile_blocks;
    bool const is_idle = a.weight[current.expert] == 0;
    bool const is_single = current.copies == 1;
    // Without a sign, since not every x86-64 processor multiplies several signed numbers at once.
    struct {
      std::uint32_t of_block[profile_blocks];
    } factor;
    std::int64_t own = 0;
    for (index_t b = 0; b < profile_blocks; ++b) {
      std::int32_t const whole = profile[b];
      own += std::int64_t{whole} *
             (is_single ? whole : whole / static_cast<std::int32_t>(current.copies));
      factor.of_block[b] = is_idle ? 1 : static_cast<std::uint32_t>(whole);
    }
    // Loops of a constant length, which compilers unroll; further blocks have no load.
    constexpr index_t few = 4;
    index_t const blocks = seen.blocks;
    auto const weighted = [=](std::int32_t const* load, index_t first, index_t end) {
      std::uint64_t sum = 0;
      for (index_t b = first; b < end; ++b) {
        sum += std::uint64_t{factor.of_block[b]} * static_cast<std::uint32_t>(load[b]);
      }
      return static_cast<std::int64_t>(sum);
    };
    double const fastest = seen.fastest;
    double const scale = is_idle
                             ? multiply(unit(), static_cast<double>(maximum{}(blocks, index_t{1})))
                             : multiply(unit(), static_cast<double>(a.weight[current.expert]));
    team.for_each(where.ranks(), [=, this](index_t r) {
      auto const* const load = a.load + r * profile_blocks;
      std::int64_t together = own + weighted(load, 0, few);
      together += blocks <= few ? 0 : weighted(load, few, 2 * few);
      together += blocks <= 2 * few ? 0 : weighted(load, 2 * few, profile_blocks);
      double const score = divide(static_cast<double>(together), scale);
      a.score[r] = a.taken[r] >= where.slots_of(layer, r) ? never
                   : where.speeds.data == nullptr         ? score
                                                  : divide(score, divide(where.speed(r), fastest));
      if (!is_single) {
        a.linked[r] = 0;
        a.alongside[r] = 0;
      }
    });
  }

  /// Lowers the score of the ranks that hold the expert in the plan in use.
  template <class Team>
  PLIMSOLL_HD void favor_kept_ranks(Team& team, flow_arrays const& a, kept_ranks const& kept,
                                    index_t expert) const {
    index_t const first = kept.lists.first[expert];
    team.for_each(kept.lists.first[expert + 1] - first, [=, this, rank = kept.rank](index_t i) {
      if (std::int32_t const r = rank[first + i]; r >= 0) {
        a.score[r] = add(a.score[r], -keep_bonus);
      }
    });
  }

  /// Returns the rank with the lowest score and penalties that may take a copy, or -1.
  template <class Team>
  PLIMSOLL_HD index_t choose_rank(Team& team, flow_arrays const& a,
                                  candidates const& current) const {
    auto const best = team.argmin(where.ranks(), [=, this](index_t r) {
      return current.copies == 1 || a.score[r] >= never ? a.score[r]
             : may_join(a, current, r)                  ? penalized(a, current, r)
                                                        : never;
    });
    return best.key < never ? best.index : -1;
  }
  static constexpr double never = 0x1p1000;

  PLIMSOLL_HD double penalized(flow_arrays const& a, candidates const& current, index_t r) const {
    double result = a.score[r];
    if (is_connecting()) {
      index_t faults = a.movable[r] >= current.quota ? 1 : 0;
      faults += a.linked[r];
      faults += a.component[r] == current.component ? current.holders : 0;
      result = add(result, multiply(penalty, static_cast<double>(faults)));
    }
    if (where.nodes > 1) {
      result = add(result,
                   multiply(node_penalty, static_cast<double>(current.holders - a.alongside[r])));
    }
    return result;
  }

  /// Returns whether the bound on partners allows a rank to join the holders.
  PLIMSOLL_HD bool may_join(flow_arrays const& a, candidates const& current, index_t r) const {
    if (current.holders == 0 || max_partners >= where.ranks() - 1) {
      return true;
    }
    bool result = a.partners[r] + current.holders - a.linked[r] <= max_partners;
    for (index_t i = 0; i < current.holders && result; ++i) {
      index_t const p = a.holders[i];
      result = a.partners[p] < max_partners || are_partners(a, p, r);
    }
    return result;
  }
  PLIMSOLL_HD bool are_partners(flow_arrays const& a, index_t p, index_t r) const {
    return (a.graph[p * flow_arrays::words(where.ranks()) + r / 32] >> (r % 32) & 1) != 0;
  }

  /// Makes a rank a partner of all holders, and one component of theirs and its own.
  template <class Team>
  PLIMSOLL_HD void join(Team& team, flow_arrays const& a, candidates& current, index_t rank) const {
    index_t const ranks = where.ranks();
    index_t const words = flow_arrays::words(ranks);
    index_t const mine = a.component[rank];
    index_t const theirs = current.component < 0 ? mine : current.component;
    index_t const joined = minimum{}(mine, theirs);
    index_t const node = where.node_of(rank);
    bool const remembers = has_graph();
    // The links to the new holder, before it becomes a partner of the others.
    team.for_each(ranks, [=, this](index_t r) {
      if (remembers && a.linked[r] >= 0) {
        a.linked[r] += are_partners(a, rank, r) ? 1 : 0;
      }
      a.alongside[r] += where.node_of(r) == node ? 1 : 0;
      if (a.component[r] == mine || a.component[r] == theirs) {
        a.component[r] = static_cast<std::int32_t>(joined);
      }
    });
    team.single([=, this] {
      a.linked[rank] = -1;
      for (index_t i = 0; remembers && i < current.holders; ++i) {
        index_t const p = a.holders[i];
        if (!are_partners(a, p, rank)) {
          a.graph[p * words + rank / 32] |= std::uint32_t{1} << (rank % 32);
          a.graph[rank * words + p / 32] |= std::uint32_t{1} << (p % 32);
          ++a.partners[p];
          ++a.partners[rank];
        }
      }
    });
    current.component = joined;
  }

  /// Frees a slot on a rank that does not hold the expert: a copy of another expert moves from
  /// there to a holder with a free slot, the last one placed that this holder does not have.
  /// Returns the rank, or -1.
  template <class Team>
  PLIMSOLL_HD index_t make_room(Team& team, index_t layer, flow_arrays const& a,
                                candidates const& current) const {
    if (max_partners < where.ranks() - 1) {
      return -1;  // the moved copy would change the partners of other ranks
    }
    auto const map = row_of(physical_to_logical, layer);
    auto const holds = [=, this](index_t rank, std::int32_t expert) {
      index_t const first = where.begin(layer, rank);
      for (index_t slot = first; slot < first + a.taken[rank]; ++slot) {
        if (map[slot] == expert) {
          return true;
        }
      }
      return false;
    };
    for (index_t i = 0; i < current.holders; ++i) {
      index_t const to = a.holders[i];
      if (a.taken[to] >= where.slots_of(layer, to)) {
        continue;
      }
      auto const movable_slot = [=, this](index_t r) {
        index_t const first = where.begin(layer, r);
        for (index_t slot = first + a.taken[r]; a.linked[r] >= 0 && slot-- > first;) {
          if (!holds(to, map[slot])) {
            return slot;
          }
        }
        return index_t{-1};
      };
      index_t const from = team.min(
          where.ranks(), [=, this](index_t r) { return movable_slot(r) < 0 ? where.ranks() : r; });
      if (from < where.ranks()) {
        index_t const slot = movable_slot(from);
        move(team, layer, a, slot, from, to);
        return from;
      }
    }
    return -1;
  }

  /// Moves a copy to a free slot of another rank, and closes the gap.
  template <class Team>
  PLIMSOLL_HD void move(Team& team, index_t layer, flow_arrays const& a, index_t slot, index_t from,
                        index_t to) const {
    auto const map = row_of(physical_to_logical, layer);
    index_t const moved = map[slot];
    index_t const held = replica_count(layer, moved);
    index_t const end = where.begin(layer, to) + a.taken[to];
    index_t const last = where.begin(layer, from) + a.taken[from] - 1;
    auto const* const profile = a.profile + moved * profile_blocks;
    team.for_each(profile_blocks, [=](index_t b) {
      std::int32_t const part = profile[b] / static_cast<std::int32_t>(held);
      a.load[from * profile_blocks + b] -= part;
      a.load[to * profile_blocks + b] += part;
    });
    team.single([=] {
      map[end] = static_cast<std::int32_t>(moved);
      ++a.taken[to];
      for (index_t s = slot; s < last; ++s) {
        map[s] = map[s + 1];
      }
      map[last] = -1;
      --a.taken[from];
      a.movable[from] -= held > 1 ? 1 : 0;
      a.movable[to] += held > 1 ? 1 : 0;
    });
  }
};

/// The working memory of `step_bound_body`.
struct step_bound_arrays {
  scratch_ref memory;
  index_t experts;

  std::uint64_t* keys = memory.take(experts);
  std::byte* sorting = memory.take(sort_bytes<block<128>, std::uint64_t>(experts));  ///< of `keys`
  std::int64_t* sums = memory.take(experts);  ///< loads of the heavier experts
};

/// Bounds the peak of one step of one layer from below, for every plan with these slots: the j
/// heaviest experts are on at most j ranks and one more for each extra slot. Problem = step *
/// layers + layer.
template <class Loads>
struct step_bound_body {
  using device_team = block<128>;

  Loads loads;  ///< `[steps, layers, experts]`
  topology where;
  double const* reach;  ///< `[ranks + 1]`: element n is the sum of the n highest speeds
  double* bounds;       ///< `[steps, layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<step_bound_arrays>(loads.extent(2));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const experts = loads.extent(2);
    index_t const step = problem / loads.extent(1);
    index_t const layer = problem % loads.extent(1);
    step_bound_arrays const a{memory, experts};
    load_scale const scale = scale_loads(
        team, experts, [this, step, layer](index_t e) { return loads(step, layer, e); });
    double bound = 0;
    if (!scale.refused) {
      auto const slots = [this, layer](index_t r) { return where.slots_of(layer, r); };
      index_t const extra = maximum{}(index_t{0}, team.sum(where.ranks(), slots) - experts);
      index_t const hosts = team.count(where.ranks(), [=](index_t r) { return slots(r) > 0; });
      team.for_each(experts, [=, this](index_t e) {
        a.keys[e] = heavier_first(to_fixed(loads(step, layer, e), scale.shift), e);
      });
      team.sort(a.keys, experts, a.sorting);
      auto const load = [a](index_t i) {
        return static_cast<std::int64_t>(heavy_load_of(a.keys[i]));
      };
      team.exclusive_scan(experts, load, a.sums);
      bound = team.max(experts, [=, this](index_t i) {
        auto const sum = static_cast<fixed_load>(a.sums[i] + load(i));
        index_t const ranks = minimum{}(hosts, i + 1 + extra);
        return ranks == 0 ? 0.0 : divide_down(from_fixed(sum, scale.shift), reach[ranks]);
      });
    }
    team.single([=, this] { bounds[problem] = bound; });
  }
};

}}}  // namespace plimsoll::detail
