// SPDX-License-Identifier: Apache-2.0
/// @file
/// The path of `plan_within` and of `refine` with a price for moves: from a given plan, one change
/// after another, each of which relieves the most loaded rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/algorithm/refinement.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/common/peak_proof.hpp>
#include <plimsoll/detail/common/placed_cell.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A slot that gets another expert; -1 empties it.
struct path_change {
  std::int32_t slot;
  std::int32_t expert;
};

/// A plan on a path.
struct path_point {
  std::int32_t changes;  ///< number of changes from the given plan
  std::int32_t moves;    ///< experts that arrived on another rank
  double peak;           ///< in fixed point; with the optimal split an estimate
};

/// End of a path, and the changes that it may make.
struct path_rule {
  split_rule split;
  bool keeps_counts;        ///< every expert keeps its number of copies
  double price;             ///< least relief of a move, as a part of the mean cost
  double target;            ///< the path ends at the first plan with this peak
  std::int64_t most_moves;  ///< the path ends before the first plan with more
};

/// The working memory of `move_path`.
struct move_path_arrays {
  std::int32_t* map;      ///< `[slots]` the plan
  std::int32_t* next;     ///< `[slots]` list of the slots of an expert
  std::int32_t* first;    ///< `[experts]` its first slot
  linked_slots links;     ///< of which the two are parts
  std::int32_t* settled;  ///< `[slots]` whether an expert arrived in the slot
  std::uint64_t* seen;    ///< `[experts, words]` ranks that hold the expert, or did
  double* share;          ///< `[slots]` load of a slot
  double* next_share;     ///< `[experts]` share of a copy of the expert if it gets one more
  double* carried;        ///< `[ranks]` load of each rank

  PLIMSOLL_HD static constexpr index_t words(index_t ranks) { return (ranks + 63) / 64; }

  PLIMSOLL_HD static move_path_arrays in(scratch& memory, index_t experts, index_t ranks,
                                         index_t slots) {
    move_path_arrays result{};
    memory.take(result.map, slots);
    memory.take(result.next, slots);
    result.links = linked_slots::in(memory, experts, result.next);
    result.first = result.links.first;
    memory.take(result.settled, slots);
    memory.take(result.seen, experts * words(ranks));
    memory.take(result.share, slots);
    memory.take(result.next_share, experts);
    memory.take(result.carried, ranks);
    return result;
  }
};

/// Follows a path. At every point, the changes that relieve the most loaded rank are:
///
/// - copy: another rank gets a copy of one of its experts, instead of a superfluous replica
/// - replace: a superfluous replica on it makes way for a copy of an expert from elsewhere
/// - swap: one of its replicas and one of another rank change places
///
/// A replica is superfluous if its expert has another one; an empty slot counts as one, too. The
/// change with the largest gain per move is made, where gain is the decrease of the sum over ranks
/// of the squared load above the mean. Neither the most loaded rank nor another one that changes
/// may then cost as much as the most loaded rank did, so that no plan repeats.
///
/// An expert that arrived on a rank stays there, and none returns to a rank that it left. Hence
/// moves add up, and each plan makes all moves of the plans before it.
///
/// With the optimal split, the load of each slot is estimated: after every change, experts with
/// several copies even out the levels of their ranks in turn, three times. A change is judged by
/// the load that the most loaded rank can pass to the new copy.
template <class Team>
class move_path : placed_cell<Team> {
  using base = placed_cell<Team>;
  using base::cost, base::p_, base::speed, base::team_;

 public:
  /// `problem` is that of the whole layer, and `problem.copies` a view of `counts`. `problem.map`
  /// is the given plan. `rank_of` has the rank of every usable slot, -1 for other slots.
  PLIMSOLL_HD move_path(Team& team, scratch memory, packing_problem const& problem,
                        std::int32_t const* rank_of, std::int32_t* counts, path_rule const& rule)
      : base(team, problem),
        rule_(rule),
        rank_of_(rank_of),
        counts_(counts),
        slots_(problem.map.extent(0)),
        experts_(problem.cell.experts),
        words_(move_path_arrays::words(problem.cell.ranks)),
        a_(move_path_arrays::in(memory, experts_, problem.cell.ranks, slots_)) {}

