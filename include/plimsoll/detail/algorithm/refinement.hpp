// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `refine`: swaps replicas off the most loaded rank, moves copies between experts, and
/// perturbs small plans.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/common/peak_proof.hpp>
#include <plimsoll/detail/common/placed_cell.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The working memory of `refiner`; that of `packer` follows.
struct refiner_arrays {
  double* weight;           ///< `[slots]` weight of the replica in each slot
  double* carried;          ///< `[ranks]` load of each rank
  std::int32_t* trial_map;  ///< `[slots]`
  std::uint64_t* donors;    ///< `[experts]`
  std::uint64_t* takers;    ///< `[experts]`
  std::byte* sort_storage;  ///< for `donors` and `takers`

  PLIMSOLL_HD static refiner_arrays in(scratch& memory, index_t experts, index_t ranks,
                                       index_t slots) {
    refiner_arrays result{};
    memory.take(result.weight, slots);
    memory.take(result.carried, ranks);
    memory.take(result.trial_map, slots);
    memory.take(result.donors, experts);
    memory.take(result.takers, experts);
    memory.take(result.sort_storage, most_sort_bytes<std::uint64_t>(experts));
    return result;
  }
};

/// Improves the placement of one cell by local search.
template <class Team>
class refiner : placed_cell<Team> {
  using base = placed_cell<Team>;
  using base::bound_for_any_counts, base::cost, base::p_, base::speed, base::team_;
  using base::usable_slots;

 public:
  struct outcome {
    double peak = 0;
    double bound = 0;
    std::int64_t work = 0;
    bool limited = false;  ///< stopped by the limit on trials
  };

  /// `problem.map` is the plan to improve and `problem.copies` its counts; `counts` is a writable
  /// view of them. `rank_of` has the rank of every usable slot, -1 for other slots.
  PLIMSOLL_HD refiner(Team& team, scratch memory, packing_problem const& problem,
                      std::int32_t const* rank_of, std::int32_t* counts, index_t experts,
                      double tolerance)
      : base(team, problem),
        rank_of_(rank_of),
        counts_(counts),
        experts_(experts),
        tolerance_(tolerance),
        arrays_(refiner_arrays::in(memory, experts, problem.where.ranks(), problem.map.extent(0))),
        memory_(memory) {}

  PLIMSOLL_HD outcome improve(std::int64_t trials, std::int64_t perturbations) {
    outcome result;
    first_slot_ = p_.begin(0);
    slots_ = p_.where.ranges.begin(p_.cell.layer, p_.cell.first_rank + p_.cell.ranks) - first_slot_;
    violations_ = violations(p_.map);
    // The greedy packing of the same counts may be better, and gives the bound for them.
    packing_problem trial = p_;
    trial.map = vector_ref<std::int32_t>(arrays_.trial_map, p_.map.extent(0));
    packing_result const greedy = pack(trial);
    bool const choose = trials > 0 && usable_slots() > p_.cell.experts;
    packing_result end{};
    end.least = greedy.least;
    bound_ = choose ? bound_for_any_counts(end.least) : greedy.bound;
    result.peak = descend(p_.map, result.work);
    if (greedy.unplaced < 0 && greedy.peak < result.peak) {
      try_plan(trial.map, result);
    }
    std::int64_t tried = 0;
    while (choose && result.peak > target() && exchange(trial, trials, tried, result)) {
    }
    perturb(trial.map, choose, perturbations, result);
    result.work += tried;
    result.limited = choose && tried == trials && result.peak > target();
    end.peak = result.peak;
    peak_proof<Team>(team_, memory_, p_).settle(end);
    result.peak = end.peak;
    result.bound = end.bound;
    return result;
  }

 private:
  PLIMSOLL_HD double target() const { return multiply(bound_, add(1.0, tolerance_)); }

  PLIMSOLL_NOINLINE PLIMSOLL_HD packing_result pack(packing_problem const& problem,
                                                    bool is_repeated = false) {
    return packer<Team>(team_, memory_, problem, experts_).pack(is_repeated);
  }

