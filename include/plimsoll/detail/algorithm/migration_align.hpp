// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `align`, `count_changes` and `changed_layers`.
///
/// The weight of a new rank and an old label counts the experts that both hold; it is largest over
/// all labels where the fewest experts move. An assignment of largest weight is found by shortest
/// augmenting paths (Jonker and Volgenant), which leave the dual variables that prove it. With
/// nodes there are two levels: the assignment of the ranks for each pair of nodes, then that of the
/// nodes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

// ----- assignment --------------------------------------------------------------------------------

/// Weight of a pair that must not be assigned. No sum of overlaps makes it positive.
inline constexpr std::int64_t forbidden_pair = -(std::int64_t{1} << 62);

/// Result of an assignment problem.
struct assignment_outcome {
  std::int64_t weight = 0;
  std::int64_t bound = 0;  ///< no assignment has a larger weight
  std::int64_t scans = 0;  ///< rows scanned by the searches for paths
};

/// Scratch of an assignment of `n` rows to `n` columns.
struct assignment_arrays {
  scratch_ref memory;
  index_t n;

  std::int64_t* price = memory.take(n);     ///< dual variable of each column, at most 0
  std::int64_t* distance = memory.take(n);  ///< length of the shortest path to each column
  std::int32_t* row_of = memory.take(n);    ///< row of each column; -1: none yet
  std::int32_t* column_of = memory.take(n);
  std::int32_t* previous = memory.take(n);  ///< row before each column on its path
  std::uint8_t* scanned = memory.take(n);   ///< 1 for columns whose row has been scanned
};

/// Assigns every row to a column of its own with the largest sum of weights; a negative weight
/// forbids the pair. The allowed pairs must be those of an equivalence relation with as many
/// columns as rows in each class, so that every row finds a column.
template <class Team, class Weight>
PLIMSOLL_HD std::int64_t assign_rows(Team& team, index_t n, Weight weight,
                                     assignment_arrays const& a) {
  constexpr std::int64_t unreached = highest<std::int64_t>;
  std::int64_t scans = 0;
  team.for_each(n, [=](index_t c) {
    a.price[c] = 0;
    a.row_of[c] = -1;
  });
  for (index_t row = 0; row < n; ++row) {
    index_t from = row;
    index_t column = -1;
    std::int64_t start = 0;  // length of the path to `from`, less the reduced cost of its column
    std::int64_t length = 0;
    for (bool is_first = true;; is_first = false) {
      // Of the nearest columns a free one is taken first, which ends the search.
      auto const nearest = team.argmin(n, [=](index_t c) {
        if (is_first) {
          a.distance[c] = unreached;
          a.scanned[c] = 0;
        } else if (c == column) {
          a.scanned[c] = 1;
        }
        if (a.scanned[c] != 0) {
          return unreached;
        }
        std::int64_t const w = weight(from, c);
        std::int64_t const by = start - w - a.price[c];
        if (w >= 0 && by < a.distance[c]) {
          a.distance[c] = by;
          a.previous[c] = static_cast<std::int32_t>(from);
        }
        std::int64_t const is_taken = a.row_of[c] >= 0 ? 1 : 0;
        return a.distance[c] == unreached ? unreached : 2 * a.distance[c] + is_taken;
      });
      ++scans;
      column = nearest.index;
      length = a.distance[column];
      if (a.row_of[column] < 0) {
        break;
      }
      from = a.row_of[column];
      start = length + weight(from, column) + a.price[column];
    }
    if (from != row) {  // else no column was scanned
      team.for_each(n, [=](index_t c) {
        if (a.scanned[c] != 0) {
          a.price[c] += a.distance[c] - length;
        }
      });
    }
    team.single([=] {
      auto c = static_cast<std::int32_t>(column);
      for (index_t r = -1; r != row;) {
        r = a.previous[c];
        a.row_of[c] = static_cast<std::int32_t>(r);
        std::int32_t const left = r == row ? -1 : a.column_of[r];
        a.column_of[r] = c;
        c = left;
      }
    });
  }
  return scans;
}