  /// Writes the changes, of which there are at most `2 * slots`, and the points, the given plan
  /// first, at most `slots + 1`. Returns the number of points. The counts become those of the last
  /// plan.
  PLIMSOLL_HD index_t follow(path_change* changes, path_point* points) {
    start();
    path_point reached_point{0, 0, 0};
    for (index_t reached = 1;; ++reached) {
      auto const busiest =
          team_.argmax(p_.cell.ranks, [this](index_t r) { return cost(r, a_.carried[r]); });
      busiest_ = busiest.index;
      peak_ = busiest.key;
      reached_point.peak = peak_;
      team_.single([=] { points[reached - 1] = reached_point; });
      if (peak_ <= rule_.target || reached > slots_) {
        return reached;
      }
      change const best = best_change();
      if (best.kind == change_kind::none || reached_point.moves + best.moves > rule_.most_moves) {
        return reached;
      }
      path_change* const written = changes + reached_point.changes;
      team_.single([=, this] { apply(best, written); });
      reached_point.moves += best.moves;
      reached_point.changes += best.kind == change_kind::swap ? 2 : 1;
      if (is_optimal()) {
        even_out(3);
      }
    }
  }

  /// Returns the plan at the end of the path.
  [[nodiscard]] PLIMSOLL_HD std::int32_t const* map() const { return a_.map; }

 private:
  enum class change_kind : std::int32_t { none, copy, swap };  // replace is a copy

  /// A change, and its gain per move.
  struct change {
    double gain = 0;
    change_kind kind = change_kind::none;
    std::int32_t moves = 0;
    std::int32_t expert = -1;  ///< gets a copy
    std::int32_t from = -1;    ///< slot of the most loaded rank; -1 for a copy that it gets itself
    std::int32_t to = -1;      ///< slot that the expert gets
  };

  /// Effect of a change on the loads of ranks.
  struct effect {
    std::int32_t gaining = -1;  ///< an expert with another copy, and how its other copies change
    double gaining_by = 0;
    std::int32_t losing = -1;  ///< likewise with a copy less
    double losing_by = 0;
    std::int32_t rank[3] = {-1, -1, -1};  ///< further changes
    double by[3] = {0, 0, 0};
  };

  [[nodiscard]] PLIMSOLL_HD bool is_optimal() const { return rule_.split == split_rule::optimal; }

  PLIMSOLL_NOINLINE PLIMSOLL_HD void start() {
    auto const a = a_;
    vector_ref<std::int32_t> const given = p_.map;
    std::int32_t const* const rank_of = rank_of_;
    index_t const words = words_;
    team_.for_each(slots_, [=](index_t s) {
      a.map[s] = rank_of[s] < 0 ? -1 : given[s];
      a.settled[s] = 0;
      a.share[s] = 0;
    });
    a.links.link(team_, a.map, slots_, experts_);
    team_.for_each(experts_, [=](index_t e) {
      std::uint64_t* const row = a.seen + e * words;
      for (index_t w = 0; w < words; ++w) {
        row[w] = 0;
      }
      for (std::int32_t s = a.first[e]; s >= 0; s = a.next[s]) {
        row[rank_of[s] / 64] |= std::uint64_t{1} << rank_of[s] % 64;
      }
    });
    team_.for_each(experts_, [=, this](index_t e) {
      a.next_share[e] = weight_of(static_cast<std::int32_t>(e), counts_[e] + 1);
    });
    team_.for_each(p_.cell.ranks, [=, this](index_t r) {
      double sum = 0;
      for (index_t s = p_.begin(r); s < p_.end(r); ++s) {
        if (a.map[s] >= 0) {
          a.share[s] = static_cast<double>(p_.weight(a.map[s]));
          sum = add(sum, a.share[s]);
        }
      }
      a.carried[r] = sum;
    });
    auto const open_speed = [this](index_t r) { return p_.end(r) > p_.begin(r) ? speed(r) : 0.0; };
    fixed_load const total = team_.sum(experts_, [this](index_t e) { return p_.load[e]; });
    mean_ = divide(static_cast<double>(total), team_.sum_ordered(p_.cell.ranks, open_speed));
    if (is_optimal()) {
      even_out(10);
    }
  }

  // ----- changes ---------------------------------------------------------------------------------