  /// Tries plans with one copy moved from one expert to another, or added in a free slot, each
  /// packed greedily and improved by swaps, and takes the first that is better. Pairs are tried in
  /// diagonal order: donors that stay light and takers with heavy replicas come first. Returns
  /// false if no tried plan is better.
  PLIMSOLL_HD bool exchange(packing_problem const& trial, std::int64_t trials, std::int64_t& tried,
                            outcome& result) {
    index_t const n = p_.cell.experts;
    index_t const used = team_.sum(
        n, [this](index_t i) { return index_t{counts_[p_.where.expert_of(p_.cell, i)]}; });
    index_t const free = used < usable_slots() ? 1 : 0;  // 1: a free slot acts as the first donor
    index_t const givers = free + team_.count(n, [this](index_t i) {
      return counts_[p_.where.expert_of(p_.cell, i)] > 1;
    });
    team_.for_each(n, [this](index_t i) {
      index_t const e = p_.where.expert_of(p_.cell, i);
      arrays_.donors[i] = lighter_first(
          counts_[e] == 1 ? load_mask
                          : divide_floor(p_.load[e], static_cast<std::uint32_t>(counts_[e] - 1)),
          e);
      arrays_.takers[i] = heavier_first(p_.weight(e), e);
    });
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 2; ++k) {
      team_.sort(k == 0 ? arrays_.donors : arrays_.takers, n, arrays_.sort_storage);
    }
    bool is_repeated = false;
    for (index_t diagonal = 0; diagonal < givers + n - 1; ++diagonal) {
      for (index_t i = maximum{}(diagonal - n + 1, index_t{0});
           i <= minimum{}(diagonal, givers - 1); ++i) {
        index_t const j = diagonal - i;
        index_t const from = i < free ? index_t{-1} : id_of(arrays_.donors[i - free]);
        index_t const to = id_of(arrays_.takers[j]);
        if (from == to || counts_[to] == rank_limit) {
          continue;
        }
        if (tried == trials) {
          return false;
        }
        ++tried;
        // A pair of alike experts, tried before, led to the same weights in the same slots.
        bool const is_known =
            (i > free && replaces(id_of(arrays_.donors[i - free - 1]), from, to)) ||
            (j > 0 && replaces(id_of(arrays_.takers[j - 1]), to, from));
        if (is_known) {
          continue;
        }
        move_copy(from, to);
        packing_result const packed = pack(trial, is_repeated);
        is_repeated = packed.keeps_order;
        if (packed.unplaced < 0 && packed.bound < result.peak && try_plan(trial.map, result)) {
          return true;
        }
        move_copy(to, from);
      }
    }
    return false;
  }

  /// Returns whether `expert` and `instead` are interchangeable as partners of expert `other`.
  PLIMSOLL_HD bool replaces(index_t expert, index_t instead, index_t other) const {
    return p_.rule.apart == anti_affinity::none && expert != other &&
           p_.load[expert] == p_.load[instead] && counts_[expert] == counts_[instead];
  }

  /// Iterated local search: changes a few slots at random, swaps again, and takes the plan if it is
  /// better. From a plan that no swap of two replicas improves, this finds exchanges of several. It
  /// continues from worse plans, which lead to other local optima, but returns to the best plan
  /// after every `walk` perturbations.
  PLIMSOLL_HD void perturb(vector_ref<std::int32_t> map, bool choose, std::int64_t limit,
                           outcome& result) {
    constexpr std::int64_t walk = 64;  // perturbations before it returns to the best plan
    std::int64_t const attempts = minimum{}(limit, affordable_perturbations());
    std::uint64_t* const best_counts = arrays_.donors;  // reused: `exchange` no longer needs it
    if (attempts == 0) {
      return;
    }
    keep_counts(best_counts);
    for (std::int64_t attempt = 0; attempt < attempts && result.peak > target(); ++attempt) {
      if (attempt % walk == 0) {
        team_.for_each(slots_,
                       [=, this](index_t i) { map[first_slot_ + i] = p_.map[first_slot_ + i]; });
        restore_counts(best_counts);
      }
      ++result.work;
      team_.single([=, this] { shake(map, choose, static_cast<std::uint64_t>(attempt)); });
      if (try_plan(map, result)) {
        keep_counts(best_counts);
      }
    }
    restore_counts(best_counts);
  }
  /// Limits the perturbations by their work: a perturbed plan takes about slots^2 steps. The limit
  /// depends on the slots of the whole layer, so that many small cells do not take many times as
  /// long as one large cell.
  PLIMSOLL_HD std::int64_t affordable_perturbations() const {
    index_t const slots = p_.map.extent(0);
    return slots > 64 ? 0 : (std::int64_t{1} << 19) / maximum{}(slots * slots, index_t{1});
  }
  PLIMSOLL_HD void keep_counts(std::uint64_t* kept) {
    team_.for_each(p_.cell.experts, [=, this](index_t i) {
      kept[i] = static_cast<std::uint64_t>(counts_[p_.where.expert_of(p_.cell, i)]);
    });
  }
  PLIMSOLL_HD void restore_counts(std::uint64_t const* kept) {
    team_.for_each(p_.cell.experts, [=, this](index_t i) {
      counts_[p_.where.expert_of(p_.cell, i)] = static_cast<std::int32_t>(kept[i]);
    });
  }

  /// Makes one to three random changes that respect the constraints. Called by one thread.
  PLIMSOLL_HD void shake(vector_ref<std::int32_t> map, bool choose, std::uint64_t attempt) const {
    std::uint64_t left = 1 + random::bits(0, attempt, 0) % 3;
    for (std::uint64_t k = 1; left > 0 && k < 16; ++k) {
      left -= static_cast<std::uint64_t>(change(map, choose, random::bits(0, attempt, k)));
    }
  }
  /// Swaps two replicas of different ranks or, if counts may change, with probability 1/2 gives a
  /// slot to another expert. Returns false if the drawn slots do not allow it.
  PLIMSOLL_HD bool change(vector_ref<std::int32_t> map, bool choose, std::uint64_t bits) const {
    auto const draw = [bits](int shift, index_t n) {
      return static_cast<index_t>((bits >> shift & 0xffffff) % static_cast<std::uint64_t>(n));
    };
    index_t const a = first_slot_ + draw(0, slots_);
    index_t const rank = rank_of_[a] - p_.cell.first_rank;
    if (rank < 0) {
      return false;
    }
    if (choose && bits >> 63 != 0) {
      auto const e =
          static_cast<std::int32_t>(p_.where.expert_of(p_.cell, draw(24, p_.cell.experts)));
      if (e == map[a] || (map[a] >= 0 && counts_[map[a]] == 1) || counts_[e] == rank_limit ||
          (p_.rule.apart != anti_affinity::none && holds(map, rank, e, slots_end()))) {
        return false;
      }
      if (map[a] >= 0) {
        --counts_[map[a]];
      }
      ++counts_[e];
      map[a] = e;
      return true;
    }
    index_t const b = first_slot_ + draw(24, slots_);
    index_t const other = rank_of_[b] - p_.cell.first_rank;
    if (other < 0 || other == rank || map[a] == map[b] || !may_swap(map, a, rank, b, other)) {
      return false;
    }
    std::int32_t const e = map[a];
    map[a] = map[b];
    map[b] = e;
    return true;
  }

  PLIMSOLL_HD void move_copy(index_t from, index_t to) {
    team_.single([=, this] {
      if (from >= 0) {
        --counts_[from];
      }
      if (to >= 0) {
        ++counts_[to];
      }
    });
  }

  /// Improves `map` by swaps, and replaces the plan with it if it is then better.
  PLIMSOLL_HD bool try_plan(vector_ref<std::int32_t> map, outcome& result) {
    double const peak = descend(map, result.work);
    if (peak >= result.peak || violations(map) > violations_) {
      return false;
    }
    team_.for_each(slots_, [=, this](index_t i) {
      if (rank_of_[first_slot_ + i] >= 0) {
        p_.map[first_slot_ + i] = map[first_slot_ + i];
      }
    });
    result.peak = peak;
    return true;
  }

  /// Steepest descent: swaps a replica of the most loaded rank with a lighter one, or a free slot,
  /// of another rank, as long as that helps. Each swap minimizes the cost of the worse of the two
  /// ranks. Returns the peak.
  ///
  /// After a swap both ranks cost less than the peak, and no other rank changes. So either the peak
  /// falls or fewer ranks have it, and no plan repeats. That holds for rounded costs too, since
  /// they are functions of exact loads.
  PLIMSOLL_NOINLINE PLIMSOLL_HD double descend(vector_ref<std::int32_t> map, std::int64_t& swaps) {
    team_.for_each(p_.cell.ranks, [=, this](index_t r) {
      double sum = 0;
      for (index_t slot = p_.begin(r); slot < p_.end(r); ++slot) {
        arrays_.weight[slot] = map[slot] < 0 ? 0.0 : static_cast<double>(p_.weight(map[slot]));
        sum = add(sum, arrays_.weight[slot]);
      }
      arrays_.carried[r] = sum;
    });
    for (;;) {
      auto const busiest =
          team_.argmax(p_.cell.ranks, [this](index_t r) { return cost(r, arrays_.carried[r]); });
      if (busiest.key <= target()) {
        return busiest.key;
      }
      index_t const p = busiest.index;
      giver const from{p, p_.begin(p), p_.end(p), busiest.key, arrays_.carried[p]};
      // The rank that costs least can take most. What it offers rules out most other ranks.
      auto const idlest =
          team_.argmin(p_.cell.ranks, [this](index_t r) { return cost(r, arrays_.carried[r]); });
      index_t const begin = p_.begin(idlest.index);
      double const known = team_.min(p_.end(idlest.index) - begin, [=, this](index_t i) {
        return best_swap(map, from, highest<double>, begin + i).key;
      });
      auto const best = team_.argmin(slots_, [=, this](index_t i) {
        return best_swap(map, from, known, first_slot_ + i).key;
      });
      index_t const in = first_slot_ + best.index;
      index_t const out = best_swap(map, from, known, in).index;
      if (out < 0) {
        return busiest.key;
      }
      ++swaps;
      team_.single([=, this] {
        index_t const r = rank_of_[in] - p_.cell.first_rank;
        double const light = arrays_.weight[in];
        double const less = add(arrays_.weight[out], -light);
        arrays_.carried[p] = add(arrays_.carried[p], -less);
        arrays_.carried[r] = add(arrays_.carried[r], less);
        arrays_.weight[in] = arrays_.weight[out];
        arrays_.weight[out] = light;
        std::int32_t const e = map[out];
        map[out] = map[in];
        map[in] = e;
      });
    }
  }

  /// The most loaded rank.
  struct giver {
    index_t rank;
    index_t begin;
    index_t end;
    double cost;
    double carried;
  };
  /// Returns the slot of `from` to swap with slot `in`, and the cost of the worse rank after the
  /// swap; index -1 if no swap helps, or none leads to a cost of `known` or less.
  PLIMSOLL_HD extreme<double> best_swap(vector_ref<std::int32_t> map, giver const& from,
                                        double known, index_t in) const {
    extreme<double> best{highest<double>, -1};
    index_t const r = rank_of_[in] - p_.cell.first_rank;
    if (r < 0 || r == from.rank) {
      return best;
    }
    // The worse rank costs at least as much as both together, but for rounding.
    double const together = multiply(add(from.carried, arrays_.carried[r]), 1 - 0x1p-40);
    if (together > multiply(known, add(speed(from.rank), speed(r)))) {
      return best;
    }
    double const light = arrays_.weight[in];
    // A useful swap takes at least `least` off the giver and adds at most `most` to rank `r`, apart
    // from rounding.
    double const limit = multiply(minimum{}(known, from.cost), 1 + 0x1p-40);
    double const least = add(from.carried, -multiply(limit, speed(from.rank)));
    double const most = add(multiply(limit, speed(r)), -arrays_.carried[r]);
    for (index_t out = from.begin; out < from.end; ++out) {
      double const less = add(arrays_.weight[out], -light);
      if (less >= least && less <= most && less > 0) {  // most pairs fail this test
        double const after = maximum{}(cost(from.rank, add(from.carried, -less)),
                                       cost(r, add(arrays_.carried[r], less)));
        if (after < minimum{}(from.cost, best.key) && may_swap(map, out, from.rank, in, r)) {
          best = {after, out};
        }
      }
    }
    return best;
  }

  /// Returns whether a swap respects anti-affinity: neither replica moves to a rank (or node) that
  /// already holds its expert.
  PLIMSOLL_HD bool may_swap(vector_ref<std::int32_t> map, index_t slot_a, index_t a, index_t slot_b,
                            index_t b) const {
    if (p_.rule.apart == anti_affinity::none || p_.domain_of(a) == p_.domain_of(b)) {
      return true;
    }
    return !holds(map, b, map[slot_a], slots_end()) && !holds(map, a, map[slot_b], slots_end());
  }
  /// Counts the violations of preferred anti-affinity: replicas on a rank (or node) where an
  /// earlier slot holds their expert.
  PLIMSOLL_HD index_t violations(vector_ref<std::int32_t> map) {
    if (p_.rule.apart == anti_affinity::none || p_.rule.required) {
      return 0;
    }
    return team_.count(slots_, [=, this](index_t i) {
      index_t const slot = first_slot_ + i;
      index_t const r = rank_of_[slot] - p_.cell.first_rank;
      return r >= 0 && holds(map, r, map[slot], slot);
    });
  }
  /// Returns whether the rank (or its node) holds the expert in a slot before `end`.
  PLIMSOLL_HD bool holds(vector_ref<std::int32_t> map, index_t rank, std::int32_t expert,
                         index_t end) const {
    index_t const domain = p_.domain_of(rank);
    for (index_t r = p_.first_rank_of(domain); r < p_.first_rank_of(domain + 1) && expert >= 0;
         ++r) {
      index_t const last = minimum{}(end, p_.end(r));
      for (index_t slot = p_.begin(r); slot < last; ++slot) {
        if (map[slot] == expert) {
          return true;
        }
      }
    }
    return false;
  }
  PLIMSOLL_HD index_t slots_end() const { return first_slot_ + slots_; }

  std::int32_t const* rank_of_;
  std::int32_t* counts_;
  index_t experts_;
  double tolerance_;
  double bound_ = 0;
  index_t first_slot_ = 0;
  index_t slots_ = 0;       ///< slots of the cell, including those of dead ranks
  index_t violations_ = 0;  ///< anti-affinity violations of the given plan
  refiner_arrays arrays_;
  scratch memory_;
};

