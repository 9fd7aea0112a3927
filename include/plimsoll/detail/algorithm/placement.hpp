// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `place` and `place_groups`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/numbered_slots.hpp>
#include <plimsoll/detail/common/packing.hpp>
#include <plimsoll/detail/common/peak_proof.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Makes a certificate from costs in fixed point.
PLIMSOLL_HD inline certificate certify(double peak, double bound, std::int64_t work, int shift) {
  return certificate{scale_by_power_of_two(peak, -shift), scale_by_power_of_two(bound, -shift),
                     work,
                     peak == bound ? certificate_status::optimal : certificate_status::feasible};
}

/// Refuses replica counts below 1 or above the limit, and more replicas in a cell than it has
/// slots. `table`: the slots of the layer's ranks.
template <class Team>
PLIMSOLL_HD problem_report refuse_copies(Team& team, vector_ref<std::int32_t const> copies,
                                         topology const& where, index_t layer,
                                         slot_table const& table) {
  auto const experts = static_cast<std::int32_t>(copies.extent(0));
  index_t const unusable = team.min(experts, [=](index_t e) {
    return copies[e] >= 1 && copies[e] <= rank_limit ? experts : static_cast<std::int32_t>(e);
  });
  if (unusable < experts) {
    return refusal(fault_kind::copies, unusable, copies[unusable]);
  }
  // Sums of 32 bits take fewer instructions.
  static_assert(expert_limit * rank_limit <= highest<std::int32_t>);
  for (index_t position = 0; position < where.cells(); ++position) {
    cell const part = where.cell_at(layer, position, experts);
    index_t const total = team.sum(part.experts, [&where, part, copies](index_t i) {
      return copies[where.expert_of(part, i)];
    });
    index_t const slots = team.sum(part.ranks, [part, table](index_t r) {
      return table.end[part.first_rank + r] - table.begin[part.first_rank + r];
    });
    if (total > slots) {
      return refusal(fault_kind::copies_total, where.cells() == 1 ? index_t{-1} : position, total);
    }
  }
  return problem_report{};
}

/// The working memory of `placement_body`; that of `packer` follows.
struct placement_arrays {
  fixed_load* load;          ///< `[experts]`
  std::int32_t* slot_begin;  ///< `[ranks]`
  std::int32_t* slot_end;    ///< `[ranks]`

  PLIMSOLL_HD static placement_arrays in(scratch& memory, index_t experts, index_t ranks) {
    placement_arrays result{};
    memory.take(result.load, experts);
    memory.take(result.slot_begin, ranks);
    memory.take(result.slot_end, ranks);
    return result;
  }
};

/// Body of `place`. Problem = layer.
template <class Loads>
struct placement_body {
  using device_team = warp;

  Loads loads;
  matrix_ref<std::int32_t const> replica_count;
  topology where;
  anti_affinity_rule rule;
  double load_exponent;
  matrix_ref<std::int32_t> physical_to_logical;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<placement_arrays>(loads.extent(1), where.ranks()) +
           bytes_taken_by<packing_arrays>(loads.extent(1), where.ranks(), where.ranges.slots, rule);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    problem_report* const report = reports + layer;
    auto const arrays = placement_arrays::in(memory, experts, where.ranks());
    auto* const load = arrays.load;
    auto* const slot_begin = arrays.slot_begin;
    auto* const slot_end = arrays.slot_end;
    load_scale const scale = read_loads(
        team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent, load);
    auto* const found = scratch(memory).take<std::int32_t>(experts);  // before the packer's arrays
    auto const copies = row_of(replica_count, layer);
    problem_report outcome = scale.report();
    if (!outcome.refused) {
      outcome = where.refuse(team, layer, experts, found);
    }
    slot_table const slots{slot_begin, slot_end};
    if (!outcome.refused) {
      team.for_each(where.ranks(), [=, this](index_t r) {
        slot_begin[r] = static_cast<std::int32_t>(where.begin(layer, r));
        slot_end[r] = static_cast<std::int32_t>(where.end(layer, r));
      });
      outcome = refuse_copies(team, copies, where, layer, slots);
    }
    if (outcome.refused) {
      team.single([=] { *report = outcome; });
      return;
    }
    if (scale.is_zero) {
      if (is_numbered(team, layer, copies)) {
        index_t const placed = ranked_slots(where, layer);
        number_slots(team, experts, placed, row_of(physical_to_logical, layer));
        team.single([=] { *report = problem_report{certify(0, 0, placed, 0)}; });
        return;
      }
      equalize_loads(team, experts, load);
    }