/// Assigns rows as `assign_rows`, and bounds the weight of all assignments. Under any prices p,
/// none exceeds the sum over the rows of the largest weight(r, c) + p(c), less the sum of p.
/// Weights for the bound are those of `limit`, at least as large as `weight`.
template <class Team, class Weight, class Limit>
PLIMSOLL_HD assignment_outcome solve_assignment(Team& team, index_t n, Weight weight, Limit limit,
                                                assignment_arrays const& a) {
  assignment_outcome result;
  result.scans = assign_rows(team, n, weight, a);
  result.weight = team.sum(n, [=](index_t r) { return weight(r, a.column_of[r]); });
  result.bound = team.sum(n, [=](index_t r) {
    std::int64_t most = forbidden_pair;
    for (index_t c = 0; c < n; ++c) {
      std::int64_t const w = limit(r, c);
      most = w < 0 ? most : maximum{}(most, w + a.price[c]);
    }
    return most - a.price[r];
  });
  return result;
}

// ----- relabelings -------------------------------------------------------------------------------

/// Exchanges of labels, one per group of layers.
struct relabelings {
  index_t layers_of_group;                 ///< 1, or all layers
  bool stay_on_nodes;                      ///< ranks of different nodes are not interchangeable
  std::int64_t unit;                       ///< weight of an expert that does not move
  tensor_ref<std::int64_t> weights;        ///< `[groups, ranks, ranks]`: new rank, label
  tensor_ref<std::int64_t> node_weights;   ///< `[groups, nodes, nodes]`
  tensor_ref<std::int64_t> node_limits;    ///< `[groups, nodes, nodes]`: bounds of `node_weights`
  tensor_ref<std::int32_t> rank_labels;    ///< `[groups, ranks, nodes]` on the labels of each node
  matrix_ref<std::int32_t> labels;         ///< `[groups, ranks]`: label of each new rank
  vector_ref<assignment_outcome> results;  ///< `[groups]`
  vector_ref<std::int64_t> scans;          ///< `[groups]`, of the assignments of ranks

  [[nodiscard]] PLIMSOLL_HD index_t groups() const { return labels.extent(0); }
  [[nodiscard]] PLIMSOLL_HD index_t group_of(index_t layer) const {
    return layer / layers_of_group;
  }
};

/// Sets the weight of ranks and labels to 0 if the ranks are interchangeable, and forbids the other
/// pairs. Problem = group of layers.
struct interchange_body {
  using device_team = warp;

  topology where;
  relabelings out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(where.ranks());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t group) const {
    index_t const ranks = where.ranks();
    auto* const kind = memory.take<std::int32_t>(ranks);
    team.for_each(ranks, [=, this](index_t r) {
      index_t first = 0;
      while (first < r && !are_interchangeable(group, first, r)) {
        ++first;
      }
      kind[r] = static_cast<std::int32_t>(first);
    });
    team.single([=, this] { out.scans[group] = 0; });
    PLIMSOLL_NO_UNROLL
    for (index_t r = 0; r < ranks; ++r) {
      std::int64_t* const row = &out.weights(group, r, 0);
      team.for_each(ranks, [=](index_t p) { row[p] = kind[p] == kind[r] ? 0 : forbidden_pair; });
    }
  }

 private:
  [[nodiscard]] PLIMSOLL_HD bool are_interchangeable(index_t group, index_t a, index_t b) const {
    if (where.is_active(a) != where.is_active(b) || where.speed(a) != where.speed(b) ||
        (out.stay_on_nodes && where.node_of(a) != where.node_of(b))) {
      return false;
    }
    slot_ranges const& ranges = where.ranges;
    index_t const first = group * out.layers_of_group;
    index_t const n = ranges.offsets.data == nullptr ? 1 : out.layers_of_group;
    for (index_t layer = first; layer < first + n; ++layer) {
      if (ranges.end(layer, a) - ranges.begin(layer, a) !=
          ranges.end(layer, b) - ranges.begin(layer, b)) {
        return false;
      }
    }
    return true;
  }
};

/// Slots of two placements in one layer, listed by expert.
struct migration_lists {
  scratch_ref memory;
  index_t experts;
  index_t slots;

  std::int32_t* rank_of = memory.take(slots);
  slot_lists before = slot_lists::in(memory, experts, slots);
  slot_lists after = slot_lists::in(memory, experts, slots);
  std::uint64_t* keys = memory.take(slots);  ///< of the sorts
  std::byte* sorting = memory.take(sort_bytes<block<128>, std::uint64_t>(slots));