/// The working memory of `refinement_body`; that of `read_plan` or of `refiner` follows.
struct refinement_arrays {
  fixed_load* load;          ///< `[experts]`
  std::int32_t* counts;      ///< `[experts]` copies of each expert
  std::int32_t* rank_of;     ///< `[slots]` rank of each usable slot, else -1
  std::int32_t* slot_begin;  ///< `[ranks]`
  std::int32_t* slot_end;    ///< `[ranks]`

  PLIMSOLL_HD static refinement_arrays in(scratch& memory, index_t experts, index_t ranks,
                                          index_t slots) {
    refinement_arrays result{};
    memory.take(result.load, experts);
    memory.take(result.counts, experts);
    memory.take(result.rank_of, slots);
    memory.take(result.slot_begin, ranks);
    memory.take(result.slot_end, ranks);
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD slot_table slots() const { return {slot_begin, slot_end}; }
  /// The problem of the whole layer.
  [[nodiscard]] PLIMSOLL_HD packing_problem problem(topology const& where,
                                                    anti_affinity_rule const& rule, index_t layer,
                                                    index_t experts, vector_ref<std::int32_t> map,
                                                    load_scale const& scale) const {
    return {.load = load,
            .copies = vector_ref<std::int32_t const>(counts, experts),
            .where = where,
            .slots = slots(),
            .cell = {layer, 0, where.ranks(), 0, experts},
            .rule = rule,
            .map = map,
            .load_error = fixed_load{scale.is_rounded}};
  }
};

/// Reads a given plan and checks it against the constraints of a placement.
struct plan_reader {
  topology const& where;
  anti_affinity_rule rule;
  index_t experts;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(where.ranges.slots) +
           linked_slots::scratch_bytes(experts);
  }