  PLIMSOLL_HD change best_change() {
    // The rank that costs least takes most. What it gains rules out most changes of other ranks.
    auto const idlest =
        team_.argmin(p_.cell.ranks, [this](index_t r) { return cost(r, a_.carried[r]); });
    index_t const begin = p_.begin(idlest.index);
    double const known = team_.max(p_.end(idlest.index) - begin, [this, begin](index_t i) {
      return best_into(begin + i, 0, all_of_busiest()).gain;
    });
    index_t const width = part_count();
    auto const into = team_.argmax(slots_ * width, [this, known, width](index_t i) {
      return best_into(i / width, known, part_of_busiest(i % width)).gain;
    });
    change best = best_into(into.index / width, known, part_of_busiest(into.index % width));
    if (!rule_.keeps_counts && !is_optimal()) {
      auto const made = team_.argmax(experts_ * width, [this, gain = best.gain, width](index_t i) {
        return best_copy_of(i / width, gain, part_of_busiest(i % width)).gain;
      });
      if (made.key > best.gain) {
        best = best_copy_of(made.index / width, best.gain, part_of_busiest(made.index % width));
      }
    }
    return best;
  }

  /// Slots of the most loaded rank. The threads of a parallel team look at one each.
  struct slot_range {
    index_t begin;
    index_t end;
  };
  PLIMSOLL_HD slot_range all_of_busiest() const { return {p_.begin(busiest_), p_.end(busiest_)}; }
  PLIMSOLL_HD index_t part_count() const {
    return Team::is_serial ? 1 : p_.end(busiest_) - p_.begin(busiest_);
  }
  PLIMSOLL_HD slot_range part_of_busiest(index_t part) const {
    index_t const slot = p_.begin(busiest_) + part;
    return Team::is_serial ? all_of_busiest() : slot_range{slot, slot + 1};
  }

  /// Returns the best change that fills a slot of another rank from slots of the most loaded rank,
  /// if it gains at least `known`.
  PLIMSOLL_NOINLINE PLIMSOLL_HD change best_into(index_t to, double known,
                                                 slot_range const& busiest) const {
    change best;
    index_t const q = rank_of_[to];
    if (q < 0 || q == busiest_ || a_.settled[to] != 0) {
      return best;
    }
    std::int32_t const old = a_.map[to];
    bool const is_free = !rule_.keeps_counts && (old < 0 || counts_[old] > 1);
    double const given = a_.share[to];
    std::int32_t const heir = is_free && is_optimal() && old >= 0 ? heir_of(to) : std::int32_t{-1};
    for (index_t from = busiest.begin; from < busiest.end; ++from) {
      std::int32_t const e = a_.map[from];
      if (e < 0 || e == old) {
        continue;
      }
      if (is_free && most_gain_of_copy(e, from, to, heir) >= known && may_arrive(e, q, -1)) {
        consider_copy(best, e, from, to);
      }
      // Most swaps gain less than the best one, which costs less to see than that they are allowed.
      double const by = add(a_.share[from], -given);
      std::int32_t const moves = old < 0 ? 1 : 2;
      if (a_.settled[from] == 0 && (old < 0 || by > 0)) {
        double const gain = gain_of_swap(q, by, moves);
        if (gain > best.gain && may_arrive(e, q, from) &&
            (old < 0 || may_arrive(old, busiest_, to))) {
          best = {gain,
                  change_kind::swap,
                  moves,
                  e,
                  static_cast<std::int32_t>(from),
                  static_cast<std::int32_t>(to)};
        }
      }
    }
    return best;
  }

  /// Returns the best change that gives the most loaded rank a copy of the expert instead of a
  /// replica of which there are others, if it gains at least `known`.
  PLIMSOLL_NOINLINE PLIMSOLL_HD change best_copy_of(index_t expert, double known,
                                                    slot_range const& busiest) const {
    change best;
    auto const e = static_cast<std::int32_t>(expert);
    for (index_t to = busiest.begin; to < busiest.end; ++to) {
      std::int32_t const old = a_.map[to];
      // It must carry less afterwards.
      if (old >= 0 && a_.settled[to] == 0 && counts_[old] > 1 && a_.share[to] > a_.next_share[e] &&
          most_gain_of_copy(e, -1, to, -1) >= known && may_arrive(e, busiest_, -1)) {
        consider_copy(best, e, -1, to);
      }
    }
    return best;
  }