  template <class Team>
  PLIMSOLL_HD void fill(Team& team, migration_pair const& pair, index_t layer) const {
    before.fill(team, row_of(pair.from, layer), keys, sorting);
    after.fill(team, row_of(pair.to, layer), keys, sorting);
  }
};

/// Counts the changes that alignment leaves in a layer, or holds the value that it refused.
struct alignment_outcome {
  slot_changes changes = {};
  fault refused = {};
};

/// Checks two placements, and adds what ranks of the new one share with ranks of the old one to the
/// weights. Problem = layer.
struct overlap_body {
  using device_team = block<128>;

  migration_pair pair;
  relabelings out;  ///< without weights: only checks
  alignment_outcome* outcomes;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<migration_lists>(pair.experts(), pair.slots());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    migration_lists const a{memory, pair.experts(), pair.slots()};
    fault const refused =
        pair.refuse(team, layer, a.rank_of, a.before.first, a.after.first).refused;
    team.single([=, this] { outcomes[layer] = {{}, refused}; });
    if (!refused && out.weights.data != nullptr) {
      add_overlap(team, a, layer);
    }
  }

 private:
  /// An expert that rank and label share weighs `unit`, and 1 for each slot after the first that
  /// keeps it. All slots together weigh less than one unit, so they only break ties.
  template <class Team>
  PLIMSOLL_HD void add_overlap(Team& team, migration_lists const& a, index_t layer) const {
    a.fill(team, pair, layer);
    index_t const experts = pair.experts();
    index_t const filled = a.after.first[experts];
    auto const new_map = row_of(pair.to, layer);
    index_t const group = out.group_of(layer);
    team.for_each(filled, [=, this](index_t i) {
      std::int32_t const rank = a.rank_of[a.after.slot[i]];
      std::int32_t const e = new_map[a.after.slot[i]];
      index_t const end = a.after.first[e + 1];
      if (i > a.after.first[e] && a.rank_of[a.after.slot[i - 1]] == rank) {
        return;  // the first slot of an expert on a rank counts for all
      }
      index_t const copies = copies_from(a.after, a.rank_of, i, end);
      index_t const old_end = a.before.first[e + 1];
      for (index_t j = a.before.first[e]; j < old_end;) {
        index_t const old_copies = copies_from(a.before, a.rank_of, j, old_end);
        add_to(&out.weights(group, rank, a.rank_of[a.before.slot[j]]),
               out.unit + minimum{}(copies, old_copies) - 1);
        j += old_copies;
      }
    });
  }

  /// Returns the number of slots in [i, end) of a list that are on the rank of slot i.
  [[nodiscard]] PLIMSOLL_HD static index_t copies_from(slot_lists const& lists,
                                                       std::int32_t const* rank_of, index_t i,
                                                       index_t end) {
    index_t next = i + 1;
    while (next < end && rank_of[lists.slot[next]] == rank_of[lists.slot[i]]) {
      ++next;
    }
    return next - i;
  }
};

/// Assigns the ranks of a node to the labels of a node. Problem = group of layers, node, and node
/// of the labels.
struct rank_assignment_body {
  using device_team = warp;

  topology where;
  relabelings out;

  [[nodiscard]] PLIMSOLL_HD index_t problems() const {
    return out.groups() * where.nodes * where.nodes;
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const most = (where.ranks() + where.nodes - 1) / where.nodes;
    return bytes_taken_by<assignment_arrays>(most);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const node = problem / where.nodes % where.nodes;
    index_t const label_node = problem % where.nodes;
    index_t const group = problem / where.nodes / where.nodes;
    index_t const first = where.first_rank(node);
    index_t const n = where.first_rank(node + 1) - first;
    index_t const first_label = where.first_rank(label_node);
    matrix_ref<std::int64_t const> weights(&out.weights(group, 0, 0), where.ranks(), where.ranks());
    auto const weight = [=](index_t r, index_t p) { return weights(first + r, first_label + p); };
    assignment_outcome result{forbidden_pair, forbidden_pair, 0};
    if (are_alike(team, weights, first, n, first_label,
                  where.first_rank(label_node + 1) - first_label)) {
      assignment_arrays const a{memory, n};
      result = solve_assignment(team, n, weight, weight, a);
      team.for_each(n, [=, this](index_t r) {
        out.rank_labels(group, first + r, label_node) =
            static_cast<std::int32_t>(first_label + a.column_of[r]);
      });
    }
    team.single([=, this] {
      out.node_weights(group, node, label_node) = result.weight;
      out.node_limits(group, node, label_node) = result.bound;
      add_to(&out.scans[group], result.scans);
    });
  }