  /// Finds the rank of every slot and counts the replicas of every expert. Returns a report of the
  /// first fault of the plan, if any.
  template <class Team>
  PLIMSOLL_HD problem_report read(Team& team, scratch memory, index_t layer,
                                  vector_ref<std::int32_t const> map,
                                  refinement_arrays const& arrays) const {
    index_t const slots = where.ranges.slots;
    auto* const rank_of = arrays.rank_of;
    auto* const counts = arrays.counts;
    auto* const begin = arrays.slot_begin;
    auto* const end = arrays.slot_end;
    team.for_each(slots, [=](index_t slot) { rank_of[slot] = -1; });
    team.for_each(where.ranks(), [=, this](index_t r) {
      begin[r] = static_cast<std::int32_t>(where.begin(layer, r));
      end[r] = static_cast<std::int32_t>(where.end(layer, r));
      for (index_t slot = begin[r]; slot < end[r]; ++slot) {
        rank_of[slot] = static_cast<std::int32_t>(r);
      }
    });
    index_t const bad = first_where(team, slots, [=, this](index_t slot) {
      std::int32_t const e = map[slot];
      return e < -1 || e >= experts || (e >= 0 && rank_of[slot] < 0);
    });
    if (bad < slots) {
      bool const known = map[bad] >= -1 && map[bad] < experts;
      return refusal(known ? fault_kind::unusable_slot : fault_kind::expert_id, bad, map[bad]);
    }
    auto* const owner = memory.take<std::int32_t>(slots);
    team.for_each(slots, [=](index_t slot) { owner[slot] = map[slot]; });
    linked_slots const links = link_slots(team, memory, owner, slots, experts);
    index_t const unusable = first_where(team, experts, [=](index_t e) {
      return links.copies[e] < 1 || links.copies[e] > rank_limit;
    });
    if (unusable < experts) {
      return refusal(fault_kind::copies, unusable, links.copies[unusable]);
    }
    team.for_each(experts, [=](index_t e) { counts[e] = links.copies[e]; });
    problem_report outcome = refuse_off_node(team, layer, links);
    if (!outcome.refused && rule.required) {
      outcome = refuse_shared(team, map, links, rank_of);
    }
    return outcome;
  }