  /// Returns whether an expert may arrive on a rank while its replica in slot `leaving` goes; -1:
  /// none goes. It does not return to a rank that it left.
  PLIMSOLL_HD bool may_arrive(std::int32_t e, index_t rank, index_t leaving) const {
    if (was_seen_on(e, rank) || (leaving < 0 && counts_[e] >= rank_limit)) {
      return false;
    }
    bool const nodes = p_.rule.apart == anti_affinity::node;
    bool const stays = p_.where.node_experts.data != nullptr;
    index_t const node = nodes || stays ? p_.where.node_of(rank) : 0;
    for (std::int32_t s = nodes || stays ? a_.first[e] : -1; s >= 0; s = a_.next[s]) {
      index_t const r = rank_of_[s];
      if ((nodes && s != leaving && p_.where.node_of(r) == node) ||
          (stays && p_.where.node_of(r) != node)) {
        return false;
      }
    }
    return true;
  }
  /// Returns whether a rank holds the expert, or did.
  PLIMSOLL_HD bool was_seen_on(std::int32_t e, index_t rank) const {
    return (a_.seen[e * words_ + rank / 64] >> rank % 64 & 1) != 0;
  }

  /// Replaces `best` if a copy of the expert in slot `to` gains more per move.
  PLIMSOLL_HD void consider_copy(change& best, std::int32_t e, index_t from, index_t to) const {
    change option{.kind = change_kind::copy,
                  .moves = 1,
                  .expert = e,
                  .from = static_cast<std::int32_t>(from),
                  .to = static_cast<std::int32_t>(to)};
    double worst = 0;
    visit(effect_of(option), [&](index_t r, double delta) {
      double const after = add(a_.carried[r], delta);
      worst = delta == 0 && r != busiest_ ? worst : maximum{}(worst, cost(r, after));
      option.gain = add(option.gain, relief(r, after));
    });
    if (is_allowed(worst, option.moves) && option.gain > best.gain) {
      best = option;
    }
  }
  /// Returns an upper bound on the gain of a copy of an expert in slot `to`: takes the ranks whose
  /// loads both rise and fall as if they only fell. `from` is as in `change`, `heir` that of the
  /// slot with the optimal split.
  PLIMSOLL_HD double most_gain_of_copy(std::int32_t e, index_t from, index_t to,
                                       std::int32_t heir) const {
    index_t const q = rank_of_[to];
    double const left = add(a_.carried[q], -a_.share[to]);
    double gain = 0;
    if (is_optimal()) {
      double const passed = passed_to(q, left, from, a_.carried[busiest_]);
      gain =
          add(relief(q, add(left, passed)), relief(busiest_, add(a_.carried[busiest_], -passed)));
      if (heir >= 0 && rank_of_[heir] != q && rank_of_[heir] != busiest_) {
        gain = add(gain, relief(rank_of_[heir], add(a_.carried[rank_of_[heir]], a_.share[to])));
      }
    } else {
      gain = relief(q, add(left, a_.next_share[e]));
      for (std::int32_t s = a_.first[e]; s >= 0; s = a_.next[s]) {
        double const loss = add(a_.share[s], -a_.next_share[e]);
        gain = add(gain, relief(rank_of_[s], add(a_.carried[rank_of_[s]], -loss)));
      }
      std::int32_t const old = a_.map[to];
      double const more = old < 0 ? 0.0 : add(weight_of(old, counts_[old] - 1), -a_.share[to]);
      for (std::int32_t s = old < 0 ? -1 : a_.first[old]; s >= 0; s = a_.next[s]) {
        index_t const r = rank_of_[s];
        if (r != q && !was_seen_on(e, r)) {
          gain = add(gain, relief(r, add(a_.carried[r], more)));
        }
      }
    }
    // Rounding takes less: errors of a cost are parts of the peak, and gains are squares above the
    // mean.
    double const above = maximum{}(add(peak_, -mean_), 0.0);
    return add(gain, multiply(multiply(above, peak_), 0x1p-40));
  }
  /// Returns the gain per move of a swap by which load `by` leaves the most loaded rank for rank
  /// `q`; 0 if it is not allowed.
  PLIMSOLL_HD double gain_of_swap(index_t q, double by, double moves) const {
    double const other = add(a_.carried[q], by);
    double const mine = add(a_.carried[busiest_], -by);
    double const least = by == 0 ? 0.0 : cost(q, other);
    bool const is_good = is_allowed(maximum{}(least, cost(busiest_, mine)), moves);
    return is_good ? divide(add(relief(q, other), relief(busiest_, mine)), moves) : 0.0;
  }
  /// Returns whether a change may be made after which the ranks that it touches cost at most
  /// `worst`.
  PLIMSOLL_HD bool is_allowed(double worst, double moves) const {
    double const price = multiply(multiply(rule_.price, mean_), moves);
    return worst < peak_ && add(peak_, -worst) >= price;
  }
  /// Returns what a rank adds to the gain of a change after which it carries `after`.
  PLIMSOLL_HD double relief(index_t rank, double after) const {
    return add(excess(cost(rank, a_.carried[rank])), -excess(cost(rank, after)));
  }
  PLIMSOLL_HD double excess(double rank_cost) const {
    double const above = maximum{}(add(rank_cost, -mean_), 0.0);
    return multiply(above, above);
  }

