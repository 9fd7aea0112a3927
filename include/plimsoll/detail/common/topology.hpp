// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks with their slots, speeds and liveness, grouped into nodes, as bodies take them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Anti-affinity of replicas, as bodies take it.
struct anti_affinity_rule {
  anti_affinity apart = anti_affinity::none;
  bool required = false;
};

/// Returns one row of a matrix.
template <class T>
PLIMSOLL_HD vector_ref<T> row_of(matrix_ref<T> const& matrix, index_t row) {
  vector_ref<T> result;
  result.data = matrix.data + row * matrix.strides[0];
  result.extents[0] = matrix.extents[1];
  result.strides[0] = matrix.strides[1];
  return result;
}

/// Returns the matrix without the rows before `row`.
template <class T>
PLIMSOLL_HD matrix_ref<T> rows_from(matrix_ref<T> matrix, index_t row) {
  matrix.data += row * matrix.strides[0];
  matrix.extents[0] -= row;
  return matrix;
}

/// Range of slots of each rank. Without offsets slots are spread evenly: rank r begins at
/// floor(r * slots / ranks). Slots past the last rank's end belong to no rank.
struct slot_ranges {
  matrix_ref<std::int32_t const> offsets;  ///< `[layers, ranks + 1]` or empty
  index_t slots = 0;
  index_t ranks = 0;
  even_split spread = {slots, ranks};  ///< follows from the two: they are set together, once
  static_assert(rank_limit < 65536, "even_split is exact for fewer than 2^16 parts");

  PLIMSOLL_HD index_t begin(index_t layer, index_t rank) const {
    return offsets.data == nullptr ? spread.begin(rank) : offsets(layer, rank);
  }
  PLIMSOLL_HD index_t end(index_t layer, index_t rank) const { return begin(layer, rank + 1); }

  /// Returns the first rank whose offsets do not rise within [0, slots], or `ranks`.
  template <class Team>
  PLIMSOLL_HD index_t first_fault(Team& team, index_t layer) const {
    return offsets.data == nullptr ? ranks : team.min(ranks, [this, layer](index_t r) {
      bool const first = r > 0 || begin(layer, 0) == 0;
      return first && begin(layer, r) <= end(layer, r) && end(layer, r) <= slots ? ranks : r;
    });
  }
};

/// A range of ranks and the experts that are placed on them, independently of the rest of the
/// layer.
struct cell {
  index_t layer;
  index_t first_rank;
  index_t ranks;
  index_t first_expert;  ///< position in the layer's row of `node_experts`; 0 without node lists
  index_t experts;
};

/// Ranks of a layer, numbered node by node. With node lists each node is a cell; without them the
/// whole layer is one cell.
struct topology {
  slot_ranges ranges;
  index_t nodes = 1;
  vector_ref<std::uint8_t const> active = {};        ///< `[ranks]` or empty
  vector_ref<double const> speeds = {};              ///< `[ranks]` or empty
  matrix_ref<std::int32_t const> node_experts = {};  ///< `[layers, experts]` or empty
  matrix_ref<std::int32_t const> node_offsets = {};  ///< `[layers, nodes + 1]` or empty
  even_split node_ranks = {ranges.ranks, nodes};     ///< follows from the two, likewise

  PLIMSOLL_HD index_t ranks() const { return ranges.ranks; }
  PLIMSOLL_HD index_t first_rank(index_t node) const { return node_ranks.begin(node); }
  PLIMSOLL_HD index_t node_of(index_t rank) const {
    return ranges.spread.over_parts((rank + 1) * nodes - 1);
  }

  PLIMSOLL_HD bool is_active(index_t rank) const { return active.data == nullptr || active[rank]; }
  PLIMSOLL_HD index_t begin(index_t layer, index_t rank) const { return ranges.begin(layer, rank); }
  /// End of the usable slots of a rank; a dead rank has none.
  PLIMSOLL_HD index_t end(index_t layer, index_t rank) const {
    return is_active(rank) ? ranges.end(layer, rank) : ranges.begin(layer, rank);
  }
  PLIMSOLL_HD index_t slots_of(index_t layer, index_t rank) const {
    return end(layer, rank) - begin(layer, rank);
  }

  PLIMSOLL_HD double speed(index_t rank) const {
    return speeds.data == nullptr ? 1.0 : speeds[rank];
  }
  /// Cost of a load on a rank: load / speed, one correctly rounded division, so it is the same on
  /// every machine.
  PLIMSOLL_HD double cost(index_t rank, fixed_load load) const {
    auto const whole = static_cast<double>(load);
    return speeds.data == nullptr ? whole : divide(whole, speeds[rank]);
  }

