// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `replicate`: d'Hondt apportionment, where the next copy goes to the expert with the
/// largest load per copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Limit on the number of copies, one for all experts or one for each.
struct copy_limits {
  std::int32_t uniform;
  vector_ref<std::int32_t const> each;  ///< empty: uniform

  PLIMSOLL_HD bool is_uniform() const { return each.data == nullptr; }
  PLIMSOLL_HD std::int32_t operator()(index_t expert) const {
    return is_uniform() ? uniform : each[expert];
  }
};

/// Limit on the replica counts that required anti-affinity allows: the replicas of an expert are in
/// different domains (ranks or nodes), and a domain holds at most as many replicas as it has slots.
///
/// Counts c can be placed in this way exactly if, for every j, the j largest of them add up to at
/// most the sum over domains of min(slots, j) (the Gale-Ryser theorem). `slack[j]` is the
/// difference.
struct sharing_limit {
  std::int32_t* slack;         ///< [experts + 1]
  std::int32_t const* copies;  ///< [experts of the layer]

  /// Starts with one copy of each of the cell's experts. Returns whether they fit.
  template <class Team>
  PLIMSOLL_HD bool start(Team& team, topology const& where, cell const& cell,
                         anti_affinity_rule rule) {
    bool const nodes = rule.apart == anti_affinity::node;
    index_t const domains = nodes ? where.nodes : cell.ranks;
    auto const slots_of = [=, &where, &cell](index_t d) {
      index_t const first = nodes ? where.first_rank(d) : cell.first_rank + d;
      index_t const last = nodes ? where.first_rank(d + 1) : first + 1;
      index_t slots = 0;
      for (index_t r = first; r < last; ++r) {
        slots += where.slots_of(cell.layer, r);
      }
      return slots;
    };
    index_t const total = team.sum(domains, slots_of);
    index_t const most = team.max(domains, slots_of);
    auto* const left = slack;
    team.for_each(cell.experts + 1, [=](index_t j) {
      index_t room = j < most ? 0 : total;
      for (index_t d = 0; d < domains && j < most; ++d) {
        room += minimum{}(slots_of(d), j);
      }
      left[j] = static_cast<std::int32_t>(minimum{}(room, index_t{0x7fffffff}) - j);
    });
    return left[cell.experts] >= 0;
  }

  /// Returns whether an expert of the cell may get one more copy; if so, updates the slack for it.
  template <class Team>
  PLIMSOLL_HD bool grant(Team& team, topology const& where, cell const& cell, index_t expert) {
    auto const* const c = copies;
    auto* const left = slack;
    std::int32_t const mine = c[expert];
    index_t const larger = team.count(
        cell.experts, [=, &where, &cell](index_t i) { return c[where.expert_of(cell, i)] > mine; });
    // The expert becomes the first among those with equally many copies, so only the sums of more
    // than `larger` counts grow.
    if (team.any(cell.experts - larger, [=](index_t i) { return left[larger + 1 + i] < 1; })) {
      return false;
    }
    team.for_each(cell.experts - larger, [=](index_t i) { --left[larger + 1 + i]; });
    return true;
  }
};

/// An expert of a cell: its load in fixed point, and the fewest and most copies that it may have.
/// An expert never gets 2^15 copies or more, since the others have at least one each.
struct alignas(16) limited_expert {
  double load;
  std::int32_t expert;
  std::uint16_t least;
  std::uint16_t most;
};

/// Counts the copies that experts have once each has got copies until its share is below a
/// threshold.
class share_threshold {
 public:
  /// Keeps counts below 2^31, for loads below 2^48.
  static constexpr double smallest = 0x1p17;

  /// No share is above the threshold.
  share_threshold() = default;
  /// `share`: an integer of at least `smallest`.
  PLIMSOLL_HD explicit share_threshold(double share) : per_load_(divide(1 + 0x1p-51, share)) {}