  PLIMSOLL_HD double weight_of(std::int32_t e, std::int32_t copies) const {
    return static_cast<double>(share(p_.load[e], copies));
  }

  PLIMSOLL_HD effect effect_of(change const& c) const {
    effect result;
    index_t const q = rank_of_[c.to];
    std::int32_t const old = a_.map[c.to];
    result.rank[0] = static_cast<std::int32_t>(q);
    if (c.kind == change_kind::swap) {
      result.rank[1] = static_cast<std::int32_t>(busiest_);
      result.by[0] = add(a_.share[c.from], -a_.share[c.to]);
      result.by[1] = -result.by[0];
      return result;
    }
    if (is_optimal()) {
      return effect_of_passing(c, result);
    }
    if (old >= 0) {
      double const weight = weight_of(old, counts_[old] - 1);
      result.losing = old;
      result.losing_by = add(weight, -weight_of(old, counts_[old]));
      result.by[0] = -weight;
    }
    double const weight = weight_of(c.expert, counts_[c.expert] + 1);
    result.gaining = c.expert;
    result.gaining_by = add(weight, -weight_of(c.expert, counts_[c.expert]));
    result.by[0] = add(result.by[0], weight);
    return result;
  }

  /// With the optimal split: the load of the old replica goes to the least loaded rank with another
  /// one, and the new copy takes so much load from the most loaded rank that both cost the same.
  PLIMSOLL_HD effect effect_of_passing(change const& c, effect result) const {
    if (a_.map[c.to] >= 0) {
      result.rank[2] = static_cast<std::int32_t>(rank_of_[heir_of(c.to)]);
      result.by[2] = a_.share[c.to];
      result.by[0] = -a_.share[c.to];
    }
    index_t const q = rank_of_[c.to];
    double const passed = passed_to(q, add(a_.carried[q], change_of(result, q)), c.from,
                                    add(a_.carried[busiest_], change_of(result, busiest_)));
    result.by[0] = add(result.by[0], passed);
    result.rank[1] = static_cast<std::int32_t>(busiest_);
    result.by[1] = -passed;
    return result;
  }
  /// Returns the load that the most loaded rank, which carries `carried`, passes from a slot to a
  /// new copy on rank `q`, which carries `left`.
  PLIMSOLL_HD double passed_to(index_t q, double left, index_t from, double carried) const {
    double const both = divide(multiply(speed(busiest_), speed(q)), add(speed(busiest_), speed(q)));
    double const more = add(cost(busiest_, carried), -cost(q, left));
    return minimum{}(a_.share[from], maximum{}(multiply(more, both), 0.0));
  }
  /// Returns the slot, on the rank that costs least, of another replica of the expert in a slot.
  PLIMSOLL_HD std::int32_t heir_of(index_t slot) const {
    std::int32_t best = -1;
    double least = 0;
    for (std::int32_t s = a_.first[a_.map[slot]]; s >= 0; s = a_.next[s]) {
      double const now = cost(rank_of_[s], a_.carried[rank_of_[s]]);
      if (s != slot && (best < 0 || now < least)) {
        best = s;
        least = now;
      }
    }
    return best;
  }