 private:
  /// Refuses replicas outside the ranks of the cell that lists their expert.
  template <class Team>
  PLIMSOLL_HD problem_report refuse_off_node(Team& team, index_t layer,
                                             linked_slots const& links) const {
    for (index_t c = 0; c < where.cells(); ++c) {
      cell const node = where.cell_at(layer, c, experts);
      index_t const begin = where.begin(layer, node.first_rank);
      index_t const end = where.ranges.begin(layer, node.first_rank + node.ranks);
      index_t const stray = first_where(team, node.experts, [=, this](index_t i) {
        std::int32_t slot = links.first[where.expert_of(node, i)];
        while (slot >= begin && slot < end) {
          slot = links.next[slot];
        }
        return slot >= 0;
      });
      if (stray < node.experts) {
        return refusal(fault_kind::off_node, where.expert_of(node, stray), c);
      }
    }
    return problem_report{};
  }

  /// Refuses two replicas of an expert in one domain of the anti-affinity. An expert's slots are
  /// linked in rising order, so if any replicas share a domain, consecutive ones do.
  template <class Team>
  PLIMSOLL_HD problem_report refuse_shared(Team& team, vector_ref<std::int32_t const> map,
                                           linked_slots const& links,
                                           std::int32_t const* rank_of) const {
    index_t const slots = where.ranges.slots;
    bool const nodes = rule.apart == anti_affinity::node;
    index_t const shared = first_where(team, slots, [=, this](index_t slot) {
      if (links.next[slot] < 0) {
        return false;
      }
      index_t const a = rank_of[slot];
      index_t const b = rank_of[links.next[slot]];
      return a == b || (nodes && where.node_of(a) == where.node_of(b));
    });
    if (shared < slots) {
      return refusal(nodes ? fault_kind::shared_node : fault_kind::shared_rank, map[shared], 2,
                     nodes ? where.node_of(rank_of[shared]) : rank_of[shared]);
    }
    return problem_report{};
  }
};