  PLIMSOLL_HD index_t cells() const { return node_experts.data == nullptr ? 1 : nodes; }
  PLIMSOLL_HD cell cell_at(index_t layer, index_t position, index_t experts) const {
    if (node_experts.data == nullptr) {
      return cell{layer, 0, ranks(), 0, experts};
    }
    index_t const rank = first_rank(position);
    index_t const expert = node_offsets(layer, position);
    return cell{layer, rank, first_rank(position + 1) - rank, expert,
                node_offsets(layer, position + 1) - expert};
  }
  PLIMSOLL_HD index_t expert_of(cell const& c, index_t i) const {
    return node_experts.data == nullptr ? i : node_experts(c.layer, c.first_expert + i);
  }

  /// Marks the slots of dead ranks, and those of no rank, as empty.
  template <class Team>
  PLIMSOLL_HD void clear_unusable(Team& team, index_t layer, vector_ref<std::int32_t> map) const {
    if (active.data != nullptr) {
      team.for_each(ranks(), [this, layer, map](index_t r) {
        for (index_t slot = end(layer, r); slot < ranges.end(layer, r); ++slot) {
          map[slot] = -1;
        }
      });
    }
    index_t const last = ranges.end(layer, ranks() - 1);
    team.for_each(ranges.slots - last, [=](index_t i) { map[last + i] = -1; });
  }

  /// Checks offsets, speeds and node lists of a layer. `found` is scratch for all experts.
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, index_t layer, index_t experts,
                                    std::int32_t* found) const {
    index_t const rank = ranges.first_fault(team, layer);
    if (rank < ranks()) {
      return refusal(fault_kind::rank_offsets, rank, ranges.end(layer, rank));
    }
    if (speeds.data != nullptr) {
      problem_report const outcome =
          refuse_speeds(team, speeds, ranks(), [this](index_t r) { return is_active(r); });
      if (outcome.refused) {
        return outcome;
      }
    }
    if (node_experts.data != nullptr) {
      index_t const node = team.min(nodes, [=, this](index_t n) {
        bool const first = n > 0 || node_offsets(layer, 0) == 0;
        bool const last = n < nodes - 1 || node_offsets(layer, nodes) == experts;
        return first && last && node_offsets(layer, n) <= node_offsets(layer, n + 1) ? nodes : n;
      });
      if (node < nodes) {
        return refusal(fault_kind::node_offsets, node, node_offsets(layer, node + 1));
      }
      team.histogram(
          experts,
          [=, this](index_t i) {
            auto const expert = node_experts(layer, i);
            return expert < experts ? expert : -1;
          },
          found, experts);
      index_t const missing =
          team.min(experts, [=](index_t e) { return found[e] == 0 ? e : experts; });
      if (missing < experts) {
        return refusal(fault_kind::node_experts, missing, 0);
      }
    }
    return problem_report{};
  }

  /// Speeds outside this range count as input errors; within it no cost overflows.
  static constexpr double least_speed = 0x1p-64;
  static constexpr double greatest_speed = 0x1p64;
  /// A live rank slower than this fraction of the fastest counts as an input error too: the
  /// rounding of loads would no longer be negligible in its cost.
  static constexpr double least_relative_speed = 0x1p-16;

  /// Refuses the first speed out of range. Speeds of ranks for which `lives` holds must also be in
  /// range relative to the fastest of these ranks.
  template <class Team, class Lives>
  PLIMSOLL_HD static problem_report refuse_speeds(Team& team, vector_ref<double const> speed,
                                                  index_t ranks, Lives lives) {
    index_t const absurd = team.min(ranks, [=](index_t r) {
      return speed[r] >= least_speed && speed[r] <= greatest_speed ? ranks : r;
    });
    if (absurd < ranks) {
      return refusal(fault_kind::speed, absurd, speed[absurd]);
    }
    double const fastest = team.max(ranks, [=](index_t r) { return lives(r) ? speed[r] : 0.0; });
    double const least = multiply(fastest, least_relative_speed);
    index_t const slow =
        team.min(ranks, [=](index_t r) { return !lives(r) || speed[r] >= least ? ranks : r; });
    if (slow < ranks) {
      index_t first = 0;  // of the fastest
      while (!lives(first) || speed[first] < fastest) {
        ++first;
      }
      return refusal(fault_kind::relative_speed, slow, speed[slow], first);
    }
    return problem_report{};
  }
};

}}}  // namespace plimsoll::detail