  /// Calls f(rank, change of its load) once for every rank whose load changes.
  template <class F>
  PLIMSOLL_HD void visit(effect const& effects, F f) const {
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 2; ++k) {
      std::int32_t const e = k == 0 ? effects.gaining : effects.losing;
      for (std::int32_t s = e < 0 ? -1 : a_.first[e]; s >= 0; s = a_.next[s]) {
        index_t const r = rank_of_[s];
        bool const is_first = first_on(e, r) == s &&
                              (k == 0 || effects.gaining < 0 || first_on(effects.gaining, r) < 0);
        if (is_first) {
          f(r, change_of(effects, r));
        }
      }
    }
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 3; ++k) {
      index_t const r = effects.rank[k];
      bool const is_new = r >= 0 && (k < 1 || effects.rank[0] != r) &&
                          (k < 2 || effects.rank[1] != r) &&
                          (effects.gaining < 0 || first_on(effects.gaining, r) < 0) &&
                          (effects.losing < 0 || first_on(effects.losing, r) < 0);
      if (is_new) {
        f(r, change_of(effects, r));
      }
    }
  }
  PLIMSOLL_HD double change_of(effect const& effects, index_t r) const {
    double sum = 0;
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 3; ++k) {
      sum = effects.rank[k] == r ? add(sum, effects.by[k]) : sum;
    }
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 2; ++k) {
      std::int32_t const e = k == 0 ? effects.gaining : effects.losing;
      double const by = k == 0 ? effects.gaining_by : effects.losing_by;
      for (std::int32_t s = e < 0 ? -1 : a_.first[e]; s >= 0; s = a_.next[s]) {
        sum = rank_of_[s] == r ? add(sum, by) : sum;
      }
    }
    return sum;
  }
  /// Returns the first slot of the expert's list on a rank, or -1.
  PLIMSOLL_HD std::int32_t first_on(std::int32_t e, index_t rank) const {
    std::int32_t s = a_.first[e];
    while (s >= 0 && rank_of_[s] != rank) {
      s = a_.next[s];
    }
    return s;
  }

  // ----- one thread makes a change ---------------------------------------------------------------

  PLIMSOLL_HD void apply(change const& c, path_change* written) const {
    effect const effects = effect_of(c);
    std::int32_t const old = a_.map[c.to];
    std::int32_t const heir =
        is_optimal() && c.kind == change_kind::copy && old >= 0 ? heir_of(c.to) : std::int32_t{-1};
    visit(effects, [this](index_t r, double delta) { a_.carried[r] = add(a_.carried[r], delta); });
    if (c.kind == change_kind::swap) {
      double const share = a_.share[c.to];
      a_.share[c.to] = a_.share[c.from];
      a_.share[c.from] = share;
      hold(c.from, old);
      written[1] = {c.from, old};
      a_.settled[c.from] = old >= 0 ? 1 : 0;
    } else {
      if (heir >= 0) {
        a_.share[heir] = add(a_.share[heir], a_.share[c.to]);
      }
      if (is_optimal()) {
        a_.share[c.to] = -effects.by[1];
        a_.share[c.from] = add(a_.share[c.from], effects.by[1]);
      }
      if (old >= 0) {
        --counts_[old];
      }
      ++counts_[c.expert];
    }
    hold(c.to, c.expert);
    if (c.kind == change_kind::copy && !is_optimal()) {
      divide_evenly(c.expert);
      divide_evenly(old);
    }
    written[0] = {c.to, c.expert};
    a_.settled[c.to] = 1;
  }

  /// Divides the load of an expert evenly among its copies; -1: no expert.
  PLIMSOLL_HD void divide_evenly(std::int32_t e) const {
    for (std::int32_t s = e < 0 ? -1 : a_.first[e]; s >= 0; s = a_.next[s]) {
      a_.share[s] = weight_of(e, counts_[e]);
      a_.next_share[e] = weight_of(e, counts_[e] + 1);
    }
  }

  /// Puts an expert, or none, into a slot.
  PLIMSOLL_HD void hold(std::int32_t slot, std::int32_t e) const {
    std::int32_t const old = a_.map[slot];
    if (old >= 0) {
      std::int32_t* link = a_.first + old;
      while (*link != slot) {
        link = a_.next + *link;
      }
      *link = a_.next[slot];
    }
    a_.map[slot] = e;
    if (e >= 0) {
      a_.next[slot] = a_.first[e];
      a_.first[e] = slot;
      a_.seen[e * words_ + rank_of_[slot] / 64] |= std::uint64_t{1} << rank_of_[slot] % 64;
    }
  }

  // ----- estimate of the optimal split -----------------------------------------------------------

  /// Divides the load of every expert with several copies so that their ranks cost the same, in the
  /// order of experts, `sweeps` times.
  PLIMSOLL_NOINLINE PLIMSOLL_HD void even_out(int sweeps) {
    PLIMSOLL_NO_UNROLL
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      for (index_t e = 0; e < experts_; ++e) {
        if (counts_[e] > 1) {
          team_.single([=, this] { pour(static_cast<std::int32_t>(e)); });
        }
      }
    }
  }
  /// Water-filling of one expert's load. Of several copies on a rank one gets all.
  PLIMSOLL_HD void pour(std::int32_t e) const {
    for (std::int32_t s = a_.first[e]; s >= 0; s = a_.next[s]) {
      a_.carried[rank_of_[s]] = add(a_.carried[rank_of_[s]], -a_.share[s]);
      a_.share[s] = 0;
    }
    auto const load = static_cast<double>(p_.load[e]);
    double level = highest<double>;
    for (index_t before = -1;;) {  // ranks above the level drop out, until none does
      double sum = load;
      double speeds = 0;
      index_t targets = 0;
      for (std::int32_t s = a_.first[e]; s >= 0; s = a_.next[s]) {
        index_t const r = rank_of_[s];
        if (first_on(e, r) == s && cost(r, a_.carried[r]) < level) {
          sum = add(sum, a_.carried[r]);
          speeds = add(speeds, speed(r));
          ++targets;
        }
      }
      if (targets == before || targets == 0) {
        break;
      }
      before = targets;
      level = minimum{}(level, divide(sum, speeds));  // never rises by rounding, so this ends
    }
    for (std::int32_t s = a_.first[e]; s >= 0; s = a_.next[s]) {
      index_t const r = rank_of_[s];
      double const room = add(multiply(level, speed(r)), -a_.carried[r]);
      if (first_on(e, r) == s && room > 0) {
        a_.share[s] = room;
      }
    }
    for (std::int32_t s = a_.first[e]; s >= 0; s = a_.next[s]) {
      a_.carried[rank_of_[s]] = add(a_.carried[rank_of_[s]], a_.share[s]);
    }
  }

  path_rule rule_;
  std::int32_t const* rank_of_;
  std::int32_t* counts_;
  index_t slots_;
  index_t experts_;
  index_t words_;
  move_path_arrays a_;
  double mean_ = 0;
  double peak_ = 0;
  index_t busiest_ = 0;
};