    auto const map = row_of(physical_to_logical, layer);
    packing_problem problem{.load = load,
                            .copies = copies,
                            .where = where,
                            .slots = slots,
                            .cell = {},
                            .rule = rule,
                            .map = map,
                            .load_error = fixed_load{scale.is_rounded}};
    packing_result const all = pack_cells(team, memory, problem, layer);
    if (all.unplaced >= 0) {
      team.single([=] {
        *report = refusal(fault_kind::no_room_apart, all.unplaced, copies[all.unplaced]);
      });
      return;
    }
    where.clear_unusable(team, layer, map);
    team.single([=] {
      *report =
          problem_report{scale.is_zero ? certify(0, 0, all.placed, 0)
                                       : certify(all.peak, all.bound, all.placed, scale.shift)};
    });
  }

 private:
  /// Returns whether the layer's counts are those of slot i holding expert i mod experts, and no
  /// constraint forbids that.
  template <class Team>
  PLIMSOLL_HD bool is_numbered(Team& team, index_t layer,
                               vector_ref<std::int32_t const> copies) const {
    index_t const experts = copies.extent(0);
    index_t const slots = ranked_slots(where, layer);
    return may_number_slots(team, where, layer, experts, rule.apart) &&
           !team.any(experts,
                     [=](index_t e) { return copies[e] != numbered_copies(slots, experts, e); });
  }

  /// Packs every cell of the layer, each as `problem.cell`. Returns the peak, the bound and the
  /// number of replicas over all cells. Stops at a cell that required anti-affinity leaves
  /// incomplete.
  template <class Team>
  PLIMSOLL_HD packing_result pack_cells(Team& team, scratch memory, packing_problem& problem,
                                        index_t layer) const {
    index_t const experts = loads.extent(1);
    packing_result all;
    for (index_t position = 0; position < where.cells(); ++position) {
      problem.cell = where.cell_at(layer, position, experts);
      packing_result found = packer<Team>(team, memory, problem, experts).pack();
      if (found.unplaced >= 0) {
        all.unplaced = found.unplaced;
        break;
      }
      peak_proof<Team>(team, memory, problem).settle(found);
      all.peak = maximum{}(all.peak, found.peak);
      all.bound = maximum{}(all.bound, found.bound);
      all.placed += found.placed;
    }
    return all;
  }
};

/// The working memory of `group_placement_body`; that of `packer` follows.
struct group_placement_arrays {
  fixed_load* of_expert;       ///< `[experts]` load of each expert
  fixed_load* load;            ///< `[groups]`
  std::int32_t* found;         ///< `[experts]`
  std::int32_t* group_copies;  ///< `[groups]` copies of each group
  double* speeds;              ///< `[nodes]`
  std::int32_t* offsets;       ///< `[nodes + 1]` start of each node's places
  std::int32_t* held;  ///< `[nodes + 1]` slots of each node, later the groups of earlier nodes
  std::int32_t* map;   ///< `[places]` group in each place

  PLIMSOLL_HD static group_placement_arrays in(scratch& memory, index_t experts, index_t groups,
                                               index_t nodes, index_t places) {
    group_placement_arrays result{};
    memory.take(result.of_expert, experts);
    memory.take(result.load, groups);
    memory.take(result.found, experts);
    memory.take(result.group_copies, groups);
    memory.take(result.speeds, nodes);
    memory.take(result.offsets, nodes + 1);
    memory.take(result.held, nodes + 1);
    memory.take(result.map, places);
    return result;
  }
};

/// Body of `place_groups`. Problem = layer.
template <class Loads>
struct group_placement_body {
  using device_team = warp;

  Loads loads;
  index_t groups;
  topology where;  ///< without node lists, which are the output
  double load_exponent;
  matrix_ref<std::int32_t> node_experts;
  matrix_ref<std::int32_t> node_offsets;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<group_placement_arrays>(loads.extent(1), groups, where.nodes,
                                                  most_places()) +
           bytes_taken_by<packing_arrays>(groups, where.nodes, most_places(), anti_affinity_rule{});
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    index_t const size = experts / groups;
    problem_report* const report = reports + layer;
    auto const arrays =
        group_placement_arrays::in(memory, experts, groups, where.nodes, most_places());
    load_scale const scale = read_loads(
        team, experts, [this, layer](index_t e) { return loads(layer, e); }, load_exponent,
        arrays.of_expert);
    problem_report outcome = scale.report();
    if (!outcome.refused) {
      outcome = where.refuse(team, layer, experts, arrays.found);
    }
    if (outcome.refused) {
      team.single([=] { *report = outcome; });
      return;
    }

    if (scale.is_zero) {
      equalize_loads(team, experts, arrays.of_expert);
    }
    sum_groups(team, arrays);
    double const fastest = sum_nodes(team, layer, arrays);
    bool const alike = !team.any(where.nodes, [=, speeds = arrays.speeds](index_t n) {
      if (speeds[n] == 0) {
        speeds[n] = fastest;  // a node without slots gets no group anyway
      }
      return speeds[n] != fastest;
    });
    index_t const places = share_places(team, arrays.held, size, arrays.offsets);
    if (places < groups) {
      team.single([=] { *report = refusal(fault_kind::group_places, -1, places); });
      return;
    }