 private:
  /// Returns whether two nodes have equally many ranks of each kind.
  template <class Team>
  PLIMSOLL_HD static bool are_alike(Team& team, matrix_ref<std::int64_t const> weights,
                                    index_t first, index_t n, index_t other, index_t other_n) {
    return n == other_n && (first == other || !team.any(n, [=](index_t r) {
             index_t here = 0;
             index_t there = 0;
             for (index_t k = 0; k < n; ++k) {
               here += weights(first + r, first + k) >= 0 ? 1 : 0;
               there += weights(first + r, other + k) >= 0 ? 1 : 0;
             }
             return here != there;
           }));
  }
};

/// Assigns the nodes to the labels of nodes, and gives each rank its label. Problem = group of
/// layers.
struct node_assignment_body {
  using device_team = warp;

  topology where;
  relabelings out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<assignment_arrays>(where.nodes);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t group) const {
    assignment_arrays const a{memory, where.nodes};
    assignment_outcome result = solve_assignment(
        team, where.nodes,
        [=, this](index_t n, index_t label) { return out.node_weights(group, n, label); },
        [=, this](index_t n, index_t label) { return out.node_limits(group, n, label); }, a);
    result.scans = where.nodes > 1 ? result.scans + out.scans[group] : out.scans[group];
    team.for_each(where.ranks(), [=, this](index_t r) {
      out.labels(group, r) = out.rank_labels(group, r, a.column_of[where.node_of(r)]);
    });
    team.single([=, this] { out.results[group] = result; });
  }
};

// ----- slots -------------------------------------------------------------------------------------

/// Working memory of `slot_alignment_body`, without the lists.
struct slot_alignment_arrays {
  scratch_ref memory;
  index_t slots;

  std::int32_t* expert = memory.take(slots);   ///< the new placement, whose array may be the output
  std::int32_t* kept = memory.take(slots);     ///< slot in which an expert stays; -1: it does not
  std::int32_t* is_open = memory.take(slots);  ///< 1 for slots of ranks in which no expert stays
  /// Slots before this one whose expert does not stay.
  std::int32_t* arrivals = memory.take(slots);
  std::int32_t* open = memory.take(slots);        ///< open slots before this one
  std::int32_t* open_slots = memory.take(slots);  ///< rising
};

/// Gives ranks their labels and experts that stay on a rank their slots; counts what changes.
/// Problem = layer.
struct slot_alignment_body {
  using device_team = block<128>;