/// Peak of a plan under the even split, and the bound for plans with any counts.
struct judgment {
  double peak = 0;  ///< proven, as in certificates
  double bound = 0;
};

/// Judges a plan cell by cell. `problem` is that of the whole layer, `memory` that of `peak_proof`.
template <class Team>
PLIMSOLL_HD judgment judge(Team& team, scratch memory, packing_problem problem) {
  judgment all;
  index_t const experts = problem.cell.experts;
  index_t const layer = problem.cell.layer;
  for (index_t position = 0; position < problem.where.cells(); ++position) {
    problem.cell = problem.where.cell_at(layer, position, experts);
    packing_result found;
    placed_cell<Team>(team, problem).bound_for_any_counts(found.least);
    found.peak = team.max(problem.cell.ranks, [&problem](index_t r) {
      fixed_load sum = 0;
      for (index_t slot = problem.begin(r); slot < problem.end(r); ++slot) {
        sum += problem.map[slot] < 0 ? 0 : problem.weight(problem.map[slot]);
      }
      return problem.cost(r, sum);
    });
    peak_proof<Team>(team, memory, problem).settle(found);
    all.peak = maximum{}(all.peak, found.peak);
    all.bound = maximum{}(all.bound, found.bound);
  }
  return all;
}

/// Returns the bound of `judge`, without its proof.
template <class Team>
PLIMSOLL_HD double bound_of(Team& team, packing_problem problem) {
  double bound = 0;
  index_t const experts = problem.cell.experts;
  index_t const layer = problem.cell.layer;
  for (index_t position = 0; position < problem.where.cells(); ++position) {
    problem.cell = problem.where.cell_at(layer, position, experts);
    load_bound least;
    bound = maximum{}(bound, placed_cell<Team>(team, problem).bound_for_any_counts(least));
  }
  return bound;
}

/// Computes the peak of a plan under the even split, and its certificate. Problem = layer.
template <class Loads>
struct plan_peak_body {
  using device_team = block<128>;