    topology const nodes = nodes_as_ranks(alike ? nullptr : arrays.speeds);
    bool const rounded = scale.is_rounded;
    packing_problem const problem{
        .load = arrays.load,
        .copies = vector_ref<std::int32_t const>(arrays.group_copies, groups),
        .where = nodes,
        .slots = {arrays.offsets, arrays.offsets + 1},
        .cell = nodes.cell_at(0, 0, groups),
        .rule = {},
        .map = vector_ref<std::int32_t>(arrays.map, places),
        .load_error = static_cast<fixed_load>(rounded ? size : 0)};
    packing_result packed = packer<Team>(team, memory, problem, groups).pack();
    peak_proof<Team>(team, memory, problem).settle(packed);
    write_lists(team, layer, size, arrays);

    // Loads per unit of speed of a node's ranks, which no placement inside a node can improve.
    double const speed = alike ? fastest : 1.0;
    bool const is_proven = packed.peak == packed.bound;
    team.single([=] {
      double const peak = rounded ? divide_up(packed.peak, speed) : divide(packed.peak, speed);
      double const bound = is_proven ? peak : divide_down(packed.bound, speed);
      *report = problem_report{scale.is_zero ? certify(0, 0, packed.placed, 0)
                                             : certify(peak, bound, packed.placed, scale.shift)};
    });
  }

 private:
  PLIMSOLL_HD index_t most_places() const {
    return groups + where.nodes + where.ranges.slots / (loads.extent(1) / groups);
  }
  PLIMSOLL_HD topology nodes_as_ranks(double const* speeds) const {
    topology nodes{{{}, 0, where.nodes}};
    nodes.speeds = vector_ref<double const>(speeds, where.nodes);
    return nodes;
  }

  /// Sums the loads of the experts of each group. Every group has one copy.
  template <class Team>
  PLIMSOLL_HD void sum_groups(Team& team, group_placement_arrays const& arrays) const {
    index_t const size = loads.extent(1) / groups;
    team.for_each(groups, [=](index_t g) {
      fixed_load sum = 0;
      for (index_t e = g * size; e < (g + 1) * size; ++e) {
        sum += arrays.of_expert[e];
      }
      arrays.load[g] = sum;
      arrays.group_copies[g] = 1;
    });
  }

  /// Sums the slots of each node into `held`, and the speeds of its ranks that have slots. Returns
  /// the speed of the fastest node.
  template <class Team>
  PLIMSOLL_HD double sum_nodes(Team& team, index_t layer,
                               group_placement_arrays const& arrays) const {
    auto* const speeds = arrays.speeds;
    team.for_each(where.nodes, [=, this, node_slots = arrays.held](index_t n) {
      index_t slots = 0;
      double speed = 0;
      for (index_t r = where.first_rank(n); r < where.first_rank(n + 1); ++r) {
        index_t const more = where.slots_of(layer, r);
        slots += more;
        speed = add(speed, more > 0 ? where.speed(r) : 0.0);
      }
      node_slots[n] = static_cast<std::int32_t>(slots);
      speeds[n] = speed;
    });
    return team.max(where.nodes, [=](index_t n) { return speeds[n]; });
  }

  /// Gives every node capacity for groups: its share in proportion to its slots, rounded up, but no
  /// more than fit; if these capacities do not hold all groups, as many as fit. Returns the total
  /// capacity.
  template <class Team>
  PLIMSOLL_HD index_t share_places(Team& team, std::int32_t const* node_slots, index_t size,
                                   std::int32_t* offsets) const {
    index_t const slots = team.sum(where.nodes, [=](index_t n) { return index_t{node_slots[n]}; });
    auto const fit = [=](index_t n) { return node_slots[n] / size; };
    auto const share = [=, this](index_t n) {
      index_t const even_share = (groups * node_slots[n] + slots - 1) / (slots > 0 ? slots : 1);
      return minimum{}(even_share, fit(n));
    };
    bool const fits_evenly = team.sum(where.nodes, share) >= groups;
    auto const places = [=, this](index_t n) {
      return static_cast<std::int32_t>(n == where.nodes ? 0 : (fits_evenly ? share(n) : fit(n)));
    };
    return team.exclusive_scan(where.nodes + 1, places, offsets);
  }

  /// Counts the groups on each node, then writes their experts in order.
  template <class Team>
  PLIMSOLL_HD void write_lists(Team& team, index_t layer, index_t size,
                               group_placement_arrays const& arrays) const {
    auto const* const offsets = arrays.offsets;
    auto const* const map = arrays.map;
    auto* const held = arrays.held;
    team.exclusive_scan(
        where.nodes + 1,
        [=, this](index_t n) {
          std::int32_t count = 0;
          while (n < where.nodes && offsets[n] + count < offsets[n + 1] &&
                 map[offsets[n] + count] >= 0) {
            ++count;
          }
          return count;
        },
        held);
    team.for_each(where.nodes + 1, [=, this](index_t n) {
      node_offsets(layer, n) = static_cast<std::int32_t>(held[n] * size);
      for (index_t i = held[n]; n < where.nodes && i < held[n + 1]; ++i) {
        index_t const group = map[offsets[n] + i - held[n]];
        for (index_t e = 0; e < size; ++e) {
          node_experts(layer, i * size + e) = static_cast<std::int32_t>(group * size + e);
        }
      }
    });
  }
};

}}}  // namespace plimsoll::detail