/// Body of `refine`. Problem = layer.
template <class Loads>
struct refinement_body {
  using device_team = block<128>;

  Loads loads;
  topology where;
  anti_affinity_rule rule;
  double load_exponent;
  double tolerance;
  std::int64_t trials;         ///< limit on plans with other counts; 0: counts stay
  std::int64_t perturbations;  ///< limit on perturbed plans of a cell
  matrix_ref<std::int32_t> physical_to_logical;
  matrix_ref<std::int32_t> replica_count;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const experts = loads.extent(1);
    index_t const ranks = where.ranks();
    index_t const slots = where.ranges.slots;
    return bytes_taken_by<refinement_arrays>(experts, ranks, slots) +
           maximum{}(plan_reader{where, rule, experts}.scratch_bytes(),
                     bytes_taken_by<refiner_arrays>(experts, ranks, slots) +
                         bytes_taken_by<packing_arrays>(experts, ranks, slots, rule));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    problem_report* const report = reports + layer;
    auto const arrays = refinement_arrays::in(memory, experts, where.ranks(), where.ranges.slots);
    auto* const counts = arrays.counts;
    auto const map = row_of(physical_to_logical, layer);
    load_scale const scale = read_loads(
        team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent,
        arrays.load);
    problem_report outcome = scale.report();
    if (!outcome.refused) {
      outcome = where.refuse(team, layer, experts, counts);
    }
    if (!outcome.refused) {
      outcome = plan_reader{where, rule, experts}.read(team, memory, layer, map, arrays);
    }
    if (!outcome.refused) {
      outcome.result = improve(team, memory, layer, arrays, scale);
      team.for_each(experts, [=, this](index_t e) { replica_count(layer, e) = counts[e]; });
    }
    team.single([=] { *report = outcome; });
  }

 private:
  template <class Team>
  PLIMSOLL_HD certificate improve(Team& team, scratch memory, index_t layer,
                                  refinement_arrays const& arrays, load_scale const& scale) const {
    index_t const experts = loads.extent(1);
    packing_problem problem =
        arrays.problem(where, rule, layer, experts, row_of(physical_to_logical, layer), scale);
    typename refiner<Team>::outcome all;
    for (index_t position = 0; position < where.cells(); ++position) {
      problem.cell = where.cell_at(layer, position, experts);
      auto const found =
          refiner<Team>(team, memory, problem, arrays.rank_of, arrays.counts, experts, tolerance)
              .improve(trials, perturbations);
      all.peak = maximum{}(all.peak, found.peak);
      all.bound = maximum{}(all.bound, found.bound);
      all.work += found.work;
      all.limited = all.limited || found.limited;
    }
    certificate result = certify(all.peak, all.bound, all.work, scale.shift);
    if (result.status != certificate_status::optimal) {
      result.status = all.peak <= multiply(all.bound, add(1.0, tolerance))
                          ? certificate_status::within_tolerance
                      : all.limited ? certificate_status::iteration_limit
                                    : certificate_status::feasible;
    }
    return result;
  }
};

}}}  // namespace plimsoll::detail