  Loads loads;
  topology where;
  anti_affinity_rule rule;
  double load_exponent;
  double tolerance;              ///< within which the status says so
  matrix_ref<std::int32_t> map;  ///< `[layers, slots]`
  problem_report const* made;    ///< `[layers]` of the call that made the plan
  problem_report* reports;       ///< `[layers]`; may be `made`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const experts = loads.extent(1);
    index_t const ranks = where.ranks();
    return bytes_taken_by<refinement_arrays>(experts, ranks, where.ranges.slots) +
           maximum{}(plan_reader{where, rule, experts}.scratch_bytes(),
                     2 * scratch_bytes_of<fixed_load>(ranks));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    auto const plan_arrays =
        refinement_arrays::in(memory, experts, where.ranks(), where.ranges.slots);
    auto const row = row_of(map, layer);
    problem_report outcome = made[layer];
    load_scale scale;
    if (!outcome.refused) {
      scale = read_loads(
          team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent,
          plan_arrays.load);
      outcome.refused = scale.refused;
    }
    if (!outcome.refused) {
      outcome.refused =
          plan_reader{where, rule, experts}.read(team, memory, layer, row, plan_arrays).refused;
    }
    if (!outcome.refused) {
      judgment const end =
          judge(team, memory, plan_arrays.problem(where, rule, layer, experts, row, scale));
      outcome.result = certify(end.peak, end.bound, outcome.result.work, scale.shift);
      if (outcome.result.status != certificate_status::optimal &&
          end.peak <= multiply(end.bound, add(1.0, tolerance))) {
        outcome.result.status = certificate_status::within_tolerance;
      }
    }
    team.single([=, this] { reports[layer] = outcome; });
  }
};

/// Body of `refine` with a price for moves; `plan_peak_body` makes the certificates. Problem =
/// layer.
template <class Loads>
struct priced_refinement_body {
  using device_team = block<128>;

  Loads loads;
  topology where;
  anti_affinity_rule rule;
  double load_exponent;
  double tolerance;
  double price;
  bool keeps_counts;
  matrix_ref<std::int32_t> physical_to_logical;
  matrix_ref<std::int32_t> replica_count;
  problem_report* reports;

  struct arrays {
    scratch_ref memory;
    index_t slots;

    path_change* changes = memory.take(2 * slots);
    path_point* points = memory.take(slots + 1);
  };

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const experts = loads.extent(1);
    index_t const ranks = where.ranks();
    index_t const slots = where.ranges.slots;
    return bytes_taken_by<refinement_arrays>(experts, ranks, slots) +
           bytes_taken_by<arrays>(slots) +
           maximum{}(plan_reader{where, rule, experts}.scratch_bytes(),
                     bytes_taken_by<move_path_arrays>(experts, ranks, slots));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    index_t const slots = where.ranges.slots;
    auto const plan_arrays = refinement_arrays::in(memory, experts, where.ranks(), slots);
    arrays const path{memory, slots};
    auto const map = row_of(physical_to_logical, layer);
    load_scale const scale = read_loads(
        team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent,
        plan_arrays.load);
    problem_report outcome = scale.report();
    if (!outcome.refused) {
      outcome = where.refuse(team, layer, experts, plan_arrays.counts);
    }
    if (!outcome.refused) {
      outcome = plan_reader{where, rule, experts}.read(team, memory, layer, map, plan_arrays);
    }
    if (!outcome.refused) {
      packing_problem const problem = plan_arrays.problem(where, rule, layer, experts, map, scale);
      move_path<Team> way(team, memory, problem, plan_arrays.rank_of, plan_arrays.counts,
                          {.split = split_rule::even,
                           .keeps_counts = keeps_counts,
                           .price = price,
                           .target = multiply(bound_of(team, problem), add(1.0, tolerance)),
                           .most_moves = highest<std::int64_t>});
      index_t const points = way.follow(path.changes, path.points);
      std::int32_t const* const found = way.map();
      team.for_each(slots, [=, rank_of = plan_arrays.rank_of](index_t slot) {
        if (rank_of[slot] >= 0) {
          map[slot] = found[slot];
        }
      });
      outcome.result.work = points - 1;
      team.for_each(experts, [=, this, counts = plan_arrays.counts](index_t e) {
        replica_count(layer, e) = counts[e];
      });
    }
    team.single([=, this] { reports[layer] = outcome; });
  }
};

}}}  // namespace plimsoll::detail