  migration_pair pair;
  relabelings labels;                ///< without labels: each rank keeps its own
  matrix_ref<std::int32_t> aligned;  ///< `[layers, slots]`; empty: only counts
  alignment_outcome* outcomes;       ///< of `overlap_body`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<migration_lists>(pair.experts(), pair.slots()) +
           bytes_taken_by<slot_alignment_arrays>(pair.slots());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    if (outcomes[layer].refused) {
      return;
    }
    migration_lists const lists{memory, pair.experts(), pair.slots()};
    slot_alignment_arrays const a{memory, pair.slots()};
    pair.find_ranks(team, layer, lists.rank_of);
    lists.fill(team, pair, layer);
    index_t const moves = keep_slots(team, lists, a, layer);
    index_t const changes = aligned.data == nullptr ? count_changes(team, layer)
                                                    : fill_slots(team, lists.rank_of, a, layer);
    team.single([=, this] { outcomes[layer].changes = {moves, changes - moves}; });
  }

 private:
  [[nodiscard]] PLIMSOLL_HD index_t label_of(index_t layer, index_t rank) const {
    return labels.labels.data == nullptr ? rank : labels.labels(labels.group_of(layer), rank);
  }

  /// The n-th slot of an expert on a rank stays in the n-th slot that the label had of it. Returns
  /// the number of moves.
  template <class Team>
  PLIMSOLL_HD index_t keep_slots(Team& team, migration_lists const& lists,
                                 slot_alignment_arrays const& a, index_t layer) const {
    auto const new_map = row_of(pair.to, layer);
    topology const layout = pair.where;
    team.for_each(pair.slots(), [=](index_t slot) {
      a.expert[slot] = new_map[slot];
      a.kept[slot] = -1;
      a.is_open[slot] = lists.rank_of[slot] >= 0 ? 1 : 0;
    });
    return team.count(lists.after.first[pair.experts()], [=, this](index_t i) {
      std::int32_t const slot = lists.after.slot[i];
      std::int32_t const e = a.expert[slot];
      index_t const rank = lists.rank_of[slot];
      index_t const label = label_of(layer, rank);
      index_t const number = i - first_from(lists.after, e, layout.ranges.begin(layer, rank));
      index_t const old = first_from(lists.before, e, layout.ranges.begin(layer, label)) + number;
      bool const stays = old < lists.before.first[e + 1] &&
                         lists.before.slot[old] < layout.ranges.end(layer, label);
      if (stays) {
        a.kept[slot] = lists.before.slot[old];
        a.is_open[lists.before.slot[old]] = 0;
      }
      return number == 0 && !stays;
    });
  }

  /// Returns the position in the list of an expert of its first slot from `slot` on.
  [[nodiscard]] PLIMSOLL_HD static index_t first_from(slot_lists const& lists, index_t expert,
                                                      index_t slot) {
    index_t low = lists.first[expert];
    for (index_t high = lists.first[expert + 1]; low < high;) {
      index_t const middle = low + (high - low) / 2;
      bool const is_before = lists.slot[middle] < slot;
      low = is_before ? middle + 1 : low;
      high = is_before ? high : middle;
    }
    return low;
  }

  /// Writes the layer. The n-th expert of a rank that does not stay goes to the n-th open slot of
  /// the label. Returns the number of these experts.
  template <class Team>
  PLIMSOLL_HD index_t fill_slots(Team& team, std::int32_t const* rank_of,
                                 slot_alignment_arrays const& a, index_t layer) const {
    index_t const slots = pair.slots();
    topology const layout = pair.where;
    auto const out = row_of(aligned, layer);
    index_t const changes = team.exclusive_scan(
        slots,
        [=](index_t slot) { return std::int32_t{a.expert[slot] >= 0 && a.kept[slot] < 0 ? 1 : 0}; },
        a.arrivals);
    team.exclusive_scan(
        slots, [=](index_t slot) { return a.is_open[slot]; }, a.open);
    team.for_each(slots, [=](index_t slot) {
      out[slot] = -1;
      if (a.is_open[slot] != 0) {
        a.open_slots[a.open[slot]] = static_cast<std::int32_t>(slot);
      }
    });
    team.for_each(slots, [=, this](index_t slot) {
      if (a.expert[slot] >= 0) {
        index_t to = a.kept[slot];
        if (to < 0) {
          index_t const rank = rank_of[slot];
          index_t const label = label_of(layer, rank);
          to = a.open_slots[a.open[layout.ranges.begin(layer, label)] + a.arrivals[slot] -
                            a.arrivals[layout.ranges.begin(layer, rank)]];
        }
        out[to] = a.expert[slot];
      }
    });
    return changes;
  }

  /// Counts the filled slots that get another expert.
  template <class Team>
  PLIMSOLL_HD index_t count_changes(Team& team, index_t layer) const {
    auto const old_map = row_of(pair.from, layer);
    auto const new_map = row_of(pair.to, layer);
    return team.count(pair.slots(), [=](index_t slot) {
      return new_map[slot] >= 0 && new_map[slot] != old_map[slot];
    });
  }
};

/// Counts the slots that differ. Problem = layer.
struct changed_slots_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  matrix_ref<std::int32_t const> from;
  matrix_ref<std::int32_t const> to;
  index_t* counts;  ///< `[layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t layer) const {
    index_t const changed = team.count(
        to.extent(1), [this, layer](index_t slot) { return from(layer, slot) != to(layer, slot); });
    team.single([=, this] { counts[layer] = changed; });
  }
};

}}}  // namespace plimsoll::detail