  [[nodiscard]] PLIMSOLL_HD double reciprocal() const { return per_load_; }
  /// Rounds load / share down exactly, by one product: `per_load_` is above 1 / share by a fraction
  /// of 2^-52 to 2^-50. So the product reaches an integer c if load >= c * share. For the next
  /// integer c, load is at most c * share - 1, and c * share is below 2^49 or above twice the load,
  /// so the product stays below c by more than its rounding.
  [[nodiscard]] PLIMSOLL_HD std::int32_t copies(limited_expert const& expert) const {
    auto const copies = static_cast<std::int32_t>(multiply(expert.load, per_load_)) + 1;
    return maximum{}(std::int32_t{expert.least}, minimum{}(copies, std::int32_t{expert.most}));
  }

 private:
  double per_load_ = 0;
};

/// The working memory of `replication_body`.
struct replication_arrays {
  scratch_ref memory;
  index_t experts;
  bool is_apart;

  fixed_load* load = memory.take(experts);
  std::uint64_t* keys = memory.take(experts);
  limited_expert* in_cell = memory.take(experts);
  std::int32_t* copies = memory.take(experts);
  std::int32_t* slack = memory.take_if(is_apart, experts + 1);  ///< with required anti-affinity
};

/// Body of `replicate`. Problem = layer. Without a topology the layer has `slots` slots; with one
/// each cell has the slots of its ranks.
template <class Loads>
struct replication_body {
  using device_team = warp;

  Loads loads;
  index_t slots;
  topology where;  ///< 0 ranks: no topology
  anti_affinity_rule rule;
  copy_limits least;
  copy_limits most;
  double load_exponent;
  matrix_ref<std::int32_t> replica_count;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<replication_arrays>(loads.extent(1), rule.required);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    problem_report* const report = reports + layer;
    replication_arrays const arrays{memory, experts, rule.required};
    auto* const load = arrays.load;
    auto* const copies = arrays.copies;
    load_scale const scale = read_loads(
        team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent, load);
    problem_report outcome = scale.report();
    if (!outcome.refused) {
      outcome = refuse_limits(team, experts);
    }
    if (!outcome.refused && where.ranks() > 0) {
      outcome = where.refuse(team, layer, experts, copies);
    }
    if (!outcome.refused) {
      if (scale.is_zero) {
        equalize_loads(team, experts, load);
      }
      if (rule.required) {
        team.for_each(experts, [=](index_t e) { copies[e] = 1; });
      }
      packing_counts all;
      for (index_t position = 0; position < cells() && !outcome.refused; ++position) {
        outcome = replicate(team, cell_at(layer, position), arrays, all);
      }
      if (!outcome.refused) {
        team.for_each(experts, [=, this](index_t e) { replica_count(layer, e) = copies[e]; });
        bool const proven = is_best(team, load, copies, all.peak, scale.is_rounded ? 1 : 0);
        double const bound = from_fixed(all.peak, scale.shift);
        outcome.result = scale.is_zero ? certificate{0, 0, all.given, certificate_status::optimal}
                         : proven
                             ? certificate{bound, bound, all.given, certificate_status::optimal}
                             : certificate{from_fixed(all.peak + 1, scale.shift), bound, all.given,
                                           certificate_status::feasible};
      }
    }
    team.single([=] { *report = outcome; });
  }

 private:
  struct packing_counts {
    fixed_load peak = 0;
    index_t given = 0;
  };

  PLIMSOLL_HD index_t cells() const { return where.ranks() == 0 ? 1 : where.cells(); }
  PLIMSOLL_HD cell cell_at(index_t layer, index_t position) const {
    index_t const experts = loads.extent(1);
    return where.ranks() == 0 ? cell{layer, 0, 0, 0, experts}
                              : where.cell_at(layer, position, experts);
  }
  template <class Team>
  PLIMSOLL_HD index_t slots_of(Team& team, cell const& cell) const {
    if (where.ranks() == 0) {
      return slots;
    }
    if (where.active.data == nullptr) {
      return where.begin(cell.layer, cell.first_rank + cell.ranks) -
             where.begin(cell.layer, cell.first_rank);
    }
    return team.sum(cell.ranks, [this, &cell](index_t r) {
      return where.slots_of(cell.layer, cell.first_rank + r);
    });
  }

  /// Chooses the copies of one cell's experts.
  template <class Team>
  PLIMSOLL_HD problem_report replicate(Team& team, cell const& cell,
                                       replication_arrays const& arrays,
                                       packing_counts& all) const {
    auto const* const load = arrays.load;
    auto* const keys = arrays.keys;
    auto* const in_cell = arrays.in_cell;
    auto* const copies = arrays.copies;
    sharing_limit apart{arrays.slack, copies};
    index_t const n = cell.experts;
    index_t const cell_slots = slots_of(team, cell);
    index_t const node = cells() == 1 ? index_t{-1} : where.node_of(cell.first_rank);
    auto const total = [&](copy_limits const& limit) {
      return limit.is_uniform()
                 ? n * limit.uniform
                 : team.sum(n, [&](index_t i) { return index_t{limit(where.expert_of(cell, i))}; });
    };
    index_t const fewest = total(least);
    if (fewest > cell_slots) {
      return refusal(fault_kind::floors, node, fewest, cell_slots);
    }
    if (rule.required) {
      if (!apart.start(team, where, cell, rule) || !reach_floors(team, cell, apart, copies)) {
        return refusal(fault_kind::floors_apart, node, fewest);
      }
    } else if (index_t const greatest = total(most); n > 0 && greatest < cell_slots) {
      // Slots of a node without experts stay free.
      return refusal(fault_kind::caps, node, greatest);
    }
    fixed_load const whole = team.sum(n, [=, this, &cell](index_t i) {
      index_t const e = where.expert_of(cell, i);
      in_cell[i] = {static_cast<double>(load[e]), static_cast<std::int32_t>(e),
                    static_cast<std::uint16_t>(rule.required ? copies[e] : least(e)),
                    static_cast<std::uint16_t>(minimum{}(most(e), std::int32_t{0xffff}))};
      return load[e];
    });
    auto held = static_cast<std::int32_t>(fewest);
    share_threshold threshold;
    if (!rule.required && whole > 0) {
      threshold = find_threshold(team, in_cell, n, static_cast<double>(whole), cell_slots, held);
    }
    team.for_each(n, [=](index_t i) {
      limited_expert const limited = in_cell[i];
      std::int32_t const count = threshold.copies(limited);
      copies[limited.expert] = count;
      keys[i] = heavier_first(share(static_cast<fixed_load>(limited.load), count), i);
    });
    auto heaviest = team.queue(keys, n);
    while (held < cell_slots && !heaviest.empty()) {
      std::uint64_t const key = heaviest.top();
      auto const i = static_cast<std::uint32_t>(id_of(key));
      limited_expert const limited = in_cell[i];
      std::int32_t* const count = copies + limited.expert;
      std::int32_t const more = *count + 1;
      // An expert refused once can be dropped: the slack only shrinks.
      if (more > limited.most ||
          (rule.required && !apart.grant(team, where, cell, limited.expert))) {
        all.peak = maximum{}(all.peak, heavy_load_of(key));
        heaviest.pop();
        continue;
      }
      team.single([=] { *count = more; });
      heaviest.replace_top(heavier_first(share(static_cast<fixed_load>(limited.load), more), i));
      ++held;
    }
    if (!heaviest.empty()) {
      all.peak = maximum{}(all.peak, heavy_load_of(heaviest.top()));
    }
    all.given += held - fewest;
    return problem_report{};
  }

  /// Finds a threshold at which the experts of a cell together have at most `cell_slots` copies,
  /// and few less. Updates `held`, the number of their copies.
  ///
  /// Each copy goes to the expert with the largest share, whose share does not grow. So copies for
  /// shares of at least the threshold come before all others, and if the slots are enough for them,
  /// the order among them changes nothing: they can be given at once.
  ///
  /// The number of copies is a nearly linear function of the threshold's reciprocal. The Illinois
  /// method, a bracketed secant method, searches for one copy less than `cell_slots`.
  template <class Team>
  PLIMSOLL_HD static share_threshold find_threshold(Team& team, limited_expert const* in_cell,
                                                    index_t n, double whole, index_t cell_slots,
                                                    std::int32_t& held) {
    // About as many are given one by one in the time of a round, and one is always missing.
    index_t const few = Team::is_serial ? n / 8 + 1 : 4;
    auto const aim = static_cast<std::int32_t>(cell_slots) - 1;
    share_threshold result;
    double low = 0;
    double high = divide(1.5 * aim, whole);  // unless maxima bind, with over 1.5 * aim copies
    double missing = aim - held;             // at `low`
    double excess = 0.5 * aim;               // at `high`
    int last = 0;
    PLIMSOLL_NO_UNROLL
    for (int rounds = 8; rounds > 0 && cell_slots - held > few; --rounds) {
      double const share =
          divide(missing + excess, mul_then_add(low, excess, multiply(high, missing)));
      share_threshold const next(maximum{}(static_cast<double>(static_cast<std::int64_t>(share)),
                                           share_threshold::smallest));
      // Reads four experts at a time, so that a GPU waits for them together.
      auto const experts = static_cast<std::uint32_t>(n);
      std::uint32_t const quarter = (experts + 3) / 4;
      std::int32_t const copies = team.sum(quarter, [=](index_t i) {
        std::int32_t sum = 0;
        for (std::uint32_t k = 0; k < 4; ++k) {
          std::uint32_t const j = static_cast<std::uint32_t>(i) + k * quarter;
          sum += j < experts ? next.copies(in_cell[j]) : 0;
        }
        return sum;
      });
      if (copies <= cell_slots) {
        result = next;
        held = copies;
        low = next.reciprocal();
        missing = aim - copies;
        excess = last < 0 ? 0.5 * excess : excess;
        last = -1;
      } else {
        high = next.reciprocal();
        excess = copies - aim;
        missing = last > 0 ? 0.5 * missing : missing;
        last = 1;
      }
    }
    return result;
  }

  /// True if the counts are proven optimal for the loads as given. To relieve the heaviest expert,
  /// another would have to give up a copy that it got for being at least as heavy, by weights
  /// rounded down. Here load / copies is compared exactly, with the most that the heaviest experts
  /// may weigh. The part above `peak`, in units of 2^-31, distinguishes fractions with denominators
  /// below 2^15. `error`: every load was rounded down by less.
  template <class Team>
  PLIMSOLL_HD bool is_best(Team& team, fixed_load const* load, std::int32_t const* copies,
                           fixed_load peak, fixed_load error) const {
    index_t const experts = loads.extent(1);
    // Returns how far `whole` is above parts * peak, at most one unit for each part. Experts of
    // lighter cells get the most: a copy that they give up does not help the heaviest cell.
    auto const beyond = [=](fixed_load whole, std::int32_t parts) {
      auto const n = static_cast<fixed_load>(parts);
      return whole < peak * n ? n : minimum{}(whole - peak * n, n);
    };
    fixed_load const largest = team.max(experts, [=](index_t e) {
      std::int32_t const n = copies[e];
      bool const is_heaviest = load[e] >= peak * static_cast<fixed_load>(n);
      return is_heaviest
                 ? divide_floor(beyond(load[e] + error, n) << 31, static_cast<std::uint32_t>(n))
                 : fixed_load{0};
    });
    return largest == 0 || !team.any(experts, [=, this](index_t e) {
      std::int32_t const fewer = copies[e] - 1;
      // One unit or more above `peak` for each copy, 2^31, is never below `largest`.
      return copies[e] > least(e) &&
             beyond(load[e], fewer) << 31 < largest * static_cast<fixed_load>(fewer);
    });
  }

  template <class Team>
  PLIMSOLL_HD bool reach_floors(Team& team, cell const& cell, sharing_limit apart,
                                std::int32_t* copies) const {
    for (index_t i = 0; i < cell.experts; ++i) {
      index_t const e = where.expert_of(cell, i);
      for (std::int32_t more = 2; more <= least(e); ++more) {
        if (!apart.grant(team, where, cell, e)) {
          return false;
        }
        team.single([=] { copies[e] = more; });
      }
    }
    return true;
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse_limits(Team& team, index_t experts) const {
    index_t const checked =
        least.is_uniform() && most.is_uniform() ? minimum{}(experts, index_t{1}) : experts;
    index_t const low =
        team.min(checked, [=, this](index_t e) { return least(e) < 1 ? e : experts; });
    if (low < experts) {
      return refusal(fault_kind::floor, low, least(low));
    }
    index_t const crossed =
        team.min(checked, [=, this](index_t e) { return most(e) < least(e) ? e : experts; });
    if (crossed < experts) {
      return refusal(fault_kind::cap_below_floor, crossed, most(crossed));
    }
    return problem_report{};
  }
};

}}}  // namespace plimsoll::detail
